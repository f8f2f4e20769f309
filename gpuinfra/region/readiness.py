"""Checks that the stack file of the second region exists, is valid, matches the first one, and specifies the replicas, and that the networks do not overlap.

The module compares files. `gpuinfra/clouds/region/readiness.py` reads the cloud.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from shlex import join
from typing import Any

from gpuinfra.base.errors import DeploymentError, GpuinfraError
from gpuinfra.base.findings import Level
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region.dns import lines as name_lines
from gpuinfra.clouds.region.readiness import (
    CHANGE,
    FAIL,
    MOVE,
    UNREAD,
    WARN,
    ReadinessLine,
    ReadinessQuestion,
    fails,
    passes,
    skips,
    unread,
    warns,
)
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.profile import profile_of
from gpuinfra.plan.storage import named
from gpuinfra.region.clone import names
from gpuinfra.region.clone.draft import value_at
from gpuinfra.region.clone.make import clone
from gpuinfra.region.clone.model import ClonedFile, CloneRequest, CloneResult
from gpuinfra.region.clone.network import network_of
from gpuinfra.region.clone.replicas import image_values, replicas_of, with_values
from gpuinfra.region.clone.storage import with_bucket
from gpuinfra.rules.stack import (
    BACKEND_ROUTE,
    STATE_RULE,
    check_stack,
    project_backend,
    region_in_url,
    secrets_provider,
    state_survives_the_region,
)
from gpuinfra.spec.document import Route
from gpuinfra.spec.image import CustomImage
from gpuinfra.spec.load import CLONE_OF, LoadedStack, read_stack
from gpuinfra.spec.messages import path_text
from gpuinfra.spec.storage import Home, Lustre, ObjectMount

SECRETS = "secretsprovider"
BACKEND, LOGIN = "PULUMI_BACKEND_URL", "pulumi login"
"""Names of the setting that selects the state backend, and of a backend that a login selects."""
PLACEMENT = (("zone",), ("machine",), ("capacity",), ("fallback",))
"""Fields of a pool that can differ in the second region."""
MOST_DIFFERENCES = 20


@dataclass(frozen=True, kw_only=True)
class DeclaredSecond:
    """The stack in the second region, as declared in its files."""

    fresh: CloneResult
    """What `gpuinfra clone` would write now."""
    files: tuple[LoadedStack, ...]
    """The files that exist, in the order of `fresh.files`."""
    lines: tuple[ReadinessLine, ...]
    today: date
    rewrite: tuple[str, ...]
    """Command that writes the files again and keeps the edits in them."""
    backend: tuple[str, str]
    """The setting that selects the state backend, and its URL. Empty if the URL specifies a region."""
    secrets: tuple[tuple[str, str], ...] = ()
    """The settings that select the secrets providers of the stacks in both regions, and their URLs if the URLs do not specify a region."""

    @property
    def images(self) -> tuple[str, ...]:
        """The IDs of the images that the nodes use."""
        pools = (pool for one in self.files for pool in build_plan(one.spec, self.today).pools)
        return tuple(dict.fromkeys(pool.image.ref for pool in pools if pool.image.source == "id"))

    def merged(self, live: Sequence[ReadinessLine], rows: Iterable[ReadinessLine]) -> Iterator[ReadinessLine]:
        """Return the lines about the files, the lines of the cloud, and the lines of preflight.

        The location of the state and of an image that the cloud returned replaces what the files and preflight report about them.
        """
        covered = {(one.topic, one.name) for one in live if one.topic in ("state", "image") and one.state != UNREAD}
        if any(topic == "state" and not name.startswith(SECRETS) for topic, name in covered):
            covered.add(("state", ANY_BACKEND))
        yield from (one for one in self.lines if (one.topic, one.name) not in covered)
        yield from live
        yield from (one for one in rows if (one.topic, one.name) not in covered)

    def copied(self, stack: LoadedStack, line: ReadinessLine) -> ReadinessLine:
        """Return the line of an image with the command that copies the image of the stack, if the image exists in one region only."""
        if line.topic != "image" or line.state != FAIL:
            return line
        ours = {pool.name: pool.image for pool in build_plan(stack.spec, self.today).pools}
        for plan in (build_plan(one.spec, self.today) for one in self.files):
            for pool in plan.pools:
                first = ours.get(pool.name)
                if pool.image.ref != line.name or first is None or first.source != "id":
                    continue
                facts = cloud_of(plan.cloud).second_region
                image = facts.image(first.ref, stack.spec.where.region, plan.region) if facts else None
                if image is not None:
                    return replace(line, fix=image[1])
        return line


def second_of(
    stack: LoadedStack,
    project: str,
    today: date,
    environment: Mapping[str, str],
    login: str = "",
    copies: Mapping[str, str] | None = None,
) -> DeclaredSecond:
    """Compare the files of the second region with the stack. The stack must have `recovery`.

    `login` is the URL of the state backend of the last login. `copies` maps the ID of an image of the stack to the ID of its copy in the second region.
    """
    recovery = stack.spec.recovery
    assert recovery is not None
    request = CloneRequest(region=recovery.region, mode=recovery.mode, project=project)
    fresh = clone(stack, stack.path.read_text(encoding="utf-8-sig"), request, today)
    words = ["gpuinfra", "clone", stack.name, "--region", recovery.region, "--mode", recovery.mode]
    given = dict(value for path in _paths(stack, fresh) for value in _given_in(stack, path))
    if values := tuple({**dict(image_values(stack, copies or {})), **given}.items()):
        fresh = clone(stack, stack.path.read_text(encoding="utf-8-sig"), replace(request, values=values), today)
        words = with_values(words, dict(values))
    rewrite = [*words, "--force"]
    lines: list[ReadinessLine] = []
    files: list[LoadedStack] = []
    if not fresh.ok:
        errors = "; ".join(str(one) for one in fresh.findings if one.level is Level.ERROR)
        lines.append(fails("stack file", stack.name, f"the stack cannot be cloned: {errors}", join(words)))
    for file in fresh.files:
        second, line = _read(file, join(words))
        lines.append(line)
        if second is not None:
            files.append(second)
            lines += _valid(second, today)
            edits = _edits(file, second, fresh)
            rewrite += [word for value in edits[1::2] if value not in rewrite for word in ("--set", value)]
            lines += _differences(file, second, fresh, join([*words, "--force", *edits]))
            lines += _addresses(stack, second)
    lines += _roles(stack, fresh, files, join(rewrite))
    backend = _backend(stack, environment, login)
    lines += _state(stack, files, *backend)
    return DeclaredSecond(
        fresh=fresh,
        files=tuple(files),
        lines=tuple(lines),
        today=today,
        rewrite=tuple(rewrite),
        backend=("", "") if region_in_url(backend[1]) else backend,
        secrets=tuple(_secrets((stack, *files))),
    )


def of_cloud(cloud: str, question: ReadinessQuestion) -> Iterator[ReadinessLine]:
    """Return what the cloud reports. A cloud that gpuinfra cannot read has one line with the state `unread`, so its second region is never ready."""
    lines = cloud_of(cloud).readiness(question)
    if lines is None:
        reason = (
            f"gpuinfra cannot read the replication status on {profile_of(cloud).title}; check it with the cloud's tools"
        )
        lines = [unread("replication", cloud, reason, "pulumi stack output recovery")]
    yield from lines


def of_names(cloud: str, question: ReadinessQuestion) -> Iterator[ReadinessLine]:
    """Return the lines about the DNS names of a stack."""
    module, names = cloud_of(cloud).dns, question.recovery.names
    if module is None or names is None:
        return
    try:
        dns = module.connect(question.region, question.config)
    except DeploymentError as problem:
        yield unread("names", names.domain, str(problem))
        return
    yield from name_lines(question, dns)


def _paths(stack: LoadedStack, fresh: CloneResult) -> list[Path]:
    """Return the paths of the files. A clone without files, for example because the ID of an image must be set, has the default paths.

    With `pilot-light`, the network and its buckets are in a separate file.
    """
    if fresh.files:
        return [one.path for one in fresh.files]
    origin = names.origin_of(stack.config.get(CLONE_OF))
    name = names.stack_in(stack.name, fresh.source_region, fresh.request.region, origin)
    made = [names.base_of(name), name] if fresh.request.mode == "pilot-light" else [name]
    return [names.file_of(stack.path, one) for one in made]


def _given_in(stack: LoadedStack, path: Path) -> Iterator[tuple[str, object]]:
    """Return the values that a clone cannot choose and a file contains, as values of `--set`: copies of images, and replicas with their keys."""
    try:
        second = read_stack(path)
    except GpuinfraError:
        return
    pairs = [
        (f"pools[{index}].image", ours.image, theirs.image)
        for index, (ours, theirs) in enumerate(zip(stack.spec.pools, second.spec.pools, strict=False))
        if ours.name == theirs.name
    ]
    for path_, ours, theirs in [*pairs, ("software.image", stack.spec.software.image, second.spec.software.image)]:
        if isinstance(ours, CustomImage) and isinstance(theirs, CustomImage) and ours.ref != theirs.ref:
            yield f"{path_}.ref", theirs.ref
    entries = dict(enumerate(second.spec.storage)) if "site" in second.spec.made_layers else {}
    for index, entry in enumerate(stack.spec.storage):
        if isinstance(entry, Home) and isinstance(other := entries.get(index), Home) and other.replica:
            yield f"storage[{index}].replica", other.replica
    for index, entry in with_bucket(stack.spec):
        other = entries.get(index)
        if not isinstance(other, type(entry)) or other.bucket in (None, "auto", entry.bucket):
            continue
        if entry.bucket != "auto" and not (stack.spec.recovery and stack.spec.recovery.existing_buckets):
            continue
        yield f"storage[{index}].bucket", other.bucket
        if other.private_endpoint:
            yield f"storage[{index}].private_endpoint", True
        if isinstance(other, ObjectMount) and other.key_arn is not None:
            yield f"storage[{index}].key_arn", other.key_arn


def _homes(
    stack: LoadedStack, second: DeclaredSecond, sites: Sequence[LoadedStack], homes: Mapping[str, str]
) -> Iterator[ReadinessLine]:
    """Check that the second region mounts the replicas of the home directories. `homes` maps the name of a file system to its replica."""
    names = {entry.mount: name for name, entry in named(stack.spec.storage)}
    for index, entry in enumerate(stack.spec.storage):
        replica = homes.get(names[entry.mount]) if isinstance(entry, Home) and not entry.existing else None
        if replica is None or not sites:
            continue
        path, storage = f"storage[{index}].replica", sites[0].spec.storage
        given = getattr(storage[index], "replica", None) if index < len(storage) else None
        if given == replica:
            yield passes("data", path, f"is {replica}, the replica of {entry.mount}")
            continue
        reason = f"is {given or 'not set'} in {sites[0].path.name}, so {entry.mount} does not have the files of the replica {replica}"
        yield fails("data", path, reason, join(with_values(second.rewrite, {path: replica})))


def data(stack: LoadedStack, second: DeclaredSecond, resources: Iterable[Mapping[str, Any]]) -> Iterator[ReadinessLine]:
    """Check that the file systems of the second region use the replicas. A new bucket would be empty.

    `resources` are those in the state of the stack. Its `RegionClone` has the names of the replicas.
    """
    state, facts = replicas_of(resources), cloud_of(stack.spec.cloud).second_region
    purposes = {entry.mount: name for name, entry in named(stack.spec.storage)}
    sites = [one for one in second.files if "site" in one.spec.made_layers]
    replication = profile_of(stack.spec.cloud).replication
    manual = replication is not None and replication.manual_exports
    yield from _homes(stack, second, sites, state.homes)
    for index, entry in with_bucket(stack.spec):
        path, replica = f"storage[{index}]", state.buckets.get(purposes[entry.mount])
        if isinstance(entry, Lustre) and entry.export_minutes is None and manual:
            reason = f"no exports are scheduled, so files that were written since the last export are lost if {stack.spec.where.region} fails"
            yield warns("export", path, reason, f"set {path}.export_minutes in {stack.path.name}")
        if not sites or not replica:
            continue
        wanted: dict[str, object] = {"bucket": replica}
        if isinstance(entry, ObjectMount) and state.key_arn is not None:
            wanted["key_arn"] = state.key_arn
        if facts is not None and facts.private_replicas:
            wanted["private_endpoint"] = True
        file_system = sites[0].spec.storage[index] if index < len(sites[0].spec.storage) else None
        if isinstance(file_system, Lustre) and file_system.export_minutes is not None and not file_system.export_paused:
            reason = f"is not set in {sites[0].path.name}, so files that are older than the replica {replica} would replace its objects"
            yield fails(
                "data", f"{path}.export_paused", reason, f"set {path}.export_paused: true in {sites[0].path.name}"
            )
        wrong = [name for name, value in wanted.items() if getattr(file_system, name, None) != value]
        if not wrong:
            yield passes("data", f"{path}.bucket", f"is the replica {replica}")
            continue
        fix = join(with_values(second.rewrite, {f"{path}.{name}": wanted[name] for name in wrong}))
        if wrong == ["private_endpoint"]:
            reason = f"is not set in {sites[0].path.name}, so {entry.mount} reaches the replica {replica} only through a private endpoint that you create"
            yield warns("data", f"{path}.private_endpoint", reason, fix)
            continue
        given = getattr(file_system, wrong[0], None) or "not set"
        reason = f"{path}.{wrong[0]} is {given} in {sites[0].path.name}, so {entry.mount} does not have the data of the replica {replica}"
        yield fails("data", f"{path}.{wrong[0]}", reason, fix)


def not_read(second: DeclaredSecond) -> Iterator[ReadinessLine]:
    """Return the line about what this command does not read: permissions in the second region."""
    region = second.fresh.request.region
    path = second.files[-1].path if second.files else None
    fix = f"gpuinfra doctor {path}" if path else ""
    reason = f"not checked here; `gpuinfra doctor` checks the permissions that are required to deploy in {region}"
    yield skips("permissions", region, reason, fix)


def _read(file: ClonedFile, command: str) -> tuple[LoadedStack | None, ReadinessLine]:
    if not file.path.is_file():
        reason = f"{file.path.name} does not exist"
        return None, fails("stack file", file.stack, reason, command)
    try:
        loaded = read_stack(file.path)
    except GpuinfraError as problem:
        reason = f"{file.path.name} cannot be read: {problem}"
        return None, fails("stack file", file.stack, reason, f"gpuinfra plan {file.path}")
    return loaded, passes("stack file", file.stack, f"{file.path.name} exists")


def _valid(loaded_stack: LoadedStack, today: date) -> Iterator[ReadinessLine]:
    """Apply the rules of `plan`, which include machine types that the region does not offer."""
    for finding in check_stack(loaded_stack, today):
        if finding.level is Level.ERROR and finding.rule != STATE_RULE:
            yield fails(
                "stack file",
                loaded_stack.name,
                f"{finding.path} {finding.message}",
                f"gpuinfra plan {loaded_stack.path}",
            )


def _edits(file: ClonedFile, loaded_stack: LoadedStack, fresh: CloneResult) -> list[str]:
    """Return the options that keep the edits of a file."""
    body = loaded_stack.declaration
    edited = {}
    for route in (one.route for one in fresh.changes):
        value = value_at(body, route)
        if value is not None and value != value_at(file.declaration, route) and route[0] != "where":
            edited[path_text(route)] = value
    return [word for path, value in edited.items() for word in ("--set", f"{path}={json.dumps(value)}")]


def _differences(
    file: ClonedFile, loaded_stack: LoadedStack, fresh: CloneResult, command: str
) -> Iterator[ReadinessLine]:
    """Compare the values that a clone copies unchanged. The values that a clone changes, the capacity and the placement can be edited."""
    changed = [one.route for one in fresh.changes]
    wanted, given = _leaves(file.declaration), _leaves(loaded_stack.declaration)
    different = [
        route
        for route in sorted({*wanted, *given}, key=path_text)
        if wanted.get(route) != given.get(route)
        and not any(_overlap(route, one) for one in changed)
        and not _is_placement(route)
        and not (route == ("access", ROLE) and _splits_role(file))
    ]
    for route in different[:MOST_DIFFERENCES]:
        reason = f"is {_shown(given, route)} in {loaded_stack.path.name}, but {_shown(wanted, route)} in the stack"
        yield fails("difference", path_text(route), reason, command)
    if len(different) > MOST_DIFFERENCES:
        yield fails("difference", loaded_stack.name, f"{len(different) - MOST_DIFFERENCES} more values differ", command)
    if not different:
        yield passes("difference", loaded_stack.name, "matches the stack, except for the values that a clone changes")


def _is_placement(route: Route) -> bool:
    """Return whether a value is a part of the capacity or the placement, which the search of a failover also edits."""
    if route[:1] == ("pools",):
        return route[2:3] in PLACEMENT
    return route == ("where", "zone") or (route[:1] == ("storage",) and route[2:] == ("zone",))


def _overlap(route: Route, changed: Route) -> bool:
    shorter = min(len(route), len(changed))
    return route[:shorter] == changed[:shorter]


def _leaves(value: object, route: Route = ()) -> dict[Route, object]:
    if isinstance(value, dict) and value:
        return {key: one for name, item in value.items() for key, one in _leaves(item, (*route, str(name))).items()}
    if isinstance(value, list) and value:
        return {key: one for index, item in enumerate(value) for key, one in _leaves(item, (*route, index)).items()}
    return {route: value}


def _shown(values: Mapping[Route, object], route: Route) -> str:
    return json.dumps(values[route], default=str) if route in values else "not set"


def _addresses(stack: LoadedStack, loaded_stack: LoadedStack) -> Iterator[ReadinessLine]:
    """Compare the address ranges of both networks. The ranges of existing networks are not in the files."""
    if "site" not in loaded_stack.spec.made_layers:
        return
    ours, theirs = stack.spec.network, loaded_stack.spec.network
    if ours.existing or theirs.existing:
        yield skips("addresses", loaded_stack.name, "the range of an existing network is not in the files")
        return
    first, second = network_of(ours.cidr), network_of(theirs.cidr)
    if first is not None and second is not None and first.overlaps(second):
        reason = f"{theirs.cidr} overlaps {ours.cidr} of {stack.name}, so the networks cannot be peered"
        fix = f"gpuinfra clone {stack.name} --region {loaded_stack.spec.where.region} --force"
        yield fails("addresses", loaded_stack.name, reason, fix)
    else:
        yield passes("addresses", loaded_stack.name, f"{theirs.cidr} does not overlap {ours.cidr}")


def _splits_role(file: ClonedFile) -> bool:
    """Return whether a clone in mode `pilot-light` creates the nodes' role with the site, for which this file has a field."""
    return file.role in ("base", "nodes") and bool((file.declaration.get("access") or {}).get(ROLE))


def _roles(
    stack: LoadedStack, fresh: CloneResult, files: Sequence[LoadedStack], command: str
) -> Iterator[ReadinessLine]:
    """Check that a failover in mode `pilot-light` does not create the nodes' role. Files of an earlier version do not have the field."""
    files_by_path = {one.path: one for one in files}
    there = {
        one.role: getattr(files_by_path[one.path].spec.access, ROLE)
        for one in fresh.files
        if one.path in files_by_path and _splits_role(one)
    }
    for file in fresh.files:
        if there.get(file.role) is not False:
            continue
        if file.role == "base" and there.get("nodes"):
            yield fails("role", f"access.{ROLE}", f"is not set in {file.path.name}, so the nodes have no role", command)
        else:
            reason = f"is not set in {file.path.name}, so a failover creates the nodes' role"
            yield _role(stack, f"access.{ROLE}", reason, command)


def _role(stack: LoadedStack, name: str, reason: str, fix: str) -> ReadinessLine:
    """Return the line for a role that a failover creates. It is a failure if a control plane in the region of the stack creates roles."""
    replication = profile_of(stack.spec.cloud).replication
    region = stack.spec.where.region
    if region in (replication.control_regions if replication else {}):
        reason += f", which is not possible while {region} does not respond"
        return fails("role", name, reason, fix)
    return warns("role", name, reason, fix)


def deployed_role(
    stack: LoadedStack, second: DeclaredSecond, state: Callable[[str], Sequence[Mapping[str, Any]]]
) -> Iterator[ReadinessLine]:
    """Check that the base stack in mode `pilot-light` was deployed with the nodes' role. `state` returns the state of a stack, or raises `DeploymentError`."""
    files_by_path = {one.path: one for one in second.files}
    for file in second.fresh.files:
        if (
            file.role != "base"
            or file.path not in files_by_path
            or not getattr(files_by_path[file.path].spec.access, ROLE)
        ):
            continue
        try:
            outputs = [one.get("outputs") or {} for one in state(file.stack)]
            reason = f"the deployed stack {file.stack} has no role for the nodes"
        except DeploymentError as problem:
            outputs = list[Mapping[str, Any]]()
            reason = f"the state of {file.stack} cannot be read ({problem})"
        if any(one.get("node_profile_arn") for one in outputs):
            yield passes("role", file.stack, "is deployed with the nodes' role")
        else:
            reason += ", so a failover creates the nodes' role"
            yield _role(stack, file.stack, reason, join(["pulumi", "up", "--stack", file.stack]))


ROLE = "node_role_in_site"


def _backend(stack: LoadedStack, environment: Mapping[str, str], login: str) -> tuple[str, str]:
    """Return the setting that selects the state backend, and its URL. The variable takes precedence over the project file, and the file over a login."""
    urls = {BACKEND: environment.get(BACKEND, ""), ".".join(BACKEND_ROUTE): project_backend(stack), LOGIN: login}
    return next(((name, url) for name, url in urls.items() if url), ("", ""))


def _state(stack: LoadedStack, files: list[LoadedStack], name: str, url: str) -> Iterator[ReadinessLine]:
    """Check that the state and the secrets providers survive the region of the stack. `name` is the setting that selects the state backend."""
    region = stack.spec.where.region
    findings = [(finding, stack) for finding in state_survives_the_region(stack)]
    # Both stacks usually have the same backend, so only the secrets provider can differ.
    findings += [
        (finding, one) for one in files for finding in state_survives_the_region(one) if finding.path == SECRETS
    ]
    lines = [
        ReadinessLine(
            topic="state", name=finding.path, state=FAIL if _named_region(owner, finding.path) == region else WARN,
            reason=finding.message, fix=CHANGE.replace("STACK", owner.name) if finding.path == SECRETS else MOVE,
        )
        for finding, owner in findings
    ]  # fmt: skip
    if name in (BACKEND, LOGIN) and region_in_url(url) == region:
        reason = f"is in {region}, so a failover cannot read the state when this region fails"
        lines.append(fails("state", name, reason, MOVE))
    yield from lines or [passes("state", ANY_BACKEND, f"no setting refers to a backend in {region}")]


def _named_region(stack: LoadedStack, path: str) -> str | None:
    """Return the region in the URL of a stack's secrets provider, or of its state backend."""
    url = secrets_provider(stack) if path == SECRETS else project_backend(stack)
    return region_in_url(url) if url else None


def _secrets(stacks: Iterable[LoadedStack]) -> Iterator[tuple[str, str]]:
    """Yield the secrets provider of each stack whose URL does not specify a region, each URL once."""
    seen: set[str] = set()
    for stack in stacks:
        url = secrets_provider(stack)
        if url and url not in seen and not region_in_url(url):
            seen.add(url)
            yield f"{SECRETS} of {stack.name}", url


ANY_BACKEND = "backend"
"""Name of the line about the state if no setting refers to a backend in the region."""
