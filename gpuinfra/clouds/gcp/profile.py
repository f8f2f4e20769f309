"""Decisions specific to Google Cloud: images, instance groups, multiple networks and Managed Lustre. Pure: imports no SDK."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from gpuinfra.catalog.records import CapacityKind, MachineType, ServicePrice
from gpuinfra.clouds import images
from gpuinfra.clouds.gcp import catalog, names
from gpuinfra.clouds.gcp import regions as places
from gpuinfra.clouds.gcp.images import IMAGES
from gpuinfra.clouds.gcp.instances import ZONAL_NETWORKS
from gpuinfra.clouds.gcp.region.recovery import REPLICATION
from gpuinfra.clouds.gcp.regions import IAP_RANGE
from gpuinfra.clouds.gcp.resources import resources
from gpuinfra.clouds.gcp.software import SOFTWARE
from gpuinfra.monitoring.discovery import ControlFacts, Discovery
from gpuinfra.plan import planned as made
from gpuinfra.plan.machines import machines_of
from gpuinfra.plan.model import (
    Decision,
    Disk,
    ExistingFileSystemPlan,
    ExtraNetwork,
    FileSystemPlan,
    Group,
    Image,
    Kept,
    Lifetime,
    NetworkPlan,
    Nic,
    OwnNetwork,
    Plan,
    Subnet,
)
from gpuinfra.plan.profile import BilledCapacity, CloudProfile
from gpuinfra.plan.share import shares
from gpuinfra.plan.storage import existing_of, mounted_bucket
from gpuinfra.plan.window import declared, within
from gpuinfra.plan.zones import Zoning
from gpuinfra.spec.capacity import Flex, Reserved
from gpuinfra.spec.image import CustomImage
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import Pool
from gpuinfra.spec.storage import ExistingFileSystem, Home, Lustre, ObjectMount

GROUP_LIMIT = 1000
"""Maximum number of nodes per zonal managed instance group."""
MTU_TCP = 8244
"""MTU of A3 High and A3 Mega networks in Google's recipes."""
MTU_RDMA = 8896
HYPERDISK_ONLY = ("a3-ultra", "a4", "a4x")
"""Families that do not support Persistent Disk."""
DEFAULT_TIER = 500
FILE_SYSTEM_PORTS = {"lustre": ["988"], "home": ["111", "2046", "2049", "2050", "4045"]}
"""TCP ports by kind of file system: Lustre (GoogleCloudPlatform/cluster-toolkit:
modules/file-system/managed-lustre/README.md), and NFS 3 of Filestore (https://docs.cloud.google.com/filestore/docs/configuring-firewall, retrieved 2026-11)."""
IMAGE_PATH = re.compile(r"projects/[^/]+/global/images/(family/)?[^/]+")


class GcpProfile(CloudProfile):
    """Google Cloud."""

    name = "gcp"
    title = "Google Cloud"
    machines: Mapping[str, MachineType] = catalog.MACHINES
    arm64_names = r"(c4a|n4a|t2a)-"
    """Compute Engine, "Arm VMs on Compute Engine"; retrieved 2026-11-27."""
    regions: tuple[str, ...] = tuple(sorted(places.REGIONS))
    region_form: str = places.REGION_FORM
    export_scheduler = "Cloud Scheduler"
    export_scheduler_regions = places.SCHEDULER_REGIONS
    capacity_kinds = frozenset({CapacityKind.ON_DEMAND, CapacityKind.SPOT, CapacityKind.RESERVED, CapacityKind.FLEX})
    service_prices: tuple[ServicePrice, ...] = places.SERVICE_PRICES
    software = SOFTWARE
    image_families = IMAGES
    user_data_limit = 256 * 1024
    """256 KB per metadata value: https://cloud.google.com/compute/docs/metadata/setting-custom-metadata#limitations, retrieved 2026-11-21."""
    opt_in_zones = frozenset[str]()
    node_units = frozenset({"gpuinfra-health-network.service"})
    region_setting = "gcp:region"
    provider_only_settings = (
        "gcp:credentials", "gcp:accessToken", "gcp:externalCredentials", "gcp:impersonateServiceAccount*",
        "gcp:universeDomain", "gcp:*CustomEndpoint",
    )  # fmt: skip
    """Names from `pulumi_gcp.config` 10.2.0."""
    sign_in_hint = (
        "set GOOGLE_CREDENTIALS, GOOGLE_OAUTH_ACCESS_TOKEN or GOOGLE_IMPERSONATE_SERVICE_ACCOUNT, which both use"
    )
    tag_limit = 64
    access_fields = frozenset({"ingress", "node_roles", "ssh_from", "operators", "users"})
    own_fields = frozenset({"network.machines", "software.registry", "storage.export_minutes", "storage.export_paused"})
    replication = REPLICATION
    storage_kinds = frozenset({"lustre", "home", "object"})
    home_services = ("filestore",)
    metadata_to_guard: tuple[str, ...] = ("169.254.169.254", "fd20:ce::254")
    """Addresses of the metadata service. Google Cloud has no hop limit. The IPv6 address comes from public lists of metadata addresses (2026-11-21)."""

    control = ControlFacts(
        machine="n2-standard-4",
        secret=r"[A-Za-z0-9_-]{1,255}",
        secret_form="the name of a secret in Secret Manager of the stack's project, such as alerts-slack",
        # The discovery document of Cloud Monitoring (v1, revision 20260903) has no method for remote write (docs/internals/decisions/metrics-store.md).
        # Notification channels send emails for alerting policies of Cloud Monitoring, which reads no metrics of the control node
        # (https://cloud.google.com/monitoring/alerts, retrieved 2026-11-30).
        no_email="Google Cloud has no service that sends emails for Alertmanager with the identity of a machine",
        no_store="Google Cloud documents no endpoint for remote write of its managed Prometheus",
    )

    def discovery(self, cluster: str, region: str, zones: Sequence[str], port: int) -> Discovery:
        """Return the settings of `gce_sd_configs`, which search one zone each
        (https://prometheus.io/docs/prometheus/latest/configuration/configuration/#gce_sd_config, retrieved 2026-11-29)."""
        wanted = f'(labels.{names.label_key("gpuinfra:cluster")} = "{names.label(cluster)}") (status = "RUNNING")'
        return Discovery(
            kind="gce_sd_configs",
            settings=[{"project": "${project}", "zone": zone, "port": port, "filter": wanted} for zone in zones],
            instance="__meta_gce_instance_id",
            pool="__meta_gce_label_gpuinfra_pool",
        )

    def zone_number(self, zone: str) -> int:
        """Zones have letters."""
        return ord(zone[-1]) - ord("a") + 1 if zone else 0

    def first_zone(self, region: str) -> str:
        """All regions have a zone b. A few have no zone a."""
        return f"{region}-b"

    def region_of_zone(self, zone: str, region: str) -> str | None:
        """Return the region, which is the first part of the zone name."""
        return places.region_of(zone)

    def group_limit(self, machine: MachineType) -> int | None:
        """Return the size limit of a zonal managed instance group."""
        return GROUP_LIMIT

    def nics(self, machine: MachineType, *, fabric: bool) -> tuple[Nic, ...]:
        """Return the layout in the catalog record: each gVNIC in its own network, RDMA interfaces in one network."""
        shapes = machine.nics if fabric else machine.nics[:1]
        return tuple(Nic(card=s.card, device=s.device, kind=s.kind, network=s.network) for s in shapes)

    def image(self, spec: ClusterSpec, pool: Pool, machine: MachineType) -> tuple[Image, str]:
        """Return the accelerator image for A3 and later, and Ubuntu for other nodes."""
        wanted = images.wanted(spec, pool)
        if isinstance(wanted, CustomImage):
            project, family, name = wanted.ref.partition("/global/images/family/")
            if family:
                ref = f"{project.removeprefix('projects/')}/{name}"
                return images.own(IMAGES, wanted, "family", ref), "set in the declaration"
            return images.own(IMAGES, wanted, "id"), "set in the declaration"
        newest = machine.gpu is not None and machine.gpu.arch in ("hopper", "blackwell")
        os = images.declared_os(spec, pool) or ("ubuntu-24.04" if newest else "ubuntu-22.04")
        series = f"{os.removeprefix('ubuntu-').replace('.', '')}-lts-{'arm64' if machine.arch == 'arm64' else 'amd64'}"
        ubuntu = Image(
            source="family", ref=f"ubuntu-os-cloud/ubuntu-{series}", os=os, arch=machine.arch, prebuilt=False
        )
        if wanted == "plain":
            return ubuntu, "image: plain, so every step installs its software"
        image = images.released(IMAGES, os, machine.arch, wanted, latest="family", dated="id")
        if not newest or image is None:
            return ubuntu, "Google publishes accelerator images for A3 and later, so every step installs its software"
        return image, "Google's accelerator image contains the driver, the fabric manager and a matching kernel"

    def disk(self, pool: Pool, machine: MachineType, image: Image) -> Disk:
        """Return a Hyperdisk for families that require it, and a Persistent Disk for the others."""
        kind = "hyperdisk-balanced" if machine.family in HYPERDISK_ONLY else "pd-balanced"
        tuned = kind == "hyperdisk-balanced"
        return Disk(
            size_gib=pool.disk.size_gib or (200 if machine.gpu else 50),
            kind=kind,
            iops=pool.disk.iops if tuned else None,
            throughput_mib_s=(pool.disk.throughput_mib_s or 500) if tuned else None,
        )

    def groups(
        self, pool: Pool, machine: MachineType, zone: str, today: date
    ) -> tuple[tuple[Group, ...], tuple[Decision, ...]]:
        """Return one instance group per kind of capacity, because a template has one provisioning model."""
        groups: list[Group] = []
        decisions: list[Decision] = []
        for entry, name, count in shares(pool, GROUP_LIMIT):
            placement, reason = _placement(pool, machine, entry.kind)
            flex = isinstance(entry, Flex)
            groups.append(
                within(
                    Group(
                        name=name,
                        pool=pool.name,
                        kind=entry.kind,
                        # A flex-start group starts empty and grows through resize requests.
                        count=0 if flex else count,
                        max_count=count,
                        zone=zone,
                        reservation_id=entry.id if isinstance(entry, Reserved) else None,
                        placement_group=placement,
                        placement_reason=reason,
                        max_run_s=entry.max_run_hours * 3600 if isinstance(entry, Flex) else None,
                        provisioning=_provisioning(machine, entry.kind),
                        terminate_first=CapacityKind(entry.kind).is_bounded,
                    ),
                    today,
                    *declared(entry),
                )
            )
            decisions.append(Decision(path=f"{name}.placement_group", chosen=placement or "none", why=reason))
        return tuple(groups), tuple(decisions)

    def network(self, spec: ClusterSpec, zoning: Zoning, today: date) -> NetworkPlan:
        """Return the main network, and a network for each interface that cannot share it. RDMA networks belong to the cluster."""
        given = spec.network.existing.subnets if spec.network.existing else {}
        network = ipaddress.ip_network(spec.network.cidr, strict=False)
        eighths = [str(part) for part in network.subnets(prefixlen_diff=3)]
        region = spec.where.region
        main = Subnet(name=self.subnet(""), zone=region, cidr=eighths[1], role="nodes")
        if given:
            main = Subnet(name=self.subnet(""), zone=region, cidr="", role="nodes", existing_id=given[region])
        shared = _shared(spec)
        fabric = [
            Subnet(
                name=name,
                zone=region,
                cidr="" if name in given else _cidrs(name, eighths, 1)[0],
                role="fabric",
                network=name,
                existing_id=given.get(name),
            )
            for name in shared
        ]
        kinds = {entry.kind for entry in spec.storage if existing_of(entry) is None}
        service = _service_range(eighths[0], network.prefixlen, kinds)
        return NetworkPlan(
            cidr=spec.network.cidr if not given or any(subnet.cidr for subnet in fabric) or service else "",
            subnets=(main, *fabric),
            egress=spec.network.egress,
            existing_id=spec.network.existing.id if spec.network.existing else None,
            extra=tuple(
                ExtraNetwork(name=name, mtu=MTU_TCP if name.startswith("data-") else MTU_RDMA)
                for name in shared
                if name not in given
            ),
            service_range=service,
            mtu=MTU_RDMA if any(name.startswith("host-") for name in shared) else MTU_TCP,
            # `gpuinfra ssh` connects through IAP, which reaches nodes only from this range.
            ssh_from=tuple(sorted({*spec.access.ssh_from, IAP_RANGE})),
            flow_log_retention_days=spec.network.flow_log_days,
        )

    def own_networks(self, spec: ClusterSpec, zoning: Zoning) -> tuple[OwnNetwork, ...]:
        """Return one RDMA network for all pools with RDMA. It uses the same addresses in every cluster, because RDMA networks are not routed."""
        rails: dict[str, int] = {}
        zones: set[str] = set()
        for pool, machine in _fabric_pools(spec):
            for name in {nic.network for nic in machine.nics if nic.network in ZONAL_NETWORKS}:
                rails[name] = max(rails.get(name, 0), sum(nic.network == name for nic in machine.nics))
                zones.add(zoning.by_pool[pool.name])
        eighths = [
            str(part) for part in ipaddress.ip_network(spec.network.cidr, strict=False).subnets(prefixlen_diff=3)
        ]
        return tuple(
            OwnNetwork(
                name=name,
                mtu=MTU_RDMA,
                profile=f"{min(zones)}-vpc-roce",
                subnets=tuple(
                    Subnet(name=f"{name}-{index}", zone=spec.where.region, cidr=cidr, role="fabric", network=name)
                    for index, cidr in enumerate(_cidrs(name, eighths, rails[name]))
                ),
            )
            for name in sorted(rails)
        )

    def subnet(self, zone: str) -> str:
        """Subnets span the zones of a region."""
        return "private-0"

    def lustre(self, entry: Lustre) -> BilledCapacity:
        """Google Cloud bills Managed Lustre in increments that depend on the tier and size."""
        tier = entry.throughput_mb_s_per_tib or DEFAULT_TIER
        least, _, steps = places.LUSTRE_TIERS.get(tier, places.LUSTRE_TIERS[DEFAULT_TIER])
        step = next(size for up_to, size in steps if up_to is None or entry.size_gib <= up_to)
        billed = max(least, -(-entry.size_gib // step) * step)
        return BilledCapacity(
            requested=entry.size_gib,
            billed=billed,
            reason=f"this tier is billed in increments of {step} GiB, with a minimum of {least} GiB",
        )

    def file_system(self, entry: Lustre | Home | ObjectMount, name: str, zone: str, region: str) -> FileSystemPlan:
        """Return a Managed Lustre file system, a Filestore instance, or a mounted bucket."""
        if isinstance(entry, ObjectMount):
            return mounted_bucket(entry, name, "gcsfuse", self.subnet(zone), zone=zone)
        lustre = isinstance(entry, Lustre)
        changes = "changes that were not exported to its bucket, because exports are not continuous"
        return FileSystemPlan(
            name=name,
            kind=entry.kind,
            service="" if lustre else self.home_services[0],
            mount=entry.mount,
            capacity_gib=self.lustre(entry).billed if lustre else entry.capacity_gib,
            deployment="MANAGED" if lustre else "ZONAL",
            throughput_mb_s_per_tib=(entry.throughput_mb_s_per_tib or DEFAULT_TIER) if lustre else None,
            subnet=self.subnet(zone),
            zone=zone,
            bucket=entry.bucket if lustre else None,
            bucket_prefix=entry.bucket_prefix if lustre else "",
            export_minutes=entry.export_minutes if lustre else None,
            export_paused=lustre and entry.export_paused,
            lifetime=Lifetime.KEPT,
            lifetime_reason=f"contains the only copy of {changes if lustre and entry.bucket else 'its data'}",
        )

    def existing_file_system(
        self, entry: Lustre | Home, existing: ExistingFileSystem, name: str, region: str
    ) -> ExistingFileSystemPlan:
        """Return the plan of an existing Managed Lustre or Filestore instance."""
        lustre = isinstance(entry, Lustre)
        ports = ", ".join(FILE_SYSTEM_PORTS[entry.kind])
        to = existing.address_range or existing.address
        opens = (
            f"TCP {ports} from the node subnet to {to}, if a firewall rule of the network denies it, "
            "and access for this subnet in the instance's access rules"
        )
        return ExistingFileSystemPlan(
            name=name,
            kind=entry.kind,
            service="" if lustre else self.home_services[0],
            mount=entry.mount,
            id=existing.id,
            address=existing.address or "",
            mount_name=existing.mount_name or "" if lustre else f"/{(existing.mount_name or '').lstrip('/')}",
            address_range=existing.address_range,
            owner_opens=opens,
        )

    def resources(self, plan: Plan) -> dict[str, int]:
        """Return the resources of the components, by type."""
        return made.count(resources(plan))

    def kept(self, plan: Plan) -> tuple[Kept, ...]:
        """Return the resources that `destroy` retains: audit, keys, evidence, buckets, and file systems with the only copy of their data."""
        return made.kept(resources(plan))


PROFILE = GcpProfile()


def _provisioning(machine: MachineType, kind: str) -> str:
    """Return `RESERVATION_BOUND` for families that are available only with dense reservations.
    Other reservations are set in the template (docs/reference/gcp.md)."""
    if kind == "reserved":
        return "STANDARD" if CapacityKind.ON_DEMAND in machine.capacity else "RESERVATION_BOUND"
    return {"spot": "SPOT", "flex": "FLEX_START"}.get(kind, "STANDARD")


def _placement(pool: Pool, machine: MachineType, kind: str) -> tuple[str | None, str]:
    if kind == "reserved":
        return None, "the reservation defines the placement"
    if kind == "flex":
        return None, "a flex-start group does not accept a placement policy"
    # This also applies to a pool with one node, because Google does not allow adding or removing the policy of a group that has instances.
    if machine.fabric is None or pool.fabric == "none":
        return None, "the nodes do not share a fabric"
    return f"{pool.name}-near", "the fabric is fastest between nodes that are close together"


def _fabric_pools(spec: ClusterSpec) -> Iterator[tuple[Pool, MachineType]]:
    machines = machines_of(spec)
    for pool in spec.pools:
        if machines[pool.machine].fabric is not None and pool.fabric != "none":
            yield pool, machines[pool.machine]


def _shared(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the additional networks of the site, for the machine types of its pools and of `network.machines`."""
    machines = machines_of(spec)
    used = [machine for _, machine in _fabric_pools(spec)]
    used += [machines[name] for name in spec.network.machines if name in machines]
    return tuple(sorted({nic.network for machine in used for nic in machine.nics} - {"main"} - ZONAL_NETWORKS))


SERVICE_ADDRESSES = 1024
"""Addresses for the file systems of Managed Lustre or of Filestore. A rule rejects a network that has fewer."""


def _service_range(eighth: str, prefix: int, kinds: set[str]) -> str | None:
    """Return the address range for file systems: 1024 addresses for Managed Lustre and 1024 for Filestore."""
    if not kinds & {"lustre", "home"}:
        return None
    length = 22 if len(kinds & {"lustre", "home"}) == 1 else 21
    return str(next(ipaddress.ip_network(eighth).subnets(new_prefix=max(length, prefix + 3))))


def _cidrs(name: str, eighths: list[str], rails: int) -> list[str]:
    """`data-N` is a quarter of the third or fourth eighth, `host-1` is the fifth eighth, and a rail is an eighth of the sixth."""
    if name.startswith("data-"):
        index = int(name.removeprefix("data-"))
        parts = list(ipaddress.ip_network(eighths[2 + index // 4]).subnets(prefixlen_diff=2))
        return [str(parts[index % 4])]
    if name == "roce":
        parts = list(ipaddress.ip_network(eighths[5]).subnets(prefixlen_diff=3))
        return [str(part) for part in parts[:rails]]
    return [eighths[4]]
