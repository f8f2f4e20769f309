"""Compares a deployed state with claims that were written by hand from vendor documentation.

`problems(state, oracle)` returns one line for each claim that does not hold, with the claim's source.
The state is a list of resources with `type`, `id`, `inputs` and `outputs`, as an engine exports it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jmespath
from ruamel.yaml import YAML

HERE = Path(__file__).parent
CLOUDS = ("aws", "azure-native", "gcp")
"""Packages whose resources claims are about."""
_JSON_TEXT = ("policy", "assumeRolePolicy")


def oracle(stack: str) -> list[dict[str, Any]]:
    """The claims about one stack."""
    return list(YAML(typ="safe").load((HERE / f"{stack}.yaml").read_text())["claims"])


def problems(state: Iterable[Mapping[str, Any]], claims: Iterable[Mapping[str, Any]]) -> list[str]:
    """The claims that do not hold, with the actual values."""
    grouped = group(state)
    return [problem for claim in claims if (problem := _problem(grouped, claim))]


def group(state: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Resources of a cloud's provider by `module_Class`, each flat: its inputs, `id`, `name` and `outputs`."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for resource in state:
        package, module, kind = [*resource["type"].split(":"), "", ""][:3]
        if package not in CLOUDS or not kind:
            continue
        inputs = {key: _readable(key, value) for key, value in dict(resource.get("inputs") or {}).items()}
        outputs = dict(resource.get("outputs") or {})
        flat = {
            **inputs,
            "id": resource.get("id"),
            "name": inputs.get("name") or outputs.get("name"),
            "outputs": outputs,
        }
        grouped.setdefault(f"{module.split('/')[0]}_{kind}", []).append(flat)
    for resources in grouped.values():
        resources.sort(key=lambda one: str(one["id"]))
    return grouped


def _problem(grouped: dict[str, list[dict[str, Any]]], claim: Mapping[str, Any]) -> str | None:
    found = jmespath.search(claim["find"], grouped) or []
    where = f"{claim['says']} ({claim['source']})"
    if "is" in claim:
        # Resources have no order of their own.
        holds = sorted(map(str, found)) == sorted(map(str, claim["is"]))
        return None if holds else f"{where}; found {found!r}, expected {claim['is']!r}"
    if "count" in claim:
        return (
            None
            if len(found) == claim["count"]
            else f"{where}; found {len(found)}, expected {claim['count']}: {found!r}"
        )
    other = jmespath.search(claim["same"], grouped) or []
    # Two empty sets are equal, so a claim must find something.
    same = found and other and set(map(str, found)) == set(map(str, other))
    return None if same else f"{where}; found {sorted(map(str, found))}, expected {sorted(map(str, other))}"


def _readable(key: str, value: Any) -> Any:
    """JSON text as documents, and whole numbers as integers."""
    if key in _JSON_TEXT and isinstance(value, str):
        return json.loads(value)
    if key == "userData" and isinstance(value, str):
        return base64.b64decode(value).decode()
    return _whole(value)


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
