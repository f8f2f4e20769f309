"""A declaration as plain values, and the edits that turn it into its clone."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from typing import Any

from gpuinfra.base.errors import UsageError
from gpuinfra.base.findings import Finding, Level
from gpuinfra.base.safe_text import one_line
from gpuinfra.base.words import counted
from gpuinfra.clouds.region.second_region import Manual
from gpuinfra.region.clone.model import CloneChange
from gpuinfra.spec.document import Route
from gpuinfra.spec.shown import looks_secret, shown

_PART = re.compile(r"([A-Za-z_][\w:-]*)((?:\[\d+\])*)(?:\.|$)")

HIDDEN = "(secret)"
"""Shown instead of a secret."""


class Draft:
    """The declaration of the clone while it is being created."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.value: dict[str, Any] = copy.deepcopy(value)
        self.changes: list[CloneChange] = []
        """Each edit of the declaration with its reason."""
        self.config: list[CloneChange] = []
        """Edits of the settings of the stack file outside the declaration."""
        self.findings: list[Finding] = []
        self.manual: list[Manual] = []
        """What the stack file cannot copy."""

    @property
    def failed(self) -> bool:
        """Whether there is an error."""
        return any(one.level is Level.ERROR for one in self.findings)

    def get(self, route: Route) -> Any:
        """Return the value at a path, or None."""
        return value_at(self.value, route)

    def set(self, route: Route, after: object, reason: str, *, secret: bool = False) -> None:
        """Set a value, or remove it if `after` is None. An edit that changes nothing is not recorded. `secret` hides the previous value."""
        before = self.get(route)
        if before == after:
            return
        hidden = HIDDEN if secret else copy.deepcopy(before)
        self.changes.append(CloneChange(route=route, before=hidden, after=copy.deepcopy(after), reason=reason))
        put(self.value, route, copy.deepcopy(after))


def value_at(value: Any, route: Route) -> Any:
    """Return the value at a path, or None if there is none."""
    for part in route:
        if isinstance(part, int):
            if not isinstance(value, list) or part >= len(value):
                return None
            value = value[part]
        else:
            if not isinstance(value, dict) or part not in value:
                return None
            value = value[part]
    return value


def put(value: Any, route: Route, after: object) -> None:
    """Set the value at a path in place, or remove it if `after` is None. Missing mappings in the path are created.

    Raises `TypeError` or `IndexError` if the path does not fit the value.
    """
    for index, part in enumerate(route[:-1]):
        if isinstance(value, dict) and part not in value:
            if after is None:
                return
            value[part] = [] if isinstance(route[index + 1], int) else {}
        value = value[part]
    last = route[-1]
    if isinstance(value, list):
        if not isinstance(last, int):
            raise TypeError("a list entry needs an index")
        if last == len(value):
            value.append(after)
        elif after is None:
            del value[last]
        else:
            value[last] = after
    elif after is None:
        value.pop(last, None)
    else:
        value[last] = after


def apply(value: Any, changes: Iterable[CloneChange], prefix: Route = ()) -> None:
    """Apply edits in place. `prefix` is the path of the declaration in the document."""
    for change in changes:
        put(value, (*prefix, *change.route), copy.deepcopy(change.after))


def put_given(draft: Draft, text: str, route: Route, value: object) -> None:
    """Apply a value of `--set`. Raises `UsageError` if it does not fit the result of earlier edits or values."""
    try:
        draft.set(route, value, "set with --set")
    except (TypeError, IndexError):
        raise UsageError(
            f"--set {_shown(text)} does not match a value in the clone; use --set with the complete value of the parent field"
        ) from None


def route_of(text: str, value: Any) -> Route:
    """Parse a path such as `pools[0].capacity[0].id`. A single entry that is not in a list has the index 0.

    Raises `UsageError` if the text is not a path, or leads into a list that has no such entry.
    """
    route: list[str | int] = []
    rest = text
    while rest:
        match = _PART.match(rest)
        if not match or match.end() == 0:
            raise UsageError(
                f"--set {_shown(text)} is not a path; allowed: a path such as pools[0].capacity[0].id=VALUE"
            )
        route.append(match[1])
        route.extend(int(number) for number in re.findall(r"\d+", match[2]))
        rest = rest[match.end() :]
    if not route or text.endswith("."):
        raise UsageError(f"--set {_shown(text)} is not a path; allowed: a path such as pools[0].capacity[0].id=VALUE")
    parts: list[str | int] = []
    for part in route:
        here = value_at(value, tuple(parts))
        if isinstance(part, int):
            if isinstance(here, dict) and part == 0:
                continue
            length = len(here) if isinstance(here, list) else 0
            if part > length:
                raise UsageError(
                    f"--set {_shown(text)} uses index {part}, but the list has {counted(length, 'entry', 'entries')}"
                )
        elif here is not None and not isinstance(here, dict):
            raise UsageError(f"--set {_shown(text)} selects a key of {shown(here)}, which is not a mapping")
        parts.append(part)
    return tuple(parts)


def leaves(value: object, route: Route = ()) -> Iterator[tuple[Route, str]]:
    """Yield each text in a value with its path."""
    if isinstance(value, str):
        yield route, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*route, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*route, index))


def _shown(text: str) -> str:
    """Return a path for a message. `shown` describes texts with brackets instead."""
    return shown(text) if looks_secret(text) else repr(one_line(text, 60))
