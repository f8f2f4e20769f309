"""Arguments and results of the IAM policy simulator. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def concrete(pattern: str, account: str) -> str:
    """Return an ARN that a pattern of the policies matches, with the account and example names."""
    if pattern == "*":
        return pattern
    parts = pattern.replace("?" * 12, account).split(":", 5)
    if len(parts) == 6 and parts[4] == "*":
        parts[4] = account
    if len(parts) == 6 and parts[3] == "*":
        parts[3] = "us-east-1"
    return ":".join(parts).replace("?", "a").replace("*", "example")


def context(conditions: Mapping[str, Mapping[str, Any]], region: str) -> list[dict[str, Any]]:
    """Return values of condition keys that meet the conditions of a statement."""
    values: dict[str, str] = {"aws:RequestedRegion": region}
    for operator, keys in conditions.items():
        for key, wanted in keys.items():
            text = str(wanted if isinstance(wanted, str) else wanted[0])
            if operator == "Null":
                if text == "false":
                    values.setdefault(key, "example")
            elif "${aws:userid}" in text:
                values |= {key: "example", "aws:userid": "example"}
            else:
                values[key] = text
    kinds = {"true": "boolean", "false": "boolean"}
    return [
        {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": kinds.get(value, "string")}
        for key, value in values.items()
    ]


def denial(result: Mapping[str, Any]) -> str | None:
    """Return the reason in parentheses if a simulated action is denied, or None if it is allowed.

    An action counts as allowed if it is allowed on one of the resources, because a statement lists resources of several types.
    """
    single = [str(one["EvalResourceDecision"]) for one in result.get("ResourceSpecificResults", ())]
    decisions = single or [str(result["EvalDecision"])]
    if "explicitDeny" not in decisions and "allowed" in decisions:
        return None
    if not result.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations", True):
        return " (service control policy)"
    if not result.get("PermissionsBoundaryDecisionDetail", {}).get("AllowedByPermissionsBoundary", True):
        return " (permissions boundary)"
    return " (explicit deny)" if "explicitDeny" in decisions else ""
