"""Broken states of the Google stack: at least one claim fails for each mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.oracle.claims import oracle, problems
from tests.oracle.test_oracle import State, state_of

STACK = "gcp-a3mega"
TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"
GROUP = "gcp:compute/instanceGroupManager:InstanceGroupManager"
NETWORK = "gcp:compute/network:Network"
SUBNET = "gcp:compute/subnetwork:Subnetwork"
WALL = "gcp:compute/firewall:Firewall"
BUCKET = "gcp:storage/bucket:Bucket"
GRANT = "gcp:storage/bucketIAMMember:BucketIAMMember"
KEY = "gcp:kms/cryptoKey:CryptoKey"


def _inputs(state: State, type_: str, index: int = 0) -> dict[str, Any]:
    return [one["inputs"] for one in state if one["type"] == type_][index]


def _named(state: State, type_: str, end: str) -> dict[str, Any]:
    (found,) = [one["inputs"] for one in state if one["type"] == type_ and end in str(one["inputs"].get("name"))]
    return found


def _set(type_: str, *path: Any, to: Any, index: int = 0) -> Callable[[State], None]:
    """Sets one value in the inputs of a resource; None removes it."""

    def broken(state: State) -> None:
        here: Any = _inputs(state, type_, index)
        for step in path[:-1]:
            here = here[step]
        known = here.get(path[-1]) if isinstance(here, dict) else here[path[-1]]
        assert known != to, f"{path} is {to} already"
        here[path[-1]] = to

    return broken


def _without(type_: str) -> Callable[[State], None]:
    def broken(state: State) -> None:
        state.remove(next(one for one in state if one["type"] == type_))

    return broken


def _wall(end: str, key: str, to: Any) -> Callable[[State], None]:
    def broken(state: State) -> None:
        wall = _named(state, WALL, end)
        assert wall.get(key) != to
        wall[key] = to

    return broken


def _ssh_from_everywhere(state: State) -> None:
    inputs = {
        "name": "ssh",
        "direction": "INGRESS",
        "network": _inputs(state, SUBNET)["network"],
        "allows": [{"protocol": "tcp", "ports": ["22"]}],
        "sourceRanges": ["0.0.0.0/0"],
    }
    state.append({"type": WALL, "id": "ssh", "inputs": inputs, "outputs": {}})


def _project_role(state: State) -> None:
    inputs = {"role": "roles/editor", "member": "serviceAccount:x", "project": "my-project"}
    state.append({"type": "gcp:projects/iAMMember:IAMMember", "id": "x", "inputs": inputs, "outputs": {}})


def _interfaces_swapped(state: State) -> None:
    nics = _inputs(state, TEMPLATE)["networkInterfaces"]
    nics[0], nics[1] = nics[1], nics[0]


def _one_network_for_two(state: State) -> None:
    subnets = [one["inputs"] for one in state if one["type"] == SUBNET]
    subnets[1]["network"] = subnets[0]["network"]


def _spot_as_the_provider_has_it(state: State) -> None:
    spot = next(
        one["inputs"]
        for one in state
        if one["type"] == TEMPLATE and one["inputs"]["scheduling"]["provisioningModel"] == "SPOT"
    )
    spot["scheduling"]["automaticRestart"] = True


def _reserved_with_placement(state: State) -> None:
    policy = {
        "workloadPolicy": "https://www.googleapis.com/compute/v1/projects/my-project/regions/r/resourcePolicies/p"
    }
    _named(state, GROUP, "gpu-reserved-0")["resourcePolicies"] = policy


def _grant_without_condition(state: State) -> None:
    next(one for one in state if one["type"] == GRANT and one["inputs"].get("condition"))["inputs"]["condition"] = None


def _sink_with_filter(state: State) -> None:
    sinks = [one["inputs"] for one in state if one["type"] == "gcp:logging/projectSink:ProjectSink"]
    next(one for one in sinks if "filter" not in one)["filter"] = "severity>=ERROR"


BREAKS: dict[str, Callable[[State], None]] = {
    "another machine": _set(TEMPLATE, "machineType", to="a3-highgpu-8g"),
    "a node that moves": _set(TEMPLATE, "scheduling", "onHostMaintenance", to="MIGRATE"),
    "spot that restarts": _spot_as_the_provider_has_it,
    "any reservation": _set(TEMPLATE, "reservationAffinity", to={"type": "ANY_RESERVATION"}),
    "a public address": _set(TEMPLATE, "networkInterfaces", 3, "accessConfigs", to=[{}]),
    "an interface without gVNIC": _set(TEMPLATE, "networkInterfaces", 5, "nicType", to="VIRTIO_NET"),
    "an interface too few": lambda state: _inputs(state, TEMPLATE)["networkInterfaces"].pop(),
    "the first interface on a data network": _interfaces_swapped,
    "two interfaces in one network": _one_network_for_two,
    "a disk without our key": _set(TEMPLATE, "disks", 0, "diskEncryptionKey", to=None),
    "a disk that stays": _set(TEMPLATE, "disks", 0, "autoDelete", to=False),
    "a disk of another kind": _set(TEMPLATE, "disks", 0, "diskType", to="hyperdisk-balanced"),
    "an image that moves": _set(
        TEMPLATE,
        "disks",
        0,
        "sourceImage",
        to="projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-amd64-with-nvidia-580",
    ),
    "keys of the project": _set(TEMPLATE, "metadata", "block-project-ssh-keys", to="FALSE"),
    "no OS Login": _set(TEMPLATE, "metadata", "enable-oslogin", to=None),
    "Secure Boot with unsigned modules": _set(TEMPLATE, "shieldedInstanceConfig", "enableSecureBoot", to=True),
    "no vTPM": _set(TEMPLATE, "shieldedInstanceConfig", "enableVtpm", to=False),
    "the default account": _set(
        TEMPLATE, "serviceAccount", "email", to="100000000000-compute@developer.gserviceaccount.com"
    ),
    "a node that forwards": _set(TEMPLATE, "canIpForward", to=True),
    "a template without the label": _set(TEMPLATE, "labels", to={}),
    "a group that waits": _set(GROUP, "waitForInstances", to=True),
    "a surge where capacity is full": lambda state: _named(state, GROUP, "reserved")["updatePolicy"].update(maxSurgeFixed=1),
    "all at once": _set(GROUP, "updatePolicy", "maxUnavailableFixed", to=4),
    "no health check": _set(GROUP, "autoHealingPolicies", to=None),
    "a node that is not healthy is recreated": _set(GROUP, "instanceLifecyclePolicy", "onFailedHealthCheck", to="REPAIR"),
    "nothing rolls": _set(GROUP, "updatePolicy", "type", to="OPPORTUNISTIC"),
    "a reservation with a placement of our own": _reserved_with_placement,
    "another zone": _set(GROUP, "zone", to="us-central1-b"),
    "frames of the default size": _set(NETWORK, "mtu", to=1460, index=2),
    "subnets by themselves": _set(NETWORK, "autoCreateSubnetworks", to=True),
    "a data network with a way out": lambda state: _named(state, NETWORK, "data-3").update(deleteDefaultRoutesOnCreate=False),
    "a network too few": _without(NETWORK),
    "no private access": _set(SUBNET, "privateIpGoogleAccess", to=False),
    "a range of somebody": _set(SUBNET, "ipCidrRange", to="192.169.0.0/20"),
    "no flow log": lambda state: _named(state, SUBNET, "private-0").update(logConfig=None),
    "SSH from everywhere": _ssh_from_everywhere,
    "let in from anywhere": _wall("network-firewall-allow-internal-ingress", "sourceRanges", ["0.0.0.0/0"]),
    "a data network without its wall's door": lambda state: state.remove(
        next(one for one in state if one["type"] == WALL and "data-5" in one["inputs"]["name"])
    ),
    "everything outwards": _wall("allow-web-egress", "allows", [{"protocol": "all"}]),
    "nothing refused on the way out": lambda state: state.remove(
        next(one for one in state if one["type"] == WALL and "deny-egress" in one["inputs"]["name"])
    ),
    "what is refused is not written down": _wall("deny-ingress", "logConfig", None),
    "refused first": _wall("deny-ingress", "priority", 100),
    "Lustre's port closed": _wall("allow-file-systems-egress", "allows", [{"protocol": "tcp", "ports": ["2049"]}]),
    "all subnets through the gateway": _set(
        "gcp:compute/routerNat:RouterNat", "sourceSubnetworkIpRangesToNat", to="ALL_SUBNETWORKS_ALL_IP_RANGES"
    ),
    "both mappings": _set("gcp:compute/routerNat:RouterNat", "enableEndpointIndependentMapping", to=True),
    "Lustre's size as a number": _set("gcp:lustre/instance:Instance", "capacityGib", to=36000),
    "Lustre in another zone": _set("gcp:lustre/instance:Instance", "location", to="us-central1-c"),
    "Lustre with another key": _set("gcp:lustre/instance:Instance", "kmsKey", to="projects/p/locations/r/keyRings/a/cryptoKeys/b"),
    "Lustre's account over the project's buckets": lambda state: next(
        one["inputs"] for one in state if one["type"] == GRANT and "gcp-sa-lustre" in one["inputs"]["member"]
    ).update(role="roles/storage.admin"),
    "a public bucket": _set(BUCKET, "publicAccessPrevention", to="inherited"),
    "lists of access": _set(BUCKET, "uniformBucketLevelAccess", to=False, index=1),
    "a bucket that a destroy empties": _set(BUCKET, "forceDestroy", to=True, index=2),
    "a lock of a day": lambda state: next(
        one["inputs"] for one in state if one["type"] == BUCKET and one["inputs"].get("retentionPolicy")
    )["retentionPolicy"].update(retentionPeriod="86400"),
    "an unconfirmed lock": lambda state: next(
        one["inputs"] for one in state if one["type"] == BUCKET and one["inputs"].get("retentionPolicy")
    )["retentionPolicy"].update(isLocked=True),
    "a key that never changes": _set(KEY, "rotationPeriod", to=None),
    "a key in another region": _set("gcp:kms/keyRing:KeyRing", "location", to="us"),
    "a key that a destroy destroys": _set(KEY, "deletionPolicy", to="DELETE", index=1),
    "reads without an audit record": _set("gcp:projects/iAMAuditConfig:IAMAuditConfig", "auditLogConfigs", to=[{"logType": "ADMIN_READ"}]),
    "somebody exempted": _set(
        "gcp:projects/iAMAuditConfig:IAMAuditConfig", "auditLogConfigs", 0, "exemptedMembers", to=["user:a@example.com"]
    ),
    "one service": _set("gcp:projects/iAMAuditConfig:IAMAuditConfig", "service", to="storage.googleapis.com"),
    "a filter on everything": _sink_with_filter,
    "a node with a role in the project": _project_role,
    "a grant on the whole bucket": _grant_without_condition,
    "a service that is turned off": _set("gcp:projects/service:Service", "disableOnDestroy", to=True),
    "percent as a whole number": _set("gcp:billing/budget:Budget", "thresholdRules", 0, "thresholdPercent", to=50),
    "a budget over every project": _set("gcp:billing/budget:Budget", "budgetFilter", "projects", to=None),
    "a hundredfold budget": _set("gcp:billing/budget:Budget", "amount", "specifiedAmount", "units", to="45980000"),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_setting_is_found(name: str) -> None:
    """At least one claim fails for each wrong setting that the cloud accepts."""
    state = state_of(STACK)
    BREAKS[name](state)
    assert problems(state, oracle(STACK))
