"""The request body for Azure Guest Health Reporting (preview) about a faulty node. Pure.

Sources, retrieved 2026-11-26:
https://learn.microsoft.com/azure/azure-impact-reporting/guest-health-impact-report (request and fields) and
https://learn.microsoft.com/azure/azure-impact-reporting/guest-health-impact-categories. A request must contain `PhysicalHostName` or `VmUniqueId`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

from gpuinfra.clouds.vendor import Faulty
from gpuinfra.node.cause import FaultyPart

API = "2023-02-01-preview"
ACTION = "redeploy the virtual machine; Azure moves it to a different host, and it keeps its OS disk"
SAME_HOST = (
    "send guest-health-report.json to Azure before the next redeploy, so that Azure removes the host from service and repairs it. "
    "Then run this command again"
)

_UNHEALTHY = "Resource.Hpc.Unhealthy."
_XIDS = {
    79: "XID79FallenOffBus",
    95: "XID95UncontainedECCError",
    48: "XID48DoubleBitECC",
}
"""In the order in which the category is selected."""
_CATEGORIES: tuple[tuple[FaultyPart | str, str], ...] = (
    (FaultyPart.MISSING_GPU, "HpcMissingGpu"),
    ("G6", "HpcRowRemapFailure"),
    ("G11", "HpcInforomCorruption"),
    (FaultyPart.PORT, "IBPortDown"),
    ("N6", "IBPortFlapping"),
    (FaultyPart.NVLINK, "NvLink"),
    ("B1", "HpcGpuDcgmDiagFailure"),
    ("B6", "HpcGpuDcgmDiagFailure"),
    ("B10", "GPUMemoryBWFailure"),
    (FaultyPart.FABRIC, "IBPerformance"),
    (FaultyPart.SLOW_NVLINK, "NvLink"),
)
"""The faults, and the checks for which Azure has a category of their own, in the order in which the category is selected."""


def category(node: Faulty) -> str:
    """Return the impact category: by the Xids, then by the failed checks."""
    return _UNHEALTHY + next(_categories(node))


def _categories(node: Faulty) -> Iterator[str]:
    yield from (name for number, name in _XIDS.items() if number in node.xids)
    yield from ["GpuXIDError"] if node.xids else []
    yield from (name for kind, name in _CATEGORIES if kind in node.faults or kind in node.failed_ids)
    yield "HpcGenericFailure" if node.failed else "ManualInvestigation"


def files(node: Faulty) -> dict[str, str]:
    """Return the request body, and the command that sends it."""
    body = {
        "properties": {
            "startDateTime": node.observed,
            "impactCategory": category(node),
            "impactDescription": node.summary,
            "impactedResourceId": node.resource,
            "additionalProperties": {"VmUniqueId": node.instance_id},
        }
    }
    subscription = node.resource.split("/")[2] if node.resource.count("/") > 2 else "SUBSCRIPTION"
    name = uuid.uuid5(uuid.NAMESPACE_URL, f"{node.instance_id}/{node.boot_id}/{node.observed}")
    url = f"https://management.azure.com/subscriptions/{subscription}/providers/Microsoft.Impact/workloadImpacts/{name}?api-version={API}"
    read = "tr -d '\\0' </var/lib/hyperv/.kvp_pool_3 | sed 's/.*Qualified\\(.*\\)VirtualMachineDynamic.*/\\1/'"
    send = (
        "Guest Health Reporting is a preview for registered subscriptions: https://learn.microsoft.com/azure/azure-impact-reporting/guest-health-overview\n"
        "Send the report before the node moves to a different host:\n"
        f"az rest --method put --url '{url}' --body @guest-health-report.json\n"
        "Azure prefers PhysicalHostName in additionalProperties. If the node responds, read it with this command:\n"
        f'gpuinfra ssh {node.stack} {node.label} "{read}"\n'
        "If your subscription is not registered, open a support request with node.txt as its description.\n"
    )
    facts = [f"Virtual machine: {node.resource}", f"vmId: {node.instance_id}", f"Region: {node.region}", f"Zone: {node.zone or 'none'}"]  # fmt: skip
    return {
        "guest-health-report.json": json.dumps(body, indent=2) + "\n",
        "node.txt": "\n".join([*facts, *node.facts()]) + "\n",
        "SEND.txt": send,
    }
