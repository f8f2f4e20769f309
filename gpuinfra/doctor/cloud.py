"""Questions to a cloud: the identity that deploys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuinfra.clouds import installed_version, profile_of, requirements_of
from gpuinfra.clouds.preflight import Question, Row, State, Unanswered, skipped
from gpuinfra.registry import has_module, module_of
from gpuinfra.spec.load import LoadedStack


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
    """Yield the questions to the cloud of a stack. Without credentials, the identity is a problem."""
    name = stack.spec.cloud
    yield Question(topic="identity", where=profile_of(name).title, ask=lambda: _rows(stack))


def _rows(stack: LoadedStack) -> Iterator[Row]:
    name = stack.spec.cloud
    if why := _why_not(name):
        yield skipped("identity", profile_of(name).title, why)
        return
    yield from module_of(name, "preflight").Preflight(stack.spec.where.region, stack.config).identity()
