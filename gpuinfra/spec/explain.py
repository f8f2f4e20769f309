"""Explaining a field, a rule or a check in the words of its own docstring, so that help cannot drift from the code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from gpuinfra.errors import UsageError
from gpuinfra.spec.messages import listed, nearest
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.shown import shown


def explain(word: str) -> str:
    """What a word means. Raises `UsageError` with the nearest known one."""
    clean = re.sub(r"\[\d*\]", "", word).strip(".")
    fields, rules, checks = known_fields(), known_rules(), known_checks()
    if clean in fields:
        return fields[clean]
    by_name = [path for path in fields if path.rsplit(".", 1)[-1] == clean]
    if by_name:
        return "\n\n".join(fields[path] for path in by_name)
    if clean in rules:
        return f"rule {clean}\n  {rules[clean]}"
    if clean.upper() in checks:
        return f"check {clean.upper()}\n  {checks[clean.upper()]}"
    near = nearest(word, [*fields, *rules, *checks])
    hint = f"did you mean {near}?" if near else f"fields begin with {listed(list(ClusterSpec.model_fields), 20)}"
    raise UsageError(f"nothing is known as {shown(word)}; {hint}")


def known_fields() -> dict[str, str]:
    """Path without indices -> text."""
    return dict(_fields(ClusterSpec, ""))


def known_rules() -> dict[str, str]:
    """Name of a rule -> its sentence."""
    from gpuinfra.rules.run import all_rules

    return {name: inspect.cleandoc(rule.__doc__ or "") for name, rule in all_rules().items()}


def known_checks() -> dict[str, str]:
    """Id of a check -> its text."""
    from gpuinfra.node.checks import ALL

    return {
        name: f"{check.name}: {inspect.cleandoc(type(check).__doc__ or '')}\n  to do: {check.hint}"
        for name, check in ALL.items()
    }


def _fields(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    for name, info in model.model_fields.items():
        path = f"{prefix}{name}"
        need = "required" if info.is_required() else f"default {_default(info)}"
        lines = [f"{path}  ({need})", f"  {inspect.cleandoc(info.description or '')}"]
        words = _words(info.annotation)
        if words:
            lines.append(f"  one of: {listed(words, 20)}")
        if info.examples:
            lines.append(f"  example: {info.examples[0]}")
        inner = list(_models(info.annotation))
        for other in inner:
            tag = _tag(other)
            lines.append(f"  {tag + ': ' if tag else ''}{listed(list(other.model_fields), 30)}")
        yield path, "\n".join(lines)
        for other in inner:
            yield from _fields(other, f"{path}.")


def _default(info: Any) -> str:
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "as its fields say"
    if value is None or value in ((), {}):
        return "none"
    return shown(value) if not isinstance(value, tuple) else listed([str(item) for item in value])


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for inner in get_args(annotation):
        yield from _models(inner)


def _tag(model: type[BaseModel]) -> str:
    for name in ("kind", "cloud"):
        if name in model.model_fields:
            return str(get_args(model.model_fields[name].annotation)[0])
    return ""


def _words(annotation: Any) -> list[str]:
    words: list[str] = []
    for inner in get_args(annotation):
        if isinstance(inner, str):
            words.append(inner)
        elif not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            words += _words(inner)
    return words
