"""Compares the stand-in with real providers: `python -m gpuinfra_rehearsal.cloud.compare FILE...`.

FILE is the log that `PULUMI_DEBUG_GRPC=FILE pulumi up` (or `preview`, `refresh`) writes for a real account. Each
recorded provider call is replayed against an empty stand-in cloud. The command lists what only one of the two rejects,
fills in, replaces or returns. It does not access an account.

Generated values (IDs, addresses, names with a random suffix, times) are not compared. For outputs, the command compares
the set of properties, their types, and values that are words, numbers or booleans. Empty text, an empty list and a
missing output are equal. A recording contains the inputs of the stack. Review it before you share it. The exit code
is 0 without differences, 1 with differences, and 2 if the file is not a recording.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import grpc
from google.protobuf import json_format
from pulumi.runtime.proto import provider_pb2

from gpuinfra.base.errors import reason_of
from gpuinfra_rehearsal.cloud.core import registry, replace, wire
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.fleet import Fleet
from gpuinfra_rehearsal.cloud.core.provider import Provider

SERVICE = "/pulumirpc.ResourceProvider/"
REDACTED = "[secret]"
"""The placeholder that the engine writes for a secret."""
_REQUESTS = {
    "Configure": provider_pb2.ConfigureRequest,
    "Check": provider_pb2.CheckRequest,
    "Diff": provider_pb2.DiffRequest,
    "Create": provider_pb2.CreateRequest,
    "Read": provider_pb2.ReadRequest,
    "Invoke": provider_pb2.InvokeRequest,
}
_WORD = re.compile(r"[A-Za-z][A-Za-z_/ -]{0,40}")
_SHORTEST_ID = 8
"""Minimum length of an ID. Shorter strings are treated as words and are not translated."""


class NoRecording(Exception):
    """Raised if the file was not written by PULUMI_DEBUG_GRPC."""


@dataclass(frozen=True, order=True, kw_only=True)
class ProviderDifference:
    """One difference between the stand-in and the provider. Identical differences in several resources are counted
    together."""

    type: str
    call: str
    property: str
    what: str

    def __str__(self) -> str:
        where = f"{self.type}: {self.call}" + (f" {self.property}" if self.property else "")
        return f"{where}: {self.what}"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One provider call and its response."""

    package: str
    call: str
    request: dict[str, Any]
    response: dict[str, Any] | None
    """None if the provider returned an error."""
    error: str


def read(path: Path) -> Iterator[Recorded]:
    """Return the calls to the providers that the stand-in replaces, in order."""
    packages = {one.package for one in registry.installed()}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NoRecording(f"{path} cannot be read: {reason_of(error)}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            method, package = str(entry["method"]), str((entry.get("metadata") or {}).get("name"))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise NoRecording(f"{path}:{number} is not a line that PULUMI_DEBUG_GRPC writes") from None
        # Older engines write one line per call. Newer engines write one line at the start and one at the end.
        if not method.startswith(SERVICE) or package not in packages or entry.get("progress") == "request_started":
            continue
        yield Recorded(
            package=package,
            call=method.removeprefix(SERVICE),
            request=entry.get("request") or {},
            response=entry.get("response"),
            error="; ".join(str(one) for one in entry.get("errors") or [])[:300],
        )


def compare(calls: Iterator[Recorded], folder: Path) -> dict[ProviderDifference, int]:
    """Return the number of resources for each difference. The stand-in stores its files in `folder`."""
    cloud = Cloud(folder, faults=[], operation="compare")
    cloud.fleet = Fleet(cloud, None, "a comparison has no nodes")
    try:
        replay = _Replay(cloud)
        differences: dict[ProviderDifference, int] = {}
        for call in calls:
            if call.call in _REQUESTS:
                for difference in replay.again(call):
                    differences[difference] = differences.get(difference, 0) + 1
        return differences
    finally:
        cloud.close()


class _Refused(Exception):
    """Raised if the stand-in returned an error."""


class _Context:
    """The part of a gRPC context that the provider uses."""

    def peer(self) -> str:
        return "recording"

    def set_trailing_metadata(self, _: object) -> None:
        return None

    def abort(self, code: grpc.StatusCode, text: str) -> NoReturn:
        raise _Refused(text)


class _Replay:
    """Replays recorded calls, with the stand-in's IDs in place of the recorded IDs."""

    def __init__(self, cloud: Cloud) -> None:
        self._providers = {one.package: Provider(one.package, cloud) for one in registry.installed()}
        self._ids: dict[str, str] = {}

    def again(self, recorded: Recorded) -> Iterator[ProviderDifference]:
        """Replay one call and yield the differences."""
        if recorded.request.get("preview"):
            return
        kind = str(
            recorded.request.get("type")
            or recorded.request.get("tok")
            or _token(str(recorded.request.get("urn") or ""))
        )
        request = json_format.ParseDict(
            self._ours(recorded.request), _REQUESTS[recorded.call](), ignore_unknown_fields=True
        )
        provider = self._providers[recorded.package]
        try:
            answer = getattr(provider, recorded.call)(request, _Context())
        except _Refused as refused:
            if recorded.response is not None:
                yield ProviderDifference(
                    type=kind, call=recorded.call, property="", what=f"only the stand-in refuses: {refused}"[:400]
                )
            return
        if recorded.response is None:
            yield ProviderDifference(
                type=kind, call=recorded.call, property="", what=f"only the provider refuses: {recorded.error}"
            )
            return
        ours = json_format.MessageToDict(answer)
        differ = {"Check": _check, "Diff": _diff, "Create": _create, "Read": _read, "Invoke": _invoke}.get(
            recorded.call
        )
        if differ is not None:
            for name, what in differ(self._ours(recorded.response), ours):
                yield ProviderDifference(type=kind, call=recorded.call, property=name, what=what)
        if recorded.call == "Diff":
            for name, what in _stables(kind, recorded):
                yield ProviderDifference(type=kind, call=recorded.call, property=name, what=what)
        if recorded.call == "Create":
            self._learn(recorded.response, ours)

    def _learn(self, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
        """Map recorded IDs to the stand-in's IDs, including the outputs that other resources can refer to."""
        pairs = {"id": (theirs.get("id"), ours.get("id"))}
        outputs, made = theirs.get("properties") or {}, ours.get("properties") or {}
        pairs |= {
            name: (value, made.get(name))
            for name, value in outputs.items()
            if name.endswith(("arn", "Arn", "Id", "id"))
        }
        for before, after in pairs.values():
            if isinstance(before, str) and isinstance(after, str) and len(before) >= _SHORTEST_ID and before != after:
                self._ids[before] = after

    def _ours(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._ours(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._ours(item) for item in value]
        return self._ids.get(value, value) if isinstance(value, str) else value


def _check(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Compare rejected inputs and default values."""
    refused = {str(one.get("property") or "") for one in theirs.get("failures") or []}
    refuses = {str(one.get("property") or "") for one in ours.get("failures") or []}
    for name in sorted(refused - refuses):
        yield name, "only the provider refuses it"
    for name in sorted(refuses - refused):
        yield name, "only the stand-in refuses it"
    if refused or refuses:
        return
    given, filled = theirs.get("inputs") or {}, ours.get("inputs") or {}
    made_up = {str(name) for name in given.get("__defaults") or []}
    for name in sorted({*given, *filled} - {"__defaults"}):
        if name not in filled:
            yield name, f"only the provider fills it in ({_short(given[name])})"
        elif name not in given:
            yield name, f"only the stand-in fills it in ({_short(filled[name])})"
        elif name not in made_up and _differ(given[name], filled[name]):
            yield name, f"the provider makes it {_short(given[name])}, the stand-in {_short(filled[name])}"


def _diff(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Compare changed inputs and inputs that force replacement."""
    for field, words in (("diffs", "counts it as a change"), ("replaces", "replaces because of it")):
        real, played = set(theirs.get(field) or ()), set(ours.get(field) or ())
        for name in sorted(real - played):
            yield str(name), f"only the provider {words}"
        for name in sorted(played - real):
            yield str(name), f"only the stand-in {words}"
    if bool(theirs.get("deleteBeforeReplace")) != bool(ours.get("deleteBeforeReplace")):
        who = "provider" if theirs.get("deleteBeforeReplace") else "stand-in"
        yield "", f"only the {who} deletes before it replaces"


def _stables(kind: str, recorded: Recorded) -> Iterator[tuple[str, str]]:
    """Compare the inputs whose change replaces the resource. The provider lists unchanged inputs in
    `stables`. An input that the recorded provider does not know is not compared."""
    response = recorded.response or {}
    if "stables" not in response:
        return
    real = {str(name) for name in (*response["stables"], *(response.get("replaces") or ()))}
    ours = {name for name in replace.inputs(kind) if "." not in name}
    sent = {name for field in ("olds", "oldInputs", "news") for name in recorded.request.get(field) or {}}
    for name in sorted(real - ours):
        yield name, "only the provider replaces the resource after a change"
    for name in sorted((ours & sent) - real):
        yield name, "only the stand-in replaces the resource after a change"


def _read(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Compare what a refresh or an import writes to the state: the outputs, and the inputs as they are in the cloud."""
    if bool(theirs.get("id")) != bool(ours.get("id")):
        yield "", f"only the {'provider' if theirs.get('id') else 'stand-in'} finds the resource"
        return
    yield from _shape(theirs.get("properties") or {}, ours.get("properties") or {})
    for name, what in _shape(theirs.get("inputs") or {}, ours.get("inputs") or {}):
        yield f"inputs.{name}", what


def _create(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Compare the set of outputs, their types, and values that are not generated."""
    yield from _shape(theirs.get("properties") or {}, ours.get("properties") or {})


def _invoke(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _shape(theirs.get("return") or {}, ours.get("return") or {})


def _shape(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in sorted({*theirs, *ours}):
        if name.startswith("__"):
            continue
        real, played = _kind(theirs.get(name)), _kind(ours.get(name))
        if played == "nothing" and real != "nothing":
            yield name, f"only the provider returns it ({real})"
        elif real == "nothing" and played != "nothing":
            yield name, f"only the stand-in returns it ({played})"
        elif real != played and REDACTED not in (theirs.get(name), ours.get(name)):
            yield name, f"the provider returns {real}, the stand-in {played}"
        elif _fixed(theirs.get(name)) and _fixed(ours.get(name)) and theirs[name] != ours[name]:
            yield name, f"the provider returns {_short(theirs[name])}, the stand-in {_short(ours[name])}"
        else:
            for inner, what in _inside(_peeled(theirs.get(name)), _peeled(ours.get(name))):
                yield f"{name}.{inner}", what


def _inside(theirs: Any, ours: Any) -> Iterator[tuple[str, str]]:
    """Compare the fields of objects, and of the first objects of lists."""
    if isinstance(theirs, list) and isinstance(ours, list) and theirs and ours:
        theirs, ours = _peeled(theirs[0]), _peeled(ours[0])
    if isinstance(theirs, dict) and isinstance(ours, dict):
        yield from _shape(theirs, ours)


def _peeled(value: Any) -> Any:
    return value.get("value") if isinstance(value, dict) and wire.SIGNATURE in value else value


def _fixed(value: Any) -> bool:
    """Return whether a value is a setting, not a generated value."""
    return isinstance(value, (bool, int, float)) or (isinstance(value, str) and bool(_WORD.fullmatch(value)))


def _kind(value: Any) -> str:
    if isinstance(value, dict) and wire.SIGNATURE in value:
        return _kind(value.get("value"))
    if value in ("", [], {}):
        return "nothing"
    words = {bool: "true or false", str: "text", dict: "an object", list: "a list", int: "a number", float: "a number"}
    return words.get(type(value), "nothing")


def _differ(theirs: Any, ours: Any) -> bool:
    """Return whether two values differ. A redacted secret never differs."""
    return REDACTED not in (theirs, ours) and _plain(theirs) != _plain(ours)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        if wire.SIGNATURE in value:
            return _plain(value.get("value"))
        return {name: _plain(item) for name, item in value.items() if not name.startswith("__")}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _short(value: Any) -> str:
    text = json.dumps(_plain(value), sort_keys=True)
    return text if len(text) <= 80 else text[:77] + "..."


def _token(urn: str) -> str:
    """Return the type token of a URN, such as `aws:ec2/vpc:Vpc`. Older engines do not write the type separately."""
    parts = urn.split("::")
    return parts[2].rpartition("$")[2] if len(parts) > 3 else urn


def main(argv: list[str]) -> int:
    """Compare recordings; see the module docstring."""
    if not argv or any(word.startswith("-") for word in argv):
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    differences: dict[ProviderDifference, int] = {}
    calls = 0
    try:
        for name in argv:
            recorded = list(read(Path(name)))
            calls += len(recorded)
            with tempfile.TemporaryDirectory(prefix="gpuinfra-compare-") as folder:
                for difference, count in compare(iter(recorded), Path(folder)).items():
                    differences[difference] = differences.get(difference, 0) + count
    except NoRecording as problem:
        print(f"gpuinfra: {problem}; make one with PULUMI_DEBUG_GRPC=FILE pulumi up", file=sys.stderr)
        return 2
    for difference in sorted(differences):
        print(f"{difference}" + (f" ({differences[difference]} times)" if differences[difference] > 1 else ""))
    print(f"{calls} provider calls, {len(differences)} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
