"""The software lock: one version of each software package for a pool, with the reason.

The inputs are the machine type, the image, and the requested versions. The results are versions, reasons, and conflicts.
If the version in an image is within the accepted range, the bootstrap step verifies and keeps it. Other versions are rejected.
`environment.py` writes the lock to `versions.env`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuinfra.catalog.records import MachineType, OpenModule
from gpuinfra.software import tables
from gpuinfra.software.cloud import CloudProgram, CloudSoftware, LustreRelease
from gpuinfra.software.images import LABELS, ImageRelease
from gpuinfra.software.version import at_least, key


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The version of a software package and the reason for it."""

    name: str
    """`driver`, `fabric_manager`, `nvlsm`, `cuda`, `nccl`, `efa_installer`, `doca_ofed`, `tcpx`, `tcpxo`, `gib`, `gdrcopy`,
    `lustre_client`, `container_toolkit`, `docker`, `enroot`, `dcgm`, `dcgm_exporter`, `node_exporter`,
    `prometheus`, `alertmanager`, the name of a `BucketClient` or a `LogAgent`, `kernel`."""
    version: str
    why: str
    low: str = ""
    """Lowest version accepted from an image."""
    high: str = ""
    """Exclusive upper limit of the versions accepted from an image."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionConflict:
    """A combination of versions that is known not to work."""

    name: str
    """Package with the conflicting version: a name of `Choice`, a framework, or `registry`."""
    message: str
    hint: str
    of_image: bool = False
    """True if another image would resolve the conflict, because the version comes from the image and was not requested."""


class _Conflicts(list[VersionConflict]):
    def add(self, name: str, message: str, hint: str, *, of_image: bool = False) -> None:
        self.append(VersionConflict(name=name, message=message, hint=hint, of_image=of_image))


@dataclass(frozen=True, kw_only=True)
class SoftwareLock:
    """All versions for a pool."""

    os: str
    choices: tuple[Choice, ...]
    conflicts: tuple[VersionConflict, ...]
    holds: tuple[str, ...]
    """Name patterns of packages that upgrades must not change."""
    fabric: str | None = None
    """Fabric provider of the nodes: the default of the machine, or an older one that the declared kernel supports."""
    registry: str = ""
    """Private registry from which nodes pull images."""
    flavour: str = "open"
    """Flavor of NVIDIA's kernel module: `open` or `proprietary`."""
    kernel_series: tuple[str, ...] = ()
    """Kernel series for which all modules in the lock are published. Empty if any series works."""

    def choice(self, name: str) -> Choice | None:
        """Return the choice for a package, or None if the pool does not need the package."""
        return next((choice for choice in self.choices if choice.name == name), None)


@dataclass(frozen=True, kw_only=True)
class LockRequest:
    """Requested versions for a pool. The lock selects the versions that are None."""

    cloud: CloudSoftware
    os: str
    prebuilt: bool
    lustre: bool
    release: ImageRelease | None = None
    """Recorded contents of a prebuilt image, or None if they are unknown."""
    branch: int | None = None
    """Driver branch in a prebuilt image, or None if it is unknown."""
    own_image: bool = False
    """True if the declaration selects the image by its ID, so that its kernel can be one that Ubuntu does not publish."""
    pinned: bool = False
    """True if nodes boot exactly this release. If False, they can boot a newer one."""
    driver: str | None = None
    fabric_manager: str | None = None
    cuda: str | None = None
    nccl: str | None = None
    kernel: str | None = None
    torch: str | None = None
    tensorflow: str | None = None
    jax_cuda: int | None = None
    registry: str | None = None
    fabric: bool = True
    buckets: bool = False
    """True if nodes mount buckets."""
    containers: tuple[str, ...] = ()
    """Container runtimes that the steps install: `docker`, `enroot`."""
    gpu_metrics: str = "none"
    monitored: bool = False
    """True for the nodes of a stack with a control node, which run node exporter."""
    logs: bool = False
    """True if the nodes send their logs to the log service of the cloud."""
    control: bool = False
    """True for the control node, which runs Prometheus and Alertmanager."""
    kinds: frozenset[str] = frozenset()
    """Kinds of capacity in the pool: `on_demand`, `spot`, `reserved`, `flex`."""


_FABRIC_HOLDS = {
    "efa": ["efa*", "libfabric*aws*"],
    "infiniband": ["doca-*", "mlnx-*", "gdrdrv-dkms", "libgdrapi*"],
    "tcpx": ["google-compute-engine*", "google-guest-agent*"],
    "tcpxo": ["dmabuf-import-helper", "google-compute-engine*", "google-guest-agent*"],
    "gib": ["nccl-gib*"],
}
"""Maps each fabric provider to packages that must not be upgraded, because an upgrade would break the fabric."""


def lock(machine: MachineType, request: LockRequest) -> SoftwareLock:
    """Select or check the version of every package for a pool."""
    conflicts = _Conflicts()
    choices: list[Choice] = [_kernel(request, conflicts)]
    holds = ["linux-image-*", "linux-headers-*", "linux-modules-*", f"linux-{request.cloud.kernel_flavour}*"]
    if machine.gpu:
        driver = _driver(machine, request, conflicts)
        choices.append(driver)
        holds += ["nvidia-*", "libnvidia-*"]
        if needs_subnet_manager(machine):
            choices.append(_subnet_manager())
            holds.append("nvlsm")
        if machine.nvswitch:
            choices.append(_fabric_manager(driver, request, conflicts))
        cuda = _cuda(machine, driver, request, conflicts)
        choices += [cuda, _nccl(cuda, request, conflicts)]
        holds += ["cuda-*", "libnccl*"]
        _frameworks(machine, driver, request, conflicts)
        choices += [_toolkit(), _dcgm(cuda)]
        holds += ["nvidia-container-toolkit*", "libnvidia-container*", "datacenter-gpu-manager-4-*"]
        if request.gpu_metrics == "dcgm_exporter":
            choices.append(_dcgm_exporter())
            holds.append("datacenter-gpu-manager-exporter")
    if request.logs and (agent := request.cloud.log_agent):
        choices.append(_program(agent))
        holds.append(f"{agent.package}*")
    if request.monitored:
        choices.append(_node_exporter(request))
    if request.control:
        choices += [_prometheus(), _alertmanager()]
    if "docker" in request.containers:
        choices.append(_docker())
        holds += ["docker*", "containerd*", "moby-*"]
    if "enroot" in request.containers:
        choices.append(_enroot(machine, conflicts))
        holds.append("enroot*")
    provider = fabric_provider(machine, request)
    if provider:
        choices += _fabric(machine, provider, request, conflicts)
        holds += _FABRIC_HOLDS[provider]
    series: tuple[str, ...] = ()
    if request.lustre:
        choices.append(_lustre(request, conflicts))
        holds += ["lustre-client-*", "amlfs-lustre-client-*", "kmod-lustre-client-*"]
        release = lustre_release(request.cloud, request.os)
        if release and not request.prebuilt:
            series = release.kernel_series
    if request.buckets and (client := request.cloud.buckets):
        choices.append(_program(client))
        holds.append(client.package)
    if request.prebuilt and request.release:
        _contents(choices, request.release, conflicts)
    return SoftwareLock(
        os=request.os,
        choices=tuple(choices),
        conflicts=tuple(conflicts),
        holds=tuple(holds),
        fabric=provider,
        registry=request.registry or "",
        flavour=flavour(machine, prebuilt=request.prebuilt),
        kernel_series=series,
    )


def fabric_provider(machine: MachineType, request: LockRequest) -> str | None:
    """Return the fabric provider of the nodes. Google's kernel for TCPX selects the older provider of the machine."""
    if machine.fabric is None or not request.fabric:
        return None
    if machine.fabric.older and request.kernel and machine.fabric.older in request.kernel:
        return machine.fabric.older
    return machine.fabric.provider


def needs_subnet_manager(machine: MachineType) -> bool:
    """Return True if the machine has fourth-generation NVSwitch, which requires NVIDIA's NVLink subnet manager."""
    return machine.nvswitch and machine.gpu is not None and machine.gpu.arch == "blackwell"


def lustre_release(cloud: CloudSoftware, os: str) -> LustreRelease | None:
    """Return the Lustre client of a cloud, or None if there is none for this operating system."""
    return cloud.lustre.releases.get(os) if cloud.lustre else None


def flavour(machine: MachineType, *, prebuilt: bool = False) -> str:
    """Return the flavor of NVIDIA's kernel module for this machine: `open` or `proprietary`.

    The GPU images of all clouds contain the open module, and each GPU that supports it runs with it.
    """
    if machine.gpu and machine.gpu.open_module is OpenModule.UNSUPPORTED:
        return "proprietary"
    return "proprietary" if machine.proprietary_module and not prebuilt else "open"


def _kernel(request: LockRequest, conflicts: _Conflicts) -> Choice:
    release = request.release if request.prebuilt and request.pinned else None
    kernel = release.contents.get("kernel") if release else None
    if request.kernel and kernel and request.kernel != kernel:
        message = f"the image{_release_text(release)} contains kernel {kernel}, not {request.kernel}"
        conflicts.add("kernel", message, f"set the kernel to {kernel}, remove it, or choose a different image release")
    if request.kernel and request.kernel.endswith(tables.RESTRICTED_KERNELS) and not request.own_image:
        message = f"kernel {request.kernel} is not in Ubuntu's archive, so the bootstrap steps cannot install it"
        conflicts.add("kernel", message, "set image to an image that contains it, by its ID; or remove the kernel")
    if request.kernel:
        return Choice(name="kernel", version=request.kernel, why="requested; the bootstrap step verifies and holds it")
    series = ", ".join(request.cloud.kernels[request.os])
    why = f"the image's kernel ({series}) is kept and held, because the driver and Lustre modules are built for it"
    return Choice(name="kernel", version="image", why=why)


def _driver(machine: MachineType, request: LockRequest, conflicts: _Conflicts) -> Choice:
    """Return the requested driver, else the driver of the image, else the pinned version of the default branch.

    `tables.BRANCHES` has the pinned version of each branch and the reason for it.
    """
    gpu = machine.gpu
    assert gpu is not None
    carried = request.branch if request.prebuilt else None
    of_image = carried is not None and request.driver is None
    use_default = _ANOTHER if of_image else f"use {tables.DEFAULT_BRANCH}"
    named = _release_text(request.release)
    number = key(request.driver)[0] if request.driver else carried or tables.DEFAULT_BRANCH
    branch = tables.BRANCHES.get(number)
    if branch is None:
        # The image decides, so that its hint does not name a branch that the next check rejects.
        branches = (
            [str(carried)] if carried in tables.BRANCHES else [str(b) for b, row in tables.BRANCHES.items() if row.pin]
        )
        message = f"driver {request.driver or number} belongs to an unknown branch; allowed: {', '.join(branches)}"
        hint = f"use {branches[0]}" if len(branches) == 1 else "use one of these branches"
        conflicts.add("driver", message, _ANOTHER if of_image else hint, of_image=of_image)
        branch = tables.BRANCHES[tables.DEFAULT_BRANCH]
    exact = request.driver if request.driver and "." in request.driver else None
    version = exact or branch.pin or branch.newest
    if branch.ended or (branch.end_of_life and branch.end_of_life < tables.LOCK_DATE):
        conflicts.add("driver", f"driver branch {branch.branch} is out of support", use_default, of_image=of_image)
    last = tables.LAST_BRANCH.get(gpu.arch)
    if last and branch.branch > last:
        message = f"driver {version} does not support {gpu.key}; the last supported branch is {last}"
        conflicts.add("driver", message, _ANOTHER if of_image else f"use {last}", of_image=of_image)
    if not at_least(version, gpu.driver_floor):
        message = f"driver {version} does not support {gpu.key}; the first supported version is {gpu.driver_floor}"
        conflicts.add("driver", message, use_default, of_image=of_image)
    if (
        branch.open_only
        and flavour(machine, prebuilt=request.prebuilt) == "proprietary"
        and not (last and branch.branch > last)
    ):
        message = f"driver {version} has no proprietary kernel module, which {machine.name} requires"
        conflicts.add("driver", message, use_default)
    if carried and request.driver and number != carried:
        message = f"driver {request.driver} is not in the GPU image{named}, which contains branch {carried}"
        conflicts.add("driver", message, f"use {carried}, or set image: plain")
    if request.prebuilt and not request.driver:
        # Images are published every few weeks: each branch that the lock supports is accepted, so that a newer image is usable.
        supported = [row for row in tables.BRANCHES.values() if row.pin and (not last or row.branch <= last)]
        low = gpu.driver_floor if at_least(gpu.driver_floor, supported[0].floor) else supported[0].floor
        why = f"the image's own driver; the image{named} contains branch {carried}" if carried else _UNKNOWN
        return Choice(name="driver", version=version, why=why, low=low, high=str(supported[-1].branch + 1))
    low = exact or branch.floor or version
    low = gpu.driver_floor if not exact and at_least(gpu.driver_floor, low) else low
    why = "requested" if request.driver else branch.why
    return Choice(name="driver", version=version, why=why, low=low, high=str(branch.branch + 1))


_ANOTHER = "choose a different image release, or set image: plain"
_UNKNOWN = "the image's own driver, whose version is not recorded; the bootstrap step accepts or rejects it"


def _release_text(release: ImageRelease | None) -> str:
    return f" of {release.date}" if release else ""


def _contents(choices: list[Choice], release: ImageRelease, conflicts: _Conflicts) -> None:
    """Compare the recorded contents of an image with the accepted ranges. The bootstrap steps would reject a version outside its range."""
    in_conflict = {conflict.name for conflict in conflicts}
    for choice in choices:
        version = release.contents.get(choice.name)
        if not version or not choice.low or choice.name in in_conflict:
            continue
        if not at_least(version, choice.low) or (choice.high and at_least(version, choice.high)):
            below = f" to below {choice.high}" if choice.high else " or newer"
            message = (
                f"the image of {release.date} contains {LABELS[choice.name]} {version}; allowed: {choice.low}{below}"
            )
            conflicts.add(choice.name, message, _ANOTHER, of_image=True)


def _fabric_manager(driver: Choice, request: LockRequest, conflicts: _Conflicts) -> Choice:
    if request.fabric_manager and request.fabric_manager != driver.version:
        message = (
            f"fabric manager {request.fabric_manager} does not start with driver {driver.version}; "
            "the versions must be equal"
        )
        conflicts.add("fabric_manager", message, "remove the setting to use the driver's version")
    why = "NVSwitch requires a fabric manager of exactly the driver's version, otherwise CUDA fails with error 802"
    return Choice(name="fabric_manager", version=driver.version, why=why, low=driver.low, high=driver.high)


def _subnet_manager() -> Choice:
    low, high = tables.NVLSM_RANGE
    why = "fourth-generation NVSwitch requires nvlsm in addition to the fabric manager; nvlsm versions are dates and do not depend on the driver version"
    return Choice(name="nvlsm", version=tables.NVLSM_PIN, why=why, low=low, high=high)


def _dcgm(cuda: Choice) -> Choice:
    low, high = tables.DCGM_RANGE
    why = f"diagnostics and counters, in the package for CUDA {cuda.version.split('.')[0]}"
    return Choice(name="dcgm", version=tables.DCGM_PIN, why=why, low=low, high=high)


def _dcgm_exporter() -> Choice:
    low, high = tables.DCGM_EXPORTER_RANGE
    why = "declared; the package is in NVIDIA's repository"
    return Choice(name="dcgm_exporter", version=tables.DCGM_EXPORTER_PIN, why=why, low=low, high=high)


def _node_exporter(request: LockRequest) -> Choice:
    low, high = tables.NODE_EXPORTER_RANGE
    why = "the package of Ubuntu, whose archive keeps only its newest version"
    return Choice(name="node_exporter", version=tables.NODE_EXPORTER_PACKAGES[request.os], why=why, low=low, high=high)


def _program(program: CloudProgram) -> Choice:
    low, high = program.accepted
    return Choice(name=program.name, version=program.pin, why=program.why, low=low, high=high)


def _prometheus() -> Choice:
    why = "the release of the project, because Ubuntu's packages are older; its checksum is in the lock"
    return Choice(name="prometheus", version=tables.PROMETHEUS.version, why=why)


def _alertmanager() -> Choice:
    why = (
        "the release of the project, because Ubuntu's package reads no secrets from files; its checksum is in the lock"
    )
    return Choice(name="alertmanager", version=tables.ALERTMANAGER.version, why=why)


def _cuda(machine: MachineType, driver: Choice, request: LockRequest, conflicts: _Conflicts) -> Choice:
    assert machine.gpu is not None
    first, last = tables.FIRST_CUDA.get(machine.gpu.arch), tables.LAST_CUDA.get(machine.gpu.arch)
    version = ".".join((request.cuda or last or tables.DEFAULT_CUDA).split(".")[:2])
    row = tables.CUDA.get(version)
    if row is None:
        message = f"CUDA {version} is not in the lock; allowed: {', '.join(tables.CUDA)}"
        conflicts.add("cuda", message, f"use {tables.DEFAULT_CUDA}")
        row = tables.CUDA[tables.DEFAULT_CUDA]
    if last and at_least(row.version, last) and row.version != last:
        message = f"CUDA {row.version} does not support {machine.gpu.key}; the last supported version is {last}"
        conflicts.add("cuda", message, f"use {last}")
    if first and not at_least(row.version, first):
        message = f"CUDA {row.version} does not support {machine.gpu.key}; the first supported version is {first}"
        conflicts.add("cuda", message, f"use {first}")
    if not at_least(driver.version, str(row.min_driver)):
        message = f"CUDA {row.version} requires driver {row.min_driver} or newer; the lock has {driver.version}"
        conflicts.add("cuda", message, f"use driver {tables.DEFAULT_BRANCH}")
    why = f"the newest major version that driver {driver.version} fully supports"
    if last:
        why = f"the last CUDA version that supports {machine.gpu.key}"
    return Choice(name="cuda", version=row.version, why="requested" if request.cuda else why)


def _nccl(cuda: Choice, request: LockRequest, conflicts: _Conflicts) -> Choice:
    row = tables.CUDA[cuda.version]
    if not request.nccl:
        why = f"built for CUDA {cuda.version.split('.')[0]}; frameworks from PyPI contain their own NCCL"
        return Choice(name="nccl", version=row.nccl, why=why, low="2.23", high="3")
    # A package for an older minor version also works, and NVIDIA does not publish each NCCL for each minor version.
    last = max(key(cuda.version), key(row.nccl.partition("+cuda")[2]))
    fitting = [
        one for one in tables.NCCL_PACKAGES if (built := key(one.partition("+cuda")[2]))[0] == last[0] and built <= last
    ]
    wanted = request.nccl.split(".")
    versions = [one for one in fitting if one.partition("-")[0].split(".")[: len(wanted)] == wanted]
    if not versions:
        versions = ", ".join(one.partition("-")[0] for one in fitting)
        message = f"the lock has no known package of NCCL {request.nccl} for CUDA {cuda.version}; allowed: {versions}"
        conflicts.add("nccl", message, "use one of these versions, or remove the setting to use the lock's version")
    return Choice(name="nccl", version=versions[-1] if versions else row.nccl, why="requested")


def _frameworks(machine: MachineType, driver: Choice, request: LockRequest, conflicts: _Conflicts) -> None:
    assert machine.gpu is not None
    first, last = tables.FIRST_CUDA.get(machine.gpu.arch), tables.LAST_CUDA.get(machine.gpu.arch)
    use_default = f"use driver {tables.DEFAULT_BRANCH}"
    wheels = (("torch", request.torch, tables.TORCH), ("tensorflow", request.tensorflow, tables.TENSORFLOW))
    for name, version, table in wheels:
        if version is None:
            continue
        wheel = table.get(version) or next((w for v, w in table.items() if v.startswith(f"{version}.")), None)
        if wheel is None:
            message = f"{name} {version} is not in the lock; allowed: {', '.join(table)}"
            conflicts.add(
                name,
                message,
                "use one of these versions, or remove the entry and check the framework's CUDA version yourself",
            )
            continue
        if not at_least(driver.version, str(wheel.min_driver)):
            message = f"{name} {version} contains CUDA {wheel.cuda}, which requires driver {wheel.min_driver}; the lock has {driver.version}"
            conflicts.add(name, message, use_default)
        built = f"{name} {version} was built with CUDA {wheel.cuda}, which does not support {machine.gpu.key}"
        if first and not at_least(wheel.cuda, first):
            conflicts.add(name, built, f"use a newer version, built with CUDA {first} or newer")
        if last and key(wheel.cuda)[0] > key(last)[0]:
            conflicts.add(name, built, f"use an older version, built with CUDA {last} or older")
    if request.jax_cuda and not at_least(driver.version, str(tables.JAX[request.jax_cuda])):
        message = f"JAX for CUDA {request.jax_cuda} requires driver {tables.JAX[request.jax_cuda]}; the lock has {driver.version}"
        conflicts.add("jax", message, use_default)


def _toolkit() -> Choice:
    low = tables.CONTAINER_TOOLKIT_FLOOR
    why = "the version of the GPU Operator 26.7.1; all four packages have the same version"
    return Choice(name="container_toolkit", version=tables.CONTAINER_TOOLKIT_PIN, why=why, low=low, high="2")


def _docker() -> Choice:
    low, high = tables.DOCKER_RANGE
    why = "declared; from Docker's own repository, unless the image contains a version in the accepted range"
    return Choice(name="docker", version=tables.DOCKER_PIN, why=why, low=low, high=high)


def _enroot(machine: MachineType, conflicts: _Conflicts) -> Choice:
    if machine.arch != "x86_64":
        message = "the lock has enroot checksums only for x86_64"
        conflicts.add("enroot", message, "remove enroot, or use machine types with x86_64 processors")
    low, high = tables.ENROOT_RANGE
    why = "declared; the release contains the AppArmor profile that Ubuntu 24.04 requires"
    return Choice(name="enroot", version=tables.ENROOT_PIN, why=why, low=low, high=high)


def _fabric(machine: MachineType, provider: str, request: LockRequest, conflicts: _Conflicts) -> list[Choice]:
    if provider == "efa":
        efa = tables.EFA_INSTALLER
        why = f"released {efa.released}, with libfabric {efa.libfabric} and aws-ofi-nccl {efa.aws_ofi_nccl}; GPUDirect requires {tables.EFA_FLOOR}"
        return [Choice(name="efa_installer", version=efa.version, why=why, low=tables.EFA_FLOOR, high="2")]
    if provider == "infiniband":
        return _infiniband(machine, request, conflicts)
    if provider in ("tcpx", "tcpxo"):
        return [_gpudirect_tcp(machine, provider, request, conflicts)]
    why = "the package that Google's instructions for RDMA machines install"
    return [Choice(name="gib", version=tables.GIB_PIN, low="1.1", high="2", why=why)]


def _infiniband(machine: MachineType, request: LockRequest, conflicts: _Conflicts) -> list[Choice]:
    row = tables.DOCA[request.os]
    if machine.arch != "x86_64" and not request.prebuilt:
        message = "the lock has DOCA-OFED only for x86_64, so a plain image has no InfiniBand"
        conflicts.add("doca_ofed", message, "use an image that contains DOCA-OFED, or set fabric: none")
    why = "the version in the cloud's own HPC images of this release"
    chosen = [Choice(name="doca_ofed", version=row.version, why=why, low="3.2", high="4")]
    if request.prebuilt:
        low, high = tables.GDRCOPY_RANGE
        why = "part of the image; not installed on a plain image, because no checksums are published for its packages"
        chosen.append(Choice(name="gdrcopy", version=tables.GDRCOPY_PIN, why=why, low=low, high=high))
    return chosen


def _gpudirect_tcp(machine: MachineType, provider: str, request: LockRequest, conflicts: _Conflicts) -> Choice:
    row = {"tcpx": tables.TCPX, "tcpxo": tables.TCPXO}[provider]
    if not request.registry:
        message = (
            "the NCCL plugin is a container image, but software.registry is not set, "
            f"and nodes do not pull images from public registries; the registry must contain {row.folder}/"
        )
        hint = (
            "create a registry with `gcloud artifacts repositories create gpudirect --repository-format=docker --location=REGION`, "
            "copy Google's images into it with the commands in docs/reference/gcp.md (GPUDirect images), and set software.registry; or set fabric: none"
        )
        conflicts.add("registry", message, hint)
    if provider == "tcpx" and not (request.kernel and "tcpx" in request.kernel):
        message = "GPUDirect-TCPX on this machine requires Google's kernel (linux-image-gcp-tcpx)"
        hint = "set software.kernel to Google's kernel and image to an image that contains it, or use a machine type with TCPXO or RDMA"
        conflicts.add("tcpx", message, hint)
    if provider == "tcpxo" and machine.fabric and machine.fabric.older and "reserved" in request.kinds:
        message = "Google does not support TCPXO on this machine with a reservation"
        hint = "use on_demand, spot or flex capacity; or set image and software.kernel to Google's tcpx kernel; or set fabric: none"
        conflicts.add("tcpxo", message, hint)
    why = f"released as a pair with its receive manager {row.manager}"
    return Choice(name=provider, version=row.plugin.removeprefix("v"), why=why)


def _lustre(request: LockRequest, conflicts: _Conflicts) -> Choice:
    if request.kernel and any(request.kernel.startswith(bad) for bad in tables.BROKEN_LUSTRE_KERNELS):
        message = f"kernel {request.kernel} breaks the ABI of the Lustre module"
        conflicts.add("lustre_client", message, "use a different kernel")
    release = lustre_release(request.cloud, request.os)
    if release is None:
        message = f"this cloud has no Lustre client for {request.os}"
        conflicts.add("lustre_client", message, "remove the Lustre file system")
        return Choice(name="lustre_client", version="none", why=message)
    if series := release.kernel_series:
        if request.kernel and not request.kernel.startswith(series):
            message = f"the Lustre client has no module for kernel {request.kernel}; allowed: {', '.join(series)}"
            conflicts.add("lustre_client", message, "use a kernel from one of these series")
        why = f"has modules for kernel series {', '.join(series)} of this release"
        return Choice(name="lustre_client", version=release.version, why=why, low="2.15", high="2.18")
    why = "the package for the running kernel; the bootstrap step fails if it does not exist"
    return Choice(name="lustre_client", version=release.version, why=why, low="2.12", high="2.18")
