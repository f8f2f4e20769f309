"""AWS's service authorization reference, as the data of parliament (Duo Labs, BSD-3-Clause) carries it."""

from __future__ import annotations

import functools
import gc
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@functools.cache
def _table() -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # parliament leaves its own files open while it is imported
        import parliament

        gc.collect()
    return json.loads((Path(str(parliament.__file__)).parent / "iam_definition.json").read_text(encoding="utf-8"))


def _rows() -> Iterator[tuple[str, dict[str, Any]]]:
    for service in _table():
        for one in service["privileges"]:
            yield f"{service['prefix']}:{one['privilege']}", one


@functools.cache
def access_levels() -> dict[str, str]:
    """Action -> access level."""
    return {action: one["access_level"] for action, one in _rows()}


@functools.cache
def dependent_actions() -> dict[str, set[str]]:
    """Action -> actions that it can require in addition."""
    return {
        action: {name for kind in one["resource_types"] for name in kind.get("dependent_actions", ())}
        for action, one in _rows()
    }
