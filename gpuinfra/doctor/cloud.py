"""Questions for a cloud: the deploying identity and, for a stack, what its plan requires."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuinfra.base import naming
from gpuinfra.base.day import now, today
from gpuinfra.base.stack_files import project_folder
from gpuinfra.clouds import installed_version, requirements_of
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.preflight import (
    CloudPreflight,
    PreflightQuestion,
    PreflightRow,
    Requests,
    RowState,
    Unanswered,
    answers,
    not_asked,
    skipped,
    together,
)
from gpuinfra.doctor import state
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.profile import profile_of
from gpuinfra.software.images import ImageFamily
from gpuinfra.spec.load import LoadedStack, project_name

PLAN_TOPICS = ("permissions", "quota", "machine", "reservation", "image", "names")
"""Topics to list for a cloud without plan checks."""
PLAN_DEADLINE_S = 15.0
"""Time limit for the answers about a plan. Shorter than the limit for all answers, so that the other rows are shown."""


def identities(clouds: Iterable[str]) -> Iterator[PreflightQuestion]:
    """Yield a question for the identity on each cloud. Without credentials, its row is skipped, because you may not be using the cloud."""
    for cloud in clouds:
        yield PreflightQuestion(
            topic="identity", where=profile_of(cloud).title, ask=lambda cloud=cloud: _identity(cloud)
        )


def _identity(cloud: str) -> Iterator[PreflightRow]:
    title, preflight = profile_of(cloud).title, _preflight(cloud)
    if isinstance(preflight, str):
        yield skipped("identity", title, preflight)
        return
    try:
        yield from preflight.Preflight("", {}).identity()
    except Unanswered as error:
        if error.state is not RowState.ERROR:
            raise
        yield skipped("identity", title, f"{error.found}; a rehearsal requires none", error.fix)


def _preflight(cloud: str) -> CloudPreflight | str:
    """Return the questions of a cloud, or the reason why they cannot be asked."""
    preflight = cloud_of(cloud).preflight
    if preflight is None:
        return "gpuinfra has no checks for this cloud"
    absent = [name for name, _ in requirements_of(cloud) if installed_version(name) is None]
    return f"not checked without {', '.join(absent)}" if absent else preflight


def questions(stack: LoadedStack) -> Iterator[PreflightQuestion]:
    """Yield the question for the cloud of a stack. Without credentials, the identity is a problem and the other topics are skipped."""
    yield PreflightQuestion(topic="identity", where=profile_of(stack.spec.cloud).title, ask=lambda: live_rows(stack))


def live_rows(stack: LoadedStack, topics: Collection[str] | None = None) -> list[PreflightRow]:
    """Ask a stack's cloud whether its plan can be deployed: identity, permissions, quotas, capacity and images.

    With `topics`, only these topics and the identity are checked.
    """
    name = stack.spec.cloud
    title = profile_of(name).title
    module = _preflight(name)
    if isinstance(module, str):
        return [skipped("identity", title, module)]
    cloud = module.Preflight(stack.spec.where.region, stack.settings)
    try:
        rows = list(cloud.identity())
    except Unanswered as error:
        return [
            error.row("identity", title),
            not_asked(module.TOPICS or PLAN_TOPICS, "not checked without an identity"),
        ]
    if any(row.state is RowState.ERROR for row in rows):
        return [*rows, not_asked(module.TOPICS or PLAN_TOPICS, "not checked without an identity")]
    if not module.TOPICS:
        return [*rows, not_asked(PLAN_TOPICS, f"gpuinfra does not check these topics on {title} yet")]
    plan = build_plan(stack.spec, today(), now())
    asked = cloud.questions(plan, lambda: token_of(stack, plan.name))
    return [*rows, *answers((one for one in asked if topics is None or one.topic in topics), PLAN_DEADLINE_S)]


def project(stack: LoadedStack) -> Path:
    """Return the folder of the Pulumi project of a stack, whose settings select the state backend."""
    return project_folder(stack.path.absolute().parent) or Path.cwd()


def token_of(stack: LoadedStack, cluster: str) -> str:
    """Return the token in the names of a stack's resources. Raises `Unanswered` if the organization is not known.

    Stacks in a self-managed backend belong to `organization`. Pulumi Cloud selects the default organization of the user.
    """
    backend, *_ = state.backend(project(stack), None)
    if backend.state is not RowState.OK:
        raise Unanswered("not checked without the state backend", "", backend.fix, state=RowState.SKIPPED)
    if backend.found.startswith(("https://", "http://")):
        why = "not checked, because the names depend on the organization in Pulumi Cloud"
        fix = f"run `gpuinfra adopt {stack.name} --organization ORGANIZATION` to find resources that exist already"
        raise Unanswered(why, "", fix, state=RowState.SKIPPED)
    return naming.stack_token("organization", project_name(stack.path), stack.name, cluster)


@dataclass(frozen=True, kw_only=True)
class NewestImage:
    """The newest image of a family that the cloud publishes for a stack's region, or the reason why it is unknown."""

    ref: str = ""
    """Reference in the form of `ImageFamily.dated`. Empty if it is unknown."""
    why: str = ""
    fix: str = ""


def newest_images(stack: LoadedStack, families: Iterable[ImageFamily]) -> dict[str, NewestImage]:
    """Ask the cloud for the newest image of each family, and return the answers keyed by family name. All requests are read-only."""
    wanted = {family.name: family for family in families}
    if not wanted:
        return {}
    name = stack.spec.cloud
    module = _preflight(name)
    if isinstance(module, str):
        return dict.fromkeys(wanted, NewestImage(why=module))
    cloud = module.Preflight(stack.spec.where.region, stack.settings)
    try:
        refusal = next((row for row in cloud.identity() if row.state is RowState.ERROR), None)
    except Unanswered as error:
        refusal = error.row("identity", profile_of(name).title)
    if refusal:
        return dict.fromkeys(wanted, NewestImage(why=refusal.found, fix=refusal.fix))
    images = together([functools.partial(_newest, cloud, one) for one in wanted.values()], PLAN_DEADLINE_S)
    late = NewestImage(why=f"no response within {PLAN_DEADLINE_S:g} s", fix="run the command again")
    return {family: one or late for family, one in zip(wanted, images, strict=True)}


def _newest(cloud: Requests, family: ImageFamily) -> NewestImage:
    try:
        ref = cloud.newest_image(family)
    except Unanswered as error:
        return NewestImage(why=error.found, fix=error.fix)
    if ref is None:
        return NewestImage(why=f"{cloud.region} has no image of this family", fix="choose a different `software.os`")
    return NewestImage(ref=ref)
