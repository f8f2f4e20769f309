"""A small cluster on Google Cloud, created call by call."""

from __future__ import annotations

from typing import Any

from gpuinfra_rehearsal.cloud.gcp import ids
from rehearsal.tests.cloud.conftest import Client, Made

ZONE = "us-central1-a"
MACHINE = "a3-megagpu-8g"
IMAGE = "projects/ubuntu-os-accelerator-images/global/images/ubuntu-accelerator-2204-amd64-with-nvidia-580-v20260101"
GROUP = "gcp:compute/instanceGroupManager:InstanceGroupManager"
TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"


def network(gcp: Client, name: str = "main", **more: Any) -> Made:
    """A network without subnets."""
    inputs = {"name": name, "autoCreateSubnetworks": False, "mtu": 8244, **more}
    return gcp.create("gcp:compute/network:Network", inputs, name)


def subnet(gcp: Client, within: Made, cidr: str = "10.0.0.0/16", name: str = "main") -> Made:
    """A subnet of a network."""
    inputs = {"name": name, "network": within.outputs["selfLink"], "ipCidrRange": cidr, "region": "us-central1"}
    return gcp.create("gcp:compute/subnetwork:Subnetwork", inputs, name)


def account(gcp: Client, name: str = "nodes-1") -> Made:
    """A service account."""
    return gcp.create("gcp:serviceaccount/account:Account", {"accountId": name}, name)


def bucket(gcp: Client, name: str = "evidence-1", **more: Any) -> Made:
    """A private bucket."""
    inputs = {"name": name, "location": "US-CENTRAL1", "uniformBucketLevelAccess": True, **more}
    return gcp.create("gcp:storage/bucket:Bucket", inputs, name)


def grant(gcp: Client, on: Made, to: Made, role: str, expression: str = "") -> Made:
    """A role on a bucket for an account, under a condition."""
    inputs: dict[str, Any] = {"bucket": on.id, "role": role, "member": f"serviceAccount:{to.outputs['email']}"}
    if expression:
        inputs["condition"] = {"title": f"when-{len(expression)}", "expression": expression}
    return gcp.create("gcp:storage/bucketIAMMember:BucketIAMMember", inputs, f"{role}-{expression}")


def template(gcp: Client, name: str = "gpu-v1", **more: Any) -> Made:
    """A template of one GPU machine of the pool `gpu`, in a network that is not the stand-in's."""
    inputs = {
        "name": name,
        "machineType": MACHINE,
        "disks": [{"boot": True, "sourceImage": IMAGE}],
        "networkInterfaces": [{"subnetwork": "projects/elsewhere/regions/us-central1/subnetworks/main"}],
        "labels": {"gpuinfra-cluster": "train", "gpuinfra-pool": "gpu", "gpuinfra-group": "gpu-reserved-0"},
        "metadata": {"user-data": "#!/bin/bash\necho hello\n"},
        **more,
    }
    return gcp.create(TEMPLATE, inputs, name)


def versions(made: Made) -> list[dict[str, Any]]:
    """A group's versions: one template for all."""
    return [{"instanceTemplate": made.outputs["selfLinkUnique"], "name": "stable"}]


def group(gcp: Client, of: Made, count: int = 2, name: str = "gpu", **more: Any) -> Made:
    """A group of a template; it replaces by ending first."""
    inputs = {
        "name": name,
        "baseInstanceName": name,
        "zone": ZONE,
        "targetSize": count,
        "versions": versions(of),
        "updatePolicy": {
            "type": "PROACTIVE", "minimalAction": "REPLACE", "replacementMethod": "RECREATE", "maxSurgeFixed": 0, "maxUnavailableFixed": 1,
        },
        **more,
    }  # fmt: skip
    return gcp.create(GROUP, inputs, name)


def path(name: str = "gpu") -> str:
    """A group's id."""
    return f"projects/{ids.PROJECT}/zones/{ZONE}/instanceGroupManagers/{name}"
