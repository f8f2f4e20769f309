"""Questions to a cloud: the identity that deploys and, for a stack, what its plan needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuinfra.clouds import installed_version, profile_of, requirements_of
from gpuinfra.clouds.preflight import Question, Row, State, Unanswered, answers, not_asked, skipped
from gpuinfra.day import now, today
from gpuinfra.planning import make_plan
from gpuinfra.registry import has_module, module_of
from gpuinfra.spec.load import LoadedStack

PLAN_TOPICS = ("permissions", "quota", "machine", "reservation", "image")
"""Topics to name for a cloud that has no questions about a plan."""
PLAN_DEADLINE_S = 15.0
"""Time limit for the answers about a plan. Shorter than the limit for all answers, so that the other rows are shown."""


def identities(clouds: Iterable[str]) -> Iterator[Question]:
    """Yield a question for the identity on each cloud. Without credentials, its row is skipped, because you may not use the cloud."""
    for cloud in clouds:
        yield Question(topic="identity", where=profile_of(cloud).title, ask=lambda cloud=cloud: _identity(cloud))


def _identity(cloud: str) -> Iterator[Row]:
    title = profile_of(cloud).title
    if why := _why_not(cloud):
        yield skipped("identity", title, why)
        return
    try:
        yield from module_of(cloud, "preflight").Preflight("", {}).identity()
    except Unanswered as error:
        if error.state is not State.ERROR:
            raise
        yield skipped("identity", title, error.found, error.fix)


def _why_not(cloud: str) -> str | None:
    if not has_module(cloud, "preflight"):
        return "gpuinfra has no questions for this cloud"
    absent = [name for name, _ in requirements_of(cloud) if installed_version(name) is None]
    return f"not checked without {', '.join(absent)}" if absent else None


def questions(stack: LoadedStack) -> Iterator[Question]:
    """Yield the question to the cloud of a stack. Without credentials, the identity is a problem and the other topics are skipped."""
    yield Question(topic="identity", where=profile_of(stack.spec.cloud).title, ask=lambda: live_rows(stack))


def live_rows(stack: LoadedStack) -> list[Row]:
    """Ask the cloud of a stack whether its plan can be deployed: identity, permissions, quotas, capacity and images."""
    name = stack.spec.cloud
    title = profile_of(name).title
    if why := _why_not(name):
        return [skipped("identity", title, why)]
    module = module_of(name, "preflight")
    cloud = module.Preflight(stack.spec.where.region, stack.config)
    try:
        rows = list(cloud.identity())
    except Unanswered as error:
        return [
            error.row("identity", title),
            not_asked(module.TOPICS or PLAN_TOPICS, "not checked without an identity"),
        ]
    if any(row.state is State.ERROR for row in rows):
        return [*rows, not_asked(module.TOPICS or PLAN_TOPICS, "not checked without an identity")]
    if not module.TOPICS:
        return [*rows, not_asked(PLAN_TOPICS, f"gpuinfra does not check them on {title} yet")]
    return [*rows, *answers(cloud.questions(make_plan(stack.spec, today(), now())), PLAN_DEADLINE_S)]
