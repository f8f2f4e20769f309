"""Writes the stack file of a clone: the text of the original with its comments, the edits, and the reason above each edited line.

Lines that start with `# clone: ` belong to this module. The next clone of the file removes them.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import DeploymentError, SpecError, UsageError
from gpuinfra.base.people_files import FileVersion, absent, replace_files, replaceable
from gpuinfra.region.clone.draft import put
from gpuinfra.region.clone.model import CloneChange
from gpuinfra.spec.document import Route, parse
from gpuinfra.spec.shown import looks_secret, shown

MARK = "# clone: "
_COMMENT = re.compile(r"^\s*#")
_TAIL = re.compile(r"\s#[^'\"]*$")
_SCHEMA = re.compile(r"^# yaml-language-server: .*\n", re.MULTILINE)


def render(
    text: str,
    value: dict[str, Any],
    edits: Iterable[tuple[Route, object]],
    reasons: Iterable[tuple[Route, str]],
    header: Iterable[str],
    *,
    same_folder: bool,
) -> str:
    """Return the text of the clone.

    `text` is the original, `edits` contains routes in the document and their new values, and `value` is the document with these edits.
    If the comments of the original cannot be kept, the file has only the comments of the clone.
    """
    edits, body = list(edits), ""
    try:
        body = _without_secrets(edited(_clean(text), edits))
        kept = parse(body, "").value == value
    except Exception:  # The original has a form that cannot be edited in place, such as aliases.
        kept = False
    if not kept:
        body = dumped(value)
    if not same_folder:
        body = _SCHEMA.sub("", body)
    reasons, header = list(reasons), list(header)
    for content in (body, dumped(value)):
        noted = _noted(content, reasons, header)
        with contextlib.suppress(SpecError):  # A comment inside a text of several lines changes the text.
            if parse(noted, "").value == value:
                return noted
    raise DeploymentError("the text of the clone does not match its values; report this bug")


def target(path: Path, *, force: bool) -> FileVersion:
    """Return what the file of a clone replaces: nothing, or with `force` an existing file. Raises `UsageError` if the file cannot be written."""
    check_path(path)
    if force:
        return replaceable(path)
    if path.exists() or path.is_symlink():
        raise UsageError(
            f"{path} already exists; use --output to specify a different path, or --force to replace the file"
        )
    return absent(path)


def check_path(path: Path) -> None:
    """Raise `UsageError` if a path is not a valid file path."""
    try:
        folder = path.resolve().is_dir()
        path.lstat()
    except FileNotFoundError:
        return
    except (OSError, RuntimeError, ValueError):
        raise UsageError(f"--output is {shown(str(path))}, which is not a path; specify the path of a file") from None
    if folder:
        raise UsageError(f"{path} is a folder; specify the path of a file with --output")


def write_all(files: Iterable[tuple[FileVersion, str]]) -> None:
    """Write all of these files or none. See `gpuinfra.base.people_files.replace_files`."""
    replace_files(list(files), "use a different path with --output")


def _clean(text: str) -> str:
    """Drop the comments of an earlier clone, and comments that look like secrets."""
    lines = text.removeprefix("﻿").splitlines(keepends=True)
    return "".join(
        line
        for line in lines
        if not line.lstrip().startswith(MARK) and not (_COMMENT.match(line) and looks_secret(line))
    )


def _without_secrets(text: str) -> str:
    """Drop end-of-line comments that look like secrets."""
    lines = text.splitlines(keepends=True)
    return "".join(
        _TAIL.sub("", line.rstrip("\n")) + "\n" if (tail := _TAIL.search(line)) and looks_secret(tail[0]) else line
        for line in lines
    )


def edited(text: str, edits: Iterable[tuple[Route, object]]) -> str:
    """Return the text of a YAML file with edits, and with its comments. A value of None removes the entry."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = 100_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    tree = yaml.load(text)
    for route, after in edits:
        put(tree, route, _flow(after))
    stream = io.StringIO()
    yaml.dump(tree, stream)
    return stream.getvalue()


def _flow(value: object) -> object:
    """Return a value in flow style, as in the shipped stacks: `{kind: spot, count: 2}`."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    if isinstance(value, dict):
        mapping = CommentedMap({key: _flow(item) for key, item in value.items()})
        mapping.fa.set_flow_style()
        return mapping
    if isinstance(value, list):
        sequence = CommentedSeq([_flow(item) for item in value])
        sequence.fa.set_flow_style()
        return sequence
    return value


def dumped(value: object) -> str:
    """Return a document as YAML."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt", pure=True)
    yaml.width = 100_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    yaml.dump(value, stream)
    return stream.getvalue()


def _noted(body: str, reasons: Iterable[tuple[Route, str]], header: Iterable[str]) -> str:
    """Insert the reasons above the lines of their values. The reason of a removed value is above the nearest enclosing value."""
    document = parse(body, "")
    above: dict[int, list[str]] = {}
    for route, reason in reasons:
        above.setdefault(document.line(route) or 1, []).append(reason)
    lines = body.splitlines(keepends=True)
    schema = lines[:1] if lines and lines[0].startswith("# yaml-language-server:") else []
    out = [*schema, *(f"{MARK}{line}\n" for line in header)]
    for number, line in enumerate(lines, 1):
        if number <= len(schema):
            continue
        indent = line[: len(line) - len(line.lstrip())]
        out.extend(f"{indent}{MARK}{' '.join(reason.split())}\n" for reason in above.get(number, ()))
        out.append(line)
    return "".join(out)


def reasons_of(changes: Iterable[CloneChange], prefix: Route) -> list[tuple[Route, str]]:
    """Return the comment of each change, with its path in the document."""
    return [((*prefix, *one.route), f"{one.path}: {one.reason}") for one in changes]
