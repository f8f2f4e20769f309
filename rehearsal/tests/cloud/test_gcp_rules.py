"""What Google Cloud rejects and fills in: networks, private services access, buckets, keys, accounts, lookups, faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.faults import Faults
from gpuinfra_rehearsal.cloud.gcp import conditions as gcp_condition
from gpuinfra_rehearsal.cloud.gcp import ids
from rehearsal.tests.cloud import google
from rehearsal.tests.cloud.conftest import Client, Made

NAT = "gcp:compute/routerNat:RouterNat"
ADDRESS = "gcp:compute/globalAddress:GlobalAddress"
CONNECTION = "gcp:servicenetworking/connection:Connection"
LUSTRE = "gcp:lustre/instance:Instance"
RING, KEY = "gcp:kms/keyRing:KeyRing", "gcp:kms/cryptoKey:CryptoKey"
ROCE = f"projects/{ids.PROJECT}/global/networkProfiles/us-central1-a-vpc-roce"


def private_access(gcp: Client, network: Made) -> Made:
    """The way from a network to Google's own services."""
    inputs = {
        "name": "services", "purpose": "VPC_PEERING", "addressType": "INTERNAL", "prefixLength": 22, "network": network.outputs["selfLink"],
    }  # fmt: skip
    gcp.create(ADDRESS, inputs, "services")
    inputs = {
        "network": network.outputs["selfLink"],
        "service": "servicenetworking.googleapis.com",
        "reservedPeeringRanges": ["services"],
    }
    return gcp.create(CONNECTION, inputs, "services")


def lustre(gcp: Client, network: Made, **more: Any) -> Made:
    """A file system of the smallest size of its tier."""
    inputs = {
        "instanceId": "scratch", "filesystem": "scratch", "capacityGib": "18000", "perUnitStorageThroughput": "500", "location": google.ZONE,
        "network": network.id, **more,
    }  # fmt: skip
    return gcp.create(LUSTRE, inputs, "scratch")


@pytest.mark.parametrize(
    ("token", "inputs", "text"),
    [
        ("gcp:compute/network:Network", {"name": "mine"}, ("Error 409: The resource 'projects/standin-project/global/networks/mine' "
            "already exists, alreadyExists")),
        ("gcp:storage/bucket:Bucket", {"name": "mine-1", "location": "US"}, "Error 409: Your previous request to create the named bucket succeeded"),
        ("gcp:serviceaccount/account:Account", {"accountId": "mine-1"}, "Service account mine-1 already exists within project"),
        (RING, {"name": "mine", "location": "us-central1"}, "KeyRing projects/standin-project/locations/us-central1/keyRings/mine already exists"),
    ],
)  # fmt: skip
def test_a_second_creation_under_a_name_is_rejected(gcp: Client, token: str, inputs: dict[str, Any], text: str) -> None:
    """The error has the cloud's own code, and the first resource stays."""
    made = gcp.create(token, inputs, "first")
    with pytest.raises(grpc.RpcError, match=text):
        gcp.create(token, inputs, "second")
    read = gcp.read(token, made.id).outputs
    assert read == {**read, **made.outputs}


MEMBER = {"project": ids.PROJECT, "role": "roles/logging.logWriter", "member": "user:person@example.com"}


@pytest.mark.parametrize(
    ("token", "inputs", "left"),
    [
        ("gcp:projects/service:Service", {"service": "compute.googleapis.com", "disableOnDestroy": False}, True),
        ("gcp:projects/serviceIdentity:ServiceIdentity", {"service": "lustre.googleapis.com"}, True),
        ("gcp:projects/iAMMember:IAMMember", MEMBER, False),
        ("gcp:artifactregistry/repositoryIamMember:RepositoryIamMember", {**MEMBER, "repository": "images", "location": "us-central1"}, False),
    ],
)  # fmt: skip
def test_apis_and_members_can_be_added_twice(
    gcp: Client, cloud: Cloud, token: str, inputs: dict[str, Any], left: bool
) -> None:
    """Two stacks add the same one; an API stays enabled for the other stack, a member is removed for both."""
    inputs = {"project": ids.PROJECT, **inputs}
    first, second = gcp.create(token, inputs, "first"), gcp.create(token, inputs, "second")
    assert first.id == second.id
    assert len(cloud.store.list(token)) == 1
    gcp.delete(first)
    assert [one.urn for one in cloud.store.list(token)] == ([second.urn] if left else [])
    gcp.delete(second)
    assert not cloud.store.list(token)


def test_a_log_bucket_is_imported_by_its_path(gcp: Client) -> None:
    """Its id begins with the project, as in sinks and imports."""
    made = gcp.create(
        "gcp:logging/projectBucketConfig:ProjectBucketConfig",
        {"project": ids.PROJECT, "location": "us-central1", "bucketId": "audit"},
    )
    assert made.id == f"projects/{ids.PROJECT}/locations/us-central1/buckets/audit"


def test_subnets_of_one_network_do_not_overlap(gcp: Client) -> None:
    """The same range is valid in another network."""
    first = google.network(gcp)
    google.subnet(gcp, first)
    with pytest.raises(
        grpc.RpcError, match=r"Invalid IPCidrRange: 10\.0\.128\.0/20 conflicts with existing subnetwork 'main'"
    ):
        google.subnet(gcp, first, "10.0.128.0/20", "second")
    google.subnet(gcp, google.network(gcp, "data-0"), "10.0.128.0/20", "data-0")


def test_a_network_with_content_is_not_deleted(gcp: Client) -> None:
    """Subnets and firewall rules have to be deleted first."""
    made = google.network(gcp)
    within = google.subnet(gcp, made)
    rule = {"name": "inside", "network": made.outputs["selfLink"], "allows": [{"protocol": "tcp"}]}
    wall = gcp.create("gcp:compute/firewall:Firewall", rule, "inside")
    for one in (within, wall):
        with pytest.raises(grpc.RpcError, match=r"The network resource '.*main' is already being used by"):
            gcp.delete(made)
        gcp.delete(one)
    gcp.delete(made)


def test_the_quota_of_networks_can_be_set(gcp: Client, cloud: Cloud) -> None:
    """With a quota of two, the third network is rejected."""
    cloud.store.put("external", "quota:NETWORKS", {"count": 2})
    for name in ("main", "data-0"):
        google.network(gcp, name)
    with pytest.raises(
        grpc.RpcError, match=r"Error 403: Quota 'NETWORKS' exceeded\. Limit: 2\.0 globally\., quotaExceeded"
    ):
        google.network(gcp, "data-1")


@pytest.mark.parametrize("token", ["gcp:compute/firewall:Firewall", "gcp:compute/router:Router"])
def test_a_network_for_rdma_accepts_neither_rules_nor_routers(gcp: Client, token: str) -> None:
    """Its profile forbids both."""
    made = google.network(gcp, "roce", networkProfile=ROCE, mtu=8896)
    with pytest.raises(grpc.RpcError, match=r"not supported on network .*roce"):
        gcp.create(token, {"name": "x", "network": made.outputs["selfLink"], "region": "us-central1"} if "router" in token
                   else {"name": "x", "network": made.outputs["selfLink"], "allows": [{"protocol": "tcp"}]})  # fmt: skip


def test_interfaces_need_matching_networks(gcp: Client) -> None:
    """Two ordinary interfaces need two networks; an RDMA interface needs a network with a profile and is never the first."""
    main, roce = google.network(gcp), google.network(gcp, "roce", networkProfile=ROCE, mtu=8896)
    first, rail = google.subnet(gcp, main), google.subnet(gcp, roce, "10.1.0.0/16", "roce-0")

    def nic(subnet: Made, kind: str = "GVNIC") -> dict[str, str]:
        return {"subnetwork": subnet.outputs["selfLink"], "nicType": kind}

    with pytest.raises(grpc.RpcError, match="Networks must be distinct for NICs attached to a VM"):
        google.template(gcp, networkInterfaces=[nic(first), nic(first)])
    with pytest.raises(grpc.RpcError, match="The primary network interface must not be of type MRDMA"):
        google.template(gcp, networkInterfaces=[nic(rail, "MRDMA")])
    for wrong in ([nic(first), nic(rail)], [nic(first), nic(first, "MRDMA")]):
        with pytest.raises(grpc.RpcError, match=r"is not supported on network"):
            google.template(gcp, networkInterfaces=wrong)
    google.template(gcp, networkInterfaces=[nic(first), nic(rail, "MRDMA"), nic(rail, "MRDMA")])


def test_a_template_with_an_absent_subnet_is_rejected(gcp: Client) -> None:
    """A subnet of the stand-in's project has to exist; one of another project is believed."""
    gone = f"projects/{ids.PROJECT}/regions/us-central1/subnetworks/none"
    with pytest.raises(grpc.RpcError, match=f"The resource '{gone}' was not found"):
        google.template(gcp, networkInterfaces=[{"subnetwork": gone}])


def test_a_gateway_belongs_to_its_router(gcp: Client) -> None:
    """It needs a router and is deleted with it."""
    made = google.network(gcp)
    inputs = {
        "name": "out", "router": "router", "region": "us-central1", "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
    }  # fmt: skip
    with pytest.raises(grpc.RpcError, match="routers/router' was not found"):
        gcp.create(NAT, inputs)
    router = gcp.create(
        "gcp:compute/router:Router", {"name": "router", "network": made.outputs["selfLink"], "region": "us-central1"}
    )
    gateway = gcp.create(NAT, inputs)
    assert gateway.id == f"{ids.PROJECT}/us-central1/router/out"
    gcp.delete(router)
    assert gcp.read(NAT, gateway.id).id == ""


def test_lustre_needs_private_access_and_blocks_its_deletion(gcp: Client) -> None:
    """The connection is created first and deleted last."""
    made = google.network(gcp)
    with pytest.raises(grpc.RpcError, match="Private services access is not configured"):
        lustre(gcp, made)
    access = private_access(gcp, made)
    files = lustre(gcp, made)
    assert files.outputs["mountPoint"].endswith("@tcp:/scratch")
    with pytest.raises(grpc.RpcError, match=r"Producer services .* are still using this connection"):
        gcp.delete(access)
    gcp.delete(files)
    gcp.delete(access)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"capacityGib": "9000"}, "must be 18000 to"),
        ({"perUnitStorageThroughput": "300"}, "must be one of 125, 250, 500, 1000"),
        ({"filesystem": "scratch-1"}, "at most 8 letters and digits"),
    ],
)
def test_lustre_has_sizes_by_tier(gcp: Client, more: dict[str, str], text: str) -> None:
    """Invalid sizes and names are rejected before the creation."""
    inputs = {
        "instanceId": "scratch", "filesystem": "scratch", "capacityGib": "18000", "perUnitStorageThroughput": "500", "location": google.ZONE,
        "network": "n", **more,
    }  # fmt: skip
    assert any(text in failure for failure in gcp.failures(LUSTRE, inputs))


def test_lustre_only_grows_and_keeps_its_address(gcp: Client) -> None:
    """Its size changes in place."""
    made = google.network(gcp)
    private_access(gcp, made)
    files = lustre(gcp, made)
    grown = gcp.update(files, {"capacityGib": "36000"})
    assert grown.outputs["mountPoint"] == files.outputs["mountPoint"]
    with pytest.raises(grpc.RpcError, match="can only grow"):
        gcp.update(grown, {"capacityGib": "18000"})


def test_a_protected_filestore_stays(gcp: Client) -> None:
    """It has an address in the network and can be deleted only without protection."""
    inputs = {
        "name": "home", "tier": "ZONAL", "location": google.ZONE, "deletionProtectionEnabled": True,
        "fileShares": {"name": "home", "capacityGb": 1024}, "networks": [{"network": "elsewhere", "modes": ["MODE_IPV4"]}],
    }  # fmt: skip
    made = gcp.create("gcp:filestore/instance:Instance", inputs)
    assert made.outputs["networks"][0]["ipAddresses"][0].startswith("10.")
    with pytest.raises(grpc.RpcError, match="protected against deletion"):
        gcp.delete(made)
    gcp.delete(gcp.update(made, {"deletionProtectionEnabled": False}))


def test_a_bucket_with_objects_stays(gcp: Client) -> None:
    """Without force_destroy it cannot be deleted."""
    made = google.bucket(gcp)
    inputs = {"bucket": made.id, "name": "a/b.txt", "content": "hello"}
    held = gcp.create("gcp:storage/bucketObject:BucketObject", inputs)
    with pytest.raises(grpc.RpcError, match="containing objects without `force_destroy` set to true"):
        gcp.delete(made)
    gcp.delete(held)
    gcp.delete(made)


def test_retention_holds_objects_and_bucket(gcp: Client, cloud: Cloud) -> None:
    """Neither can be deleted early, even with force_destroy; a lock cannot be shortened."""
    lock = {"retentionPeriod": "86400", "isLocked": True}
    made = google.bucket(gcp, forceDestroy=True, retentionPolicy=lock)
    held = gcp.create("gcp:storage/bucketObject:BucketObject", {"bucket": made.id, "name": "x", "content": "hello"})
    for one in (held, made):
        with pytest.raises(grpc.RpcError, match="retention policy or object retention"):
            gcp.delete(one)
    for policy in ({"retentionPeriod": "3600", "isLocked": True}, {"retentionPeriod": "86400", "isLocked": False}):
        with pytest.raises(grpc.RpcError, match="Cannot reduce retention duration of a locked"):
            gcp.update(made, {"retentionPolicy": policy})
    gcp.update(made, {"retentionPolicy": {"retentionPeriod": "172800", "isLocked": True}})


def test_keys_are_never_deleted(gcp: Client, cloud: Cloud) -> None:
    """A key that the provider forgot keeps its name, so the next creation is rejected, as in every second up."""
    ring = gcp.create(RING, {"name": "train", "location": "us-central1"}, "ring")
    key = gcp.create(KEY, {"name": "data", "keyRing": ring.id}, "key")
    assert key.id == f"{ring.id}/cryptoKeys/data"
    gcp.delete(key)
    gcp.delete(ring)
    with pytest.raises(grpc.RpcError, match=r"CryptoKey .*cryptoKeys/data already exists"):
        gcp.create(KEY, {"name": "data", "keyRing": ring.id}, "key")
    with pytest.raises(grpc.RpcError, match=r"KeyRing .* already exists"):
        gcp.create(RING, {"name": "train", "location": "us-central1"}, "ring")


@pytest.mark.parametrize(
    ("member", "text"),
    [
        (f"serviceAccount:nobody@{ids.PROJECT}.iam.gserviceaccount.com", "Service account nobody@.* does not exist"),
        ("nobody@example.com", "Invalid principal: nobody@example.com"),
    ],
)
def test_a_grant_to_an_absent_member_is_rejected(gcp: Client, member: str, text: str) -> None:
    """A member has a kind, and an account of this project has to exist."""
    made = google.bucket(gcp)
    inputs = {"bucket": made.id, "role": "roles/storage.objectViewer", "member": member}
    with pytest.raises(grpc.RpcError, match=text):
        gcp.create("gcp:storage/bucketIAMMember:BucketIAMMember", inputs)


def test_grants_differ_by_their_conditions(gcp: Client) -> None:
    """The same role under two conditions is two grants."""
    made, who = google.bucket(gcp), google.account(gcp)
    role = "roles/storage.objectUser"
    first = google.grant(gcp, made, who, role, 'resource.name.startsWith("a")')
    second = google.grant(gcp, made, who, role, 'resource.name.startsWith("abc")')
    assert first.id != second.id


def test_an_unsupported_condition_is_rejected_early(gcp: Client) -> None:
    """An unsupported condition would allow nothing, so it is rejected at once."""
    inputs = {
        "bucket": "b", "role": "r", "member": "user:me@example.com",
        "condition": {"title": "x", "expression": 'request.time < timestamp("2027-01-01T00:00:00Z")'},
    }  # fmt: skip
    assert any("cannot be parsed" in one for one in gcp.failures("gcp:storage/bucketIAMMember:BucketIAMMember", inputs))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('resource.name.startsWith("a/b/")', True),
        ("resource.name.startsWith('a/c')", False),
        ('resource.name.startsWith("a/") && resource.name.endsWith(".json")', True),
        ('resource.name.startsWith("x") || resource.name.endsWith(".json")', True),
        ('!resource.name.endsWith(".json")', False),
        ('!(resource.name == "x") && resource.type == "t"', True),
        ('resource.type != "t" || (resource.name == "a/b/c.json" && !false)', True),
        ('resource.name.endsWith("\\".json")', False),
        ('resource.name.extract("a/{x}/") == "b"', True),
        ('resource.name.extract("/b/{x}") != ""', True),
        ('resource.name.extract("/z/{x}") != ""', False),
        ('resource.name.extract("a/{x}!") == ""', True),
        ("true", True),
        ('"text"', False),
        ('resource.name.contains("b")', False),
        ("resource.name.startsWith(", False),
        ("", False),
    ],
)
def test_conditions_are_evaluated(text: str, holds: bool) -> None:
    """The part of the language that object names need; what cannot be read holds for nothing."""
    assert gcp_condition.holds(text, {"resource.name": "a/b/c.json", "resource.type": "t"}) is holds


def test_lookups_return_the_project(gcp: Client) -> None:
    """Project, service agents, image families and zones have Google's forms."""
    found = gcp.invoke("gcp:organizations/getProject:getProject")
    assert (found["projectId"], found["number"]) == (ids.PROJECT, ids.PROJECT_NUMBER)
    agent = gcp.invoke("gcp:storage/getProjectServiceAccount:getProjectServiceAccount")["emailAddress"]
    assert agent == f"service-{ids.PROJECT_NUMBER}@gs-project-accounts.iam.gserviceaccount.com"
    image = gcp.invoke("gcp:compute/getImage:getImage", project="ubuntu-os-cloud", family="ubuntu-2204-lts-amd64")
    assert image["selfLink"].endswith("/projects/ubuntu-os-cloud/global/images/ubuntu-2204-lts-amd64-v20260101")
    assert gcp.invoke("gcp:compute/getZones:getZones", region="europe-west4")["names"][0] == "europe-west4-a"


def test_a_described_reservation_is_found(gcp: Client, cloud: Cloud) -> None:
    """Any other reservation does not exist."""
    asked = {"name": "block-7", "zone": google.ZONE}
    with pytest.raises(grpc.RpcError, match="reservations/block-7' was not found"):
        gcp.invoke("gcp:compute/getReservation:getReservation", **asked)
    cloud.store.put("external", "block-7", {"count": 2})
    assert gcp.invoke("gcp:compute/getReservation:getReservation", **asked)["status"] == "READY"


def test_injected_faults_have_googles_form(gcp: Client, cloud: Cloud) -> None:
    """The first creation fails with a 503 in Google's form, the second succeeds."""
    cloud.faults = Faults(["cloud:error:Network:1"], cloud.store)
    with pytest.raises(grpc.RpcError, match=r"googleapi: Error 503: The service is currently unavailable"):
        google.network(gcp)
    assert google.network(gcp).id


def test_computed_labels_are_secret(gcp: Client) -> None:
    """The SDK declares them secret."""
    made = google.bucket(gcp, labels={"a": "b"})
    assert wire.is_secret(made.outputs["effectiveLabels"])
    assert not wire.is_secret(made.outputs["labels"])


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda gcp: google.template(gcp), {"machineType": "a3-highgpu-8g"}),
        (lambda gcp: google.network(gcp), {"networkProfile": ROCE}),
        (lambda gcp: google.bucket(gcp), {"location": "EU"}),
        (lambda gcp: google.account(gcp), {"accountId": "other-1"}),
    ],
)
def test_immutable_inputs_show_a_replacement(
    gcp: Client, make: Callable[[Client], Made], change: dict[str, Any]
) -> None:
    """The preview shows it."""
    made = make(gcp)
    assert gcp.diff(made, {**made.inputs, **change}).replaces == list(change)
