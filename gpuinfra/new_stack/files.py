"""The text of a new stack file, and the Pulumi project that it requires outside a project."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import UsageError
from gpuinfra.base.shipped import shipped
from gpuinfra.base.stack_files import project_folder
from gpuinfra.new_stack.answers import StackAnswers
from gpuinfra.new_stack.choices import about
from gpuinfra.plan.profile import profile_of
from gpuinfra.reference.fields import all_fields, flow
from gpuinfra.reference.schema import FILE as SCHEMA
from gpuinfra.spec.capacity import Capacity
from gpuinfra.spec.document import read
from gpuinfra.spec.load import KEY
from gpuinfra.spec.meanings import meaning
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.shown import shown

PROJECT = "Pulumi.yaml"
PROGRAM = "__main__.py"
OPTIONAL = ("budget.recipients", "duration_hours", "tags", "software.containers")
"""Fields that a new stack file shows as comments."""
_PLACED = ("name", "where", "pools", "storage")


@dataclass(frozen=True, kw_only=True)
class NewFile:
    """A file to write."""

    path: Path
    text: str


def find_project(folder: Path) -> Path | None:
    """Return the nearest project file in a folder or above it, as Pulumi does. None if there is none."""
    folder_of_project = project_folder(folder.resolve())
    return folder_of_project / PROJECT if folder_of_project else None


def stack_path(name: str, project: Path | None) -> Path:
    """Return the path of a new stack file: in the folder of the project for stack files, or in the current folder without a project."""
    if project is None:
        return Path(f"Pulumi.{name}.yaml")
    document = read(project).value
    inner = document.get("stackConfigDir") if isinstance(document, dict) else None
    parent = project.parent / inner if isinstance(inner, str) else project.parent
    path = (parent / f"Pulumi.{name}.yaml").resolve()
    here = Path.cwd().resolve()
    return path.relative_to(here) if path.is_relative_to(here) else path


RUNTIMES = ("python", "yaml", "nodejs")
"""Runtimes whose programs can be rehearsed and deployed (docs/guides/other-languages.md)."""


def check_project(project: Path | None) -> None:
    """Raise `UsageError` if a project has a runtime whose programs cannot be rehearsed."""
    document = read(project).value if project else None
    runtime = document.get("runtime") if isinstance(document, dict) else None
    name = runtime.get("name") if isinstance(runtime, dict) else runtime
    if project is not None and name not in RUNTIMES:
        given = f"has the runtime {shown(name)}" if name else "has no runtime"
        raise UsageError(
            f"{project} {given}, but `gpuinfra init` supports the runtimes {', '.join(RUNTIMES)}; run it in a folder outside this project"
        )


def program_problem(project: Path) -> str | None:
    """Return what the program of a project lacks, or None. It is not known whether the program reads the declaration."""
    value = read(project).value
    document: Mapping[str, Any] = value if isinstance(value, dict) else {}
    runtime, main = document.get("runtime"), document.get("main")
    if (runtime.get("name") if isinstance(runtime, dict) else runtime) != "python":
        named = "gpuinfra" in str(document.get("plugins"))
        return None if named else f"gpuinfra's plugin; add {shipped('plugin')} to plugins.providers in {project}"
    program = project.parent / (main if isinstance(main, str) else ".") / PROGRAM
    if program.is_file():
        return None
    return f"the program {program}; copy {shipped('stacks') / PROGRAM}"


def files_of(answers: StackAnswers, path: Path) -> tuple[NewFile, ...]:
    """Return the files to write for a stack file at `path`: the stack file, preceded by the project if there is none.

    Raises `UsageError` if the folder has a program but no project, because the program is not known to read a declaration.
    """
    project = find_project(path.parent)
    root = project.parent if project else path.parent.resolve()
    stack = NewFile(path=path, text=stack_text(answers, _reference(SCHEMA, path.parent, root)))
    if project is not None:
        return (stack,)
    program = path.parent / PROGRAM
    if program.exists():
        raise UsageError(
            f"{program} exists, but the folder has no {PROJECT}; run `gpuinfra init` in a different folder, or write {PROJECT} first"
        )
    text = (shipped("stacks") / PROGRAM).read_text(encoding="utf-8")
    return (
        NewFile(path=path.parent / PROJECT, text=project_text(root)),
        NewFile(path=program, text=text),
        stack,
    )


def _reference(target: Path, folder: Path, root: Path) -> str:
    """Return the path of a file as seen from a folder: relative if the file is in the project, otherwise absolute."""
    target = target.resolve()
    if not target.is_relative_to(root):
        return str(target)
    up = len(folder.resolve().relative_to(root).parts)
    return "/".join([*([".."] * up), target.relative_to(root).as_posix()])


def project_text(root: Path) -> str:
    """Return a project file for the environment of this process."""
    lines = [
        "# Written by `gpuinfra init`. Each Pulumi.NAME.yaml in this folder is a stack of this project.",
        "name: gpuinfra",
        "description: GPU clusters",
    ]
    if sys.prefix == sys.base_prefix:
        lines.append("runtime: python")
    else:
        # The environment itself is not resolved, because its Python can be a link to one outside.
        environment = Path(sys.prefix)
        place = environment.relative_to(root) if environment.is_relative_to(root) else environment
        lines += ["runtime:", "  name: python", "  options:", f"    virtualenv: {flow(str(place))}"]
    plugin = _reference(shipped("plugin"), root, root)
    lines += [
        "plugins:",
        "  providers:",
        "    # The provider of gpuinfra, which waits until the nodes are verified. The path points to the installed package.",
        "    - name: gpuinfra",
        f"      path: {flow(plugin)}",
    ]
    return "\n".join(lines) + "\n"


def stack_text(answers: StackAnswers, schema: str) -> str:
    """Return the text of the stack file."""
    return "\n".join(_lines(answers, schema)) + "\n"


def _lines(answers: StackAnswers, schema: str) -> Iterator[str]:
    declaration = answers.declaration
    yield f"# yaml-language-server: $schema={schema}"
    yield "# Written by `gpuinfra init`. To see the meaning, limits and default of a field, run `gpuinfra explain FIELD`,"
    yield "# such as `gpuinfra explain pools.capacity`."
    yield "config:"
    if setting := profile_of(answers.cloud).region_setting:
        yield f"  {setting}: {flow(answers.region)}"
    yield f"  {KEY}:"
    for name in (*_PLACED, *(key for key in declaration if key not in _PLACED)):
        if name in declaration:
            yield from (f"    {line}" for line in _SECTIONS.get(name, _section)(answers, name, declaration[name]))
    optional = [line for path in OPTIONAL for line in _optional(path, declaration)]
    if optional:
        yield "    # Optional fields. To use one, remove the # in front of it and change the value."
        yield from (f"    {line}" for line in optional)


def _section(_: StackAnswers, name: str, value: object) -> Iterator[str]:
    yield from _comment(meaning(ClusterSpec, name) if name in ClusterSpec.model_fields else "")
    yield f"{name}: {flow(value)}"


def _pools(answers: StackAnswers, name: str, value: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{name}:"
    for pool in value:
        yield f"  - name: {flow(pool['name'])}"
        yield from (f"    {line}" for line in _comment(_machine(answers)))
        yield f"    machine: {flow(pool['machine'])}"
        entries = pool["capacity"]
        for entry in entries:
            yield from (f"    {line}" for line in _comment(_kind(entry, Capacity)))
        yield "    capacity:"
        yield from (f"      - {flow(entry)}" for entry in entries)
        yield from (
            f"    {key}: {flow(item)}" for key, item in pool.items() if key not in ("name", "machine", "capacity")
        )


def _machine(answers: StackAnswers) -> str:
    machine = answers.machine
    if machine is None or machine.gpu is None:
        return ""
    fabric = f", {machine.fabric.provider} with {machine.fabric.gbps:g} Gbit/s" if machine.fabric else ""
    return f"{machine.gpus} x {machine.gpu.name}, {machine.vcpus} vCPUs, {machine.memory_gib:,} GiB of memory{fabric}."


def _kind(entry: Mapping[str, Any], annotation: Any) -> str:
    text = about(str(entry.get("kind")), annotation)
    return f"{text}." if text else ""


def _storage(_: StackAnswers, name: str, value: list[dict[str, Any]]) -> Iterator[str]:
    yield from _comment(meaning(ClusterSpec, name))
    yield f"{name}:"
    yield from (f"  - {flow(entry)}" for entry in value)


_SECTIONS = {"pools": _pools, "storage": _storage}


def _comment(text: str) -> list[str]:
    return [f"# {' '.join(text.split())}"] if text else []


def _optional(path: str, declaration: Mapping[str, Any]) -> Iterator[str]:
    """Yield the comment for a field that the declaration does not contain: its meaning, and an example in a form that can be uncommented."""
    section, _, inner = path.partition(".")
    if section in declaration:
        return
    field = all_fields()[path][0]
    yield f"# {field.meaning.split('. ')[0].rstrip('.')}."
    yield f"#{section}: {{{field.example}}}" if inner else f"#{field.example}"
