"""Mutation tests of the rules: the cases of a rule detect every change of one place.

Mutations shift or invert a comparison, swap `and` and `or`, remove a `not`, and make a condition always true or always false.
A mutation that no case detects is a gap in the cases, or is listed with the reason.
"""

from __future__ import annotations

import ast
import copy
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from gpuinfra.rules.run import all_rules
from gpuinfra.spec import parse_spec
from gpuinfra.spec.rule import Rule
from tests.rules.cases import ACCEPTED, REJECTED, TODAY, declaration

_SWAPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
SURVIVORS = {
    # Only a cloud without components for a second region: tests/clouds/test_adding_a_cloud.py.
    ("recovery_is_supported", "if spec.recovery is not None and cloud.replication is None: [never]"),
    ("recovery_is_supported", "spec.recovery is not None [swap]"),
    # Only a cloud without DNS names that move: tests/clouds/region/test_dns.py.
    ("recovery_names_are_supported", "if dns is None: [never]"),
    # Only a cloud that does not support a kind of storage: tests/spec/test_kinds.py.
    ("storage_kind_is_supported", "if entry.kind in cloud.storage_kinds: [always]"),
    ("block_is_purchasable", "days > 14 [swap]"),  # 14 days are two whole weeks
    # The need is a prediction with a fraction, so never equal to a declared whole number.
    ("duration_covers_workload", "spec.duration_hours < hours [swap]"),
    ("storage_holds_checkpoints", "size_gib < need [swap]"),
    ("filestore_size_is_offered", "one >= size [swap]"),  # only for a size that is not offered, so never equal
}


def _sites(tree: ast.AST) -> list[ast.AST]:
    kinds = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.If)
    found = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    return [node for node in found if not isinstance(node, ast.UnaryOp) or isinstance(node.op, ast.Not)]


def mutants(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """Mutations of a rule, as a description and the changed rule."""
    source = inspect.getsource(rule)
    tree = ast.parse(source)
    for index, site in enumerate(_sites(tree)):
        for way in ("swap", "always", "never") if isinstance(site, ast.If) else ("swap",):
            changed = copy.deepcopy(tree)
            node = _sites(changed)[index]
            if not _change(node, way):
                continue
            ast.fix_missing_locations(changed)
            names = vars(sys.modules[rule.__module__]).copy()
            exec(compile(changed, f"<{rule.__name__}>", "exec"), names)
            yield f"{ast.unparse(site).splitlines()[0]} [{way}]", names[rule.__name__]


def _change(node: Any, way: str) -> bool:
    if isinstance(node, ast.Compare):
        node.ops[0] = _SWAPS[type(node.ops[0])]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.Not()
        node.operand = ast.UnaryOp(op=ast.Not(), operand=node.operand)
    elif way == "swap":
        return False
    else:
        node.test = ast.Constant(way == "always")
    return True


def _answers(rule: Rule, name: str) -> list[list[str] | str]:
    """The findings of a rule for each of its cases, or the type of its exception."""
    answers: list[list[str] | str] = []
    for case in (*ACCEPTED[name], *REJECTED[name]):
        spec = parse_spec(declaration(case))
        try:
            answers.append([str(finding) for finding in rule(spec, TODAY)])
        except Exception as problem:
            answers.append(type(problem).__name__)
    return answers


@pytest.mark.parametrize("name", sorted(all_rules()))
def test_cases_detect_every_mutation(name: str) -> None:
    """A rule that is changed in one place returns other findings for at least one case."""
    rule = all_rules()[name]
    usual = _answers(rule, name)
    unnoticed = {what for what, changed in mutants(rule) if _answers(changed, name) == usual}
    known = {what for owner, what in SURVIVORS if owner == name}
    assert unnoticed == known
