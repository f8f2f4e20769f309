"""The DNS names of a cluster that move with it to another region, and what they point to.

Commands change the records, not Pulumi: the two stacks of a cluster have the same names, and neither declaration states which region is in use.

The names serve machines in other networks, where the own names of the file systems might not resolve. The record of a file system therefore contains
addresses. A mount source also contains a part that differs by file system, so a TXT record contains the complete source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.region.failover import Unreachable
from gpuinfra.clouds.region.readiness import (
    ReadinessLine,
    ReadinessQuestion,
    Unread,
    asked,
    fails,
    passes,
    warns,
)
from gpuinfra.plan.recovery_model import NamesPlan

if TYPE_CHECKING:
    from gpuinfra.handover.judge import FleetVerdict

CLUSTER = "gpuinfra:index:GpuCluster"
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
    """`A` or `TXT`."""
    values: tuple[str, ...]

    @property
    def key(self) -> Key:
        """The name and the type."""
        return self.name, self.type

    def __str__(self) -> str:
        return f"{self.name} {self.type} {' '.join(self.values)}"


@dataclass(frozen=True, kw_only=True)
class Mounted:
    """How machines in other networks mount a file system."""

    addresses: tuple[str, ...]
    """Empty if clients must use the name in `source`."""
    source: str
    """Complete mount source, without the name of the file system."""


@dataclass(frozen=True, kw_only=True)
class ZoneFormat:
    """The IDs of a cloud's DNS zones in `recovery.names.zone`."""

    pattern: str
    what: str
    """What an ID is, with an example, for messages."""


class Dns(Protocol):
    """Requests to one cloud. Each can be repeated, and raises `Unreachable` and `DeploymentError`."""

    control_plane: str
    """Region whose failure prevents changes of records in all regions, or the name of the global service that changes records."""

    def zone_name(self, zone: str) -> str | None:
        """Return the domain of a zone, or None if the zone does not exist."""
        ...

    def zone_region(self, zone: str) -> str | None:
        """Return the region whose failure prevents changes of the records in this zone, or None if a zone belongs to no region."""
        ...

    def values(self, zone: str, keys: Iterable[Key]) -> dict[Key, tuple[str, ...]]:
        """Return the sorted values of the records that exist. The value of a record without values describes it, such as `ALIAS TARGET`."""
        ...

    def point(self, zone: str, records: Sequence[NameRecord]) -> None:
        """Create or replace records. On a cloud with a request for several records, all of them change, or none."""
        ...

    def mounted(self, entry: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]) -> Mounted | None:
        """Return how machines mount a file system in `file_systems` of a cluster's outputs, or None if the state does not contain it.

        `resources` is the state. The requests are sent to the region of the file system.
        """
        ...


class CloudDns(Protocol):
    """The module `region.dns` of a cloud."""

    @property
    def ZONE(self) -> ZoneFormat:
        """The format of the zones."""
        ...

    def control_plane(self, region: str) -> str:
        """Return `Dns.control_plane` for a stack in `region`."""
        ...

    def connect(self, region: str, config: Mapping[str, object]) -> Dns:
        """Return the requests. `config` contains the provider settings."""
        ...


def by_address(entry: Mapping[str, Any]) -> Mounted:
    """Return how machines mount a file system whose `dns_name` is an address."""
    server, path = str(entry["dns_name"]), str(entry["mount_name"])
    joined = f"{server}@tcp:/{path}" if entry["kind"] == "lustre" else f"{server}:{path}"
    return Mounted(addresses=(server,), source=joined)


def nodes_missing(verdicts: Iterable[FleetVerdict]) -> bool:
    """Return whether a region is expected to have nodes, but no node is verified."""
    verdicts = list(verdicts)
    return any(one.expected for one in verdicts) and not _addresses(verdicts)


def records(
    dns: Dns, names: NamesPlan, resources: Iterable[Mapping[str, Any]], verdicts: Sequence[FleetVerdict]
) -> tuple[NameRecord, ...]:
    """Return the records for the file systems in the states of a region's stacks, and for the nodes that are verified now.

    Raises `DeploymentError` if no node is verified or the addresses of the file systems cannot be read.
    """
    if nodes_missing(verdicts):
        raise DeploymentError(
            f"no node is verified, so {names.login} cannot point to a node; wait until `gpuinfra verify` reports a verified node, and run the command again"
        )
    records_of_names = (*_login(names, verdicts), *_mounts(dns, names, list(resources)))
    if not records_of_names:
        raise DeploymentError(f"the states contain no file system and no node for the names in {names.domain}; deploy the stack first")  # fmt: skip
    return records_of_names


def _login(names: NamesPlan, verdicts: Iterable[FleetVerdict]) -> Iterator[NameRecord]:
    if addresses := _addresses(verdicts):
        yield NameRecord(name=names.login, type="A", values=addresses)


def _mounts(dns: Dns, names: NamesPlan, resources: Sequence[Mapping[str, Any]]) -> Iterator[NameRecord]:
    outputs = [one.get("outputs") or {} for one in resources if one.get("type") == CLUSTER]
    entries = {str(one.get("mount")): one for each in outputs for one in each.get("file_systems") or ()}
    for planned in names.mounts:
        entry = entries.get(planned.mount)
        try:
            mounted = dns.mounted(entry, resources) if entry else None
        except Unreachable as problem:
            raise DeploymentError(f"the addresses of the file systems cannot be read: {problem}") from None
        if mounted is None:
            continue
        if mounted.addresses:
            yield NameRecord(name=planned.host, type="A", values=tuple(sorted(mounted.addresses)))
        yield NameRecord(name=planned.source, type="TXT", values=(f'"{mounted.source}"',))


def _addresses(verdicts: Iterable[FleetVerdict]) -> tuple[str, ...]:
    """Return the sorted addresses of the first verified nodes."""
    nodes = (node for one in verdicts for node in one.nodes if node.outcome == "verified" and node.private_ip)
    return tuple(sorted([node.private_ip for node in nodes][:MOST_NODES]))


def moved(
    dns: Dns, names: NamesPlan, resources: Iterable[Mapping[str, Any]], verdicts: Sequence[FleetVerdict]
) -> tuple[NameRecord, ...]:
    """Point the names to the file systems and the verified nodes of a region. Returns the records."""
    records_moved = records(dns, names, resources, verdicts)
    dns.point(names.zone, records_moved)
    return records_moved


def lines(question: ReadinessQuestion, dns: Dns) -> Iterator[ReadinessLine]:
    """Return the lines of `gpuinfra ready` about the names: the zone contains them and can be changed without the stack's own region,
    and they point to this region."""
    names = question.recovery.names
    if names is not None:
        yield from asked("names", names.domain, lambda: list(_lines(question, dns, names)))


def _lines(question: ReadinessQuestion, dns: Dns, names: NamesPlan) -> Iterator[ReadinessLine]:
    wanted: tuple[NameRecord, ...] = ()
    missing, home = False, None
    try:
        zone = dns.zone_name(names.zone)
        home = dns.zone_region(names.zone) if zone is not None else None
        if zone is not None and _contains(zone, names.domain):
            # If the region does not respond, the first request fails soon.
            mounts = tuple(_mounts(dns, names, question.resources))
            verdicts = question.verdicts()
            missing = nodes_missing(verdicts)
            wanted = (*_login(names, verdicts), *mounts)
        current = dns.values(names.zone, [one.key for one in wanted]) if wanted else {}
    except (Unreachable, DeploymentError) as problem:
        raise Unread(str(problem)) from None
    if zone is None:
        yield fails("names", names.domain, f"the zone {names.zone} does not exist", EDIT)
        return
    if not _contains(zone, names.domain):
        yield fails("names", names.domain, f"is not in the zone {names.zone}, whose domain is {zone}", EDIT)
        return
    if home == question.region:
        reason = f"is in {home}, so the records cannot be changed while {home} does not respond"
        yield warns("names", names.zone, reason, MOVE)
    if missing:
        reason = f"no node in {question.region} is verified, so the name cannot point to a node"
        yield warns("names", names.login, reason, NAMES_FIX)
    for record in wanted:
        values = current.get(record.key)
        if values == record.values:
            yield passes("names", record.name, f"points to {question.region}")
            continue
        reason = f"points to {' '.join(values)}, not to {' '.join(record.values)}" if values else "does not exist"
        yield warns("names", record.name, reason, NAMES_FIX)


def _contains(zone: str, domain: str) -> bool:
    return f".{domain}".endswith(f".{zone}")


NAMES_FIX = "gpuinfra names STACK"
"""Command that points the names to the region of the stack. `gpuinfra ready` replaces `STACK`."""
EDIT = "set recovery.names to an existing zone and a domain in it"
MOVE = "create the zone in another region, and set recovery.names.zone to its ID"
