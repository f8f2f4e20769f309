"""The IAM actions in the table of AWS resources, compared with the calls of the provider's source."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gpuinfra.clouds.aws.permissions import ACTIONS
from gpuinfra.clouds.permissions import OPERATIONS

CALLS: dict[str, dict[str, list[str]]] = YAML(typ="safe").load(
    (Path(__file__).parents[1] / "providers" / "calls.yaml").read_text(encoding="utf-8")
)


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
    assert set(CALLS[token].get(operation, ())) - _ours(token, operation) == set()


@pytest.mark.parametrize("token", CALLS)
def test_no_action_is_allowed_that_the_provider_never_calls(token: str) -> None:
    """Each action in the table is a call of the provider, a call for tags, or one that a service asks of the caller."""
    fact = CALLS[token]
    known = {action for key in (*OPERATIONS, "tags", "caller") for action in fact.get(key, ())}
    assert {action for one in OPERATIONS for action in _ours(token, one)} - known == set()


@pytest.mark.parametrize("token", CALLS)
def test_unused_calls_are_not_allowed(token: str) -> None:
    """A call for a feature that gpuinfra does not use is not in the table."""
    assert {action for one in OPERATIONS for action in _ours(token, one)} & set(CALLS[token].get("unused", ())) == set()
