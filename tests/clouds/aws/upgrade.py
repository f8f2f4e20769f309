"""State that the first landed version of `aws-p4d` made in a rehearsal, and what the present program would do to it.

`state-aws-p4d-0.1.0.json` is the engine's own export of that rehearsal, one resource a line, without source positions and times, and without those outputs
that repeat an input. The program of today is recorded with the ids and outputs of that state as the account's answers, so that what differs is what
the program changed; whether a difference replaces is asked of the stand-in's rules, which the engine asks in a preview too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuinfra.rehearsal.cloud.core.behaviours import of
from gpuinfra.rehearsal.cloud.core.diff import diff
from tests.clouds.names import known_as
from tests.clouds.recorder import Recording
from tests.clouds.stacks import recording_of_spec, spec_of

STATE = Path(__file__).parent / "state-aws-p4d-0.1.0.json"
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"


@dataclass
class Upgrade:
    """What an `up` of today would do to the old state."""

    replaced: dict[str, list[str]] = field(default_factory=dict)
    """Logical name -> paths that force it."""
    updated: dict[str, list[str]] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    """Parent's type, type and name."""
    removed: set[str] = field(default_factory=set)


def old_state() -> list[dict[str, Any]]:
    """The resources of the export, with every output and without marks of secrets."""
    found = []
    for row in json.loads(STATE.read_text(encoding="utf-8")):
        one = _opened(row)
        inputs = one.get("inputs") or {}
        one["outputs"] = {**inputs, **(one.get("outputs") or {})}
        if "tags" in inputs:
            one["outputs"].setdefault("tagsAll", inputs["tags"])
        found.append(one)
    return found


def _opened(value: Any) -> Any:
    if isinstance(value, dict):
        if value.get(_SIGNATURE) == _SECRET:
            return json.loads(value["plaintext"])
        return {key: _opened(item) for key, item in value.items()}
    return [_opened(item) for item in value] if isinstance(value, list) else value


def upgrade(changes: Mapping[str, Mapping[str, Any]] | None = None) -> Upgrade:
    """Today's program on the old state. `changes` alters inputs by logical name, so that the comparison itself can be tried."""
    old = {
        known_as(one["urn"]): one for one in old_state() if one.get("custom") and not one["type"].startswith("pulumi:")
    }
    held = {(one["type"], one["urn"].rsplit("::", 1)[1]): (one["id"], one["outputs"]) for one in old.values()}
    now: Recording = recording_of_spec(spec_of("aws-p4d"), stack="aws-p4d", held=held)
    told, seen = Upgrade(), set()
    for one in now.custom:
        names = [known_as(urn) for urn in (one.urn, *one.once)]
        known = next((name for name in names if name in old), None)
        if known is None:
            told.created.add(names[0])
            continue
        seen.add(known)
        before = old[known]
        if one.type.startswith("gpuinfra:"):
            continue  # our own gate: it judges again whenever anything of it changes, and replaces nothing
        inputs = {**one.inputs, **(changes or {}).get(one.name, {})}
        named = {
            key: before["inputs"].get(key) for key in before["inputs"].get("__defaults") or [] if key not in inputs
        }
        ignored = (*of(one.type).ignored, *one.ignored)
        found = [one for one in diff(one.type, before["inputs"], {**named, **inputs}, ignored) if _matters(one.path)]
        forced = [change.path for change in found if change.replace]
        if forced:
            told.replaced[one.name] = forced
        elif found:
            told.updated[one.name] = [change.path for change in found]
    told.removed = set(old) - seen
    return told


def _matters(path: str) -> bool:
    """A bundle's file lies elsewhere on every machine; its key holds the checksum."""
    return path != "source"
