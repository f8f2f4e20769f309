"""From a stack's name or a file to a declaration that can be built.

Both forms are read: a Pulumi stack file, whose `config` holds the declaration under `gpuinfra:cluster`, and the declaration alone.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from gpuinfra.errors import SpecError, UsageError
from gpuinfra.findings import Finding, Level
from gpuinfra.shipped import shipped
from gpuinfra.spec.document import Document, Route, read
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.shown import shown

KEY = "gpuinfra:cluster"


@dataclass(frozen=True, kw_only=True)
class LoadedStack:
    """A stack's declaration and where it was read."""

    name: str
    path: Path
    spec: ClusterSpec
    config: dict[str, object] = field(default_factory=dict)
    """Everything else in the stack file's `config`, such as `aws:region`."""
    findings: tuple[Finding, ...] = ()
    """Warnings and notes; errors were raised."""
    document: Document | None = field(default=None, repr=False)
    """The file as it was read, for the lines of findings."""
    route: Route = ()
    """Where in the document the declaration is."""


def read_stack(name_or_path: str | Path) -> LoadedStack:
    """Read and parse a stack without asking the rules. Raises `SpecError` where it cannot be parsed."""
    path = find_stack(name_or_path)
    document = read(path)
    body, route, config = _body(document)
    spec = parse_spec(body, document, route)
    return LoadedStack(name=stack_name(path), path=path, spec=spec, config=config, document=document, route=route)


def parse_spec(value: object, document: Document | None = None, route: Route = ()) -> ClusterSpec:
    """A declaration from plain values. Raises `SpecError` with every reason at once."""
    from pydantic import ValidationError

    from gpuinfra.spec import messages

    if not isinstance(value, dict):
        what = f"is {shown(value)}; allowed is a mapping with at least name, where and pools"
        raise SpecError(
            [with_line(Finding(level=Level.ERROR, path="", message=what, rule="value_is_allowed"), document, route)]
        )
    try:
        return ClusterSpec.model_validate(value)
    except ValidationError as problem:
        errors = problem.errors(include_url=False)
        found = messages.findings(ClusterSpec, value, errors)
        routes = [messages.route_of(ClusterSpec, error["loc"]) for error in errors]
        lines = {messages.path_text(r): r for r in routes}
        raise SpecError([with_line(f, document, (*route, *lines.get(f.path, ()))) for f in found]) from None
    except RecursionError:
        message = "is nested too deeply"
        raise SpecError([Finding(level=Level.ERROR, path="", message=message, rule="value_is_allowed")]) from None


def find_stack(name_or_path: str | Path) -> Path:
    """The file of a stack: a path as given, else `Pulumi.<name>.yaml` of the project here, else one that ships with gpuinfra."""
    text = str(name_or_path)
    given = Path(text)
    try:
        if given.is_file():
            return given
        is_folder = given.is_dir()
    except (OSError, ValueError):
        raise UsageError(f"there is no stack or file {shown(text)}") from None
    if text.endswith((".yaml", ".yml", ".json")) or "/" in text:
        reason = "is a folder, not a file" if is_folder else "does not exist"
        raise UsageError(f"{text} {reason}; give a stack's name or the path of its file")
    folders = _stack_folders()
    known: dict[str, Path] = {}
    for folder in folders:
        for file in sorted(folder.glob("Pulumi.*.yaml")):
            known.setdefault(stack_name(file), file)
    if text in known:
        return known[text]
    near = get_close_matches(text, known, n=1)
    there = f"stacks here are {', '.join(sorted(known))}" if known else "no stack files were found here"
    raise UsageError(f"there is no stack {shown(text)}; {f'did you mean {near[0]}? ' if near else ''}{there}")


def stack_name(path: Path) -> str:
    """`aws-p4d` of `Pulumi.aws-p4d.yaml`."""
    stem = path.name.rsplit(".", 1)[0]
    return stem.removeprefix("Pulumi.")


def _stack_folders() -> list[Path]:
    folders: list[Path] = []
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "Pulumi.yaml").is_file():
            folders += [folder / "stacks", folder]
            break
    with contextlib.suppress(FileNotFoundError):
        folders.append(shipped("stacks"))
    return [folder for folder in folders if folder.is_dir()]


def _body(document: Document) -> tuple[object, Route, dict[str, object]]:
    value = document.value
    if isinstance(value, dict) and "config" in value and "where" not in value:
        config = value["config"]
        if not isinstance(config, dict) or KEY not in config:
            keys = [str(key) for key in config] if isinstance(config, dict) else []
            near = get_close_matches(KEY, keys, n=1, cutoff=0.5)
            hint = f"is {near[0]} meant to be {KEY}?" if near else f"put the declaration under config, {KEY}"
            raise SpecError(
                [
                    with_line(
                        Finding(level=Level.ERROR, path="config", message=f"has no {KEY}", hint=hint),
                        document,
                        ("config",),
                    )
                ]
            )
        rest = {str(key): item for key, item in config.items() if key != KEY}
        return config[KEY], ("config", KEY), rest
    return value, (), {}


def with_line(finding: Finding, document: Document | None, route: Route) -> Finding:
    """The finding with the file and line of a place in the document."""
    if document is None:
        return finding
    return replace(finding, file=document.file, line=document.line(route))
