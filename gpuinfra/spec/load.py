"""Finds and reads a stack file and parses the declaration.

The file is either a Pulumi stack file with the declaration in `config` under `gpuinfra:cluster`, or contains only the declaration.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import SpecError, UsageError
from gpuinfra.base.findings import Finding, error
from gpuinfra.base.stack_files import SUFFIXES, known_stacks, project_folder, stack_name
from gpuinfra.spec.document import Document, Route, read
from gpuinfra.spec.messages import nearest
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.shown import shown
from gpuinfra.spec.steps import FOLDER
from gpuinfra.spec.target import Gcp

KEY = "gpuinfra:cluster"
PROJECT = "gcp:project"
"""Setting of the Google Cloud provider for the project."""


@dataclass(frozen=True, kw_only=True)
class LoadedStack:
    """The declaration of a stack and the file that contains it."""

    name: str
    path: Path
    spec: ClusterSpec
    config: dict[str, object] = field(default_factory=dict)
    """Other values in the stack file's `config`, such as `aws:region`."""
    findings: tuple[Finding, ...] = ()
    """Warnings and notes. Errors are raised as exceptions."""
    document: Document | None = field(default=None, repr=False)
    """The parsed file, for line numbers in findings."""
    route: Route = ()
    """Path of the declaration in the document."""

    @property
    def declaration(self) -> Any:
        """The declaration as plain values, as the file contains it. Do not change it."""
        assert self.document is not None
        value: Any = self.document.value
        for part in self.route:
            value = value[part]
        return value

    @property
    def checksum(self) -> str:
        """Checksum of the declaration and the settings.

        When the engine creates a stack, it adds its encryption settings to the file, and writes numbers in settings as strings.
        """
        settings = {
            key: value if isinstance(value, Mapping | list) else str(value) for key, value in self.config.items()
        }
        body = {"declaration": self.spec.model_dump(mode="json"), "settings": settings}
        return hashlib.sha256(json.dumps(body, sort_keys=True, default=str).encode()).hexdigest()

    @property
    def settings(self) -> dict[str, object]:
        """The provider settings of the stack, with the project that the declaration selects.

        Each request to the cloud takes the account, the project, the subscription and the credentials from here, so that commands read the
        place in which the components create the resources. `project_agrees_with_provider` reports a setting that differs from the declaration.
        """
        where = self.spec.where
        return {**self.config, PROJECT: where.project} if isinstance(where, Gcp) and where.project else self.config


def read_stack(name_or_path: str | Path) -> LoadedStack:
    """Read and parse a stack without checking the rules. Raises `SpecError` if the stack cannot be parsed."""
    path = find_stack(name_or_path)
    return stack_in(read(path), path)


def stack_in(document: Document, path: Path) -> LoadedStack:
    """Parse the stack in a document that is or will be at this path. Raises `SpecError` if the stack cannot be parsed."""
    body, route, config = _body(document)
    spec = parse_spec(body, document, route, folder=path.parent)
    return LoadedStack(name=stack_name(path), path=path, spec=spec, config=config, document=document, route=route)


def parse_spec(
    value: object, document: Document | None = None, route: Route = (), *, folder: Path | None = None
) -> ClusterSpec:
    """Parse a declaration from plain values. Raises `SpecError` with all validation errors.

    File paths in `software.steps` are relative to `folder`, or to the current folder if it is None.
    """
    from pydantic import ValidationError

    from gpuinfra.spec import kinds, messages

    if not isinstance(value, dict):
        what = f"is {shown(value)}; allowed: a mapping with at least name, where and pools"
        raise SpecError([with_line(error("", what, rule="value_is_allowed"), document, route)])
    try:
        return ClusterSpec.model_validate(value, context={FOLDER: folder})
    except ValidationError as problem:
        errors = problem.errors(include_url=False)
        problems = kinds.without_fields_of_other_kinds(value, messages.findings(ClusterSpec, value, errors))
        routes = [messages.route_of(ClusterSpec, one["loc"]) for one in errors]
        # A finding about the kind of an entry replaces the findings about its fields.
        routes += [(*r[:depth], "kind") for r in routes for depth in range(len(r))]
        lines = {messages.path_text(r): r for r in routes}
        raise SpecError([with_line(f, document, (*route, *lines.get(f.path, ()))) for f in problems]) from None
    except RecursionError:
        raise SpecError([error("", "is nested too deeply", rule="value_is_allowed")]) from None


def find_stack(name_or_path: str | Path) -> Path:
    """Return the stack file: the given path, `Pulumi.<name>.yaml` in the current project, or a stack file that ships with gpuinfra."""
    text = str(name_or_path)
    given = Path(text)
    try:
        if given.is_file():
            return given
        is_folder = given.is_dir()
    except (OSError, ValueError):
        raise UsageError(
            f"{shown(text)} is not a stack or file; specify the name of a stack or the path of its file"
        ) from None
    if text.endswith(SUFFIXES) or "/" in text:
        reason = "is a folder, not a file" if is_folder else "does not exist"
        raise UsageError(f"{text} {reason}; specify the name of a stack or the path of its file")
    stacks = known_stacks()
    if text in stacks:
        return stacks[text]
    near = nearest(text, list(stacks))
    there = f"available stacks: {', '.join(sorted(stacks))}" if stacks else "this project has no stack files"
    raise UsageError(f"stack {shown(text)} does not exist; {f'did you mean {near}? ' if near else ''}{there}")


CLONE_OF = "gpuinfra:clone-of"
"""Setting in a cloned stack file. It contains the name, region and stack references of the original. A clone in that region gets the original names."""


def project_name(path: Path) -> str:
    """Return the name of the Pulumi project of a stack file, or `gpuinfra`."""
    folder = project_folder(path.resolve().parent)
    value = read(folder / "Pulumi.yaml").value if folder else None
    name = value.get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) else "gpuinfra"


def _body(document: Document) -> tuple[object, Route, dict[str, object]]:
    value = document.value
    if isinstance(value, dict) and "config" in value and "where" not in value:
        config = value["config"]
        if not isinstance(config, dict) or KEY not in config:
            keys = [str(key) for key in config] if isinstance(config, dict) else []
            near = nearest(KEY, keys)
            hint = f"rename {near} to {KEY}" if near else f"put the declaration in config under {KEY}"
            missing = error("config", f"has no {KEY}", hint, rule="field_is_given")
            raise SpecError([with_line(missing, document, ("config",))])
        rest = {str(key): item for key, item in config.items() if key != KEY}
        return config[KEY], ("config", KEY), rest
    return value, (), {}


def with_line(finding: Finding, document: Document | None, route: Route) -> Finding:
    """Return the finding with the file and line number added."""
    if document is None:
        return finding
    return replace(finding, file=document.file, line=document.line(route))
