"""The time of each regular expression that can read text of a node, a cloud or a remote host grows linearly with the text."""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.clouds.aws.handover.ports import REFUSALS as AWS_REFUSALS
from gpuinfra.clouds.azure.handover.ports import REFUSALS as AZURE_REFUSALS
from gpuinfra.clouds.gcp.handover.ports import REFUSALS as GCP_REFUSALS
from gpuinfra.node import states
from gpuinfra.node.probes import PROBES
from gpuinfra.plan.profile import profile_of

ROOT = Path(__file__).parents[1]
FOLDERS = ("base", "node", "handover", "verification", "remote", "report", "engine", "search", "region", "clouds")
"""The packages with code that reads text of nodes, clouds, remote hosts and the engine."""
METHODS = {"match", "fullmatch", "search", "sub", "subn", "findall", "finditer", "split"}
SHORT, LONG = 1_500, 6_000
"""Lengths of the texts."""
SLOW_S = 0.003
"""A pattern that reads the long text in less than this time is linear: 6,000 characters squared take at least ten times as long."""
MOST = 9.0
"""Highest ratio of the times of a text of four times the length. It is 4 for a linear pattern and 16 for a quadratic one."""
RUNTIME = {
    ("gpuinfra.node.states", "self.pattern"): [one.pattern for one in states.STATES],
    ("gpuinfra.node.states", "state.pattern"): [one.pattern for one in states.STATES],
    ("gpuinfra.node.probe", "probe.keep.encode()"): [one.keep for one in PROBES.values() if one.keep],
    ("gpuinfra.node.checks.platform", "machine.local_disk_model"): [
        profile_of(cloud).software.local_disk_model for cloud in CLOUDS
    ],
    ("gpuinfra.handover.refusals", "row.pattern"): [
        row.pattern for table in (AWS_REFUSALS, AZURE_REFUSALS, GCP_REFUSALS) for row in table.rows
    ],
}
"""Patterns that are values when the code runs: module and expression -> all values."""


@dataclass(frozen=True)
class Use:
    """One pattern with the method that reads text with it."""

    where: str
    pattern: Any
    method: str
    flags: int = 0

    @property
    def call(self) -> Callable[[Any], object]:
        """The method, for a text."""
        compiled = re.compile(self.pattern, self.flags)
        if self.method in ("sub", "subn"):
            empty = b"" if isinstance(compiled.pattern, bytes) else ""
            return lambda text: compiled.sub(empty, text)
        if self.method == "finditer":
            return lambda text: list(compiled.finditer(text))
        return getattr(compiled, self.method)


class _Names(dict[str, Any]):
    """The names of a function when its pattern is evaluated: any name is a short word."""

    def __missing__(self, name: str) -> str:
        return "a1"


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / "gpuinfra" / folder).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if any(isinstance(node, ast.Attribute) and _is_re(node) for node in ast.walk(tree)):
                yield name, tree


def _is_re(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "re"


def _functions(tree: ast.AST, inside: ast.AST | None = None) -> Iterator[tuple[ast.Call, ast.AST | None]]:
    """Each call with the outermost function that contains it."""
    for node in ast.iter_child_nodes(tree):
        scope = inside or (node if isinstance(node, ast.FunctionDef) else None)
        if isinstance(node, ast.Call):
            yield node, scope
        yield from _functions(node, scope)


def _values(module: ModuleType, where: str, given: ast.expr, scope: ast.AST | None) -> list[Any]:
    """The patterns of an argument. A local name has the text constants of its function that are patterns."""
    text = ast.unparse(given)
    if (module.__name__, text) in RUNTIME:
        return RUNTIME[module.__name__, text]
    if isinstance(given, ast.Name) and not hasattr(module, given.id):
        constants = [one.value for one in ast.walk(scope or given) if isinstance(one, ast.Constant)]
        found = [one for one in constants if isinstance(one, str | bytes) and _is_pattern(one)]
        assert found, f"{where}: no value for {text}; add it to RUNTIME"
        return found
    names: Any = _Names() if isinstance(given, ast.BinOp | ast.JoinedStr) else {}
    try:
        return [eval(compile(ast.Expression(given), where, "eval"), {**vars(module)}, _Both(module, names))]
    except (NameError, AttributeError) as error:
        raise AssertionError(f"{where}: {text} has no value ({error}); add it to RUNTIME") from None


class _Both(dict[str, Any]):
    """The names of a module, and any other name if `rest` has one."""

    def __init__(self, module: ModuleType, rest: dict[str, Any]) -> None:
        super().__init__(vars(module))
        self._rest = rest

    def __missing__(self, name: str) -> Any:
        if hasattr(__builtins__, name) or (isinstance(__builtins__, dict) and name in __builtins__):
            raise KeyError(name)
        return self._rest[name]


def _is_pattern(text: str | bytes) -> bool:
    try:
        return bool(re.compile(text).pattern) and len(text) < 500  # type: ignore[arg-type]
    except re.error:
        return False


def _flags(module: ModuleType, call: ast.Call, place: int) -> int:
    given = [*call.args[place : place + 1], *(one.value for one in call.keywords if one.arg == "flags")]
    return int(eval(compile(ast.Expression(given[0]), "flags", "eval"), vars(module))) if given else 0


@cache
def uses() -> tuple[Use, ...]:
    """Each pattern in the code, with its method."""
    found: list[Use] = []
    for name, tree in _modules():
        module = importlib.import_module(name)
        called = {
            (ast.unparse(call.func.value), call.func.attr)
            for call, _ in _functions(tree)
            if isinstance(call.func, ast.Attribute) and call.func.attr in METHODS
        }
        for call, scope in _functions(tree):
            if not isinstance(call.func, ast.Attribute) or not _is_re(call.func):
                continue
            where, method = f"{name}:{call.lineno}", call.func.attr
            if method in METHODS:
                place = {"sub": 4, "subn": 4, "split": 3}.get(method, 2)
                flags = _flags(module, call, place)
                found += [Use(where, one, method, flags) for one in _values(module, where, call.args[0], scope)]
            elif method == "compile":
                flags = _flags(module, call, 1)
                own = {used for receiver, used in called if receiver.split("[")[0] in _names_of(tree, call)}
                for one in _values(module, where, call.args[0], scope):
                    # A pattern that other modules use, or that is a value in a table, is read with each method.
                    found += [Use(where, one, used, flags) for used in sorted(own or {"match", "search"})]
    return tuple(found)


def _names_of(tree: ast.AST, call: ast.Call) -> set[str]:
    """The names to which a compiled pattern is assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and node.value is call:
            return {ast.unparse(one) for one in node.targets}
    return set()


def _examples(parsed: Any) -> list[str]:
    """Short texts that match the parts of a pattern, one for each way through its branches, as far as this simple walk understands them."""
    found = [""]
    for kind, value in parsed:
        name = str(kind)
        options = [""]
        if name == "LITERAL":
            options = [chr(value)]
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            options = [one * max(1, min(value[0], 40)) for one in _examples(value[2])]
        elif name == "SUBPATTERN":
            options = _examples(value[3])
        elif name == "ATOMIC_GROUP":
            options = _examples(value)
        elif name == "BRANCH":
            options = [one for branch in value[1] for one in _examples(branch)[:2]]
        elif name == "IN":
            options = [_member(value)]
        elif name in ("ANY", "NOT_LITERAL"):
            options = ["a"]
        # The first way through the rest stays, and each other option is added once.
        found = [one + options[0] for one in found] + [found[0] + one for one in options[1:]]
    return found[:24]


def _runs(parsed: Any) -> Iterator[str]:
    """The literal words of a pattern."""
    word = ""
    for kind, value in parsed:
        if str(kind) == "LITERAL":
            word += chr(value)
            continue
        yield word
        word = ""
        inner = list(value) if isinstance(value, list | tuple) else []
        for one in inner[-1] if str(kind) == "BRANCH" else inner:
            if isinstance(one, re._parser.SubPattern):  # type: ignore[attr-defined]
                yield from _runs(one)
    yield word


def _member(options: Any) -> str:
    if str(options[0][0]) == "NEGATE":
        return (
            next(one for one in "a0 ;" if not re.match(f"[{_plain(options[1:])}]", one)) if _plain(options[1:]) else "a"
        )
    kind, value = options[0]
    return chr(value if str(kind) == "LITERAL" else value[0]) if str(kind) in ("LITERAL", "RANGE") else _category(value)


def _plain(options: Any) -> str:
    return "".join(re.escape(chr(value)) for kind, value in options if str(kind) == "LITERAL")


def _category(value: Any) -> str:
    name = str(value)
    return (
        " "
        if name.endswith("_SPACE") and "NOT" not in name
        else "0"
        if name.endswith("_DIGIT") and "NOT" not in name
        else "a"
    )


def _parts(pattern: str) -> list[tuple[str, str]]:
    """Heads and pieces that make a pattern try many ways: its own examples, cut at several places, and then repeated pieces of them."""
    parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
    words = [word for word in dict.fromkeys(_runs(parsed)) if word]
    parts: dict[tuple[str, str], None] = {}
    for example in dict.fromkeys(one[:60] for one in _examples(parsed)):
        pairs = (example[at : at + 2] for at in range(len(example)))
        pieces = dict.fromkeys([*" 0a[(,\n", *example, "a ", "0.", "\na", *pairs, *words[:20]])
        heads = list(dict.fromkeys(example[:at] for at in range(len(example) + 1)))
        step = max(1, len(heads) // 6)
        parts.update(dict.fromkeys((head, piece) for head in [*heads[::step], heads[-1]] for piece in pieces))
    every = list(parts)
    return every[:: 1 + len(every) // 900]


def _text(head: str, piece: str, length: int, encoded: bool) -> Any:
    text = head + piece * (length // len(piece)) + "\x00"
    return text.encode("latin-1", "replace") if encoded else text


def _seconds(call: Callable[[Any], object], text: Any, times: int) -> float:
    best = float("inf")
    for _ in range(times):
        begun = time.thread_time()
        call(text)
        best = min(best, time.thread_time() - begun)
    return best


def slow(use: Use) -> str:
    """The text that takes more than linear time, or an empty string."""
    source, call = use.pattern, use.call
    encoded = isinstance(source, bytes)
    for head, piece in _parts(source.decode("latin-1") if encoded else source):

        def seconds(length: int, times: int = 1, head: str = head, piece: str = piece) -> float:
            return _seconds(call, _text(head, piece, length, encoded), times)

        name = f"{use.where} {use.method} {source!r}: {head!r} + {piece!r} repeated"
        # A pattern with exponential time never finishes the long text.
        for length in (24, 200):
            if seconds(length) > 0.05 and seconds(length, 2) > 0.05:
                return name
        if seconds(LONG) > SLOW_S and min(seconds(LONG, 2) / seconds(SHORT, 3) for _ in range(3)) > MOST:
            return name
    return ""


def test_each_pattern_needs_linear_time() -> None:
    """Four times the text takes about four times as long, also for texts that almost match in many ways."""
    found = uses()
    assert len(found) > 200
    different = {(use.pattern, use.method, use.flags): use for use in found}
    assert [text for text in map(slow, different.values()) if text] == []


@pytest.mark.parametrize("pattern", [r"\s*\[[^\]]*\]$", r"^(a+)+$", r"x.*y.*z", r"(?:a|a)*b"])
def test_a_slow_pattern_is_found(pattern: str) -> None:
    """The search finds quadratic and exponential patterns."""
    assert slow(Use("here", pattern, "search"))
