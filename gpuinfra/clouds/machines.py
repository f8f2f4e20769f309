"""The machine types of a declaration: its cloud's catalogue, and the types that the declaration describes."""

from __future__ import annotations

from gpuinfra.catalog.records import MachineType
from gpuinfra.clouds import profile_of
from gpuinfra.spec.machines import described
from gpuinfra.spec.model import ClusterSpec


def machines_of(spec: ClusterSpec) -> dict[str, MachineType]:
    """Machine types by name. A description never replaces a type of the catalogue."""
    known = dict(profile_of(spec.cloud).machines)
    for record in spec.machines:
        base = known.get(record.like)
        if base is not None and record.name not in known:
            known[record.name] = described(record, base)
    return known
