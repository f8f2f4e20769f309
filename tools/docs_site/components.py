"""Generates the reference of the components of each cloud and of the plan: arguments, outputs and fields, with their types and docstrings.

It reads the source files without importing them, because the SDKs take seconds to import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpuinfra.base.lazy import homes_in
from gpuinfra.base.registry import CLOUDS, folder_of
from gpuinfra.plan.profile import profile_of

PACKAGE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Field:
    """An argument of a dataclass, or an output of a component."""

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Class:
    """A public class of a cloud."""

    name: str
    meaning: str
    is_component: bool
    fields: tuple[Field, ...]


def exported(cloud: str) -> dict[str, str]:
    """Return the public names of a cloud's package, and the module in `components` of each."""
    homes = homes_in(folder_of(cloud) / "__init__.py")
    return {name: module.rpartition(".")[2] for name, module in homes.items()}


def classes(cloud: str) -> dict[str, Class]:
    """Return the public classes of a cloud, in alphabetical order. Other names, such as functions, are left out."""
    folder = folder_of(cloud) / "components"
    found = {name: _class(folder / f"{module}.py", name) for name, module in sorted(exported(cloud).items())}
    return {name: one for name, one in found.items() if one is not None}


def lines() -> Iterator[str]:
    """Yield a section for each cloud, and one for each component with its arguments and outputs."""
    for cloud in CLOUDS:
        known = classes(cloud)
        yield from [f"## {profile_of(cloud).title}", "", f"Import these names from `gpuinfra.clouds.{cloud}`.", ""]
        others = [one for one in known.values() if not one.is_component and not _is_args(one, known)]
        for one in (*(one for one in known.values() if one.is_component), *others):
            yield from _lines(cloud, one, known.get(f"{one.name}Args"))


def plan_classes() -> list[Class]:
    """Return the classes of a plan, in the order of the code."""
    paths = [PACKAGE / "gpuinfra" / "plan" / name for name in ("model.py", "recovery_model.py")]
    names = [(path, one.name) for path in paths for one in _tree(path).body if isinstance(one, ast.ClassDef)]
    return [found for path, name in names if (found := _class(path, name)) is not None]


def plan_lines() -> Iterator[str]:
    """Yield a section for each class of a plan with its fields. The plan itself is first."""
    for one in sorted(plan_classes(), key=lambda one: one.name != "Plan"):
        yield from [f"## `{one.name}`", "", *_paragraphs(one.meaning)]
        if one.fields:
            yield from _list(one.fields)


def _is_args(one: Class, known: dict[str, Class]) -> bool:
    return one.name.endswith("Args") and one.name.removesuffix("Args") in known


def _lines(cloud: str, one: Class, args: Class | None) -> Iterator[str]:
    yield from [f"### `{cloud}.{one.name}`", "", *_paragraphs(one.meaning)]
    if args is not None:
        yield from [f"`{one.name}(name, {args.name}(...), opts=None)`. Arguments:", "", *_list(args.fields)]
    if one.fields:
        yield from ["Outputs:" if one.is_component else "Fields:", "", *_list(one.fields)]


def _list(fields: Iterable[Field]) -> Iterator[str]:
    for field in fields:
        default = f"default `{field.default}`" if field.default and field.type else f"`{field.default}`"
        kind = ", ".join([*([f"`{field.type}`"] if field.type else []), *([default] if field.default else [])])
        meaning = " ".join(field.meaning.split())
        yield f"- `{field.name}`: {kind}. {meaning}".rstrip()
    yield ""


def _paragraphs(text: str) -> Iterator[str]:
    for part in text.split("\n\n"):
        yield from [" ".join(part.split()), ""]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _class(path: Path, name: str) -> Class | None:
    tree = _tree(path)
    node = next((one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name), None)
    if node is None:
        return None
    inherited: list[Field] = []
    is_component = False
    for base in node.bases:
        text = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
        is_component = is_component or text == "pulumi.ComponentResource"
        above = _imported(path, text)
        if above is not None:
            inherited += above.fields
            is_component = is_component or above.is_component
    own = {field.name: field for field in (*inherited, *_fields(node))}
    return Class(name, ast.get_docstring(node) or "", is_component, tuple(own.values()))


def _imported(path: Path, name: str) -> Class | None:
    """Return a base class: one of the same module, or one that the module imports from gpuinfra."""
    module, _, attribute = name.rpartition(".")
    for one in _tree(path).body:
        if not isinstance(one, ast.ImportFrom) or not (one.module or "").startswith("gpuinfra"):
            continue
        for alias in one.names:
            if (alias.asname or alias.name) == (module or name):
                source = f"{one.module}.{alias.name}" if module else str(one.module)
                file = PACKAGE.joinpath(*source.split(".")).with_suffix(".py")
                return _class(file, attribute if module else alias.name) if file.is_file() else None
    return _class(path, name) if not module else None


def _fields(node: ast.ClassDef) -> Iterator[Field]:
    values = any(ast.unparse(base).endswith("Enum") for base in node.bases)
    for index, one in enumerate(node.body):
        if isinstance(one, ast.FunctionDef) and any(ast.unparse(mark) == "property" for mark in one.decorator_list):
            yield Field(one.name, ast.unparse(one.returns) if one.returns else "", "", ast.get_docstring(one) or "")
        if values and isinstance(one, ast.Assign):
            yield Field(ast.unparse(one.targets[0]), "", ast.unparse(one.value), "")
        if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name) or one.target.id.startswith("_"):
            continue
        after = node.body[index + 1] if index + 1 < len(node.body) else None
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        default = ast.unparse(one.value) if one.value is not None else ""
        yield Field(one.target.id, ast.unparse(one.annotation), default, str(text))
