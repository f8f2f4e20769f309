"""Replays condensed recordings against an empty stand-in cloud. The package's documentation has the format."""

from __future__ import annotations

import fnmatch
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from gpuinfra_rehearsal.cloud import compare
from gpuinfra_rehearsal.cloud.compare import ProviderDifference, Recorded
from gpuinfra_rehearsal.cloud.core import registry

HERE = Path(__file__).parent
RECORDINGS = sorted((HERE / "recordings").glob("*/*.json"))
FIELDS = ("type", "call", "property", "what")
REMOVED: dict[str, set[str]] = {}
"""Recorded types that the installed SDK no longer has, by package."""
PROJECT = "urn:pulumi:recorded::recorded"


@dataclass(frozen=True, kw_only=True)
class Explained:
    """A difference that remains, with the reason. Each other field is a list of patterns."""

    type: list[str]
    call: list[str]
    property: list[str]
    what: list[str]
    reason: str

    def covers(self, one: ProviderDifference) -> bool:
        """Whether the difference is the one that is explained."""
        return all(
            any(fnmatch.fnmatchcase(getattr(one, field), pattern) for pattern in getattr(self, field))
            for field in FIELDS
        )


@dataclass(frozen=True, kw_only=True)
class Result:
    """The replay of one recording."""

    file: Path
    exchanges: int
    """Exchanges that were replayed."""
    recorded: int
    """Recorded calls that they stand for."""
    differences: Mapping[ProviderDifference, int]


def load(file: Path) -> dict[str, Any]:
    """A condensed recording."""
    return json.loads(file.read_text(encoding="utf-8"))


def is_example(file: Path) -> bool:
    """Whether the file has examples that a cloud publishes with its API, and no recorded deployment."""
    return load(file)["provider"].endswith(" example")


@cache
def replay(file: Path) -> Result:
    """Replay one recording. Properties that the installed SDK does not declare belong to an older provider and are left
    out."""
    recording = load(file)
    known = [one for one in recording["exchanges"] if is_declared(one["type"])]
    with tempfile.TemporaryDirectory(prefix="gpuinfra-replay-") as folder:
        calls = recorded({**recording, "exchanges": known}, file.parent.name)
        found = compare.compare(calls, Path(folder))
    return Result(
        file=file,
        exchanges=len(known),
        recorded=sum(one["times"] for one in known),
        differences=found,
    )


def recorded(recording: Mapping[str, Any], package: str) -> Iterator[Recorded]:
    """The exchanges as calls of the provider's protocol."""
    settings = {"region": recording["region"], "location": recording["region"], "project": "recorded"}
    yield Recorded(package=package, call="Configure", request={"args": settings}, response={}, error="")
    for one in recording["exchanges"]:
        yield Recorded(
            package=package,
            call=one["call"],
            request=_request(one),
            response=_response(one),
            error=one.get("error", ""),
        )


def _request(one: Mapping[str, Any]) -> dict[str, Any]:
    given, token = one["given"], one["type"]
    if one["call"] == "Invoke":
        return {"tok": token, "args": given}
    urn = {"urn": f"{PROJECT}::{token}::{one['name']}", "type": token, "name": one["name"]}
    if one["call"] == "Check":
        return urn | {"news": _declared(given, token, inputs=True)}
    if one["call"] == "Create":
        return urn | {"properties": _declared(given, token, inputs=True)}
    if one["call"] == "Diff":
        old, new = (_declared(given[age], token, inputs=True) for age in ("old", "new"))
        return urn | {"id": "recorded", "olds": old, "oldInputs": old, "news": new}
    state = _declared(given["state"], token, inputs=False)
    return urn | {"id": given["id"], "properties": state, "inputs": _declared(given["inputs"], token, inputs=True)}


def _response(one: Mapping[str, Any]) -> dict[str, Any] | None:
    if "error" in one:
        return None
    answer, token = dict(one["answer"]), one["type"]
    if one["call"] in ("Check", "Read") and "inputs" in answer:
        answer["inputs"] = _declared(answer["inputs"], token, inputs=True)
    if "properties" in answer:
        answer["properties"] = _declared(answer["properties"], token, inputs=False)
    if "return" in answer:
        outputs = registry.sdk_of(token).function(token).outputs
        answer["return"] = {name: value for name, value in answer["return"].items() if name in outputs}
    for key in ("stables", "diffs", "replaces"):
        if key in answer:
            answer[key] = [name for name in answer[key] if name in registry.sdk_of(token).resource(token).inputs]
    return answer


def _declared(properties: Mapping[str, Any], token: str, *, inputs: bool) -> dict[str, Any]:
    """The properties that the installed SDK declares."""
    type = registry.sdk_of(token).resource(token)
    declared = type.inputs if inputs else type.outputs
    return {name: value for name, value in properties.items() if name in declared or name == "__defaults"}


def is_declared(token: str) -> bool:
    """Whether the installed SDK has a resource type or a function."""
    sdk = registry.sdk_of(token)
    try:
        sdk.resource(token)
    except LookupError:
        try:
            sdk.function(token)
        except LookupError:
            return False
    return True


def explained(package: str) -> list[Explained]:
    """The explained differences of a package."""
    listed = YAML(typ="safe").load((HERE / "explained.yaml").read_text(encoding="utf-8")).get(package) or []
    return [Explained(reason=one["reason"], **{field: _patterns(one.get(field)) for field in FIELDS}) for one in listed]


def _patterns(given: str | list[str] | None) -> list[str]:
    return given if isinstance(given, list) else ["*" if given is None else given]
