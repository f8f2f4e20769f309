"""Types of the node state that device tools read (`nodes/state.py` owns the state). Imported by type checkers only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NotRequired, TypedDict

Gpu = dict[str, str]
"""Maps each field of the output templates to its value for one GPU."""


class DeviceInstance(TypedDict):
    """The machine that the stand-in cloud launched."""

    id: str
    name: NotRequired[str]
    cloud: NotRequired[str]
    moves: NotRequired[int]
    """How often the machine moved to a different host."""


class Hardware(TypedDict):
    """The devices of the machine type."""

    gpus: int
    gpu: str | None
    efa: NotRequired[int]
    fabric: NotRequired[str | None]
    fabric_devices: NotRequired[int]
    fabric_gbps: NotRequired[int]
    nvswitches: NotRequired[int]
    vcpus: NotRequired[int]
    memory_gib: NotRequired[float]


class Driver(TypedDict):
    """Versions of the driver's two halves. None for a missing half."""

    userspace: str | None
    loaded: str | None
    open: bool | None


class Efa(TypedDict, total=False):
    """Versions that the EFA installer recorded."""

    libfabric: str | None
    kmod: str | None


class Mig(TypedDict):
    """GPUs in MIG mode, and this boot's instances keyed by GPU index."""

    enabled: list[int]
    instances: dict[str, list[str]]
    boot_id: NotRequired[str | None]


class DeviceState(TypedDict):
    """The parts of a node's state that devices depend on."""

    instance: DeviceInstance
    hardware: Hardware
    driver: Driver
    efa: NotRequired[Efa]
    mig: NotRequired[Mig]
    modules: list[str]
    faults: list[str]
    kernel: NotRequired[str]
    boot_id: NotRequired[str]
    booted: NotRequired[str]
    persistenced: NotRequired[bool]
    packages: NotRequired[dict[str, object]]


Change = Callable[[Callable[[DeviceState], object]], object]
"""Applies a function to the node's state."""


class Model(TypedDict):
    """A GPU model, as fields of the output templates."""

    NAME: str
    ARCH: str
    CHIP: str
    PCIID: str
    SUBID: str
    MEMORY: str
    RESERVED: str
    FREE: str
    GEN: str
    WIDTH: str
    CAP: str
    LIMIT: str
    POWER: str
    CLOCK: str
    CLOCK_MAX: str
    CLOCK_MEMORY: str
    TLIMIT: str
    FABRIC: bool
    LINKS: int
    RATE: str
    VBIOS: str
    IMG: str


class Layout(TypedDict):
    """PCI addresses of the devices of one machine type."""

    gpus: tuple[str, ...]
    fabric: tuple[str, ...]
    gvnics: NotRequired[tuple[str, ...]]


class Port(TypedDict):
    """One port of an InfiniBand or RDMA device."""

    NAME: str
    NUMBER: int
    LAYER: str
    DOWN: bool
    RATE: int
    LID: int
    NETDEV: str
    PKEY: str
