"""Random changes of stack files."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import yaml

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 8, 10**9, 10**30, 1.5, float("inf"), float("nan"), "", " ", "x", "a" * 3000, "ä💥", "\u202e", "\x1b[31mred", "a\nb"),
    *([], {}, [[]], [None], {"a": {"a": {}}}, ["x"] * 50, {"": 1}, "10.0.0.0/99", "0.0.0.0/0", "::/0", "us-east-1", "westus3", "mars-north-1", "p5.48xlarge", "p9.giant"),
    *("2026-02-30", "9999-12-31T23:59:59Z", "30d", "-1h", "1e309", "~/x", "../../../../etc/passwd", "/dev/full", "/dev/zero", "/proc/self/mem", "steps/missing.sh", "file:///x", "https://", "s3://x", "!ref", "${x}", "{{x}}", "%s%n", "'; true; '"),
)  # fmt: skip
"""Values for any field."""
KEYS = (
    "",
    "name",
    "names",
    "count",
    "where",
    "pools",
    "<<",
    "x-y",
    "ä",
    "__class__",
    "0",
    "a.b",
    "a\nb",
    "\x1b[31m",
    "gpuinfra:cluster",
    "encryptionsalt",
)
TEXT = ("\t", "- ", ": ", "&a ", "*a ", "!!python/none ", "!x ", "|", ">", "{", "}", "[", "]", '"', "'", "#", "---\n", "...\n", "%YAML 9.9\n", "\x00", "\ufeff", "\u2028", "\x85", "\r", "💥", "<<: ")  # fmt: skip
"""Fragments for any place in a file."""


def mutant(chance: random.Random, texts: list[str]) -> bytes:
    """Return a stack file with one to four random changes of its values or its text."""
    text = chance.choice(texts)
    try:
        value = yaml.safe_load(text)
        for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
            _change_value(chance, value, texts)
        text = yaml.safe_dump(value, allow_unicode=True, sort_keys=False)
    except (yaml.YAMLError, RecursionError):
        pass
    for _ in range(chance.choice((0, 0, 0, 0, 1, 1, 2))):
        text = _change_text(chance, text)
    content = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.05:
        at = chance.randrange(len(content) + 1)
        content = content[:at] + chance.choice((b"\xff\xfe", b"\x80", b"")) + content[at + chance.randrange(3) :]
    return content[: chance.randrange(len(content) + 1)] if chance.random() < 0.03 else content


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container below a value with each of its keys or positions."""
    found: list[tuple[Any, Any]] = []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        found += [(value, key), *_places(one)]
    return found


def _change_value(chance: random.Random, value: Any, texts: list[str]) -> None:
    places = _places(value)
    if not places:
        return
    # A deep field is as likely as a shallow one, because there are more deep ones.
    container, key = chance.choice(places)
    action = chance.random()
    if action < 0.45:
        container[key] = chance.choice(VALUES)
    elif action < 0.6:
        del container[key]
    elif action < 0.75:
        others = _places(yaml.safe_load(chance.choice(texts)))
        other, position = chance.choice(others)
        container[key] = other[position]
    elif action < 0.9 and isinstance(container, dict):
        container[chance.choice((*KEYS, f"{key}s"))] = container.pop(key) if chance.random() < 0.5 else chance.choice(VALUES)  # fmt: skip
    elif isinstance(container, list):
        container += [container[key]] * chance.choice((1, 2, 60))
    else:
        container[key] = [container[key]] if chance.random() < 0.5 else {"value": container[key]}


def _change_text(chance: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    at = chance.randrange(len(lines))
    line = lines[at]
    position = chance.randrange(len(line) + 1)
    changes: tuple[Callable[[], list[str]], ...] = (
        lambda: [],
        lambda: [line, line],
        lambda: ["  " + line],
        lambda: [line.lstrip()],
        lambda: [line[:position] + chance.choice(TEXT) + line[position:]],
        lambda: [line[:position] + line[position + 1 :]],
        lambda: [line, chance.choice(lines)],
        lambda: [line[:position]],
    )
    return "".join([*lines[:at], *chance.choice(changes)(), *lines[at + 1 :]])
