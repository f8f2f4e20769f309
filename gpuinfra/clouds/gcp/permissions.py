"""The least custom roles for an operator of one plan on Google Cloud. Pure.

Google's custom roles name permissions and hold for everything in a project; what a permission can be held to beyond that is a condition of the binding, which
only a few services know. So the list itself is what is least here: one permission for each thing that is done, and none for what a destroy keeps.
"""

from __future__ import annotations

from typing import Any

from gpuinfra.clouds.gcp.resources import resources
from gpuinfra.clouds.permissions import Permissions, collect, uses_of
from gpuinfra.clouds.planned import Actions
from gpuinfra.plan.model import Plan

SOURCE = "Google's IAM permissions reference and the methods' own pages, read 2026-11-21; collections held against the discovery documents"
BILLING = "billing.budgets."
"""What is granted on a billing account and not on a project."""

_NETWORK = "compute.networks.updatePolicy"
_ZONE, _REGION, _GLOBAL = "compute.zoneOperations.get", "compute.regionOperations.get", "compute.globalOperations.get"
_KEY_POLICY = "cloudkms.cryptoKeys.getIamPolicy cloudkms.cryptoKeys.setIamPolicy"
_BUCKET_POLICY = "storage.buckets.getIamPolicy storage.buckets.setIamPolicy"
_PROJECT_POLICY = "resourcemanager.projects.getIamPolicy resourcemanager.projects.setIamPolicy"


def _all(collection: str, more: str = "", update: str = "update", wait: str = "", delete: str = "delete") -> Actions:
    """A collection with the usual verbs; `more` is asked beside each change, `wait` while one goes on."""
    return Actions(
        f"{collection}.create {more} {wait}",
        f"{collection}.get",
        f"{collection}.{update} {more} {wait}" if update else "",
        f"{collection}.{delete} {more} {wait}",
    )


ACTIONS: dict[str, Actions] = {
    "gcp:compute/network:Network": _all("compute.networks", update="", wait=_GLOBAL),
    "gcp:compute/subnetwork:Subnetwork": _all("compute.subnetworks", _NETWORK, wait=_REGION),
    "gcp:compute/firewall:Firewall": _all("compute.firewalls", _NETWORK, wait=_GLOBAL),
    "gcp:compute/router:Router": _all("compute.routers", _NETWORK, wait=_REGION),
    "gcp:compute/routerNat:RouterNat": Actions(
        f"compute.routers.get compute.routers.update compute.subnetworks.use {_REGION}",
        "compute.routers.get",
        f"compute.routers.update {_REGION}",
        f"compute.routers.update {_REGION}",
    ),
    "gcp:compute/route:Route": _all("compute.routes", _NETWORK, update="", wait=_GLOBAL),
    "gcp:compute/globalAddress:GlobalAddress": Actions(
        f"compute.globalAddresses.createInternal compute.globalAddresses.setLabels?labels compute.networks.use {_GLOBAL}",
        "compute.globalAddresses.get",
        f"compute.globalAddresses.setLabels?labels {_GLOBAL}",
        f"compute.globalAddresses.deleteInternal compute.networks.use {_GLOBAL}",
    ),
    "gcp:compute/resourcePolicy:ResourcePolicy": _all("compute.resourcePolicies", update="", wait=_REGION),
    "gcp:compute/instanceTemplate:InstanceTemplate": _all(
        "compute.instanceTemplates", "compute.subnetworks.use iam.serviceAccounts.actAs", update="", wait=_GLOBAL
    ),
    "gcp:compute/instanceGroupManager:InstanceGroupManager": Actions(
        f"compute.instanceGroupManagers.create compute.instanceTemplates.useReadOnly compute.instances.create iam.serviceAccounts.actAs {_ZONE}",
        "compute.instanceGroupManagers.get compute.instanceGroups.list",
        f"compute.instanceGroupManagers.update compute.instanceTemplates.useReadOnly iam.serviceAccounts.actAs {_ZONE}",
        f"compute.instanceGroupManagers.delete compute.instanceGroups.delete compute.instances.delete {_ZONE}",
    ),
    "gcp:compute/resizeRequest:ResizeRequest": Actions(
        f"compute.instanceGroupManagers.update {_ZONE}",
        "compute.instanceGroupManagers.get",
        "",
        f"compute.instanceGroupManagers.update {_ZONE}",
    ),
    "gcp:dns/policy:Policy": _all("dns.policies", "dns.networks.bindPrivateDNSPolicy"),
    "gcp:dns/managedZone:ManagedZone": _all("dns.managedZones", "dns.networks.bindPrivateDNSZone"),
    "gcp:dns/recordSet:RecordSet": Actions(
        "dns.resourceRecordSets.create dns.changes.create dns.changes.get",
        "dns.resourceRecordSets.list",
        "dns.resourceRecordSets.update dns.changes.create dns.changes.get",
        "dns.resourceRecordSets.delete dns.changes.create dns.changes.get",
    ),
    "gcp:servicenetworking/connection:Connection": Actions(
        "servicenetworking.services.addPeering compute.networks.addPeering compute.globalAddresses.list servicenetworking.operations.get",
        "servicenetworking.services.get compute.networks.get",
        "servicenetworking.services.addPeering servicenetworking.operations.get",
        "compute.networks.removePeering servicenetworking.services.deleteConnection servicenetworking.operations.get",
    ),
    "gcp:kms/keyRing:KeyRing": Actions("cloudkms.keyRings.create", "cloudkms.keyRings.get"),
    "gcp:kms/cryptoKey:CryptoKey": Actions(
        "cloudkms.cryptoKeys.create",
        "cloudkms.cryptoKeys.get",
        "cloudkms.cryptoKeys.update",
        "cloudkms.cryptoKeyVersions.destroy cloudkms.cryptoKeyVersions.list",
    ),
    "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember": Actions(
        _KEY_POLICY, "cloudkms.cryptoKeys.getIamPolicy", "", _KEY_POLICY
    ),
    "gcp:logging/projectBucketConfig:ProjectBucketConfig": _all("logging.buckets"),
    "gcp:logging/projectSink:ProjectSink": _all("logging.sinks"),
    "gcp:projects/iAMAuditConfig:IAMAuditConfig": Actions(
        _PROJECT_POLICY, "resourcemanager.projects.getIamPolicy", _PROJECT_POLICY, _PROJECT_POLICY
    ),
    "gcp:projects/iAMMember:IAMMember": Actions(
        _PROJECT_POLICY, "resourcemanager.projects.getIamPolicy", "", _PROJECT_POLICY
    ),
    "gcp:projects/service:Service": Actions(
        "serviceusage.services.enable serviceusage.operations.get",
        "serviceusage.services.get serviceusage.services.list",
    ),
    "gcp:projects/serviceIdentity:ServiceIdentity": Actions(
        "serviceusage.services.enable", "serviceusage.services.get"
    ),
    "gcp:serviceaccount/account:Account": _all("iam.serviceAccounts"),
    "gcp:storage/bucket:Bucket": _all("storage.buckets"),
    "gcp:storage/bucketIAMMember:BucketIAMMember": Actions(
        _BUCKET_POLICY, "storage.buckets.getIamPolicy", "", _BUCKET_POLICY
    ),
    "gcp:storage/bucketObject:BucketObject": _all("storage.objects"),
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": Actions(
        "artifactregistry.repositories.getIamPolicy artifactregistry.repositories.setIamPolicy",
        "artifactregistry.repositories.getIamPolicy",
        "",
        "artifactregistry.repositories.getIamPolicy artifactregistry.repositories.setIamPolicy",
    ),
    "gcp:lustre/instance:Instance": _all("lustre.instances", wait="lustre.operations.get"),
    "gcp:filestore/instance:Instance": _all("file.instances", wait="file.operations.get"),
    "gcp:monitoring/notificationChannel:NotificationChannel": _all("monitoring.notificationChannels"),
    "gcp:billing/budget:Budget": _all("billing.budgets"),
}

ASKED: dict[str, tuple[str, ...]] = {
    "whose project it is": ("resourcemanager.projects.get",),
    "finding an image": ("compute.images.get", "compute.images.getFromFamily"),
    "the handover: who should be there": ("compute.instanceGroupManagers.get", "compute.instances.list"),
    "the handover: what nodes reported": ("storage.objects.list", "storage.objects.get"),
    "the handover: why a node is silent": ("compute.instances.getSerialPortOutput",),
    "bringing files of a bucket in": ("lustre.instances.importData", "lustre.operations.get"),
}
"""What the program itself asks, beside resources."""

FUNCTIONS = {
    "gcp:organizations/getProject:getProject": "resourcemanager.projects.get",
    "gcp:compute/getImage:getImage": "compute.images.getFromFamily",
    "gcp:logging/getProjectCmekSettings:getProjectCmekSettings": "logging.cmekSettings.get",
    "gcp:storage/getProjectServiceAccount:getProjectServiceAccount": "resourcemanager.projects.get",
}
"""Functions of the SDK -> permission."""


def permissions(plan: Plan) -> Permissions:
    """The roles of a plan's operator, with every permission's reason."""
    asked = dict(ASKED) if plan.pools else {"whose project it is": ASKED["whose project it is"]}
    if not any(one.kind == "lustre" and one.bucket for one in plan.file_systems):
        asked.pop("bringing files of a bucket in", None)
    if "foundation" in plan.layers:
        asked["finding the key that logs are held under"] = ("logging.cmekSettings.get",)
    uses = uses_of(resources(plan), ACTIONS, asked)
    own = [one for one in sorted(uses) if not one.startswith(BILLING)]
    money = [one for one in sorted(uses) if one.startswith(BILLING)]
    documents = [_role(plan, "", own)] + ([_role(plan, "Money", money)] if money else [])
    notes = [
        "create the role in the project and grant it there: gcloud iam roles create ROLE --project PROJECT --file FILE"
    ]
    if money:
        notes.append(
            "budgets belong to the billing account: the second role is created in the organisation and granted on that account"
        )
    if any(one.retained for one in resources(plan)):
        notes.append("what a destroy keeps may not be deleted with it; whoever deletes it later needs more")
    notes.append(
        "who may set a project's or a bucket's policy can give himself more; Google has no narrower permission for a grant"
    )
    return Permissions(cloud="gcp", needs=collect(uses), documents=tuple(documents), notes=tuple(notes), source=SOURCE)


def _role(plan: Plan, purpose: str, included: list[str]) -> dict[str, Any]:
    return {
        "title": f"gpuinfra {plan.name}{' ' + purpose.lower() if purpose else ''}",
        "description": f"The least that an operator of the cluster {plan.name} needs.",
        "stage": "GA",
        "includedPermissions": included,
    }
