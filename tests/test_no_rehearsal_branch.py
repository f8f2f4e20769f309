"""Production code does not know about rehearsals."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import gpuinfra

ROOT = Path(gpuinfra.__file__).parent
REGISTRATION = {
    "cli/cache.py",
    "cli/complete.py",
    "cli/doctor.py",
    "cli/options.py",
    "cli/plan.py",
    "cli/rehearse.py",
    "cli/stacks.py",
    "cli/__init__.py",
}
"""The commands that start a rehearsal, use its stacks, check its prerequisites, complete its options, or compare resources in its cloud."""
PRESENTATION = {"report/progress.py", "report/rehearsal_page.py", "report/rehearsal_text.py"}
"""The pages and the live view that only `gpuinfra_rehearsal` uses."""


def mentions(source: str) -> Iterator[str]:
    """Names, imports, keys and environment variables that refer to rehearsals. Texts with spaces are prose."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                words = [name]
            case ast.Import(names=names):
                words = [one.name for one in names]
            case ast.ImportFrom(module=str(module), names=names):
                words = [module, *(one.name for one in names)]
            case ast.Constant(value=str(text)) if " " not in text and "\n" not in text:
                words = [text]
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                words = [name]
            case _:
                continue
        yield from (f"line {node.lineno}: {word}" for word in words if "rehears" in word.lower())


def test_only_the_registration_of_commands_refers_to_rehearsals() -> None:
    """Outside `rehearsal/`, only the modules that register the commands and show their results refer to rehearsals."""
    found = {
        name: list(mentions(path.read_text(encoding="utf-8")))
        for path in sorted(ROOT.rglob("*.py"))
        if not (name := path.relative_to(ROOT).as_posix()).startswith("rehearsal/")
    }
    referring = {name: where for name, where in found.items() if where and name not in REGISTRATION | PRESENTATION}
    assert referring == {}


def test_a_reference_is_found() -> None:
    """Each kind of reference is found, and prose is not."""
    for text in (
        "from gpuinfra_rehearsal.session import Session",
        "import gpuinfra_rehearsal",
        "if rehearsal: pass",
        "x = session.rehearsal",
        "os.environ['GPUINFRA_REHEARSAL']",
        "f(rehearsed=True)",
        "def f(rehearsal): pass",
    ):
        assert list(mentions(text)), text
    assert not list(mentions('"""The text of a rehearsal."""'))


def test_presentation_is_used_by_rehearsals_only() -> None:
    """The pages of rehearsals are imported by `rehearsal/` and by the command that starts one."""
    modules = {f"gpuinfra.{name.removesuffix('.py').replace('/', '.')}" for name in PRESENTATION}
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("rehearsal/") or name in REGISTRATION | PRESENTATION:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.ImportFrom) and node.module in modules), f"{name} line {node.lineno}"
