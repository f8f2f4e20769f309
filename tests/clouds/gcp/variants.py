"""Declarations beside the shipped stacks: each omits, passes in or adds something that changes the resources."""

from __future__ import annotations

import functools
from typing import Any

from gpuinfra.base.shipped import shipped
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.spec import parse_spec
from tests.clouds.recorder import Recording
from tests.clouds.stacks import TODAY, recording_of_spec

SHIPPED = sorted(
    path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in shipped("stacks").glob("Pulumi.gcp-*.yaml")
)
"""Stacks in `stacks/` on Google Cloud."""

REGION = "us-central1"
BASE: dict[str, Any] = {
    "name": "train",
    "where": {"cloud": "gcp", "region": REGION, "zone": "us-central1-b"},
    "software": {"registry": "us-central1-docker.pkg.dev/my-project/gpudirect"},
    "pools": [{"name": "gpu", "machine": "a3-megagpu-8g", "capacity": [{"kind": "on_demand", "count": 2}]}],
}
LUSTRE: dict[str, Any] = {"kind": "lustre", "mount": "/scratch", "capacity_gib": 18000}
ULTRA: dict[str, Any] = {"name": "gpu", "machine": "a3-ultragpu-8g", "capacity": [{"kind": "spot", "count": 2}]}
SHARED: dict[str, Any] = {"id": "shared", "subnets": {REGION: "gpu-nodes"}}

VARIANTS: dict[str, dict[str, Any]] = {
    "no storage": {},
    "endpoints": {"network": {"egress": "endpoints"}, "pools": [ULTRA]},
    "existing network for a machine of many networks": {"network": {"existing": SHARED}},
    "existing networks for all interfaces": {
        "network": {"existing": {"id": "shared", "subnets": {REGION: "gpu-nodes", **{f"data-{i}": f"data-{i}" for i in range(8)}}}}
    },
    "no trail": {"audit": {"trail": "none"}},
    "trail into an existing bucket": {"audit": {"bucket": "existing-audit"}},
    "compliance lock": {"audit": {"lock_mode": "compliance", "confirm_compliance": True}},
    "lustre without a bucket": {"storage": [LUSTRE]},
    "lustre on an existing bucket": {"storage": [{**LUSTRE, "bucket": "my-data"}]},
    "home directories": {"storage": [{"kind": "home"}]},
    "home directories beside lustre": {"storage": [{"kind": "home"}, {**LUSTRE, "bucket": "auto"}]},
    "mounted buckets": {
        "storage": [
            {"kind": "object", "mount": "/data", "bucket": "corpus"},
            {"kind": "object", "mount": "/out", "bucket": "auto", "read_only": False},
        ]
    },
    "a cluster on a site with buckets": {
        "use": {"foundation": "organization/gpuinfra/gcp-foundation", "site": "organization/gpuinfra/gcp-site"},
        "storage": [{"kind": "object", "mount": "/data", "bucket": "corpus"}],
    },
    "roles of the nodes": {
        "access": {
            "node_roles": [{"role": "roles/artifactregistry.reader"}, {"role": "roles/viewer", "scope": "data-project"}]
        }
    },
    "ssh through IAP": {"access": {"ssh_from": ["35.235.240.0/20"]}},
    "ports open to a peered network": {
        "access": {"ingress": [{"sources": ["10.0.0.0/16", "10.8.0.0/16"], "ports": ["8080", "9000-9100"]}]}
    },
    "operators": {
        "access": {"operators": ["group:ops@example.com", "serviceAccount:deploy@my-project.iam.gserviceaccount.com"]}
    },
    "budget recipients": {"budget": {"recipients": ["one@example.com", "two@example.com"]}},
    "queue": {"pools": [{**ULTRA, "capacity": [{"kind": "flex", "count": 4, "max_run_hours": 24}]}]},
    "a dense reservation": {
        "pools": [{**ULTRA, "machine": "a4-highgpu-8g", "capacity": [{"kind": "reserved", "id": "block-1", "count": 2}]}]
    },
    "custom image": {
        "pools": [
            {
                "name": "gpu",
                "machine": "a2-highgpu-8g",
                "image": {"ref": "projects/my-project/global/images/mine", "os": "ubuntu-22.04", "prebuilt": True},
                "capacity": [{"kind": "on_demand", "count": 2}],
            }
        ]
    },
    "foundation and site alone": {"pools": [], "network": {"machines": ["a3-megagpu-8g"]}, "storage": [{**LUSTRE, "bucket": "auto"}]},
    "a foundation alone": {"pools": [], "layers": ["foundation"]},
    "a site alone": {
        "pools": [],
        "layers": ["site"],
        "network": {"machines": ["a3-ultragpu-8g"]},
        "use": {"foundation": "organization/gpuinfra/gcp-foundation"},
    },
    "a cluster on a site": {
        "use": {"foundation": "organization/gpuinfra/gcp-foundation", "site": "organization/gpuinfra/gcp-site"}
    },
    "a cluster with RDMA on a site": {
        "pools": [ULTRA],
        "use": {"foundation": "organization/gpuinfra/gcp-foundation", "site": "organization/gpuinfra/gcp-site"},
    },
    "three pools": {
        "pools": [
            {**BASE["pools"][0], "capacity": [{"kind": "on_demand", "count": 2}, {"kind": "spot", "count": 1}]},
            {"name": "small", "machine": "g2-standard-4", "capacity": [{"kind": "spot", "count": 1}]},
            {"name": "login", "machine": "n2-standard-4", "capacity": [{"kind": "on_demand", "count": 1}]},
        ]
    },
}  # fmt: skip


@functools.cache
def recorded(name: str) -> Recording:
    """The resources that the program of a variant registers."""
    return recording_of_spec(parse_spec(variant(name)))


def planned(name: str) -> Plan:
    """The plan of a variant."""
    return build_plan(parse_spec(variant(name)), TODAY)


def variant(name: str) -> dict[str, Any]:
    """The declaration of a variant."""
    return {**BASE, **VARIANTS[name]}
