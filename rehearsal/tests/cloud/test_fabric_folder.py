"""The folder of the fabric test in the evidence bucket: what the real policies of a node allow, through the node's own programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinfra.clouds.aws.components import policies
from gpuinfra.clouds.azure.components.grants import folder_condition
from gpuinfra.clouds.gcp.components.roles import LIST_PREFIX, RENDEZVOUS
from gpuinfra.node import cloud as node_cloud
from gpuinfra.node import fabric
from gpuinfra.node.cloud import CloudError
from gpuinfra.node.fabric_bucket import Sessions, is_closed, members
from gpuinfra_rehearsal.cloud.core import fleet as fleet_module
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.server import Server
from gpuinfra_rehearsal.nodes import endpoints
from rehearsal.tests.cloud import google, microsoft, stacks
from rehearsal.tests.cloud.conftest import Client
from rehearsal.tests.cloud.test_gcp_http import SCOPE
from rehearsal.tests.cloud.test_http import BUCKET, server

__all__ = ["server"]

NODES: Any = SimpleNamespace(
    region="us-east-1",
    cluster="train",
    arn=lambda service, resource: f"arn:aws:{service}:us-east-1:000000000000:{resource}",
)
FOLDER = "evidence/train/fabric/rendezvous"
SHA256 = "0123456789ab" + "0" * 52


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A denied request is repeated without a pause."""
    monkeypatch.setattr(node_cloud.time, "sleep", lambda seconds: None)


def of_node(node: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[Sessions, node_cloud.NodeCloud]:
    """The fabric tests as the program of one node sees them."""
    connected = node_cloud.of(node, environ)
    return Sessions({"pool": "gpu", "bundle": {"sha256": SHA256}, **node}, connected), connected


def meet(first: Sessions, second: Sessions, name: str, other: str) -> None:
    """Two nodes find each other, and an object is written once."""
    assert (first.newest(), second.newest()) == (0, 0)
    one, two = first.store(1), second.store(1)
    assert one.put(f"member/00/{name}/0001-ab", b"{}")
    assert two.put(f"member/00/{other}/0002-cd", b"{}")
    assert not one.put(f"member/00/{name}/0001-ab", b"[]")
    assert second.newest() == 1
    assert members(two, 60.0) == members(one, 60.0) == {name: "0001-ab", other: "0002-cd"}
    large = b"x" * 300_000
    assert one.put(f"plan/00/{name}/plan", large)
    assert two.get(f"plan/00/{name}/plan") == large
    assert two.get(f"plan/00/{name}/verdict") is None
    assert not is_closed(two)
    assert one.put(f"plan/01/{name}/verdict", b"{}")
    assert is_closed(two)
    assert fabric.entry_of(two.list("plan/01/")[0]) == (1, name, "verdict")


@pytest.fixture
def aws_nodes(cloud: Cloud, aws: Client, server: Server, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Two instances with the statements of the node role and of the evidence bucket."""
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)
    monkeypatch.setattr(policies.pulumi.Output, "concat", staticmethod(lambda *parts: "".join(parts)))
    stacks.bucket(aws)
    profile = stacks.role(aws, BUCKET)
    arn = f"arn:aws:s3:::{BUCKET}"
    own = [*policies.node(NODES, arn, "evidence/train", "arn:aws:kms:us-east-1:000000000000:key/k"), *policies.fabric_test(arn, FOLDER)]  # fmt: skip
    aws.create("aws:iam/rolePolicy:RolePolicy", {"role": "node", "name": "own", "policy": json.dumps({"Statement": own})}, "own")  # fmt: skip
    denied = policies.own_evidence_only(arn)
    aws.create("aws:s3/bucketPolicy:BucketPolicy", {"bucket": BUCKET, "policy": json.dumps({"Statement": denied})})
    _, subnet = stacks.network(aws)
    launch = stacks.template(aws, iamInstanceProfile={"arn": profile.outputs["arn"]}, metadataOptions={"httpTokens": "required"})  # fmt: skip
    stacks.group(aws, launch, 2, subnet)
    cloud.fleet.reconcile()
    return list(cloud.fleet.instances().values())


def test_aws(cloud: Cloud, aws: Client, aws_nodes: list[dict[str, Any]]) -> None:
    """Nodes write below their own name only, read and list the folder of the test, and list nothing else."""
    owner = str(aws.read("aws:iam/role:Role", "node").outputs["uniqueId"])
    node = {"cloud": "aws", "region": "us-east-1", "evidence": {"bucket": BUCKET, "prefix": "evidence/train", "owner": owner}}  # fmt: skip
    (first, own), (second, _) = [of_node(node, endpoints.of_node("aws", cloud.endpoint, one["id"])) for one in aws_nodes]  # fmt: skip
    name, other = (str(one["id"]) for one in aws_nodes)
    meet(first, second, name, other)
    with pytest.raises(CloudError, match="403 AccessDenied"):
        first.store(1).put(f"result/00/{other}/pass/{name}", b"{}")
    with pytest.raises(CloudError, match="403 AccessDenied"):
        own.put(BUCKET, f"evidence/train/{owner}:{other}/boot/000001.json", b"{}", once=True)
    for prefix in ("", "evidence/train/", "bootstrap/"):
        with pytest.raises(CloudError, match="could not be listed: 403"):
            own.list(BUCKET, prefix)


def test_azure(cloud: Cloud, azure: Client, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes read and list the folder of the test, list nothing else, and cannot replace an object of another node."""
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)
    microsoft.account(azure)
    container = microsoft.container(azure)
    who = microsoft.identity(azure)
    condition = folder_condition(
        reads=("bootstrap/train", "evidence/train"), writes=("evidence/train",), lists=(FOLDER,)
    )
    role = microsoft.data_role(azure, container).id.rsplit("/", 1)[-1]
    microsoft.grant(azure, container, str(who.outputs["principalId"]), role, condition=condition, number=2)
    microsoft.scale_set(azure, microsoft.profile(microsoft.subnet(azure)), identity=who)
    cloud.fleet.reconcile()
    address = "https://evidence0a1b.blob.core.windows.net/evidence"
    node = {"cloud": "azure", "evidence": {"bucket": address, "prefix": "evidence/train"}}
    found = sorted(cloud.fleet.instances().values(), key=lambda one: one["index"])[:2]
    (first, own), (second, _) = [of_node(node, endpoints.of_node("azure", cloud.endpoint, one["id"])) for one in found]  # fmt: skip
    meet(first, second, "node-a", "node-b")
    for prefix in ("", "evidence/train/", "bootstrap/train/"):
        with pytest.raises(CloudError, match="could not be listed: 403"):
            own.list(address, prefix)
    with pytest.raises(CloudError, match="403 UnauthorizedBlobOverwrite"):
        own.put(address, f"{FOLDER}/gpu-{SHA256[:12]}/0001/member/00/node-b/0002-cd", b"[]", once=False)


def test_gcp(cloud: Cloud, gcp: Client, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes read and list the folder of the test, list nothing else, and cannot replace an object of another node."""
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)
    bucket, account = google.bucket(gcp), google.account(gcp)
    under = f'resource.name.startsWith("projects/_/buckets/{bucket.id}/objects/evidence/train/")'
    google.grant(gcp, bucket, account, "roles/storage.objectCreator", under)
    google.grant(gcp, bucket, account, "roles/storage.objectViewer", f"{under} && {RENDEZVOUS}")
    google.grant(gcp, bucket, account, "roles/storage.objectViewer", f'{LIST_PREFIX}.startsWith("{FOLDER}/")')
    identity = {"email": account.outputs["email"], "scopes": [SCOPE]}
    google.group(gcp, google.template(gcp, serviceAccount=identity), 2)
    cloud.fleet.reconcile()
    node = {"cloud": "gcp", "evidence": {"bucket": bucket.id, "prefix": "evidence/train"}}
    found = list(cloud.fleet.instances().values())
    (first, own), (second, _) = [of_node(node, endpoints.of_node("gcp", cloud.endpoint, one["id"])) for one in found]
    meet(first, second, "1001", "1002")
    for prefix in ("", "evidence/train/", "bootstrap/"):
        with pytest.raises(CloudError, match="could not be listed: 403"):
            own.list(bucket.id, prefix)
    with pytest.raises(CloudError, match="403"):
        own.put(bucket.id, f"{FOLDER}/gpu-{SHA256[:12]}/0001/member/00/1002/0002-cd", b"[]", once=False)
