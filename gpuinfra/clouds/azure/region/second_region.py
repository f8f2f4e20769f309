"""Azure facts for `gpuinfra clone`."""

from __future__ import annotations

from datetime import date
from shlex import quote

from gpuinfra.catalog.records import CapacityKind, MachineType, TransferPrice
from gpuinfra.clouds.azure.profile import URN
from gpuinfra.clouds.azure.region.recovery import REGIONAL_IMAGE, REPLICATION, azure_cloud, image_copy, quota_request
from gpuinfra.clouds.azure.regions import LUSTRE_SKUS
from gpuinfra.clouds.region.second_region import Quota, ReplicationLag

_READ = date(2026, 11, 21)


class AzureSecondRegion:
    """Microsoft Azure."""

    region_settings: tuple[str, ...] = ("azure-native:location",)
    zone_settings: tuple[str, ...] = ()
    private_replicas = True
    tiers: tuple[int, ...] = tuple(sorted(LUSTRE_SKUS))
    replication = ReplicationLag(
        minutes=None,
        feature=f"{REPLICATION.service} between two containers, with versioning on both and a change feed on the source",
        export="the file system exports only when you start an export job",
        source="https://learn.microsoft.com/azure/storage/blobs/object-replication-overview, retrieved 2026-11-21",
    )

    def partition(self, region: str) -> str:
        return azure_cloud(region)

    def transfer(self, source: str, target: str) -> TransferPrice:
        """The price applies within a continent. None of the sources lists other prices."""
        return TransferPrice(usd_per_gb=0.02, read=_READ, source="not verified: 0.02 within a continent", certain=False)

    def egress(self, region: str) -> TransferPrice:
        return TransferPrice(usd_per_gb=0.087, read=_READ, source="not verified", certain=False)

    def quota(self, machine: MachineType, kind: CapacityKind) -> Quota | None:
        """Quotas count vCPUs. A single quota applies to the spot vCPUs of all families."""
        return Quota(name=machine.quotas.get(kind, ""), per_node=machine.vcpus, unit="vCPUs")

    def request(self, quota: Quota, total: int, region: str, project: str | None) -> str:
        return quota_request(quota.name, total, region, project)

    def purchase(self, kind: CapacityKind, machine: MachineType, nodes: int, region: str, zone: str | None) -> str:
        """A reservation is in one of the zones of its group:
        https://learn.microsoft.com/azure/virtual-machines/capacity-reservation-create, retrieved 2026-11-22."""
        zones, zone_option = (f" --zones {zone}", f" --zone {zone}") if zone else ("", "")
        return (
            f"az capacity reservation group create --name GROUP --resource-group RESOURCE_GROUP --location {region}{zones} && "
            f"az capacity reservation create --capacity-reservation-group GROUP --resource-group RESOURCE_GROUP --name {machine.name} "
            f"--sku {machine.name} --capacity {nodes} --location {region}{zone_option}"
        )

    def image(self, ref: str, source: str, target: str) -> tuple[str, str] | None:
        if URN.fullmatch(ref):
            return None  # A marketplace image is global.
        return REGIONAL_IMAGE.format(region=target), image_copy(ref, target)

    def registry(self, registry: str, source: str, target: str) -> tuple[str, str] | None:
        return None

    def network(self, region: str) -> str:
        return f"az network vnet list --query \"[?location=='{region}'].id\""

    def bucket(self, bucket: str, source: str, target: str) -> str:
        """The policy is created in the destination account, and then in the source account with the same ID.

        Without the earliest creation time, existing blobs are not replicated. Accounts that do not allow cross-tenant replication
        require resource IDs: https://learn.microsoft.com/azure/storage/blobs/object-replication-configure, retrieved 2026-11-22.
        """
        container = quote(bucket.rstrip("/").rpartition("/")[2])
        policy = "az storage account or-policy"
        return (
            f"id=$({policy} create --resource-group DESTINATION_GROUP --account-name DESTINATION --source-account SOURCE_ID "
            f"--destination-account DESTINATION_ID --source-container {container} --destination-container {container} "
            "--min-creation-time 1601-01-01T00:00:00Z --query policyId --output tsv) && "
            f'{policy} show --resource-group DESTINATION_GROUP --account-name DESTINATION --policy-id "$id" | '
            f'{policy} create --resource-group SOURCE_GROUP --account-name SOURCE --policy "@-"'
        )


SECOND_REGION = AzureSecondRegion()
