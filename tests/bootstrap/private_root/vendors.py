"""The packages that the vendors publish, with the vendors' names, versions and dependencies and minimal content.

Names and dependencies follow NVIDIA/cloud-native-docs (container-toolkit), Azure/azhpc-images,
awslabs/amazon-eks-ami and the EFA changelog. Each name also has a newer version than the
lock's, so that a step without its pin is detected. Versions of Ubuntu's own packages are invented.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from .debs import Deb, Key, make_key, publish

NEWER_DRIVER = "595.91.07"
NEWER_NCCL = "2.32.3-1+cuda13.2"
NEWER_TOOLKIT = "1.21.0"
DCGM = ("1:4.5.2-1", "1:5.0.0-1")
UNIT = "[Unit]\nDescription=stand-in\n[Service]\nExecStart={}\n[Install]\nWantedBy=multi-user.target\n"
STATIC = (
    "[Unit]\nStopWhenUnneeded=true\n[Service]\nExecStart=/usr/bin/nvidia-persistenced --no-persistence-mode --verbose\n"
)
"""Ubuntu's unit of the persistence daemon."""
SUITES = {"ubuntu2204": "jammy", "ubuntu2404": "noble"}


def driver(version: str) -> list[Deb]:
    """NVIDIA's driver in the open flavour; dkms builds its module if headers are installed."""
    deb, same = f"{version}-1ubuntu1", f"(= {version}-1ubuntu1)"
    smi = (
        "#!/bin/sh\n[ -r /proc/driver/nvidia/version ] || exit 9\n"
        f"case $1 in *persistence_mode) cat /run/standin/persistence ;; *) echo 'NVIDIA-SMI version  : {version}' ;; esac\n"
    )
    return [
        Deb(
            "nvidia-open",
            deb,
            f"nvidia-dkms-open {same}, nvidia-utils {same}, nvidia-persistenced {same}, libnvidia-compute {same}",
        ),
        Deb(
            "nvidia-dkms-open",
            deb,
            "dkms",
            postinst=f'dkms build-and-install nvidia {version} "$(uname -r)" nvidia nvidia-uvm',
        ),
        Deb("nvidia-utils", deb, f"libnvidia-compute {same}", {"/usr/bin/nvidia-smi": smi}),
        Deb("libnvidia-compute", deb),
        Deb(
            "nvidia-persistenced",
            deb,
            f"libnvidia-compute {same}",
            {"/lib/systemd/system/nvidia-persistenced.service": STATIC},
        ),
        Deb(
            f"nvidia-driver-pinning-{version}",
            deb,
            files={
                "/etc/apt/preferences.d/nvidia-driver-pinning": "Package: nvidia-open nvidia-dkms-* nvidia-utils"
                f" nvidia-persistenced libnvidia-compute nvidia-fabricmanager\nPin: version {version}-*\nPin-Priority: 1001\n"
            },
        ),
        Deb(
            "nvidia-fabricmanager",
            f"{version}-1",
            files={
                "/usr/bin/nv-fabricmanager": f"#!/bin/sh\necho 'Fabric Manager version is : {version}'\n",
                "/lib/systemd/system/nvidia-fabricmanager.service": UNIT.format("/usr/bin/nv-fabricmanager"),
            },
        ),
    ]


def nccl(version: str) -> list[Deb]:
    """Runtime and headers of one NCCL version."""
    library = {"/usr/lib/x86_64-linux-gnu/libnccl.so.2": version}
    return [Deb("libnccl2", version, files=library), Deb("libnccl-dev", version, f"libnccl2 (= {version})")]


def diagnostics() -> list[Deb]:
    """The NVLink subnet manager and DCGM."""
    dcgmi = "#!/bin/sh\necho 'version: 4.5.2'\n"
    core = {
        "/usr/bin/dcgmi": dcgmi,
        "/lib/systemd/system/nvidia-dcgm.service": UNIT.format("/usr/bin/nv-hostengine"),
    }
    name = "datacenter-gpu-manager-4"
    return [
        *(Deb("nvlsm", version, "libibumad3") for version in ("2025.10.12-1", "2026.02.1-1")),
        Deb("libibumad3", "50.0"),
        Deb("infiniband-diags", "50.0", "libibumad3", {"/usr/sbin/ibstat": "#!/bin/sh\n"}),
        *(Deb(f"{name}-core", version, files=core) for version in DCGM),
        *(
            Deb(f"{name}-{part}", version, f"{name}-core (= {version})")
            for version in DCGM
            for part in ("cuda13", "proprietary", "proprietary-cuda13")
        ),
    ]


def cuda() -> list[Deb]:
    """CUDA toolkits."""
    return [
        Deb(
            f"cuda-toolkit-{major}-{minor}",
            f"{major}.{minor}.2-1",
            files={
                f"/usr/local/cuda-{major}.{minor}/bin/nvcc": "#!/bin/sh\necho 'Cuda compilation tools, release "
                f"{major}.{minor}, V{major}.{minor}.88'\n"
            },
        )
        for major, minor in (("13", "0"), ("13", "2"), ("12", "9"))
    ]


def toolkit(version: str) -> list[Deb]:
    """The four packages of the container toolkit."""
    deb = f"{version}-1"
    ctk = (
        f"#!/bin/sh\ncase $1 in\n--version) echo 'NVIDIA Container Toolkit CLI version {version}' ;;\n"
        "cdi) [ -f /var/run/cdi/nvidia.yaml ] && printf 'nvidia.com/gpu=0\\nnvidia.com/gpu=all\\n' ;;\n"
        "write) mkdir -p /var/run/cdi && echo stand-in >/var/run/cdi/nvidia.yaml ;;\nesac\n"
    )
    refresh = "[Service]\nType=oneshot\nExecStart=/usr/bin/nvidia-ctk write\n[Install]\nWantedBy=multi-user.target\n"
    return [
        Deb(
            "nvidia-container-toolkit",
            deb,
            f"nvidia-container-toolkit-base (= {deb}), libnvidia-container-tools (>= {deb})",
        ),
        Deb(
            "nvidia-container-toolkit-base",
            deb,
            files={
                "/usr/bin/nvidia-ctk": ctk,
                "/lib/systemd/system/nvidia-cdi-refresh.service": refresh,
                "/lib/systemd/system/nvidia-cdi-refresh.path": UNIT.format("/bin/true"),
            },
        ),
        Deb("libnvidia-container-tools", deb, f"libnvidia-container1 (>= {deb})"),
        Deb("libnvidia-container1", deb),
    ]


def module(kernel: str, name: str, version: str) -> dict[str, str]:
    """A kernel module that tools/modinfo can read."""
    return {f"/lib/modules/{kernel}/extra/{name}.ko": f"version: {version}\nvermagic: {kernel} SMP mod_unload\n"}


def lustre(kernels: tuple[str, ...]) -> list[Deb]:
    """The FSx client: one package of modules per kernel, and one that follows the newest kernel."""
    lfs = {"/usr/bin/lfs": "#!/bin/sh\necho 'lfs 2.15.6'\n"}
    debs = [Deb("lustre-client-utils", "2.15.6-1fsx1", files=lfs)]
    for kernel in kernels:
        files = module(kernel, "lustre", "2.15.6") | module(kernel, "lnet", "2.15.6")
        debs.append(Deb(f"lustre-client-modules-{kernel}", "2.15.6-1fsx1", "lustre-client-utils", files))
    newest = f"lustre-client-modules-{kernels[-1]}" if kernels else "lustre-client-utils"
    return [*debs, Deb("lustre-client-modules-aws", "6.8.0.1040", newest)]


def ubuntu(kernels: tuple[str, ...], headers: tuple[str, ...]) -> list[Deb]:
    """The few packages of Ubuntu that the steps install. The newest kernel of the series 5.15 is also the long-term one."""
    from .clouds import docker

    debs = [Deb("pciutils", "3.7.0"), Deb("mdadm", "4.2"), Deb("xfsprogs", "5.13"), Deb("dkms", "3.0", files=DKMS)]
    debs += [
        docker(),
        Deb("nfs-common", "1:2.6.1"),
        Deb("perftest", "4.5", files={"/usr/bin/ib_write_bw": "#!/bin/sh\n"}),
        Deb("nftables", "1.0.2", files={"/usr/sbin/nft": NFT}),
        Deb("nvtop", "1.2-1"),
        Deb("nvtop", "1.3-1"),
        Deb("htop", "3.0.5-7"),
        Deb("held-tool", "1-1"),
        Deb("held-tool", "2-1"),
        Deb("greedy", "1-1", "held-tool (>= 2)"),
        Deb("rude", "1-1", conflicts="held-tool"),
    ]
    flavour = kernels[-1].rpartition("-")[2]
    for kernel in kernels:
        inbox = module(kernel, "ib-umad", "1") | module(kernel, "mlx5_core", "1") | module(kernel, "mlx5_ib", "1")
        debs.append(Deb(f"linux-image-{kernel}", "1", files=inbox))
        if kernel in headers:
            debs.append(Deb(f"linux-headers-{kernel}", "1", files={f"/lib/modules/{kernel}/build/Makefile": ""}))
    lines = {flavour: headers[-1]}
    lines |= {f"{flavour}-lts-22.04": kernel for kernel in headers if kernel.startswith("5.15")}
    for line, newest in lines.items():
        for part in ("image", "headers"):
            debs.append(Deb(f"linux-{part}-{line}", "6.8.0.1040", f"linux-{part}-{newest}"))
    return debs


NFT = """#!/bin/bash
# One table: -f FILE, list table FAMILY NAME, delete table FAMILY NAME; lost at a boot, like /run.
kept=/run/standin/nft
case "$1 $2" in
  "-f "*) sed '1,2d; s/counter drop/counter packets 0 bytes 0 drop/' "$2" >$kept ;;
  "list table") grep -qs "^table $3 $4 {" $kept && cat $kept ;;
  "delete table") rm $kept ;;
  *) exit 1 ;;
esac
"""
DKMS = {
    "/usr/sbin/dkms": """#!/bin/bash
set -e
# build-and-install NAME VERSION KERNEL MODULE...
list=/var/lib/dkms/status
mkdir -p /var/lib/dkms
touch $list
build() {
  local what=$1 kernel=$2 name modules
  read -ra modules <"/var/lib/dkms/${what%/*}.modules"
  if grep -qs 'IMPORT_NS(DMA_BUF)' "/usr/src/${what/\\//-}"/*.c && [[ $(printf '%s\\n' 6.13 "$kernel" | sort -V | head -n 1) == 6.13 ]]; then
    echo "Error! Bad return status for module build on kernel: $kernel" >&2
    exit 10
  fi
  if ! [[ -e /lib/modules/$kernel/build ]]; then
    echo "dkms: no headers for $kernel" >&2
    grep -qxF "$what: added" $list || echo "$what: added" >>$list
    return 0
  fi
  mkdir -p "/lib/modules/$kernel/extra/dkms"
  for name in "${modules[@]}"; do
    printf 'version: %s\\nvermagic: %s SMP mod_unload\\n' "${what#*/}" "$kernel" >"/lib/modules/$kernel/extra/dkms/$name.ko"
  done
  sed -i "\\|^$what: added|d" $list
  grep -qxF "$what, $kernel, x86_64: installed" $list || echo "$what, $kernel, x86_64: installed" >>$list
}
case $1 in
  status) cat $list ;;
  autoinstall) for what in $(sed -n 's/: added$//p' $list); do build "$what" "$(uname -r)"; done ;;
  build-and-install)
    echo "${@:5}" >"/var/lib/dkms/$2.modules"
    build "$2/$3" "$4"
    ;;
esac
"""
}
EFA = """#!/bin/bash
set -e
kernel=$(uname -r)
mkdir -p /opt/amazon/efa/bin /opt/amazon/ofi-nccl/lib/x86_64-linux-gnu /lib/modules/$kernel/extra
printf 'version: 3.3.1\\nvermagic: %s SMP mod_unload\\n' "$kernel" >/lib/modules/$kernel/extra/efa.ko
printf '#!/bin/sh\\necho "efa:"\\n' >/opt/amazon/efa/bin/fi_info
chmod +x /opt/amazon/efa/bin/fi_info
touch /opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so
echo "# EFA installer version: @VERSION@" >/opt/amazon/efa_installed_packages
"""


@dataclass
class Vendors:
    """All vendors' servers behind one mirror on loopback."""

    folder: Path
    keys: dict[str, Key] = field(default_factory=dict)
    troubles: list[Callable[[str], int | None]] = field(default_factory=list)
    """Each is called with every path; a number is the HTTP status to answer instead."""
    asked: list[str] = field(default_factory=list)

    def publish(
        self,
        versions: Mapping[str, str],
        kernels: tuple[str, ...],
        *,
        headers: tuple[str, ...] | None = None,
        with_lustre: tuple[str, ...] | None = None,
        signer: str | None = None,
    ) -> dict[str, str]:
        """Publish everything for one lock; returns the lock as this mirror needs it."""
        for name in ("nvidia", "fsx", "toolkit", "ubuntu", "efa", "microsoft", "google", "docker", "stranger"):
            if name not in self.keys:
                self.keys[name] = make_key(name)
        repository = versions["CUDA_KEYRING_URL"].split("/repos/")[1].split("/")[0]
        suite = SUITES[repository]
        web = self.folder / "web"
        cuda_repo = web / f"developer.download.nvidia.com/compute/cuda/repos/{repository}/x86_64"
        gpu = driver(versions["DRIVER_VERSION"]) + driver(NEWER_DRIVER) + cuda() + diagnostics()
        gpu += nccl(versions["NCCL_VERSION"]) + nccl(NEWER_NCCL)
        publish(cuda_repo, "/", gpu, self.keys[signer or "nvidia"])
        keyring = self._keyring(repository).build(cuda_repo)
        keyring.rename(cuda_repo / "cuda-keyring_1.1-1_all.deb")
        publish(web / "archive.ubuntu.com/ubuntu", suite, ubuntu(kernels, headers or kernels), self.keys["ubuntu"])
        fsx = kernels if with_lustre is None else with_lustre
        if kernels[-1].endswith("-aws"):
            publish(web / "fsx-lustre-client-repo.s3.amazonaws.com/ubuntu", suite, lustre(fsx), self.keys["fsx"])
        containers = toolkit(versions["CONTAINER_TOOLKIT_VERSION"]) + toolkit(NEWER_TOOLKIT)
        publish(web / "nvidia.github.io/libnvidia-container/stable/deb/amd64", "/", containers, self.keys["toolkit"])
        self._put("nvidia.github.io/libnvidia-container/gpgkey", self.keys["toolkit"].public)
        self._put(
            "fsx-lustre-client-repo-public-keys.s3.amazonaws.com/fsx-ubuntu-public-key.asc", self.keys["fsx"].public
        )
        changed = {
            "MIRROR_URL": self.url,
            "CUDA_KEYRING_SHA256": hashlib.sha256((cuda_repo / "cuda-keyring_1.1-1_all.deb").read_bytes()).hexdigest(),
            "CONTAINER_TOOLKIT_KEY_FINGERPRINT": self.keys["toolkit"].fingerprint,
            "ROOT_FREE_GIB": "1",
        }
        if "fsx-lustre" in versions.get("LUSTRE_REPOSITORY", ""):
            changed["LUSTRE_KEY_FINGERPRINT"] = self.keys["fsx"].fingerprint
        if "EFA_INSTALLER_VERSION" in versions:
            changed["EFA_INSTALLER_KEY_FINGERPRINT"] = self.keys["efa"].fingerprint
            self._efa(versions["EFA_INSTALLER_VERSION"])
        from .clouds import publish_clouds

        return {**versions, **changed, **publish_clouds(self, versions, kernels)}

    def _keyring(self, repository: str) -> Deb:
        ring = "/usr/share/keyrings/cuda-archive-keyring.gpg"
        line = (
            f"deb [signed-by={ring}] https://developer.download.nvidia.com/compute/cuda/repos/{repository}/x86_64/ /\n"
        )
        armoured = self.keys["nvidia"].public.decode()
        # A .deb of text files contains the armored key; apt reads only binary keys.
        return Deb(
            "cuda-keyring",
            "1.1-1",
            files={
                f"/etc/apt/sources.list.d/cuda-{repository}-x86_64.list": line,
                "/usr/share/keyrings/cuda.asc": armoured,
            },
            postinst=f"gpg --batch --yes --dearmor -o {ring} /usr/share/keyrings/cuda.asc",
        )

    def _efa(self, version: str) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as target:
            script = EFA.replace("@VERSION@", version).encode()
            entry = tarfile.TarInfo("aws-efa-installer/efa_installer.sh")
            entry.size, entry.mode = len(script), 0o755
            target.addfile(entry, io.BytesIO(script))
        name = f"efa-installer.amazonaws.com/aws-efa-installer-{version}.tar.gz"
        path = self._put(name, archive.getvalue())
        self.keys["efa"].sign("--detach-sign", source=path, target=path.with_name(path.name + ".sig"))
        self._put("efa-installer.amazonaws.com/aws-efa-installer.key", self.keys["efa"].public)

    def _put(self, name: str, content: bytes) -> Path:
        path = self.folder / "web" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def __enter__(self) -> Vendors:
        (self.folder / "web").mkdir(parents=True)
        vendors = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                vendors.asked.append(self.path)
                for trouble in vendors.troubles:
                    status = trouble(self.path)
                    if status is not None:
                        self.send_error(status)
                        return
                super().do_GET()

            def log_message(self, format: str, *args: object) -> None:
                pass

        handler = partial(Handler, directory=str(self.folder / "web"))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        for key in self.keys.values():
            key.forget()
