"""The four ports on Google Cloud, through google-auth, against the stand-in's HTTP services."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2_grpc

from gpuinfra.clouds.gcp.handover import ports as gcp
from gpuinfra.handover.connect import ports_of
from gpuinfra.handover.ports import GroupExpected, IdentityRefused, ListedObject, Ports, PortUnavailable, evidence_in
from gpuinfra.node import cloud as node_cloud
from gpuinfra.node import upload
from gpuinfra.node.evidence import EvidenceFolder
from gpuinfra_rehearsal import endpoints as operator_endpoints
from gpuinfra_rehearsal.cloud.core import fleet as fleet_module
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.faults import Faults
from gpuinfra_rehearsal.cloud.core.provider import Provider, serve
from gpuinfra_rehearsal.cloud.core.server import Server
from gpuinfra_rehearsal.cloud.gcp import ids
from gpuinfra_rehearsal.cloud.gcp import tokens as gcp_tokens
from gpuinfra_rehearsal.nodes import endpoints
from rehearsal.tests.cloud import google
from rehearsal.tests.cloud.conftest import Client, Made
from rehearsal.tests.cloud.shared_object import only_the_first_writes
from tests.clouds.gcp import discovery
from tests.clouds.gcp.requests import Call

BOOT = "4c9a9f6e-6a2b-4df1-9b61-3f1d6f0a2b11"
PREFIX = "evidence/train"


@dataclass
class Site:
    """A stand-in cloud with an evidence bucket, the nodes' service account and a group of two."""

    cloud: Cloud
    server: Server
    client: Client
    account: Made
    group: Made

    @property
    def groups(self) -> list[GroupExpected]:
        """The groups that a program would declare."""
        return [GroupExpected(name="gpu-reserved-0", group=self.group.id, count=2, template_version="gpu-v1")]

    def numbers(self) -> list[str]:
        """The running instances."""
        return [one["id"] for one in self.cloud.fleet.instances().values() if one["state"] == "running"]

    def node(self, number: str) -> node_cloud.NodeCloud:
        """An instance's own cloud access, as its node program uses it."""
        return node_cloud.of({"cloud": "gcp"}, endpoints.of_node("gcp", self.cloud.endpoint, number))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One stand-in for all tests in this module, because creating a key is slow."""
    cloud = Cloud(tmp_path_factory.mktemp("rehearsal"))
    server = Server(cloud, "token")
    server.start()
    grpc_server, port = serve(Provider("gcp", cloud))
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    client = Client(provider_pb2_grpc.ResourceProviderStub(channel))
    bucket, account = google.bucket(client), google.account(client)
    folder = f"projects/_/buckets/{bucket.id}/objects/{PREFIX}/"
    google.grant(client, bucket, account, "roles/storage.objectCreator", f'resource.name.startsWith("{folder}")')
    identity = {"email": account.outputs["email"], "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
    group = google.group(client, google.template(client, serviceAccount=identity))
    fleet_module._SETTLE_S, kept = 0, fleet_module._SETTLE_S
    cloud.fleet.reconcile()
    fleet_module._SETTLE_S = kept
    yield Site(cloud, server, client, account, group)
    channel.close()
    grpc_server.stop(None)
    server.shutdown()
    server.server_close()
    cloud.close()


@pytest.fixture
def ports(site: Site, monkeypatch: pytest.MonkeyPatch) -> Ports:
    """The operator's ports, configured only by the environment of a rehearsal."""
    known = {"gcp": {"credentials_file": gcp_tokens.operator_file(site.cloud), "project": ids.PROJECT}}
    for name, value in operator_endpoints._gcp(site.cloud.endpoint, known, "us-central1").items():
        monkeypatch.setenv(name, value)
    return ports_of("gcp", region="us-central1", evidence_bucket="evidence-1", evidence_prefix=PREFIX)


def test_an_object_of_several_operators_loses_no_change(ports: Ports) -> None:
    """A write is refused if another operator wrote since the object was read."""
    only_the_first_writes(ports.store)


def report(site: Site, number: str, folder: Path, seq: int = 1) -> bytes:
    """Upload evidence as a node does, and return its content."""
    node = {"cloud": "gcp", "evidence": {"bucket": "evidence-1", "prefix": PREFIX}}
    document = {"schema": "gpuinfra.evidence/1", "instance_id": number, "boot_id": BOOT, "seq": seq}
    upload.deliver(node, document, EvidenceFolder(folder / number), site.node(number))
    return (json.dumps(document) + "\n").encode()


def test_members_have_number_template_zone_address_and_time(site: Site, ports: Ports) -> None:
    """Membership yields number, template, zone, address and launch time of each instance."""
    members = ports.membership.members(site.groups)
    assert sorted(one.instance_id for one in members) == sorted(site.numbers())
    one = members[0]
    assert (one.group, one.template_version, one.zone, one.leaving) == (site.group.id, "gpu-v1", google.ZONE, False)
    assert one.private_ip.startswith("10.")
    assert one.launched is not None
    assert abs((datetime.datetime.now(datetime.UTC) - one.launched).total_seconds()) < 300


def test_answers_have_the_shape_of_googles_discovery_document(site: Site, ports: Ports) -> None:
    """Each name in an answer of the stand-in is in the schema of the method, with a value of the documented type."""
    client, group = gcp.Client(), google.path()
    (first, *_) = ports.membership.members([GroupExpected(name="gpu", group=group, count=2)])
    zone, base = group.partition("/instanceGroupManagers/")[0], ports.membership._compute  # pyright: ignore[reportAttributeAccessIssue]
    for method, verb, path in (
        ("instanceGroupManagers.get", "GET", group),
        ("instanceGroupManagers.listManagedInstances", "POST", f"{group}/listManagedInstances"),
        ("instanceGroupManagers.listErrors", "GET", f"{group}/listErrors"),
        ("instanceGroupManagerResizeRequests.list", "GET", f"{group}/resizeRequests"),
        ("instances.list", "GET", f"{zone}/instances"),
        ("instances.get", "GET", first.resource),
        ("instances.getSerialPortOutput", "GET", f"{first.resource}/serialPort"),
    ):
        answer = client.json(verb, f"{base}{path}")
        assert answer, method
        assert discovery.answer_findings("compute.v1", method, answer) == [], method


def test_evidence_is_uploaded_and_its_signer_verified(site: Site, ports: Ports, tmp_path: Path) -> None:
    """The path from the node's upload to the operator's identity check works over HTTP with Google's libraries and real signatures."""
    number = site.numbers()[0]
    report(site, number, tmp_path)
    ports.membership.members(site.groups)
    assert number in ports.store.folders()
    refs = list(ports.store.list(number))
    assert [(ref.boot_id, ref.seq, ref.owner) for ref in refs] == [(BOOT, 1, "")]
    data, raw = ports.store.read(refs[0]), ports.store.proof(refs[0].proofs[0])
    assert raw is not None
    identity = ports.identity.verify(json.loads(raw))
    assert (identity.instance_id, identity.role) == (number, site.account.outputs["email"])
    assert identity.evidence_sha256 == hashlib.sha256(data).hexdigest()


def test_proof_can_be_renewed_but_nothing_can_be_replaced(
    site: Site, ports: Ports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewed proof is a new object, newest first, so a node needs no permission to replace an object."""
    monkeypatch.setattr(upload, "RENEW_S", -1.0)
    number = site.numbers()[1]
    report(site, number, tmp_path)
    node = site.node(number)
    (ref,) = ports.store.list(number)
    (first,) = ref.proofs
    upload.renew(
        {"cloud": "gcp", "evidence": {"bucket": "evidence-1", "prefix": PREFIX}},
        EvidenceFolder(tmp_path / number),
        node,
        BOOT,
    )
    ((newest, oldest),) = (one.proofs for one in ports.store.list(number))
    assert (oldest, newest.key != first.key) == (first, True)
    for key in (ref.key, first.key):
        with pytest.raises(node_cloud.Exists):
            node.put("evidence-1", key, b"{}", once=True)


def test_node_cannot_write_outside_its_clusters_folder(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The condition on the grant restricts the account to one prefix; the refusal has Google's text."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    node = site.node(site.numbers()[0])
    for key in ("evidence/other/1/x/000001.json", "bootstrap/x.tar.gz"):
        with pytest.raises(node_cloud.CloudError, match=r"403 nodes-1@.* does not have storage.objects.create access"):
            node.put("evidence-1", key, b"{}", once=True)


def test_token_of_another_instance_is_refused(site: Site, ports: Ports) -> None:
    """A proof names the instance that requested it, wherever it is stored."""
    ports.membership.members(site.groups)
    first, second = site.numbers()[:2]
    taken = site.node(second).proof("d" * 64, datetime.datetime.now(datetime.UTC))
    assert ports.identity.verify(taken).instance_id == second != first


def test_instances_of_other_projects_are_refused(site: Site, ports: Ports) -> None:
    """Before any group was read, no project is accepted."""
    taken = site.node(site.numbers()[0]).proof("d" * 64, datetime.datetime.now(datetime.UTC))
    with pytest.raises(IdentityRefused, match=f"signed in project {ids.PROJECT}, but its group is in none"):
        ports.identity.verify(taken)


def test_a_token_without_instance_details_is_refused(site: Site, ports: Ports) -> None:
    """A token without format=full identifies an account but no instance."""
    ports.membership.members(site.groups)
    one = site.cloud.store.get("instance", site.numbers()[0])
    assert one is not None
    short = gcp_tokens.identity_token(site.cloud.store, one, f"gpuinfra:evidence:{'d' * 64}", full=False)
    with pytest.raises(IdentityRefused, match="contains no instance"):
        ports.identity.verify({"schema": "gpuinfra.proof/1", "cloud": "gcp", "token": short})


def test_googles_own_library_accepts_the_stand_ins_token(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """google-auth verifies the same token with the keys that the stand-in serves."""
    import google.auth.jwt as google_jwt
    import jwt

    token = site.node(site.numbers()[0]).proof("d" * 64, datetime.datetime.now(datetime.UTC))["token"]
    known = jwt.PyJWKSet.from_dict(gcp_tokens.keys(site.cloud.store)).keys[0]
    from cryptography.hazmat.primitives import serialization

    pem = known.key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    decoded = google_jwt.decode(token, certs={str(known.key_id): pem}, audience=f"gpuinfra:evidence:{'d' * 64}")
    assert decoded["google"]["compute_engine"]["instance_id"] == site.numbers()[0]


def test_console_is_read_from_the_serial_port(site: Site, ports: Ports) -> None:
    """The last lines are returned, and none for an unknown instance."""
    number = site.numbers()[0]

    class Host:
        def console(self, id: str) -> str:
            return "".join(f"line {n}\x1b[31m\n" for n in range(2000)) if id == number else ""

    before, site.cloud.fleet.host = site.cloud.fleet.host, Host()
    try:
        ports.membership.members(site.groups)
        assert ports.console.tail(number, 2) == ["line 1998?[31m", "line 1999?[31m"]
        assert ports.console.tail("17", 2) == []
    finally:
        site.cloud.fleet.host = before


@pytest.mark.parametrize(
    ("managed", "leaving"),
    [
        ({"currentAction": "NONE", "instanceStatus": "RUNNING"}, False),
        ({"currentAction": "CREATING"}, False),
        ({"currentAction": "VERIFYING", "instanceStatus": "RUNNING"}, False),
        ({"currentAction": "DELETING", "instanceStatus": "RUNNING"}, True),
        ({"currentAction": "RECREATING", "instanceStatus": "RUNNING"}, True),
        ({"currentAction": "ABANDONING", "instanceStatus": "RUNNING"}, True),
        ({"currentAction": "NONE", "instanceStatus": "TERMINATED"}, True),
        ({"currentAction": "NONE", "instanceStatus": "STOPPING"}, True),
    ],
)
def test_terminating_instance_is_leaving(managed: dict[str, str], leaving: bool) -> None:
    """The current action and the status mark an instance as leaving; one without a number is not listed."""

    class Answers(gcp.Client):
        def json(self, method: str, url: str, parameters: Any = None, body: Any = None) -> dict[str, Any]:
            if url.endswith("/instances"):
                return {}
            if (parameters or {}).get("pageToken"):
                return {"managedInstances": [{"instance": "x/new", "currentAction": "CREATING", "id": "0"}]}
            return {"managedInstances": [{"id": "7", "instance": "x/gpu-7", **managed}], "nextPageToken": "2"}

    found = gcp.ManagedInstances(Answers(), gcp.COMPUTE).members(
        [GroupExpected(name="gpu", group=google.path(), count=2)]
    )
    assert [(one.instance_id, one.leaving, one.zone) for one in found] == [("7", leaving, google.ZONE)]


def test_folders_and_the_evidence_in_a_folder_are_listed_in_pages() -> None:
    """A folder is one element of `prefixes`, and the list of a folder has the folder's prefix."""

    class Answers(gcp.Client):
        def json(self, method: str, url: str, parameters: Any = None, body: Any = None) -> dict[str, Any]:
            if parameters["prefix"] == f"{PREFIX}/2/":
                item = {"updated": "2026-11-21T09:00:00Z", "generation": "1"}
                return {"items": [{"name": f"{PREFIX}/2/{BOOT}/000007{end}", **item} for end in (".json", ".proof.json")]}  # fmt: skip
            assert (parameters["prefix"], parameters["delimiter"]) == (f"{PREFIX}/", "/")
            if "pageToken" in parameters:
                return {"prefixes": [f"{PREFIX}/2/"]}
            return {"prefixes": [f"{PREFIX}/1/"], "nextPageToken": "t"}

    store = gcp.StorageEvidence(Answers(), gcp.STORAGE, "evidence-1", PREFIX)
    assert list(store.folders()) == ["1", "2"]
    assert [(ref.instance_id, ref.seq) for ref in store.list("2")] == [("2", 7)]


@pytest.mark.parametrize(
    ("fault", "scheduling", "cause"),
    [("cloud:no-capacity:on_demand", {}, "stock-out"), ("cloud:no-capacity:flex", "flex", "stock-out")],
)
def test_group_without_machines_reports_why(
    site: Site, ports: Ports, monkeypatch: pytest.MonkeyPatch, fault: str, scheduling: Any, cause: str
) -> None:
    """Missing capacity is reported with Compute Engine's text, for a group and for a queued request."""
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)
    monkeypatch.setattr(site.cloud, "faults", Faults([fault], site.cloud.store))
    name, queued = f"short-{fault[-4:].strip('_')}", scheduling == "flex"
    flex = {"provisioningModel": "FLEX_START", "automaticRestart": False, "maxRunDuration": {"seconds": 3600}}
    made = google.template(site.client, name, scheduling=flex if queued else scheduling)
    group = google.group(
        site.client, made, 0 if queued else 1, name, instanceLifecyclePolicy={"defaultActionOnFailure": "DO_NOTHING"}
    )
    if queued:
        inputs = {"name": "window-1", "instanceGroupManager": name, "zone": google.ZONE, "resizeBy": 2}
        site.client.create("gcp:compute/resizeRequest:ResizeRequest", inputs, "window-1")
    site.cloud.fleet.reconcile()
    wanted = [GroupExpected(name=name, group=group.id, count=2)]
    assert ports.membership.members(wanted) == []
    found = ports.membership.problems(wanted)
    assert [one.cause for one in found][:1] == [cause]
    assert found[0].message.startswith("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS: The zone ")
    assert found[0].at is not None
    site.client.delete(group)


def test_failures_before_a_success_are_not_reported(site: Site, ports: Ports) -> None:
    """An error before the launch of the newest instance is resolved."""
    site.cloud.store.put("activity", "0", {
        "n": 0, "id": "0", "region": "", "group": site.group.id, "description": "", "cause": "", "status": "Failed",
        "message": "no more", "code": "ZONE_RESOURCE_POOL_EXHAUSTED", "start": 1.0, "end": 1.0,
    })  # fmt: skip
    ports.membership.members(site.groups)
    assert ports.membership.problems(site.groups) == []


@pytest.mark.parametrize(
    "name", ["1/b/000001.json", "x/" + BOOT + "/000001.json", f"7/{BOOT}/1.json", f"7/{BOOT}/000001.proof.json", "7"]
)
def test_names_of_other_shapes_are_skipped(name: str) -> None:
    """Only names of the documented shape are evidence."""
    at = datetime.datetime.now(datetime.UTC)
    names = (name, f"7/{BOOT}/000012.json")
    objects = (ListedObject(key=f"{PREFIX}/{one}", etag="5", modified=at) for one in names)
    (found,) = evidence_in(gcp.NODE, f"{PREFIX}/", objects)
    assert (found.instance_id, found.seq, found.etag) == ("7", 12, "5")


def test_failed_requests_are_reported(site: Site, ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing group, an invalid path and missing credentials each give one sentence."""
    lost = [GroupExpected(name="x", group=google.path("missing"), count=1)]
    with pytest.raises(
        PortUnavailable, match=r"listManagedInstances returned status 404: The resource .*missing' was not found"
    ):
        ports.membership.members(lost)
    with pytest.raises(PortUnavailable, match="is not a zonal managed instance group"):
        ports.membership.members([GroupExpected(name="x", group="asg-1", count=1)])
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
    fresh = ports_of("gcp", region="us-central1", evidence_bucket="evidence-1", evidence_prefix=PREFIX)
    with pytest.raises(PortUnavailable, match=r"Google Cloud credentials: .*nowhere\.json"):
        fresh.membership.members(site.groups)
    with pytest.raises(PortUnavailable, match="profile and role_arn apply only to AWS"):
        ports_of("gcp", region="r", evidence_bucket="b", evidence_prefix="p", profile="me")


def test_recreated_instance_keeps_its_name_and_gets_another_number(
    site: Site, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request and the response follow Google's document; the group then has an instance with the same name and a new number."""
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)
    sent: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    original = gcp.Client.json

    def json_(client: gcp.Client, method: str, url: str, parameters: Any = None, body: Any = None) -> dict[str, Any]:
        answer = original(client, method, url, parameters, body)
        sent.extend([(url, body, answer)] if body else [])
        return answer

    monkeypatch.setattr(gcp.Client, "json", json_)
    old = ports.membership.members(site.groups)[0]
    ports.membership.replace(site.groups[0], old.instance_id)
    site.cloud.fleet.reconcile()
    new = [one for one in ports.membership.members(site.groups) if one.resource == old.resource]
    assert [one.instance_id != old.instance_id for one in new] == [True]
    ((url, body, answer),) = sent
    method = "instanceGroupManagers.recreateInstances"
    project, zone, name = gcp.group_path(site.group.id).values()
    call = Call("compute.v1", method, {"project": project, "zone": zone, "instanceGroupManager": name}, body)
    assert url.endswith(f"{site.group.id}/recreateInstances")
    assert discovery.findings(call) == []
    assert discovery.answer_findings("compute.v1", method, answer) == []
    with pytest.raises(PortUnavailable, match="is not in the group"):
        ports.membership.replace(site.groups[0], "1")
