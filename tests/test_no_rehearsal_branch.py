"""Production code does not know about rehearsals."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import gpuinfra

ROOT = Path(gpuinfra.__file__).parent
IMPORT = "gpuinfra_rehearsal"
REGISTRATION = {
    "cli/cache.py",
    "cli/complete.py",
    "cli/doctor.py",
    "cli/options.py",
    "cli/plan.py",
    "cli/rehearsals.py",
    "cli/rehearse.py",
    "cli/stacks.py",
    "cli/__init__.py",
}
"""The commands that start a rehearsal, use its stacks, check its prerequisites, complete its options, or compare resources in its cloud.
They share the protocol in `cli/rehearsals.py`."""


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
    """Only the commands that use a rehearsal refer to rehearsals."""
    found = {
        path.relative_to(ROOT).as_posix(): list(mentions(path.read_text(encoding="utf-8")))
        for path in sorted(ROOT.rglob("*.py"))
    }
    assert {name for name, where in found.items() if where} == REGISTRATION, found


def test_no_module_names_the_package_of_the_rehearsal() -> None:
    """No module imports the package, and no string contains its name, so the entry point is the only way to it."""
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in sorted(ROOT.rglob("*.py"))
        for word in mentions(path.read_text(encoding="utf-8"))
        if IMPORT in word
    ]
    assert found == []


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
