"""Registered resources are valid requests by the models of Microsoft's clients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.clouds.azure.models import REQUESTS, WITHOUT, problems
from tests.clouds.azure.variants import VARIANTS, variant
from tests.clouds.recorder import Registered
from tests.clouds.stacks import recording_of, shipped_stacks

STACKS = shipped_stacks("azure")


def _azure(resources: list[Registered]) -> list[Registered]:
    return [one for one in resources if one.type.startswith("azure-native:")]


def _kind(one: Registered) -> str:
    return one.type.removeprefix("azure-native:")


@pytest.mark.parametrize("stack", STACKS)
def test_resources_of_shipped_stacks_are_valid(stack: str) -> None:
    """Names, types, enumerations, required and read-only properties are valid."""
    found = _azure(recording_of(stack).custom)
    assert len(found) > 20
    assert [problem for one in found if _kind(one) in REQUESTS for problem in problems(one)] == []


@pytest.mark.parametrize("name", VARIANTS)
def test_resources_of_variants_are_valid(name: str) -> None:
    """The same is true with fields that are left out, existing resources, and optional parts."""
    found = _azure(variant(name).custom)
    assert [problem for one in found if _kind(one) in REQUESTS for problem in problems(one)] == []


def test_every_type_has_a_model_or_a_reason() -> None:
    """No type is skipped without a reason, and no type is listed that no stack uses."""
    made = {_kind(one) for stack in STACKS for one in _azure(recording_of(stack).custom)}
    made |= {_kind(one) for name in VARIANTS for one in _azure(variant(name).custom)}
    assert made == set(REQUESTS) | set(WITHOUT)
    assert all(WITHOUT.values())


def _set(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def broken(inputs: dict[str, Any]) -> None:
        for step in path[:-1]:
            inputs = inputs[step]
        assert value is not None or path[-1] in inputs
        if value is None:
            del inputs[path[-1]]
        else:
            inputs[path[-1]] = value

    return broken


SET = "compute:VirtualMachineScaleSet"
MODEL = "virtualMachineProfile"
BREAKS: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "an unknown property": (SET, _set("singlePlacementGroups", value=True)),
    "an unknown nested property": (SET, _set(MODEL, "osProfile", "computerName", value="x")),
    "an unknown property in a list": (SET, _set(MODEL, "networkProfile", "networkInterfaceConfigurations", 0, "publicIp", value="x")),
    "an unknown enumeration value": (SET, _set("orchestrationMode", value="uniform")),
    "an unknown nested enumeration value": (SET, _set(MODEL, "storageProfile", "osDisk", "caching", value="Write")),
    "text for a boolean": (SET, _set("overprovision", value="false")),
    "a boolean for text": (SET, _set(MODEL, "osProfile", "customData", value=True)),
    "half a node": (SET, _set("sku", "capacity", value=1.5)),
    "text for a list": (SET, _set("zones", value="1")),
    "a missing property": ("storage:StorageAccount", _set("kind", value=None)),
    "a missing nested property": ("network:NetworkSecurityGroup", _set("securityRules", 0, "access", value=None)),
    "an unknown firewall action": ("storage:StorageAccount", _set("networkRuleSet", "defaultAction", value="Refuse")),
    "a read-only property": ("keyvault:Vault", _set("properties", "hsmPoolResourceId", value="x")),
    "a role without a principal": ("authorization:RoleAssignment", _set("principalId", value=None)),
    "text for the permissions of a role": ("authorization:RoleDefinition", _set("permissions", 0, "dataActions", value="*")),
    "an invalid principal type": ("authorization:RoleAssignment", _set("principalType", value=7)),
    "an unknown time grain": ("consumption:Budget", _set("timeGrain", value="Weekly")),
    "text for a size": ("storagecache:AmlFilesystem", _set("storageCapacityTiB", value="16")),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_invalid_requests_are_found(name: str) -> None:
    """Each invalid value is found at every level."""
    kind, breaks = BREAKS[name]
    one = recording_of("azure-ndv4").of(f"azure-native:{kind}")[0]
    inputs = copy.deepcopy(one.inputs)
    breaks(inputs)
    assert problems(one) == []
    assert problems(replace(one, inputs=inputs))
