"""Azure's own clients use the HTTP services; tokens are verified."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.clouds.azure.components.grants import folder_condition
from gpuinfra.clouds.azure.handover import attested, ports
from gpuinfra.clouds.azure.rest import Rest
from gpuinfra.handover.ports import GroupExpected, IdentityRefused, PortUnavailable
from gpuinfra.node import azure as node_azure
from gpuinfra.node.cloud import CloudError, Exists
from gpuinfra_rehearsal import endpoints as operator_endpoints
from gpuinfra_rehearsal.cloud.azure import identity as azure_identity
from gpuinfra_rehearsal.cloud.azure import ids
from gpuinfra_rehearsal.cloud.azure.signer import Signer
from gpuinfra_rehearsal.cloud.core import fleet as fleet_module
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.faults import Faults
from gpuinfra_rehearsal.cloud.core.server import Server
from gpuinfra_rehearsal.nodes import endpoints
from rehearsal.tests.cloud import microsoft
from rehearsal.tests.cloud.conftest import Client, Made
from rehearsal.tests.cloud.microsoft import URL
from rehearsal.tests.cloud.shared_object import only_the_first_writes
from rehearsal.tests.cloud.test_recorded_answers import paths
from tests.bootstrap import fetching
from tests.providers.test_answers_azure import EXAMPLES

BOOT = "0a0a0a0a-0000-4000-8000-000000000001"
SHA256 = "5e" * 32
pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts, and groups launch at once."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)


@pytest.fixture
def server(cloud: Cloud) -> Iterator[Server]:
    """The HTTP side of the cloud."""
    server = Server(cloud, "token")
    server.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def container(azure: Client, server: Server) -> Made:
    """A container that the operator may use."""
    microsoft.account(azure)
    made = microsoft.container(azure)
    microsoft.grant(azure, made, azure_identity.OPERATOR)
    return made


@pytest.fixture
def group(cloud: Cloud, azure: Client, container: Made) -> Made:
    """Two machines that may read bundles and write evidence."""
    who = microsoft.identity(azure)
    condition = folder_condition(reads=("bootstrap", "evidence/train"), writes=("evidence/train",))
    role = microsoft.data_role(azure, container).id.rsplit("/", 1)[-1]
    microsoft.grant(azure, container, str(who.outputs["principalId"]), role, condition=condition, number=2)
    made = microsoft.scale_set(azure, microsoft.profile(microsoft.subnet(azure)), identity=who)
    cloud.fleet.reconcile()
    return made


@pytest.fixture
def machine(cloud: Cloud, group: Made) -> dict[str, Any]:
    """The first of them."""
    return min(cloud.fleet.instances().values(), key=lambda one: one["index"])


def on_node(cloud: Cloud, machine: dict[str, Any]) -> node_azure.AzureNode:
    """The node program's cloud, as that machine has it."""
    return node_azure.connect({}, endpoints.of_node("azure", cloud.endpoint, machine["id"]))


def environment(cloud: Cloud) -> dict[str, str]:
    """What the operator's tools are told."""
    said = {"secret": azure_identity.operator_secret(cloud.store), "certificates": str(Signer(cloud.folder).prepare())}
    return operator_endpoints.of_operator(cloud.endpoint, {"azure": said}, "azure", "")


def operator(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Rest:
    """The handover's requests, under what azure-identity finds."""
    for name, value in environment(cloud).items():
        if name.startswith(("AZURE_", "GPUINFRA_AZURE")):
            monkeypatch.setenv(name, value)
    return Rest()


def ask(url: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers (lower case) of an answer, whatever it is."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data=body, method=method, headers=named)
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, answer.read(), {k.lower(): v for k, v in answer.headers.items()}
    except urllib.error.HTTPError as error:
        return error.code, error.read(), {k.lower(): v for k, v in error.headers.items()}


def test_metadata_needs_its_header_and_a_version(cloud: Cloud, machine: dict[str, Any]) -> None:
    """Requests without the header, through a proxy or without a version are refused; others describe the machine."""
    base = f"{cloud.endpoint}/.azure/imds/{machine['id']}/metadata/instance"
    assert ask(f"{base}?api-version=2021-02-01")[0] == 400
    assert ask(f"{base}?api-version=2021-02-01", Metadata="true", X_Forwarded_For="1.2.3.4")[0] == 400
    assert ask(base, Metadata="true")[0] == 400
    status, body, _ = ask(f"{base}?api-version=2021-02-01", Metadata="true")
    said = json.loads(body)["compute"]
    assert (status, said["vmId"], said["vmSize"]) == (200, machine["id"], microsoft.MACHINE)
    assert on_node(cloud, machine).instance_id() == machine["id"]
    assert (
        ask(f"{cloud.endpoint}/.azure/imds/nobody/metadata/instance?api-version=2021-02-01", Metadata="true")[0] == 404
    )


def test_the_provisioning_disk_keeps_its_custom_data(
    cloud: Cloud, azure: Client, group: Made, machine: dict[str, Any]
) -> None:
    """A later model does not change the custom data of a running machine."""
    url = f"{cloud.endpoint}/.azure/imds/{machine['id']}/ovf-env.xml"
    assert microsoft.encoded(microsoft.CUSTOM_DATA).encode() in ask(url)[1]
    model = {
        **group.inputs["virtualMachineProfile"],
        "osProfile": {"computerNamePrefix": "train", "customData": microsoft.encoded("new")},
    }
    azure.update(group, {"virtualMachineProfile": model})
    cloud.fleet.reconcile()
    assert microsoft.encoded(microsoft.CUSTOM_DATA).encode() in ask(url)[1]


def test_azure_identity_gets_the_operators_token(cloud: Cloud, server: Server) -> None:
    """In a process with only the variables of a rehearsal."""
    code = "from azure.identity import DefaultAzureCredential as C; print(C().get_token('https://management.azure.com/.default').token[:8])"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment(cloud), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.stdout.strip() == "standin.", run.stderr


def test_a_machine_without_an_identity_gets_no_token(cloud: Cloud, azure: Client, server: Server) -> None:
    """With Azure's error, so that the node's message is the one that it has on Azure."""
    microsoft.scale_set(azure, microsoft.profile(microsoft.subnet(azure)), 1)
    cloud.fleet.reconcile()
    (machine,) = cloud.fleet.instances().values()
    with pytest.raises(CloudError, match=r"400 for identity/oauth2/token.*Identity not found"):
        on_node(cloud, machine).put(URL, "evidence/train/x.json", b"{}", once=True)


def test_a_role_limits_a_node(cloud: Cloud, machine: dict[str, Any]) -> None:
    """A node creates evidence and reads bundles; it cannot overwrite, write bundles, delete or list."""
    node = on_node(cloud, machine)
    node.put(URL, "evidence/train/a.json", b"1", once=True)
    with pytest.raises(Exists):
        node.put(URL, "evidence/train/a.json", b"2", once=True)
    with pytest.raises(CloudError, match="403 UnauthorizedBlobOverwrite"):
        node.put(URL, "evidence/train/a.json", b"2", once=False)
    with pytest.raises(CloudError, match="403 AuthorizationPermissionMismatch"):
        node.put(URL, "bootstrap/b.tar.gz", b"evil", once=False)
    with pytest.raises(CloudError, match="403 AuthorizationPermissionMismatch"):
        node.put(URL, "evidence/other/a.json", b"evil", once=True)
    token = node._metadata.token()
    base = f"{cloud.endpoint}/.azure/blob/evidence0a1b/evidence"
    headers = {"Authorization": f"Bearer {token}", "x_ms_version": "2021-12-02"}
    assert ask(f"{base}/evidence/train/a.json", "DELETE", **headers)[0] == 403
    assert ask(f"{base}?restype=container&comp=list", **headers)[0] == 403
    status, body, answered = ask(f"{base}/evidence/train/a.json", **headers)
    assert (status, body, answered["x-ms-blob-type"]) == (200, b"1", "BlockBlob")
    cloud.store.put_object("azure:evidence0a1b/evidence", "bootstrap/b.tar.gz", b"bundle")
    assert ask(f"{base}/bootstrap/b.tar.gz", **headers)[1] == b"bundle"
    rights = cloud.rights.summary(cloud.fleet.running())
    assert (len(rights["used"]), rights["unused"]) == (1, [])
    assert any(f"{azure_identity.BLOBS}/write on " in one for one in rights["refused"])
    assert any(f"{azure_identity.BLOBS}/delete on " in one for one in rights["refused"])


def test_a_node_cannot_delete_the_container_of_evidence(cloud: Cloud, machine: dict[str, Any]) -> None:
    """With its custom role, a node's request to delete the container is denied, and the evidence stays."""
    cloud.store.put_object("azure:evidence0a1b/evidence", "evidence/train/a.json", b"1")
    status, body = _delete_container(cloud, machine)
    assert (status, b"AuthorizationPermissionMismatch" in body) == (403, True)
    assert cloud.store.object("azure:evidence0a1b/evidence", "evidence/train/a.json") is not None


def test_a_built_in_blob_role_deletes_the_container_in_spite_of_its_condition(
    cloud: Cloud, azure: Client, container: Made, machine: dict[str, Any]
) -> None:
    """Storage Blob Data Contributor has an action on containers, which no condition restricts."""
    cloud.store.put_object("azure:evidence0a1b/evidence", "evidence/train/a.json", b"1")
    (who,) = azure_identity.identities_of(cloud.store, machine)
    condition = folder_condition(reads=("bootstrap",), writes=())
    microsoft.grant(azure, container, str(who.outputs["principalId"]), condition=condition, number=3)
    assert _delete_container(cloud, machine)[0] == 202
    assert cloud.store.object("azure:evidence0a1b/evidence", "evidence/train/a.json") is None


def _delete_container(cloud: Cloud, machine: dict[str, Any]) -> tuple[int, bytes]:
    token = on_node(cloud, machine)._metadata.token()
    headers = {"Authorization": f"Bearer {token}", "x_ms_version": "2021-12-02"}
    return ask(f"{cloud.endpoint}/.azure/blob/evidence0a1b/evidence?restype=container", "DELETE", **headers)[:2]


def test_tokens_are_checked(cloud: Cloud, machine: dict[str, Any]) -> None:
    """An invented token, one for another service and an expired one are denied; a node's token is not valid for ARM."""
    url = f"{cloud.endpoint}/.azure/blob/evidence0a1b/evidence/evidence/train/a.json"
    for token in ("standin.made-up", ""):
        status, _, headers = ask(url, Authorization=f"Bearer {token}", x_ms_version="2021-12-02")
        assert (status, headers["x-ms-error-code"]) == (401, "InvalidAuthenticationInfo")
    who = azure_identity.Principal(azure_identity.OPERATOR, "operator", True)
    other, _ = azure_identity.issue(cloud.store, who, "https://management.azure.com")
    assert (
        ask(url, Authorization=f"Bearer {other}", x_ms_version="2021-12-02")[2]["x-ms-error-code"]
        == "InvalidAuthenticationTokenAudience"
    )
    known = cloud.store.get("azure-token", other)
    assert known
    cloud.store.put("azure-token", other, {**known, "expires": 0})
    arm = f"{cloud.endpoint}/.azure/arm{machine['group']}?api-version=2024-11-01"
    assert b"ExpiredAuthenticationToken" in ask(arm, Authorization=f"Bearer {other}")[1]
    node = azure_identity.Principal("00000000-0000-4b00-8000-000000000001", "node")
    token, _ = azure_identity.issue(cloud.store, node, "https://management.azure.com")
    status, body, _ = ask(arm, Authorization=f"Bearer {token}")
    assert (status, json.loads(body)["error"]["code"]) == (403, "AuthorizationFailed")


def test_the_storage_client_of_azure_reads_and_writes(cloud: Cloud, container: Made) -> None:
    """azure-storage-blob uploads, uploads conditionally, reads properties, downloads, lists and deletes."""
    from azure.core.exceptions import ResourceExistsError
    from azure.storage.blob import ContainerClient

    who = azure_identity.Principal(azure_identity.OPERATOR, "operator", True)
    token, _ = azure_identity.issue(cloud.store, who, "https://storage.azure.com")
    client = ContainerClient.from_container_url(f"{cloud.endpoint}/.azure/blob/evidence0a1b/evidence")
    headers = {"Authorization": f"Bearer {token}"}
    with client:
        client.upload_blob("a/1", b"one", headers=headers)
        with pytest.raises(ResourceExistsError, match="BlobAlreadyExists"):
            client.upload_blob("a/1", b"two", headers=headers)
        client.upload_blob("a/1", b"three", overwrite=True, headers=headers)
        client.upload_blob("b/1", b"", headers=headers)
        assert client.download_blob("a/1", headers=headers).readall() == b"three"
        assert client.get_blob_client("a/1").get_blob_properties(headers=headers).size == 5
        assert [blob.name for blob in client.list_blobs(name_starts_with="a/", headers=headers)] == ["a/1"]
        client.delete_blob("a/1", headers=headers)
        assert [blob.name for blob in client.list_blobs(headers=headers)] == ["b/1"]


def test_answers_have_the_fields_of_azures_examples(
    cloud: Cloud, group: Made, machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each field in an answer of the stand-in is in Azure's example of the operation, with a value of the same type."""
    rest = operator(cloud, monkeypatch)
    machines = list(rest.pages(f"{group.id}/virtualMachines", ports.API_COMPUTE, {"$expand": "instanceView"}))
    for one in machines:
        one["tags"] = {}  # as in the example
        # The example has no interfaces. Prometheus reads them: `properties.networkProfile` in azure-mgmt-compute and in discovery/azure/azure.go.
        assert one["properties"].pop("networkProfile")
    answers = {
        "instance/compute": node_azure.Metadata(
            "", endpoints.of_node("azure", cloud.endpoint, machine["id"])
        ).compute(),
        "VirtualMachineScaleSetVMs_List": {"value": machines},
        "VirtualMachineScaleSets_GetInstanceView": rest.arm(f"{group.id}/instanceView", ports.API_COMPUTE),
        "VirtualMachineScaleSetVMs_RetrieveBootDiagnosticsData": rest.arm(
            f"{machines[0]['id']}/retrieveBootDiagnosticsData", ports.API_COMPUTE, post=True
        ),
    }
    for operation, answer in answers.items():
        assert set(paths(answer)) - set(paths(EXAMPLES[operation])) == set(), operation


def test_the_compute_client_of_azure_reads_scale_sets(cloud: Cloud, group: Made) -> None:
    """azure-mgmt-compute parses models, machines and views."""
    from azure.core.credentials import AccessToken
    from azure.mgmt.compute import ComputeManagementClient

    class Credential:
        def get_token(self, *scopes: str, **_: Any) -> AccessToken:
            who = azure_identity.Principal(azure_identity.OPERATOR, "operator", True)
            token, expires = azure_identity.issue(cloud.store, who, scopes[0].removesuffix("/.default"))
            return AccessToken(token, int(expires))

    client = ComputeManagementClient(
        Credential(), ids.SUBSCRIPTION, base_url=f"{cloud.endpoint}/.azure/arm", credential_scopes=["https://management.azure.com/.default"]
    )  # fmt: skip
    plain = {"enforce_https": False}
    made = client.virtual_machine_scale_sets.get("rg", "gpu", **plain)
    assert made.sku is not None
    assert (made.sku.capacity, made.single_placement_group) == (2, True)
    machines = list(client.virtual_machine_scale_set_vms.list("rg", "gpu", expand="instanceView", **plain))
    assert [one.instance_id for one in machines] == ["0", "1"]
    first = machines[0]
    assert first.instance_view is not None
    assert first.time_created is not None
    assert abs(first.time_created - datetime.now(UTC)) < timedelta(minutes=1)
    assert (first.latest_model_applied, first.vm_id) == (True, "00000000-0000-4a00-8000-000000000001")
    view = client.virtual_machine_scale_sets.get_instance_view("rg", "gpu", **plain)
    assert [status.code for status in view.statuses or []] == ["ProvisioningState/succeeded"]
    said = client.virtual_machine_scale_set_vms.retrieve_boot_diagnostics_data("rg", "gpu", "0", **plain)
    assert said.serial_console_log_blob_uri is not None
    assert b"does not boot" in ask(said.serial_console_log_blob_uri)[1]
    assert ask(said.serial_console_log_blob_uri[:-4])[0] == 403


def test_the_four_ports_work_together(
    cloud: Cloud, group: Made, machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handover reads members, evidence, proofs, identities and consoles."""
    operator(cloud, monkeypatch)
    node = on_node(cloud, machine)
    folder = f"evidence/train/{machine['id']}/{BOOT}"
    node.put(URL, f"{folder}/000001.json", b"{}", once=True)
    node.put(URL, f"{folder}/000001.proof.json", json.dumps(node.proof(SHA256, datetime.now(UTC))).encode(), once=False)
    four = ports.connect("southcentralus", URL, "evidence/train")
    members = four.membership.members([GroupExpected(name="gpu-on-demand-0", group=group.id, count=2)])
    assert [one.instance_id for one in members] == [machine["id"], machine["id"][:-1] + "2"]
    assert {(one.template_version, one.leaving, one.private_ip) for one in members} == {
        ("t1", False, "10.128.0.1"),
        ("t1", False, "10.128.0.2"),
    }
    assert list(four.store.folders()) == [machine["id"]]
    (ref,) = four.store.list(machine["id"])
    assert (ref.instance_id, ref.boot_id, ref.seq) == (machine["id"], BOOT, 1)
    assert four.store.read(ref) == b"{}"
    proof = four.store.proof(ref.proofs[0])
    assert proof is not None
    identity = four.identity.verify(json.loads(proof))
    assert (identity.instance_id, identity.evidence_sha256, identity.account) == (
        machine["id"],
        SHA256,
        ids.SUBSCRIPTION,
    )
    assert four.console.tail(machine["id"], 5) == ["gpuinfra: this node does not boot: no node host was started"]
    assert four.console.tail("somebody else", 5) == []


def test_evidence_of_another_subscription_is_refused(
    cloud: Cloud, machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azure signs documents of every customer; one of another subscription is no proof here."""
    operator(cloud, monkeypatch)
    proof = on_node(cloud, machine).proof(SHA256, datetime.now(UTC))
    identity = ports.AttestedIdentity(attested.Trust(), lambda: {"00000000-0000-4000-8000-0000000000ff"})
    with pytest.raises(IdentityRefused, match="attested in subscription"):
        identity.verify(proof)


def test_a_private_account_needs_a_private_endpoint(cloud: Cloud, azure: Client, machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Without public access the operator is denied, and a node needs a private endpoint."""
    account = cloud.store.list("azure-native:storage:StorageAccount")[0]
    cloud.store.update(
        account.__class__(
            account.type,
            account.region,
            account.id,
            {**account.inputs, "publicNetworkAccess": "Disabled"},
            account.outputs,
        )
    )
    store = ports.BlobEvidence(operator(cloud, monkeypatch), URL, "evidence/train")
    with pytest.raises(PortUnavailable, match="AuthorizationFailure"):
        list(store.folders())
    with pytest.raises(CloudError, match="403 AuthorizationFailure"):
        on_node(cloud, machine).put(URL, "evidence/train/a.json", b"1", once=True)
    inputs = {
        **microsoft.WHERE,
        "privateEndpointName": "blob",
        "privateLinkServiceConnections": [{"name": "blob", "privateLinkServiceId": account.id, "groupIds": ["blob"]}],
    }
    azure.create("azure-native:network:PrivateEndpoint", inputs, "blob")
    on_node(cloud, machine).put(URL, "evidence/train/a.json", b"1", once=True)


def test_an_object_of_several_operators_loses_no_change(
    cloud: Cloud, azure: Client, machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write is refused if another operator wrote since the object was read."""
    only_the_first_writes(ports.BlobEvidence(operator(cloud, monkeypatch), URL, "evidence/train"))


def test_an_immutability_policy_forbids_change_and_deletion(
    cloud: Cloud, azure: Client, machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the operator too; the container and its resource group cannot be deleted either."""
    lock = {
        "resourceGroupName": "rg",
        "accountName": "evidence0a1b",
        "containerName": "evidence",
        "immutabilityPolicyName": "default",
        "immutabilityPeriodSinceCreationInDays": 1,
    }
    azure.create("azure-native:storage:BlobContainerImmutabilityPolicy", lock, "lock")
    node = on_node(cloud, machine)
    node.put(URL, "evidence/train/a.json", b"1", once=True)
    answer = operator(cloud, monkeypatch).blob(
        "DELETE", f"{cloud.endpoint}/.azure/blob/evidence0a1b/evidence/evidence/train/a.json"
    )
    assert (answer.status, b"BlobImmutableDueToPolicy" in answer.body) == (409, True)
    found = cloud.store.list("azure-native:storage:BlobContainer")[0]
    with pytest.raises(Exception, match="ContainerProtectedFromDeletion"):
        cloud.delete(found)


def test_lists_are_paged(cloud: Cloud, group: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scale set and a container with more than one page are read completely."""
    from gpuinfra_rehearsal.cloud.azure.http import arm, blobs

    monkeypatch.setattr(arm, "_PAGE", 1)
    monkeypatch.setattr(blobs, "_PAGE", 2)
    rest = operator(cloud, monkeypatch)
    assert len(ports.ScaleSets(rest).members([GroupExpected(name="g", group=group.id, count=2)])) == 2
    machines = [f"{BOOT[:-1]}{number}" for number in range(5)]
    for number in range(5):
        for machine in machines:
            cloud.store.put_object("azure:evidence0a1b/evidence", f"evidence/train/{machine}/{BOOT}/{number:06}.json", b"{}")  # fmt: skip
    store = ports.BlobEvidence(rest, URL, "evidence/train")
    assert list(store.folders()) == machines
    assert [(ref.instance_id, ref.seq) for ref in store.list(machines[3])] == [(machines[3], n) for n in range(5)]


def test_images_have_one_version_that_is_visibly_synthetic(
    cloud: Cloud, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known offers have one version, others have none."""
    rest = operator(cloud, monkeypatch)
    base = f"/subscriptions/{ids.SUBSCRIPTION}/providers/Microsoft.Compute/locations/uksouth/publishers/microsoft-dsvm/artifacttypes/vmimage/offers"
    (one,) = rest.arm(f"{base}/ubuntu-hpc/skus/2204/versions", "2024-11-01")["value"]
    assert re.fullmatch(r"22\.04\.2026010100", one["name"])
    assert rest.arm(f"{base}/nothing/skus/2204/versions", "2024-11-01")["value"] == []


def test_an_unsupported_request_is_rejected_by_name(cloud: Cloud, group: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the path of the request."""
    rest = operator(cloud, monkeypatch)
    for path in (f"{group.id}/skus", "/subscriptions/x/resourceGroups", group.id.replace("/gpu", "/none")):
        with pytest.raises(PortUnavailable, match=r"is not supported in a rehearsal|was not found"):
            rest.arm(path, "2024-11-01")


def test_custom_data_downloads_the_bundle(cloud: Cloud, machine: dict[str, Any], tmp_path: Path) -> None:
    """The script of custom data, in its own process, downloads the exact bytes and rejects others."""
    import gzip
    import hashlib

    cloud.store.put_object("azure:evidence0a1b/evidence", "bootstrap/b.tar.gz", gzip.compress(b"bundle"))
    env = endpoints.of_node("azure", cloud.endpoint, machine["id"])

    def fetch(name: str, sha256: str) -> subprocess.Popen[str]:
        words = (URL, name, "southcentralus", sha256)
        return fetching.start("azure", words, tmp_path / f"{name.replace('/', '-')}-{sha256[:8]}.tar", env)

    digest = hashlib.sha256(b"bundle").hexdigest()
    code, said = fetching.complete(fetch("bootstrap/b.tar.gz", digest))
    assert code == 0, said
    assert (tmp_path / f"bootstrap-b.tar.gz-{digest[:8]}.tar").read_bytes() == b"bundle"
    assert "the object has the SHA-256" in fetching.first_trouble(fetch("bootstrap/b.tar.gz", "0" * 64))
    assert "HTTP 404 BlobNotFound" in fetching.first_trouble(fetch("bootstrap/c.tar.gz", "0" * 64))
    assert "HTTP 403 AuthorizationPermissionMismatch" in fetching.first_trouble(fetch("elsewhere/c", "0" * 64))


def test_the_replication_of_a_blob_is_read_from_its_source(
    cloud: Cloud, azure: Client, container: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blob has the status of its replication while both accounts have the policy. The metrics and the key of an account have the fields of Azure's models."""
    from azure.mgmt.monitor import models as monitor
    from azure.mgmt.storage import models as storage
    from azure.storage.blob._deserialize import deserialize_ors_policies

    properties = "azure-native:storage:BlobServiceProperties"
    key = {"keySource": "Microsoft.Keyvault", "keyVaultProperties": {"keyName": "data", "keyVaultUri": "https://v.vault.azure.net"}}  # fmt: skip
    microsoft.account(azure, "replica", encryption=key)
    microsoft.container(azure, "replica")
    for name in ("evidence0a1b", "replica"):
        settings = {"isVersioningEnabled": True, "changeFeed": {"enabled": True}}
        azure.create(properties, {"resourceGroupName": "rg", "accountName": name, "blobServicesName": "default", **settings}, name)  # fmt: skip
    first, second = (f"{container.id.partition('/storageAccounts/')[0]}/storageAccounts/{name}" for name in ("evidence0a1b", "replica"))  # fmt: skip
    rule = {"sourceContainer": "evidence", "destinationContainer": "evidence", "filters": {"minCreationTime": "1601-01-01T00:00:00Z"}}  # fmt: skip

    def policy(on: str, id: str, rule: dict[str, Any]) -> Made:
        inputs = {
            "resourceGroupName": "rg", "accountName": on, "objectReplicationPolicyId": id, "sourceAccount": first, "destinationAccount": second,
            "rules": [rule],
        }  # fmt: skip
        return azure.create("azure-native:storage:ObjectReplicationPolicy", inputs, f"policy-{on}")

    replica = policy("replica", "default", rule)
    id, rules = replica.outputs["policyId"], replica.outputs["rules"]
    rest = operator(cloud, monkeypatch)
    url = f"{rest.blob_base(URL)}/a"
    rest.blob("PUT", url, {"x-ms-blob-type": "BlockBlob"}, b"one")

    def status() -> list[tuple[str, str, str]]:
        headers = {name.lower(): value for name, value in rest.blob("HEAD", url).headers.items()}
        found = {name: value for name, value in headers.items() if name.startswith("x-ms-or-")}
        return [(one.policy_id, rule.rule_id, rule.status) for one in deserialize_ors_policies(found) or [] for rule in one.rules]  # fmt: skip

    assert status() == []
    source = policy("evidence0a1b", id, rules[0])
    assert status() == [(id, rules[0]["ruleId"], "complete")]
    held = rest.arm(second, "2024-01-01")
    account = storage.StorageAccount(held)
    assert account.encryption is not None
    assert account.encryption.key_vault_properties is not None
    assert account.encryption.key_vault_properties.key_vault_uri == "https://v.vault.azure.net"
    assert account.location == "southcentralus"
    path = f"{source.id}/providers/Microsoft.Insights/metrics"
    answer = rest.arm(path, "2024-02-01", {"metricnames": "PendingOperationsForReplication", "timespan": "a/b", "interval": "PT5M"})  # fmt: skip
    (metric,) = monitor.Response.deserialize(answer).value
    assert (metric.error_code, metric.timeseries) == ("Success", [])
    azure.delete(replica)
    rest.blob("PUT", url, {"x-ms-blob-type": "BlockBlob"}, b"two")
    assert status() == []


def test_redeployed_machine_keeps_its_id(cloud: Cloud, group: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request has the path of Azure's client. The machine keeps its ID, and the scale set its capacity."""
    from azure.mgmt.compute.operations import _operations as azure

    rest = operator(cloud, monkeypatch)
    sets, groups = ports.ScaleSets(rest), [GroupExpected(name="gpu", group=group.id, count=2)]
    before = sets.members(groups)
    asked: list[str] = []
    arm = rest.arm

    def recorded(path: str, api: str, query: Any = None, *, post: bool = False) -> dict[str, Any]:
        asked.extend([path] if post else [])
        return arm(path, api, query, post=post)

    monkeypatch.setattr(rest, "arm", recorded)
    sets.replace(groups[0], before[0].instance_id)
    monkeypatch.setattr(rest, "arm", arm)
    _, _, subscription, _, resources, *_, name, _, number = before[0].resource.split("/")
    documented = azure.build_virtual_machine_scale_set_vms_redeploy_request(resources, name, number, subscription)
    assert (documented.method, documented.url.partition("?")[0]) == ("POST", asked[0])
    assert [one.instance_id for one in sets.members(groups)] == [one.instance_id for one in before]
    assert cloud.fleet.instances()[before[0].instance_id]["moves"] == 1
    with pytest.raises(PortUnavailable, match="is not in the scale set"):
        sets.replace(groups[0], "another")


def test_a_node_reads_the_notices_of_its_faults(cloud: Cloud, machine: dict[str, Any]) -> None:
    """A spot machine reads that it is evicted. Each machine reads its maintenance. Another machine of the scale set reads neither."""
    environ = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": f"{cloud.endpoint}/.azure/imds/{machine['id']}"}

    def found() -> list[str]:
        reader = node_azure.connect({}, environ)
        return [one.kind.value for read in reader.notice_sources().values() for one in read()]

    assert found() == []
    cloud.faults = Faults([f"node:{machine['name']}:spot-notice", f"node:{machine['name']}:maintenance"], cloud.store)
    assert found() == ["maintenance"]
    cloud.store.put("instance", machine["id"], machine | {"kind": "spot"})
    assert found() == ["reclaim", "maintenance"]
    other = machine | {"id": "0b0b0b0b-0000-4a00-8000-000000000009", "index": machine["index"] + 5, "name": "gpu-9"}
    cloud.store.put("instance", other["id"], other)
    environ["AZURE_POD_IDENTITY_AUTHORITY_HOST"] = f"{cloud.endpoint}/.azure/imds/{other['id']}"
    assert found() == []
