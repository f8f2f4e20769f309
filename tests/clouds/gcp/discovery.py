"""Validation of requests by Google's discovery documents: names, types, enumerations, patterns, ranges, required fields.

The documents are part of google-api-python-client, so the tests need no network. They describe neither quotas, combinations nor Managed Lustre.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import googleapiclient.discovery_cache

from tests.clouds.gcp.requests import Call

_DOCUMENTS = Path(str(googleapiclient.discovery_cache.__file__)).with_name("documents")
_READ_ONLY = " is read-only"
_RANGES = {"int32": 31, "uint32": 32, "int64": 63, "uint64": 64}


@functools.cache
def document(api: str) -> dict[str, Any]:
    """One document, `compute.v1`."""
    return json.loads((_DOCUMENTS / f"{api}.json").read_text())


def findings(call: Call) -> list[str]:
    """The errors of a request by Google's document."""
    described = document(call.api)
    method = _method(described, call.method)
    if method is None:
        return [f"{call.api} has no method {call.method}"]
    found = _parameters(call, {**described.get("parameters", {}), **method.get("parameters", {})})
    if call.body is not None:
        if "request" not in method:
            return [*found, f"{call.method} takes no body"]
        found += _value(described["schemas"], method["request"], call.body, call.method)
        found += _required(described["schemas"][method["request"]["$ref"]], call.method, call.body)
    return found


def answer_findings(api: str, method: str, answer: Any) -> list[str]:
    """The errors of a response by Google's document: names and types. A response has read-only fields."""
    described = document(api)
    found = _method(described, method)
    if found is None:
        return [f"{api} has no method {method}"]
    return [
        one for one in _value(described["schemas"], found["response"], answer, method) if not one.endswith(_READ_ONLY)
    ]


def _method(described: dict[str, Any], path: str) -> dict[str, Any] | None:
    *resources, name = path.split(".")
    here = described
    for part in resources:
        here = here.get("resources", {}).get(part, {})
    return here.get("methods", {}).get(name)


def _parameters(call: Call, known: dict[str, Any]) -> list[str]:
    found = [f"{call.method} has no parameter {name}" for name in call.params if name not in known]
    found += [
        f"{call.method} needs {name}"
        for name, about in known.items()
        if about.get("required") and name not in call.params
    ]
    for name, value in call.params.items():
        if name in known:
            found += _value({}, known[name], value, f"{call.method}.{name}")
    return found


def _required(schema: dict[str, Any], method: str, body: dict[str, Any]) -> list[str]:
    """Members that a schema marks as required for this method."""
    return [
        f"{method} needs {name} in its body"
        for name, about in schema.get("properties", {}).items()
        if any(str(one).endswith(f".{method}") for one in about.get("annotations", {}).get("required", []))
        and name not in body
    ]


def _value(schemas: dict[str, Any], about: dict[str, Any], value: Any, path: str) -> list[str]:
    if "$ref" in about:
        about = schemas[about["$ref"]]
    kind = about.get("type")
    if kind == "object":
        return _members(schemas, about, value, path)
    if kind == "array":
        if not isinstance(value, list):
            return [f"{path} is {value!r}, not a list"]
        return [one for i, item in enumerate(value) for one in _value(schemas, about["items"], item, f"{path}[{i}]")]
    return _scalar(about, value, path)


def _members(schemas: dict[str, Any], about: dict[str, Any], value: Any, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path} is {value!r}, not an object"]
    members, others = about.get("properties", {}), about.get("additionalProperties")
    found = []
    for key, item in value.items():
        inner = members.get(key) or others
        if inner is None:
            found.append(f"{path} has no member {key}")
            continue
        if members.get(key, {}).get("readOnly"):
            found.append(f"{path}.{key}{_READ_ONLY}")
        found += _value(schemas, inner, item, f"{path}.{key}")
    return found


def _scalar(about: dict[str, Any], value: Any, path: str) -> list[str]:
    kind, form = about.get("type"), about.get("format")
    python = {"string": str, "boolean": bool, "integer": int, "number": (int, float)}.get(str(kind), object)
    if not isinstance(value, python) or (kind in ("integer", "number") and isinstance(value, bool)):  # pyright: ignore[reportArgumentType]
        return [f"{path} is {value!r}, not a {kind}"]
    found = []
    if form in _RANGES:
        try:
            number = int(value)
        except ValueError:
            return [f"{path} is {value!r}, not a {form}"]
        least = 0 if form.startswith("u") else -(2 ** _RANGES[form])
        if not least <= number < 2 ** _RANGES[form]:
            found.append(f"{path} is {value!r}, out of the range of {form}")
    for word, beyond in (("minimum", lambda limit: int(value) < limit), ("maximum", lambda limit: int(value) > limit)):
        if word in about and beyond(int(about[word])):
            found.append(f"{path} is {value!r}, its {word} is {about[word]}")
    if "enum" in about and value not in about["enum"]:
        found.append(f"{path} is {value!r}, allowed: {about['enum']}")
    if form == "google-duration" and not re.fullmatch(r"\d+(\.\d{1,9})?s", value):
        found.append(f"{path} is {value!r}, not a duration such as 3600s")
    if "pattern" in about and not re.fullmatch(about["pattern"], value):
        found.append(f"{path} is {value!r}, does not match {about['pattern']}")
    return found
