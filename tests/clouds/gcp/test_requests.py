"""The API calls of all Google Cloud resources of the shipped stacks are valid by Google's discovery documents.

The documents describe members, types, enumerations, patterns, ranges and required fields, and no combinations of them. Rules and the oracle
test combinations.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.clouds.gcp import requests, requests_compute, requests_other
from tests.clouds.gcp.discovery import findings
from tests.clouds.gcp.variants import SHIPPED, VARIANTS, recorded
from tests.clouds.recorder import Recording
from tests.clouds.stacks import recording_of

assert requests_compute, requests_other


def _found(recording: Recording) -> list[str]:
    return [
        f"{resource.name}: {one}"
        for resource in recording.custom
        if resource.type not in requests.NO_CALL
        for call in requests.calls(resource)
        for one in findings(call)
    ]


@pytest.mark.parametrize("stack", SHIPPED)
def test_the_documents_accept_every_resource(stack: str) -> None:
    """The requests of a shipped stack match members, types, ranges, patterns and enumerations of the documents."""
    assert _found(recording_of(stack)) == []


@pytest.mark.parametrize("name", VARIANTS)
def test_the_documents_accept_every_variant(name: str) -> None:
    """The same is true for variants: queues, home directories, endpoints, recipients, SSH."""
    assert _found(recorded(name)) == []


def test_every_type_has_a_mapping_or_a_reason() -> None:
    """Each resource type has calls or a reason, none has both, and no mapping is unused."""
    recordings = [*(recording_of(stack) for stack in SHIPPED), *(recorded(n) for n in VARIANTS)]
    used = {one.type for recording in recordings for one in recording.custom}
    assert used - set(requests.MAPPERS) - set(requests.NO_CALL) == set()
    assert not set(requests.MAPPERS) & set(requests.NO_CALL)
    assert set(requests.MAPPERS) - used == set()
    assert all(requests.NO_CALL.values())


NIC = {"networkInterfaces": [{"nicType": "EFA"}]}
BROKEN: dict[str, tuple[Any, ...]] = {
    "unknown method": ("compute.v1", "networks.make", {"project": "my-project"}),
    "missing parameter": ("compute.v1", "subnetworks.insert", {"project": "my-project"}, {"name": "a"}),
    "unknown parameter": ("compute.v1", "networks.insert", {"project": "my-project", "zone": "a"}, {"name": "a"}),
    "name in upper case": ("compute.v1", "networks.insert", {"project": "my-project"}, {"name": "Train"}),
    "name of 64 characters": ("compute.v1", "networks.insert", {"project": "my-project"}, {"name": "a" * 64}),
    "unknown member": ("compute.v1", "networks.insert", {"project": "my-project"}, {"name": "a", "cidr": "10.0.0.0/8"}),
    "unknown interface type": ("compute.v1", "instanceTemplates.insert", {"project": "my-project"}, {"name": "a", "properties": NIC}),
    "number as a string": ("compute.v1", "networks.insert", {"project": "my-project"}, {"name": "a", "mtu": "8244"}),
    "number out of range": (
        "compute.v1",
        "instanceGroupManagers.insert",
        {"project": "my-project", "zone": "us-central1-a"},
        {"name": "a", "targetSize": 2**31},
    ),
    "object instead of a list": ("storage.v1", "buckets.insert", {"project": "my-project"}, {"lifecycle": {"rule": {}}}),
    "duration without a unit": (
        "cloudkms.v1",
        "projects.locations.keyRings.cryptoKeys.create",
        {"parent": "projects/my-project/locations/us-central1/keyRings/a"},
        {"rotationPeriod": "7776000"},
    ),
    "read-only member": (
        "logging.v2",
        "projects.locations.buckets.create",
        {"parent": "projects/my-project/locations/us-central1"},
        {"lifecycleState": "ACTIVE"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_an_invalid_request_is_found(case: str) -> None:
    """The check reports wrong methods, parameters, members, types, enumerations, patterns, ranges and durations."""
    assert findings(requests.Call(*BROKEN[case]))
