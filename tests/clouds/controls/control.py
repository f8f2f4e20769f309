"""A control of a benchmark, as a check of the resources that a program registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.clouds.recorder import Recording, Registered

Ask = Callable[[Recording], Iterator[str]]
Break = Callable[[Recording], Any]


@dataclass(frozen=True)
class Control:
    """One control: its check, and a change that violates it."""

    subject: str
    ask: Ask
    spoil: Break
    """Changes a recording in place so that it violates the control."""


def each(type_: str, holds: Callable[[Registered], Any], text: str) -> Ask:
    """Every resource of a type passes."""

    def ask(recording: Recording) -> Iterator[str]:
        yield from (f"{one.name} {text}" for one in recording.of(type_) if not holds(one))

    return ask


def has(type_: str, other: str, refers: Callable[[Registered, Registered], Any], text: str) -> Ask:
    """For every resource of a type, a resource of another type refers to it."""

    def ask(recording: Recording) -> Iterator[str]:
        for one in recording.of(type_):
            if not any(refers(another, one) for another in recording.of(other)):
                yield f"{one.name} {text}"

    return ask


def put(type_: str, **inputs: Any) -> Break:
    """Changes inputs of the first resource of a type."""
    return lambda recording: recording.of(type_)[0].inputs.update(inputs)


def drop(type_: str) -> Break:
    """Removes all resources of a type."""

    def spoil(recording: Recording) -> None:
        recording.resources[:] = [one for one in recording.resources if one.type != type_]

    return spoil
