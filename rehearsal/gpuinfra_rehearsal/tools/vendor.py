"""Commands of vendors' packages: fabric manager, persistence daemon, CUDA, EFA installer, container toolkit, Lustre."""

from __future__ import annotations

import os
import sys

from .. import devices
from . import kernel
from .passthrough import run_real
from .state import State, change_state, exists, fail, link, read_state, read_text, walk, write_file
from .universe import Universe, upstream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LAUNCHER = "/run/standin/lib/tool"
EFA = "/opt/amazon/efa"
NVLSM = "/opt/nvidia/nvlsm/sbin/nvlsm"
CDI = "/var/run/cdi/nvidia.yaml"
ENROOT_PROFILE = "/etc/apparmor.d/enroot"


def fabric_manager_start(argv: list[str]) -> int:
    """`nvidia-fabricmanager-start.sh --mode precheck|start`, which runs the subnet manager and the fabric manager.

    With fourth-generation NVSwitch, it starts `nvlsm` itself, because there is no `nvlsm` unit (from the log of a machine with B300 GPUs).
    """
    state = read_state()
    fourth = devices.needs_subnet_manager(state)  # type: ignore[arg-type]
    sys.stdout.write("Detected NVL5+ system\n" if fourth else "Detected Pre-NVL5 system\n")
    if fourth:
        if "ib_umad" not in state["modules"]:
            return fail("Error: ib_umad kernel module is not loaded")
        if "mlx5_ib" not in state["modules"]:
            return fail("Error: no Infiniband device found; polling for at least one before starting Fabric Manager")
        for path in ("/usr/sbin/ibstat", NVLSM):
            if not exists(path):
                return fail(f"Error: {path} not found")
    if argv[:2] == ["--mode", "precheck"]:
        return 0
    if fourth:
        os.posix_spawn(NVLSM, [NVLSM, "-F", "/usr/share/nvidia/nvlsm/nvlsm.conf", "-B"], os.environ)
    return fabric_manager([])


def fabric_manager(argv: list[str]) -> int:
    """`--version`, or the daemon, which requires a driver of the same version."""
    state = read_state()
    installed = state["fabric_manager"]["installed"]
    if "--version" in argv or "-v" in argv:
        sys.stdout.write(f"Fabric Manager version is : {installed}\n")
        return 0
    loaded = state["driver"]["loaded"]
    if loaded is None:
        return fail(
            "request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]"
        )
    if not state["hardware"]["nvswitches"]:
        return fail("NV_WARN_NOTHING_TO_DO: no NVSwitch on this machine")
    if loaded != installed:
        return fail(
            f"fabric manager NVIDIA GPU driver interface version {installed} don't match with driver version {loaded}. "
            "Please update with matching NVIDIA driver package."
        )
    if "fabric-manager-stopped" in state["faults"]:
        return fail(
            "detected NVSwitch fatal error 20034 on NVSwitch pci bus id 00000000:c5:00.0; fabric manager aborts"
        )
    sys.stdout.write(
        f"Connected to 1 node.\nSuccessfully configured all the available NVSwitches to route GPU NVLink traffic (stand-in, {installed}).\n"
    )
    return stay()


def persistenced(argv: list[str]) -> int:
    """The persistence daemon, which requires the driver."""
    state = read_state()
    if "--version" in argv or "-v" in argv:
        sys.stdout.write(f"nvidia-persistenced:  version {state['driver']['userspace']}\n")
        return 0
    if state["driver"]["loaded"] is None:
        code, text = kernel.load("nvidia")
        if code:
            return fail(f"nvidia-persistenced failed to initialize. Check syslog for more details.\n{text}")
        kernel.refresh_devices()

    def change(state: State) -> None:
        state["persistenced"] = "--no-persistence-mode" not in argv

    def end(state: State) -> None:
        state["persistenced"] = False

    change_state(change)
    sys.stdout.write("Started (stand-in)\n")
    return stay(lambda: change_state(end))


def nvlsm(argv: list[str]) -> int:
    """The NVLink subnet manager of fourth-generation NVSwitch machines."""
    del argv
    with open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write("nvlsm")
    if "ib_umad" not in read_state()["modules"]:
        return fail("nvlsm: no /dev/infiniband/umad* device; is ib_umad loaded?")
    return stay()


def nvidia_modprobe(argv: list[str]) -> int:
    """Load the driver."""
    del argv
    code, text = kernel.load("nvidia")
    kernel.refresh_devices()
    return fail(text) if code else 0


def nvcc(argv: list[str], path: str) -> int:
    """The version of the compiler."""
    if "--version" in argv or "-V" in argv:
        sys.stdout.write(read_text(path.rpartition("/bin/")[0] + "/nvcc-version"))
        return 0
    return fail("nvcc: a stand-in node has no CUDA compiler")


def efa_installer(argv: list[str]) -> int:
    """`efa_installer.sh` of the stand-in tarball."""
    version = argv[0]
    state = read_state()
    release = state["kernel"]
    if not exists(f"/usr/lib/modules/{release}/build/Makefile") and "--skip-kmod" not in argv:
        return fail(f"Error: kernel headers for {release} are required to build the EFA kernel module")
    facts = Universe(state).data["efa"][version]
    return install_efa(version, facts)


def install_efa(version: str, facts: dict) -> int:
    """Install the files, module and packages of one AWS installer release."""
    lines = [f"# EFA installer version: {version}", "# Debug packages installed: no", "# Packages installed:"]
    lines += [
        f"efa_{facts['kmod']}-1.amzn1_amd64",
        f"libfabric1-aws_{facts['libfabric']}_amd64",
        f"libnccl-ofi_{facts['ofi_nccl']}-1_amd64",
        f"rdma-core_{facts['rdma_core']}-1_amd64",
    ]
    write_file("/opt/amazon/efa_installed_packages", "\n".join(lines) + "\n")
    for name in ("fi_info", "fi_pingpong"):
        link(LAUNCHER, f"{EFA}/bin/{name}")
    for name in ("ibv_devinfo", "ibv_devices", "rdma"):
        link(LAUNCHER, f"/usr/bin/{name}")
    write_file(f"{EFA}/lib/libfabric.so.1", "stand-in library\n")
    for folder in ("lib", "lib/x86_64-linux-gnu"):
        write_file(
            f"/opt/amazon/ofi-nccl/{folder}/libnccl-net.so", f"stand-in library aws-ofi-nccl {facts['ofi_nccl']}\n"
        )
    write_file("/etc/ld.so.conf.d/000_efa.conf", f"{EFA}/lib\n")
    write_file("/etc/ld.so.conf.d/100_ofinccl.conf", "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu\n")
    write_file("/etc/profile.d/zippy_efa.sh", f'PATH="{EFA}/bin:$PATH"\n')

    def change(state: State) -> None:
        state["efa"] = {"installer": version, "libfabric": facts["libfabric"], "kmod": facts["kmod"]}
        for name, number in (
            ("efa", facts["kmod"] + "-1"),
            ("libfabric1-aws", facts["libfabric"]),
            ("libnccl-ofi", facts["ofi_nccl"] + "-1"),
            ("rdma-core", facts["rdma_core"] + "-1"),
        ):
            state["packages"][name] = {"version": number, "hold": False, "auto": False, "from": "efa-installer"}
        for release in state["kernels"]:
            if exists(f"/usr/lib/modules/{release}/build/Makefile"):
                kernel.install_module(
                    state, release, "efa", {"version": facts["kmod"], "license": "Dual BSD/GPL", "package": "dkms"}
                )
                item = {
                    "module": "efa",
                    "version": facts["kmod"],
                    "kernel": release,
                    "status": "installed",
                    "modules": ["efa"],
                }
                state["dkms"] = [
                    other for other in state["dkms"] if other["module"] != "efa" or other["kernel"] != release
                ] + [item]

    change_state(change)
    if read_state()["hardware"]["efa"]:
        kernel.load("efa")
    kernel.refresh_devices()
    sys.stdout.write("EFA installation complete.\n- Please logout/login to complete the installation.\n")
    return 0


def nvidia_ctk(argv: list[str]) -> int:
    """`--version`, `cdi list|generate`, `runtime configure`."""
    words = [word for word in argv if not word.startswith("-")]
    package = read_state()["packages"].get("nvidia-container-toolkit-base", {}).get("version", "")
    if "--version" in argv:
        sys.stdout.write(f"NVIDIA Container Toolkit CLI version {upstream(package)}\n")
        return 0
    if words[:2] == ["cdi", "list"]:
        names = [line.strip().removeprefix("- name: ") for line in read_text(CDI, "").splitlines() if "- name:" in line]
        sys.stderr.write(f"INFO[0000] Found {len(names)} CDI devices\n")
        sys.stdout.write("".join(f"nvidia.com/gpu={name}\n" for name in names))
        return 0
    if words[:2] == ["cdi", "generate"]:
        output = next((word.partition("=")[2] for word in argv if word.startswith("--output=")), CDI)
        return cdi_refresh([], output)
    if words[:2] == ["runtime", "configure"]:
        return _configure(next((word.partition("=")[2] for word in argv if word.startswith("--runtime=")), "docker"))
    return fail(f"nvidia-ctk: the stand-in has no {' '.join(words)}")


def cdi_refresh(argv: list[str], output: str = CDI) -> int:
    """Write the CDI specification for the GPUs that the driver lists."""
    del argv
    gpus = _gpu_indexes()
    if gpus is None:
        return fail('level=error msg="failed to generate CDI spec: failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND"')
    rows = "".join(f'  - name: "{name}"\n' if not name.isdigit() else f"  - name: {name}\n" for name in gpus)
    write_file(output, f"cdiVersion: 0.7.0\nkind: nvidia.com/gpu\ndevices:\n{rows}  - name: all\n")
    return 0


def lfs(argv: list[str]) -> int:
    """`lfs --version` and `lfs df`. Commands that set the file layout, such as `lfs setstripe`, have no effect."""
    if "--version" in argv or argv[:1] == ["version"]:
        state = read_state()
        universe = Universe(state)
        entries = (universe.get(name) or {} for name in state["packages"] if "lustre-client" in name)
        sys.stdout.write(f"lfs {next((entry['lustre'] for entry in entries if 'lustre' in entry), '')}\n")
    elif argv[:1] in (["df"], ["check"]):
        for item in read_state()["mounts"]:
            if item["type"] == "lustre":
                target = item["target"]
                if argv[1:] not in ([], [target]):
                    continue
                for number in range(2):
                    sys.stdout.write(
                        f"scratch-OST{number:04x}_UUID 1000000 {200000 * (1 + number)} {800000 - 200000 * number} 20% {target}[OST:{number}]\n"
                    )
                sys.stdout.write(f"filesystem_summary:  2000000 600000 1400000 30% {target}\n")
    return 0


def lctl(argv: list[str]) -> int:
    """`lctl`, which requires the module and has no effect."""
    if "--version" in argv or argv[:1] == ["version"]:
        return lfs(["--version"])
    return (
        0
        if "lnet" in read_state()["modules"]
        else fail("IOC_LIBCFS_LIST_NIDS error 22: Invalid argument; is lnet loaded?")
    )


def container(argv: list[str]) -> int:
    """docker and containerd, which run only the images of `images.py`."""
    from . import images

    if images.handles(argv):
        return images.run(argv)
    if argv[:1] == ["--version"] or argv[:1] == ["version"]:
        sys.stdout.write(f"Docker version {images.docker_version()}, build stand-in\n")
        return 0
    if argv[:1] in (["info"], ["ps"], ["images"]):
        return images.info(argv) if argv[:1] == ["info"] else 0
    return fail("a stand-in node runs no containers")


def enroot(argv: list[str]) -> int:
    """`enroot version`."""
    if argv[:1] == ["version"]:
        sys.stdout.write(upstream(read_state()["packages"]["enroot"]["version"]) + "\n")
        return 0
    return fail("a stand-in node runs no containers")


def enroot_nsenter(argv: list[str]) -> int:
    """`enroot-nsenter --user --mount COMMAND`. Ubuntu 24.04 denies it to users unless the program's AppArmor profile is loaded."""
    state = read_state()
    if state["image"]["os"] == "ubuntu-24.04" and ENROOT_PROFILE not in state.get("apparmor", []):
        return fail("enroot-nsenter: failed to create user namespace: Permission denied")
    command = argv[next(at for at, word in enumerate(argv) if not word.startswith("-")) :]
    return run_real(command[0], command[1:])


def apparmor_parser(argv: list[str]) -> int:
    """`apparmor_parser --replace|--remove FILE`. apparmor.service reloads a loaded profile at each boot."""
    path = argv[-1]
    if not exists(path):
        return fail(f"File not found ({path}), skipping...")

    def change(state: State) -> None:
        others = [one for one in state.get("apparmor", []) if one != path]
        state["apparmor"] = others if "--remove" in argv else [*others, path]

    change_state(change)
    return 0


def runuser(argv: list[str]) -> int:
    """`runuser -u USER -- COMMAND...`. A stand-in node has one user, so the command runs as that user, with the name of `USER` for sudo."""
    command = argv[argv.index("--") + 1 :]
    environ = {**os.environ, "LOGNAME": argv[argv.index("-u") + 1]}
    return os.waitstatus_to_exitcode(os.waitpid(os.posix_spawnp(command[0], command, environ), 0)[1])


def dockerd(argv: list[str]) -> int:
    """The docker and containerd daemons."""
    if argv[:2] == ["config", "dump"]:
        sys.stdout.write(
            "version = 3\n" + "".join(read_text(path) for path in walk("/etc/containerd") if path.endswith(".toml"))
        )
        return 0
    return container(argv) if argv[:1] in (["--version"], ["config"], ["version"]) else stay()


def _configure(runtime: str) -> int:
    if runtime == "docker":
        write_file(
            "/etc/docker/daemon.json",
            '{\n    "runtimes": {\n        "nvidia": {\n            "args": [],\n            "path": "nvidia-container-runtime"\n        }\n    }\n}',
        )
    elif runtime == "containerd":
        write_file(
            "/etc/containerd/conf.d/99-nvidia.toml",
            '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]\n  runtime_type = "io.containerd.runc.v2"\n'
            '  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]\n    BinaryName = "/usr/bin/nvidia-container-runtime"\n',
        )
    else:
        write_file("/etc/crio/conf.d/99-nvidia.toml", '[crio.runtime]\ndefault_runtime = "nvidia"\n')
    sys.stdout.write(f'level=info msg="Wrote updated config for {runtime}"\n')
    return 0


def _gpu_indexes() -> list[str] | None:
    """Return the indexes of the GPUs that nvidia-smi lists, or None if the driver does not respond."""
    import io
    from contextlib import redirect_stderr, redirect_stdout

    from . import device_tools

    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(io.StringIO()):
        code = device_tools.run(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"])
    indexes = [line.strip() for line in output.getvalue().splitlines() if line.strip().isdigit()]
    if indexes:
        return indexes
    if code in (6, 9, 12, 13, 18):
        return None
    return sorted(  # If a GPU is lost, every query fails, but the device nodes of the other GPUs still exist.
        name.removeprefix("nvidia") for name in os.listdir("/dev") if name.removeprefix("nvidia").isdigit()
    )


def stay(end: Callable[[], object] = lambda: None) -> int:
    """Run as a daemon until SIGTERM, then run `end`."""
    import signal

    sys.stdout.flush()

    def terminate(*_: object) -> None:
        end()
        os._exit(0)

    signal.signal(signal.SIGTERM, terminate)
    while True:
        signal.pause()
