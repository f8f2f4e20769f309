"""Decisions depend on causes: no condition in the code searches a text that this project wrote."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from re import _constants as opcodes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]

import pytest

ROOT = Path(__file__).parents[1]
WRITERS = ("gpuinfra", "plugin", "policy")
"""Folders whose texts are this project's own. The rehearsal also writes the texts of the clouds and tools that it stands in for."""
READERS = (*WRITERS, "rehearsal/gpuinfra_rehearsal")
"""Folders whose conditions are examined."""

SEARCHES = frozenset(
    {"startswith", "endswith", "find", "index", "count", "search", "match", "fullmatch", "findall", "finditer"}
)
MESSAGES = frozenset({"reason", "message", "hint", "fix", "why", "problem", "summary", "what_to_do", "refused"})
"""Names of attributes and keys that contain a text for people."""
_WORDS = re.compile(r"[^\W\d_]\w*[^\w\n]*\s[^\w\n]*\w+")
"""Two words with a space between them."""
HOLE = "\0"
"""Stands for a value in an f-string."""

OTHERS: dict[tuple[str, str], str] = {}
"""The conditions that search a text of others: file and condition -> who writes the text."""


@dataclass(frozen=True)
class Module:
    """A parsed file."""

    path: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """The name in imports."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@dataclass(frozen=True)
class Condition:
    """A condition about a text."""

    path: str
    line: int
    code: str
    literals: tuple[str, ...]
    """The texts that it compares with."""
    message: bool
    """Whether the other operand is a text for people."""


@dataclass
class Names:
    """The strings that the names of a module stand for."""

    strings: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, node: ast.AST) -> tuple[str, ...]:
        """The strings in an expression: literals, parts of f-strings, elements of collections, and constants."""
        if isinstance(node, ast.Constant):
            text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            return (text,) if isinstance(text, str) else ()
        if isinstance(node, ast.JoinedStr):
            return tuple(filter(None, joined(node).split(HOLE)))
        if isinstance(node, ast.Name):
            return self.strings.get(node.id, ())
        if isinstance(node, ast.Attribute):
            return self.strings.get(ast.unparse(node), ())
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return tuple(text for one in node.elts for text in self.of(one))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("re.compile", "frozenset", "tuple"):
            return tuple(text for one in node.args for text in self.of(one))
        return ()


def joined(node: ast.JoinedStr) -> str:
    """The text of an f-string, with a mark for each value."""
    return "".join(str(one.value) if isinstance(one, ast.Constant) else HOLE for one in node.values)


@cache
def modules(folders: tuple[str, ...] = READERS) -> tuple[Module, ...]:
    """The files in these folders."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return tuple(Module(str(one.relative_to(ROOT)), ast.parse(one.read_text(encoding="utf-8"))) for one in paths)


def constants(every: Iterable[Module]) -> dict[str, Names]:
    """The strings of each module's own and imported constants, by module."""
    own: dict[str, Names] = {}
    for module in every:
        names = own.setdefault(module.path, Names())
        for statement in module.tree.body:
            targets = (
                statement.targets
                if isinstance(statement, ast.Assign)
                else [statement.target]
                if isinstance(statement, ast.AnnAssign)
                else []
            )
            for target in targets:
                value = statement.value  # type: ignore[attr-defined]
                pairs = (
                    zip(target.elts, value.elts, strict=False)
                    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
                    else [(target, value)]
                )
                for name, text in pairs:
                    if isinstance(name, ast.Name) and text is not None:
                        names.strings[name.id] = names.of(text)
    by_name = {module.name.removeprefix("rehearsal."): own[module.path] for module in every}
    found: dict[str, Names] = {}
    for module in every:
        names = Names(dict(own[module.path].strings))
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                package = module.name.rsplit(".", node.level)[0] + "." if node.level else ""
                source = f"{package}{node.module}"
                for alias in node.names:
                    local = alias.asname or alias.name
                    if source in by_name and alias.name in by_name[source].strings:
                        names.strings[local] = by_name[source].strings[alias.name]
                    for name, texts in getattr(by_name.get(f"{source}.{alias.name}"), "strings", {}).items():
                        names.strings[f"{local}.{name}"] = texts
        found[module.path] = names
    return found


class Finder(ast.NodeVisitor):
    """Finds the conditions about texts in one module."""

    def __init__(self, module: Module, names: Names) -> None:
        self._module, self._names = module, names
        self._texts: list[set[str]] = [set()]
        self.found: list[Condition] = []
        self.literals: set[int] = set()
        """Literals that are operands of conditions, by identity."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Collect the local names that stand for a text for people, then examine the body."""
        texts = set(self._texts[-1])
        for inner in ast.walk(node):
            if isinstance(inner, ast.ExceptHandler) and inner.name:
                texts.add(f"str({inner.name})")
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign) and len(inner.targets) == 1 and isinstance(inner.targets[0], ast.Name):
                if self._is_message(inner.value, texts):
                    texts.add(inner.targets[0].id)
        self._texts.append(texts)
        self.generic_visit(node)
        self._texts.pop()

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        """Let the target of a loop over constants stand for each of them."""
        self._loop(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        """As in a generator."""
        self._loop(node)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        """As in a generator."""
        self._loop(node)

    def _loop(self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp) -> None:
        before = dict(self._names.strings)
        for one in node.generators:
            if isinstance(one.target, ast.Name):
                self._names.strings[one.target.id] = self._names.of(one.iter)
        self.generic_visit(node)
        self._names.strings = before

    def visit_Compare(self, node: ast.Compare) -> None:
        """Examine `in`, `==` and their negations."""
        operands = [node.left, *node.comparators]
        for at, operator in enumerate(node.ops):
            if isinstance(operator, ast.In | ast.NotIn | ast.Eq | ast.NotEq):
                self._add(node, operands[at : at + 2], operands[at : at + 2])
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Examine methods of strings and of regular expressions."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHES:
            owner = node.func.value
            pattern = isinstance(owner, ast.Name) and owner.id == "re"
            self._add(node, [owner, *node.args], [owner, *node.args], regex=pattern or bool(self._names.of(owner)))
        self.generic_visit(node)

    def visit_Match(self, node: ast.Match) -> None:
        """Examine the cases of a `match`."""
        for case in node.cases:
            values = [one.value for one in ast.walk(case.pattern) if isinstance(one, ast.MatchValue)]
            self._add(node.subject, values, [node.subject])
        self.generic_visit(node)

    def _add(self, node: ast.AST, operands: list[ast.expr], texts: list[ast.expr], *, regex: bool = False) -> None:
        literals = tuple(text for one in operands for text in self._names.of(one) if text)
        self.literals |= {id(inner) for one in operands for inner in ast.walk(one)}
        if regex:
            literals = tuple(run for text in literals for run in runs(text))
        if literals:
            message = any(self._is_message(one, self._texts[-1]) for one in texts)
            code = " ".join(ast.unparse(node).split())
            self.found.append(Condition(self._module.path, getattr(node, "lineno", 0), code, literals, message))

    def _is_message(self, node: ast.AST, texts: set[str]) -> bool:
        """Whether an expression is a text for people: `one.reason`, `one["reason"]`, `one.get("reason")`, `str(error)` or a name for one of these."""
        if isinstance(node, ast.Attribute):
            return node.attr in MESSAGES
        if isinstance(node, ast.Subscript):
            return isinstance(node.slice, ast.Constant) and node.slice.value in MESSAGES
        if isinstance(node, ast.Name):
            return node.id in texts
        if isinstance(node, ast.BoolOp):
            return any(self._is_message(one, texts) for one in node.values)
        if isinstance(node, ast.Call):
            if ast.unparse(node) in texts:
                return True
            if isinstance(node.func, ast.Attribute):
                key = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
                return (node.func.attr == "get" and key in MESSAGES) or self._is_message(node.func.value, texts)
            return any(self._is_message(one, texts) for one in node.args)
        return False


def runs(pattern: str) -> Iterator[str]:
    """The parts of a regular expression that match themselves."""
    try:
        tree = parser.parse(pattern)
    except re.error:
        yield pattern
        return
    yield from filter(None, _runs(tree))


def _runs(tree: Iterable[tuple[object, object]]) -> Iterator[str]:
    run = ""
    for code, value in tree:
        if code is opcodes.LITERAL:
            run += chr(value)  # type: ignore[arg-type]
            continue
        yield run
        run = ""
        parts = value if isinstance(value, tuple | list) else ()
        for part in parts:
            if isinstance(part, parser.SubPattern):
                yield from _runs(part)
            elif isinstance(part, list):
                for one in part:
                    if isinstance(one, parser.SubPattern):
                        yield from _runs(one)
    yield run


def finders(every: Iterable[Module]) -> list[Finder]:
    """The conditions of each module."""
    every = tuple(every)
    names = constants(every)
    found = []
    for module in every:
        finder = Finder(module, names[module.path])
        finder.visit(module.tree)
        found.append(finder)
    return found


def written(every: Iterable[Module], literals: set[int]) -> str:
    """The texts of three words or more that the modules write, without docstrings and without operands of conditions, in lower case."""
    found: list[str] = []
    for module in every:
        skipped = {id(one.value) for one in ast.walk(module.tree) if isinstance(one, ast.Expr)} | literals
        for node in ast.walk(module.tree):
            if isinstance(node, ast.JoinedStr):
                skipped |= {id(one) for one in node.values}
            if id(node) in skipped:
                continue
            text = (
                joined(node)
                if isinstance(node, ast.JoinedStr)
                else node.value
                if isinstance(node, ast.Constant)
                else ""
            )
            if isinstance(text, str) and len(text.split()) >= 3:
                found.append(text.lower())
    return "\n".join(found)


def searches(readers: Iterable[Module], writers: Iterable[Module]) -> list[Condition]:
    """The conditions that search a text of the writers, or any text for people."""
    found = finders(readers)
    ours = written(writers, set().union(*(finder.literals for finder in found)))
    return [
        condition
        for finder in found
        for condition in finder.found
        if condition.message or any(_WORDS.search(text) and text.lower().strip() in ours for text in condition.literals)
    ]


def test_no_condition_searches_a_text_of_this_project() -> None:
    """Each condition compares values, such as causes. A text of others can be searched, in a place that states who writes it."""
    writers = tuple(module for module in modules() if module.path.startswith(WRITERS))
    found = {(one.path, one.code): one.line for one in searches(modules(), writers)}
    wrong = [f"{path}:{found[path, code]}: {code}" for path, code in found.keys() - OTHERS.keys()]
    assert not wrong, "compare a cause instead of a text:\n" + "\n".join(sorted(wrong))
    assert not OTHERS.keys() - found.keys(), "these conditions no longer exist"
