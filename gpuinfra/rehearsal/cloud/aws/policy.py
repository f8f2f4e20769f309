"""Whether policies allow a request: enough of IAM's logic for what nodes and operators do with buckets.

Implements Effect, Action, NotAction, Resource, NotResource, Principal, policy variables and the condition operators below; explicit
denial wins, silence denies. An operator that is not implemented never allows and always denies, so a gap shows as a refusal.
Loopback stands in for TLS, so `aws:SecureTransport` is true. What it leaves out: permission boundaries, session and organisation policies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any


@dataclass(frozen=True)
class Ask:
    """One request: who, what, on which resource, with which context keys."""

    principal_arn: str
    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict)


def decide(ask: Ask, identity: Iterable[str], resource: Iterable[str] = ()) -> tuple[bool, str]:
    """(allowed, why), given the caller's policies and those of the resource, as JSON."""
    allowed = ""
    for documents, is_resource in ((identity, False), (resource, True)):
        for document in documents:
            for statement in _statements(document):
                if not _matches(ask, statement, is_resource):
                    continue
                sid = str(statement.get("Sid") or "without a Sid")
                if statement.get("Effect") == "Deny":
                    return False, f"with an explicit deny in the statement {sid}"
                allowed = allowed or sid
    if allowed:
        return True, allowed
    return False, f"because no identity-based policy allows the {ask.action} action"


@lru_cache(maxsize=512)
def _statements(document: str) -> list[Mapping[str, Any]]:
    try:
        found = json.loads(document).get("Statement", [])
    except (ValueError, AttributeError):
        return []
    return found if isinstance(found, list) else [found]


def _matches(ask: Ask, statement: Mapping[str, Any], is_resource: bool) -> bool:
    if is_resource and not _principal(ask, statement):
        return False
    for key, value, blind in (("Action", ask.action, True), ("Resource", ask.resource, False)):
        if key in statement:
            if not any(_like(_fill(one, ask), value, blind) for one in _list(statement[key])):
                return False
        elif f"Not{key}" in statement and any(
            _like(_fill(one, ask), value, blind) for one in _list(statement[f"Not{key}"])
        ):
            return False
    return _conditions(ask, statement.get("Condition") or {}, statement.get("Effect") == "Deny")


def _principal(ask: Ask, statement: Mapping[str, Any]) -> bool:
    who = statement.get("Principal")
    if who == "*":
        return True
    named = _list(who.get("AWS", [])) if isinstance(who, Mapping) else []
    account = ask.principal_arn.split(":")[4] if ask.principal_arn.count(":") > 4 else ""
    role = re.sub(r":sts::(\d+):assumed-role/([^/]+)/.*", r":iam::\1:role/\2", ask.principal_arn)
    return any(one in ("*", ask.principal_arn, role, account, f"arn:aws:iam::{account}:root") for one in named)


def _conditions(ask: Ask, conditions: Mapping[str, Mapping[str, Any]], denies: bool) -> bool:
    for operator, wanted in conditions.items():
        optional = operator.endswith("IfExists")
        judge = _OPERATORS.get(operator.removesuffix("IfExists"))
        for key, values in wanted.items():
            if judge is None:
                if not denies:
                    return False
                continue
            given = next((value for name, value in ask.context.items() if name.lower() == key.lower()), None)
            if given is None and optional:
                continue
            if not judge(given, [_fill(str(one), ask) for one in _list(values)]):
                return False
    return True


def _like(pattern: str, value: str, blind: bool = False) -> bool:
    expression = "".join(
        ".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern)
    )
    return re.fullmatch(expression, value, re.S | (re.I if blind else 0)) is not None


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


def _fill(pattern: str, ask: Ask) -> str:
    """Policy variables: `${aws:userid}`; what is not known matches nothing."""
    return re.sub(r"\$\{([^}]+)\}", lambda found: ask.context.get(found.group(1), "\0unknown"), pattern)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
