"""The packages that Microsoft, Google and others publish for machines outside AWS: Lustre clients, DOCA-OFED, gIB, TCPXO, GDRCopy, docker.

Names, versions and dependencies follow Azure/azhpc-images, GoogleCloudPlatform/cluster-toolkit and
https://learn.microsoft.com/azure/azure-managed-lustre/client-install; the content is minimal.
Google's plugin and receive manager are container images; the docker package here simulates them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from .debs import Deb, publish
from .vendors import SUITES, UNIT, Vendors, module

GOOGLE = "us-apt.pkg.dev/projects"
GDRCOPY = "developer.download.nvidia.com/compute/redist/gdrcopy/CUDA%2012.8/ubuntu22_04/x64"
LFS = {"/usr/bin/lfs": "#!/bin/sh\necho 'lfs {}'\n"}
DOCKER = """#!/bin/bash
# The docker calls of the steps: --config DIR login|pull, image inspect, run IMAGE install.
images=/var/lib/standin/images config=''
[[ $1 != --config ]] || { config=$2; shift 2; }
mkdir -p "$images"
name() { tr '/:' '__' <<<"$1"; }
case "$1 $2" in
  "login "*) read -r token && [[ -n $token && -n $config ]] && echo "${!#}" >"$config/auth" ;;
  "pull "*) grep -qxF "https://${!#%%/*}" "$config/auth" && : >"$images/$(name "${!#}")" ;;
  "image inspect") [[ -e $images/$(name "${!#}") ]] && echo "${!#%:*}@sha256:$(sha256sum <<<"${!#}" | cut -d ' ' -f 1)" ;;
  "run "*)
    for word in "$@"; do [[ $word != */gpudirect-*/* ]] || image=$word; done
    [[ -e $images/$(name "$image") ]] || exit 125
    folder=$(sed 's|.*/gpudirect-\\([a-z]*\\)/.*|/var/lib/\\1/lib64|' <<<"$image")
    mkdir -p "$folder"
    touch "$folder/libnccl-net.so" "$folder/nccl-env-profile.sh"
    ;;
  *) exit 1 ;;
esac
"""


def publish_clouds(vendors: Vendors, versions: Mapping[str, str], kernels: tuple[str, ...]) -> dict[str, str]:
    """Publish the packages of this cloud's lock; returns the variables that this mirror changes."""
    suite = SUITES[versions["CUDA_KEYRING_URL"].split("/repos/")[1].split("/")[0]]
    changed: dict[str, str] = {}
    if "amlfs" in versions.get("LUSTRE_PACKAGES", ""):
        changed |= _amlfs(vendors, suite, versions["LUSTRE_PACKAGES"].partition("=")[0], kernels)
    if GOOGLE in versions.get("LUSTRE_REPOSITORY", ""):
        changed |= _google_lustre(vendors, versions["LUSTRE_SUITE"], kernels)
    if "DOCA_HOST_URL" in versions:
        changed |= _doca(vendors, versions, kernels)
    if "GIB_VERSION" in versions or "TCPXO_HELPER" in versions:
        changed |= _gpudirect(vendors)
    if "GDRCOPY_VERSION" in versions:
        changed |= _gdrcopy(vendors, kernels[-1])
    if "DOCKER_VERSION" in versions:
        changed |= _docker(vendors, versions)
    if "ENROOT_VERSION" in versions:
        changed |= _enroot(vendors, versions["ENROOT_VERSION"])
    return changed


def _amlfs(vendors: Vendors, suite: str, name: str, kernels: tuple[str, ...]) -> dict[str, str]:
    """One package name whose versions are kernels, as Microsoft publishes it; the long-term series only, on Ubuntu 22.04."""
    tail = name.removeprefix("amlfs-lustre-client-")
    version = tail.partition("-")[0]
    debs = [Deb(f"lustre-client-{tail}", "1", files={"/usr/bin/lfs": LFS["/usr/bin/lfs"].format(version)})]
    for kernel in kernels:
        if suite == "jammy" and not kernel.startswith("5.15"):
            continue
        files = module(kernel, "lustre", version) | module(kernel, "lnet", version)
        debs.append(Deb(f"kmod-lustre-client-{kernel}-{tail}", "1", f"linux-image-{kernel}", files))
        debs.append(Deb(name, kernel, f"kmod-lustre-client-{kernel}-{tail}, lustre-client-{tail}"))
    publish(vendors.folder / f"web/packages.microsoft.com/repos/amlfs-{suite}", suite, debs, vendors.keys["microsoft"])
    vendors._put("packages.microsoft.com/keys/microsoft.asc", vendors.keys["microsoft"].public)
    return {"LUSTRE_KEY_FINGERPRINT": vendors.keys["microsoft"].fingerprint}


def _google_lustre(vendors: Vendors, suite: str, kernels: tuple[str, ...]) -> dict[str, str]:
    version = "2.14.0"
    debs = [Deb("lustre-client-utils", "2.14.0-1", files={"/usr/bin/lfs": LFS["/usr/bin/lfs"].format(version)})]
    for kernel in kernels:
        files = module(kernel, "lustre", version) | module(kernel, "lnet", version)
        debs.append(Deb(f"lustre-client-modules-{kernel}", "2.14.0-1", "lustre-client-utils", files))
    publish(vendors.folder / f"web/{GOOGLE}/lustre-client-binaries", suite, debs, vendors.keys["google"])
    vendors._put("us-apt.pkg.dev/doc/repo-signing-key.gpg", vendors.keys["google"].public)
    return {"LUSTRE_KEY_FINGERPRINT": vendors.keys["google"].fingerprint}


def _doca(vendors: Vendors, versions: Mapping[str, str], kernels: tuple[str, ...]) -> dict[str, str]:
    """The package with the repository; it depends on a dkms of its own, which the step blocks."""
    web, full = vendors.folder / "web", f"{versions['DOCA_VERSION']}-044000-25.10"
    built = "".join(f"dkms build-and-install mlnx-ofed-kernel 25.10 {kernel} mlx5_core mlx5_ib\n" for kernel in kernels)
    debs = [
        Deb("doca-ofed", full, f"mlnx-ofed-kernel-dkms (= {full})"),
        Deb("mlnx-ofed-kernel-dkms", full, "dkms", postinst=built),
        Deb("dkms", "99", files={"/usr/sbin/dkms": "#!/bin/sh\necho DOCA has brought its own dkms >&2\nexit 1\n"}),
    ]
    publish(web / "linux.mellanox.com/doca", "/", debs, vendors.keys["nvidia"], label="DOCA-HOST")
    ring = "/usr/share/keyrings/cuda-archive-keyring.gpg"
    source = f"deb [signed-by={ring}] https://linux.mellanox.com/doca /\n"
    host = Deb("doca-host", full, files={"/etc/apt/sources.list.d/doca.list": source}).build(web)
    path = versions["DOCA_HOST_URL"].removeprefix("https://")
    vendors._put(path, host.read_bytes())
    return {"DOCA_HOST_SHA256": hashlib.sha256(host.read_bytes()).hexdigest()}


def _gpudirect(vendors: Vendors) -> dict[str, str]:
    script, plugin = "/usr/local/gib/scripts/set_nccl_env.sh", "/usr/local/gib/lib64/libnccl-net.so"
    gib = [Deb("nccl-gib", version, files={script: "", plugin: ""}) for version in ("1.1.0", "2.0.0")]
    helper = Deb(
        "dmabuf-import-helper",
        "1.1",
        "dkms",
        files={"/usr/src/dmabuf-import-helper-1.1/import-helper.c": "MODULE_IMPORT_NS(DMA_BUF);\n"},
        postinst='dkms build-and-install dmabuf-import-helper 1.1 "$(uname -r)" import_helper',
    )
    folder = vendors.folder / f"web/{GOOGLE}/gce-ai-infra"
    publish(folder, "gpudirect-gib-apt", gib, vendors.keys["google"])
    publish(folder, "gpudirect-tcpxo-apt", [helper], vendors.keys["google"])
    vendors._put("us-apt.pkg.dev/doc/repo-signing-key.gpg", vendors.keys["google"].public)
    token = "computeMetadata/v1/instance/service-accounts/default/token"
    vendors._put(token, json.dumps({"access_token": "ya29.stand-in", "expires_in": 3599}).encode())
    key = vendors.keys["google"].fingerprint
    return {"GIB_KEY_FINGERPRINT": key, "TCPXO_KEY_FINGERPRINT": key}


def _gdrcopy(vendors: Vendors, kernel: str) -> dict[str, str]:
    drv = Deb("gdrdrv-dkms", "2.5.1-1", files=module(kernel, "gdrdrv", "2.5.1"))
    return {"GDRCOPY_DEBS": _files(vendors, GDRCOPY, drv, Deb("libgdrapi", "2.5.1-1"))}


def _files(vendors: Vendors, folder: str, *debs: Deb) -> str:
    """Publish package files outside a repository; returns the list with their checksums."""
    listed = []
    for path in [deb.build(vendors.folder / "web") for deb in debs]:
        vendors._put(f"{folder.replace('%20', ' ')}/{path.name}", path.read_bytes())
        listed.append(f"https://{folder}/{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}")
    return "; ".join(listed)


def _docker(vendors: Vendors, versions: Mapping[str, str]) -> dict[str, str]:
    """Docker's packages at the locked versions, and a newer engine."""
    pins = dict(spec.split("=") for spec in versions["DOCKER_PACKAGES"].split())
    debs = [Deb(name, pins[name]) for name in ("containerd.io", "docker-buildx-plugin")]
    for version in (pins["docker-ce"], pins["docker-ce"].replace("5:29.", "5:30.")):
        number = version.removeprefix("5:").partition("-")[0]
        client = (
            f"#!/bin/sh\ncase $1 in --version) echo 'Docker version {number}, build 1' ;; "
            f"info) systemctl is-active --quiet docker.service && echo {number} ;; esac\n"
        )
        debs.append(Deb("docker-ce-cli", version, files={"/usr/bin/docker": client}))
        unit = {"/lib/systemd/system/docker.service": UNIT.format("/usr/bin/dockerd")}
        debs.append(Deb("docker-ce", version, "docker-ce-cli, containerd.io (>= 1.7.27)", files=unit))
    suite, component = versions["DOCKER_SUITE"].split()
    folder = vendors.folder / "web" / versions["DOCKER_REPOSITORY"].removeprefix("https://")
    publish(folder, suite, debs, vendors.keys["docker"], component=component)
    vendors._put(versions["DOCKER_KEY_URL"].removeprefix("https://"), vendors.keys["docker"].public)
    return {"DOCKER_KEY_FINGERPRINT": vendors.keys["docker"].fingerprint}


def _enroot(vendors: Vendors, version: str) -> dict[str, str]:
    """Enroot's files; its helper runs the command without namespaces."""
    shell = {
        "/usr/bin/enroot": f"#!/bin/sh\necho {version}\n",
        "/usr/bin/enroot-nsenter": '#!/bin/sh\nshift 2\nexec "$@"\n',
    }
    main = Deb("enroot", f"{version}-1", "pciutils", files=shell)
    caps = Deb("enroot+caps", f"{version}-1", f"enroot (= {version}-1)")
    return {"ENROOT_DEBS": _files(vendors, f"github.com/NVIDIA/enroot/releases/download/v{version}", main, caps)}


def docker() -> Deb:
    """Ubuntu's docker package."""
    unit = {"/lib/systemd/system/docker.service": UNIT.format("/usr/bin/dockerd")}
    return Deb("docker.io", "28.2.2", files={"/usr/bin/docker": DOCKER, **unit})
