"""The requests with which Prometheus finds nodes on each cloud. Each search yields a node that it finds.

Requests and pages: prometheus/prometheus, discovery/aws, discovery/gce/gce.go and discovery/azure/azure.go at 3.13.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

Environ = dict[str, str]


class FoundNode(NamedTuple):
    """A node that Prometheus finds."""

    label: str
    """The label `instance`."""
    instance_id: str
    pool: str


def ec2(settings: Mapping[str, Any], environ: Environ) -> Iterator[FoundNode]:
    """`ec2_sd_configs`: one request, with the credentials of the node's role."""
    from .signed import describe_instances

    answer = describe_instances([(one["name"], one["values"]) for one in settings["filters"]], environ)
    for item in answer.split("<instanceId>")[1:]:
        pool = re.search(r"<key>gpuinfra:pool</key>\s*<value>([^<]*)</value>", item)
        id_ = item.partition("<")[0]
        if pool:
            yield FoundNode(id_, id_, pool[1])


def gce(settings: Mapping[str, Any], environ: Environ) -> Iterator[FoundNode]:
    """`gce_sd_configs`: the instances of a zone, with the token of the node's service account."""
    base = f"http://{environ['GCE_METADATA_HOST']}/computeMetadata/v1/instance/service-accounts/default/token"
    token = _get(base, {"Metadata-Flavor": "Google"})["access_token"]
    where = f"{environ['CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE']}projects/{settings['project']}/zones/{settings['zone']}/instances"
    query, page = {"filter": settings["filter"]}, ""
    while page is not None:
        answer = _get(f"{where}?{urlencode({**query, **({'pageToken': page} if page else {})})}", _bearer(token))
        for instance in answer.get("items", []):
            if instance["networkInterfaces"]:
                yield FoundNode(str(instance["id"]), str(instance["id"]), instance["labels"]["gpuinfra-pool"])
        page = answer.get("nextPageToken")


def azure(settings: Mapping[str, Any], environ: Environ) -> Iterator[FoundNode]:
    """`azure_sd_configs`: the machines and scale sets of a resource group, the machines of each scale set, and the interface of each machine."""
    asked = {
        "api-version": "2018-02-01",
        "resource": "https://management.azure.com",
        "client_id": settings["client_id"],
    }
    token = _get(
        f"{environ['AZURE_POD_IDENTITY_AUTHORITY_HOST']}/metadata/identity/oauth2/token?{urlencode(asked)}",
        {"Metadata": "true"},
    )["access_token"]
    root = environ["GPUINFRA_AZURE_RESOURCE_MANAGER"]
    group = f"/subscriptions/{settings['subscription_id']}/resourceGroups/{settings['resource_group']}"

    def listed(path: str) -> Iterator[dict[str, Any]]:
        url = f"{root}{path}?api-version=2024-11-01"
        while url:
            page = _get(url, _bearer(token))
            yield from page["value"]
            url = page.get("nextLink")

    machines = list(listed(f"{group}/providers/Microsoft.Compute/virtualMachines"))
    for scale_set in listed(f"{group}/providers/Microsoft.Compute/virtualMachineScaleSets"):
        machines += listed(f"{scale_set['id']}/virtualMachines")
    for machine in machines:
        for interface in machine["properties"]["networkProfile"]["networkInterfaces"]:
            nic = _get(f"{root}{interface['id']}?api-version=2024-11-01", _bearer(token))
            if nic["properties"].get("primary"):
                yield FoundNode(machine["name"], machine["properties"]["vmId"], machine["tags"]["gpuinfra:pool"])


SEARCHES: Mapping[str, Callable[[Mapping[str, Any], Environ], Iterator[FoundNode]]] = {
    "ec2_sd_configs": ec2,
    "gce_sd_configs": gce,
    "azure_sd_configs": azure,
}
"""Section of a scrape configuration -> search."""


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _get(url: str, headers: dict[str, str]) -> dict[str, Any]:
    with build_opener(ProxyHandler({})).open(Request(url, headers=headers), timeout=30) as answer:
        return json.load(answer)
