"""The quotas of file systems, on each cloud.

The answers are the documented ones: quotas of FSx and EFS from a published list of `ListServiceQuotas`; the examples AscResourceUsages_Get and Usages_List
in Azure/azure-rest-api-specs; and quotas of Google Cloud in the form of recorded answers of the Cloud Quotas API. All retrieved 2026-11-27.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinfra.clouds.aws import quotas as aws
from gpuinfra.clouds.azure import quotas as azure
from gpuinfra.clouds.azure.permissions import PREFLIGHT
from gpuinfra.clouds.gcp import quotas as gcp
from gpuinfra.clouds.gcp.api_errors import NotFound
from gpuinfra.clouds.preflight import PreflightRow, RowState, answers
from gpuinfra.plan.model import FileSystemPlan, NetworkPlan, Plan
from tests.clouds.stacks import plan_of

NAMES = {
    "L-FD6F2F22": ("Lustre Persistent_2 file systems", 100),
    "L-8F1B9C74": ("Lustre Persistent_2 storage capacity", 100800),
    "L-C48231E5": ("Lustre Scratch file systems", 100),
    "L-AD2FC696": ("Lustre Scratch storage capacity", 100800),
    "L-59D0763F": ("OpenZFS file systems", 100),
    "L-88479C21": ("OpenZFS SSD storage capacity", 262144),
    "L-4EDE4065": ("OpenZFS throughput capacity", 10240),
    "L-848C634D": ("File systems per account", 1000),
}
"""Quota code -> name and default of AWS."""


def file_system(kind: str, **fields: Any) -> FileSystemPlan:
    """A file system of a plan."""
    known: dict[str, Any] = {"name": f"{kind}-0", "kind": kind, "mount": "/data", "capacity_gib": 1200, "deployment": "",
                             "throughput_mb_s_per_tib": None, "subnet": "private-0"}  # fmt: skip
    return FileSystemPlan(**{**known, **fields})


def with_file_systems(stack: str, *entries: FileSystemPlan) -> Plan:
    """A plan with only these file systems, and without nodes."""
    return replace(plan_of(stack), pools=(), file_systems=entries)


class Client:
    """A boto3 client of an account with these file systems."""

    def __init__(self, listed: Iterable[Mapping[str, Any]]) -> None:
        self.listed = list(listed)

    def get_service_quota(self, ServiceCode: str, QuotaCode: str) -> dict[str, Any]:
        name, value = NAMES[QuotaCode]
        assert ServiceCode == ("elasticfilesystem" if QuotaCode == "L-848C634D" else "fsx")
        return {"Quota": {"QuotaName": name, "Value": float(value)}}

    def get_paginator(self, operation: str) -> Any:
        assert operation == "describe_file_systems"
        return SimpleNamespace(paginate=lambda: [{"FileSystems": self.listed}])


def on_aws(*entries: FileSystemPlan, listed: Iterable[Mapping[str, Any]] = ()) -> list[PreflightRow]:
    """The rows for these file systems in an account with these file systems."""
    client = Client(listed)
    quotas = aws.Quotas(lambda service: client, "us-east-1")
    return answers(quotas.questions(with_file_systems("aws-p4d", *entries)), 60)


def lustre_of(deployment: str, gib: int) -> dict[str, Any]:
    """A file system of the account."""
    return {"FileSystemType": "LUSTRE", "StorageCapacity": gib, "LustreConfiguration": {"DeploymentType": deployment}}


def test_aws_counts_each_deployment_type_separately() -> None:
    """The capacity of scratch file systems of both types is compared with one quota, and persistent file systems with another.
    The row has the command that requests the quota."""
    first, second = (
        file_system("lustre", deployment=f"SCRATCH_{n}", capacity_gib=60000, name=f"l-{n}") for n in (1, 2)
    )
    listed = [lustre_of("SCRATCH_2", 1200), lustre_of("PERSISTENT_2", 98400)]
    rows = on_aws(first, second, file_system("lustre", deployment="PERSISTENT_2", capacity_gib=4800), listed=listed)
    found = {row.where.partition(" (")[0]: row for row in rows}
    assert set(found) == {NAMES[code][0] for code in ("L-FD6F2F22", "L-8F1B9C74", "L-C48231E5", "L-AD2FC696")}
    scratch, persistent = found["Lustre Scratch storage capacity"], found["Lustre Persistent_2 storage capacity"]
    assert (scratch.state, scratch.found) == (RowState.ERROR, "100800 GiB, 1200 in use")
    assert scratch.needed == "120000 GiB for all file systems of the stack"
    assert scratch.fix == (
        "aws service-quotas request-service-quota-increase --service-code fsx --quota-code L-AD2FC696 --desired-value 120000 --region us-east-1"
    )
    assert (persistent.state, persistent.found) == (RowState.WARN, "100800 GiB, 98400 in use")
    assert persistent.needed == "4800 more GiB, unless file systems of this stack are part of the usage"
    assert "--desired-value 103200 " in persistent.fix
    assert found["Lustre Persistent_2 file systems"].found == "100 file systems, 1 in use, 1 needed"


def test_aws_homes_have_quotas() -> None:
    """FSx for OpenZFS has quotas of file systems, capacity and throughput. Amazon EFS has a quota of file systems."""
    openzfs = file_system("home", service="openzfs", capacity_gib=262145, throughput_mb_s=160, name="home-0")
    other = {"FileSystemType": "OPENZFS", "StorageCapacity": 64, "OpenZFSConfiguration": {"ThroughputCapacity": 10240}}
    rows = on_aws(openzfs, listed=[other])
    assert [row.state for row in rows] == [RowState.OK, RowState.ERROR, RowState.WARN]
    assert rows[2].found == "10240 MB/s, 10240 in use"
    (row,) = on_aws(file_system("home", service="efs"), listed=[{}] * 1000)
    assert (row.state, row.found) == (RowState.WARN, "1000 file systems, 1000 in use")
    assert "--service-code elasticfilesystem --quota-code L-848C634D --desired-value 1001 " in row.fix


def test_mounted_buckets_and_existing_file_systems_have_no_quota() -> None:
    """Only file systems that the stack creates are compared with quotas."""
    assert on_aws(file_system("object", deployment="mountpoint")) == []


CACHES = [
    {"name": {"localizedValue": "Cache", "value": "Cache"}, "currentValue": 1, "limit": 4, "unit": "Count"},
    {"name": {"localizedValue": "AmlFilesystem", "value": "AmlFilesystem"}, "currentValue": 0, "limit": 4, "unit": "Count"},
]  # fmt: skip
POOLS = [
    {
        "id": "/subscriptions/00000000-0000-0000-0000-000000000000/providers/Microsoft.NetApp/locations/eastus/usages",
        "name": {"value": "totalTibsPerSubscription", "localizedValue": "Total TiBs per subscription"},
        "properties": {"currentValue": 75, "limit": 100, "unit": "count"},
    }
]


def on_azure(*entries: FileSystemPlan, lustre_in_use: int = 0) -> list[PreflightRow]:
    """The rows for these file systems in the subscription of the examples."""
    caches = [CACHES[0], {**CACHES[1], "currentValue": lustre_in_use}]

    def every(action: str, path: str, api: str) -> list[dict[str, Any]]:
        assert action in PREFLIGHT["quota"]
        namespace = action.partition("/")[0]
        assert path == f"/subscriptions/sub/providers/{namespace}/locations/eastus/usages"
        return {"Microsoft.StorageCache": caches, "Microsoft.NetApp": POOLS}[namespace]

    plan = with_file_systems("azure-ndv4", *entries)
    return answers(azure.Quotas(every, "sub", "eastus").questions(plan), 60)


def test_azure_counts_lustre_file_systems_and_tib_of_netapp() -> None:
    """Azure Managed Lustre has a quota of file systems, and Azure NetApp Files of TiB. An increase requires a support request."""
    (row,) = on_azure(file_system("lustre", capacity_gib=48 * 1024))
    assert (row.state, row.found) == (RowState.OK, "4 file systems, 0 in use, 1 needed")
    (row,) = on_azure(file_system("lustre", name="a"), file_system("lustre", name="b"), lustre_in_use=3)
    assert (row.state, row.needed) == (RowState.WARN, "2 more file systems, unless file systems of this stack are part of the usage")  # fmt: skip
    assert "Azure Managed Lustre, eastus, new limit 5 file systems, subscription sub" in row.fix
    (row,) = on_azure(file_system("home", service="netapp", capacity_gib=30 * 1024))
    assert (row.state, row.found) == (RowState.WARN, "100 TiB, 75 in use")
    (row,) = on_azure(file_system("home", service="netapp", capacity_gib=101 * 1024))
    assert (row.state, row.needed) == (RowState.ERROR, "101 TiB for all file systems of the stack")
    assert on_azure(file_system("home", service="files")) == []


def test_azure_without_the_quota_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer without the quota is not a quota of 0."""
    monkeypatch.setitem(globals(), "POOLS", [])
    (row,) = on_azure(file_system("home", service="netapp"))
    assert (row.state, row.answered) == (RowState.WARN, False)


def entry(value: str, *places: str, **dimensions: str) -> dict[str, Any]:
    """An entry of `dimensionsInfos`."""
    return {"dimensions": dimensions, "details": {"value": value}, "applicableLocations": list(places)}


def on_google(
    *entries: FileSystemPlan, limits: Mapping[str, list[dict[str, Any]]], network: str | None = None
) -> list[PreflightRow]:
    """The rows for these file systems in a project with these quotas, by service and ID."""

    def get(api: str, path: str) -> dict[str, Any]:
        assert api == "cloudquotas"
        service, _, quota_id = path.removeprefix("v1/projects/ai/locations/global/services/").partition("/quotaInfos/")
        if f"{service}/{quota_id}" not in limits:
            raise NotFound(f"no {path}")
        return {"dimensionsInfos": limits[f"{service}/{quota_id}"]}

    plan = with_file_systems("gcp-a3mega", *entries)
    made: NetworkPlan | None = plan.network and replace(plan.network, existing_id=network)
    return answers(gcp.Quotas(get, "ai", "us-central1").questions(replace(plan, network=made)), 60)


ZONE = "us-central1-a"
LUSTRE = "lustre.googleapis.com/Capacity"
FILESTORE = "file.googleapis.com/EnterpriseStorageGibPerRegion"


def test_google_compares_lustre_with_the_quota_of_the_zone() -> None:
    """An entry of another zone or of another network does not apply, and -1 is no limit."""
    made = file_system("lustre", zone=ZONE, capacity_gib=36000)
    listed = [entry("18000", ZONE, zone=ZONE), entry("72000", ZONE, zone=ZONE, network_name="train"), entry("-1", "us-central1-b")]  # fmt: skip
    (row,) = on_google(made, limits={LUSTRE: listed})
    assert (row.state, row.found) == (RowState.ERROR, "18000 GiB, usage unknown")
    assert row.fix == (
        "gcloud quotas preferences create --service=lustre.googleapis.com --project=ai --quota-id=Capacity --preferred-value=36000 "
        "--dimensions=zone=us-central1-a --email=EMAIL"
    )
    (row,) = on_google(made, limits={LUSTRE: listed}, network="projects/ai/global/networks/train")
    assert (row.state, row.found) == (RowState.OK, "72000 GiB, usage unknown, 36000 needed")
    (row,) = on_google(replace(made, zone="us-central1-b"), limits={LUSTRE: listed})
    assert (row.state, row.found) == (RowState.OK, "no limit, usage unknown, 36000 needed")


def test_google_compares_filestore_with_the_quota_of_the_region() -> None:
    """The quota of zonal instances below 10 TiB is known. Larger instances are skipped with a reason."""
    home = file_system("home", service="filestore", capacity_gib=2048, zone=ZONE)
    (row,) = on_google(home, limits={FILESTORE: [entry("1024", "us-central1", region="us-central1")]})
    assert (row.state, row.needed) == (RowState.ERROR, "2048 GiB for all file systems of the stack")
    assert "--service=file.googleapis.com " in row.fix
    assert "--dimensions=region=us-central1 " in row.fix
    (row,) = on_google(replace(home, capacity_gib=10240), limits={})
    assert (row.state, row.found) == (RowState.SKIPPED, "no quota is known for zonal instances of 10 TiB or more")
    (row,) = on_google(home, limits={})
    assert (row.state, row.answered) == (RowState.WARN, False)
