"""Instance templates of node groups.

A template cannot be changed, so its name depends on its content. A change creates a new template, the group switches to it, and the old template is
deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp
from pulumi.stash import Stash, StashArgs

from gpuinfra.base import naming
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp import resources as rows
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.gcp.instances import nic_subnets, secure_boot
from gpuinfra.plan.model import Group, PoolPlan

RESERVATION_KEY = "compute.googleapis.com/reservation-name"
NIC_TYPES = {"gvnic": "GVNIC", "mrdma": "MRDMA"}


@dataclass(frozen=True, kw_only=True)
class TemplateArgs:
    """Arguments for the instance template of a group."""

    scope: Scope
    pool: PoolPlan
    group: Group
    image: pulumi.Input[str]
    subnet_ids: Mapping[str, pulumi.Input[str]]
    """Subnets, keyed by name in the plan."""
    service_account: pulumi.Input[str]
    key_id: pulumi.Input[str] | None
    user_data: pulumi.Input[str]
    """Script that nodes run at first boot, as plain text."""


def instance_template(name: str, args: TemplateArgs, parent: pulumi.Resource) -> gcp.compute.InstanceTemplate:
    """The instance template of a group."""
    scope, pool, group = args.scope, args.pool, args.group
    content: dict[str, Any] = {
        "machine_type": pool.machine,
        "description": f"{pool.machine}, {group.kind}",
        "can_ip_forward": False,
        "disks": [_root_disk(args)],
        "network_interfaces": [
            {"subnetwork": args.subnet_ids[subnet], "nic_type": NIC_TYPES[nic.kind], "stack_type": "IPV4_ONLY"}
            for nic, subnet in zip(pool.nics, nic_subnets(pool), strict=True)
        ],
        "scheduling": scheduling(group),
        "reservation_affinity": affinity(group),
        "service_account": {
            "email": args.service_account,
            "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
        },
        "shielded_instance_config": {
            "enable_secure_boot": secure_boot(pool),
            "enable_vtpm": True,
            "enable_integrity_monitoring": True,
        },
        "metadata": {
            "user-data": args.user_data,
            "enable-oslogin": "TRUE",
            "block-project-ssh-keys": "TRUE",
            "serial-port-enable": "FALSE",
            "disable-legacy-endpoints": "TRUE",
        },
        "labels": node_labels(scope, pool, group),
    }
    written = pulumi.Output.json_dumps(content, sort_keys=True)
    return gcp.compute.InstanceTemplate(
        name,
        name=written.apply(lambda text: names.by_content(f"{scope.cluster}-{group.name}", text)),
        **content,
        # The names differ, so the group switches to the new template before the old one is deleted.
        opts=child(parent, rows.TEMPLATE, delete_before_replace=False),
    )


def node_labels(scope: Scope, pool: PoolPlan, group: Group) -> dict[str, str]:
    """Return the labels of a group's nodes and their disks, which are used in cost reports."""
    return {
        **scope.labels(gpuinfra_pool=pool.name, gpuinfra_group=group.name),
        **names.labels(pool.tags),
    }


def scheduling(group: Group) -> dict[str, Any]:
    """Return the provisioning model and the behavior when Google Cloud reclaims or maintains a node
    (https://cloud.google.com/compute/docs/gpus/gpu-host-maintenance; pulumi_gcp 10.2: compute/_inputs.py). GPU nodes do not support live migration."""
    model = group.provisioning or "STANDARD"
    restarts = model in ("STANDARD", "RESERVATION_BOUND")
    chosen: dict[str, Any] = {
        "provisioning_model": model,
        "preemptible": model == "SPOT",
        # The provider default is true, which the API rejects for preemptible nodes.
        "automatic_restart": restarts,
        "on_host_maintenance": "TERMINATE",
    }
    if model != "STANDARD":
        # The group creates a new node. A stopped node would still occupy a disk and a place in the group.
        chosen["instance_termination_action"] = "DELETE"
    if group.max_run_s is not None:
        chosen["max_run_duration"] = {"seconds": group.max_run_s}
    return chosen


def affinity(group: Group) -> dict[str, Any]:
    """Return the reservation affinity: the reservation in the plan, or none (pulumi_gcp 10.2: compute/_inputs.py)."""
    if group.reservation_id is None:
        return {"type": "NO_RESERVATION"}
    return {
        "type": "SPECIFIC_RESERVATION",
        "specific_reservation": {"key": RESERVATION_KEY, "values": [group.reservation_id]},
    }


def pinned_image(name: str, scope: Scope, pool: PoolPlan, parent: pulumi.Resource) -> pulumi.Output[str]:
    """Resolve the image of the pool to the newest image of its family at the first `up`, and pin it.

    A family gets a new image every few weeks, which would replace all nodes in an unrelated `up`. The stack therefore stores the first result
    for each family.
    """
    image = pool.image
    if image.source == "id":
        return pulumi.Output.from_input(image.ref)
    if image.source != "family":
        raise ValueError(
            f"the image source of pool {pool.name!r} is {image.source!r}; allowed on Google Cloud: 'id', 'family'"
        )
    project, _, family = image.ref.rpartition("/")
    # The lookup needs the Compute Engine API, so it waits for `scope.project`, which is known after the APIs are enabled.
    ready = pulumi.Output.from_input(scope.project)
    newest = gcp.compute.get_image_output(
        project=ready.apply(lambda own: project or own), family=family, opts=pulumi.InvokeOutputOptions(parent=parent)
    )
    pinned = Stash(
        naming.logical(name, "image", naming.text_token(image.ref)),
        StashArgs(input=newest.self_link),
        pulumi.ResourceOptions(parent=parent, ignore_changes=["input"]),
    )
    return pinned.output.apply(str)


def _root_disk(args: TemplateArgs) -> dict[str, Any]:
    disk = args.pool.disk
    chosen: dict[str, Any] = {
        "boot": True,
        "auto_delete": True,
        "type": "PERSISTENT",
        "mode": "READ_WRITE",
        "source_image": args.image,
        "disk_type": disk.kind,
        "disk_size_gb": disk.size_gib,
        "labels": node_labels(args.scope, args.pool, args.group),
    }
    if disk.iops is not None:
        chosen["provisioned_iops"] = disk.iops
    if disk.throughput_mib_s is not None:
        chosen["provisioned_throughput"] = disk.throughput_mib_s
    if args.key_id is not None:
        chosen["disk_encryption_key"] = {"kms_key_self_link": args.key_id}
    return chosen
