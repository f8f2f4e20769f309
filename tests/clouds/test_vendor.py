"""The reports for the providers about a faulty node: content, and the values that the providers accept."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.clouds.azure import vendor as azure
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.gcp import vendor as gcp
from gpuinfra.clouds.vendor import Faulty
from gpuinfra.node.checks import ALL
from tests.clouds.gcp import discovery
from tests.clouds.gcp.requests import Call

SET = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/gpu"
RESOURCES = {"aws": "", "azure": f"{SET}/virtualMachines/0", "gcp": "projects/p/zones/us-central1-a/instances/gpu-x1y2"}
CATEGORIES = {
    "HpcMissingGpu", "MissingIB", "IBPerformance", "IBPortDown", "IBPortFlapping", "HpcGpuDcgmDiagFailure", "HpcRowRemapFailure", "HpcInforomCorruption",
    "HpcGenericFailure", "ManualInvestigation", "XID95UncontainedECCError", "XID94ContainedECCError", "XID79FallenOffBus", "XID48DoubleBitECC",
    "UnhealthyGPUNvidiasmi", "NvLink", "HpcDcgmiThermalReport", "ECCPageRetirementTableFull", "DBEOverLimit", "GpuXIDError", "AmdGpuResetFailed",
    "EROTFailure", "GPUMemoryBWFailure", "CPUPerformance",
}  # fmt: skip
"""https://learn.microsoft.com/azure/azure-impact-reporting/guest-health-impact-categories, retrieved 2026-11-26."""


def faulty(cloud: str, *checks: str, xids: tuple[int, ...] = (), machine: str = "a3-ultragpu-8g") -> Faulty:
    """A node whose checks with these IDs failed."""
    return Faulty(
        stack="train", label="gpu-1", instance_id="i-0123456789abcdef0", resource=RESOURCES[cloud], group="asg-1", region="us-east-1", zone="use1-az4",
        machine=machine, outcome="failed" if checks else "verified", reason="", observed="2026-11-26T10:00:00Z", boot_id="boot-1",
        gpus=({"index": "0", "uuid": "GPU-0a", "serial": "1650", "pci": "0000:10:1c.0"},), gpus_expected=8,
        failed=tuple({"id": one, "name": ALL[one].name, "reason": "the reason\nof the check"} for one in checks), xids=xids,
    )  # fmt: skip


@pytest.mark.parametrize("cloud", CLOUDS)
def test_report_identifies_the_node_its_gpus_and_its_problem(cloud: str) -> None:
    """The text contains the instance, machine type, GPU UUIDs and serial numbers, Xids and failed checks."""
    files = cloud_of(cloud).vendor.files(faulty(cloud, "G1", xids=(79,)))
    text = files["aws-support.txt" if cloud == "aws" else "node.txt"]
    for part in (
        "i-0123456789abcdef0",
        "a3-ultragpu-8g",
        "GPU-0a",
        "1650",
        "79",
        "G1 gpu_count: the reason of the check",
        "1 of 8",
    ):
        assert part in text, part
    assert files["SEND.txt"]


@pytest.mark.parametrize(
    ("checks", "xids", "category"),
    [
        (("G1", "X1"), (48, 79), "XID79FallenOffBus"),
        (("X1",), (95,), "XID95UncontainedECCError"),
        (("X1",), (119,), "GpuXIDError"),
        (("G1",), (), "HpcMissingGpu"),
        (("G6",), (), "HpcRowRemapFailure"),
        (("G11",), (), "HpcInforomCorruption"),
        (("N2",), (), "IBPortDown"),
        (("N6",), (), "IBPortFlapping"),
        (("F3",), (), "NvLink"),
        (("N11",), (), "IBPortDown"),
        (("N10",), (), "IBPerformance"),
        (("B3",), (), "IBPerformance"),
        (("B8",), (), "IBPerformance"),
        (("B2",), (), "NvLink"),
        (("B9",), (), "NvLink"),
        (("B10",), (), "GPUMemoryBWFailure"),
        (("B6",), (), "HpcGpuDcgmDiagFailure"),
        (("D2",), (), "HpcGenericFailure"),
        ((), (), "ManualInvestigation"),
    ],
)
def test_azure_gets_the_category_of_the_problem(checks: tuple[str, ...], xids: tuple[int, ...], category: str) -> None:
    """The category follows from the Xids, then from the failed checks, and is in Azure's list."""
    (body,) = [json.loads(text)["properties"] for name, text in azure.files(faulty("azure", *checks, xids=xids)).items() if name.endswith(".json")]  # fmt: skip
    assert body["impactCategory"] == f"Resource.Hpc.Unhealthy.{category}"
    assert category in CATEGORIES
    assert body["impactedResourceId"] == RESOURCES["azure"]
    assert set(body) == {"startDateTime", "impactCategory", "impactDescription", "impactedResourceId", "additionalProperties"}  # fmt: skip
    assert body["additionalProperties"]["VmUniqueId"] == "i-0123456789abcdef0"


@pytest.mark.parametrize(
    ("checks", "xids", "behavior"),
    [
        (("X1",), (79,), "UNRECOVERABLE_GPU_ERROR"),
        (("G1",), (), "CHIP_ERROR"),
        (("G16",), (), "CHIP_ERROR"),
        (("B9",), (), "PERFORMANCE"),
        (("B3",), (), "PERFORMANCE"),
        ((), (), "PERFORMANCE"),
    ],
)
def test_google_gets_a_valid_body(checks: tuple[str, ...], xids: tuple[int, ...], behavior: str) -> None:
    """The body follows Google's discovery document, with the behavior of the problem."""
    body: Any = json.loads(gcp.files(faulty("gcp", *checks, xids=xids))["report-host-as-faulty.json"])
    path = {"project": "p", "zone": "us-central1-a", "instance": "gpu-x1y2"}
    assert discovery.findings(Call("compute.v1", "instances.reportHostAsFaulty", path, body)) == []
    assert body["faultReasons"][0]["behavior"] == behavior


def test_google_gets_no_body_for_a_machine_that_it_refuses() -> None:
    """Google accepts reports only for some machine types; for the others, the account team gets the text."""
    files = gcp.files(faulty("gcp", "G1", machine="a3-highgpu-8g"))
    assert "report-host-as-faulty.json" not in files
    assert "account team" in files["SEND.txt"]


def test_description_is_one_short_line() -> None:
    """A long reason is shortened, because the providers limit the text."""
    node = faulty("aws", "G1")
    assert len(replace(node, failed=({**node.failed[0], "reason": "x" * 5000},)).summary) <= 800
