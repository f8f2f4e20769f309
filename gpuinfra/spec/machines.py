"""Machine types that the catalogue does not have yet, described by what they differ in from one that it has."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from gpuinfra.catalog.records import MachineType, NicShape
from gpuinfra.spec.base import Part, Whole, Word

TYPE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class Interface(Part):
    """One network interface in a machine's layout."""

    card: Whole = Field(ge=0, le=64)
    """Network card."""
    device: Whole = Field(ge=0, le=64)
    """Device on that card."""
    kind: Literal["interface", "efa", "efa-only", "nic", "gvnic", "rdma"]
    """The provider's word."""


class MachineRecord(Part):
    """A machine type that the catalogue lacks. Everything that is left out is as in `like`."""

    name: Annotated[str, Field(pattern=TYPE_NAME)]
    """The provider's name of it."""
    like: Word
    """The type of the catalogue that it resembles."""
    gpus: Whole | None = Field(default=None, ge=0, le=64)
    """GPUs."""
    vcpus: Whole | None = Field(default=None, ge=1, le=4096)
    """vCPUs."""
    memory_gib: Whole | None = Field(default=None, ge=1, le=65536)
    """Memory in GiB."""
    fabric_devices: Whole | None = Field(default=None, ge=0, le=64)
    """Fabric devices."""
    interfaces: tuple[Interface, ...] | None = Field(default=None, max_length=128)
    """Layout of its network interfaces. Prices are not taken over: they are unknown, or in your price file."""


def described(record: MachineRecord, base: MachineType) -> MachineType:
    """The machine type of a record: `base` with the record's changes."""
    fabric = base.fabric
    if fabric is not None and record.fabric_devices is not None:
        each = fabric.gbps / fabric.devices
        count = record.fabric_devices
        fabric = replace(fabric, devices=count, gbps=each * count) if count else None
    nics = base.nics
    if record.interfaces is not None:
        nics = tuple(NicShape(card=i.card, device=i.device, kind=i.kind) for i in record.interfaces)
    return replace(
        base,
        name=record.name,
        gpus=base.gpus if record.gpus is None else record.gpus,
        vcpus=record.vcpus or base.vcpus,
        memory_gib=record.memory_gib or base.memory_gib,
        fabric=fabric,
        nics=nics,
        prices=(),
        zones={},
        block_regions=(),
        notes=(f"described in the declaration, like {base.name}",),
    )
