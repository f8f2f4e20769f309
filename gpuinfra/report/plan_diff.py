"""The effects of a change to a declaration: on the declaration, the resources, the price and the findings.

The JSON form is documented in `docs/reference/plan-json.md` and versioned by its `schema`. `gpuinfra plan --diff` creates it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuinfra.base.errors import GpuinfraError
from gpuinfra.base.findings import Finding
from gpuinfra.report.plan_json import PlanReport, plain
from gpuinfra.spec.model import ClusterSpec

SCHEMA = "gpuinfra.plan-diff/1"
ADDED, REMOVED, RETAINED, CHANGED, REPLACED = "added", "removed", "retained", "changed", "replaced"
ACTIONS = (REPLACED, REMOVED, RETAINED, ADDED, CHANGED)
"""What happens to a resource, in the order of a report. A `retained` resource is removed from the stack's state and continues to exist."""


class Uncomparable(GpuinfraError):
    """Raised if the resources of two declarations cannot be compared. The text is the reason."""


@dataclass(frozen=True, kw_only=True)
class PropertyChange:
    """An input of a resource that changes."""

    path: str
    """Path of the input, such as `tags.owner` or `ingress[0].cidrBlocks[0]`."""
    old: Any
    """Value before the change, or None if the input is not set. Secrets are masked."""
    new: Any
    """Value after the change, or None if the input is not set."""
    replaces: bool
    """Whether the change of this input replaces the resource."""


@dataclass(frozen=True, kw_only=True)
class ResourceChange:
    """A resource that a change adds, removes, changes or replaces."""

    action: str
    """One of `ACTIONS`."""
    type: str
    """Pulumi type token."""
    name: str
    """Logical name."""
    properties: tuple[PropertyChange, ...] = ()
    """The inputs that change. Empty for a resource that is added or removed."""


@dataclass(frozen=True, kw_only=True)
class FieldChange:
    """A declaration field that changes. None means that the field is not set."""

    path: str
    old: Any
    new: Any


@dataclass(frozen=True, kw_only=True)
class PriceChange:
    """A billed item whose price changes. None means an unknown price, or an item that only one of the plans has."""

    what: str
    old_usd_per_hour: float | None
    new_usd_per_hour: float | None


@dataclass(frozen=True, kw_only=True)
class PlanDiff:
    """The comparison of two plans."""

    old: PlanReport
    new: PlanReport
    against: str
    """The stack, the file or the Git reference of the old plan."""
    fields: tuple[FieldChange, ...] = ()
    resources: tuple[ResourceChange, ...] | None = None
    """The resources that change, or None if they cannot be compared."""
    reason: str = ""
    """Why the resources cannot be compared."""

    @property
    def ok(self) -> bool:
        """True if the new declaration has no errors."""
        return self.new.ok

    @property
    def appeared(self) -> tuple[Finding, ...]:
        """Findings that only the new declaration has."""
        before = {_same(one) for one in self.old.findings}
        return tuple(one for one in self.new.findings if _same(one) not in before)

    @property
    def resolved(self) -> tuple[Finding, ...]:
        """Findings that only the old declaration has."""
        after = {_same(one) for one in self.new.findings}
        return tuple(one for one in self.old.findings if _same(one) not in after)

    @property
    def prices(self) -> tuple[PriceChange, ...]:
        """The billed items whose price changes."""
        if not self.old.cost or not self.new.cost:
            return ()
        lines = [{one.what: one.usd_per_hour for one in cost.lines} for cost in (self.old.cost, self.new.cost)]
        changes = [
            PriceChange(what=what, old_usd_per_hour=lines[0].get(what), new_usd_per_hour=lines[1].get(what))
            for what in dict.fromkeys((*lines[0], *lines[1]))
            if what not in lines[0] or what not in lines[1] or lines[0][what] != lines[1][what]
        ]
        return tuple(changes)

    @property
    def counts(self) -> dict[str, int]:
        """The number of resources for each action that occurs."""
        counts = {action: sum(one.action == action for one in self.resources or ()) for action in ACTIONS}
        return {action: count for action, count in counts.items() if count}

    def as_dict(self) -> dict[str, object]:
        """Return the document for `--json`."""
        costs = [one.cost.as_dict() if one.cost else None for one in (self.old, self.new)]
        totals = ("usd_per_hour", "usd_per_month", "complete", "nodes_priced")
        return {
            "schema": SCHEMA,
            "stack": self.new.stack,
            "file": str(self.new.path),
            "against": self.against,
            "ok": self.ok,
            "declaration": [plain(one) for one in self.fields],
            "resources": None if self.resources is None else [plain(one) for one in self.resources],
            "resources_reason": self.reason,
            "counts": self.counts,
            "price": {
                name: cost and {key: cost[key] for key in totals}
                for name, cost in zip(("old", "new"), costs, strict=True)
            }
            | {"lines": [plain(one) for one in self.prices]},
            "findings": {
                "new": [one.as_dict() for one in self.appeared],
                "resolved": [one.as_dict() for one in self.resolved],
            },
        }


def field_changes(old: ClusterSpec, new: ClusterSpec) -> tuple[FieldChange, ...]:
    """Return the declared fields that differ. List entries are matched by name or mount if each has a unique one."""
    return tuple(_fields(_declared(old), _declared(new), ""))


def _declared(spec: ClusterSpec) -> Any:
    """Return the declared fields as plain values, with the checksum of each script and of each local file."""
    declared = spec.model_dump(mode="json", exclude_unset=True)
    software = declared.get("software") or {}
    entries = [
        *zip(((one.file, one.script) for one in spec.software.steps), software.get("steps") or (), strict=False),
        *zip(((one.file, one.read) for one in spec.software.files), software.get("files") or (), strict=False),
    ]
    for (file, read), shown in entries:
        if read is not None:
            shown["file"] = f"{file} (SHA-256 {read.sha256[:12]})"
    return declared


def _fields(old: Any, new: Any, path: str) -> Iterator[FieldChange]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys((*old, *new)):
            yield from _fields(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(old, list) and isinstance(new, list):
        before, after = _named(old), _named(new)
        if before is None or after is None:
            before, after = dict(enumerate(old)), dict(enumerate(new))
        for key in dict.fromkeys((*before, *after)):
            yield from _fields(before.get(key), after.get(key), f"{path}[{key}]")
    elif old != new:
        yield FieldChange(path=path, old=old, new=new)


def _named(entries: Sequence[Any]) -> dict[Any, Any] | None:
    """Return the entries by name or mount, or None if they do not have unique ones."""
    for key in ("name", "mount"):
        names = [one.get(key) for one in entries if isinstance(one, Mapping)]
        if len(names) == len(entries) == len(set(names)) and None not in names:
            return dict(zip(names, entries, strict=True))
    return None


def _same(finding: Finding) -> tuple[str, str, str]:
    """Return what identifies a finding in both files. Line numbers differ between the files."""
    return finding.level, finding.path, finding.message
