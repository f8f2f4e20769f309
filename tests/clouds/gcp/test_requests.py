"""Every Google resource of every shipped stack, as the API call it becomes, against the discovery documents that Google publishes.

The documents know members, types, enumerations, patterns, ranges and what is required. They do not know what goes together;
that is what the rules, the oracle and a real project are for.
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
def test_every_resource_is_a_request_that_the_documents_accept(stack: str) -> None:
    """No member, type, range, pattern or enumeration of Google's documents is broken by a shipped stack."""
    assert _found(recording_of(stack)) == []


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_accepted_too(name: str) -> None:
    """The same holds for what a declaration can leave out, hand in or add: queues, homes, endpoints, recipients, SSH."""
    assert _found(recorded(name)) == []


def test_every_type_has_a_mapping_or_a_reason() -> None:
    """A new resource type comes with its calls, a reason is not kept for a type that has them, and no mapping is for nothing."""
    recordings = [*(recording_of(stack) for stack in SHIPPED), *(recorded(n) for n in VARIANTS)]
    used = {one.type for recording in recordings for one in recording.custom}
    assert used - set(requests.MAPPERS) - set(requests.NO_CALL) == set()
    assert not set(requests.MAPPERS) & set(requests.NO_CALL)
    assert set(requests.MAPPERS) - used == set()
    assert all(requests.NO_CALL.values())


NIC = {"networkInterfaces": [{"nicType": "EFA"}]}
BROKEN: dict[str, tuple[Any, ...]] = {
    "a method that is not": ("compute.v1", "networks.make", {"project": "my-project"}),
    "a missing place": ("compute.v1", "subnetworks.insert", {"project": "my-project"}, {"name": "a"}),
    "a parameter that is not": ("compute.v1", "networks.insert", {"project": "my-project", "zone": "a"}, {"name": "a"}),
    "a name with capitals": ("compute.v1", "networks.insert", {"project": "my-project"}, {"name": "Train"}),
    "a name of 64 letters": ("compute.v1", "networks.insert", {"project": "my-project"}, {"name": "a" * 64}),
    "a member that is not": ("compute.v1", "networks.insert", {"project": "my-project"}, {"name": "a", "cidr": "10.0.0.0/8"}),
    "an interface that is not sold": ("compute.v1", "instanceTemplates.insert", {"project": "my-project"}, {"name": "a", "properties": NIC}),
    "a number as text": ("compute.v1", "networks.insert", {"project": "my-project"}, {"name": "a", "mtu": "8244"}),
    "a count beyond its width": (
        "compute.v1",
        "instanceGroupManagers.insert",
        {"project": "my-project", "zone": "us-central1-a"},
        {"name": "a", "targetSize": 2**31},
    ),
    "a list that is none": ("storage.v1", "buckets.insert", {"project": "my-project"}, {"lifecycle": {"rule": {}}}),
    "a duration without its letter": (
        "cloudkms.v1",
        "projects.locations.keyRings.cryptoKeys.create",
        {"parent": "projects/my-project/locations/us-central1/keyRings/a"},
        {"rotationPeriod": "7776000"},
    ),
    "a lifecycle state that only Google sets": (
        "logging.v2",
        "projects.locations.buckets.create",
        {"parent": "projects/my-project/locations/us-central1"},
        {"lifecycleState": "ACTIVE"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_request_is_found(case: str) -> None:
    """The check itself sees wrong methods, places, members, types, words, patterns, widths and durations."""
    assert findings(requests.Call(*BROKEN[case]))
