"""Explaining a field, a rule, a check, a step or an Xid in the words of the code or table itself, so that help cannot drift."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from typing import Any, get_args

from pydantic import BaseModel

from gpuinfra.errors import UsageError
from gpuinfra.spec.messages import listed, nearest
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.shown import shown


def explain(word: str) -> str:
    """All that a word means. Raises `UsageError` with the nearest known one."""
    clean = re.sub(r"\[\d*\]", "", word).strip(".")
    fields, rules, checks, steps = known_fields(), known_rules(), known_checks(), known_steps()
    named = {text.split()[2]: text for text in checks.values()}
    found = [text for path, text in fields.items() if clean in (path, path.rsplit(".", 1)[-1])]
    if clean in fields:
        found = [fields[clean]]  # a path means one field; a bare name all that are called so
    if clean in rules:
        found.append(f"rule {clean}\n  {rules[clean]}")
    found += [table[key] for table, key in ((checks, clean.upper()), (named, clean), (steps, clean.removesuffix(".sh"))) if key in table]  # fmt: skip
    if xid := re.fullmatch(r"(?i)xid[ -]?(\d+)", clean):
        found.append(_xid(int(xid[1])))
    if found:
        return "\n\n".join(found)
    near = nearest(word, [*fields, *rules, *checks, *named, *steps])
    hint = f"did you mean {near}?" if near else f"fields begin with {listed(list(ClusterSpec.model_fields), 20)}"
    raise UsageError(f"nothing is known as {shown(word)}; {hint}")


@cache
def known_fields() -> dict[str, str]:
    """Path without indices -> text."""
    return dict(_fields(ClusterSpec, ""))


@cache
def known_rules() -> dict[str, str]:
    """Name of a rule -> its sentence."""
    from gpuinfra.rules.run import all_rules

    return {name: inspect.cleandoc(rule.__doc__ or "") for name, rule in all_rules().items()}


@cache
def known_checks() -> dict[str, str]:
    """Id of a check -> its text."""
    from gpuinfra.node.checks import ALL

    return {name: _check(check) for name, check in ALL.items()}


@cache
def known_steps() -> dict[str, str]:
    """Name of a bootstrap step, with and without its number -> the head of its script."""
    from gpuinfra.shipped import shipped

    steps = {}
    for script in sorted(shipped("bootstrap").glob("[0-9]*.sh")):
        head = takewhile(lambda line: line.startswith("#"), script.read_text().splitlines()[1:])
        lines = [line.removeprefix("#").removeprefix(" ") for line in head]
        text = "\n".join([f"step {script.stem}", *(f"  {line}".rstrip() for line in lines)])
        steps[script.stem] = text
        steps.setdefault(script.stem.split("-", 1)[-1], text)
    return steps


def _check(check: Any) -> str:
    from gpuinfra.node.probes import PROBES

    asked = [" ".join(PROBES[name].argv) for name in check.probes]
    return "\n".join(
        [
            f"check {check.id} {check.name}",
            *(f"  {line}".rstrip() for line in inspect.cleandoc(type(check).__doc__ or "").splitlines()),
            f"  asked in phase {check.phase.value}; severity {check.severity.value}: {_SEVERITY[check.severity.value]}",
            *(f"  asks: {line if len(line) <= _WIDE else line[:_WIDE] + ' ...'}" for line in asked),
            f"  to do: {check.hint}",
        ]
    )


_SEVERITY = {
    "block": "the node is not handed over",
    "drain": "the node takes no new work until somebody acted",
    "warn": "somebody should look; work goes on",
    "info": "told, and nothing follows from it",
}
_WIDE = 160
"""Letters of a command that are shown: nvidia-smi is asked for forty columns."""


def _xid(number: int) -> str:
    from gpuinfra.node.xids import UNKNOWN, XIDS

    known = XIDS.get(number, UNKNOWN)
    return f"Xid {number}: {known.meaning}\n  severity {known.severity}\n  to do: {known.action}"


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
