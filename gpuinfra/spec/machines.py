"""Machine types that are not in the catalog, defined by their differences from a catalog record."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, StrictInt

from gpuinfra.catalog.gpus import GPUS
from gpuinfra.catalog.records import MachineType, NicShape
from gpuinfra.spec.base import Gib, Gpus, Line, SpecModel, Unit, Vcpus
from gpuinfra.spec.formats import text

TypeName = Annotated[
    str,
    text(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", "at most 64 letters, digits, dots, underscores and hyphens"),
]


class Interface(SpecModel):
    """A network interface in a machine's layout."""

    card: Annotated[StrictInt, Unit("index from 0")] = Field(ge=0, le=64, examples=[0])
    """Index of the network card that contains the interface."""
    device: Annotated[StrictInt, Unit("index from 0")] = Field(ge=0, le=64, examples=[1])
    """Device index of the interface on its network card."""
    kind: Literal["interface", "efa", "efa-only", "nic", "gvnic", "rdma"]
    """Type of the interface in the provider's terms."""


class MachineRecord(SpecModel):
    """A machine type that is not in the catalog. Omitted fields are copied from the machine type in `like`, except prices,
    which are unknown unless your price file contains them."""

    name: TypeName = Field(examples=["p4x.24xlarge"])
    """The provider's name for the machine type."""
    like: Line = Field(examples=["p4d.24xlarge"])
    """Machine type in the catalog on which this machine type is based. Omitted fields are copied from it."""
    arch: Literal["x86_64", "arm64"] | None = None
    """CPU architecture, which determines the image. If omitted, it is copied from `like`."""
    gpu: Line | None = Field(default=None, examples=["T4"])
    """GPU model, as `gpuinfra catalog` shows it. If omitted, it is copied from `like`."""
    gpus: Gpus | None = Field(default=None, ge=0, le=64, examples=[4])
    """Number of GPUs per node. If omitted, it is copied from `like`."""
    vcpus: Vcpus | None = Field(default=None, ge=1, le=4096, examples=[48])
    """Number of vCPUs per node. If omitted, it is copied from `like`."""
    memory_gib: Gib | None = Field(default=None, ge=1, le=65536, examples=[576])
    """Amount of memory per node. If omitted, it is copied from `like`."""
    fabric_devices: Annotated[StrictInt, Unit("devices")] | None = Field(default=None, ge=0, le=64, examples=[4])
    """Number of fabric devices per node, such as EFA devices. If omitted, it is copied from `like`."""
    interfaces: tuple[Interface, ...] | None = Field(default=None, max_length=128)
    """Layout of the network interfaces of a node. If omitted, it is copied from `like`."""


def described(record: MachineRecord, base: MachineType) -> MachineType:
    """Return the machine type that a record defines: `base` with the changes in the record."""
    fabric = base.fabric
    if fabric is not None and record.fabric_devices is not None:
        each = fabric.gbps / fabric.devices
        count = record.fabric_devices
        fabric = replace(fabric, devices=count, gbps=each * count) if count else None
    gpus = base.gpus if record.gpus is None else record.gpus
    gpu = (GPUS.get(record.gpu, base.gpu) if record.gpu else base.gpu) if gpus else None
    nics = base.nics
    if record.interfaces is not None:
        nics = tuple(NicShape(card=i.card, device=i.device, kind=i.kind) for i in record.interfaces)
    # The minimums were measured with the GPUs of the base.
    floors = base.floors if gpu is base.gpu else ()
    if fabric != base.fabric or record.gpus not in (None, base.gpus):
        # The bandwidth between two nodes depends on their number of fabric devices and GPUs.
        floors = tuple(one for one in floors if one.check != "B3")
    if gpus != base.gpus:
        floors = tuple(one for one in floors if one.check != "B2")
    return replace(
        base,
        name=record.name,
        arch=record.arch or base.arch,
        gpu=gpu,
        gpus=gpus,
        local_disks=0,
        nvswitch=base.nvswitch and gpu is not None and gpu.nvlinks > 0,
        vcpus=record.vcpus or base.vcpus,
        memory_gib=record.memory_gib or base.memory_gib,
        fabric=fabric,
        nics=nics,
        floors=floors,
        prices=(),
        zones={},
        block_regions=(),
        notes=(f"declared in the spec, like {base.name}",),
    )
