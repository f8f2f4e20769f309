"""All questions for one run of `gpuinfra doctor`, and those for `gpuinfra plan --live` and `gpuinfra up`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from gpuinfra.base.day import today
from gpuinfra.base.registry import CLOUDS
from gpuinfra.clouds.preflight import PreflightQuestion, PreflightRow, answers
from gpuinfra.doctor import cloud, machine, state
from gpuinfra.rules import load_stack
from gpuinfra.spec.load import LoadedStack, find_stack


def rows_of(stack: str | None, further: Iterable[PreflightQuestion] = ()) -> list[PreflightRow]:
    """Ask all questions and return their rows. With a stack, only what this stack requires. Raises `SpecError` if it has errors.

    `further` contains additional questions from the caller.
    """
    return answers([*_questions(load_stack(find_stack(stack), today()) if stack else None), *further])


def live_rows(stack: LoadedStack) -> list[PreflightRow]:
    """Ask the state backend and the cloud of a stack whether its plan can be deployed, and return their rows."""
    return answers(_live_questions(stack))


def _questions(stack: LoadedStack | None) -> Iterator[PreflightQuestion]:
    clouds = [stack.spec.cloud] if stack else list(CLOUDS)
    yield from machine.questions(clouds, required=stack is not None)
    if stack:
        yield from _live_questions(stack)
    else:
        yield from state.questions(Path.cwd(), None, required=False)
        yield from cloud.identities(clouds)


def _live_questions(stack: LoadedStack) -> Iterator[PreflightQuestion]:
    yield from state.questions(cloud.project(stack), _secrets_provider(stack), required=True)
    yield from cloud.questions(stack)


def _secrets_provider(stack: LoadedStack) -> str | None:
    whole = stack.document.value if stack.document else None
    given = whole.get("secretsprovider") if isinstance(whole, dict) else None
    return given if isinstance(given, str) else None
