"""The imports of both packages follow the pictures in `docs/internals/architecture.md`."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuinfra.base.registry import CLOUDS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "internals" / "architecture.md"
PACKAGES = [ROOT / "gpuinfra", ROOT / "rehearsal" / "gpuinfra_rehearsal"]
"""The packages in the order of their pictures."""

_BOX = re.compile(r'(\w+)\["([^"]+)"\]')
_ARROW = re.compile(r'^\s*(\w+)(?:\["[^"]+"\])?\s*-->\s*(.+)$')


@dataclass
class Picture:
    """The boxes of the picture with their modules, and the arrows between boxes."""

    boxes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    arrows: dict[str, set[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> Picture:
        """The picture in a Mermaid block."""
        picture = cls()
        for line in text.splitlines():
            for name, label in _BOX.findall(line):
                assert name not in picture.boxes, f"box {name} has two labels"
                picture.boxes[name] = tuple(one for part in label.split(",") for one in _each_cloud(part.strip()))
            if match := _ARROW.match(line):
                picture.arrows.setdefault(match[1], set()).update(part.strip() for part in match[2].split("&"))
        for name, others in picture.arrows.items():
            assert {name, *others} <= set(picture.boxes), f"an arrow of {name} has an end without a box"
        return picture

    def box_of(self, module: str) -> str | None:
        """The box that lists a module, or the longest part of its name."""
        best: tuple[int, str] | None = None
        for box, patterns in self.boxes.items():
            for pattern in patterns:
                if _matches(pattern, module):
                    best = max(best or (0, ""), (pattern.count(".") + 1, box))
        return best[1] if best else None

    def reached(self, box: str) -> set[str]:
        """Every box that arrows lead to from this one."""
        found: set[str] = set()
        queue = [box]
        while queue:
            for other in self.arrows.get(queue.pop(), ()):
                if other not in found:
                    found.add(other)
                    queue.append(other)
        return found


def _each_cloud(pattern: str) -> Iterator[str]:
    yield from (pattern.replace("*", cloud) for cloud in CLOUDS) if "*" in pattern else (pattern,)


def _matches(pattern: str, module: str) -> bool:
    """Whether a pattern lists a module: `spec` lists all of a package, `clouds.aws.__init__` only the package itself."""
    inner = module.partition(".")[2]
    if pattern.split(".")[-1] == "__init__":
        return inner == pattern.removesuffix("__init__").removesuffix(".")
    return inner == pattern or inner.startswith(f"{pattern}.")


def imports(folder: Path) -> dict[str, set[str]]:
    """Module -> modules of the package that it imports, in functions and under TYPE_CHECKING too."""
    files = {_name(folder.parent, path): path for path in sorted(folder.rglob("*.py"))}
    return {module: set(_imported(path, module, files)) - {module} for module, path in files.items()}


def _name(root: Path, path: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path, module: str, files: Mapping[str, Path]) -> Iterator[str]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
            names = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in files else base for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.partition(".")[0] == module.partition(".")[0]:
                yield name


def cycles(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Groups of nodes that reach each other."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        queue = [start]
        while queue:
            for other in graph.get(queue.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
        reach[start] = seen
    found: list[set[str]] = []
    for start in graph:
        group = {other for other in reach[start] if start in reach.get(other, ())}
        if len(group | {start}) > 1 and group not in found:
            found.append(group)
    return found


def packages(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Part of the package directly below its root -> the other parts that it imports. A part is a folder or a module."""
    found: dict[str, set[str]] = {}
    for module, others in graph.items():
        part = module.split(".")[1] if "." in module else module
        used = {other.split(".")[1] for other in others if "." in other}
        found.setdefault(part, set()).update(used - {part})
    return found


def problems(picture: Picture, graph: Mapping[str, set[str]]) -> list[str]:
    """Where the imports and the picture differ."""
    found = [f"the picture has a cycle: {sorted(group)}" for group in cycles(picture.arrows)]
    box = {module: picture.box_of(module) for module in graph}
    found += [f"{module} is in no box" for module, name in box.items() if name is None]
    for name, patterns in picture.boxes.items():
        for pattern in patterns:
            if not any(_matches(pattern, module) for module in graph):
                found.append(f"box {name} lists {pattern}, which does not exist")
    used: set[tuple[str, str]] = set()
    reached = {name: picture.reached(name) for name in picture.boxes}
    for module, others in graph.items():
        for other in others:
            here, there = box[module], box.get(other)
            if here is None or there is None or here == there:
                continue
            used.add((here, there))
            if there not in reached[here]:
                found.append(f"{module} ({here}) imports {other} ({there}), which no arrow leads to")
    for name, others in picture.arrows.items():
        found += [
            f"no import uses the arrow {name} --> {other}" for other in sorted(others) if (name, other) not in used
        ]
    return found


def pictures(page: str) -> list[str]:
    """The Mermaid blocks of a page."""
    return re.findall(r"^```mermaid\n(.*?)^```", page, re.M | re.S)


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda path: path.name)
def test_imports_follow_the_picture(folder: Path) -> None:
    """Every module is in one box, and a box imports only boxes that its arrows reach."""
    picture = dict(zip(PACKAGES, pictures(PAGE.read_text(encoding="utf-8")), strict=True))[folder]
    assert problems(Picture.read(picture), imports(folder)) == []


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda path: path.name)
def test_no_package_is_in_an_import_cycle(folder: Path) -> None:
    """No two folders of a package import each other, directly or through others."""
    assert cycles(packages(imports(folder))) == []


def test_a_cycle_of_packages_is_found() -> None:
    """Folders that import each other are a cycle, even if none of their modules is in one."""
    graph = {"gpuinfra.plan.make": {"gpuinfra.cost.price"}, "gpuinfra.cost.price": {"gpuinfra.plan.model"}}
    assert cycles(graph) == []
    assert cycles(packages(graph)) == [{"plan", "cost"}]


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda path: path.name)
def test_no_module_is_in_an_import_cycle(folder: Path) -> None:
    """No two modules import each other, directly or through others."""
    assert cycles(imports(folder)) == []


PAGE_OF_THREE = """
flowchart TD
    top["cli"] --> middle
    middle["plan"] --> low
    low["spec, base"]
"""


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ({"gpuinfra.spec": {"gpuinfra.plan.model"}}, "which no arrow leads to"),
        ({"gpuinfra.new.thing": set()}, "gpuinfra.new.thing is in no box"),
        ({"gpuinfra.base.errors": None}, "lists base, which does not exist"),
        ({"gpuinfra.plan.model": set()}, "no import uses the arrow middle --> low"),
    ],
)
def test_each_difference_is_reported(graph: dict[str, set[str] | None], message: str) -> None:
    """An upward import, a package without a box, a box without a module and an unused arrow are reported."""
    usual = {
        "gpuinfra.cli": {"gpuinfra.plan.model"},
        "gpuinfra.plan.model": {"gpuinfra.spec"},
        "gpuinfra.spec": set(),
        "gpuinfra.base.errors": set(),
    }
    picture = Picture.read(PAGE_OF_THREE)
    assert problems(picture, usual) == []
    changed = {name: others for name, others in {**usual, **graph}.items() if others is not None}
    assert any(message in one for one in problems(picture, changed))


def test_a_cycle_is_found() -> None:
    """Modules that import each other through a third one are one cycle."""
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]


CLOUD_MODULES = re.compile(rf"gpuinfra/(clouds/({'|'.join(CLOUDS)})/|node/({'|'.join(CLOUDS)})\.py)")
"""Modules of one cloud."""
NAMES_ALLOWED = {
    "gpuinfra/base/registry.py": "the table of clouds",
    "gpuinfra/node/xids.py": "what a cloud documents differently from NVIDIA; the node has no modules of clouds",
    "gpuinfra/spec/target.py": "typed classes, from which type checkers read regions and zones",
}
"""Shared modules that name a cloud, with the reason."""


def names_of_clouds(tree: ast.AST) -> list[tuple[int, str]]:
    """Lines with a string that is the name of a cloud."""
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in CLOUDS
    ]


def test_only_modules_of_a_cloud_name_it() -> None:
    """Shared modules read a cloud's facts from its profile or modules, and never compare names of clouds."""
    found = []
    for path in sorted(PACKAGES[0].rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not CLOUD_MODULES.match(name) and name not in NAMES_ALLOWED:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found += [f"{name}:{line} names {cloud}" for line, cloud in names_of_clouds(tree)]
    assert found == []


def test_a_name_of_a_cloud_is_found() -> None:
    """A comparison and a table with the name of a cloud are both found."""
    tree = ast.parse('if cloud == "aws":\n    x = {"gcp": 1}')
    assert names_of_clouds(tree) == [(1, "aws"), (2, "gcp")]


def test_a_plan_imports_only_what_it_needs() -> None:
    """`gpuinfra plan` starts fast: it imports no engine, SDK, or reference, of the node program only the checks, and runs no program."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gpuinfra", "plan", "aws-p4d"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "gpuinfra.plan.make" in imported
    slow = ("pulumi", "grpc", "jinja2", "boto", "paramiko", "ssl", "difflib", "subprocess", "pyexpat")
    own = ("engine", "handover", "node.evidence", "node.nvsmi", "node.probe", "reference", "remote", "verification")
    unneeded = {*slow, "gpuinfra_rehearsal", *(f"gpuinfra.{name}" for name in own)}
    assert sorted(name for name in imported if any(name == one or name.startswith(f"{one}.") for one in unneeded)) == []


IMPORTED_BY = {"tests": [*PACKAGES, ROOT / "plugin", ROOT / "tools"], "rehearsal.tests": [*PACKAGES, ROOT / "tests"]}
"""Tests -> folders whose modules do not import them. The tests of the rehearsal use helpers of the tests of gpuinfra."""


@pytest.mark.parametrize("package", IMPORTED_BY)
def test_tests_are_not_imported(package: str) -> None:
    """No module outside the tests imports them, and the tests of gpuinfra import none of the rehearsal."""
    form = re.compile(rf"^\s*(?:from|import) {re.escape(package)}\b", re.M)
    files = [path for folder in IMPORTED_BY[package] for path in folder.rglob("*.py")]
    assert [str(path.relative_to(ROOT)) for path in files if form.search(path.read_text(encoding="utf-8"))] == []


OTHER_USERS = {
    "render_source": "rehearsal",
    "leave_out": "bench",
    "MARGIN": "tests: the limit of floors that a person sets",
}
"""Names without a user in the product -> who uses them."""
REGISTERED = ("gpuinfra/rules/", "gpuinfra/node/checks/")
"""Modules whose functions and classes are collected from the module, as are those of `gpuinfra/clouds/<cloud>/rules`."""


def test_every_name_of_the_product_has_a_user() -> None:
    """No module of the product defines a function, class or constant that neither the product, its templates, nor a page for users names."""
    sources = [path for folder in ("gpuinfra", "plugin", "policy") for path in (ROOT / folder).rglob("*.py")]
    pages = [path for folder in ("docs", "examples", "gpuinfra") for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".j2")]  # fmt: skip
    words: Counter[str] = Counter()
    for path in (*sources, *pages, *(ROOT / "examples").rglob("*.py"), ROOT / "pyproject.toml", ROOT / "README.md"):
        words.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    unused = set()
    for path in sources:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(REGISTERED) and "/rules/" not in name:
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                own = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else [one.id for one in targets if isinstance(one, ast.Name)]  # fmt: skip
                unused |= {one for one in own if words[one] == 1 and not one.startswith("__")}
    assert unused == set(OTHER_USERS)
