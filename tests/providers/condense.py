"""Condenses a published recording: `python -m tests.providers.condense --source S --commit C --license L FILE...`.

FILE is the `grpc.json` (the log of PULUMI_DEBUG_GRPC) or the `stack.json` (an exported state) of a provider's upgrade
tests, or an example of Azure's REST API with `--example TYPE`. The state of a deployment gives one `Create` for each
resource, and an example gives one `Create`. The result is printed as JSON, see the package's documentation.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuinfra_rehearsal.cloud.core import registry, wire
from gpuinfra_rehearsal.cloud.core.sdk import Property, Type, fields

ACCOUNT = "123456789012"
SHORT = "IyEvYmluL2Jhc2gK"
"""Replaces user data, which can be thousands of characters."""
CALLS = ("Check", "Diff", "Create", "Read", "Invoke")
Exchange = dict[str, Any]
_FREE = (
    "name",
    "description",
    "tags",
    "tagsAll",
    "tagSpecifications",
    "policy",
    "assumeRolePolicy",
    "userData",
    "names",
    "zoneIds",
    "ids",
)
"""Properties with free text or lists of any length: another text is not another fact."""


def of_log(lines: list[str], package: str) -> Iterator[Exchange]:
    """The exchanges of a log of PULUMI_DEBUG_GRPC, previews left out."""
    for line in lines:
        entry = json.loads(line)
        call = entry["method"].rsplit("/", 1)[1]
        request = entry.get("request") or {}
        if call not in CALLS or request.get("preview") or _package(entry, request) != package:
            continue
        if entry.get("progress") == "request_started" or "ResourceProvider" not in entry["method"]:
            continue
        urn = str(request.get("urn") or "").split("::")
        answer = entry.get("response")
        made: Exchange = {
            "call": call,
            "type": str(request.get("tok") or urn[2].rpartition("$")[2]),
            "name": "" if call == "Invoke" else urn[3],
            "given": _given(call, request),
        }
        if answer is None:
            yield made | {"error": "; ".join(map(str, entry.get("errors") or []))[:300]}
        else:
            yield made | {"answer": _answer(call, answer)}


def _package(entry: dict[str, Any], request: dict[str, Any]) -> str:
    """The provider's package. Older logs do not name it."""
    named = (entry.get("metadata") or {}).get("name")
    token = str(request.get("tok") or str(request.get("urn") or "::::").split("::")[2].rpartition("$")[2])
    return str(named or token.partition(":")[0])


def _given(call: str, request: dict[str, Any]) -> Any:
    if call == "Check":
        return request.get("news") or {}
    if call == "Diff":
        return {"old": request.get("oldInputs") or request.get("olds") or {}, "new": request.get("news") or {}}
    if call == "Read":
        return {
            "id": request.get("id"),
            "inputs": request.get("inputs") or {},
            "state": request.get("properties") or {},
        }
    return request.get("args" if call == "Invoke" else "properties") or {}


def _answer(call: str, answer: dict[str, Any]) -> dict[str, Any]:
    keys = {
        "Check": ("inputs", "failures"),
        "Diff": ("diffs", "replaces", "deleteBeforeReplace", "stables"),
        "Create": ("id", "properties"),
        "Read": ("id", "inputs", "properties"),
        "Invoke": ("return", "failures"),
    }[call]
    return {key: answer[key] for key in keys if answer.get(key)}


def of_state(state: dict[str, Any], package: str) -> Iterator[Exchange]:
    """One creation for each resource of an exported state."""
    for one in (state.get("deployment") or state).get("resources") or []:
        if one["type"].split(":")[0] == package and one.get("custom"):
            yield {
                "call": "Create",
                "type": one["type"],
                "name": one["urn"].split("::")[3],
                "given": one.get("inputs") or {},
                "answer": {"id": one["id"], "properties": one.get("outputs") or {}},
            }


def of_example(example: dict[str, Any], token: str) -> Exchange:
    """The request and the answer of an example of Azure's REST API, in the form of the provider. The provider has the
    parameters of the path and the fields of the body as inputs, and no level `properties`."""
    type = registry.sdk_of(token).resource(token)
    parameters = dict(example["parameters"])
    body = next((parameters.pop(name) for name, one in [*parameters.items()] if isinstance(one, dict)), {})
    given = {name: value for name, value in parameters.items() if name in type.inputs}
    answers = example["responses"]
    properties = _provider_form(answers.get("200", answers.get("201"))["body"], type.outputs)
    return {
        "call": "Create",
        "type": token,
        "name": str(properties["name"]),
        "given": given | _provider_form(body, type.inputs),
        "answer": {"id": properties["id"], "properties": properties},
    }


def _provider_form(body: Any, declared: Mapping[str, Property]) -> Any:
    """An object without the levels `properties` that the SDK does not declare. Identities are a list in the inputs."""
    if not isinstance(body, dict):
        return body
    if "properties" in body and "properties" not in declared:
        body = {name: value for name, value in body.items() if name != "properties"} | body["properties"]
    return {name: _of_type(value, declared[name].type) if name in declared else value for name, value in body.items()}


def _of_type(value: Any, type: Type) -> Any:
    if type.kind == "list" and isinstance(value, dict):
        return sorted(value)
    if type.kind == "list" and isinstance(value, list) and type.item:
        return [_of_type(item, type.item) for item in value]
    if type.kind == "map" and isinstance(value, dict) and type.item:
        return {name: _of_type(item, type.item) for name, item in value.items()}
    if type.kind == "union":
        return _of_type(value, type.options[0])
    return _provider_form(value, fields(type.folder, type.name)) if type.kind == "object" and type.folder else value


def shape(value: Any) -> Any:
    """The kinds of values: two exchanges of one shape are one fact."""
    if isinstance(value, dict):
        return tuple((key, "text" if key in _FREE else shape(item)) for key, item in sorted(value.items()) if item)
    if isinstance(value, list):
        return tuple(sorted({shape(item) for item in value}, key=repr))
    if isinstance(value, str):
        return value if re.fullmatch(r"[A-Za-z]{0,20}", value) else "text"
    return type(value).__name__


def fact(one: Exchange) -> Any:
    """What is new in an exchange. Two exchanges with equal facts are kept once."""
    if one["call"] == "Diff" and "answer" in one and not one["answer"].get("diffs"):
        return one["call"], one["type"], shape(one["answer"])
    return one["call"], one["type"], shape(one["given"]), shape(one.get("answer")), shape(one.get("error"))


def condense(exchanges: list[Exchange], known: set[Any]) -> list[Exchange]:
    """Keep one exchange of each shape, and the creation of each resource that a kept exchange refers to."""
    kept: dict[Any, int] = {}
    chosen: set[int] = set()
    times: dict[int, int] = {}
    for number, one in enumerate(exchanges):
        key = fact(one)
        if key in kept:
            times[kept[key]] += 1
        else:
            kept[key], times[number] = number, 1
            if key not in known:
                chosen.add(number)
                known.add(key)
    made = {one["answer"]["id"]: number for number, one in enumerate(exchanges) if _creates(one)}
    todo = list(chosen)
    while todo:
        for id in _texts(exchanges[todo.pop()]["given"]):
            if (number := made.get(id)) is not None and number not in chosen:
                chosen.add(number)
                todo.append(number)
    return [{**exchanges[number], "times": times.get(number, 1)} for number in sorted(chosen)]


def _creates(one: Exchange) -> bool:
    return one["call"] == "Create" and "answer" in one


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def tidy(value: Any) -> Any:
    """Remove what belongs to the recording account: its number, secrets, and metadata of the provider."""
    if isinstance(value, dict):
        if wire.SIGNATURE in value and "ciphertext" in value:
            return "[secret]"
        return {
            key: SHORT if key == "userData" and item else tidy(item)
            for key, item in value.items()
            if key == "__defaults" or not key.startswith("__")
        }
    if isinstance(value, list):
        return [tidy(item) for item in value]
    if isinstance(value, str):
        return re.sub(r"(?<![0-9a-fA-F])\d{12}(?![0-9a-fA-F])", ACCOUNT, value)
    return value


def main(argv: list[str]) -> None:
    """See the module's documentation."""
    parser = argparse.ArgumentParser()
    for name in ("source", "commit", "license", "provider", "region"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--types", default="", help="regular expression of the types to keep")
    parser.add_argument("--example", default="", help="type of the resource that an example creates")
    parser.add_argument("file", nargs="+", type=Path)
    given = parser.parse_args(argv)
    package = given.provider.split()[0]
    known: set[Any] = set()
    exchanges: list[Exchange] = []
    for file in given.file:
        text = file.read_text(encoding="utf-8")
        found = (
            [of_example(json.loads(text), given.example)]
            if given.example
            else of_log([line for line in text.splitlines() if line.strip()], package)
            if text.startswith('{"method"')
            else of_state(json.loads(text), package)
        )
        exchanges += condense([one for one in map(tidy, found) if re.search(given.types, one["type"])], known)
    header = {name: getattr(given, name) for name in ("source", "commit", "license", "provider", "region")}
    sys.stdout.write(written({**header, "exchanges": exchanges}))


def written(recording: dict[str, Any]) -> str:
    """A condensed recording as text, one exchange on each line."""
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in recording.items() if key != "exchanges"]
    calls = ",\n".join("  " + json.dumps(one, sort_keys=True) for one in recording["exchanges"])
    return "{\n" + ",\n".join([*lines, ' "exchanges": [\n' + calls + "\n ]"]) + "\n}\n"


if __name__ == "__main__":
    main(sys.argv[1:])
