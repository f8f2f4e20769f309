"""Which file systems end with their stack, on every cloud: only those whose files are all exported automatically, or temporary by declaration."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import FileSystemPlan, Lifetime
from gpuinfra.spec import parse_spec
from gpuinfra.spec.model import ClusterSpec
from tests.clouds.stacks import TODAY, recording_of_spec, spec_of

STACKS = {"aws": "aws-p4d", "azure": "azure-ndv4", "gcp": "gcp-a3high"}
CAPACITY = {"aws": 4800, "azure": 8192, "gcp": 18000}
OWN = {
    "aws": "my-training-data",
    "azure": "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/data/providers/Microsoft.Storage"
    "/storageAccounts/mydata/blobServices/default/containers/train",
    "gcp": "my-training-data",
}
TYPES = {
    "aws": ("aws:fsx/lustreFileSystem:LustreFileSystem", "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"),
    "azure": (
        "azure-native:storagecache:AmlFilesystem",
        "azure-native:network:VirtualNetwork",
        "azure-native:network:Subnet",
    ),
    "gcp": (
        "gcp:lustre/instance:Instance",
        "gcp:compute/network:Network",
        "gcp:servicenetworking/connection:Connection",
    ),
}
"""The file system, and what it cannot exist without."""
LINKS = ("none", "created", "existing")


def _spec(cloud: str, link: str, prefix: str = "") -> ClusterSpec:
    whole = spec_of(STACKS[cloud]).model_dump(mode="json", exclude_unset=True)
    entry: dict[str, Any] = {"kind": "lustre", "mount": "/scratch", "capacity_gib": CAPACITY[cloud]}
    if link != "none":
        entry |= {"bucket": "auto" if link == "created" else OWN[cloud], "bucket_prefix": prefix}
        entry |= {"importer_id": "00000000-0000-4000-8000-000000000000"} if cloud == "azure" else {}
    return parse_spec({**whole, "storage": [entry]})


def _exports_everything(one: FileSystemPlan) -> bool:
    """Amazon FSx exports files by itself. Azure and Google Cloud export on request only, and gpuinfra creates no export job."""
    return one.bucket is not None and one.bucket_path == "/" and {"NEW", "CHANGED", "DELETED"} <= set(one.export_events)


def test_every_cloud_is_compared() -> None:
    """A new cloud has to be added to this test."""
    assert set(STACKS) == set(CLOUDS)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("cloud", sorted(STACKS))
def test_a_file_system_ends_only_if_everything_is_exported_automatically(cloud: str, link: str) -> None:
    """A Lustre file system that is not exported automatically and in full is retained, and `adopt` finds it."""
    for prefix in ("", "datasets/imagenet") if link != "none" else ("",):
        plan = build_plan(_spec(cloud, link, prefix), TODAY)
        (one,) = plan.file_systems
        ends = _exports_everything(one)
        assert (one.lifetime is Lifetime.ENDS) == ends, one
        assert one.lifetime_reason
        (row,) = [found for found in cloud_of(cloud).resources(plan) if found.type == TYPES[cloud][0]]
        assert (row.retained is None) == ends
        assert (row.lookup is None) == ends


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("cloud", sorted(STACKS))
def test_the_program_retains_a_file_system_with_its_network(cloud: str, link: str) -> None:
    """The file system and its network have retainOnDelete exactly if the plan retains the file system."""
    spec = _spec(cloud, link)
    (one,) = build_plan(spec, TODAY).file_systems
    retained = {found.type for found in recording_of_spec(spec).custom if found.retained}
    for type_ in TYPES[cloud]:
        assert (type_ in retained) == (not _exports_everything(one)), type_
