"""Instance templates, groups and rolling updates on Google Cloud."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from gpuinfra.clouds.gcp.components.nodes import _update_policy
from gpuinfra.clouds.gcp.components.template import scheduling
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Group
from gpuinfra.spec import parse_spec
from tests.clouds.gcp.variants import BASE, SHIPPED, ULTRA, VARIANTS, recorded, variant
from tests.clouds.recorder import Recording, Registered
from tests.clouds.stacks import TODAY, plan_of, recording_of, recording_of_spec

TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"
GROUP = "gcp:compute/instanceGroupManager:InstanceGroupManager"
REQUEST = "gcp:compute/resizeRequest:ResizeRequest"
NETWORK = "gcp:compute/network:Network"
SUBNET = "gcp:compute/subnetwork:Subnetwork"


def _group(**changes: Any) -> Group:
    plain = {"name": "gpu-on-demand-0", "pool": "gpu", "kind": "on_demand", "zone": "us-central1-a"}
    return Group(**{**plain, "count": 4, "max_count": 4, "provisioning": "STANDARD", **changes})


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 10, 64, 1000])
@pytest.mark.parametrize("terminate_first", [True, False])
def test_a_rolling_update_never_replaces_all_nodes_together(count: int, terminate_first: bool) -> None:
    """Google accepts the numbers, and in a group of two or more nodes at least one stays."""
    (pool,) = plan_of("gcp-a3mega").pools
    policy: Any = _update_policy(pool, _group(count=count, max_count=max(count, 1), terminate_first=terminate_first))
    surge, away = policy.max_surge_fixed, policy.max_unavailable_fixed
    assert (surge == 0) == terminate_first
    assert (away == 0) != terminate_first
    assert 0 < surge + away <= max(1, count * pool.at_once_percent // 100)
    assert count < 2 or away < count
    # Google keeps the names of nodes only where the old node is deleted first.
    assert policy.replacement_method == ("RECREATE" if terminate_first else "SUBSTITUTE")


@pytest.mark.parametrize(
    ("model", "preemptible", "restarts", "ends"),
    [
        ("STANDARD", False, True, None),
        ("SPOT", True, False, "DELETE"),
        ("FLEX_START", False, False, "DELETE"),
        ("RESERVATION_BOUND", False, True, "DELETE"),
    ],
)
def test_each_provisioning_model_has_its_scheduling(
    model: str, preemptible: bool, restarts: bool, ends: str | None
) -> None:
    """The scheduling of each provisioning model, by pulumi_gcp 10.2: compute/_inputs.py; GPU nodes do not support live migration."""
    made = scheduling(_group(provisioning=model))
    assert made["preemptible"] is preemptible
    assert made["automatic_restart"] is restarts
    assert made.get("instance_termination_action") == ends
    assert made["on_host_maintenance"] == "TERMINATE"


def _queue(count: int = 4, hours: int = 24, **more: Any) -> Recording:
    capacity = [{"kind": "flex", "count": count, "max_run_hours": hours}]
    return recording_of_spec(parse_spec({**BASE, "pools": [{**ULTRA, "capacity": capacity}], **more}))


def test_a_queued_group_starts_empty_with_one_request() -> None:
    """The group has no nodes, repairs none and ignores its size; one request asks for all nodes for a limited time."""
    recording = _queue()
    group, request, template = recording.one(GROUP), recording.one(REQUEST), recording.one(TEMPLATE)
    assert group.inputs["targetSize"] == 0
    assert group.ignored == ("targetSize",)
    assert group.inputs["instanceLifecyclePolicy"]["defaultActionOnFailure"] == "DO_NOTHING"
    assert group.inputs["updatePolicy"]["type"] == "OPPORTUNISTIC"
    assert "resourcePolicies" not in group.inputs
    assert request.inputs["resizeBy"] == 4
    assert request.inputs["requestedRunDuration"] == {"seconds": "86400"}
    assert request.inputs["instanceGroupManager"] == group.inputs["name"]
    assert template.inputs["scheduling"]["maxRunDuration"] == {"seconds": 86400}
    assert template.inputs["reservationAffinity"] == {"type": "NO_RESERVATION"}


def test_the_end_of_the_cluster_replaces_a_queued_group() -> None:
    """The size of a queued group in the state is 0 also while it has nodes, so after the cluster expires, a replacement removes them."""
    queued = _queue(expires_at=f"{TODAY + timedelta(days=1)}T18:00:00Z")
    ended = _queue(expires_at=f"{TODAY - timedelta(days=1)}T18:00:00Z")
    before, after = queued.one(GROUP), ended.one(GROUP)
    assert not ended.of(REQUEST)
    assert before.inputs["name"] == after.inputs["name"]
    assert before.inputs["targetSize"] == after.inputs["targetSize"] == 0
    (forced,) = after.fixed
    assert before.inputs[forced] != after.inputs[forced]
    assert _queue().one(GROUP).inputs[forced] == before.inputs[forced]
    assert after.old_first


def test_another_size_or_duration_creates_another_request() -> None:
    """A request cannot be changed, so its name depends on its content."""
    names = [_queue(*args).one(REQUEST).inputs["name"] for args in ((4, 24), (5, 24), (4, 25))]
    assert len(set(names)) == 3
    assert recorded("queue").one(REQUEST).inputs["name"] == names[0]


def test_dense_reservations_are_bound_and_other_reservations_are_named() -> None:
    """A4 is sold only with dense reservations; A3 Mega uses the standard provisioning model with a reservation."""
    dense = recorded("a dense reservation").one(TEMPLATE).inputs
    assert dense["scheduling"]["provisioningModel"] == "RESERVATION_BOUND"
    assert dense["reservationAffinity"]["specificReservation"]["values"] == ["block-1"]
    plain = recording_of("gcp-a3mega").one(TEMPLATE, "train-gpu-reserved-0-template").inputs
    assert plain["scheduling"]["provisioningModel"] == "STANDARD"
    assert plain["reservationAffinity"]["type"] == "SPECIFIC_RESERVATION"


def _names(recording: Recording) -> list[str]:
    return [one.inputs["name"] for one in recording.of(TEMPLATE)]


def test_the_name_of_a_template_depends_on_its_content() -> None:
    """The same declaration has the same name, and each changed setting another name."""
    usual = _names(recording_of_spec(parse_spec(BASE)))
    assert _names(recording_of_spec(parse_spec(BASE))) == usual
    (pool,) = BASE["pools"]
    for changes in ({"disk": {"size_gib": 300}}, {"tags": {"owner": "me"}}):
        assert _names(recording_of_spec(parse_spec({**BASE, "pools": [{**pool, **changes}]}))) != usual
    # The number of nodes is a setting of the group.
    more = [{**pool, "capacity": [{"kind": "on_demand", "count": 7}]}]
    assert _names(recording_of_spec(parse_spec({**BASE, "pools": more}))) == usual


def test_the_image_is_pinned_at_the_first_up() -> None:
    """The stack stores the newest image of the family once, and all templates use the stored image."""
    recording = recording_of("gcp-a3mega")
    (pin,) = [one for one in recording.resources if one.type == "pulumi:index:Stash"]
    assert pin.ignored == ("input",)
    requested = [arguments for token, arguments in recording.calls if token == "gcp:compute/getImage:getImage"]
    assert requested == [
        {"project": "ubuntu-os-accelerator-images", "family": "ubuntu-accelerator-2404-amd64-with-nvidia-580"}
    ]
    for template in recording.of(TEMPLATE):
        assert template.inputs["disks"][0]["sourceImage"] == pin.inputs["input"]
        assert pin.urn in template.depends_on


def test_a_custom_image_is_used_without_a_lookup() -> None:
    """The template has the path of the image, and the program calls no function for it."""
    recording = recorded("custom image")
    assert recording.one(TEMPLATE).inputs["disks"][0]["sourceImage"] == "projects/my-project/global/images/mine"
    assert not [token for token, _ in recording.calls if "getImage" in token]


def _subnets(recording: Recording) -> dict[str, Registered]:
    return {one.id: one for one in recording.of(SUBNET)}


@pytest.mark.parametrize(
    ("stack", "kinds", "networks"),
    [
        ("gcp-a3high", ["GVNIC"] * 5, 5),
        ("gcp-a3mega", ["GVNIC"] * 9, 9),
        ("gcp-a3ultra", ["GVNIC"] * 2 + ["MRDMA"] * 8, 3),
        ("a dense reservation", ["GVNIC"] * 2 + ["MRDMA"] * 8, 3),
        ("custom image", ["GVNIC"], 1),
    ],
)
def test_interfaces_match_the_machine_type(stack: str, kinds: list[str], networks: int) -> None:
    """Number, order and kind match; each gVNIC has a network of its own, and all RDMA interfaces share one with a subnet each."""
    recording = recorded(stack) if stack in VARIANTS else recording_of(stack)
    subnets = _subnets(recording)
    assert len(recording.of(NETWORK)) == networks
    for template in recording.of(TEMPLATE):
        interfaces = template.inputs["networkInterfaces"]
        assert [one["nicType"] for one in interfaces] == kinds
        used = [one["subnetwork"] for one in interfaces]
        assert len(set(used)) == len(kinds)
        assert set(used) == set(subnets)
        of = [subnets[one].inputs["network"] for one in used]
        plain = [net for net, kind in zip(of, kinds, strict=True) if kind == "GVNIC"]
        assert len(set(plain)) == len(plain)
        assert len(set(of) - set(plain)) == (1 if "MRDMA" in kinds else 0)
        assert not any("accessConfigs" in one for one in interfaces)


def test_an_rdma_network_has_the_profile_of_its_zone() -> None:
    """It has the profile, an MTU of 8896 and eight subnets, and no rule, router, log or private access, which it does not support."""
    recording = recording_of("gcp-a3ultra")
    (roce,) = [one for one in recording.of(NETWORK) if "networkProfile" in one.inputs]
    assert roce.inputs["networkProfile"].endswith("/global/networkProfiles/us-central1-b-vpc-roce")
    assert roce.inputs["mtu"] == 8896
    rails = [one for one in recording.of(SUBNET) if one.inputs["network"] == roce.id]
    assert len(rails) == 8
    assert not any(key in one.inputs for one in rails for key in ("logConfig", "privateIpGoogleAccess", "stackType"))
    assert {one.inputs["zone"] for one in recording.of(GROUP)} == {"us-central1-b"}
    filtered = {one.inputs["network"] for one in recording.of("gcp:compute/firewall:Firewall")}
    routed = {one.inputs["network"] for one in recording.of("gcp:compute/router:Router")}
    assert roce.id not in filtered | routed


@pytest.mark.parametrize("name", [*SHIPPED, *VARIANTS])
def test_ranges_never_overlap(name: str) -> None:
    """Subnets, rails and addresses of file systems are disjoint in all declarations."""
    from ipaddress import ip_network

    recording = recording_of(name) if name in SHIPPED else recorded(name)
    ranges = [ip_network(one.inputs["ipCidrRange"]) for one in recording.of(SUBNET)]
    ranges += [
        ip_network(f"{one.inputs['address']}/{int(one.inputs['prefixLength'])}")
        for one in recording.of("gcp:compute/globalAddress:GlobalAddress")
    ]
    assert all(one.is_private for one in ranges)
    assert not [(a, b) for i, a in enumerate(ranges) for b in ranges[i + 1 :] if a.overlaps(b)]


def test_the_site_creates_data_networks_and_the_cluster_rdma_networks() -> None:
    """A site creates the networks that clusters share; a cluster on it creates only its RDMA network."""
    site, cluster = recorded("a site alone"), recorded("a cluster with RDMA on a site")
    assert [one.name for one in site.of(NETWORK)] == ["train-network-host-1", "train-network-main"]
    assert [one.name for one in cluster.of(NETWORK)] == ["train-roce"]
    assert not recorded("a cluster on a site").of(NETWORK)
    used = recorded("a cluster on a site").one(TEMPLATE).inputs["networkInterfaces"]
    assert [re.sub(r".*lab-network-(.*)-0a1b2c3d", r"\1", one["subnetwork"]) for one in used] == [
        "private-0",
        *(f"data-{index}" for index in range(8)),
    ]


def test_a_missing_network_of_the_site_is_named() -> None:
    """If a machine type needs a network that the site does not have, the error names it and the change of the site."""
    declared = variant("a cluster on a site")
    pools = [{**BASE["pools"][0], "machine": "a3-megagpu-8g"}]
    from tests.clouds import recorder

    known = recorder.OTHER_STACKS["subnet_ids"]
    lacking = {name: path for name, path in known.items() if name != "data-7"}
    recorder.OTHER_STACKS["subnet_ids"] = lacking
    try:
        with pytest.raises(
            ValueError, match=r"no subnet data-7, which pool gpu .a3-megagpu-8g. needs.*network.machines"
        ):
            recording_of_spec(parse_spec({**declared, "pools": pools}))
    finally:
        recorder.OTHER_STACKS["subnet_ids"] = known


def test_secure_boot_is_on_without_unsigned_modules() -> None:
    """Secure Boot is on for nodes without GPUs and Lustre, and off for GPU nodes."""
    modes = {
        one.name: one.inputs["shieldedInstanceConfig"]["enableSecureBoot"]
        for one in recorded("three pools").of(TEMPLATE)
    }
    assert modes == {
        "train-gpu-on-demand-0-template": False,
        "train-gpu-spot-0-template": False,
        "train-small-spot-0-template": False,
        "train-login-on-demand-0-template": True,
    }


def test_placement_policies_are_on_groups_only() -> None:
    """Groups of machine types with a fast network have a policy, and templates have none."""
    placed = {one.name: "resourcePolicies" in one.inputs for one in recorded("three pools").of(GROUP)}
    assert placed == {
        "train-gpu-on-demand-0": True,
        "train-gpu-spot-0": True,
        "train-small-spot-0": False,
        "train-login-on-demand-0": False,
    }
    assert not any("resourcePolicies" in one.inputs for one in recorded("three pools").of(TEMPLATE))


def test_user_data_is_below_the_limit_and_has_no_secret() -> None:
    """The script is shorter than 256 KiB and has bucket, folder, bundle and file system."""
    recording = recording_of("gcp-a3mega")
    bundle = recording.one("gcp:storage/bucketObject:BucketObject")
    for template in recording.of(TEMPLATE):
        script = template.inputs["metadata"]["user-data"]
        assert script.startswith("#cloud-boothook\n#!/bin/bash\n")
        assert len(script.encode()) < 256 * 1024
        for word in (bundle.inputs["name"], bundle.inputs["bucket"], "evidence/train", '"10.64.0.3"', '"scratch0"'):
            assert word in script
        assert "PRIVATE KEY" not in script
        assert "startup-script" not in template.inputs["metadata"]


def test_the_workload_policy_does_not_depend_on_the_number_of_nodes() -> None:
    """Google refuses to add or remove the policy of a group with instances, so a second node must not add it."""
    found = set()
    for count in (1, 2, 9):
        declared: dict[str, Any] = variant("no storage")
        declared["pools"] = [
            {"name": "gpu", "machine": "a3-megagpu-8g", "capacity": [{"kind": "spot", "count": count}]}
        ]
        (pool,) = build_plan(parse_spec(declared), TODAY).pools
        found |= {group.placement_group for group in pool.groups}
    assert found == {"gpu-near"}
