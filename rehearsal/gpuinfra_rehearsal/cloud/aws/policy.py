"""Evaluates the subset of IAM policies that nodes and operators use.

Implemented: Effect, Action, NotAction, Resource, NotResource, Principal, policy variables and the condition operators
below. An explicit deny takes precedence. Requests are denied by default. A condition operator that is not implemented
never allows and always denies, so gaps appear as denials. Loopback replaces TLS, so `aws:SecureTransport` is true. Not
implemented: permission boundaries, session policies and organization policies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest


def decide(request: AccessRequest, identity: Iterable[str], resource: Iterable[str] = ()) -> tuple[bool, str]:
    """Return (allowed, statement or reason) from the caller's and the resource's JSON policies."""
    allowed = ""
    for documents, is_resource in ((identity, False), (resource, True)):
        for document in documents:
            for statement in _statements(document):
                if not _matches(request, statement, is_resource):
                    continue
                sid = str(statement.get("Sid") or "without a Sid")
                if statement.get("Effect") == "Deny":
                    return False, f"with an explicit deny in the statement {sid}"
                allowed = allowed or sid
    if allowed:
        return True, allowed
    return False, f"because no identity-based policy allows the {request.action} action"


@lru_cache(maxsize=512)
def _statements(document: str) -> list[Mapping[str, Any]]:
    try:
        statements = json.loads(document).get("Statement", [])
    except (ValueError, AttributeError):
        return []
    return statements if isinstance(statements, list) else [statements]


def _matches(request: AccessRequest, statement: Mapping[str, Any], is_resource: bool) -> bool:
    if is_resource and not _principal(request, statement):
        return False
    for key, value, blind in (("Action", request.action, True), ("Resource", request.resource, False)):
        if key in statement:
            if not any(_like(_fill(one, request), value, blind) for one in _list(statement[key])):
                return False
        elif f"Not{key}" in statement and any(
            _like(_fill(one, request), value, blind) for one in _list(statement[f"Not{key}"])
        ):
            return False
    return _conditions(request, statement.get("Condition") or {}, statement.get("Effect") == "Deny")


def _principal(request: AccessRequest, statement: Mapping[str, Any]) -> bool:
    who = statement.get("Principal")
    if who == "*":
        return True
    if isinstance(who, Mapping) and request.principal in _list(who.get("Service", [])):
        return True
    named = _list(who.get("AWS", [])) if isinstance(who, Mapping) else []
    account = request.principal.split(":")[4] if request.principal.count(":") > 4 else ""
    role = re.sub(r":sts::(\d+):assumed-role/([^/]+)/.*", r":iam::\1:role/\2", request.principal)
    return any(one in ("*", request.principal, role, account, f"arn:aws:iam::{account}:root") for one in named)


def _conditions(request: AccessRequest, conditions: Mapping[str, Mapping[str, Any]], denies: bool) -> bool:
    for operator, wanted in conditions.items():
        optional, every, some = operator.endswith("IfExists"), operator.startswith(_EVERY), operator.startswith(_SOME)
        judge = _OPERATORS.get(operator.removeprefix(_EVERY).removeprefix(_SOME).removesuffix("IfExists"))
        for key, values in wanted.items():
            given = next((value for name, value in request.context.items() if name.lower() == key.lower()), None)
            if judge is None or (isinstance(given, tuple) and not (every or some)):
                if not denies:
                    return False
                continue
            if given is None and (optional or every):
                continue
            texts = [_fill(str(one), request) for one in _list(values)]
            matches = [judge(one, texts) for one in (given if isinstance(given, tuple) else (given,))]
            if not (any(matches) if some else all(matches)):
                return False
    return True


_EVERY, _SOME = "ForAllValues:", "ForAnyValue:"
"""Each value in the request must match, and a key that is not in the request matches; or one value must match
(https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-single-vs-multi-valued-context-keys.html, retrieved 2026-11-27)."""


def _like(pattern: str, value: str, blind: bool = False) -> bool:
    return _compiled(pattern, blind).fullmatch(value) is not None


@lru_cache(maxsize=16384)
def _compiled(pattern: str, blind: bool) -> re.Pattern[str]:
    """Return the expression of a pattern. A deployment evaluates the same patterns for each of its requests."""
    expression = "".join(
        ".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern)
    )
    return re.compile(expression, re.S | (re.I if blind else 0))


_OPERATORS = {
    "StringEquals": lambda given, wanted: given is not None and given in wanted,
    "StringNotEquals": lambda given, wanted: given is None or given not in wanted,
    "StringEqualsIgnoreCase": lambda given, wanted: (
        given is not None and given.lower() in [one.lower() for one in wanted]
    ),
    "StringLike": lambda given, wanted: given is not None and any(_like(one, given) for one in wanted),
    "StringNotLike": lambda given, wanted: given is None or not any(_like(one, given) for one in wanted),
    "ArnEquals": lambda given, wanted: given is not None and any(_like(one, given) for one in wanted),
    "ArnLike": lambda given, wanted: given is not None and any(_like(one, given) for one in wanted),
    "ArnNotLike": lambda given, wanted: given is None or not any(_like(one, given) for one in wanted),
    "Bool": lambda given, wanted: given is not None and given.lower() in [one.lower() for one in wanted],
    "Null": lambda given, wanted: (given is None) == (wanted[0].lower() == "true"),
}


def _fill(pattern: str, request: AccessRequest) -> str:
    """Replace policy variables such as `${aws:userid}`. An unknown variable does not match anything."""
    if "${" not in pattern:
        return pattern

    def value(match: re.Match[str]) -> str:
        given = request.context.get(match.group(1))
        return given if isinstance(given, str) else "\0unknown"

    return re.sub(r"\$\{([^}]+)\}", value, pattern)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
