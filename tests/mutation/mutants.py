"""Makes the mutants of a module: copies of its syntax tree with one change each.

A mutant's name holds the function, the changed code and the new code, without line numbers, so that it stays the same when other
code of the module changes. `docs/internals/decisions/mutation.md` explains the choice of the changes.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

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
    """The source file of a module, without an import of its package."""
    return Path(__file__).parents[2] / (module.replace(".", "/") + ".py")


def mutants(text: str) -> list[str]:
    """The name of each mutant, in the order of the code."""
    return list(_places(ast.parse(text)))


def mutant(text: str, name: str) -> ast.Module:
    """The syntax tree of one mutant. Raises `KeyError` for an unknown name."""
    tree = ast.parse(text)
    place, number = _places(tree)[name]
    target = list(_nodes(tree))[place][1]
    _replace(tree, target, list(_changes(target))[number])
    return ast.fix_missing_locations(tree)


def _places(tree: ast.Module) -> dict[str, tuple[int, int]]:
    """Name of each mutant -> the position of the changed node, and of the change among those of the node."""
    found: dict[str, tuple[int, int]] = {}
    for place, (function, node) in enumerate(_nodes(tree)):
        for number, changed in enumerate(_changes(node)):
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


def _nodes(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Each node inside a function that is executed, with the function's name."""
    for outer in ast.walk(tree):
        if isinstance(outer, ast.FunctionDef):
            for statement in outer.body:
                for node in ast.walk(statement):
                    if not isinstance(node, ast.FunctionDef):
                        yield outer.name, node


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
    return " ".join(text.split())[:90]
