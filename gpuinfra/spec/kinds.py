"""Messages about kinds of capacity and storage that a cloud does not offer."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Protocol

from gpuinfra.base.findings import Finding, error
from gpuinfra.base.registry import CLOUDS, cloud_as
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.spec.messages import listed, nearest, value_at
from gpuinfra.spec.shown import shown

_INSTEAD = {
    "home": "mount your own shared file system on the nodes",
    "object": "read the bucket with the nodes' identity, or link it to a Lustre file system",
}
"""Maps each kind of storage to a workaround until gpuinfra supports it."""
_KINDS = frozenset({*CapacityKind, "lustre", *_INSTEAD})
"""Kinds of some cloud. Other words are mistakes."""
_ENTRY = re.compile(r"(?:pools\[(?P<pool>\d+)\]\.capacity|storage)\[(?P<index>\d+)\](?=\.|$)")


class Offer(Protocol):
    """The kinds that a cloud offers."""

    title: str
    """Name of the cloud in messages."""
    capacity_kinds: frozenset[CapacityKind]
    storage_kinds: frozenset[str]
    """Kinds of storage that gpuinfra creates on this cloud."""


class DeclaredCloud(ABC):
    """A cloud as messages about a declaration use it."""

    @property
    @abstractmethod
    def profile(self) -> Offer:
        """The kinds that the cloud offers."""


def capacity_not_offered(kind: str, cloud: str, offered: Iterable[str]) -> tuple[str, str]:
    """Return the message and the hint for a kind of capacity that the cloud does not offer."""
    return f"is {kind}, which {cloud} does not offer; allowed: {listed(sorted(offered))}", "use one of these kinds"


def storage_not_supported(kind: str, cloud: str, supported: Iterable[str]) -> tuple[str, str]:
    """Return the message and the hint for a kind of storage that gpuinfra does not support on the cloud."""
    what = f"is {kind}, which gpuinfra does not support on {cloud} yet"
    return what, f"allowed: {listed(sorted(supported))}; {_INSTEAD.get(kind, 'remove the entry')}"


def without_fields_of_other_kinds(value: dict[str, Any], findings_of_value: list[Finding]) -> list[Finding]:
    """Replace the findings about an entry whose kind the cloud does not offer with one finding about its kind."""
    where = value.get("where")
    cloud = where.get("cloud") if isinstance(where, dict) else None
    if not isinstance(cloud, str) or cloud not in CLOUDS:
        return findings_of_value
    left: dict[str, Finding] = {}
    for finding in findings_of_value:
        kept = _about_kind(value, finding.path, cloud) or finding
        left.setdefault(kept.path, kept)
    return list(left.values())


def _about_kind(value: dict[str, Any], path: str, cloud: str) -> Finding | None:
    match = _ENTRY.match(path)
    if match is None:
        return None
    profile = cloud_as(cloud, DeclaredCloud).profile
    index = int(match["index"])
    if match["pool"] is None:
        kind, offered = value_at(value, ("storage", index, "kind")), profile.storage_kinds
        words, rule = storage_not_supported, "storage_kind_is_supported"
    else:
        kind = value_at(value, ("pools", int(match["pool"]), "capacity", index, "kind"))
        offered = {one.value for one in profile.capacity_kinds}
        words, rule = capacity_not_offered, "capacity_kind_is_offered"
    if not isinstance(kind, str) or kind in offered:
        return None
    if kind in _KINDS:
        return error(f"{match[0]}.kind", *words(kind, profile.title, offered), rule=rule)
    if match["pool"] is None:
        return None
    near = nearest(kind, sorted(offered))
    hint = f"did you mean {near}?" if near else "use one of these kinds"
    return error(match[0], f"has kind {shown(kind)}; allowed: {listed(sorted(offered))}", hint, rule="value_is_allowed")
