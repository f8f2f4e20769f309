"""The expected state of a machine in this pool: the bundle's `expectation.json` and the versions that its steps recorded.

A check that needs a missing field results in an error, so an incomplete record never lets a node pass.
"""

from __future__ import annotations

import re
from typing import Any, Generic, Mapping, TypedDict, TypeVar, overload

from .outcome import Broken, Unreadable

Value = TypeVar("Value")


class ExpectedSoftware(TypedDict, total=False):
    """The pinned version of a package, and the bounds of the versions that the software lock allows."""

    pin: str
    range: list[str]


class _FloorSize(TypedDict, total=False):
    gib: float
    collective: str
    """`all-gather`. An all-reduce is left out."""


class ExpectedFloor(_FloorSize):
    """The lowest figure that a healthy machine reaches in the measurement of a check."""

    check: str
    what: str
    at_least: float
    unit: str


class DeclaredFile(TypedDict):
    """A declared file on the nodes."""

    path: str
    sha256: str
    owner: str
    group: str
    mode: str


class BucketMount(TypedDict):
    """A bucket that the nodes mount."""

    mount: str
    read_only: bool


class _Always(TypedDict):
    schema: str
    machine: str
    cloud: str
    gpus: int
    nvswitch: bool
    fabric_devices: int
    fabric_device_gbps: float
    fabric_provider: str | None
    open_module: bool
    software: dict[str, ExpectedSoftware]
    root_free_gib: float
    vcpus: int
    memory_gib: float
    """Nominal memory of the machine type."""
    file_systems: list[str]
    """Mounts of the Lustre file systems."""
    steps: list[str]
    required: list[str]
    """IDs of the checks that nodes must pass."""
    skips: dict[str, str]
    """IDs of the checks that these nodes cannot run, and the reasons."""


class _Gpus(TypedDict, total=False):
    gpu_name: str
    gpu_memory_mib: float
    pci_ids: list[str]
    pcie_gen: int
    pcie_width: int
    nvlinks_per_gpu: int
    nvlink_gb_s: float | None
    ecc: bool
    arch: str


class Uses(TypedDict, total=False):
    """What a pool uses. A field that is false or empty is left out."""

    own_steps: dict[str, str]
    """SHA-256 of the script of each declared step."""
    files: list[DeclaredFile]
    variables: dict[str, str]
    lnet_efa: int
    """Number of EFA devices that Lustre uses."""
    containers: list[str]
    metadata_guarded: list[str]
    """Addresses of the metadata service that containers cannot reach."""
    homes: list[str]
    buckets: list[BucketMount]
    replacing_xids: list[int]
    """Xids after which the cloud replaces the machine, although NVIDIA's catalog requires less."""
    mig: bool
    mig_profiles: list[str]
    energy: bool
    checkpoints: str
    """Pattern of the files that complete a checkpoint, below each Lustre file system, for `node.pyz metrics`."""
    orders: str
    """Key of the object with the orders of the control node, if the stack declares `repair`."""
    repair: str
    """On the control node: the mode of the repair, unless it is `off`."""
    fabric_test: bool
    burn_in: int
    gvnics: int
    local_disks: int
    local_disk_model: str
    """Regular expression that matches the model of the local disks."""
    floors: list[ExpectedFloor]


class Expectation(_Always, _Gpus, Uses):
    """The content of `expectation.json`."""


class Field(Generic[Value]):
    """A field of the expectation. Without a default, a check that reads an unusable value ends in an error."""

    def __init__(self, kind: type, default: Value | None = None) -> None:
        self._kind, self._default = kind, default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, machine: None, owner: type) -> Field[Value]: ...
    @overload
    def __get__(self, machine: Machine, owner: type) -> Value: ...
    def __get__(self, machine: Machine | None, owner: type) -> Any:
        if machine is None:
            return self
        value: Any = machine.fields.get(self._name)
        if value is None and self._default is not None:
            return self._default
        if self._kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if not isinstance(value, self._kind) or (self._kind is not bool and isinstance(value, bool)):
            raise Unreadable(
                "the machine's record has no usable %s" % self._name,
                "fix the machine's catalog record and rebuild the bundle",
            )
        return value


class Machine:
    """The expectation as checks read it, and the journal of the node. The bundle can be older or damaged, so each field is checked when it is read."""

    replacing_xids = Field["list[Any]"](list, [])
    gpus = Field[int](int)
    gpu_name = Field[str](str)
    gpu_memory_mib = Field[float](float)
    pci_ids = Field["list[Any]"](list)
    pcie_gen = Field[int](int)
    pcie_width = Field[int](int)
    nvlinks_per_gpu = Field[int](int)
    nvlink_gb_s = Field[float](float)
    nvswitch = Field[bool](bool)
    ecc = Field[bool](bool)
    open_module = Field[bool](bool)
    software = Field["dict[str, Any]"](dict)
    fabric_devices = Field[int](int)
    fabric_device_gbps = Field[float](float)
    fabric_provider = Field[str](str, "")
    gvnics = Field[int](int)
    root_free_gib = Field[float](float)
    vcpus = Field[int](int)
    memory_gib = Field[float](float)
    local_disks = Field[int](int)
    local_disk_model = Field[str](str)
    file_systems = Field["list[Any]"](list)
    lnet_efa = Field[int](int)
    homes = Field["list[Any]"](list, [])
    buckets = Field["list[Any]"](list, [])
    steps = Field["list[Any]"](list)
    own_steps = Field["dict[str, Any]"](dict, {})
    files = Field["list[Any]"](list, [])
    variables = Field["dict[str, Any]"](dict, {})
    containers = Field["list[Any]"](list, [])
    metadata_guarded = Field["list[Any]"](list)
    mig = Field[bool](bool, False)
    mig_profiles = Field["list[Any]"](list)
    burn_in = Field[int](int)
    floors = Field["list[Any]"](list, [])

    def __init__(self, expectation: Mapping[str, object], journal: Mapping[str, Any] | None) -> None:
        self.fields = expectation
        self.journal = journal

    def version(self, software: str) -> str | None:
        """Return the version that this node's steps recorded, or None if the evidence has no journal. The version must
        be within the range of the software lock, because the node's own record is not proof.
        """
        if self.journal is None:
            return None
        recorded = self.journal.get("recorded")
        value = recorded.get(software) if isinstance(recorded, Mapping) else None
        if not isinstance(value, str) or not value:
            raise Broken(
                "no bootstrap step recorded a version for %s" % software,
                "rerun the bootstrap: systemctl start gpuinfra-bootstrap",
            )
        self.inside_range(software, value)
        return value

    def inside_range(self, software: str, value: str) -> None:
        """Raise `Broken` if the version is outside the lock's range."""
        wanted = self.software.get(software)
        bounds = wanted.get("range") if isinstance(wanted, Mapping) else None
        pin = wanted.get("pin") if isinstance(wanted, Mapping) else None
        if not isinstance(bounds, (list, tuple)) or not bounds:
            if not isinstance(pin, str):
                raise Unreadable("the machine's record has neither a pin nor a range for %s" % software)
            bounds = ["==" + pin]
        for bound in bounds:
            if not _holds(value, bound):
                raise Broken(
                    "%s is %s, which is outside the range %s in the software lock"
                    % (software, value, ", ".join(str(one) for one in bounds)),
                    "install the pinned version, or test this version and then widen the range in the lock",
                )


def _parts(version: str) -> tuple[int, ...]:
    numbers = re.findall(r"\d+", version.split("+", 1)[0].split("-", 1)[0])
    if not numbers:
        raise Unreadable("%r is not a version" % version[:40])
    return tuple(int(number) for number in numbers)


def _holds(version: str, bound: object) -> bool:
    match = re.match(r"^(>=|<=|==|<|>)\s*(\S+)$", bound) if isinstance(bound, str) else None
    if match is None:
        raise Unreadable("%r is not a version bound; for example, write >=580.95 or <581" % (bound,))
    left, right = _parts(version), _parts(match.group(2))
    width = max(len(left), len(right))
    left, right = left + (0,) * (width - len(left)), right + (0,) * (width - len(right))
    return {">=": left >= right, "<=": left <= right, "==": left == right, "<": left < right, ">": left > right}[
        match.group(1)
    ]
