"""Rules about the services for home directories, and about existing file systems, which the stack neither creates nor changes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error, info
from gpuinfra.plan.machines import nearest_value
from gpuinfra.plan.profile import profile_of
from gpuinfra.plan.storage import existing_of
from gpuinfra.spec.homes import SERVICE_SETTINGS, services_with, settings_of_services
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in
from gpuinfra.spec.storage import Home, Lustre

_WITH_EXISTING = frozenset({"kind", "mount", "existing", "fabric", "service"})
"""Fields of an entry that apply to an existing file system."""


def home_service_is_of_cloud(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The cloud offers the service of the home directories."""
    cloud = profile_of(spec.cloud)
    for i, entry in enumerate(spec.storage):
        if isinstance(entry, Home) and entry.service and entry.service not in cloud.home_services:
            what = (
                f"is {entry.service}, which {cloud.title} does not offer; allowed: {listed(list(cloud.home_services))}"
            )
            hint = f"use one of them, or remove service to use {cloud.home_services[0]}"
            yield error(f"storage[{i}].service", what, hint)


def home_settings_are_of_service(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An entry for home directories sets only fields that its service has, to values that the service accepts."""
    services = profile_of(spec.cloud).home_services
    for i, entry in enumerate(spec.storage):
        if not isinstance(entry, Home) or entry.existing:
            continue
        name = entry.service or services[0]
        if name not in services or name not in SERVICE_SETTINGS:
            continue
        service = SERVICE_SETTINGS[name]
        for field in sorted(entry.model_fields_set & settings_of_services() - set(service.settings)):
            have = services_with(field, services)
            hint = f"use service: {have[0]}, or remove it" if have else "remove it"
            yield error(f"storage[{i}].{field}", f"is set, but {service.title} does not have this setting", hint)
        if entry.capacity_gib < service.least_gib:
            what = f"is {entry.capacity_gib}; allowed for {service.title}: at least {service.least_gib}"
            yield error(f"storage[{i}].capacity_gib", what, f"use {service.least_gib}")
        for field, allowed in service.settings.items():
            given = getattr(entry, field)
            if allowed is not None and given is not None and given not in allowed:
                near = nearest_value(tuple(one for one in allowed if isinstance(one, int)), given)
                what = f"is {given}; allowed for {service.title}: {listed([str(one) for one in allowed])}"
                yield error(f"storage[{i}].{field}", what, f"use {near}")


def existing_file_system_has_no_settings(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An entry for an existing file system does not set fields of a file system that the stack creates, such as its size or bucket."""
    for i, entry in enumerate(spec.storage):
        if existing_of(entry):
            for name in sorted(entry.model_fields_set - _WITH_EXISTING):
                what = "is set, but the file system exists, and the stack does not change it"
                yield error(f"storage[{i}].{name}", what, "remove it, or remove existing")


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
