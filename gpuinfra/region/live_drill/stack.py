"""The stack of a live drill: the stack of the second region with one cheap pool, its own network and its own bucket, and nothing else.

The file of the second region already has the region, the zone, the image copies and the registry of that region, because `gpuinfra clone` wrote it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import UsageError
from gpuinfra.base.naming import logical
from gpuinfra.catalog.records import CapacityKind, MachineType
from gpuinfra.plan.profile import CloudProfile, profile_of
from gpuinfra.plan.storage import named
from gpuinfra.region.clone.draft import put
from gpuinfra.region.clone.machines import free_kinds, hourly, is_listed, zones_in
from gpuinfra.region.clone.names import file_of
from gpuinfra.region.clone.write import dumped, edited
from gpuinfra.spec.document import Route, parse
from gpuinfra.spec.load import CLONE_OF, KEY, LoadedStack, stack_in
from gpuinfra.spec.messages import nearest
from gpuinfra.spec.shown import shown

SUFFIX = "-drill"
MOUNT, STEP = "/drill", "read-checkpoint"
LIFE_HOURS = 4
"""Time after which the cloud removes the nodes if nothing else does, where `expires_at` has this effect."""
KEPT = ("where", "access", "tags", "machines")
"""Sections that the drill has in common with the second region."""
KEPT_SOFTWARE = ("image", "os", "driver", "fabric_manager", "cuda", "nccl", "kernel", "mirror_url", "registry")
"""Fields of `software` without those that run programs of the user, because such a program could join the production cluster."""
KEPT_ACCESS = ("evidence_from", "evidence_readers", "operators")
NAME_LENGTH = 24
"""Maximum length of the name of a cluster."""
READ_MB_S = 100
"""Rate below which the node stops reading."""


@dataclass(frozen=True, kw_only=True)
class DrillStack:
    """The stack file of a live drill."""

    path: Path
    text: str
    """Content before the nodes start: the pool has no nodes."""
    nodes: int
    project: Path

    @property
    def loaded(self) -> LoadedStack:
        """The stack without nodes."""
        return stack_in(parse(self.text, self.path.name), self.path)

    @property
    def script(self) -> Path:
        """Path of the script that reads the checkpoint."""
        return self.path.with_name(f"{self.loaded.name}-read.py")

    @property
    def mount_component(self) -> str:
        """Component of the mounted bucket."""
        spec = self.loaded.spec
        return logical(spec.name, next(name for name, _ in named(spec.storage)))

    def complete(self) -> LoadedStack:
        """Return the stack with its nodes, which does not have the script yet."""
        return stack_in(parse(self.with_nodes(self.text, None), self.path.name), self.path)

    def with_nodes(self, text: str, size: int | None) -> str:
        """Return the text of the file with the nodes and, for a checkpoint of `size` bytes, the script. Keys that the engine added to the file remain."""
        edits: list[tuple[Route, object]] = [
            (("config", KEY, "pools", 0, "capacity", "count"), self.nodes),
            (("config", KEY, "expires_at"), _expires()),
        ]
        if size is not None:
            minutes = min(240, 10 + ceil(size / 1e6 / READ_MB_S / 60))
            step = {"name": STEP, "file": self.script.name, "timeout_minutes": minutes}
            edits += [
                (("config", KEY, "software", "steps"), [step]),
                (("config", KEY, "handover", "deadline_minutes"), 60 + minutes),
            ]
        return edited(text, edits)


def path_of(stack: LoadedStack) -> Path:
    """Return the path of the stack file of a drill of a stack."""
    return file_of(stack.path, f"{stack.name}{SUFFIX}")


DRILL = re.compile(rf"{SUFFIX}-[0-9a-f]{{4}}(-|$)")
"""What the names of the resources of a drill contain."""


def new_name(stack: LoadedStack) -> str:
    """Return the name of the cluster of a drill. It is new for each drill, because clouds keep the names of deleted keys and buckets."""
    tail = f"{SUFFIX}-{secrets.token_hex(2)}"
    return f"{stack.spec.name[: NAME_LENGTH - len(tail)].rstrip('-')}{tail}"


def check_drill(stack: str, resources: Iterable[Mapping[str, Any]]) -> None:
    """Raise `UsageError` if a state contains resources, but no cluster with the name of a drill: the stack of somebody else can have the same name."""
    own = [one for one in resources if not str(one["type"]).startswith("pulumi:")]
    if own and not any(DRILL.search(str(one["urn"]).rpartition("::")[2]) for one in own):
        raise UsageError(
            f"the stack {stack} is not one of a drill, so it is not removed; rename it, or remove it with Pulumi"
        )


def drill_stack(
    stack: LoadedStack, second: LoadedStack, declared: Mapping[str, Any], *, name: str, nodes: int, machine: str | None, project: Path
) -> DrillStack:  # fmt: skip
    """Return the stack of a drill of `stack`. `second` is the stack with the nodes of the second region, and `declared` its declaration.

    Raises `UsageError` if the machine type is not possible.
    """
    profile, region = profile_of(second.spec.cloud), second.spec.where.region
    chosen, kind = _machine(profile, region, machine)
    where = dict(declared["where"])
    zones = zones_in([chosen], profile, region)
    if zones and where.get("zone") not in zones:
        where["zone"] = zones[0]
    each = hourly(chosen, profile, region, kind)
    software = {key: value for key, value in (declared.get("software") or {}).items() if key in KEPT_SOFTWARE}
    access = {key: value for key, value in (declared.get("access") or {}).items() if key in KEPT_ACCESS}
    budget = {key: value for key, value in (declared.get("budget") or {}).items() if key != "limit_usd_per_month"}
    pool = next((one.name for one in second.spec.pools), "gpu")
    declaration: dict[str, Any] = {
        "name": name,
        **{key: declared[key] for key in KEPT if key in declared},
        "where": where,
        "pools": [{"name": pool, "machine": chosen.name, "capacity": {"kind": kind.value, "count": 0}}],
        "storage": [{"kind": "object", "mount": MOUNT, "bucket": "auto", "cache_gib": 0}],
        "audit": {"trail": "none"},
        "budget": {**budget, "limit_usd_per_month": max(25, ceil((each or 10) * nodes * 24))},
        "expires_at": _expires(),
    }
    if "access" in declaration:
        put(declaration, ("access",), access or None)
    if software:
        declaration["software"] = software
    config = {key: value for key, value in second.config.items() if key != CLONE_OF and isinstance(value, str)}
    document: dict[str, Any] = {"config": {**config, KEY: declaration}}
    return DrillStack(path=path_of(stack), text=dumped(document), nodes=nodes, project=project)


def _machine(profile: CloudProfile, region: str, wanted: str | None) -> tuple[MachineType, CapacityKind]:
    """Return the machine type and its kind of capacity: the wanted one, or the cheapest one that the catalog can price on demand in the region."""
    if wanted is not None:
        machine = profile.machines.get(wanted)
        if machine is None:
            near = nearest(wanted, list(profile.machines))
            hint = f"did you mean {near}? " if near else ""
            raise UsageError(
                f"--machine is {shown(wanted)}, which is not in the catalog; {hint}`gpuinfra catalog` lists the machine types"
            )
        if not is_listed(machine, region):
            raise UsageError(
                f"--machine is {wanted}, which is not listed in {region}; omit --machine to use the cheapest one"
            )
        if not (kinds := free_kinds(machine, profile)):
            raise UsageError(
                f"--machine is {wanted}, which requires a reservation; use a machine type that is sold on demand"
            )
        return machine, kinds[0]
    priced = [
        (price.usd_per_hour, machine.name)
        for machine in profile.machines.values()
        if is_listed(machine, region) and CapacityKind.ON_DEMAND in free_kinds(machine, profile)
        if (price := machine.price(CapacityKind.ON_DEMAND, region)) is not None
    ]
    if not priced:
        raise UsageError(f"the catalog has no price of a machine type in {region}; set --machine")
    return profile.machines[min(priced)[1]], CapacityKind.ON_DEMAND


def _expires() -> str:
    end = datetime.now(UTC) + timedelta(hours=LIFE_HOURS)
    return end.strftime("%Y-%m-%dT%H:%M:%SZ")
