"""Makes the mutants of a module: copies of its syntax tree with one change each.

A mutant's name holds the function, the changed code and the new code, without line numbers, so that it stays the same when other
code of the module changes. `docs/internals/decisions/mutation.md` explains the choice of the changes.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)
Item = TypeVar("Item")

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}


def source_of(module: str) -> Path:
    """The source file of a module, without an import of its package. A script has its path instead of a module name."""
    return Path(__file__).parents[2] / (module if "/" in module else module.replace(".", "/") + ".py")


def mutants(text: str) -> list[str]:
    """The name of each mutant whose change is in an expression or a condition of a function, in the order of the code."""
    return list(_places(_functions(ast.parse(text)), _changes))


def mutants_of_all_lines(text: str) -> list[str]:
    """The name of each mutant: also changes of constants, options and elements, and of whole statements, in and outside of functions."""
    tree = ast.parse(text)
    return list(dict.fromkeys(name for nodes, changes in _kinds(tree) for name in _places(nodes, changes)))


def mutant(text: str, name: str) -> ast.Module:
    """The syntax tree of one mutant. Raises `KeyError` for an unknown name."""
    tree = ast.parse(text)
    for nodes, changes in _kinds(tree):
        places = _places(nodes, changes)
        if name in places:
            place, number = places[name]
            target = nodes[place][1]
            _replace(tree, target, list(changes(target))[number])
            return ast.fix_missing_locations(tree)
    raise KeyError(name)


def _kinds(tree: ast.Module) -> Iterator[tuple[list[tuple[str, ast.AST]], Callable[[ast.AST], Iterator[ast.AST]]]]:
    functions, every = _functions(tree), _everything(tree)
    inside = {id(node) for _, node in functions}
    yield functions, _changes
    yield [(where, node) for where, node in every if id(node) not in inside], _changes
    yield every, _all_changes


def _places(
    nodes: Sequence[tuple[str, ast.AST]], changes: Callable[[ast.AST], Iterator[ast.AST]]
) -> dict[str, tuple[int, int]]:
    """Name of each mutant -> the position of the changed node, and of the change among those of the node."""
    found: dict[str, tuple[int, int]] = {}
    for place, (function, node) in enumerate(nodes):
        for number, changed in enumerate(changes(node)):
            base = f"{function}: {_short(node)} -> {_short(changed)}"
            name, same = base, 1
            while name in found:
                same += 1
                name = f"{base} ({same})"
            found[name] = (place, number)
    return found


def sample(text: str, most: int, functions: tuple[str, ...] = ()) -> list[str]:
    """The names of at most so many mutants, of these functions or of all. A hash of the name chooses them, so a change of other code keeps the choice."""
    names = [name for name in mutants(text) if not functions or name.partition(":")[0] in functions]
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())[:most]


def _functions(tree: ast.Module) -> list[tuple[str, ast.AST]]:
    """Each node inside a function that is executed, with the function's name."""
    return [
        (outer.name, node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef)
        for statement in outer.body
        for node in ast.walk(statement)
        if not isinstance(node, ast.FunctionDef)
    ]


_NOT_EXECUTED = ("annotation", "returns", "type_params")


def _everything(tree: ast.Module) -> list[tuple[str, ast.AST]]:
    """Each node that is executed, with the name of its function or class, or `module`. Annotations, imports and texts for readers are left out."""
    found: list[tuple[str, ast.AST]] = []

    def walk(node: ast.AST, where: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            where = node.name
        found.append((where, node))
        if isinstance(node, ast.JoinedStr | ast.Raise | ast.Import | ast.ImportFrom):
            return
        for name, value in ast.iter_fields(node):
            if name not in _NOT_EXECUTED:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST) and not _is_docstring(child):
                        walk(child, where)

    walk(tree, "module")
    return found


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
        yield ast.Compare(left=node.left, ops=[_COMPARED[type(node.ops[0])]()], comparators=node.comparators)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.BoolOp(op=other, values=node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED and not _is_text(node):
        yield ast.BinOp(left=node.left, op=_COMPUTED[type(node.op)](), right=node.right)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(value=not node.value)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(value=node.value + 1)
    elif isinstance(node, ast.Raise):
        yield ast.Pass()
    elif isinstance(node, ast.If):
        yield ast.If(test=ast.Constant(value=False), body=node.body, orelse=node.orelse)


def _all_changes(node: ast.AST) -> Iterator[ast.AST]:
    """Changes that `_changes` does not make, and that are not in texts for readers."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and not re.search(r"\s", node.value):
        yield ast.Constant(value=f"{node.value}~")
    elif isinstance(node, ast.Constant) and isinstance(node.value, float):
        yield ast.Constant(value=node.value + 1)
    elif isinstance(node, ast.List | ast.Tuple | ast.Set) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        yield from (_without(node, "elts", number) for number in range(len(node.elts)) if len(node.elts) > 1)
    elif isinstance(node, ast.Dict):
        for number in range(len(node.keys)):
            yield ast.Dict(keys=_less(node.keys, number), values=_less(node.values, number))
    elif isinstance(node, ast.Call):
        yield from (_without(node, "keywords", number) for number in range(len(node.keywords)))
    elif isinstance(node, ast.Expr | ast.AugAssign | ast.Delete | ast.Continue | ast.Break) or (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    ):
        yield ast.Pass()
    elif isinstance(node, ast.FunctionDef):
        yield from (_without(node, "decorator_list", number) for number in range(len(node.decorator_list)))


def _without(node: Node, field: str, number: int) -> Node:
    changed = copy.copy(node)
    setattr(changed, field, _less(getattr(node, field), number))
    return changed


def _less(items: list[Item], number: int) -> list[Item]:
    return [*items[:number], *items[number + 1 :]]


def _is_text(node: ast.BinOp) -> bool:
    """Whether the operation joins texts or bytes, which have no other operation."""
    return any(
        isinstance(one, ast.JoinedStr) or (isinstance(one, ast.Constant) and isinstance(one.value, str | bytes))
        for one in ast.walk(node)
    )


def _replace(tree: ast.AST, target: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, field, new)
                return
            if isinstance(value, list) and any(one is target for one in value):
                setattr(parent, field, [new if one is target else one for one in value])
                return
    raise AssertionError("the node is not part of the tree")


def _short(node: ast.AST) -> str:
    text = ast.unparse(node)
    if isinstance(node, ast.If):
        text = f"if {ast.unparse(node.test)}"
    elif isinstance(node, ast.FunctionDef):
        text = " ".join([*(f"@{ast.unparse(one)}" for one in node.decorator_list), "def"])
    return " ".join(text.split())[:90]
