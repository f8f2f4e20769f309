"""The sheet of the fabric test in the evidence bucket: what the real policies of a node allow, through the node's own programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinfra.base import naming
from gpuinfra.clouds.aws.components import policies
from gpuinfra.clouds.azure.components.grants import folder_condition
from gpuinfra.clouds.gcp.components.roles import RENDEZVOUS
from gpuinfra.node import cloud as node_cloud
from gpuinfra.node.cloud import CloudError
from gpuinfra.node.fabric_relay import FabricSheet, NodeCall, NodeReport, Relay
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
SHA256 = "0123456789ab" + "0" * 52
KEY = naming.fabric_sheet("train", "gpu", SHA256)
BOOT = "11111111-aaaa"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A denied request is repeated without a pause."""
    monkeypatch.setattr(node_cloud.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(fleet_module, "_SETTLE_S", 0)


def check(cloud: Cloud, bucket: str, node: dict[str, Any], folder: Path, environ: Mapping[str, str], others: list[str]) -> None:  # fmt: skip
    """A node reads the sheet that the operator wrote, cannot write it, and reports only below its own name."""
    node = {**node, "bundle": {"bucket": node["evidence"]["bucket"], "key": f"bootstrap/train/gpu/{SHA256}.tar.gz", "sha256": SHA256}}  # fmt: skip
    connected = node_cloud.of(node, environ)
    relay = Relay(node, connected, BOOT, folder / "report.json")
    place = node["evidence"]["bucket"]
    assert relay.call() is None
    for once in (True, False):
        with pytest.raises(CloudError, match="403"):
            connected.put(place, KEY, b"{}", once=once)
    sheet = FabricSheet("0" * 16, {relay.name: NodeCall(BOOT, 1, run="0001", partner="x")})
    cloud.store.put_object(bucket, KEY, json.dumps(sheet.document()).encode())
    called = relay.call()
    assert called is not None
    assert called[1].run == "0001"
    with pytest.raises(CloudError, match="403"):
        connected.put(place, KEY, b"{}", once=False)
    relay.send(NodeReport(test="0" * 16, ask=1, ready=True))
    (written,) = [key for key, *_ in cloud.store.objects(bucket, "evidence/") if key.endswith("/fabric/000001.json")]
    assert f"{relay.name}/{BOOT}/" in written
    for other in others:
        with pytest.raises(CloudError, match="403"):
            connected.put(place, other, b"{}", once=True)


def test_aws(cloud: Cloud, aws: Client, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A node writes below its own name only, not even below the name of another node."""
    monkeypatch.setattr(policies.pulumi.Output, "concat", staticmethod(lambda *parts: "".join(parts)))
    stacks.bucket(aws)
    profile = stacks.role(aws, BUCKET)
    arn = f"arn:aws:s3:::{BUCKET}"
    own = policies.node(NODES, arn, "evidence/train", "arn:aws:kms:us-east-1:000000000000:key/k")
    aws.create("aws:iam/rolePolicy:RolePolicy", {"role": "node", "name": "own", "policy": json.dumps({"Statement": own})}, "own")  # fmt: skip
    denied = policies.own_evidence_only(arn)
    aws.create("aws:s3/bucketPolicy:BucketPolicy", {"bucket": BUCKET, "policy": json.dumps({"Statement": denied})})
    _, subnet = stacks.network(aws)
    launch = stacks.template(aws, iamInstanceProfile={"arn": profile.outputs["arn"]}, metadataOptions={"httpTokens": "required"})  # fmt: skip
    stacks.group(aws, launch, 2, subnet)
    cloud.fleet.reconcile()
    first, second = cloud.fleet.instances().values()
    owner = str(aws.read("aws:iam/role:Role", "node").outputs["uniqueId"])
    node = {"cloud": "aws", "region": "us-east-1", "evidence": {"bucket": BUCKET, "prefix": "evidence/train", "owner": owner}}  # fmt: skip
    others = [
        f"evidence/train/{owner}:{second['id']}/{BOOT}/fabric/000001.json",
        f"evidence/train/fabric/rendezvous/gpu/0001/plan/00/{owner}:{first['id']}/plan",
    ]
    check(cloud, BUCKET, node, tmp_path, endpoints.of_node("aws", cloud.endpoint, first["id"]), others)


def test_azure(cloud: Cloud, azure: Client, server: Server, tmp_path: Path) -> None:
    """A node reads the sheet, and creates blobs below the evidence of its cluster only."""
    microsoft.account(azure)
    container = microsoft.container(azure)
    who = microsoft.identity(azure)
    condition = folder_condition(reads=("bootstrap/train", "evidence/train"), writes=("evidence/train",))
    role = microsoft.data_role(azure, container).id.rsplit("/", 1)[-1]
    microsoft.grant(azure, container, str(who.outputs["principalId"]), role, condition=condition, number=2)
    microsoft.scale_set(azure, microsoft.profile(microsoft.subnet(azure)), identity=who)
    cloud.fleet.reconcile()
    first, *_ = sorted(cloud.fleet.instances().values(), key=lambda one: one["index"])
    node = {"cloud": "azure", "evidence": {"bucket": "https://evidence0a1b.blob.core.windows.net/evidence", "prefix": "evidence/train"}}  # fmt: skip
    check(cloud, "azure:evidence0a1b/evidence", node, tmp_path, endpoints.of_node("azure", cloud.endpoint, first["id"]), ["evidence/other/x.json"])  # fmt: skip


def test_gcp(cloud: Cloud, gcp: Client, server: Server, tmp_path: Path) -> None:
    """A node reads the sheet, and creates objects below the evidence of its cluster only."""
    bucket, account = google.bucket(gcp), google.account(gcp)
    objects = f"projects/_/buckets/{bucket.id}/objects"
    under = f'resource.name.startsWith("{objects}/evidence/train/")'
    google.grant(gcp, bucket, account, "roles/storage.objectViewer", f'resource.name.startsWith("{objects}/bootstrap/train/")')  # fmt: skip
    google.grant(gcp, bucket, account, "roles/storage.objectCreator", under)
    google.grant(gcp, bucket, account, "roles/storage.objectViewer", f"{under} && {RENDEZVOUS}")
    identity = {"email": account.outputs["email"], "scopes": [SCOPE]}
    google.group(gcp, google.template(gcp, serviceAccount=identity), 2)
    cloud.fleet.reconcile()
    first, _ = cloud.fleet.instances().values()
    node = {"cloud": "gcp", "evidence": {"bucket": bucket.id, "prefix": "evidence/train"}}
    check(cloud, bucket.id, node, tmp_path, endpoints.of_node("gcp", cloud.endpoint, first["id"]), ["evidence/other/x.json"])  # fmt: skip
