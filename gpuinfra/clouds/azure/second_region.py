"""Azure facts for `gpuinfra clone`."""

from __future__ import annotations

from datetime import date

from gpuinfra.catalog.records import CapacityKind, MachineType
from gpuinfra.clouds.azure.profile import URN
from gpuinfra.clouds.azure.regions import LUSTRE_SKUS
from gpuinfra.clouds.second_region import Quota, Replication, TransferPrice

_READ = date(2026, 11, 21)
SPOT_QUOTA = "lowPriorityCores"
_SUBSCRIPTION = "$(az account show --query id --output tsv)"


class AzureSecondRegion:
    """Microsoft Azure."""

    region_settings: tuple[str, ...] = ("azure-native:location",)
    zone_settings: tuple[str, ...] = ()
    storage_fields = frozenset({"importer_id"})
    tiers: tuple[int, ...] = tuple(sorted(LUSTRE_SKUS))
    replication = Replication(
        minutes=None,
        feature="object replication between two containers, with versioning on both and a change feed on the source",
        export="the file system exports only when you start an export job",
        source="https://learn.microsoft.com/azure/storage/blobs/object-replication-overview, read 2026-11-21",
    )

    def partition(self, region: str) -> str:
        if region.startswith("china"):
            return "AzureChinaCloud"
        return "AzureUSGovernment" if region.startswith(("usgov", "usdod")) else "AzureCloud"

    def transfer(self, source: str, target: str) -> TransferPrice:
        """The price applies within a continent. None of the sources has other prices."""
        return TransferPrice(usd_per_gb=0.02, read=_READ, source="not verified: 0.02 within a continent", certain=False)

    def egress(self, region: str) -> TransferPrice:
        return TransferPrice(usd_per_gb=0.087, read=_READ, source="not verified", certain=False)

    def quota(self, machine: MachineType, kind: CapacityKind) -> Quota | None:
        """Quotas count vCPUs. A single quota applies to the spot vCPUs of all families."""
        return Quota(name=machine.quotas.get(kind, ""), per_node=machine.vcpus, unit="vCPUs")

    def request(self, quota: Quota, total: int, region: str, project: str | None) -> str:
        scope = f"/subscriptions/{_SUBSCRIPTION}/providers/Microsoft.Compute/locations/{region}"
        if not quota.name:
            return f"az quota list --scope {scope}"
        resource = "lowPriority" if quota.name == SPOT_QUOTA else "dedicated"
        return f"az quota update --resource-name '{quota.name}' --resource-type {resource} --limit-object value={total} --scope {scope}"

    def purchase(self, kind: CapacityKind, machine: MachineType, nodes: int, region: str, zone: str | None) -> str:
        zones = f" --zones {zone}" if zone else ""
        return (
            f"az capacity reservation create --capacity-reservation-group GROUP --resource-group RESOURCE_GROUP --name {machine.name} "
            f"--sku {machine.name} --capacity {nodes} --location {region}{zones}"
        )

    def image(self, ref: str, source: str, target: str) -> tuple[str, str] | None:
        if URN.fullmatch(ref):
            return None  # A marketplace image is global.
        command = "az sig image-version update --gallery-name GALLERY --resource-group RESOURCE_GROUP --gallery-image-definition IMAGE --gallery-image-version VERSION"
        return (
            "an image version exists in the regions of its replicas, and a gallery belongs to one region",
            f"{command} --target-regions {source} {target}",
        )

    def registry(self, registry: str, source: str, target: str) -> tuple[str, str] | None:
        return None

    def network(self, region: str) -> str:
        return f"az network vnet list --query \"[?location=='{region}'].id\""

    def bucket(self, bucket: str, source: str, target: str) -> str:
        container = bucket.rstrip("/").rpartition("/")[2]
        return (
            "az storage account or-policy create --resource-group RESOURCE_GROUP --account-name DESTINATION --source-account SOURCE "
            f"--destination-account DESTINATION --source-container {container} --destination-container {container}"
        )


SECOND_REGION = AzureSecondRegion()
