"""The IAM actions that AWS checks when the real provider creates, reads, updates or deletes a resource.

`calls.yaml` contains them, from the source of the provider. The policies of `gpuinfra permissions` come from another table
(`clouds/aws/resources.py`), so a rehearsal with least privilege verifies that table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

_REMOVES = ("Delete", "Remove", "Untag")
_CREATES = ("Create", "Allocate", "Run")


@cache
def table() -> dict[str, dict[str, Any]]:
    """Return the facts of each resource type."""
    return dict(YAML(typ="safe").load(Path(__file__).with_name("calls.yaml").read_text(encoding="utf-8")))


def actions(token: str, operation: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str] | None:
    """Return the actions of an operation, or None for an unknown type. A create and an update also read the resource."""
    fact = table().get(token)
    return None if fact is None else iter(dict.fromkeys(_actions(fact, operation, old, new)))


def _actions(fact: Mapping[str, Any], operation: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for word in (*fact.get(operation, ()), *fact.get("caller", {}).get(operation, ())):
        action, _, key = word.partition("?")
        if not key or (old.get(key) != new.get(key) if operation == "update" else (new or old).get(key)):
            yield action
    yield from _tagging(fact.get("tags", ()), operation, old.get("tags"), new.get("tags"))
    if operation in ("create", "update"):
        yield from (word for word in fact.get("read", ()) if "?" not in word)


def _tagging(actions: list[str], operation: str, old: Any, new: Any) -> Iterator[str]:
    for action in actions:
        removes = action.partition(":")[2].startswith(_REMOVES)
        if removes:
            needed = operation == "update" and bool(_keys(old) - _keys(new))
        else:
            needed = bool(new) if operation == "create" else operation == "update" and old != new
        if needed:
            yield action


def _keys(tags: Any) -> set[str]:
    """Return the tag keys. Auto Scaling writes tags as a list."""
    return {str(one.get("key")) for one in tags} if isinstance(tags, list) else set(tags or {})


def creating(token: str) -> str | None:
    """Return the EC2 action that creates a resource with its tags. The provider tags rules and a default security group in a call of its own."""
    fact = table()[token]
    words = (word.partition("?")[0] for word in (*fact.get("create", ()), *fact.get("caller", {}).get("create", ())))
    calls = (word.removeprefix("ec2:") for word in words if word.startswith("ec2:"))
    return next((call for call in calls if call.startswith(_CREATES) and call != "CreateTags"), None)
