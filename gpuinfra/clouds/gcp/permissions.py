"""Least-privilege custom roles for operators of a plan on Google Cloud. Pure.

A custom role lists permissions, and a binding with a condition restricts it. Only Cloud Storage and the IAM policies of projects support the conditions that
a stack needs, so the other permissions apply to all resources of the project. The roles contain only the permissions for requests that the plan requires,
and no permissions to delete retained resources.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuinfra.base.naming import evidence_prefix
from gpuinfra.clouds.gcp import pending
from gpuinfra.clouds.gcp.instances import (
    ATTACH,
    DISCOVERY,
    PROJECT_ACCESS,
    REPAIR,
    buckets,
    control_roles,
    data_networks,
    export_purpose,
    node_health,
    replacing_roles,
    scheduled,
)
from gpuinfra.clouds.gcp.names import bucket, role_id
from gpuinfra.clouds.gcp.resources import BUNDLE, RESOURCES, resources
from gpuinfra.clouds.permissions import Permissions, collect, preflight_requests, reads_of, uses_of
from gpuinfra.clouds.region.active import OWN_KEYS
from gpuinfra.plan.model import Plan

SOURCE = "Google's IAM permissions reference and the pages of the methods, retrieved 2026-11-21; collections compared with the discovery documents"
BILLING = "billing.budgets."
"""Permissions that are granted on a billing account instead of a project."""

ACTIONS = {row.type: row.actions for row in RESOURCES}
"""Maps a resource type to its permissions by operation."""

PROJECT = "read the project"
EVIDENCE = "handover: read the evidence"
REGIONS = "provider: check the region"
IMPORTED = "provider: read the project of an imported bucket"
IMPORT = "import files from a bucket"
ASKED: dict[str, tuple[str, ...]] = {
    PROJECT: ("resourcemanager.projects.get",),
    REGIONS: ("compute.regions.list",),
    IMPORTED: ("compute.projects.get",),
    "find an image": ("compute.images.get", "compute.images.getFromFamily"),
    "handover: list the nodes": ("compute.instanceGroupManagers.get", "compute.instances.list"),
    EVIDENCE: ("storage.objects.list", "storage.objects.get"),
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
    "gpuinfra ready: find the newest checkpoint": ("storage.objects.list",),
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
    "gpuinfra failover: export the files of the file systems": (
        "lustre.instances.exportData",
        "lustre.operations.get",
        "lustre.operations.list",
    ),
    "gpuinfra failover: compare the buckets with their replicas": ("storage.objects.get", "storage.objects.list"),
    "gpuinfra failover: stop the replication": ("storagetransfer.jobs.get", "storagetransfer.jobs.update"),
    "gpuinfra failover: revoke the access of Storage Transfer Service to the replicas": (
        "storage.buckets.getIamPolicy",
        "storage.buckets.setIamPolicy",
    ),
    "gpuinfra failover: import a replica into a file system": (
        "lustre.instances.importData",
        "lustre.operations.get",
        "lustre.operations.list",
    ),
}
"""Requests of `gpuinfra failover` in addition to the permissions to deploy the stack of the second region.
Sources: the pages of the methods, retrieved 2026-11-26."""

FAILBACK: dict[str, tuple[str, ...]] = {
    "gpuinfra failback: launch the nodes of the first region": (
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

SCHEDULE: dict[str, tuple[str, ...]] = {
    "gpuinfra failover and failback: pause and resume the scheduled exports": (
        "cloudscheduler.jobs.enable",
        "cloudscheduler.jobs.get",
        "cloudscheduler.jobs.pause",
    ),
}
"""Requests for a plan with `recovery` and scheduled exports. Resuming a job requires `enable`
(https://docs.cloud.google.com/iam/docs/roles-permissions/cloudscheduler, retrieved 2026-11-29)."""

READ_RECORD = "up, drift, calendar, failover, failback and names: read the record of the active region"
WRITE_RECORD = "gpuinfra failover and failback: write the record of the active region"
RECORD: dict[str, tuple[str, ...]] = {
    READ_RECORD: ("storage.objects.get", "storage.objects.list"),
    WRITE_RECORD: ("storage.objects.create", "storage.objects.delete"),
}
"""Requests for the record of the active region of a plan with `recovery`. Without `storage.objects.list`, a record that does not exist is an error
(https://cloud.google.com/storage/docs/json_api/v1/status-codes, retrieved 2026-11-28)."""

REPORT = "gpuinfra ready --record: report to Cloud Monitoring that the second region is ready"
REPORTS: dict[str, tuple[str, ...]] = {
    REPORT: ("monitoring.metricDescriptors.create", "monitoring.timeSeries.create"),
}
"""Requests of `gpuinfra ready --record`, in addition to those that write the record. The first report creates the metric
(https://docs.cloud.google.com/monitoring/access-control, role `monitoring.metricWriter`, retrieved 2026-11-29)."""

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
        requests |= {**READY, **FAILOVER, **FAILBACK, **RECORD, **REPORTS, **(NAMES if plan.recovery.names else {})}
        requests |= SCHEDULE if any(scheduled(plan)) else {}
    inputs = {"deleteDefaultRoutesOnCreate": data_networks(plan), "autoHealingPolicies": node_health(plan)}
    unset = frozenset(name for name, instances in inputs.items() if not any(instances))
    requests |= pending.requests({one.type for one in resources(plan)})
    uses = uses_of(resources(plan), ACTIONS, requests, unset)
    if read_only:
        writes = frozenset({IMPORT, *REPLACE, *FAILOVER, *FAILBACK, *SCHEDULE, WRITE_RECORD, REPORT, MOVE_NAMES})
        uses = reads_of(uses, writes)
    billing = [one for one in sorted(uses) if one.startswith(BILLING)]
    to, of = ("read", " read") if read_only else ("operate", "")
    scoped = list(_scoped(plan, uses))
    apart = {one for part in scoped for one in part.permissions}
    project = [one for one in sorted(uses) if one not in (*apart, *billing)]
    documents = [_custom_role(plan, of, to, project)] + (
        [_custom_role(plan, f"{of} billing", to, billing)] if billing else []
    )
    roles = {
        part.purpose: _custom_role(plan, f"{of} {part.purpose}", f"{to} {part.what} of", part.permissions)
        for part in scoped
    }
    documents += roles.values()
    bindings = [{"role": _id(documents[0]), "members": ["OPERATOR"]}]
    for part in scoped:
        document = roles[part.purpose]
        for number, expression in enumerate(part.expressions):
            condition = {"title": f"{document['title']} {number}", "expression": expression}
            bindings.append({"role": _id(document), "members": ["OPERATOR"], "condition": condition})
    documents.append({"bindings": bindings})
    notes = [
        (
            "the last document contains the bindings: create each role in the project with the ID in its binding, and grant it there with the condition: "
            "gcloud iam roles create ID --project PROJECT --file FILE. Replace PROJECT and OPERATOR, and TOKEN with the token in the names of the stack"
        )
    ]
    if billing:
        notes.append(
            "budgets belong to the billing account: create the billing role in the organization and grant it on that account"
        )
    if plan.recovery and plan.recovery.names:
        zone = plan.recovery.names.zone
        notes.append(f"for the DNS names, grant the dns permissions in the project of the zone {zone}, or on the zone")
    if plan.recovery and not read_only:
        notes.append(
            f"grant the role `{_id(roles[_REPLICAS]).rpartition('/')[2]}` only for the time of a "
            "failover or a failback, because it can delete replicated objects"
        )
    if read_only:
        return Permissions(
            cloud="gcp", needs=collect(uses), documents=tuple(documents), notes=tuple(notes), source=SOURCE
        )
    if any(one.retained for one in resources(plan)):
        notes.append(
            "the roles do not allow the deletion of resources that `destroy` retains; to delete them later, you need additional permissions"
        )
    notes.append(
        "a principal that can set the IAM policy of a bucket or a key can grant itself more permissions on it; "
        "docs/reference/retained-data.md lists the ways to lose retained data that Google Cloud cannot deny to an operator"
    )
    return Permissions(cloud="gcp", needs=collect(uses), documents=tuple(documents), notes=tuple(notes), source=SOURCE)


_REPLICAS = "replicas"


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Permissions that a binding with a condition grants."""

    purpose: str
    what: str
    permissions: list[str]
    expressions: list[str]
    """Conditions. Each is a binding of its own, because a condition has at most 12 operators
    (https://docs.cloud.google.com/iam/quotas, retrieved 2026-11-28)."""


_NAMES_IN_CONDITION = 6
_SET_PROJECT_POLICY = "resourcemanager.projects.setIamPolicy"
_BUCKETS = tuple(f"storage.buckets.{verb}" for verb in ("get", "getIamPolicy", "setIamPolicy", "update"))


def _scoped(plan: Plan, uses: Mapping[str, list[tuple[str, str]]]) -> Iterator[_Part]:
    """Yield the permissions that a condition restricts: on objects, on buckets, and to change the IAM policy of the project.

    Resource names of conditions: https://docs.cloud.google.com/iam/docs/conditions-resource-attributes; `modifiedGrantsByRole`:
    https://docs.cloud.google.com/iam/docs/setting-limits-on-granting-roles (both retrieved 2026-11-28).
    """
    bundles, moves = {BUNDLE.type}, {one for group in (READY, FAILOVER, FAILBACK) for one in group}

    def objects(of: Collection[str]) -> list[str]:
        return sorted(
            one for one in uses if one.startswith("storage.objects.") and any(use in of for use, _ in uses[one])
        )

    evidence = _prefixes(plan, "evidence") if "foundation" in plan.layers else []
    named = [f'resource.name.startsWith("{one}")' for one in evidence]
    # A plan does not contain the name of another stack's bucket.
    place = "(" + " || ".join(named or ['resource.name.extract("projects/_/buckets/{name}-evidence-") != ""']) + ")"
    if allowed := objects(bundles):
        path = f'resource.name.extract("/objects/bootstrap/{plan.name}/{{name}}") != ""'
        yield _Part(purpose="bundles", what="the bundles", permissions=allowed, expressions=[f"{place} && {path}"])
    if allowed := objects({EVIDENCE}):
        path = f'resource.name.extract("/objects/{evidence_prefix(plan.name)}/{{name}}") != ""'
        listing = 'resource.type == "storage.googleapis.com/Bucket"'
        yield _Part(
            purpose="evidence",
            what="the evidence",
            permissions=allowed,
            expressions=[f"{place} && ({path} || {listing})"],
        )
    if plan.recovery and (allowed := objects(RECORD)):
        listing = 'resource.type == "storage.googleapis.com/Bucket"'
        path = " || ".join(f'resource.name.endsWith("/objects/{key}")' for key in OWN_KEYS)
        yield _Part(
            purpose="record",
            what="the record of the active region",
            permissions=allowed,
            expressions=[f"{place} && ({path} || {listing})"],
        )
    if plan.recovery and (allowed := objects(moves)):
        names = _prefixes(plan, *(one.name for one in plan.recovery.replicas))
        names += [f"projects/_/buckets/{one.bucket}" for one in plan.file_systems if one.replicated]
        yield _Part(purpose=_REPLICAS, what="the replicas", permissions=allowed, expressions=_any(names))
    if allowed := [one for one in _BUCKETS if one in uses]:
        given = [f"projects/_/buckets/{one.bucket}" for one in plan.file_systems if one.bucket not in (None, "auto")]
        given += [f"projects/_/buckets/{one.bucket}" for one in plan.mounted_buckets if one.bucket != "auto"]
        names = [*_prefixes(plan), *dict.fromkeys(given)]
        yield _Part(
            purpose="buckets",
            what="the buckets",
            permissions=allowed,
            expressions=[*_any(names), *([] if named else [place])],
        )
    if _SET_PROJECT_POLICY in uses:
        roles = [one.role for one in plan.roles.node_roles if one.scope is None]
        if plan.recovery:
            ids = (role_id(plan.name, f"replication-{access}", "TOKEN") for access in PROJECT_ACCESS)
            roles += [f"projects/PROJECT/roles/{one}" for one in ids]
        if any(control_roles(plan)):
            roles += [f"projects/PROJECT/roles/{role_id(plan.name, one, 'TOKEN')}" for one in (DISCOVERY, ATTACH)]
        roles += [
            f"projects/PROJECT/roles/{role_id(plan.name, export_purpose(one.name), 'TOKEN')}"
            for one in plan.file_systems
            if one.export_minutes is not None and any(scheduled(plan))
        ]
        if any(replacing_roles(plan)):
            roles.append(f"projects/PROJECT/roles/{role_id(plan.name, REPAIR, 'TOKEN')}")
        listed = ", ".join(f'"{one}"' for one in dict.fromkeys(roles))
        expression = f'api.getAttribute("iam.googleapis.com/modifiedGrantsByRole", []).hasOnly([{listed}])'
        yield _Part(purpose="grants", what="the grants", permissions=[_SET_PROJECT_POLICY], expressions=[expression])


def _prefixes(plan: Plan, *purposes: str) -> list[str]:
    """Return the beginnings of the names of the stack's buckets, or of those with these purposes, without the hash at their end."""
    kinds = [one.values["purpose"] for one in buckets(plan)]
    if purposes:
        kinds = [one for one in kinds if one.startswith(purposes)]
    names = [bucket(plan.name, purpose, "", "").rpartition("-")[0] for purpose in kinds]
    return [f"projects/_/buckets/{name}-" for name in dict.fromkeys(names)]


def _any(names: list[str]) -> list[str]:
    tests = [f'resource.name.startsWith("{one}")' for one in names]
    return [
        " || ".join(tests[start : start + _NAMES_IN_CONDITION]) for start in range(0, len(tests), _NAMES_IN_CONDITION)
    ]


def _id(document: Mapping[str, Any]) -> str:
    return f"projects/PROJECT/roles/{re.sub('[^a-zA-Z0-9_.]', '_', document['title'])}"


def _custom_role(plan: Plan, purpose: str, to: str, included: list[str]) -> dict[str, Any]:
    return {
        "title": f"gpuinfra {plan.name}{purpose}",
        "description": f"Minimum permissions to {to} the cluster {plan.name}.",
        "stage": "GA",
        "includedPermissions": included,
    }
