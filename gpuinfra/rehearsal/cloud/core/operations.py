"""Rows of a table of actions as calls of one operation; what Azure and Google have in common."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from gpuinfra.clouds.planned import Actions


def asked(row: Actions, operation: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """The actions of an operation, each once; a creation and a change are read back."""
    words = [*row.of(operation), *(row.of("read") if operation in ("create", "update") else ())]
    seen = set()
    for action, _, key in (word.partition("?") for word in words):
        given = old if operation == "delete" else new
        holds = not key or (old.get(key) != new.get(key) if operation == "update" else bool(given.get(key)))
        if holds and action not in seen:
            seen.add(action)
            yield action


@lru_cache(maxsize=64)
def named(document: str, *keys: str) -> frozenset[str]:
    """Everything that a role names under these keys."""
    held = json.loads(document)
    return frozenset(action for key in keys for action in held.get(key) or ())
