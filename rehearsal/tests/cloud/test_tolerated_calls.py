"""Requests of the provider for Google Cloud whose denial it ignores."""

from __future__ import annotations

import json

import pytest

from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.operator import Operator
from rehearsal.tests.cloud import google
from rehearsal.tests.cloud.conftest import Client
from tests.clouds.stacks import plan_of
from tests.permissions.needed import permissions_of

DOCUMENTS = permissions_of(plan_of("gcp-a3mega")).documents


def looked(cloud: Cloud, gcp: Client, without: str = "") -> dict[str, list[str]]:
    """The permissions that the provider used and lacked while it was configured with a region and a bucket was imported."""
    bucket = google.bucket(gcp, "train-evidence-0a1b2c3d")
    cloud.operator = Operator(json.loads(json.dumps(list(DOCUMENTS)).replace(f'"{without}"', '"nothing"')))
    gcp.configure(region="us-central1")
    assert gcp.read("gcp:storage/bucket:Bucket", bucket.id).id == bucket.id
    return cloud.operator.summary()


def test_the_printed_roles_contain_the_tolerated_requests(cloud: Cloud, gcp: Client) -> None:
    """The provider compares the region with the list of regions and reads the project of an imported bucket, and the printed roles allow both."""
    seen = looked(cloud, gcp)
    assert {"compute.regions.list", "compute.projects.get"} <= set(seen["used"])
    assert seen["refused"] == []


@pytest.mark.parametrize("permission", ["compute.regions.list", "compute.projects.get"])
def test_a_denied_request_is_recorded_and_ends_nothing(cloud: Cloud, gcp: Client, permission: str) -> None:
    """Without the permission, the operation succeeds, and the summary of the rehearsal lists the permission as denied."""
    assert looked(cloud, gcp, permission)["refused"] == [permission]


def test_without_a_region_the_provider_lists_no_regions(cloud: Cloud, gcp: Client) -> None:
    """The list is requested only if the configuration has a region."""
    cloud.operator = Operator(DOCUMENTS)
    gcp.configure(project="p")
    assert cloud.operator.summary()["used"] == []
