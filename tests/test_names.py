"""One meaning for each class name in the product and the rehearsal, and for each public function."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SAME = {
    "Cloud": "the typed cloud of the product, and the contents of a stand-in cloud",
    "Fleet": "a protocol and its implementation",
    "Operator": "a protocol and its implementation",
    "Rights": "a protocol and its implementation",
}
"""Names that classes in different places share, with the reason."""


def places() -> dict[str, set[str]]:
    """Class name -> places that define it. The folders of the three clouds are one place, because their classes have the same meaning."""
    names: dict[str, set[str]] = defaultdict(set)
    for folder in ("gpuinfra", "rehearsal/gpuinfra_rehearsal"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if "/behaviors/" in name:  # a behavior is named after its resource type
                continue
            place = re.sub(r"/clouds?/(aws|azure|gcp)/.*|/node/(aws|azure|gcp)\.py", "/each cloud", name)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    names[node.name].add(place)
    return names


def test_each_class_name_has_one_meaning() -> None:
    """No two packages define a class with the same name, so a name in a text or a traceback identifies the class."""
    shared = {name: sorted(where) for name, where in places().items() if len(where) > 1}
    assert {name: where for name, where in shared.items() if name not in SAME} == {}
    assert sorted(SAME.keys() - shared.keys()) == []


def test_each_public_function_has_one_meaning() -> None:
    """No two modules define a function with the name of a public function."""
    public = {line.rpartition(".")[2] for line in (ROOT / "tests" / "public_names.txt").read_text().split()}
    names: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "gpuinfra").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name in public:
                names[node.name].append(path.relative_to(ROOT).as_posix())
    assert {name: where for name, where in names.items() if len(where) > 1} == {}


def variables(tree: ast.AST) -> Iterator[str]:
    """Each name that an assignment, a loop or a `with` gives to a value, without those of comprehensions and the fields of classes."""
    nodes = list(ast.walk(tree))
    others = [node.target for node in nodes if isinstance(node, ast.comprehension)]
    others += [
        line.target
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for line in node.body
        if isinstance(line, ast.AnnAssign)
    ]
    inside = {id(name) for target in others for name in ast.walk(target)}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in inside:
            yield node.id


def test_variables_say_what_they_are() -> None:
    """No variable is called `one`, `found` or `known`: its name says what was found. Comprehensions can use `one` for an item."""
    unnamed = {
        path.relative_to(ROOT).as_posix(): sorted(vague)
        for folder in ("gpuinfra", "rehearsal/gpuinfra_rehearsal")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (vague := {"one", "found", "known"} & set(variables(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert unnamed == {}
