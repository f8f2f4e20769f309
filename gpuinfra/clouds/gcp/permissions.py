"""Least-privilege custom roles for operators of a plan on Google Cloud. Pure.

A custom role lists permissions. Each permission covers all resources of a project, because only a few services support conditions on a binding. The
role contains only the permissions for requests that the plan requires, and no permissions to delete retained resources.
"""

from __future__ import annotations

from typing import Any

from gpuinfra.clouds.gcp.instances import data_networks, node_health
from gpuinfra.clouds.gcp.resources import RESOURCES, resources
from gpuinfra.clouds.permissions import Permissions, collect, preflight_requests, reads_of, uses_of
from gpuinfra.plan.model import Plan

SOURCE = "Google's IAM permissions reference and the pages of the methods, retrieved 2026-11-21; collections compared with the discovery documents"
BILLING = "billing.budgets."
"""Permissions that are granted on a billing account instead of a project."""

ACTIONS = {row.type: row.actions for row in RESOURCES}
"""Maps a resource type to its permissions by operation."""

PROJECT = "read the project"
REGIONS = "provider: check the region"
IMPORTED = "provider: read the project of an imported bucket"
IMPORT = "import files from a bucket"
ASKED: dict[str, tuple[str, ...]] = {
    PROJECT: ("resourcemanager.projects.get",),
    REGIONS: ("compute.regions.list",),
    IMPORTED: ("compute.projects.get",),
    "find an image": ("compute.images.get", "compute.images.getFromFamily"),
    "handover: list the nodes": ("compute.instanceGroupManagers.get", "compute.instances.list"),
    "handover: read the evidence": ("storage.objects.list", "storage.objects.get"),
    "handover: read the console output of a node without evidence": ("compute.instances.getSerialPortOutput",),
    IMPORT: ("lustre.instances.importData", "lustre.operations.get"),
}
"""Requests that gpuinfra makes in addition to those for resources."""

REPLACE: dict[str, tuple[str, ...]] = {
    "gpuinfra replace: recreate an instance": ("compute.instanceGroupManagers.update",),
}
"""Requests of `gpuinfra replace` in addition to those of the handover."""

PREFLIGHT: dict[str, tuple[str, ...]] = {
    "permissions": (),
    "api": ("serviceusage.services.get",),
    "quota": ("compute.regions.get", "cloudquotas.quotas.get"),
    "machine": ("compute.machineTypes.get", "compute.machineTypes.list"),
    "reservation": ("compute.reservations.get",),
    "image": ("compute.images.get", "compute.images.getFromFamily"),
    "names": ("storage.buckets.get",),
}
"""Maps a topic of the preflight to the permissions that its requests require. Testing your own permissions requires none."""

READY: dict[str, tuple[str, ...]] = {
    "gpuinfra ready: read the replication lag and failures": ("monitoring.timeSeries.list",),
    "gpuinfra ready: read the bundles in the replicas": ("storage.objects.get",),
    "gpuinfra ready: read the quotas": PREFLIGHT["quota"],
    "gpuinfra ready: find the machine types": PREFLIGHT["machine"],
    "gpuinfra ready: read the reservations": PREFLIGHT["reservation"],
    "gpuinfra ready: find the images": PREFLIGHT["image"],
}
"""Requests of `gpuinfra ready` for a plan with `recovery`, in addition to reading the resources of the second region."""

FAILOVER: dict[str, tuple[str, ...]] = {
    "gpuinfra failover: stop the nodes of the first region": (
        "compute.instanceGroupManagers.get",
        "compute.instanceGroupManagers.update",
    ),
    "gpuinfra failover: compare the buckets with their replicas": ("storage.objects.get", "storage.objects.list"),
    "gpuinfra failover: stop the replication": ("storagetransfer.jobs.get", "storagetransfer.jobs.update"),
    "gpuinfra failover: import a replica into a file system": (
        "lustre.instances.importData",
        "lustre.operations.get",
        "lustre.operations.list",
    ),
}
"""Requests of `gpuinfra failover` in addition to the permissions to deploy the stack of the second region.
Sources: the pages of the methods, retrieved 2026-11-26."""

FAILBACK: dict[str, tuple[str, ...]] = {
    "gpuinfra failback: allow queued groups to launch nodes": (
        "compute.instanceGroupManagers.get",
        "compute.instanceGroupManagers.update",
    ),
    "gpuinfra failback: copy newer objects from the replicas": (
        "storage.objects.create",
        "storage.objects.delete",
        "storage.objects.get",
        "storage.objects.list",
    ),
}
"""Requests of `gpuinfra failback` in addition to `FAILOVER` and the permissions to deploy the stack. An object that replaces another one requires
`storage.objects.delete`, although the bucket keeps the replaced version (https://cloud.google.com/storage/docs/access-control/iam-json, retrieved 2026-11-26).
"""

READ_NAMES = "gpuinfra ready and names: read the DNS names"
MOVE_NAMES = "gpuinfra failover, failback and names: change the DNS names"
NAMES: dict[str, tuple[str, ...]] = {
    READ_NAMES: ("dns.managedZones.get", "dns.resourceRecordSets.list"),
    MOVE_NAMES: (
        "dns.changes.create",
        "dns.resourceRecordSets.create",
        "dns.resourceRecordSets.delete",
        "dns.resourceRecordSets.update",
    ),
}
"""Requests for a plan with `recovery.names`. A change that replaces records deletes and adds them
(https://docs.cloud.google.com/dns/docs/access-control, retrieved 2026-11-27)."""

FUNCTIONS = {
    "gcp:organizations/getProject:getProject": "resourcemanager.projects.get",
    "gcp:compute/getImage:getImage": "compute.images.getFromFamily",
    "gcp:logging/getProjectCmekSettings:getProjectCmekSettings": "logging.cmekSettings.get",
    "gcp:storage/getProjectServiceAccount:getProjectServiceAccount": "resourcemanager.projects.get",
    "gcp:storage/getTransferProjectServiceAccount:getTransferProjectServiceAccount": "storagetransfer.projects.getServiceAccount",
}
"""Maps an SDK function to its permission."""


def permissions(plan: Plan, *, read_only: bool = False) -> Permissions:
    """Return the roles for operators of a plan, with the uses of each permission. With `read_only`, they allow no changes."""
    requests = {**ASKED, **REPLACE} if plan.pools else {one: ASKED[one] for one in (PROJECT, REGIONS, IMPORTED)}
    requests |= preflight_requests(plan, PREFLIGHT)
    if not any(one.kind == "lustre" and one.bucket for one in plan.file_systems):
        requests.pop(IMPORT, None)
    if "foundation" in plan.layers:
        requests["find the service account that encrypts logs"] = ("logging.cmekSettings.get",)
    if plan.recovery:
        requests["find the service account that replicates objects"] = ("storagetransfer.projects.getServiceAccount",)
        requests |= {**READY, **FAILOVER, **FAILBACK, **(NAMES if plan.recovery.names else {})}
    inputs = {"deleteDefaultRoutesOnCreate": data_networks(plan), "autoHealingPolicies": node_health(plan)}
    unset = frozenset(name for name, instances in inputs.items() if not any(instances))
    uses = uses_of(resources(plan), ACTIONS, requests, unset)
    if read_only:
        uses = reads_of(uses, frozenset({IMPORT, *REPLACE, *FAILOVER, *FAILBACK, MOVE_NAMES}))
    project = [one for one in sorted(uses) if not one.startswith(BILLING)]
    billing = [one for one in sorted(uses) if one.startswith(BILLING)]
    to, of = ("read", " read") if read_only else ("operate", "")
    documents = [_role(plan, of, to, project)] + ([_role(plan, f"{of} billing", to, billing)] if billing else [])
    notes = [
        "create the role in the project and grant it there: gcloud iam roles create ROLE --project PROJECT --file FILE"
    ]
    if billing:
        notes.append(
            "budgets belong to the billing account: create the second role in the organization and grant it on that account"
        )
    if plan.recovery and plan.recovery.names:
        zone = plan.recovery.names.zone
        notes.append(f"for the DNS names, grant the dns permissions in the project of the zone {zone}, or on the zone")
    if read_only:
        return Permissions(
            cloud="gcp", needs=collect(uses), documents=tuple(documents), notes=tuple(notes), source=SOURCE
        )
    if any(one.retained for one in resources(plan)):
        notes.append(
            "the role does not allow the deletion of resources that `destroy` retains; to delete them later, you need additional permissions"
        )
    notes.append(
        "a principal that can set the IAM policy of a project or a bucket can grant itself more permissions; "
        "Google has no narrower permission for creating a grant"
    )
    return Permissions(cloud="gcp", needs=collect(uses), documents=tuple(documents), notes=tuple(notes), source=SOURCE)


def _role(plan: Plan, purpose: str, to: str, included: list[str]) -> dict[str, Any]:
    return {
        "title": f"gpuinfra {plan.name}{purpose}",
        "description": f"Minimum permissions to {to} the cluster {plan.name}.",
        "stage": "GA",
        "includedPermissions": included,
    }
