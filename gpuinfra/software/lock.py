"""The software lock: one version of each piece, with the reason for it, for one pool.

A machine, an image and what a person asked for go in; versions, reasons and findings come out.
What an image brings inside a range is proven and kept; outside it the step that finds it refuses.
The content of `versions.env` is in `environment.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuinfra.catalog.records import MachineType, OpenModule
from gpuinfra.software import tables
from gpuinfra.software.cloud import CloudSoftware, LustreRelease
from gpuinfra.software.version import at_least, key


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One piece of software: what was chosen and why."""

    piece: str
    """`driver`, `fabric_manager`, `nvlsm`, `cuda`, `nccl`, `efa_installer`, `doca_ofed`, `tcpxo`, `gib`, `gdrcopy`, `lustre_client`, `container_toolkit`, `dcgm`, `kernel`."""
    version: str
    why: str
    low: str = ""
    """What an image may bring, from here on."""
    high: str = ""
    """And below this."""
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conflict:
    """A pair that is known not to work."""

    piece: str
    message: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class Lock:
    """All choices for one pool."""

    os: str
    choices: tuple[Choice, ...]
    conflicts: tuple[Conflict, ...]
    holds: tuple[str, ...]
    """Packages that no upgrade may touch."""
    fabric: str | None = None
    """The provider that the nodes use: the machine's own, or the older one that the declared kernel is for."""
    registry: str = ""
    """Registry of one's own that images come from."""
    kernel_series: tuple[str, ...] = ()
    """Kernel series that every module of the lock is published for; empty for any."""

    def choice(self, piece: str) -> Choice | None:
        """The choice for a piece, None where the pool does not need it."""
        return next((choice for choice in self.choices if choice.piece == piece), None)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a person asked for; None leaves it to the lock."""

    cloud: CloudSoftware
    os: str
    prebuilt: bool
    lustre: bool
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
    kinds: frozenset[str] = frozenset()
    """How the pool's nodes are bought: `on_demand`, `spot`, `reserved`, `flex`."""


_FABRIC_HOLDS = {
    "efa": ["efa*", "libfabric*aws*"],
    "infiniband": ["doca-*", "mlnx-*", "gdrdrv-dkms", "libgdrapi*"],
    "tcpx": ["google-compute-engine*", "google-guest-agent*"],
    "tcpxo": ["dmabuf-import-helper", "google-compute-engine*", "google-guest-agent*"],
    "gib": ["nccl-gib*"],
}
"""Fabric -> packages whose change would break it."""


def lock(machine: MachineType, wanted: Wanted) -> Lock:
    """Choose or check every piece for one pool."""
    choices: list[Choice] = [_kernel(wanted)]
    conflicts: list[Conflict] = []
    holds = ["linux-image-*", "linux-headers-*", "linux-modules-*", f"linux-{wanted.cloud.kernel_flavour}*"]
    if machine.gpu:
        driver = _driver(machine, wanted, conflicts)
        choices.append(driver)
        holds += ["nvidia-*", "libnvidia-*"]
        if needs_subnet_manager(machine):
            choices.append(_subnet_manager())
            holds.append("nvlsm")
        if machine.nvswitch:
            choices.append(_fabric_manager(driver, wanted, conflicts))
        cuda = _cuda(machine, driver, wanted, conflicts)
        choices += [cuda, _nccl(cuda, wanted, conflicts)]
        holds += ["cuda-*", "libnccl*"]
        _frameworks(machine, driver, wanted, conflicts)
        choices += [_toolkit(), _dcgm(cuda)]
        holds += ["nvidia-container-toolkit*", "libnvidia-container*", "datacenter-gpu-manager-4-*"]
    provider = fabric_provider(machine, wanted)
    if provider:
        choices += _fabric(machine, provider, wanted, conflicts)
        holds += _FABRIC_HOLDS[provider]
    series: tuple[str, ...] = ()
    if wanted.lustre:
        choices.append(_lustre(wanted, conflicts))
        holds += ["lustre-client-*", "amlfs-lustre-client-*", "kmod-lustre-client-*"]
        release = lustre_release(wanted.cloud, wanted.os)
        if release and not wanted.prebuilt:
            series = release.kernel_series
    return Lock(
        os=wanted.os,
        choices=tuple(choices),
        conflicts=tuple(conflicts),
        holds=tuple(holds),
        fabric=provider,
        registry=wanted.registry or "",
        kernel_series=series,
    )


def fabric_provider(machine: MachineType, wanted: Wanted) -> str | None:
    """What the nodes talk over; a kernel of Google's own for TCPX takes the machine back to the older stack."""
    if machine.fabric is None or not wanted.fabric:
        return None
    if machine.fabric.older and wanted.kernel and machine.fabric.older in wanted.kernel:
        return machine.fabric.older
    return machine.fabric.provider


def needs_subnet_manager(machine: MachineType) -> bool:
    """Fourth-generation NVSwitch has one."""
    return machine.nvswitch and machine.gpu is not None and machine.gpu.arch == "blackwell"


def lustre_release(cloud: CloudSoftware, os: str) -> LustreRelease | None:
    """The Lustre client of a cloud, None if it has none for this operating system."""
    return cloud.lustre.releases.get(os) if cloud.lustre else None


def _kernel(wanted: Wanted) -> Choice:
    if wanted.kernel:
        return Choice(piece="kernel", version=wanted.kernel, why="asked for; the step checks and holds it")
    series = ", ".join(wanted.cloud.kernels[wanted.os])
    why = f"the image's running kernel ({series}) is kept and held, because driver and Lustre modules are built for it"
    return Choice(piece="kernel", version="image", why=why)


def _driver(machine: MachineType, wanted: Wanted, conflicts: list[Conflict]) -> Choice:
    gpu = machine.gpu
    assert gpu is not None
    number = key(wanted.driver)[0] if wanted.driver else tables.DEFAULT_BRANCH
    branch = tables.BRANCHES.get(number)
    if branch is None:
        known = ", ".join(str(b) for b, row in tables.BRANCHES.items() if row.pin)
        conflicts.append(
            Conflict(
                piece="driver",
                message=f"driver {wanted.driver} is of no known branch; installable are {known}",
                hint="take one of those",
            )
        )
        branch = tables.BRANCHES[tables.DEFAULT_BRANCH]
    exact = wanted.driver if wanted.driver and "." in wanted.driver else None
    version = exact or branch.pin or branch.newest
    if branch.ended or (branch.end_of_life and branch.end_of_life < tables.LOCK_DATE):
        conflicts.append(
            Conflict(
                piece="driver",
                message=f"driver branch {branch.branch} gets no more fixes",
                hint=f"take {tables.DEFAULT_BRANCH}",
            )
        )
    last = tables.LAST_BRANCH.get(gpu.arch)
    if last and branch.branch > last:
        conflicts.append(
            Conflict(
                piece="driver",
                message=f"driver {version} dropped {gpu.key}; the last branch for it is {last}",
                hint=f"take {last}",
            )
        )
    if not at_least(version, gpu.driver_floor):
        conflicts.append(
            Conflict(piece="driver", message=f"driver {version} does not know {gpu.key}; the first that does is {gpu.driver_floor}", hint=f"take {tables.DEFAULT_BRANCH}")
        )  # fmt: skip
    low = exact or branch.floor or version
    low = gpu.driver_floor if not exact and at_least(gpu.driver_floor, low) else low
    why = "asked for" if wanted.driver else branch.why
    return Choice(
        piece="driver", version=version, why=why, low=low, high=str(branch.branch + 1), source=tables.NVIDIA_BRANCHES
    )


def flavour(machine: MachineType) -> str:
    """`open` or `proprietary`: which of NVIDIA's kernel modules fits."""
    if machine.proprietary_module or (machine.gpu and machine.gpu.open_module is OpenModule.REFUSED):
        return "proprietary"
    return "open"


def _fabric_manager(driver: Choice, wanted: Wanted, conflicts: list[Conflict]) -> Choice:
    if wanted.fabric_manager and wanted.fabric_manager != driver.version:
        conflicts.append(
            Conflict(
                piece="fabric_manager",
                message=f"fabric manager {wanted.fabric_manager} refuses to start beside driver {driver.version}; their versions have to be equal",
                hint="take it out: the driver's version is used",
            )
        )
    why = "NVSwitch needs a fabric manager of exactly the driver's version, else CUDA fails with error 802"
    return Choice(piece="fabric_manager", version=driver.version, why=why, low=driver.low, high=driver.high)


def _subnet_manager() -> Choice:
    low, high = tables.NVLSM_RANGE
    why = "fourth-generation NVSwitch needs it beside fabric manager; its versions are dates and follow no driver"
    return Choice(piece="nvlsm", version=tables.NVLSM_PIN, why=why, low=low, high=high)


def _dcgm(cuda: Choice) -> Choice:
    low, high = tables.DCGM_RANGE
    why = f"diagnosis and counters; the part for CUDA {cuda.version.split('.')[0]}"
    return Choice(piece="dcgm", version=tables.DCGM_PIN, why=why, low=low, high=high)


def _cuda(machine: MachineType, driver: Choice, wanted: Wanted, conflicts: list[Conflict]) -> Choice:
    assert machine.gpu is not None
    arch = machine.gpu.arch
    last = tables.LAST_CUDA.get(arch)
    version = ".".join((wanted.cuda or last or tables.DEFAULT_CUDA).split(".")[:2])
    row = tables.CUDA.get(version)
    if row is None:
        conflicts.append(
            Conflict(
                piece="cuda",
                message=f"CUDA {version} is not in the lock; known are {', '.join(tables.CUDA)}",
                hint=f"take {tables.DEFAULT_CUDA}",
            )
        )
        row = tables.CUDA[tables.DEFAULT_CUDA]
    if last and at_least(row.version, last) and row.version != last:
        conflicts.append(
            Conflict(
                piece="cuda",
                message=f"CUDA {row.version} dropped {machine.gpu.key}; the last for it is {last}",
                hint=f"take {last}",
            )
        )
    first = tables.FIRST_CUDA.get(arch)
    if first and not at_least(row.version, first):
        conflicts.append(
            Conflict(
                piece="cuda",
                message=f"CUDA {row.version} does not know {machine.gpu.key}; the first that does is {first}",
                hint=f"take {first}",
            )
        )
    if not at_least(driver.version, str(row.min_driver)):
        conflicts.append(
            Conflict(piece="cuda", message=f"CUDA {row.version} needs driver {row.min_driver} or newer, the lock has {driver.version}", hint=f"take driver {tables.DEFAULT_BRANCH}")
        )  # fmt: skip
    why = "asked for" if wanted.cuda else f"the newest major that driver {driver.version} runs at full feature level"
    if last and not wanted.cuda:
        why = f"the last CUDA that supports {machine.gpu.key}"
    return Choice(piece="cuda", version=row.version, why=why, source=tables.CUDA_COMPAT)


def _nccl(cuda: Choice, wanted: Wanted, conflicts: list[Conflict]) -> Choice:
    row = tables.CUDA[cuda.version]
    if wanted.nccl and key(wanted.nccl) != key(row.nccl):
        conflicts.append(
            Conflict(
                piece="nccl",
                message=f"NCCL {wanted.nccl} is not the package built for CUDA {cuda.version}; the lock has {row.nccl}",
                hint="take it out",
            )
        )
    why = f"built for CUDA {cuda.version.split('.')[0]}; frameworks from PyPI bring their own"
    return Choice(piece="nccl", version=row.nccl, why=why, low="2.23", high="3")


def _frameworks(machine: MachineType, driver: Choice, wanted: Wanted, conflicts: list[Conflict]) -> None:
    assert machine.gpu is not None
    wheels = (("torch", wanted.torch, tables.TORCH), ("tensorflow", wanted.tensorflow, tables.TENSORFLOW))
    for name, version, table in wheels:
        if version is None:
            continue
        wheel = table.get(version) or next((w for v, w in table.items() if v.startswith(f"{version}.")), None)
        if wheel is None:
            conflicts.append(
                Conflict(
                    piece=name,
                    message=f"{name} {version} is not in the lock's table; known are {', '.join(table)}",
                    hint="check its CUDA by hand, or take a known one",
                )
            )
            continue
        if not at_least(driver.version, str(wheel.min_driver)):
            conflicts.append(
                Conflict(
                    piece=name,
                    message=f"{name} {version} carries CUDA {wheel.cuda} and needs driver {wheel.min_driver}; the lock has {driver.version}",
                    hint=f"take driver {tables.DEFAULT_BRANCH}",
                )
            )
        first = tables.FIRST_CUDA.get(machine.gpu.arch)
        if first and not at_least(wheel.cuda, first):
            conflicts.append(
                Conflict(
                    piece=name,
                    message=f"{name} {version} was built with CUDA {wheel.cuda}, which does not know {machine.gpu.key} ({first} does)",
                    hint="take a newer one",
                )
            )
        last = tables.LAST_CUDA.get(machine.gpu.arch)
        if last and key(wheel.cuda)[0] > key(last)[0]:
            conflicts.append(
                Conflict(
                    piece=name,
                    message=f"{name} {version} was built with CUDA {wheel.cuda}, which dropped {machine.gpu.key}",
                    hint="take an older one",
                )
            )
    if wanted.jax_cuda and not at_least(driver.version, str(tables.JAX[wanted.jax_cuda])):
        conflicts.append(
            Conflict(
                piece="jax",
                message=f"JAX for CUDA {wanted.jax_cuda} needs driver {tables.JAX[wanted.jax_cuda]}; the lock has {driver.version}",
                hint=f"take driver {tables.DEFAULT_BRANCH}",
            )
        )


def _toolkit() -> Choice:
    why = "1.20.0 mended the drop-in that lacked its runtime type; all four packages have one version"
    return Choice(
        piece="container_toolkit",
        version=tables.CONTAINER_TOOLKIT_PIN,
        why=why,
        low=tables.CONTAINER_TOOLKIT_FLOOR,
        high="2",
    )


def _fabric(machine: MachineType, provider: str, wanted: Wanted, conflicts: list[Conflict]) -> list[Choice]:
    if provider == "efa":
        row = tables.EFA_INSTALLERS[tables.EFA_PIN]
        why = f"of {row.released}; brings libfabric {row.libfabric} and aws-ofi-nccl {row.aws_ofi_nccl}; GPUDirect needs {tables.EFA_FLOOR}"
        return [Choice(piece="efa_installer", version=row.version, why=why, low=tables.EFA_FLOOR, high="2")]
    if provider == "infiniband":
        return _infiniband(machine, wanted, conflicts)
    if provider in ("tcpx", "tcpxo"):
        return [_gpudirect_tcp(machine, provider, wanted, conflicts)]
    why = "the package of Google's own recipe for RDMA machines"
    return [Choice(piece="gib", version=tables.GIB_PIN, low="1.1", high="2", why=why)]


def _infiniband(machine: MachineType, wanted: Wanted, conflicts: list[Conflict]) -> list[Choice]:
    row = tables.DOCA[wanted.os]
    if machine.arch != "x86_64" and not wanted.prebuilt:
        message = "DOCA-OFED is in the lock for x86_64 only, so a plain image cannot get InfiniBand"
        conflicts.append(
            Conflict(piece="doca_ofed", message=message, hint="name an image that has it, or say fabric: none")
        )
    why = "what the cloud's own HPC images of this release carry"
    chosen = [Choice(piece="doca_ofed", version=row.version, why=why, low="3.2", high="4", source=row.url)]
    if wanted.prebuilt:
        low, high = tables.GDRCOPY_RANGE
        why = "the image brings it; a plain image goes without, because no checksum of its packages is published"
        chosen.append(Choice(piece="gdrcopy", version=tables.GDRCOPY_PIN, why=why, low=low, high=high))
    return chosen


def _gpudirect_tcp(machine: MachineType, provider: str, wanted: Wanted, conflicts: list[Conflict]) -> Choice:
    row = {"tcpx": tables.TCPX, "tcpxo": tables.TCPXO}[provider]
    if not wanted.registry:
        message = f"the NCCL plugin comes as a container image, and nodes pull from no public registry; software.registry names none of yours with {row.folder}/"
        hint = "make a registry, such as an Artifact Registry remote repository of us-docker.pkg.dev/gce-ai-infra, and name it; or say fabric: none"
        conflicts.append(Conflict(piece="registry", message=message, hint=hint))
    if provider == "tcpx" and not (wanted.kernel and "tcpx" in wanted.kernel):
        message = "GPUDirect-TCPX on this machine needs Google's own kernel (linux-image-gcp-tcpx)"
        hint = "name that kernel in software.kernel and an image that has it, or take a machine with TCPXO or RDMA"
        conflicts.append(Conflict(piece="tcpx", message=message, hint=hint))
    if provider == "tcpxo" and machine.fabric and machine.fabric.older and "reserved" in wanted.kinds:
        message = "Google does not support TCPXO on this machine with a reservation"
        hint = "buy on demand, spot or flex; or name an image with Google's tcpx kernel in image and software.kernel; or say fabric: none"
        conflicts.append(Conflict(piece="tcpxo", message=message, hint=hint))
    why = f"with its receive manager {row.manager}: the two are released as a pair"
    return Choice(piece=provider, version=row.plugin.removeprefix("v"), why=why)


def _lustre(wanted: Wanted, conflicts: list[Conflict]) -> Choice:
    if wanted.kernel and any(wanted.kernel.startswith(bad) for bad in tables.BROKEN_LUSTRE_KERNELS):
        conflicts.append(
            Conflict(
                piece="lustre_client",
                message=f"kernel {wanted.kernel} breaks the Lustre module's ABI",
                hint="take another kernel",
            )
        )
    release = lustre_release(wanted.cloud, wanted.os)
    if release is None:
        message = f"there is no Lustre client for {wanted.os} on this cloud"
        conflicts.append(Conflict(piece="lustre_client", message=message, hint="remove the Lustre file system"))
        return Choice(piece="lustre_client", version="none", why=message)
    if series := release.kernel_series:
        if wanted.kernel and not wanted.kernel.startswith(series):
            conflicts.append(
                Conflict(
                    piece="lustre_client",
                    message=f"there is no Lustre module for kernel {wanted.kernel}; there are some for {', '.join(series)}",
                    hint="take one of those",
                )
            )
        return Choice(
            piece="lustre_client",
            version=release.version,
            why=f"has modules for kernels {', '.join(series)} of this release",
            low="2.15",
            high="2.18",
        )
    why = "the package for exactly the running kernel; the step refuses where there is none"
    return Choice(piece="lustre_client", version=release.version, why=why, low="2.12", high="2.18")
