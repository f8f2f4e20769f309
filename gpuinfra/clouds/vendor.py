"""The report about a faulty node for the cloud provider. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gpuinfra.node.cause import FaultyPart
from gpuinfra.node.checks import ALL


@dataclass(frozen=True, kw_only=True)
class Faulty:
    """One node, as its newest evidence describes it."""

    stack: str
    label: str
    instance_id: str
    resource: str
    """Path of the instance in the cloud's tools, if it differs from the instance ID."""
    group: str
    """The cloud's name of the group."""
    region: str
    zone: str
    machine: str
    outcome: str
    reason: str
    observed: str
    """Time at which the checks of the evidence ended, in UTC, or the current time if there is no evidence."""
    boot_id: str
    gpus: tuple[Mapping[str, str], ...]
    """`index`, `uuid`, `serial` and `pci` of each GPU that the node listed."""
    gpus_expected: int
    failed: tuple[Mapping[str, Any], ...]
    """The checks that prevent the node from being verified, root causes first."""
    xids: tuple[int, ...]
    """The Xids in the kernel log of this boot that require a drain."""

    @property
    def failed_ids(self) -> frozenset[str]:
        """IDs of the failed checks."""
        return frozenset(str(one.get("id")) for one in self.failed)

    @property
    def faults(self) -> frozenset[FaultyPart]:
        """What is faulty according to the failed checks."""
        faults = (ALL[one].fault for one in self.failed_ids & ALL.keys())
        return frozenset(fault for fault in faults if fault)

    @property
    def summary(self) -> str:
        """The problem in one line."""
        text = "; ".join(f"{one.get('id')} {one.get('name')}: {one.get('reason')}" for one in self.failed)
        return " ".join((text or self.reason or "no check failed").split())[:800]

    def facts(self) -> Iterator[str]:
        """Yield the lines that every report contains."""
        yield f"Time (UTC): {self.observed}"
        yield f"Machine type: {self.machine}"
        yield f"Boot ID: {self.boot_id or 'unknown'}"
        yield f"GPUs: {len(self.gpus)} of {self.gpus_expected} listed by nvidia-smi"
        for gpu in self.gpus:
            yield f"  GPU {gpu['index']}: UUID {gpu['uuid']}, serial number {gpu['serial']}, PCI {gpu['pci']}"
        yield f"Xids in this boot: {', '.join(map(str, self.xids)) or 'none'}"
        yield "Failed checks:" if self.failed else f"Failed checks: none ({self.reason or self.outcome})"
        for check in self.failed:
            yield f"  {check.get('id')} {check.get('name')}: {' '.join(str(check.get('reason')).split())}"


class Vendor(Protocol):
    """The module `vendor` of a cloud: its report for the provider."""

    @property
    def ACTION(self) -> str:
        """What a replacement does."""
        ...

    @property
    def SAME_HOST(self) -> str:
        """What to do if a replacement has the GPUs of the replaced node. `{instance}`, `{group}` and `{region}` are placeholders."""
        ...

    def files(self, node: Faulty) -> Mapping[str, str]:
        """Return the files of a report: name -> content."""
        ...
