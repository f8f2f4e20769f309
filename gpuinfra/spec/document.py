"""Reads YAML into plain values and records the line number of each value.

This module processes the YAML nodes itself instead of using a YAML constructor, for three reasons: each value keeps
its line number, aliases cannot expand a small file without limit, and tags cannot create objects.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuinfra.base.errors import SpecError
from gpuinfra.base.findings import error
from gpuinfra.spec.shown import shown

MAX_BYTES = 1_000_000
MAX_VALUES = 50_000
MAX_DEPTH = 30

Route = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    """The content of a YAML file as plain values."""

    file: str
    value: object
    lines: dict[Route, int] = field(default_factory=dict)

    def line(self, route: Route) -> int | None:
        """Return the line number of a value, or of the nearest enclosing value that has a line number."""
        while route:
            if route in self.lines:
                return self.lines[route]
            route = route[:-1]
        return self.lines.get(())


def read(path: Path) -> Document:
    """Read a file. Raises `SpecError` with the line and column if the file is not valid YAML."""
    file = _short(path)
    try:
        raw = path.read_bytes()
    except OSError as problem:
        raise _error(
            file, f"cannot be read: {problem.strerror or problem}", "check the path and its permissions"
        ) from None
    if len(raw) > MAX_BYTES:
        raise _error(
            file, f"is {len(raw):,} bytes; allowed: at most {MAX_BYTES:,} bytes", "check that this is the right file"
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise _error(file, f"contains invalid UTF-8 at byte {problem.start}", "save the file as UTF-8") from None
    return parse(text, file)


def parse(text: str, file: str) -> Document:
    """Parse YAML 1.2 text."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="safe", pure=True)
    try:
        root = yaml.compose(text)
    except MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = " ".join(str(problem.problem or problem.context or "syntax error").split())
        line = mark.line + 1 if mark else None
        hint = "indent with spaces, close every bracket and quote, and put a space after each colon"
        raise _error(file, f"is not valid YAML: {where}{what}", hint, line) from None
    except (YAMLError, ValueError, RecursionError) as problem:
        what = " ".join(str(problem).split())[:120] if not isinstance(problem, RecursionError) else "nested too deeply"
        raise _error(file, f"is not valid YAML: {what}", "write a mapping of field names to values") from None
    walker = _Walker(file)
    value = None if root is None else walker.plain(root, (), 0)
    return Document(file=file, value=value, lines=walker.lines)


class _Walker:
    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[Route, int] = {}
        self.seen = 0

    def plain(self, node: object, route: Route, depth: int) -> object:
        """Return the plain value of a YAML node."""
        from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

        self.seen += 1
        line = node.start_mark.line + 1  # type: ignore[attr-defined]
        self.lines[route] = line
        if self.seen > MAX_VALUES or depth > MAX_DEPTH:
            allowed = f"{MAX_VALUES:,} values" if self.seen > MAX_VALUES else f"{MAX_DEPTH} levels of nesting"
            raise _error(self.file, f"has more than {allowed}", "remove aliases that repeat other aliases", line)
        self.check_tag(node, line)
        if isinstance(node, ScalarNode):
            return _scalar(node.tag, node.value)
        if isinstance(node, SequenceNode):
            return [self.plain(child, (*route, index), depth + 1) for index, child in enumerate(node.value)]
        assert isinstance(node, MappingNode)
        mapping: dict[str, object] = {}
        merged: list[dict[str, object]] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                raise _error(
                    self.file,
                    "has a key that is a list or a mapping",
                    "write name: value",
                    key_node.start_mark.line + 1,
                )
            self.check_tag(key_node, key_node.start_mark.line + 1)
            key = str(key_node.value)
            if key == "<<" and key_node.style is None:
                merged += self.merged(value_node, route, depth)
                continue
            if key in mapping:
                at = key_node.start_mark.line + 1
                raise _error(self.file, f"repeats the key {shown(key)}", "remove one of the two entries", at)
            mapping[key] = self.plain(value_node, (*route, key), depth + 1)
            self.lines[(*route, key)] = key_node.start_mark.line + 1
        for other in merged:
            mapping = {**other, **mapping}
        return mapping

    def check_tag(self, node: object, line: int) -> None:
        """Reject a tag that is outside YAML's core schema or does not fit the node."""
        tag, style = str(node.tag), getattr(node, "style", None)  # type: ignore[attr-defined]
        # The parser resolves plain scalars such as dates and merge keys to tags outside the core schema.
        allowed = _TAGS[type(node).__name__] | (_RESOLVED if style is None else frozenset())
        if tag.removeprefix(_YAML) not in allowed or not tag.startswith(_YAML):
            given = f"!!{tag.removeprefix(_YAML)}" if tag.startswith(_YAML) else tag
            raise _error(self.file, f"has the tag {_tag_text(given)}, which has no effect", "remove it", line)

    def merged(self, node: object, route: Route, depth: int) -> list[dict[str, object]]:
        """Return the mappings of a merge key (`<<`). Keys of the mapping itself and of earlier mappings take precedence, as in Pulumi."""
        from ruamel.yaml.nodes import SequenceNode

        lines_before = dict(self.lines)
        values = [
            self.plain(one, route, depth + 1) for one in (node.value if isinstance(node, SequenceNode) else [node])
        ]
        self.lines.update(lines_before)
        if not all(isinstance(one, dict) for one in values):
            at = node.start_mark.line + 1  # type: ignore[attr-defined]
            raise _error(
                self.file,
                "has a merge key without a mapping",
                "write <<: *NAME, where NAME is the anchor of a mapping",
                at,
            )
        return [one for one in values if isinstance(one, dict)]


_YAML = "tag:yaml.org,2002:"
_TAGS = {
    "ScalarNode": frozenset({"null", "bool", "int", "float", "str"}),
    "SequenceNode": frozenset({"seq"}),
    "MappingNode": frozenset({"map"}),
}
"""Maps each kind of node to its tags in the core schema (YAML 1.2.2, chapter 10)."""
_RESOLVED = frozenset({"timestamp", "merge", "value"})


def _tag_text(tag: str) -> str:
    """Return a tag for a message. A tag with unusual characters is described instead of shown."""
    word = shown(tag.lstrip("!"))
    return repr(tag) if word == repr(tag.lstrip("!")) else word


def _scalar(tag: object, text: str) -> object:
    kind = str(tag).rsplit(":", 1)[-1]
    try:
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind == "int":
            clean = text.replace("_", "")
            return int(clean, 0) if clean.lower().lstrip("+-").startswith(("0x", "0o", "0b")) else int(clean, 10)
        if kind == "float":
            return float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan").replace(".NaN", "nan"))
    except ValueError:
        return text
    return text


def _short(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _error(file: str, message: str, hint: str, line: int | None = None) -> SpecError:
    return SpecError([replace(error("", message, hint, rule="document_is_yaml"), file=file, line=line)])
