"""The IAM actions in the table of AWS resources, compared with the calls of the provider's source."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpuinfra.clouds.aws.permissions import ACTIONS
from gpuinfra.clouds.permissions import OPERATIONS
from gpuinfra_rehearsal.cloud.aws import calls
from gpuinfra_rehearsal.cloud.aws.operator import required
from tests.clouds.stacks import recording_of, shipped_aws_stacks

CALLS = calls.table()

CREATING = ("ec2:Create", "ec2:Allocate", "ec2:Run", "ec2:Request", "ec2:Import")
"""Calls that take tags for the resource that they create."""


def _ours(token: str, operation: str) -> set[str]:
    """The actions of an operation. Each operation also reads the resource, to wait for its end."""
    return {word.partition("?")[0] for one in (operation, "read") for word in ACTIONS[token].of(one)}


def test_each_type_has_calls() -> None:
    """Each AWS type in the table of resources has the calls of the provider."""
    assert set(CALLS) == {token for token in ACTIONS if token.startswith("aws:")}


@pytest.mark.parametrize("token", CALLS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_call_of_the_provider_is_allowed(token: str, operation: str) -> None:
    """The provider makes no call for a type that the permissions of that operation lack."""
    asked = (*CALLS[token].get(operation, ()), *CALLS[token].get("caller", {}).get(operation, ()))
    assert {action.partition("?")[0] for action in asked} - _ours(token, operation) == set()


@pytest.mark.parametrize("token", CALLS)
def test_no_action_is_allowed_that_the_provider_never_calls(token: str) -> None:
    """Each action in the table is a call of the provider, a call for tags, or one that a service asks of the caller."""
    fact = CALLS[token]
    asked = [action for key in (*OPERATIONS, "tags") for action in fact.get(key, ())]
    known = {action.partition("?")[0] for group in (asked, *fact.get("caller", {}).values()) for action in group}
    assert {action for one in OPERATIONS for action in _ours(token, one)} - known == set()


@pytest.mark.parametrize("token", CALLS)
def test_unused_calls_are_not_allowed(token: str) -> None:
    """A call for a feature that gpuinfra does not use is not in the table."""
    assert {action for one in OPERATIONS for action in _ours(token, one)} & set(CALLS[token].get("unused", ())) == set()


@pytest.mark.parametrize("token", [one for one, calls in CALLS.items() if "ec2:CreateTags" in calls.get("tags", ())])
def test_the_stand_in_names_the_creating_action_only_if_the_provider_calls_one(token: str) -> None:
    """EC2 sends `ec2:CreateAction` with the tags of a call that creates a resource.
    A resource that the provider adopts, and rules, are tagged in a call of its own."""
    creates = {action.removeprefix("ec2:") for action in CALLS[token]["create"] if action.startswith(CREATING)}
    store: Any = SimpleNamespace(find=lambda *_: None, where=lambda *_, **__: [], all=lambda *_: [])
    inputs = {"tags": {"gpuinfra:cluster": "train"}}
    requests = required(store, "create", token, inputs, "us-east-1", None)
    contexts = [one.context for one in requests if one.action == "ec2:CreateTags"]
    assert {context["ec2:CreateAction"] for context in contexts if "ec2:CreateAction" in context} == creates


@pytest.mark.parametrize("stack", shipped_aws_stacks())
def test_tagged_resources_are_tagged_at_creation(stack: str) -> None:
    """The program tags only resources whose permissions for creation include their tags."""
    for one in recording_of(stack).custom:
        if one.inputs.get("tags") and "ec2:CreateTags" in CALLS.get(one.type, {}).get("tags", ()):
            assert "ec2:CreateTags" in _ours(one.type, "create"), one.name
