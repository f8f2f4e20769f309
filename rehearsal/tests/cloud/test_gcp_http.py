"""Google's own clients use the HTTP services; tokens are verified."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpuinfra
from gpuinfra.clouds.gcp.adopt import connect
from gpuinfra.clouds.gcp.pending import PendingProject
from gpuinfra.clouds.pending import PendingCreate, StackIdentity
from gpuinfra.node import gcp as gcp_node
from gpuinfra_rehearsal import endpoints as operator_endpoints
from gpuinfra_rehearsal.cloud.core import fleet as fleet_module
from gpuinfra_rehearsal.cloud.core import registry
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.faults import Faults
from gpuinfra_rehearsal.cloud.core.server import Server
from gpuinfra_rehearsal.cloud.gcp import ids
from gpuinfra_rehearsal.cloud.gcp import tokens as gcp_tokens
from gpuinfra_rehearsal.cloud.gcp.groups import ManagedGroups
from gpuinfra_rehearsal.nodes import endpoints
from rehearsal.tests.cloud import google
from rehearsal.tests.cloud.conftest import Client

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
USER_DATA = "#!/bin/bash\necho hello\n"


@pytest.fixture
def server(cloud: Cloud) -> Iterator[Server]:
    """The HTTP side of the cloud."""
    server = Server(cloud, "token")
    server.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def node(cloud: Cloud, gcp: Client, server: Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """One machine that runs under an account that may read below `bootstrap/`."""
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)
    bucket, account = google.bucket(gcp), google.account(gcp)
    folder = f"projects/_/buckets/{bucket.id}/objects/bootstrap/"
    google.grant(gcp, bucket, account, "roles/storage.objectViewer", f'resource.name.startsWith("{folder}")')
    identity = {"email": account.outputs["email"], "scopes": [SCOPE]}
    google.group(gcp, google.template(gcp, serviceAccount=identity), 1)
    cloud.fleet.reconcile()
    return next(iter(cloud.fleet.instances().values()))


def ask(url: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers (lower case) of an answer, whatever it is."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data=body, method=method, headers=named)
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, answer.read(), {k.lower(): v for k, v in answer.headers.items()}
    except urllib.error.HTTPError as error:
        return error.code, error.read(), {k.lower(): v for k, v in error.headers.items()}


def metadata(cloud: Cloud, node: dict[str, Any], path: str, **headers: str) -> tuple[int, str]:
    """One question to a machine's metadata server."""
    base = f"{cloud.endpoint}/.gcp/imds/{node['id']}/computeMetadata/v1/{path}"
    status, body, _ = ask(base, "GET", None, **(headers or {"Metadata_Flavor": "Google"}))
    return status, body.decode()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("instance/id", "1000000000000000001"),
        ("instance/zone", f"projects/{ids.PROJECT_NUMBER}/zones/us-central1-a"),
        ("instance/machine-type", f"projects/{ids.PROJECT_NUMBER}/machineTypes/a3-megagpu-8g"),
        ("instance/attributes/user-data", USER_DATA),
        ("instance/service-accounts/default/email", f"nodes-1@{ids.PROJECT}.iam.gserviceaccount.com"),
        ("instance/preempted", "FALSE"),
        ("project/project-id", ids.PROJECT),
        ("instance/attributes/", "user-data\n"),
    ],
)
def test_metadata_describes_the_machine(cloud: Cloud, node: dict[str, Any], path: str, said: str) -> None:
    """The keys and forms that Google documents."""
    assert metadata(cloud, node, path) == (200, said)


def test_the_metadata_server_refuses_invalid_requests(cloud: Cloud, node: dict[str, Any]) -> None:
    """Requests without Google's header, through a proxy, for unknown keys and for lost machines are refused."""
    assert metadata(cloud, node, "instance/id", Accept="*/*")[0] == 403
    assert metadata(cloud, node, "instance/id", Metadata_Flavor="Google", X_Forwarded_For="1.2.3.4")[0] == 403
    assert metadata(cloud, node, "instance/none")[0] == 404
    assert metadata(cloud, node, "instance/service-accounts/other@x/token")[0] == 404
    assert metadata(cloud, node, "instance/service-accounts/default/identity") == (
        400,
        "non-empty audience parameter required",
    )
    cloud.fleet.lose(node["id"])
    assert metadata(cloud, node, "instance/id")[0] == 404


def test_googles_own_library_reads_the_metadata_server(
    cloud: Cloud, node: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """google-auth finds project, account and a token, by the variable that it documents."""
    import importlib

    import google.auth.compute_engine._metadata as library
    from google.auth.transport.requests import Request

    for name, value in endpoints.of_node("gcp", cloud.endpoint, node["id"]).items():
        monkeypatch.setenv(name, value)
    importlib.reload(library)
    try:
        request = Request()
        assert library.get_project_id(request) == ids.PROJECT
        token, _ = library.get_service_account_token(request)
        assert dict(library.get_service_account_info(request) or {})["email"].startswith("nodes-1@")  # pyright: ignore[reportArgumentType, reportCallIssue]
        assert gcp_tokens.principal(cloud.store, f"Bearer {token}").instance == node["id"]
    finally:
        monkeypatch.undo()
        importlib.reload(library)


def test_tokens_are_renewed_and_expire(cloud: Cloud, node: dict[str, Any]) -> None:
    """A token is reused until shortly before its end; an invented, an expired and a dead machine's token are denied."""
    first = json.loads(metadata(cloud, node, "instance/service-accounts/default/token")[1])["access_token"]
    assert json.loads(metadata(cloud, node, "instance/service-accounts/default/token")[1])["access_token"] == first
    known = cloud.store.get("gcp-current", node["id"])
    assert known is not None
    cloud.store.put("gcp-current", node["id"], {**known, "expires": known["expires"] - 3400})
    second = json.loads(metadata(cloud, node, "instance/service-accounts/default/token")[1])["access_token"]
    assert second != first
    where = f"{cloud.endpoint}/.gcp/storage/storage/v1/b/evidence-1/o/bootstrap%2Fx?alt=media"
    assert ask(where, Authorization=f"Bearer {second}")[0] == 404
    for wrong in ("Bearer ya29.invented", "Basic x", ""):
        assert ask(where, Authorization=wrong)[0] == 401
    cloud.fleet.lose(node["id"])
    assert ask(where, Authorization=f"Bearer {second}")[0] == 401


@pytest.fixture
def operator(cloud: Cloud, server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The operator's environment, as a rehearsal sets it; the bucket of the tests is there."""
    known = {"gcp": {"credentials_file": gcp_tokens.operator_file(cloud), "project": ids.PROJECT}}
    for name, value in operator_endpoints._gcp(cloud.endpoint, known, "us-central1").items():
        monkeypatch.setenv(name, value)
    return cloud.endpoint


def with_googles_clients(script: str) -> list[Any]:
    """What a script that uses Google's own clients prints, as JSON lines.

    It runs in a process of its own: those clients and Pulumi's protocol both bring `google.rpc.Status`, and one process takes one.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


STORAGE = """
import json
import google.auth
from google.api_core.exceptions import Forbidden, NotFound, PreconditionFailed
from google.cloud import storage

# Beside an emulator the client asks without credentials, unless it is given some.
who, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
client = storage.Client(project="standin-project", credentials=who)
bucket = client.bucket("evidence-1")
say = lambda value: print(json.dumps(value))

def refused(kind, what):
    try:
        what()
        say("done")
    except kind as error:
        say(str(error))
"""


def test_googles_own_storage_client_works(gcp: Client, operator: str) -> None:
    """google-cloud-storage uploads, uploads conditionally, lists by page and folder, reads, reads ranges and deletes."""
    google.bucket(gcp)
    said = with_googles_clients(
        STORAGE
        + """
for number in range(5):
    bucket.blob(f"a/{number}/x ü.json").upload_from_string(b"line\\r\\n--x\\r\\n" * number, if_generation_match=0)
blob = bucket.blob("a/3/x ü.json")
refused(PreconditionFailed, lambda: blob.upload_from_string(b"x", if_generation_match=0))
say(blob.download_as_bytes().decode())
say(blob.download_as_bytes(start=0, end=3).decode())
say([one.name for one in client.list_blobs("evidence-1", prefix="a/", page_size=2)])
listed = client.list_blobs("evidence-1", prefix="a/", delimiter="/")
say([one.name for one in listed])
say(sorted(listed.prefixes))
blob.delete()
refused(NotFound, blob.download_as_bytes)
"""
    )
    assert "conditions you specified did not hold" in said[0]
    assert said[1:3] == ["line\r\n--x\r\n" * 3, "line"]
    assert said[3] == [f"a/{number}/x ü.json" for number in range(5)]
    assert said[4:6] == [[], [f"a/{number}/" for number in range(5)]]
    assert "No such object: evidence-1/a/3/x" in said[6]


def test_retention_holds_over_http(gcp: Client, operator: str) -> None:
    """An object cannot be overwritten or deleted, and the error has the date."""
    google.bucket(gcp, retentionPolicy={"retentionPeriod": "86400"})
    said = with_googles_clients(
        STORAGE
        + """
blob = bucket.blob("x")
blob.upload_from_string(b"1")
refused(Forbidden, lambda: blob.upload_from_string(b"2"))
refused(Forbidden, blob.delete)
say(blob.download_as_bytes().decode())
"""
    )
    assert all(
        "retention policy or object retention and cannot be deleted or overwritten until 20" in one for one in said[:2]
    )
    assert said[2] == "1"


COMPUTE = """
import json, os, sys
import google.auth
from google.auth.transport.requests import AuthorizedSession
from google.cloud import compute_v1

session = AuthorizedSession(google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])[0])
say = lambda value: print(json.dumps(value))
zone = os.environ["CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"] + "projects/standin-project/zones/us-central1-a/"

def read(kind, path, method="GET"):
    answer = session.request(method, zone + path)
    assert answer.status_code == 200, answer.text
    return kind.from_json(answer.text, ignore_unknown_fields=False)
"""


def test_googles_own_compute_types_read_the_answers(cloud: Cloud, node: dict[str, Any], operator: str) -> None:
    """google-cloud-compute parses every field of groups, managed instances, errors, requests, instances and serial ports."""
    said = with_googles_clients(
        COMPUTE
        + """
found = read(compute_v1.InstanceGroupManagersListManagedInstancesResponse, "instanceGroupManagers/gpu/listManagedInstances", "POST")
say([[str(one.id), one.version.instance_template.rpartition("/")[2], one.current_action] for one in found.managed_instances])
say(read(compute_v1.InstanceGroupManager, "instanceGroupManagers/gpu").target_size)
say([one.name for one in read(compute_v1.InstanceList, "instances").items])
name = read(compute_v1.InstanceList, "instances").items[0].name
say(read(compute_v1.SerialPortOutput, f"instances/{name}/serialPort").contents)
say(len(read(compute_v1.InstanceGroupManagersListErrorsResponse, "instanceGroupManagers/gpu/listErrors").items))
say(len(read(compute_v1.InstanceGroupManagerResizeRequestsListResponse, "instanceGroupManagers/gpu/resizeRequests").items))
"""
    )
    assert said[0] == [[node["id"], "gpu-v1", "NONE"]]
    assert said[1:3] == [1, [node["vm"]]]
    assert "does not boot" in said[3]
    assert said[4:] == [0, 0]


def test_a_node_cannot_describe_groups(cloud: Cloud, node: dict[str, Any]) -> None:
    """Its account has only the permissions of its grants."""
    token = json.loads(metadata(cloud, node, "instance/service-accounts/default/token")[1])["access_token"]
    where = f"{cloud.endpoint}/.gcp/compute/v1/projects/{ids.PROJECT}/zones/{google.ZONE}/instances"
    status, body, _ = ask(where, Authorization=f"Bearer {token}")
    assert status == 403
    assert "Required 'compute.instances.list' permission" in json.loads(body)["error"]["message"]


def test_used_rights_and_denials_are_reported(cloud: Cloud, gcp: Client, node: dict[str, Any]) -> None:
    """A grant is used when its role allowed a request; a denied permission is named."""
    cloud.store.put_object("evidence-1", "bootstrap/a", b"bundle")
    token = json.loads(metadata(cloud, node, "instance/service-accounts/default/token")[1])["access_token"]
    base = f"{cloud.endpoint}/.gcp/storage/storage/v1/b/evidence-1/o"
    before = cloud.rights.summary(cloud.fleet.running())
    assert (len(before["not_exercised"]), before["unused"], before["used"]) == (1, [], [])
    assert ask(f"{base}/bootstrap%2Fa?alt=media", Authorization=f"Bearer {token}")[1] == b"bundle"
    assert ask(f"{base}/bootstrap%2Fa", "DELETE", Authorization=f"Bearer {token}")[0] == 403
    seen = cloud.rights.summary(cloud.fleet.running())
    assert (seen["used"], seen["unused"]) == (before["not_exercised"], [])
    assert [one.partition(": ")[2].partition(" on ")[0] for one in seen["refused"]] == ["storage.objects.delete"]


def test_a_token_without_the_scope_is_denied_storage(cloud: Cloud, gcp: Client, server: Server) -> None:
    """Scopes of the machine limit the account's permissions."""
    bucket, account = google.bucket(gcp), google.account(gcp)
    google.grant(gcp, bucket, account, "roles/storage.objectAdmin")
    for scopes, status in (((), 403), (("https://www.googleapis.com/auth/devstorage.read_write",), 404)):
        token, _ = gcp_tokens.issue(cloud.store, account.outputs["email"], scopes=scopes)
        where = f"{cloud.endpoint}/.gcp/storage/storage/v1/b/evidence-1/o/x"
        assert ask(where, Authorization=f"Bearer {token}")[0] == status


def test_an_unsupported_request_is_rejected_by_name(cloud: Cloud, gcp: Client, operator: str) -> None:
    """An unsupported request is an error, not an invented success."""
    token, _ = gcp_tokens.issue(cloud.store, gcp_tokens.OPERATOR, scopes=(SCOPE,))
    google.bucket(gcp)
    for path, method in (
        ("compute/v1/projects/p/zones/z/disks", "GET"),
        ("storage/storage/v1/b", "GET"),
        ("kms/v1/x", "GET"),
        ("storage/upload/storage/v1/b/evidence-1/o?uploadType=resumable&name=x", "POST"),
    ):
        status, body, _ = ask(
            f"{operator}/.gcp/{path}", method, b"" if method == "POST" else None, Authorization=f"Bearer {token}"
        )
        assert status in (404, 501)
        assert "not supported in a rehearsal" in json.loads(body)["error"]["message"]


@pytest.mark.parametrize("spoil", ["signature", "issuer", "audience", "time", "grant"])
def test_the_operators_assertion_is_verified(cloud: Cloud, server: Server, spoil: str) -> None:
    """Tokens need the operator's key, issuer and audience, and a valid time."""
    import time

    import jwt

    file = json.loads(Path(gcp_tokens.operator_file(cloud)).read_text(encoding="utf-8"))
    now = int(time.time())
    claims = {"iss": file["client_email"], "aud": gcp_tokens.AUDIENCE, "iat": now, "exp": now + 3600, "scope": SCOPE}
    if spoil == "issuer":
        claims["iss"] = "me@example.com"
    if spoil == "audience":
        claims["aud"] = "https://example.com"
    if spoil == "time":
        claims |= {"iat": now - 7200, "exp": now - 3600}
    assertion = jwt.encode(claims, file["private_key"], algorithm="RS256")
    if spoil == "signature":
        assertion = assertion[:-8] + "AAAAAAAA"
    form = {"grant_type": "password" if spoil == "grant" else gcp_tokens.GRANT, "assertion": assertion}
    status, body, _ = ask(file["token_uri"], "POST", urllib.parse.urlencode(form).encode())
    assert status == 400
    assert json.loads(body)["error"] in ("invalid_grant", "unsupported_grant_type")


def test_a_node_reads_the_notices_of_its_faults(
    cloud: Cloud, node: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spot node reads the preemption, and ends after its notice. Each node reads the maintenance. The notices stay without their fault."""
    reader = gcp_node.connect({}, {"GCE_METADATA_HOST": f"{cloud.endpoint.partition('://')[2]}/.gcp/imds/{node['id']}"})
    kinds = lambda: [one.kind.value for read in reader.notice_sources().values() for one in read()]  # noqa: E731
    assert kinds() == []
    cloud.faults = Faults([f"node:{node['name']}:spot-notice", f"node:{node['name']}:maintenance"], cloud.store)
    assert cloud.faults.without_effect() == list(cloud.faults.ordered)
    assert kinds() == ["maintenance"]
    cloud.store.put("instance", node["id"], node | {"kind": "spot"})
    assert kinds() == ["reclaim", "maintenance"]
    assert cloud.faults.without_effect() == []
    cloud.faults = Faults([], cloud.store)
    assert kinds() == ["reclaim", "maintenance"]
    cloud.fleet.reconcile()
    assert len(cloud.fleet.running()) == 1
    monkeypatch.setattr(ManagedGroups, "notice_s", 0.0)
    cloud.fleet.reconcile()
    assert node["id"] not in [one["id"] for one in cloud.fleet.running()]


def test_each_google_service_of_gpuinfra_has_an_address_in_a_rehearsal() -> None:
    """A service whose address is not replaced would be asked over the internet, with the credentials of the stand-in."""
    root = Path(gpuinfra.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in root.rglob("*.py")]
    used = {
        name
        for text in texts
        for name in re.findall(r"(?:CLOUDSDK_API_ENDPOINT_OVERRIDES_|\{_OVERRIDES\})([A-Z]+)", text)
    }
    assert {"BILLINGBUDGETS", "COMPUTE", "SERVICEUSAGE"} <= used
    credentials = {"gcp": {"credentials_file": "f", "project": "p"}}
    replaced = operator_endpoints.of_operator("http://127.0.0.1:1", credentials, "gcp", "us-central1")
    assert {f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{name}" for name in used} <= set(replaced)


def test_resources_with_generated_names_are_listed(
    cloud: Cloud, gcp: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for what a killed run created finds a budget and an alert policy in the lists of their services, with the IDs that the provider imports."""
    credentials = {"gcp": next(one for one in registry.installed() if one.name == "gcp").operator_credentials(cloud)}
    for name, value in operator_endpoints.of_operator(cloud.endpoint, credentials, "gcp", "us-central1").items():
        monkeypatch.setenv(name, value)
    token, budget, channel = (
        "0a1b2c3d",
        "gcp:billing/budget:Budget",
        "gcp:monitoring/notificationChannel:NotificationChannel",
    )
    email = {"type": "email", "displayName": "team", "labels": {"email_address": "a@example.org"}}
    inputs: dict[str, dict[str, Any]] = {
        budget: {"billingAccount": "000000-000000-000000", "displayName": f"train ({token})", "amount": {"lastPeriodAmount": True}},
        channel: {**email, "userLabels": {"gpuinfra-stack": token}},
    }  # fmt: skip
    made = {type_: gcp.create(type_, given) for type_, given in inputs.items()}
    gcp.create(channel, {**email, "userLabels": {"gpuinfra-stack": "ffffffff"}}, "other")
    gcp.create(budget, {**inputs[budget], "displayName": "of a person"}, "other")
    lookup = PendingProject(connect()[0], StackIdentity(tokens=frozenset({token}), ids=frozenset()))
    for type_, one in made.items():
        given = {**one.inputs, "project": ids.PROJECT}
        assert lookup.ids(PendingCreate(urn=one.urn, type=type_, inputs=given, state={})) == (one.id,)
