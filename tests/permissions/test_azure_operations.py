"""The actions in the table of Azure resources, compared with Azure's built-in roles and its published operations
(`tests/providers/answers/azure-operations.json`).

The provider's calls are from its source (pulumi-azure-native `provider/pkg/provider/provider.go` and `crud`, Apache-2.0, retrieved 2026-11-22): `Create`
reads the ID, writes with PUT and reads again, `Read` reads, `Update` writes and reads again, and `Delete` deletes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.clouds.azure.permissions import ACTIONS, ASKED
from gpuinfra_rehearsal.cloud.core import wire
from tests.clouds.stacks import recording_of, shipped_stacks

FACTS = json.loads((Path(__file__).parents[1] / "providers" / "answers" / "azure-operations.json").read_text())
REQUIRED = {token: {one.lower() for one in fact["operations"]} for token, fact in FACTS["required"].items()}
"""Operations that a documentation page lists as required for a type."""
KNOWN = {
    one.lower()
    for one in (
        *FACTS["roles"]["operations"],
        *(one for group in REQUIRED.values() for one in group),
        *(one for page in FACTS["documentation"]["operations"].values() for one in page),
    )
}
PLAIN = ("read", "write", "delete")
OURS = {token: actions for token, actions in ACTIONS.items() if token.startswith("azure-native:")}
LINKS = {one for one in KNOWN if re.search(r"/(join\w*|assign)/action\Z", one)}
"""Permissions to use a resource that a request refers to."""
WITHOUT_LINK = {
    ("azure-native:network:FlowLog", "microsoft.network/virtualnetworks"): "a flow log only reads its network (`required` in the facts)",
}  # fmt: skip
"""References that need no permission to use the resource, with the reason."""


def _listed(token: str, operation: str) -> set[str]:
    return {word.partition("?")[0].lower() for word in OURS[token].of(operation)}


def _kind(action: str) -> str:
    return action.removesuffix("/action").rpartition("/")[0]


def test_each_action_is_an_operation_of_azure() -> None:
    """Each action is in a built-in role or on a page of operations. Of reading, writing and deleting, one per type is enough."""
    every = {one for token in OURS for operation in ("create", "read", "update", "delete") for one in _listed(token, operation)}  # fmt: skip
    every |= {one.lower() for group in ASKED.values() for one in group}
    types = {_kind(one) for one in KNOWN}
    assert {one for one in every - KNOWN if one.rpartition("/")[2] not in PLAIN or _kind(one) not in types} <= {
        "microsoft.compute/virtualmachinescalesets/virtualmachines/retrievebootdiagnosticsdata/action"
    }, "listed only for single machines"


@pytest.mark.parametrize("token", OURS)
def test_the_calls_of_the_provider_are_allowed(token: str) -> None:
    """Each type has its own write and read operation, and an operation to delete it if Azure has one."""
    kind = min((_kind(one) for one in _listed(token, "read") if one.endswith("/read")), key=len)
    assert f"{kind}/write" in _listed(token, "create")
    assert f"{kind}/write" in _listed(token, "update")
    delete = _listed(token, "delete")
    assert delete == {f"{kind}/delete"} or (not delete and f"{kind}/delete" not in KNOWN)


@pytest.mark.parametrize("token", REQUIRED)
def test_documented_requirements_are_in_the_table(token: str) -> None:
    """A type has each operation that Azure's documentation lists as required."""
    assert REQUIRED[token] - _listed(token, "create") - _listed(token, "read") == set()


def _references(inputs: dict[str, Any]) -> Iterator[str]:
    """The types of the resources whose IDs are in the inputs."""
    for text in wire.strings(inputs):
        if text.startswith("/subscriptions/") and "/providers/" in text:
            namespace, *rest = text.rpartition("/providers/")[2].split("/")
            yield "/".join([namespace, *rest[::2]]).lower()


@pytest.mark.parametrize("stack", shipped_stacks("azure"))
def test_each_reference_to_a_resource_is_allowed(stack: str) -> None:
    """A resource that refers to a resource with a `join` or `assign` operation has such an operation in its row."""
    missing = set()
    for one in recording_of(stack).custom:
        if one.type not in OURS:
            continue
        for kind in _references(one.inputs):
            links = {link for link in LINKS if _kind(link) == kind}
            if links and not links & _listed(one.type, "create") and (one.type, kind) not in WITHOUT_LINK:
                missing.add((one.type, kind))
    assert missing == set()
