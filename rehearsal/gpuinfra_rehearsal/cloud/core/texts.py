"""Text fields that users set: descriptions, names, tags and labels, with the characters and lengths that a cloud
documents. Most of these limits exist only in documentation, so the SDKs do not check them, and the cloud rejects the
request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from gpuinfra_rehearsal.cloud.core import wire


@dataclass(frozen=True, kw_only=True)
class Text:
    """The limits of one kind of text field."""

    types: str
    """Pulumi types, as a pattern: `aws:ec2/*`."""
    path: str
    """Path of the input, as a pattern. `tags.*` is a value and `tags.#` is a key."""
    form: str
    """Regular expression that the entire text must match."""
    most: int
    """Maximum number of characters."""
    least: int = 0
    page: str
    """The documentation."""
    code: str = "InvalidParameterValue"
    """The cloud's error code."""

    def accepts(self, text: str) -> bool:
        """Return whether the cloud accepts a text."""
        return self.least <= len(text) <= self.most and re.fullmatch(self.form, text) is not None


@dataclass(frozen=True, kw_only=True)
class TextField:
    """One text field of a resource."""

    path: str
    text: str


def texts_of(inputs: Mapping[str, Any], own_names: Iterable[str]) -> Iterator[TextField]:
    """Yield the text fields of a resource: its own name, and each description, display name, title, tag and label."""
    words = {"name", "description", "displayName", "title", *own_names}
    for path, text in _strings("", inputs):
        last = path.rsplit(".", 1)[-1]
        if last in words or any(f".{word}." in f".{path}" for word in _KEYED) or path.startswith(("tags[", "tags.")):
            yield TextField(path=path, text=text)


_KEYED = ("tags", "labels", "userLabels")


def _strings(path: str, value: Any) -> Iterator[tuple[str, str]]:
    value = wire.peel(value)
    if isinstance(value, Mapping):
        keyed = path.rsplit(".", 1)[-1] in _KEYED
        for key, item in value.items():
            if keyed:
                yield f"{path}.#", str(key)
            yield from _strings(f"{path}.{'*' if keyed else key}".lstrip("."), item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(f"{path}[]", item)
    elif isinstance(value, str) and not wire.is_unknown(value):
        yield path, value


def row_of(rows: Iterable[Text], token: str, path: str) -> Text | None:
    """Return the first row for an input."""
    return next((one for one in rows if fnmatchcase(token, one.types) and _same(one.path, path)), None)


def _same(pattern: str, path: str) -> bool:
    return pattern == path or (pattern.startswith("**.") and f".{path}".endswith(pattern[2:]))


def rejected(
    rows: Iterable[Text], token: str, inputs: Mapping[str, Any], own_names: Iterable[str]
) -> Iterator[tuple[Text, TextField]]:
    """Yield the text fields of a resource that the cloud rejects."""
    table = tuple(rows)
    for field in texts_of(inputs, own_names):
        row = row_of(table, token, field.path)
        if row and not row.accepts(field.text):
            yield row, field
