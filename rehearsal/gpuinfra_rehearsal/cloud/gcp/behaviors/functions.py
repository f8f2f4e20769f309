"""Lookups: the project, zones, images, and reservations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra.clouds.gcp.regions import REGIONS
from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.behavior import answers
from gpuinfra_rehearsal.cloud.gcp.errors import missing
from gpuinfra_rehearsal.cloud.gcp.groups import RESERVATION
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT, PROJECT_NUMBER, last, link

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

Args = Mapping[str, Any]
BILLING = "000000-000000-000000"


@answers("gcp:organizations/getProject:getProject")
def project(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    name = str(args.get("projectId") or PROJECT)
    return {
        "projectId": name,
        "number": PROJECT_NUMBER,
        "name": name,
        "id": f"projects/{name}",
        "billingAccount": BILLING,
    }


@answers("gcp:organizations/getClientConfig:getClientConfig")
def client(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    return {"project": PROJECT, "region": region, "zone": f"{region}-a", "id": PROJECT}


@answers("gcp:storage/getProjectServiceAccount:getProjectServiceAccount")
def storage_account(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    email = f"service-{PROJECT_NUMBER}@gs-project-accounts.iam.gserviceaccount.com"
    return {"emailAddress": email, "member": f"serviceAccount:{email}", "id": email}


@answers("gcp:storage/getTransferProjectServiceAccount:getTransferProjectServiceAccount")
def transfer_account(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    email = f"project-{PROJECT_NUMBER}@storage-transfer-service.iam.gserviceaccount.com"
    return {"email": email, "member": f"serviceAccount:{email}", "id": email}


@answers("gcp:logging/getProjectCmekSettings:getProjectCmekSettings")
def logging_account(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    return {"serviceAccountId": f"cmek-p{PROJECT_NUMBER}@gcp-sa-logging.iam.gserviceaccount.com"}


@answers("gcp:compute/getZones:getZones")
def zones(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    named = str(args.get("region") or region)
    letters = ("b", "c", "d") if named in ("us-east1", "europe-west1") else ("a", "b", "c")
    return {"names": [f"{named}-{letter}" for letter in letters] if named in REGIONS else [], "id": named}


@answers("gcp:compute/getImage:getImage")
def image(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    """Return an image. A family has one image, whose name starts with the name of the family."""
    where = str(args.get("project") or PROJECT)
    name = str(args.get("name") or f"{args.get('family')}-v20260101")
    path = f"projects/{where}/global/images/{name}"
    return {
        "name": name,
        "project": where,
        "family": str(args.get("family") or ""),
        "selfLink": link(path),
        "id": path,
        "status": "READY",
    }


@answers("gcp:compute/getReservation:getReservation")
def reservation(cloud: Cloud, args: Args, region: str) -> dict[str, Any]:
    path = f"projects/{args.get('project') or PROJECT}/zones/{args.get('zone')}/reservations/{args.get('name')}"
    made = cloud.store.find(RESERVATION, path)
    described = cloud.external(str(args.get("name")))
    if made is None and described is None:
        raise missing(path)
    return {
        **(wire.plain(made.outputs) if made else {}),
        "name": last(path),
        "id": path,
        "status": "READY",
        "selfLink": link(path),
    }
