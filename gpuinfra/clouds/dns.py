"""The DNS names of a cluster that move with it to another region, and what they point to.

Each cloud that supports `recovery.names` has a `dns` module with a `connect` function. Commands change the records, not Pulumi: the two stacks
of a cluster have the same names, and neither declaration states which region is in use.

The Lustre client resolves a host name in the mount source (`convert_hostnames` in `lustre/utils/mount_lustre.c`), and the EFS mount helper accepts a
CNAME record that points to the file system's own name (mount.efs(8) of amazon-efs-utils); both retrieved 2026-11-27. A Lustre mount source also
contains the mount name, which differs by file system. A TXT record contains the complete source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpuinfra.clouds.failover import Unreachable
from gpuinfra.clouds.readiness import FAIL, OK, WARN, Line, Question, Unread, asked
from gpuinfra.errors import DeploymentError
from gpuinfra.inventory import nodes_of
from gpuinfra.plan.model import NamesPlan
from gpuinfra.registry import has_module, module_of

CLUSTER = "gpuinfra:index:GpuCluster"
SOURCE = "source"
"""First label of the name of a TXT record with a complete mount source."""
TTL_S = 60
MOST_NODES = 8
"""Number of addresses in the record of the nodes, so that a response fits into one UDP packet."""

Key = tuple[str, str]
"""Name and type of a record."""


@dataclass(frozen=True, kw_only=True)
class NameRecord:
    """A DNS record."""

    name: str
    type: str
    """`A`, `CNAME` or `TXT`."""
    values: tuple[str, ...]

    @property
    def key(self) -> Key:
        """The name and the type."""
        return self.name, self.type

    def __str__(self) -> str:
        return f"{self.name} {self.type} {' '.join(self.values)}"


class Dns(Protocol):
    """Requests to one cloud. Each can be repeated, and raises `Unreachable` and `DeploymentError`."""

    control_region: str
    """Region whose failure prevents changes of records in all regions."""

    def zone_name(self, zone: str) -> str | None:
        """Return the domain of a zone, or None if the zone does not exist."""
        ...

    def values(self, zone: str, keys: Iterable[Key]) -> dict[Key, tuple[str, ...]]:
        """Return the sorted values of the records that exist."""
        ...

    def point(self, zone: str, records: Sequence[NameRecord]) -> None:
        """Create or replace records. All records change, or none."""
        ...


def dns_of(cloud: str, region: str, config: Mapping[str, object]) -> Dns | None:
    """Return the requests to a cloud, or None if its package has no `dns` module. `config` contains the provider settings."""
    if not has_module(cloud, "dns"):
        return None
    found: Dns = module_of(cloud, "dns").connect(region, config)
    return found


def records(names: NamesPlan, resources: Iterable[Mapping[str, Any]]) -> tuple[NameRecord, ...]:
    """Return the records for the file systems and the verified nodes in the states of a region's stacks."""
    return tuple(_records(names, list(resources)))


def _records(names: NamesPlan, resources: Sequence[Mapping[str, Any]]) -> Iterator[NameRecord]:
    if addresses := [one.address for one in nodes_of(resources) if one.verified and one.address][:MOST_NODES]:
        yield NameRecord(name=names.login, type="A", values=tuple(sorted(addresses)))
    outputs = [one.get("outputs") or {} for one in resources if one.get("type") == CLUSTER]
    mounted = {str(one.get("mount")): one for each in outputs for one in each.get("file_systems") or ()}
    for planned in names.mounts:
        found = mounted.get(planned.mount)
        if found is None or not found.get("dns_name"):
            continue
        yield NameRecord(name=planned.host, type="CNAME", values=(str(found["dns_name"]),))
        if found.get("kind") == "lustre":
            source = f"{found['dns_name']}@tcp:/{found['mount_name']}"
            yield NameRecord(name=f"{SOURCE}.{planned.host}", type="TXT", values=(f'"{source}"',))


def moved(dns: Dns, names: NamesPlan, resources: Iterable[Mapping[str, Any]]) -> tuple[NameRecord, ...]:
    """Point the names to the file systems and nodes of a region. Returns the records."""
    found = records(names, resources)
    if not found:
        raise DeploymentError(f"the states contain no file system and no verified node for the names in {names.domain}")
    dns.point(names.zone, found)
    return found


def lines(question: Question, dns: Dns) -> Iterator[Line]:
    """Return the lines of `gpuinfra ready` about the names: the zone contains them, and they point to the stack's own region."""
    names = question.recovery.names
    if names is not None:
        yield from asked("names", names.domain, lambda: list(_lines(question, dns, names)))


def _lines(question: Question, dns: Dns, names: NamesPlan) -> Iterator[Line]:
    try:
        zone = dns.zone_name(names.zone)
        wanted = records(names, question.resources)
        found = dns.values(names.zone, [one.key for one in wanted]) if zone else {}
    except (Unreachable, DeploymentError) as problem:
        raise Unread(str(problem)) from None
    if zone is None:
        yield Line(
            topic="names", name=names.domain, state=FAIL, reason=f"the zone {names.zone} does not exist", fix=EDIT
        )
        return
    if not f".{names.domain}".endswith(f".{zone}"):
        reason = f"is not in the zone {names.zone}, whose domain is {zone}"
        yield Line(topic="names", name=names.domain, state=FAIL, reason=reason, fix=EDIT)
        return
    for one in wanted:
        values = found.get(one.key)
        if values == one.values:
            yield Line(topic="names", name=one.name, state=OK, reason=f"points to {question.region}")
            continue
        reason = f"points to {' '.join(values)}, not to {' '.join(one.values)}" if values else "does not exist"
        yield Line(topic="names", name=one.name, state=WARN, reason=reason, fix=NAMES_FIX)


NAMES_FIX = "gpuinfra names STACK"
"""Command that points the names to the region of the stack. `gpuinfra ready` replaces `STACK`."""
EDIT = "set recovery.names to an existing zone and a domain in it"
