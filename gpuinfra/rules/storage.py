"""Rules about existing file systems, which the stack neither creates nor changes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from gpuinfra.clouds import profile_of
from gpuinfra.clouds.profile import rules_in
from gpuinfra.clouds.second_region import second_region_of
from gpuinfra.findings import Finding, error, info
from gpuinfra.plan.storage import existing_of
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.storage import Lustre, ObjectMount

_WITH_EXISTING = frozenset({"kind", "mount", "existing", "fabric"})
"""Fields of an entry that apply to an existing file system."""


def existing_file_system_has_no_settings(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An entry for an existing file system does not set fields of a file system that the stack creates, such as its size or bucket."""
    for i, entry in enumerate(spec.storage):
        if existing_of(entry):
            for name in sorted(entry.model_fields_set - _WITH_EXISTING):
                what = "is set, but the file system exists, and the stack does not change it"
                yield error(f"storage[{i}].{name}", what, "remove it, or remove existing")


def private_endpoint_has_an_effect(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """`private_endpoint` is set only on a cloud that connects a network to a bucket with an endpoint for its account."""
    facts = second_region_of(spec.cloud)
    for index, entry in enumerate(spec.storage):
        if (
            isinstance(entry, Lustre | ObjectMount)
            and entry.private_endpoint
            and not (facts and facts.private_replicas)
        ):
            what = f"has no effect on {profile_of(spec.cloud).title}"
            yield error(f"storage[{index}].private_endpoint", what, "remove it")


def existing_file_system_is_reachable(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Nodes that mount an existing file system are in an existing network. A network that the stack creates has no route to the file system."""
    for i, entry in enumerate(spec.storage):
        if existing_of(entry) and spec.network.existing is None and "site" in spec.made_layers:
            what = "is set, but this stack creates its own network, from which nodes cannot reach the file system"
            yield error(f"storage[{i}].existing", what, "set network.existing to the network of the file system")


def existing_file_system_uses_efa(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Nodes connect over EFA only to a file system that is declared as EFA-enabled. An EFA-enabled file system without `fabric` is used over TCP."""
    for i, entry in enumerate(spec.storage):
        existing = existing_of(entry)
        fabric = isinstance(entry, Lustre) and entry.fabric
        if existing and fabric and not existing.efa_enabled:
            what = "is true, but existing.efa_enabled is false, and a file system that was created without EFA has no EFA interfaces"
            hint = "remove it; if the file system was created with EFA, set existing.efa_enabled to true"
            yield error(f"storage[{i}].fabric", what, hint)
        elif existing and existing.efa_enabled and entry.kind != "lustre":
            what = f"is true, but a file system of kind {entry.kind} does not support EFA"
            yield error(f"storage[{i}].existing.efa_enabled", what, "remove it")
        elif existing and existing.efa_enabled and not fabric:
            what = "is true, but fabric is false, so nodes connect over TCP"
            yield info(f"storage[{i}].existing.efa_enabled", what, "set fabric to true to connect over EFA")


def existing_file_system_is_listed_once(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Each existing file system is mounted once."""
    seen: dict[tuple[str, str | None], int] = {}
    for i, entry in enumerate(spec.storage):
        if existing := existing_of(entry):
            key = (existing.id, existing.mount_name)
            if key in seen:
                what = f"is the file system of storage[{seen[key]}]"
                yield error(f"storage[{i}].existing.id", what, "remove one of them")
            seen.setdefault(key, i)


RULES = rules_in(vars())
