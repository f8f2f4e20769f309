"""Continues a deployment whose processes were killed: finds what they created, and puts it into the state (`gpuinfra.engine.pending`).

The cloud is asked only if the state has pending creations. Without proof that a resource belongs to the stack, nothing is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.naming import stack_token
from gpuinfra.clouds.cloud import OWN_PACKAGE, cloud_for_type
from gpuinfra.clouds.pending import STACK_TAG, NotFoundByTag, PendingLookup, StackIdentity, not_supported
from gpuinfra.engine.find import Engine
from gpuinfra.engine.pending import (
    Deployment,
    FoundResource,
    PendingCreate,
    known_ids,
    pending_creates,
    read_deployment,
    resumed,
    write_deployment,
)

NOTHING_IN_AN_ACCOUNT = ("pulumi", OWN_PACKAGE)
"""Packages whose resources exist only in the state."""
ORGANIZATION = "organization"
"""Organization of the stacks in a self-managed backend. In Pulumi Cloud, the token is read from the tags of the resources."""


def continue_killed_run(
    engine: Engine,
    stack: str,
    project: Path,
    *,
    clusters: Collection[str],
    settings: Mapping[str, object],
    output: IO[str],
    say: Callable[[str], None],
    keep: Sequence[int] = (),
    again: bool = False,
) -> None:
    """Put what a killed run created into the state of a stack. Without pending creations, only the state is read.

    `clusters` are the names of the clusters in the stack, and `settings` those of its providers. The other arguments are those of
    `gpuinfra.engine.up.up`. Raises `DeploymentError` with one finding for each resource that is not proven to belong to the stack, `StateLocked`
    if another run holds the lock, and `EnvironmentMissing` if the cloud does not answer. In each case, the state is unchanged.
    """
    deployment = read_deployment(engine, stack, project)
    creates = pending_creates(deployment)
    if not creates:
        return
    resources, findings = found_resources(deployment, creates, clusters, settings)
    if findings:
        raise DeploymentError("\n".join(findings))
    write_deployment(
        engine, stack, project, deployment, resumed(deployment, resources), output=output, keep=keep, again=again
    )
    say(
        f"a run of {stack} was killed while it created {', '.join(dict.fromkeys(one.name for one in creates))}; what it created is continued"
    )


def found_resources(
    deployment: Deployment, creates: Sequence[PendingCreate], clusters: Collection[str], settings: Mapping[str, object]
) -> tuple[list[FoundResource], list[str]]:
    """Return what pending creations possibly made, and the findings for resources that cannot be identified."""
    stack = identity_of(deployment, creates, clusters)
    lookups: dict[str, PendingLookup | None] = {}
    taken: defaultdict[str, set[str]] = defaultdict(set)
    resources, findings = list[FoundResource](), list[str]()
    for create in creates:
        package = create.type.partition(":")[0]
        if package in NOTHING_IN_AN_ACCOUNT:
            continue
        if package not in lookups:
            cloud = cloud_for_type(create.type)
            lookups[package] = cloud.pending(stack, settings) if cloud else None
        lookup = lookups[package]
        try:
            if lookup is None:
                raise not_supported(create)
            ids = lookup.ids(create)
        except NotFoundByTag as problem:
            findings.append(str(problem))
            continue
        new = sorted({*(ids or ())} - known_ids(deployment, create.type) - taken[create.type])
        if len(new) > 1:
            findings.append(
                f"a killed run was creating {create.name} ({create.type}), and {len(new)} resources have its tags: {', '.join(new)}; "
                "delete those that are not needed, or that an earlier destroy retained and that `gpuinfra adopt` does not import"
            )
        elif new:
            taken[create.type].add(new[0])
            resources.append(FoundResource(create=create, id=new[0]))
    return resources, list(dict.fromkeys(findings))


def identity_of(deployment: Deployment, creates: Sequence[PendingCreate], clusters: Collection[str]) -> StackIdentity:
    """Return what proves that a resource belongs to the stack of these creations."""
    stack, project = creates[0].urn.split("::")[:2]
    stack = stack.rpartition(":")[2]
    resources = deployment.get("resources") or ()
    tagged = [one.get("inputs") or {} for one in resources] + [one.inputs for one in creates]
    keys = (STACK_TAG, STACK_TAG.replace(":", "-"))
    tokens = {
        str(tags[key])
        for inputs in tagged
        for tags in (inputs.get("tags"), inputs.get("labels"), inputs.get("userLabels"))
        if isinstance(tags, Mapping)
        for key in keys
        if key in tags
    }
    tokens |= {stack_token(ORGANIZATION, project, stack, cluster) for cluster in clusters}
    return StackIdentity(tokens=frozenset(tokens), ids=frozenset(str(one["id"]) for one in resources if one.get("id")))
