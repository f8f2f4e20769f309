"""What the service accounts of the nodes and of the control node may do, by the published permissions of their roles."""

from __future__ import annotations

import pytest

from gpuinfra_rehearsal.cloud.gcp import conditions
from gpuinfra_rehearsal.cloud.gcp.access import CREATE, DELETE, GET, LIST, LIST_PREFIX, ROLES, UPDATE
from tests.clouds.recorder import Recording
from tests.clouds.stacks import recording_of, recording_of_spec, spec_of

FOLDER = "evidence/train/1000000000000000007/4c9a9f6e-6a2b-4df1-9b61-3f1d6f0a2b11"
DOCUMENT, PROOF = f"{FOLDER}/000001.json", f"{FOLDER}/000001.proof.json"


def allowed(recording: Recording, name: str) -> set[str]:
    """The permissions of the nodes on an object of the evidence bucket, or on a list with this prefix if the name ends with a slash."""
    (account,) = (one for one in recording.of("gcp:serviceaccount/account:Account") if one.name == "train-node-account")
    member = f"serviceAccount:{account.inputs['accountId']}@"
    grants = [
        one
        for one in recording.custom
        if one.type.startswith("gcp:storage/bucketIAM") and one.name.startswith("train-node-")
    ]
    (bucket,) = {one.inputs["bucket"] for one in grants if one.name == "train-node-evidence"}
    held: set[str] = set()
    for grant in grants:
        assert grant.inputs["member"].startswith(member)
        place = f"projects/_/buckets/{bucket}" + ("" if name.endswith("/") else f"/objects/{name}")
        known = {"resource.name": place, LIST_PREFIX: name if name.endswith("/") else ""}
        condition = (grant.inputs.get("condition") or {}).get("expression")
        if grant.inputs["bucket"] == bucket and (not condition or conditions.holds(condition, known)):
            held |= ROLES[grant.inputs["role"]]
    return held


@pytest.mark.parametrize("fabric_test", ["off", "required"])
def test_nodes_add_objects_and_replace_none(fabric_test: str) -> None:
    """A node can create evidence and proofs; it cannot read, replace or delete them, also not its own, and has no access to other objects."""
    spec = spec_of("gcp-a3mega")
    recording = recording_of_spec(
        spec.model_copy(update={"handover": spec.handover.model_copy(update={"fabric_test": fabric_test})})
    )
    assert allowed(recording, DOCUMENT) == {CREATE}
    assert allowed(recording, PROOF) == {CREATE}
    assert allowed(recording, "bootstrap/train/b.tar.gz") & {CREATE, DELETE, UPDATE} == set()
    assert GET in allowed(recording, "bootstrap/train/b.tar.gz")
    for name in (
        "evidence/other/1/b/000001.proof.json",
        "evidence/train-2/000001.json",
        "bootstrap/other/b.tar.gz",
        "x",
    ):
        assert allowed(recording, name) == set(), name
    for prefix in ("evidence/train/", "bootstrap/train/", f"{FOLDER}/"):
        assert LIST not in allowed(recording, prefix), prefix


def test_only_the_control_node_lists_instances_and_reads_its_secrets() -> None:
    """The account of the control node reads its bundle, creates evidence, lists instances of the project, attaches only its data disk and only to its own
    instances, reads only the declared secrets, writes its orders, and deletes only instances of the groups of its cluster."""
    recording = recording_of("gcp-monitoring")
    account = next(
        one for one in recording.of("gcp:serviceaccount/account:Account") if one.name == "watched-control-account"
    )
    member = f"serviceAccount:{account.inputs['accountId']}@"
    held = [one for one in recording.custom if str(one.inputs.get("member", "")).startswith(member)]
    grants = {one.name: one for one in held if one.type == "gcp:projects/iAMMember:IAMMember"}
    listed, attaches = grants.pop("watched-control-discovery"), grants.pop("watched-control-attach")
    (repairs,) = grants.values()
    (secret,) = [one for one in held if one.type == "gcp:secretmanager/secretIamMember:SecretIamMember"]
    roles = {one.name.removeprefix("watched-control-"): one for one in recording.of("gcp:projects/iAMCustomRole:IAMCustomRole")}  # fmt: skip
    role, attaching, replaces = roles["discovery-role"], roles["attach-role"], roles["repair-role"]
    assert attaching.inputs["permissions"] == ["compute.disks.use", "compute.instances.attachDisk"]
    assert attaching.inputs["roleId"] in str(attaches.inputs["role"])
    (disk,) = recording.of("gcp:compute/disk:Disk")
    path = f"projects/{disk.inputs['project']}/zones/{disk.inputs['zone']}"
    assert attaches.inputs["condition"]["expression"] == (
        f'(resource.type == "compute.googleapis.com/Disk" && resource.name == "{path}/disks/{disk.inputs["name"]}") || '
        f'(resource.type == "compute.googleapis.com/Instance" && resource.name.startsWith("{path}/instances/watched-monitoring-on-demand-0-"))'
    )
    assert replaces.inputs["permissions"] == ["compute.instances.delete"]
    assert replaces.inputs["roleId"] in str(repairs.inputs["role"])
    (group,) = [
        one
        for one in recording.of("gcp:compute/instanceGroupManager:InstanceGroupManager")
        if "monitoring" not in one.name
    ]
    base = f"zones/{group.inputs['zone']}/instances/{group.inputs['baseInstanceName']}-"
    assert base in repairs.inputs["condition"]["expression"]
    assert "condition" not in listed.inputs
    assert role.inputs["permissions"] == ["compute.instances.list"]
    assert role.inputs["roleId"] in str(listed.inputs["role"])
    assert (secret.inputs["secretId"], secret.inputs["role"]) == ("alerts-slack", "roles/secretmanager.secretAccessor")
    buckets = {one.inputs["role"]: one for one in held if one.type.startswith("gcp:storage/")}
    assert set(buckets) == {"roles/storage.objectViewer", "roles/storage.objectCreator", "roles/storage.objectUser"}
    orders = buckets["roles/storage.objectUser"].inputs["condition"]["expression"]
    assert "/objects/bootstrap/watched/monitoring/repair/" in orders
    assert len(held) == 7


def test_the_control_node_is_probed_and_reached_in_an_existing_network() -> None:
    """Firewall rules apply to service accounts, so those of the probes and of an existing network list the account of the control node too."""
    spec = spec_of("gcp-existing-network")
    recording = recording_of_spec(spec.model_copy(update={"monitoring": spec_of("gcp-monitoring").monitoring}))
    rules = {one.name: one.inputs for one in recording.of("gcp:compute/firewall:Firewall")}
    probes, nodes = (rules[f"{spec.name}-{name}"] for name in ("node-health-allow-probes", "node-firewall-allow-nodes"))
    assert len(probes["targetServiceAccounts"]) == 2
    assert nodes["sourceServiceAccounts"] == nodes["targetServiceAccounts"] == probes["targetServiceAccounts"]
