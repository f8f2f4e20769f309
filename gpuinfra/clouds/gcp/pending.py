"""Finds the Google Cloud resources that a killed run created, for `gpuinfra.search.interrupted`. This module makes only read requests.

IDs are paths of names. The forms are those in the "Import" section of each page of the Google provider (pulumi_gcp 10.2), retrieved 2026-11-28.
Google has no API that finds resources of all types by label, so a label is compared with the stack where the provider's type has labels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp.adopt import ENDPOINTS, connect
from gpuinfra.clouds.pending import SEARCH, STACK_TAG, NotFoundByTag, StackIdentity, from_inputs
from gpuinfra.engine.pending import PendingCreate

REPEATABLE = frozenset(
    {
        "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember",
        "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember",
        "gcp:logging/projectBucketConfig:ProjectBucketConfig",  # The provider acquires an existing log bucket.
        "gcp:projects/iAMAuditConfig:IAMAuditConfig",
        "gcp:projects/iAMMember:IAMMember",
        "gcp:projects/service:Service",
        "gcp:projects/serviceIdentity:ServiceIdentity",
        "gcp:secretmanager/secretIamMember:SecretIamMember",
        "gcp:storage/bucketIAMMember:BucketIAMMember",
        "gcp:storage/bucketObject:BucketObject",  # An upload replaces the object of the same name.
    }
)
"""Types whose creation can be repeated without a second resource: grants are sets, and an enabled API stays enabled."""

_GLOBAL, _REGION, _ZONE = (
    "projects/{project}/global",
    "projects/{project}/regions/{region}",
    "projects/{project}/zones/{zone}",
)
CONNECTION = "gcp:servicenetworking/connection:Connection"
SHAPES = {
    "gcp:cloudscheduler/job:Job": "projects/{project}/locations/{region}/jobs/{name}",
    "gcp:compute/disk:Disk": f"{_ZONE}/disks/{{name}}",
    "gcp:compute/firewall:Firewall": f"{_GLOBAL}/firewalls/{{name}}",
    "gcp:compute/globalAddress:GlobalAddress": f"{_GLOBAL}/addresses/{{name}}",
    "gcp:compute/healthCheck:HealthCheck": f"{_GLOBAL}/healthChecks/{{name}}",
    "gcp:compute/instanceGroupManager:InstanceGroupManager": f"{_ZONE}/instanceGroupManagers/{{name}}",
    "gcp:compute/instanceTemplate:InstanceTemplate": f"{_GLOBAL}/instanceTemplates/{{name}}",
    "gcp:compute/network:Network": f"{_GLOBAL}/networks/{{name}}",
    "gcp:compute/resizeRequest:ResizeRequest": f"{_ZONE}/instanceGroupManagers/{{instanceGroupManager}}/resizeRequests/{{name}}",
    "gcp:compute/resourcePolicy:ResourcePolicy": f"{_REGION}/resourcePolicies/{{name}}",
    "gcp:compute/router:Router": f"{_REGION}/routers/{{name}}",
    "gcp:compute/routerNat:RouterNat": "{project}/{region}/{router}/{name}",
    "gcp:compute/subnetwork:Subnetwork": f"{_REGION}/subnetworks/{{name}}",
    "gcp:dns/managedZone:ManagedZone": "projects/{project}/managedZones/{name}",
    "gcp:dns/policy:Policy": "projects/{project}/policies/{name}",
    "gcp:dns/recordSet:RecordSet": "projects/{project}/managedZones/{managedZone}/rrsets/{name}/{type}",
    "gcp:filestore/instance:Instance": "projects/{project}/locations/{location}/instances/{name}",
    "gcp:kms/cryptoKey:CryptoKey": "{keyRing}/cryptoKeys/{name}",
    "gcp:kms/keyRing:KeyRing": "projects/{project}/locations/{location}/keyRings/{name}",
    "gcp:logging/projectSink:ProjectSink": "projects/{project}/sinks/{name}",
    "gcp:lustre/instance:Instance": "projects/{project}/locations/{location}/instances/{instanceId}",
    "gcp:projects/iAMCustomRole:IAMCustomRole": "projects/{project}/roles/{roleId}",
    "gcp:serviceaccount/account:Account": "projects/{project}/serviceAccounts/{accountId}@{project}.iam.gserviceaccount.com",
    CONNECTION: "{network}:{service}",
    "gcp:storage/bucket:Bucket": "{name}",
}
"""IDs that consist of inputs."""

DERIVED = frozenset(
    {
        "gcp:compute/instanceTemplate:InstanceTemplate",
        "gcp:compute/resizeRequest:ResizeRequest",
        CONNECTION,  # It belongs to a network of the stack, and a network has one for each service.
        "gcp:storage/bucket:Bucket",
    }
)
"""Types whose names contain a hash of what the stack declares, and not the stack's token (`names.by_content`, `names.bucket`)."""

_SHORT = ("router", "instanceGroupManager", "region", "zone", "managedZone")
"""Inputs that can be links where the ID contains a name."""

LABELED = {
    "gcp:compute/globalAddress:GlobalAddress": ("compute", "{id}"),
    "gcp:filestore/instance:Instance": ("file", "v1/{id}"),
    "gcp:kms/cryptoKey:CryptoKey": ("cloudkms", "v1/{id}"),
    "gcp:lustre/instance:Instance": ("lustre", "v1/{id}"),
    "gcp:storage/bucket:Bucket": ("storage", "/storage/v1/b/{quoted}"),
}
"""Types with labels: the service, and the path that reads a resource."""

BUDGET = "gcp:billing/budget:Budget"
LISTED = {
    BUDGET: ("billingbudgets", "v1/billingAccounts/{billingAccount}/budgets", "budgets"),
    "gcp:monitoring/alertPolicy:AlertPolicy": ("monitoring", "v3/projects/{project}/alertPolicies", "alertPolicies"),
    "gcp:monitoring/notificationChannel:NotificationChannel": (
        "monitoring",
        "v3/projects/{project}/notificationChannels",
        "notificationChannels",
    ),
    "gcp:storage/transferJob:TransferJob": (
        "storagetransfer",
        'v1/transferJobs?filter={{"projectId":"{project}"}}',
        "transferJobs",
    ),
}
"""Types whose ID the service generates: the service, the list, and its field."""
_LISTS = {
    BUDGET: "billing.budgets.list",
    "gcp:monitoring/alertPolicy:AlertPolicy": "monitoring.alertPolicies.list",
    "gcp:monitoring/notificationChannel:NotificationChannel": "monitoring.notificationChannels.list",
    "gcp:storage/transferJob:TransferJob": "storagetransfer.jobs.list",
}
"""Permission of each list. Reading a resource with labels requires the permission with which the provider reads it.
Source: the pages of the methods, retrieved 2026-11-29."""


def requests(types: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the requests of the search for resources of these types, by purpose."""
    lists_of_types = tuple(sorted({_LISTS[type_] for type_ in types if type_ in _LISTS}))
    return {SEARCH: lists_of_types} if lists_of_types else {}


class PendingProject:
    """Lookups in the projects of the creations."""

    def __init__(self, get: Callable[[str], dict[str, Any] | None], stack: StackIdentity) -> None:
        """`get` returns the JSON response for a URL, or None if the resource does not exist."""
        self._get, self._stack = get, stack

    def ids(self, create: PendingCreate) -> Sequence[str] | None:
        """See `PendingLookup.ids`."""
        if create.type in LISTED:
            return tuple(self._listed(create))
        short = {key: create.text(key).rpartition("/")[2] for key in _SHORT if create.text(key)}
        if create.type == CONNECTION:
            short["network"] = quote_plus(create.text("network"))
        ids = from_inputs(create, self._stack, SHAPES, repeatable=REPEATABLE, derived=DERIVED, more=short)
        for id in ids or ():
            self._check_labels(create, id)
        return ids

    def _check_labels(self, create: PendingCreate, id: str) -> None:
        """Raise `NotFoundByTag` if the resource exists with the labels of another stack."""
        if create.type not in LABELED:
            return
        service, path = LABELED[create.type]
        answer = self._read(service, path.format(id=id, quoted=quote(id, safe="")))
        labels = (answer or {}).get("labels") or {}
        other = labels.get(names.label_key(STACK_TAG))
        if other is not None and other not in self._stack.tokens:
            raise NotFoundByTag(
                f"{id} exists and has the label {names.label_key(STACK_TAG)}={other} of another stack, so it is not imported as {create.name}; "
                "rename the cluster or the stack, or delete the resource if no stack uses it"
            )

    def _listed(self, create: PendingCreate) -> Iterator[str]:
        service, path, field = LISTED[create.type]
        path = path.format(project=create.text("project"), billingAccount=create.text("billingAccount"))
        token = ""
        while True:
            answer = (
                self._read(service, path + (f"{'&' if '?' in path else '?'}pageToken={quote(token)}" if token else ""))
                or {}
            )
            yield from (_import_id(create, one) for one in answer.get(field) or () if self._is_same(create, one))
            token = str(answer.get("nextPageToken") or "")
            if not token:
                return

    def _is_same(self, create: PendingCreate, candidate: Mapping[str, Any]) -> bool:
        """Return whether a resource with a generated ID is the one that was being created. Names alone are no proof, because another stack can use them."""
        if create.type == "gcp:storage/transferJob:TransferJob":
            wanted, spec = create.inputs.get("replicationSpec") or {}, candidate.get("replicationSpec") or {}
            pair = [(wanted.get(key) or {}).get("bucketName") for key in ("gcsDataSource", "gcsDataSink")]
            return (
                pair == [(spec.get(key) or {}).get("bucketName") for key in ("gcsDataSource", "gcsDataSink")]
                and candidate.get("status") != "DELETED"
            )
        if candidate.get("displayName") != create.text("displayName"):
            return False
        if create.type == BUDGET:  # Budgets have no labels. Their display name contains the token of the stack.
            if self._stack.owns(create, str(candidate["displayName"])):
                return True
            raise NotFoundByTag(
                f"the budget {candidate['name']} ({candidate['displayName']}) exists, "
                "and nothing in its name proves that a killed run of this stack created it; "
                f"delete it, or import it with `pulumi refresh --import-pending-creates {create.urn} --import-pending-creates {candidate['name']}`"
            )
        labels = candidate.get("userLabels") or {}
        addresses = [(found.get("labels") or {}).get("email_address") for found in (candidate, create.inputs)]
        return labels.get(names.label_key(STACK_TAG)) in self._stack.tokens and addresses[0] == addresses[1]

    def _read(self, service: str, path: str) -> dict[str, Any] | None:
        variable, address = ENDPOINTS[service]
        return self._get(f"{(os.environ.get(variable) or address).rstrip('/')}/{path.lstrip('/')}")


def _import_id(create: PendingCreate, found: Mapping[str, Any]) -> str:
    """Return the ID that the provider imports. That of a transfer job is PROJECT/JOB, without the collection in its name
    (`resourceStorageTransferJobStateImporter` in hashicorp/terraform-provider-google, retrieved 2026-11-29)."""
    name = str(found["name"])
    if create.type == "gcp:storage/transferJob:TransferJob":
        return f"{create.text('project')}/{name.removeprefix('transferJobs/')}"
    return name


def lookup(stack: StackIdentity, settings: Mapping[str, object]) -> PendingProject:
    """Return the lookups with the credentials from the environment."""
    return PendingProject(connect()[0], stack)
