"""The request for a clone, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal

from gpuinfra.base.findings import Finding, Level
from gpuinfra.clouds.region.second_region import Manual
from gpuinfra.cost import Cost
from gpuinfra.plan.model import Plan
from gpuinfra.spec.document import Route
from gpuinfra.spec.messages import path_text

SCHEMA = "gpuinfra.clone/1"
Mode = Literal["cold", "pilot-light", "hot"]
MODES: tuple[Mode, ...] = ("cold", "pilot-light", "hot")


@dataclass(frozen=True, kw_only=True)
class CloneRequest:
    """The options of `gpuinfra clone`."""

    region: str
    cloud: str | None = None
    """Cloud of the clone. None selects the cloud of the stack."""
    zone: str | None = None
    mode: Mode = "cold"
    count: dict[str, int] = field(default_factory=dict)
    """Pool -> number of nodes. The key `*` applies to the only pool."""
    machine: dict[str, str] = field(default_factory=dict)
    """Pool -> machine type. The key `*` applies to all pools."""
    rpo_minutes: int | None = None
    cidr: str | None = None
    peers: tuple[str, ...] = ()
    """Networks that the clone's network must not overlap, in addition to the stack's network."""
    values: tuple[tuple[str, object], ...] = ()
    """Path of a field -> value, from `--set`."""
    project: str = "gpuinfra"
    """Name of the Pulumi project, which is part of stack references."""


@dataclass(frozen=True, kw_only=True)
class CloneChange:
    """A value of the clone that differs from the stack."""

    route: Route
    """Path from the root of the declaration. Settings outside the declaration start with `config`."""
    before: object
    """None if the stack does not set the value."""
    after: object
    """None if the clone does not set the value."""
    reason: str

    @property
    def path(self) -> str:
        """Path as text, such as `pools[0].capacity[0]`."""
        return path_text(self.route)


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Data that is copied to the second region."""

    what: str
    gib: float | None
    """Size of the data, or None if it is unknown."""
    usd_per_gb: float | None
    read: date
    source: str
    certain: bool

    @property
    def usd(self) -> float | None:
        """Price of one full copy, or None if the size or the price per GB is unknown."""
        return None if self.usd_per_gb is None or self.gib is None else self.gib * 1.073741824 * self.usd_per_gb


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """An alternative second region."""

    region: str
    machine: str
    usd_per_hour: float | None
    """Price of the nodes, or None if it is unknown."""
    reason: str
    options: str
    """Options of `gpuinfra clone` that select it."""


@dataclass(frozen=True, kw_only=True)
class ClonedFile:
    """A stack file of the clone."""

    stack: str
    path: Path
    text: str
    declaration: dict[str, Any]
    role: str
    """`stack` for the only file. In `pilot-light` mode: `base` for the file that is deployed in advance, and `nodes` for the other."""


@dataclass(frozen=True, kw_only=True)
class CloneResult:
    """A clone, or the findings that prevent it."""

    stack: str
    path: Path
    source_region: str
    source_cloud: str
    request: CloneRequest
    changes: tuple[CloneChange, ...] = ()
    manual: tuple[Manual, ...] = ()
    findings: tuple[Finding, ...] = ()
    files: tuple[ClonedFile, ...] = ()
    before: Cost | None = None
    after: Cost | None = None
    estimate: Cost | None = None
    """Price of the clone at the prices of the first region. None if every price of the second region is known, or on another cloud."""
    standing: Cost | None = None
    """Price of what the mode keeps deployed before the failover. None if nothing is deployed."""
    standing_estimate: Cost | None = None
    """`standing` at the prices of the first region, as `estimate`."""
    plan: Plan | None = None
    transfers: tuple[Transfer, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    next: tuple[str, ...] = ()
    """Next steps, in order."""

    @property
    def ok(self) -> bool:
        """Whether the clone has no errors."""
        return not any(finding.level is Level.ERROR for finding in self.findings)

    @property
    def cloud(self) -> str:
        """Cloud of the clone."""
        return self.source_cloud if self.request.cloud is None else self.request.cloud

    def as_dict(self, *, written: bool) -> dict[str, Any]:
        """Return the document for `--json` (docs/reference/clone.md)."""
        return {
            "schema": SCHEMA,
            "ok": self.ok,
            "written": written,
            "source": {
                "stack": self.stack,
                "file": str(self.path),
                "cloud": self.source_cloud,
                "region": self.source_region,
            },
            "target": {
                "cloud": self.cloud,
                "region": self.request.region,
                "mode": self.request.mode,
                "zones": list(self.plan.zones) if self.plan else [],
            },
            "files": [
                {"stack": one.stack, "file": str(one.path), "role": one.role, "declaration": one.declaration}
                for one in self.files
            ],
            "changes": [
                {"path": one.path, "before": one.before, "after": one.after, "reason": one.reason}
                for one in self.changes
            ],
            "not_cloned": [
                {"path": one.path, "what": one.what, "why": one.why, "command": one.command} for one in self.manual
            ],
            "findings": [finding.as_dict() for finding in self.findings],
            "price": {
                "before": self.before.as_dict() if self.before else None,
                "after": self.after.as_dict() if self.after else None,
                "estimate": self.estimate.as_dict() if self.estimate else None,
                "standing": self.standing.as_dict() if self.standing else None,
                "standing_estimate": self.standing_estimate.as_dict() if self.standing_estimate else None,
            },
            "transfer": [
                {
                    "what": one.what,
                    "gib": one.gib,
                    "usd_per_gb": one.usd_per_gb,
                    "usd": None if one.usd is None else round(one.usd, 2),
                    "read": one.read.isoformat(),
                    "source": one.source,
                    "certain": one.certain,
                }
                for one in self.transfers
            ],
            "alternatives": [
                {
                    "region": one.region,
                    "machine": one.machine,
                    "usd_per_hour": one.usd_per_hour,
                    "reason": one.reason,
                    "options": one.options,
                }
                for one in self.alternatives
            ],
            "next": list(self.next),
        }
