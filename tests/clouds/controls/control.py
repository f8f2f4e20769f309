"""A control of a benchmark, as a question to what a program registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.clouds.recorder import Recording, Registered

Ask = Callable[[Recording], Iterator[str]]
Break = Callable[[Recording], Any]


@dataclass(frozen=True)
class Control:
    """One control: what breaks it in a recording, and a recording that it has to find broken."""

    subject: str
    ask: Ask
    spoil: Break
    """Makes a recording break it, in place."""


def each(type_: str, holds: Callable[[Registered], Any], text: str) -> Ask:
    """Every resource of a type holds."""

    def ask(recording: Recording) -> Iterator[str]:
        yield from (f"{one.name} {text}" for one in recording.of(type_) if not holds(one))

    return ask


def has(type_: str, other: str, refers: Callable[[Registered, Registered], Any], text: str) -> Ask:
    """Every resource of a type has one of another type that refers to it."""

    def ask(recording: Recording) -> Iterator[str]:
        for one in recording.of(type_):
            if not any(refers(another, one) for another in recording.of(other)):
                yield f"{one.name} {text}"

    return ask


def put(type_: str, **inputs: Any) -> Break:
    """Other inputs on the first resource of a type."""
    return lambda recording: recording.of(type_)[0].inputs.update(inputs)


def drop(type_: str) -> Break:
    """No resource of a type."""

    def spoil(recording: Recording) -> None:
        recording.resources[:] = [one for one in recording.resources if one.type != type_]

    return spoil
