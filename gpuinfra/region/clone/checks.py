"""Checks the declaration of the clone."""

from __future__ import annotations

from collections.abc import Iterator

from gpuinfra.base.errors import SpecError
from gpuinfra.base.findings import Finding, error, warn
from gpuinfra.region.clone import names
from gpuinfra.region.clone.capacity import reservations
from gpuinfra.region.clone.draft import Draft, apply, leaves
from gpuinfra.region.clone.model import CloneChange
from gpuinfra.region.clone.pair import RegionPair
from gpuinfra.rules import check_stack
from gpuinfra.spec.load import LoadedStack, parse_spec
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.shown import looks_secret, shown


def name_findings(pair: RegionPair) -> Iterator[Finding]:
    """Yield an error if a name is invalid. The names are parts of commands and stack references."""
    allowed = "1 to 100 letters, digits, hyphens, underscores and periods"
    name = names.base_of(pair.name) if pair.request.mode == "pilot-light" else pair.name
    if not names.is_name(pair.request.project):
        what = f"is {shown(pair.request.project)}, which is not a valid project name; allowed: {allowed}"
        yield error("name in Pulumi.yaml", what, "change the name")
    elif not names.is_name(pair.stack.name):
        what = f"is {shown(pair.stack.name)}, which is not a valid stack name; allowed: {allowed}"
        yield error("STACK", what, "rename the stack file")
    elif not names.is_name(name):
        what = f"has an invalid stack name: {shown(name)}; allowed: {allowed}"
        yield error("--output", what, "specify a file such as Pulumi.NAME.yaml")


def parsed(pair: RegionPair, draft: Draft) -> ClusterSpec | None:
    """Parse and check the clone. Findings of level error stop the clone."""
    try:
        cloned = parse_spec(draft.value, folder=pair.output.parent)
    except SpecError as problem:
        draft.findings += problem.findings
        return None
    where = cloned.where
    if (where.cloud, where.region) != (pair.cloud, pair.target):
        draft.findings.append(
            error("--set where", "changes the cloud or the region of the clone", "use --cloud and --region")
        )
        return None
    for path, tags in (("tags", cloned.tags), *((f"pools[{i}].tags", one.tags) for i, one in enumerate(cloned.pools))):
        for key, value in tags.items():
            if looks_secret(key) or looks_secret(value):
                what = "has a tag that looks like a secret, and the clone contains no plaintext secrets"
                draft.findings.append(error(f"--set {path}", what, "omit this value"))
                return None
    config = dict(pair.stack.config)
    apply({"config": config}, draft.config)
    checked = LoadedStack(name=pair.name, path=pair.output, spec=cloned, config=config)
    draft.findings += check_stack(checked, pair.today)
    bound = {name for pool in pair.spec.pools for entry in pool.capacity for _, name in reservations(entry)}
    for i, pool in enumerate(cloned.pools):
        for j, entry in enumerate(pool.capacity):
            for field, name in reservations(entry):
                if name in bound and not pair.across:
                    what = f"is the reservation of the stack in {pair.source}"
                    path = f"pools[{i}].capacity[{j}].{field}"
                    draft.findings.append(error(path, what, f"specify a reservation in {pair.target}"))
    return cloned


def warn_of_left_overs(pair: RegionPair, draft: Draft) -> None:
    """Warn about values that still refer to the region that can fail."""
    for route, text in leaves(draft.value):
        if pair.source in text and route[0] not in ("where", "use", "name", "recovery"):
            path = CloneChange(route=route, before=None, after=None, reason="").path
            what = f"contains {pair.source}, the region that can fail"
            draft.findings.append(warn(path, what, f"replace it with --set {path}=VALUE if it refers to the region"))
