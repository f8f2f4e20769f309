"""What the questions of `preflight` read from the stand-in cloud: quotas, machine types, reservations and images.

The requests and the parsing are those of `gpuinfra doctor`, with the SDKs of the clouds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuinfra.base import naming
from gpuinfra.base.shipped import shipped
from gpuinfra.clouds.azure import names as azure_names
from gpuinfra.clouds.gcp import names as gcp_names
from gpuinfra.clouds.preflight import PreflightRow, RowState, ok
from gpuinfra.clouds.region.readiness import PREFLIGHT
from gpuinfra.doctor.cloud import live_rows
from gpuinfra.spec.load import read_stack
from gpuinfra_rehearsal import endpoints
from gpuinfra_rehearsal.cloud.azure.ids import SUBSCRIPTION
from gpuinfra_rehearsal.cloud.core import registry
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.operator import Operator
from gpuinfra_rehearsal.cloud.core.server import Server
from rehearsal.tests.cloud.conftest import Client
from tests.clouds.stacks import plan_of
from tests.permissions.needed import permissions_of

GROUP = "/subscriptions/00000000-0000-4000-8000-00000000abcd/resourceGroups/r/providers/Microsoft.Compute/capacityReservationGroups/g"
STACKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "aws-recovery": ("L-417A185B", "cr-0123456789abcdef0", {"count": 2}),
    "azure-recovery": ("cores", GROUP, {"count": 2}),
    "gcp-recovery": ("GPUS-PER-GPU-FAMILY-per-project-region gpu_family=NVIDIA_H100_MEGA", "train-reservation", {"count": 2}),
}  # fmt: skip
"""Stack -> a quota of its nodes, and a reservation with the fields that the control interface sets."""


@pytest.fixture
def environment(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clients of all clouds send their requests to the stand-in cloud."""
    server = Server(cloud, "token")
    server.start()
    known = {one.name: one.operator_credentials(cloud) for one in registry.installed()}
    for name, value in endpoints.of_operator(cloud.endpoint, known, "aws", "us-east-1").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setattr("gpuinfra.doctor.state.backend", lambda *_, **__: iter([ok("state", "backend", "file:///s")]))
    yield
    server.shutdown()
    server.server_close()


def rows(stack: str) -> list[tuple[str, RowState, bool]]:
    """Topic, state and whether there is an answer, of each row about the capacity of a stack."""
    found = live_rows(read_stack(shipped("stacks") / f"Pulumi.{stack}.yaml"), PREFLIGHT)
    return [(one.topic, one.state, one.answered) for one in found]


@pytest.mark.long
@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("stack", STACKS)
def test_quotas_and_offers_are_read_until_the_control_interface_changes_them(stack: str, cloud: Cloud) -> None:
    """A quota covers all nodes until its limit is set, the catalog's machine types are offered, images exist, and a described reservation has its size.

    The permissions of `gpuinfra permissions` allow all requests."""
    quota, reservation, fields = STACKS[stack]
    cloud.operator = Operator(permissions_of(plan_of(stack)).documents)
    loaded = read_stack(shipped("stacks") / f"Pulumi.{stack}.yaml")
    region, machine = loaded.spec.where.region, loaded.spec.pools[0].machine
    before = rows(stack)
    topics = {topic for topic, _, _ in before}
    assert topics >= {"identity", "quota", "machine", "image"}
    assert all(state is RowState.OK for topic, state, _ in before if topic != "reservation"), before
    # The rehearsal does not know the machine type of a reservation that was not described.
    assert all(not answered for topic, _, answered in before if topic == "reservation")
    fields = {"machine": machine, "zone_id": plan_of(stack).pools[0].groups[0].zone, **fields}
    cloud.store.put("external", reservation, fields)
    assert all(state is RowState.OK for topic, state, _ in rows(stack)), rows(stack)
    cloud.store.put("external", reservation, {**fields, "count": 1, "state": "expired"})
    cloud.store.put("external", f"quota:{quota}:{region}", {"count": 0})
    after = {topic for topic, state, _ in rows(stack) if state is RowState.ERROR}
    assert after == {"quota", *({"reservation"} & topics)}


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("stack", ["aws-p4d", "azure-ndv4", "gcp-a3mega"])
def test_a_name_is_free_until_a_resource_has_it(stack: str, cloud: Cloud, connect: Callable[[str], Client]) -> None:
    """The names of a stack are free in an empty account, and those of existing resources are found, with the read permissions of a deployment."""
    token = naming.stack_token("organization", "gpuinfra", stack, "train")
    plan = plan_of(stack)

    def names() -> PreflightRow:
        (row,) = [
            one
            for one in live_rows(read_stack(shipped("stacks") / f"Pulumi.{stack}.yaml"), ["names"])
            if one.topic == "names"
        ]
        return row

    if not stack.startswith("azure"):
        cloud.operator = Operator(permissions_of(plan).documents)
    assert (names().state, names().found.endswith("names are free")) == (RowState.OK, True), names()
    cloud.operator = Operator()
    if stack.startswith("azure"):
        client = connect("azure-native")
        where = {"resourceGroupName": "unrelated", "location": plan.region}
        client.create("azure-native:resources:ResourceGroup", where)
        name = azure_names.storage_account("train", "evidence", SUBSCRIPTION, token)
        client.create("azure-native:storage:StorageAccount", {**where, "accountName": name, "kind": "StorageV2", "sku": {"name": "Standard_LRS"}})  # fmt: skip
        # The account is in a resource group that does not belong to the stack.
        assert (names().state, name in names().found) == (RowState.ERROR, True), names()
        return
    if stack.startswith("aws"):
        name = naming.bucket_name("train", "evidence", "000000000000", plan.region, token)
        connect("aws").create("aws:s3/bucket:Bucket", {"bucket": name})
    else:
        name = gcp_names.bucket("train", "evidence", "standin-project", token)
        connect("gcp").create("gcp:storage/bucket:Bucket", {"name": name, "location": plan.region})
    assert (names().state, name in names().found) == (RowState.OK, True), names()
