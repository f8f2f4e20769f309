"""The fabric test in the plan and in the permissions of the nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuinfra.plan.model import Plan
from gpuinfra.planning import make_plan
from gpuinfra.spec import parse_spec
from tests.clouds.stacks import TODAY, recording_of_spec
from tests.rules.cases import declaration

REQUIRED = {"handover.fabric_test": "required"}
FOLDER = "evidence/train/fabric/rendezvous"


def planned(cloud: str, changes: dict[str, Any]) -> Plan:
    """The plan of a changed declaration."""
    return make_plan(parse_spec(declaration((cloud, changes))), TODAY)


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_only_a_required_test_is_in_the_expectation(cloud: str) -> None:
    """Check B8 and the folder are in the plan if the declaration requires the test."""
    for changes, there in ((REQUIRED, True), ({"handover.fabric_test": "off"}, False), ({}, False)):
        plan = planned(cloud, changes)
        assert plan.pools[0].fabric_test is there
        assert ("B8" in plan.pools[0].expectation["required"]) is there  # pyright: ignore[reportOperatorIssue]
        assert plan.fabric_folder == (FOLDER if there else "")


@pytest.mark.parametrize(
    "changes",
    [{"pools.0.machine": "m7i.xlarge"}, {"pools.0.mig": ["1g.5gb"] * 7}, {"pools.0.machine": "p5en.48xlarge"}],
)
def test_pools_that_cannot_run_the_test_do_not_require_it(changes: dict[str, Any]) -> None:
    """Nodes without a fabric, with MIG, or without a known bandwidth between two nodes have no check B8."""
    assert not planned("aws", {**REQUIRED, **changes}).pools[0].fabric_test


def test_permissions_of_the_nodes_on_aws() -> None:
    """The node role can list the folder of the test and write below its own name. Without the test, it has neither permission."""
    for changes, there in ((REQUIRED, True), ({}, False)):
        recorded = recording_of_spec(declaration(("aws", changes)))
        (policy,) = [one for one in recorded.of("aws:iam/rolePolicy:RolePolicy") if one.name.endswith("-node-policy")]
        found = {one["Sid"]: one for one in json.loads(policy.inputs["policy"])["Statement"]}
        assert ({"JoinFabricTest", "FindOtherNodes"} <= set(found)) is there
        if there:
            assert found["FindOtherNodes"]["Condition"] == {"StringLike": {"s3:prefix": f"{FOLDER}/*"}}
            assert found["JoinFabricTest"]["Resource"].endswith(f"/{FOLDER}/*/${{aws:userid}}/*")


def test_permissions_of_the_nodes_on_azure() -> None:
    """The condition of the node's role allows listing of the folder of the test only if the test is required."""
    for changes, there in ((REQUIRED, True), ({}, False)):
        recorded = recording_of_spec(declaration(("azure", {**changes, "access.evidence_from": ["203.0.113.0/24"]})))
        conditions = [
            str(one.inputs["condition"])
            for one in recorded.of("azure-native:authorization:RoleAssignment")
            if "read bundles" in str(one.inputs.get("description"))
        ]
        assert [
            ("Blob.List" in one and f"blobs:prefix] StringStartsWith '{FOLDER}/'" in one) for one in conditions
        ] == [there]


def test_permissions_of_the_nodes_on_google_cloud() -> None:
    """One more grant allows listing of the folder of the test only if the test is required, and the table of resources counts it."""
    for changes, there in ((REQUIRED, True), ({}, False)):
        recorded = recording_of_spec(declaration(("gcp", changes)))
        grants = [
            one
            for one in recorded.of("gcp:storage/bucketIAMMember:BucketIAMMember")
            if one.name.endswith("-node-fabric")
        ]
        assert bool(grants) is there
        for one in grants:
            assert one.inputs["condition"]["expression"] == (
                f'api.getAttribute("storage.googleapis.com/objectListPrefix", "").startsWith("{FOLDER}/")'
            )
        made = len(recorded.of("gcp:storage/bucketIAMMember:BucketIAMMember"))
        assert planned("gcp", changes).resources["gcp:storage/bucketIAMMember:BucketIAMMember"] == made
