"""Responses of Google Cloud for recorded programs: ids in its forms, and the outputs that other resources read."""

from __future__ import annotations

from typing import Any

PROJECT = "my-project"
NUMBER = "100000000000"

_PATHS = {
    "gcp:compute/network:Network": "projects/{project}/global/networks/{name}",
    "gcp:compute/subnetwork:Subnetwork": "projects/{project}/regions/{region}/subnetworks/{name}",
    "gcp:compute/router:Router": "projects/{project}/regions/{region}/routers/{name}",
    "gcp:compute/globalAddress:GlobalAddress": "projects/{project}/global/addresses/{name}",
    "gcp:compute/disk:Disk": "projects/{project}/zones/{zone}/disks/{name}",
    "gcp:compute/resourcePolicy:ResourcePolicy": "projects/{project}/regions/{region}/resourcePolicies/{name}",
    "gcp:compute/instanceTemplate:InstanceTemplate": "projects/{project}/global/instanceTemplates/{name}",
    "gcp:compute/instanceGroupManager:InstanceGroupManager": "projects/{project}/zones/{zone}/instanceGroupManagers/{name}",
    "gcp:kms/keyRing:KeyRing": "projects/{project}/locations/{location}/keyRings/{name}",
    "gcp:kms/cryptoKey:CryptoKey": "{keyRing}/cryptoKeys/{name}",
    "gcp:logging/projectBucketConfig:ProjectBucketConfig": "projects/{project}/locations/{location}/buckets/{bucketId}",
    "gcp:storage/bucket:Bucket": "{name}",
    "gcp:serviceaccount/account:Account": "projects/{project}/serviceAccounts/{accountId}@{project}.iam.gserviceaccount.com",
    "gcp:monitoring/notificationChannel:NotificationChannel": "projects/{project}/notificationChannels/1",
    "gcp:projects/iAMCustomRole:IAMCustomRole": "projects/{project}/roles/{roleId}",
    "gcp:lustre/instance:Instance": "projects/{project}/locations/{location}/instances/{instanceId}",
    "gcp:filestore/instance:Instance": "projects/{project}/locations/{location}/instances/{name}",
}
_LINK = "https://www.googleapis.com/compute/v1/"


def resource(type_: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The id of a created resource, and its inputs with the outputs that Google adds."""
    known = {"project": PROJECT, "name": name, **inputs}
    id_ = _PATHS[type_].format(**known) if type_ in _PATHS else f"{name}-id"
    added: dict[str, Any] = {"name": known["name"]}
    if type_.startswith("gcp:compute/"):
        added["selfLink"] = _LINK + id_
    match type_:
        case "gcp:compute/instanceTemplate:InstanceTemplate":
            added["selfLinkUnique"] = f"{_LINK}{id_}?uniqueId=1"
        case "gcp:serviceaccount/account:Account":
            added["email"] = id_.rpartition("/")[2]
        case "gcp:logging/projectSink:ProjectSink":
            added["writerIdentity"] = f"serviceAccount:service-{NUMBER}@gcp-sa-logging.iam.gserviceaccount.com"
        case "gcp:projects/serviceIdentity:ServiceIdentity":
            service = inputs["service"].partition(".")[0]
            agent = {"lustre": "gcp-sa-lustre", "file": "cloud-filer"}[service]
            added["member"] = f"serviceAccount:service-{NUMBER}@{agent}.iam.gserviceaccount.com"
        case "gcp:storage/transferJob:TransferJob":
            added["name"] = f"transferJobs/{sum(name.encode())}"
        case "gcp:lustre/instance:Instance":
            added["mountPoint"] = f"10.64.0.3@tcp:/{inputs['filesystem']}"
        case _:
            pass
    outputs = {**inputs, **added}
    if type_ == "gcp:filestore/instance:Instance":
        outputs["networks"] = [{**inputs["networks"][0], "ipAddresses": ["10.64.4.2"]}]
    return id_, outputs


def call(token: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The result of a function. A function that no plan needs is an error."""
    match token:
        case "gcp:organizations/getProject:getProject":
            project = arguments.get("projectId") or PROJECT
            return {
                "id": f"projects/{project}",
                "projectId": project,
                "number": NUMBER,
                "name": project,
                "billingAccount": "000000-000000-000000",
            }
        case "gcp:storage/getProjectServiceAccount:getProjectServiceAccount":
            email = f"service-{NUMBER}@gs-project-accounts.iam.gserviceaccount.com"
            return {"id": email, "emailAddress": email, "project": PROJECT}
        case "gcp:storage/getTransferProjectServiceAccount:getTransferProjectServiceAccount":
            email = f"project-{NUMBER}@storage-transfer-service.iam.gserviceaccount.com"
            return {"id": email, "email": email, "member": f"serviceAccount:{email}", "project": PROJECT}
        case "gcp:logging/getProjectCmekSettings:getProjectCmekSettings":
            email = f"cmek-p{NUMBER}@gcp-sa-logging.iam.gserviceaccount.com"
            return {"id": PROJECT, "project": PROJECT, "serviceAccountId": email, "kmsKeyName": ""}
        case "gcp:compute/getImage:getImage":
            path = f"projects/{arguments['project']}/global/images/{arguments['family']}-v20260522"
            return {"id": path, "selfLink": _LINK + path, "name": f"{arguments['family']}-v20260522"}
        case _:
            raise AssertionError(f"the program calls {token}, which no plan needs")
