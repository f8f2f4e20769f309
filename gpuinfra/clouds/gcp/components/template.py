"""Instance templates: what one node of a group is.

A template cannot be changed, so its name is made from its content: another content is another template beside the first one, the group moves over, and
the first one goes. Everything here is read off the plan and put into the API's form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp
from pulumi.stash import Stash, StashArgs

from gpuinfra import naming
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.gcp.resources import nic_subnets, secure_boot
from gpuinfra.plan.model import Group, PoolPlan

RESERVATION_KEY = "compute.googleapis.com/reservation-name"
NIC_TYPES = {"gvnic": "GVNIC", "mrdma": "MRDMA"}


@dataclass(frozen=True, kw_only=True)
class TemplateArgs:
    """What the nodes of one group have in common."""

    scope: Scope
    pool: PoolPlan
    group: Group
    image: pulumi.Input[str]
    subnet_ids: Mapping[str, pulumi.Input[str]]
    """Subnets by the plan's names."""
    service_account: pulumi.Input[str]
    key_id: pulumi.Input[str] | None
    user_data: pulumi.Input[str]
    """What the node runs at its first boot, as plain text."""


def instance_template(name: str, args: TemplateArgs, parent: pulumi.Resource) -> gcp.compute.InstanceTemplate:
    """The instance template of one group."""
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
        project=scope.project,
        **content,
        # The new one is there before the old one goes: their names differ, and a group has to move over in between.
        opts=pulumi.ResourceOptions.merge(child(parent), pulumi.ResourceOptions(delete_before_replace=False)),
    )


def node_labels(scope: Scope, pool: PoolPlan, group: Group) -> dict[str, str]:
    """Labels of a group's nodes and their disks; cost is counted by them."""
    return {
        **scope.labelled(gpuinfra_pool=pool.name, gpuinfra_group=group.name),
        **names.labels(pool.tags),
    }


def scheduling(group: Group) -> dict[str, Any]:
    """How nodes are sold, and what happens when Google takes one back or moves it (gcp.md 4.1). No GPU node can be moved while it runs."""
    model = group.provisioning or "STANDARD"
    plain = model in ("STANDARD", "RESERVATION_BOUND")
    chosen: dict[str, Any] = {
        "provisioning_model": model,
        "preemptible": model == "SPOT",
        # The provider's own default is true, which the API refuses for nodes that it may take back.
        "automatic_restart": plain,
        "on_host_maintenance": "TERMINATE",
    }
    if model != "STANDARD":
        # The group makes a new one; a stopped node would only hold its disk and its place in the group.
        chosen["instance_termination_action"] = "DELETE"
    if group.max_run_s is not None:
        chosen["max_run_duration"] = {"seconds": group.max_run_s}
    return chosen


def affinity(group: Group) -> dict[str, Any]:
    """Which reservations a node may use: the one that is named, or none (gcp.md 4.2)."""
    if group.reservation_id is None:
        return {"type": "NO_RESERVATION"}
    return {
        "type": "SPECIFIC_RESERVATION",
        "specific_reservation": {"key": RESERVATION_KEY, "values": [group.reservation_id]},
    }


def pinned_image(name: str, scope: Scope, pool: PoolPlan, parent: pulumi.Resource) -> pulumi.Output[str]:
    """The pool's image: what its family means on the day it is first used, and the same from then on.

    A family moves every few weeks; followed, it would roll the whole fleet in an unrelated `up`.
    The stack remembers the first answer; another family in the plan is another memory.
    """
    image = pool.image
    if image.source == "id":
        return pulumi.Output.from_input(image.ref)
    if image.source != "family":
        raise ValueError(
            f"the image source {image.source!r} of pool {pool.name!r} does not exist on Google Cloud; allowed are 'id' and 'family'"
        )
    project, _, family = image.ref.rpartition("/")
    now = gcp.compute.get_image_output(
        project=project or scope.project, family=family, opts=pulumi.InvokeOutputOptions(parent=parent)
    )
    pin = Stash(
        naming.logical(name, "image", naming.text_token(image.ref)),
        StashArgs(input=now.self_link),
        pulumi.ResourceOptions(parent=parent, ignore_changes=["input"]),
    )
    return pin.output.apply(str)


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
