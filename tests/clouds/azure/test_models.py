"""What the components register is what Microsoft's own clients would send, by their models."""

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
def test_every_resource_of_a_shipped_stack_passes_its_model(stack: str) -> None:
    """Names, kinds of values, words of enumerations, what is required and what is read-only."""
    found = _azure(recording_of(stack).custom)
    assert len(found) > 20
    assert [problem for one in found if _kind(one) in REQUESTS for problem in problems(one)] == []


@pytest.mark.parametrize("name", VARIANTS)
def test_every_resource_of_a_variant_passes_its_model(name: str) -> None:
    """The same holds for what a declaration can leave out, hand in or add."""
    found = _azure(variant(name).custom)
    assert [problem for one in found if _kind(one) in REQUESTS for problem in problems(one)] == []


def test_every_type_has_a_model_or_a_reason() -> None:
    """Nothing is left out in silence, and nothing is listed that no stack makes."""
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
    "a name that nobody has": (SET, _set("singlePlacementGroups", value=True)),
    "a name deep inside": (SET, _set(MODEL, "osProfile", "computerName", value="x")),
    "a name in a list": (SET, _set(MODEL, "networkProfile", "networkInterfaceConfigurations", 0, "publicIp", value="x")),
    "a word that is no member": (SET, _set("orchestrationMode", value="uniform")),
    "a word deep inside": (SET, _set(MODEL, "storageProfile", "osDisk", "caching", value="Write")),
    "text for a switch": (SET, _set("overprovision", value="false")),
    "a switch for text": (SET, _set(MODEL, "osProfile", "customData", value=True)),
    "half a node": (SET, _set("sku", "capacity", value=1.5)),
    "one for a list": (SET, _set("zones", value="1")),
    "what is required": ("storage:StorageAccount", _set("kind", value=None)),
    "what is required inside": ("network:NetworkSecurityGroup", _set("securityRules", 0, "access", value=None)),
    "a firewall's word": ("storage:StorageAccount", _set("networkRuleSet", "defaultAction", value="Refuse")),
    "what is read-only": ("keyvault:Vault", _set("properties", "hsmPoolResourceId", value="x")),
    "a role without a principal": ("authorization:RoleAssignment", _set("principalId", value=None)),
    "a kind of principal": ("authorization:RoleAssignment", _set("principalType", value=7)),
    "a budget's rhythm": ("consumption:Budget", _set("timeGrain", value="Weekly")),
    "a size of a file system": ("storagecache:AmlFilesystem", _set("storageCapacityTiB", value="16")),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_request_is_found(name: str) -> None:
    """The walk goes to the leaves: each mistake is named, wherever it is."""
    kind, breaks = BREAKS[name]
    one = recording_of("azure-ndv4").of(f"azure-native:{kind}")[0]
    inputs = copy.deepcopy(one.inputs)
    breaks(inputs)
    assert problems(one) == []
    assert problems(replace(one, inputs=inputs))
