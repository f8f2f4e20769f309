"""Compares old inputs with new inputs, property by property, and reports the paths that a preview shows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.replace import replaces


@dataclass(frozen=True, slots=True)
class ChangedInput:
    """One property that differs."""

    path: str
    kind: str
    """add, delete or update"""
    replace: bool


def diff(
    token: str, old: Mapping[str, Any], new: Mapping[str, Any], ignore: tuple[str, ...] = ()
) -> list[ChangedInput]:
    """Return all differences. An unknown new value counts as a change, because it may differ."""
    changes = []
    for path, kind, before, after in _walk(_clean(old), _clean(new), ""):
        top = path.split(".")[0].split("[")[0]
        if top not in ignore and path not in ignore:
            changes.append(ChangedInput(path, kind, replaces(token, path, before, after)))
    return changes


def _clean(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not key.startswith("__")}


def _walk(old: Any, new: Any, path: str) -> Iterator[tuple[str, str, Any, Any]]:
    old, new = wire.peel(old), wire.peel(new)
    if _empty(old) and _empty(new):
        return
    if wire.is_asset(old) or wire.is_asset(new):
        if not (wire.is_asset(old) and wire.is_asset(new) and wire.asset_hash(old) == wire.asset_hash(new)):
            kind = "update" if old is not None and new is not None else "add" if old is None else "delete"
            yield path, kind, old, new
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _walk(old.get(key), new.get(key), _join(path, key))
    elif isinstance(old, list) and isinstance(new, list):
        yield from _lists(old, new, path)
    elif _empty(old):
        yield path, "add", old, new
    elif _empty(new):
        yield path, "delete", old, new
    elif not _same(old, new):
        yield path, "update", old, new


def _lists(old: list[Any], new: list[Any], path: str) -> Iterator[tuple[str, str, Any, Any]]:
    for index in range(max(len(old), len(new))):
        if index >= len(old):
            yield f"{path}[{index}]", "add", None, new[index]
        elif index >= len(new):
            yield f"{path}[{index}]", "delete", old[index], None
        else:
            yield from _walk(old[index], new[index], f"{path}[{index}]")


def _empty(value: Any) -> bool:
    """Terraform-based providers treat an empty collection and a missing one as equal."""
    return value is None or (isinstance(value, (list, Mapping)) and not value)


def _same(old: Any, new: Any) -> bool:
    """Return whether two values are equal or differ only in notation: `8` and `"8"`, or one policy in two layouts."""
    if old == new:
        return True
    if isinstance(old, (Mapping, list)) or isinstance(new, (Mapping, list)):
        return False
    if isinstance(old, bool) or isinstance(new, bool):
        return str(old).lower() == str(new).lower()
    if str(old) == str(new):
        return True
    if isinstance(old, str) and isinstance(new, str) and old[:1] == "{" == new[:1]:
        try:
            return json.loads(old) == json.loads(new)
        except ValueError:
            return False
    return False


def _join(path: str, key: str) -> str:
    if "." in key or "[" in key:
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key
