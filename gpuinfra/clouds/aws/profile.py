"""AWS-specific decisions: images, disks, groups, placement, addresses and FSx sizes. Pure: imports no SDK."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta

from gpuinfra.catalog.records import CapacityKind, MachineType, ServicePrice
from gpuinfra.clouds import images
from gpuinfra.clouds.aws import catalog
from gpuinfra.clouds.aws import regions as places
from gpuinfra.clouds.aws.images import IMAGES
from gpuinfra.clouds.aws.region.recovery import REPLICATION
from gpuinfra.clouds.aws.software import SOFTWARE
from gpuinfra.monitoring.config import sns_config
from gpuinfra.monitoring.discovery import ControlFacts, Discovery, EmailFacts, StoreFacts
from gpuinfra.plan import planned as made
from gpuinfra.plan.model import (
    Decision,
    Disk,
    ExistingFileSystemPlan,
    FileSystemPlan,
    Group,
    Image,
    Kept,
    Lifetime,
    NetworkPlan,
    Nic,
    Plan,
    Subnet,
)
from gpuinfra.plan.profile import BilledCapacity, CloudProfile, TagForm
from gpuinfra.plan.share import shares
from gpuinfra.plan.storage import existing_of, mounted_bucket
from gpuinfra.plan.window import declared, within
from gpuinfra.plan.zones import Zoning
from gpuinfra.spec.capacity import Block, Capacity, Reserved, Spot
from gpuinfra.spec.image import CustomImage
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import Pool
from gpuinfra.spec.storage import ExistingFileSystem, Home, Lustre, ObjectMount

ROOT_MIN_GIB = 75
"""Root snapshot size of the deep learning image."""
USER = "ubuntu"
"""The default user in Ubuntu images, who can run any command with sudo."""
BLOCK_LEAD, ULTRASERVER_LEAD = timedelta(minutes=35), timedelta(minutes=65)
"""AWS terminates instances 30 minutes before a Capacity Block ends, and instances in an UltraServer 60 minutes before. The plan stops them earlier
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-capacity-blocks.html, retrieved 2026-11-22)."""
ENDPOINTS = ("ec2", "ecr.api", "ecr.dkr", "ssm", "ssmmessages", "logs", "monitoring", "sts", "kms")
"""Interface endpoints for a network without internet access. The two ECR endpoints let nodes pull container images."""
EFA_STEP_GIB = {125: 38400, 250: 19200, 500: 9600, 1000: 4800}
"""Maps a throughput tier to the capacity increment, in GiB, of an FSx file system with EFA."""
TIERS = {
    "scratch_1": (),
    "scratch_2": (),
    "persistent_1": (50, 100, 200),
    "persistent_2": (125, 250, 500, 1000),
}
DEFAULT_TIER = {"persistent_1": 200, "persistent_2": 250}
OPENZFS = "SINGLE_AZ_2"
"""Deployment type of FSx for OpenZFS: file servers in one zone, with a cache on local disks. MULTI_AZ_1 would require two zones and routes in the route
tables (API reference, `CreateFileSystemOpenZFSConfiguration`, retrieved 2026-11-27)."""
OPENZFS_MB_S = 160
"""Default throughput of FSx for OpenZFS: the smallest one."""
OPENZFS_ROOT = "/fsx"
"""Exported path of the root volume of every FSx for OpenZFS file system. The paths of all volumes begin with it (`CreateLocationFsxOpenZfs` of DataSync in
botocore 1.44.5, read 2026-11-27)."""


class AwsProfile(CloudProfile):
    """Amazon Web Services."""

    name = "aws"
    title = "AWS"
    machines: Mapping[str, MachineType] = catalog.MACHINES
    arm64_names = r"[a-z]+\d+g[a-z]*\."
    """EC2 user guide, "Instance type naming conventions": the option g is AWS Graviton processors; retrieved 2026-11-27."""
    regions: tuple[str, ...] = tuple(places.PREFIXES)
    region_form: str = "|".join(places.UNLISTED)
    capacity_kinds = frozenset({CapacityKind.ON_DEMAND, CapacityKind.SPOT, CapacityKind.RESERVED, CapacityKind.BLOCK})
    scheduled_actions = "EC2 Auto Scaling"
    service_prices: tuple[ServicePrice, ...] = places.SERVICE_PRICES
    software = SOFTWARE
    image_families = IMAGES
    user_data_limit = 16 * 1024
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html, retrieved 2026-11-21."""
    replacing_xids = (63, 64)
    """A GPU that remaps rows ends without spare rows, so EC2 recommends a replacement (aws/eks-node-monitoring-agent at 51af5494:
    monitors/nvidia/dcgm/dcgm_policies.go, retrieved 2026-11-28)."""
    opt_in_zones = frozenset(zone for zones in places.LOCAL_ZONES.values() for zone in zones)
    node_units = frozenset[str]()
    region_setting = "aws:region"
    sign_in_settings = ("aws:profile", "aws:assumeRoles")
    provider_only_settings = (
        "aws:accessKey", "aws:secretKey", "aws:token", "aws:assumeRoleWithWebIdentity", "aws:sharedConfigFiles",
        "aws:sharedCredentialsFiles", "aws:endpoints",
    )  # fmt: skip
    """Names from `pulumi_aws.config` 7.51.1."""
    sign_in_hint = "use aws:profile and aws:assumeRoles, or set the variables of AWS (AWS_ACCESS_KEY_ID, AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ENDPOINT_URL)"
    tag_limit = 50
    tag_form = TagForm(
        key=r"[\w\s.:/=+\-@]{1,127}",
        value=r"[\w\s.:/=+\-@]{1,256}",
        allowed="letters, digits, spaces and _ . : / = + - @, with at most 127 characters in a key",
    )
    """https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html, retrieved 2026-11-22."""
    access_fields = frozenset({"ingress", "node_policies", "node_role_in_site", "permissions_boundary", "users"})
    own_fields = frozenset(
        f"{section}.{name}"
        for section, names in {
            "capacity": ("group_arn", "overflow", "placement_group", "strategy"),
            "storage": (
                "backup_days",
                "bucket_path",
                "deployment",
                "export_events",
                "fabric",
                "import_events",
                "metadata_iops",
                "version",
            ),
        }.items()
        for name in names
    )
    selects_buckets = True
    # `AUD is not in the supported unit set: [USD]` (awslabs/landing-zone-accelerator-on-aws issue 682, 2024-12-18).
    budget_currency = "USD"
    replication = REPLICATION
    storage_kinds = frozenset({"lustre", "home", "object"})
    home_services = ("efs", "openzfs")
    control = ControlFacts(
        machine="m7i.xlarge",
        secret=r"(/[A-Za-z0-9_.-]+)+",
        secret_form="the name of a parameter in SSM Parameter Store, such as /alerts/slack",
        # Prometheus signs with the role of the machine (https://prometheus.io/docs/prometheus/latest/configuration/configuration/#remote_write,
        # retrieved 2026-11-30).
        store=StoreFacts(
            name="Amazon Managed Service for Prometheus",
            authorization=lambda region: {"sigv4": {"region": region}},
        ),
        email=EmailFacts(name="Amazon SNS", section="sns_configs", settings=sns_config),
    )

    def discovery(self, cluster: str, region: str, zones: Sequence[str], port: int) -> Discovery:
        """Return the settings of `ec2_sd_configs` (https://prometheus.io/docs/prometheus/latest/configuration/configuration/#ec2_sd_config,
        retrieved 2026-11-29). Prometheus replaces other characters in the name of a tag by underscores."""
        filters = {
            "tag:gpuinfra:cluster": [cluster],
            "instance-state-name": ["running"],
        }
        return Discovery(
            kind="ec2_sd_configs",
            settings=[
                {
                    "region": region,
                    "port": port,
                    "filters": [{"name": name, "values": values} for name, values in filters.items()],
                }
            ],
            instance="__meta_ec2_instance_id",
            pool="__meta_ec2_tag_gpuinfra_pool",
        )

    def zone_number(self, zone: str) -> int:
        return places.zone_number(zone)

    def first_zone(self, region: str) -> str:
        return f"{places.zone_prefix(region) if self.is_region(region) else region}-az1"

    def region_of_zone(self, zone: str, region: str) -> str | None:
        return places.region_of(zone)

    def group_limit(self, machine: MachineType) -> int | None:
        """No limit, because the limit of an Auto Scaling group exceeds the size of any cluster."""
        return None

    def nics(self, machine: MachineType, *, fabric: bool) -> tuple[Nic, ...]:
        shapes = machine.nics if fabric else machine.nics[:1]
        return tuple(Nic(card=s.card, device=s.device, kind=s.kind, network=s.network) for s in shapes)

    def image(self, spec: ClusterSpec, pool: Pool, machine: MachineType) -> tuple[Image, str]:
        wanted = images.wanted(spec, pool)
        if isinstance(wanted, CustomImage):
            source = "ssm" if wanted.ref.startswith("/") else "id"
            return images.own(IMAGES, wanted, source), "set in the declaration"
        newest = machine.gpu is not None and machine.gpu.arch == "blackwell"
        os = images.declared_os(spec, pool) or ("ubuntu-24.04" if newest else "ubuntu-22.04")
        if wanted == "plain":
            return _plain(os, machine), "image: plain, so every step installs its software"
        if machine.gpu is None:
            return _plain(os, machine), "nodes without GPUs do not need a GPU image"
        if machine.gpu.arch == "volta":
            return _plain(os, machine), "the GPU images have the open kernel module, which does not support Volta"
        image = images.released(IMAGES, os, machine.arch, wanted, latest="ssm", dated="name")
        if image is None:
            return _plain(
                os, machine
            ), f"AWS publishes no {os} GPU image for {machine.arch}, so every step installs its software"
        return image, "the AWS GPU image contains the driver, the fabric manager, CUDA, EFA and the Lustre client"

    def disk(self, pool: Pool, machine: MachineType, image: Image) -> Disk:
        gpu = machine.gpu is not None
        return Disk(
            size_gib=pool.disk.size_gib or (200 if gpu else 50),
            kind="gp3",
            iops=pool.disk.iops,
            throughput_mib_s=pool.disk.throughput_mib_s or (500 if gpu else None),
        )

    def groups(
        self, pool: Pool, machine: MachineType, zone: str, today: date
    ) -> tuple[tuple[Group, ...], tuple[Decision, ...]]:
        groups: list[Group] = []
        decisions: list[Decision] = []
        for entry, name, count in shares(pool, self.group_limit(machine)):
            group = _group(pool, machine, entry, name, count, zone, today)
            groups.append(group)
            chosen = group.placement_group or "none"
            decisions.append(Decision(path=f"{group.name}.placement_group", chosen=chosen, why=group.placement_reason))
        return tuple(groups), tuple(decisions)

    def network(self, spec: ClusterSpec, zoning: Zoning, today: date) -> NetworkPlan:
        """Return the declared existing network, or a new network with a private subnet per zone, and a NAT subnet per zone if egress is `nat`."""
        storage = {entry.zone for entry in spec.storage if isinstance(entry, Lustre) and entry.zone}
        zones = sorted({zoning.default, *zoning.by_pool.values(), *storage}, key=self.zone_number)
        if spec.network.existing:
            existing = spec.network.existing.subnets
            subnets = tuple(
                Subnet(name=self.subnet(zone), zone=zone, cidr="", role="nodes", existing_id=existing.get(zone))
                for zone in zones
            )
            return NetworkPlan(
                cidr="", subnets=subnets, egress=spec.network.egress, existing_id=spec.network.existing.id
            )
        nat = spec.network.egress == "nat"
        subnets = tuple(_subnets(spec.network.cidr, zones, nat=nat, name=self.subnet, number=self.zone_number))
        return NetworkPlan(
            cidr=spec.network.cidr,
            subnets=subnets,
            egress=spec.network.egress,
            gateway_endpoints=("s3",),
            interface_endpoints=() if nat else _endpoints(spec),
            flow_log_retention_days=spec.network.flow_log_days,
        )

    def subnet(self, zone: str) -> str:
        return f"private-{self.zone_number(zone)}"

    def lustre(self, entry: Lustre) -> BilledCapacity:
        kind = entry.deployment or "persistent_2"
        requested = entry.size_gib
        if entry.fabric:
            step = EFA_STEP_GIB[_tier(entry) or 250]
            return BilledCapacity(
                requested=requested,
                billed=_up(requested, step, step),
                reason=f"with EFA, this tier is billed in increments of {step} GiB",
            )
        if requested <= 1200:
            return BilledCapacity(requested=requested, billed=1200, reason="1200 GiB is the minimum")
        step = 3600 if kind == "scratch_1" else 2400
        if requested <= 2400:
            return BilledCapacity(requested=requested, billed=2400, reason="2400 GiB is the next size after 1200 GiB")
        billed = 2400 + _up(requested - 2400, step, step)
        return BilledCapacity(requested=requested, billed=billed, reason=f"billed in increments of {step} GiB")

    def file_system(self, entry: Lustre | Home | ObjectMount, name: str, zone: str, region: str) -> FileSystemPlan:
        if isinstance(entry, Lustre):
            return self._lustre_plan(entry, name, zone)
        if isinstance(entry, Home):
            openzfs = entry.service == "openzfs"
            return FileSystemPlan(
                name=name,
                kind="home",
                service=entry.service or self.home_services[0],
                mount=entry.mount,
                capacity_gib=entry.capacity_gib,
                deployment=OPENZFS if openzfs else "elastic",
                throughput_mb_s=(entry.throughput_mb_s or OPENZFS_MB_S) if openzfs else None,
                subnet=self.subnet(zone),
                holds_subnet=openzfs,
                backup_days=entry.backup_days,
                restore_from=entry.restore_from,
                replica=entry.replica,
                lifetime=Lifetime.KEPT,
                lifetime_reason="home directories contain the only copy of their files",
            )
        return mounted_bucket(entry, name, "mountpoint", self.subnet(zone))

    def _lustre_plan(self, entry: Lustre, name: str, zone: str) -> FileSystemPlan:
        kind = entry.deployment or "persistent_2"
        linked = entry.bucket is not None
        lifetime, reason = _lifetime(entry, kind)
        return FileSystemPlan(
            name=name,
            kind="lustre",
            mount=entry.mount,
            capacity_gib=self.lustre(entry).billed,
            deployment=kind.upper(),
            throughput_mb_s_per_tib=_tier(entry),
            subnet=self.subnet(zone),
            version=entry.version or "2.15",
            metadata_mode=_metadata(entry),
            metadata_iops=entry.metadata_iops,
            efa=entry.fabric,
            bucket=entry.bucket,
            bucket_prefix=entry.bucket_prefix,
            bucket_path=entry.bucket_path,
            import_events=entry.import_events if linked else (),
            export_events=entry.export_events if linked else (),
            backup_days=entry.backup_days,
            restore_from=entry.restore_from,
            lifetime=lifetime,
            lifetime_reason=reason,
        )

    def existing_file_system(
        self, entry: Lustre | Home, existing: ExistingFileSystem, name: str, region: str
    ) -> ExistingFileSystemPlan:
        lustre = isinstance(entry, Lustre)
        efa = isinstance(entry, Lustre) and entry.fabric
        service = "" if isinstance(entry, Lustre) else entry.service or self.home_services[0]
        openzfs = service == "openzfs"
        nfs = "TCP 111, 2049 and 20001-20003" if openzfs else "TCP 2049"
        traffic = "all traffic" if efa else "TCP 988 and 1018-1023" if lustre else nfs
        both = "to and from" if lustre else "from"
        path = existing.mount_name or (OPENZFS_ROOT if openzfs else "")
        opens = f"{traffic} {both} the nodes' security group (stack output nodes_group_id)"
        return ExistingFileSystemPlan(
            name=name,
            kind=entry.kind,
            service=service,
            mount=entry.mount,
            id=existing.id,
            address=existing.address or dns_name(existing.id, region, fsx=lustre or openzfs),
            mount_name=path if lustre else f"/{path.lstrip('/')}",
            efa=efa,
            security_group=existing.security_group,
            owner_opens=f"{opens} in {existing.security_group}",
        )

    def resources(self, plan: Plan) -> dict[str, int]:
        from gpuinfra.clouds.aws import resources

        return made.count(resources.resources(plan))

    def kept(self, plan: Plan) -> tuple[Kept, ...]:
        from gpuinfra.clouds.aws import resources

        return made.kept(resources.resources(plan))


PROFILE = AwsProfile()


def dns_name(id: str, region: str, *, fsx: bool) -> str:
    """Return the DNS name that AWS assigns to a file system of FSx or EFS.

    https://docs.aws.amazon.com/fsx/latest/LustreGuide/mounting-ec2-instance.html and
    https://docs.aws.amazon.com/efs/latest/ug/mounting-fs-mount-cmd-dns-name.html, retrieved 2026-11-23.
    """
    return f"{id}.{'fsx' if fsx else 'efs'}.{region}.amazonaws.com"


def _plain(os: str, machine: MachineType) -> Image:
    release = os.removeprefix("ubuntu-")
    arch = "arm64" if machine.arch == "arm64" else "amd64"
    volume = "ebs-gp2" if release == "22.04" else "ebs-gp3"
    parameter = f"/aws/service/canonical/ubuntu/server/{release}/stable/current/{arch}/hvm/{volume}/ami-id"
    return Image(source="ssm", ref=parameter, os=os, arch=machine.arch, prebuilt=False)


def _group(pool: Pool, machine: MachineType, entry: Capacity, name: str, nodes: int, zone: str, today: date) -> Group:
    placement, reason, existing = _placement(pool, machine, entry)
    preference = None
    opens, closes = declared(entry)
    if isinstance(entry, Block) and closes:
        # Capacity Blocks for UltraServers contain only complete units.
        closes -= ULTRASERVER_LEAD if machine.unit_nodes else BLOCK_LEAD
    if isinstance(entry, Reserved):
        # With `only`, the group targets the reservation. `first` allows overflow, in which case AWS does not accept a target.
        preference = "capacity-reservations-first" if entry.overflow else "capacity-reservations-only"
    reservation = entry.id if isinstance(entry, (Reserved, Block)) else None
    group = Group(
        name=name,
        pool=pool.name,
        kind=entry.kind,
        count=nodes,
        max_count=nodes,
        zone=zone,
        reservation_id=reservation,
        reservation_group_arn=entry.group_arn if isinstance(entry, Reserved) else None,
        reservation_preference=preference,
        placement_group=placement,
        placement_existing=existing,
        placement_reason=reason,
        spot_strategy=entry.strategy if isinstance(entry, Spot) else None,
        max_price_usd=entry.max_price_usd if isinstance(entry, Spot) else None,
        terminate_first=CapacityKind(entry.kind).is_bounded,
    )
    return within(group, today, opens, closes)


def _placement(pool: Pool, machine: MachineType, entry: Capacity) -> tuple[str | None, str, bool]:
    """Return the placement group, the reason, and whether the group already exists."""
    if isinstance(entry, Reserved) and entry.placement_group:
        return entry.placement_group, "the reservation is in this placement group, and a launch must specify both", True
    if isinstance(entry, Reserved):
        why = "nodes in a placement group cannot fully use a reservation outside the group: 11 of 16 nodes started"
        return None, why, False
    if isinstance(entry, Block):
        return None, "AWS places the nodes of a Capacity Block close together", False
    if machine.fabric is None or pool.fabric == "none":
        return None, "the nodes do not share a fabric", False
    if pool.nodes < 2:
        return None, "the pool has one node", False
    why = "EFA is fastest between nodes that are close together, so the unreserved nodes of the pool are in one cluster placement group"
    return f"{pool.name}-near", why, False


def _subnets(cidr: str, zones: list[str], *, nat: bool, name, number) -> Iterable[Subnet]:  # type: ignore[no-untyped-def]
    """Assign one eighth of the network to each zone by zone number, so that adding a zone or pool changes no addresses.

    The first eighth contains a small public subnet per zone for the NAT gateway.
    """
    network = ipaddress.ip_network(cidr)
    eighths = list(network.subnets(prefixlen_diff=3))
    # A network is a /16 to /20, so these subnets are a /24 to /28, which is the smallest subnet on AWS.
    small = list(eighths[0].subnets(new_prefix=network.prefixlen + 8))
    for zone in zones:
        yield Subnet(name=name(zone), zone=zone, cidr=str(eighths[number(zone)]), role="nodes")
    if nat:
        for zone in zones:
            index = number(zone)
            yield Subnet(name=f"nat-{index}", zone=zone, cidr=str(small[index]), role="nat")


EVENTS = frozenset({"NEW", "CHANGED", "DELETED"})


def exports_everything(entry: Lustre) -> bool:
    """Return whether FSx exports all files and all changes to the linked bucket: the link is at the root, and each kind of event is exported."""
    return entry.bucket is not None and entry.bucket_path == "/" and set(entry.export_events) >= EVENTS


def _lifetime(entry: Lustre, kind: str) -> tuple[Lifetime, str]:
    """Return whether `destroy` retains a file system, and the reason.
    A file system is deleted only if its data is stored elsewhere or declared as temporary."""
    if exports_everything(entry):
        return Lifetime.ENDS, "exports all files to the linked bucket, which is retained"
    if not kind.startswith("persistent"):
        return Lifetime.ENDS, "the deployment type is scratch"
    if entry.bucket is None:
        return Lifetime.KEPT, "the only copy of its data"
    if entry.bucket_path != "/":
        return Lifetime.KEPT, f"only {entry.bucket_path} is exported to the linked bucket"
    missing = sorted(EVENTS - set(entry.export_events))
    return Lifetime.KEPT, f"{', '.join(missing)} events are not exported to the linked bucket"


def _endpoints(spec: ClusterSpec) -> tuple[str, ...]:
    own = [entry for entry in spec.storage if not existing_of(entry)]
    fsx = any(entry.kind == "lustre" or (isinstance(entry, Home) and entry.service == "openzfs") for entry in own)
    return (*ENDPOINTS, *(("fsx",) if fsx else ()))


def _tier(entry: Lustre) -> int | None:
    kind = entry.deployment or "persistent_2"
    if kind not in DEFAULT_TIER:
        return None
    return entry.throughput_mb_s_per_tib or DEFAULT_TIER[kind]


def _metadata(entry: Lustre) -> str | None:
    if (entry.deployment or "persistent_2") != "persistent_2":
        return None
    return "USER_PROVISIONED" if entry.metadata_iops else "AUTOMATIC"


def _up(value: int, step: int, least: int) -> int:
    return max(least, -(-value // step) * step)
