"""Azure-specific decisions: images, scale sets, addresses, Managed Lustre, Azure Files and Azure NetApp Files. Pure: imports no SDK."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from gpuinfra.catalog.records import CapacityKind, MachineType, ServicePrice
from gpuinfra.clouds import images
from gpuinfra.clouds.azure import catalog, names, resources
from gpuinfra.clouds.azure import regions as places
from gpuinfra.clouds.azure.images import IMAGES
from gpuinfra.clouds.azure.instances import BASTION_SUBNET, ENDPOINTS_SUBNET, NETAPP, NETAPP_SUBNET, REGIONAL
from gpuinfra.clouds.azure.region.recovery import REPLICATION
from gpuinfra.clouds.azure.software import SOFTWARE
from gpuinfra.monitoring.discovery import ControlFacts, Discovery
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
from gpuinfra.plan.storage import created, mounted_bucket
from gpuinfra.plan.window import declared, within
from gpuinfra.plan.zones import Zoning
from gpuinfra.spec.capacity import Reserved, Spot
from gpuinfra.spec.image import CustomImage
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import Pool
from gpuinfra.spec.storage import ExistingFileSystem, Home, Lustre, ObjectMount

FABRIC_LIMIT = 100
"""Maximum number of nodes per InfiniBand fabric, which is a scale set with a single placement group. Azure can raise the limit to 300 on request."""
SET_LIMIT = 600
"""Maximum number of nodes per scale set without InfiniBand."""
DEFAULT_TIER = 250
URN = re.compile(r"[A-Za-z0-9._-]+:[A-Za-z0-9._-]+:[A-Za-z0-9._-]+:[A-Za-z0-9._-]+")
"""A marketplace image: `publisher:offer:sku:version`."""
LUSTRE_ZONE = "1"
"""Zone of a file system if the declaration does not set a zone. A rule warns about this case, because Azure chooses the zone of the nodes."""
LUSTRE_NAME = "lustrefs"
"""Name of every Managed Lustre file system in its mount source (https://learn.microsoft.com/azure/azure-managed-lustre/connect-clients,
retrieved 2026-11-23)."""
STORAGE_SUBNET = "storage-"
"""Start of the names of the subnets for Managed Lustre. The name of the file system follows."""
GIB_PER_TIB = 1024
NETAPP_LEVEL = "premium"
"""Default service level of Azure NetApp Files: 64 MiB/s for each TiB. The standard level has 16."""


class AzureProfile(CloudProfile):
    """Microsoft Azure."""

    name = "azure"
    title = "Azure"
    machines: Mapping[str, MachineType] = catalog.MACHINES
    arm64_names = r"Standard_[A-Z]+\d+(-\d+)?[a-z]*p[a-z]*_v\d"
    """Azure, "Virtual machine sizes naming conventions": the additive feature p is an ARM CPU; retrieved 2026-11-27."""
    regions: tuple[str, ...] = tuple(sorted(places.REGIONS))
    region_form: str = places.REGION_FORM
    capacity_kinds = frozenset({CapacityKind.ON_DEMAND, CapacityKind.SPOT, CapacityKind.RESERVED})
    service_prices: tuple[ServicePrice, ...] = places.SERVICE_PRICES
    software = SOFTWARE
    image_families = IMAGES
    user_data_limit = 65535
    """Custom data "is a maximum length of 65535 bytes": VirtualMachineScaleSetOSProfile of the ARM reference, retrieved 2026-11-21."""
    opt_in_zones = frozenset[str]()
    node_units = frozenset({"gpuinfra-health.service"})
    provider_only_settings = (
        "azure-native:client*", "azure-native:tenantId", "azure-native:auxiliaryTenantIds", "azure-native:oidc*", "azure-native:useOidc", "azure-native:useMsi",
        "azure-native:msiEndpoint", "azure-native:environment", "azure-native:metadataHost",
    )  # fmt: skip
    """Names from `pulumi_azure_native.config` 3.29.0."""
    sign_in_hint = "run `az login`, or set the variables of both: ARM_CLIENT_ID and AZURE_CLIENT_ID, ARM_TENANT_ID and AZURE_TENANT_ID, and the secret or token"
    tag_limit = 50
    tag_form = TagForm(
        key=r"(?!(?i:azure|microsoft|windows))[^<>%&\\?/]{1,128}",
        value=r"(?s:.){1,256}",
        allowed="keys of up to 128 characters that do not contain < > % & \\ ? / and do not start with azure, microsoft or windows",
    )
    """https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources, retrieved 2026-11-22. Storage accounts have the shortest keys."""
    access_fields = frozenset(
        {"ingress", "node_roles", "ssh_from", "operators", "evidence_from", "ssh_keys", "bastion", "users"}
    )
    own_fields = frozenset(
        {
            "network.existing.dns_zones",
            "storage.export_minutes",
            "storage.export_paused",
            "storage.importer_id",
            "storage.private_endpoint",
        }
    )
    replication = REPLICATION
    storage_kinds = frozenset({"lustre", "home", "object"})
    home_services = ("files", "netapp")
    metadata_to_guard: tuple[str, ...] = ("169.254.169.254", "168.63.129.16")
    """Addresses of the metadata service and of the agent's service. Azure has no hop limit. The second address also returns the settings of the node's
    extensions. Only the agent, which runs as root on the node itself, requires it (learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16,
    retrieved 2026-11-28): the guard drops only forwarded packets, and keeps port 53, at which the address resolves names."""

    control = ControlFacts(
        machine="Standard_D4s_v5",
        secret=names.SECRET_ID.pattern,
        secret_form="the ID of a Key Vault secret, "
        "/subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.KeyVault/vaults/VAULT/secrets/NAME",
        needs_internet="Azure Resource Manager",
        # Action groups send emails for alerts of Azure Monitor, which reads no metrics of the control node; `createNotifications` sends only test messages
        # (`Test-AzActionGroup` of Azure PowerShell 6.0.3: powershellgallery.com/packages/Az.Monitor, retrieved 2026-11-30).
        no_email="Azure has no service that sends emails for Alertmanager with the identity of a machine",
        no_store="a stack on Azure cannot create an Azure Monitor workspace",
    )

    def discovery(self, cluster: str, region: str, zones: Sequence[str], port: int) -> Discovery:
        """Return the settings of `azure_sd_configs`, which search the resource group of the nodes
        (https://prometheus.io/docs/prometheus/latest/configuration/configuration/#azure_sd_config, retrieved 2026-11-29).

        Prometheus sends a request for each new node, and Azure limits requests, so the interval is the default of 5 minutes. Prometheus does not
        read the `vmId`, so a node has the name of its machine."""
        return Discovery(
            kind="azure_sd_configs",
            settings=[
                {
                    "authentication_method": "ManagedIdentity",
                    "client_id": "${client_id}",
                    "subscription_id": "${subscription}",
                    "resource_group": "${resource_group}",
                    "port": port,
                }
            ],
            instance="__meta_azure_machine_name",
            pool="__meta_azure_machine_tag_gpuinfra_pool",
        )

    def zone_number(self, zone: str) -> int:
        """Zones are numbers."""
        return int(zone) if zone.isdigit() else 0

    def first_zone(self, region: str) -> str:
        """No zone, because the scale set is regional and Azure selects the zone."""
        return REGIONAL

    def region_of_zone(self, zone: str, region: str) -> str | None:
        """All regions use the same zone numbers."""
        return region if zone in ("1", "2", "3") else None

    def group_limit(self, machine: MachineType) -> int | None:
        """Return the size limit of a scale set. A rule rejects larger InfiniBand pools, because a fabric is a single scale set."""
        return FABRIC_LIMIT if machine.fabric else SET_LIMIT

    def nics(self, machine: MachineType, *, fabric: bool) -> tuple[Nic, ...]:
        """Return Ethernet interfaces only. Azure passes InfiniBand adapters through, so they are not declared."""
        return tuple(Nic(card=s.card, device=s.device, kind=s.kind, network=s.network) for s in machine.nics)

    def image(self, spec: ClusterSpec, pool: Pool, machine: MachineType) -> tuple[Image, str]:
        """Return the HPC image for GPU nodes and Ubuntu for other nodes."""
        wanted = images.wanted(spec, pool)
        if isinstance(wanted, CustomImage):
            source = "urn" if URN.fullmatch(wanted.ref) else "id"
            return images.own(IMAGES, wanted, source), "set in the declaration"
        os = images.declared_os(spec, pool) or ("ubuntu-24.04" if machine.arch == "arm64" else "ubuntu-22.04")
        if wanted == "plain":
            return _plain(os, machine), "image: plain, so every step installs its software"
        if machine.gpu is None:
            return _plain(os, machine), "nodes without GPUs do not need a GPU image"
        image = images.released(IMAGES, os, machine.arch, wanted, latest="urn", dated="urn")
        if image is None:
            return _plain(
                os, machine
            ), "Azure publishes HPC images for x86_64 only, so every step installs its software"
        return (
            image,
            "Azure's HPC image contains the driver, the fabric manager, CUDA, InfiniBand and the Lustre client",
        )

    def disk(self, pool: Pool, machine: MachineType, image: Image) -> Disk:
        """Return a Premium disk, whose throughput depends on its size."""
        return Disk(
            size_gib=pool.disk.size_gib or (256 if machine.gpu else 64), kind="Premium_LRS", iops=pool.disk.iops
        )

    def groups(
        self, pool: Pool, machine: MachineType, zone: str, today: date
    ) -> tuple[tuple[Group, ...], tuple[Decision, ...]]:
        """Return one scale set per kind of capacity. An InfiniBand pool is a single scale set."""
        fabric = machine.fabric is not None and pool.fabric != "none"
        reason = (
            "an InfiniBand fabric is one uniform scale set with a single placement group"
            if fabric
            else "the nodes do not share a fabric"
        )
        limit = FABRIC_LIMIT if fabric else SET_LIMIT
        groups = tuple(
            within(
                Group(
                    name=name,
                    pool=pool.name,
                    kind=entry.kind,
                    count=count,
                    max_count=count,
                    zone=zone,
                    reservation_id=entry.id if isinstance(entry, Reserved) else None,
                    placement_reason=reason,
                    single_fabric=fabric,
                    fault_domains=_fault_domains(zone, fabric=fabric),
                    max_price_usd=entry.max_price_usd if isinstance(entry, Spot) else None,
                    terminate_first=fabric or CapacityKind(entry.kind).is_bounded,
                ),
                today,
                *declared(entry),
            )
            for entry, name, count in shares(pool, limit)
        )
        chosen = "single placement group" if fabric else "none"
        return groups, tuple(Decision(path=f"{g.name}.placement_group", chosen=chosen, why=reason) for g in groups)

    def network(self, spec: ClusterSpec, zoning: Zoning, today: date) -> NetworkPlan:
        """Return one subnet for all nodes, because subnets span zones, and one subnet per Lustre file system."""
        lustre = [f"{STORAGE_SUBNET}{name}" for name, entry in created(spec.storage) if entry.kind == "lustre"]
        services = {self._service(entry) for _, entry in created(spec.storage) if isinstance(entry, Home)}
        homes = ("file",) if "files" in services else ()
        netapp = "netapp" in services
        if spec.network.existing:
            return _existing(spec, self.subnet(""), lustre, homes, netapp=netapp)
        network = ipaddress.ip_network(spec.network.cidr, strict=False)
        eighths = list(network.subnets(prefixlen_diff=3))
        small = small_ranges(network)
        roles = [(self.subnet(""), "nodes", eighths[1])]
        roles += [(name, "storage", small[index]) for index, name in enumerate(lustre)]
        # Subnets are allocated from the end of the range, so that adding a file system does not change any addresses.
        roles.append((ENDPOINTS_SUBNET, "endpoints", small[-1]))
        if spec.access.bastion:
            roles.append((BASTION_SUBNET, "bastion", small[-2]))
        if netapp:
            roles.append((NETAPP_SUBNET, NETAPP, small[-3]))
        return NetworkPlan(
            cidr=spec.network.cidr,
            subnets=tuple(Subnet(name=name, zone=REGIONAL, cidr=str(cidr), role=role) for name, role, cidr in roles),
            egress=spec.network.egress,
            interface_endpoints=("blob", "vault", *homes),
            ssh_from=spec.access.ssh_from,
            flow_log_retention_days=spec.network.flow_log_days,
        )

    def subnet(self, zone: str) -> str:
        """Subnets span zones."""
        return "private-0"

    def lustre(self, entry: Lustre) -> BilledCapacity:
        """Azure bills Managed Lustre in increments of whole TiB."""
        tier = entry.throughput_mb_s_per_tib or DEFAULT_TIER
        _, step, _ = places.LUSTRE_SKUS.get(tier, places.LUSTRE_SKUS[DEFAULT_TIER])
        size = step * GIB_PER_TIB
        billed = max(size, -(-entry.size_gib // size) * size)
        return BilledCapacity(requested=entry.size_gib, billed=billed, reason=f"billed in increments of {step} TiB")

    def file_system(self, entry: Lustre | Home | ObjectMount, name: str, zone: str, region: str) -> FileSystemPlan:
        """Return a Managed Lustre file system, an NFS file share, or a mounted container."""
        if isinstance(entry, Lustre):
            tier = entry.throughput_mb_s_per_tib or DEFAULT_TIER
            return FileSystemPlan(
                name=name,
                kind="lustre",
                mount=entry.mount,
                capacity_gib=self.lustre(entry).billed,
                deployment=places.LUSTRE_SKUS.get(tier, places.LUSTRE_SKUS[DEFAULT_TIER])[0],
                throughput_mb_s_per_tib=tier,
                subnet=f"{STORAGE_SUBNET}{name}",
                zone=lustre_zone(zone, region),
                importer_id=entry.importer_id,
                private_endpoint=entry.private_endpoint,
                bucket=entry.bucket,
                bucket_prefix=entry.bucket_prefix,
                export_minutes=entry.export_minutes,
                export_paused=entry.export_paused,
                lifetime=Lifetime.KEPT,
                lifetime_reason="the only copy of its data"
                if entry.bucket is None
                else "the only copy of changes that were not exported to its container, because exports are not continuous",
            )
        if isinstance(entry, ObjectMount):
            return mounted_bucket(entry, name, "blobfuse2", self.subnet(zone), word="container")
        on_netapp = self._service(entry) == "netapp"
        return FileSystemPlan(
            name=name,
            kind=entry.kind,
            service=self._service(entry),
            mount=entry.mount,
            capacity_gib=netapp(entry).billed if on_netapp else entry.capacity_gib,
            deployment=(entry.service_level or NETAPP_LEVEL).capitalize() if on_netapp else "Premium_LRS",
            subnet=NETAPP_SUBNET if on_netapp else self.subnet(zone),
            holds_subnet=on_netapp,
            snapshot_days=entry.snapshot_days,
            lifetime=Lifetime.KEPT,
            lifetime_reason="home directories contain the only copy of their files",
        )

    def _service(self, entry: Home) -> str:
        return entry.service or self.home_services[0]

    def existing_file_system(
        self, entry: Lustre | Home, existing: ExistingFileSystem, name: str, region: str
    ) -> ExistingFileSystemPlan:
        """Return the plan of an existing Managed Lustre file system, volume of Azure NetApp Files, or share of Azure Files,
        whose address and path follow from its ID."""
        service = self._service(entry) if isinstance(entry, Home) else ""
        if service == "netapp":
            address, path = existing.address or "", f"/{(existing.mount_name or '').lstrip('/')}"
            opens = (
                "TCP 111, 635, 2049, 4045 and 4046 from the node subnet, in the security group of the delegated subnet and in the "
                "export policy of the volume, with root access"
            )
        elif entry.kind == "home":
            share = names.share_parts(existing.id)
            address, path = (share.address, share.path) if share else ("", "")
            opens = "TCP 2049 from the node subnet to a private endpoint of the share's storage account, whose private DNS zone is linked to the network"
        else:
            address, path = existing.address or "", LUSTRE_NAME
            opens = (
                "TCP 988 and 1019-1023 to and from the node subnet, in the security group of the file system's subnet"
            )
        return ExistingFileSystemPlan(
            name=name,
            kind=entry.kind,
            service=service,
            mount=entry.mount,
            id=existing.id,
            address=address,
            mount_name=path,
            owner_opens=opens,
        )

    def resources(self, plan: Plan) -> dict[str, int]:
        """Return the resources of the components, by type."""
        return made.count(resources.resources(plan))

    def kept(self, plan: Plan) -> tuple[Kept, ...]:
        """Return the resources that `destroy` retains."""
        return made.kept(resources.resources(plan))


PROFILE = AzureProfile()


def lustre_zone(zone: str, region: str) -> str | None:
    """Return the zone of a file system, which Managed Lustre requires in a region with zones, or None in a region without zones.

    https://learn.microsoft.com/azure/azure-managed-lustre/create-file-system-resource-manager, required information.
    """
    if zone == REGIONAL:
        return None if region in places.WITHOUT_ZONES else LUSTRE_ZONE
    return zone


def netapp(entry: Home) -> BilledCapacity:
    """Return the size of a volume of Azure NetApp Files. Its capacity pool is billed in increments of 1 TiB, and the volume uses all of it.

    https://learn.microsoft.com/azure/azure-netapp-files/azure-netapp-files-resource-limits, page dated 2025-06-10.
    """
    billed = -(-entry.capacity_gib // GIB_PER_TIB) * GIB_PER_TIB
    reason = "a capacity pool is billed in increments of 1 TiB, and the volume uses all of it"
    return BilledCapacity(requested=entry.capacity_gib, billed=billed, reason=reason)


def small_ranges(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> list[Any]:
    """Return the ranges for file systems, private endpoints, Bastion and Azure NetApp Files: equal parts of the first eighth of the network."""
    first = next(iter(network.subnets(prefixlen_diff=3)))
    return list(first.subnets(new_prefix=max(first.prefixlen, min(28, network.prefixlen + 7))))


def file_system_limit(
    network: ipaddress.IPv4Network | ipaddress.IPv6Network, *, bastion: bool, netapp: bool = False
) -> int:
    """Return how many Lustre file systems fit into a network in addition to the subnets for private endpoints, Bastion and Azure NetApp Files."""
    return len(small_ranges(network)) - (3 if netapp else 2 if bastion else 1)


def _plain(os: str, machine: MachineType) -> Image:
    arm = machine.arch == "arm64"
    if os == "ubuntu-22.04":
        ref = f"Canonical:0001-com-ubuntu-server-jammy:22_04-lts-{'arm64' if arm else 'gen2'}:latest"
    else:
        ref = f"Canonical:ubuntu-24_04-lts:server{'-arm64' if arm else ''}:latest"
    return Image(source="urn", ref=ref, os=os, arch=machine.arch, prebuilt=False)


def _fault_domains(zone: str, *, fabric: bool) -> int | None:
    """Return the fault domain count. 1 spreads nodes as widely as possible.
    A single placement group requires 5 in a zone, or Azure's choice in a regional set (docs/reference/azure.md)."""
    if not fabric:
        return 1
    return None if zone == REGIONAL else 5


def node_subnet(subnets: Mapping[str, str], region: str) -> str | None:
    """Return the subnet of an existing network for the nodes: the one with the name of the region, or else the first one that is not for a file system."""
    others = (id for name, id in subnets.items() if name != NETAPP_SUBNET and not name.startswith(STORAGE_SUBNET))
    return subnets.get(region) or next(others, None)


def _existing(spec: ClusterSpec, nodes: str, lustre: list[str], homes: tuple[str, ...], *, netapp: bool) -> NetworkPlan:
    """Return an existing network with its node subnet and a subnet per file system."""
    existing = spec.network.existing
    assert existing is not None
    subnet_ids = existing.subnets
    subnets = [
        Subnet(name=nodes, zone=REGIONAL, cidr="", role="nodes", existing_id=node_subnet(subnet_ids, spec.where.region))
    ]
    subnets += [
        Subnet(name=name, zone=REGIONAL, cidr="", role="storage", existing_id=subnet_ids.get(name)) for name in lustre
    ]
    if netapp:
        delegated = subnet_ids.get(NETAPP_SUBNET)
        subnets.append(Subnet(name=NETAPP_SUBNET, zone=REGIONAL, cidr="", role=NETAPP, existing_id=delegated))
    return NetworkPlan(
        cidr="",
        subnets=tuple(subnets),
        egress=spec.network.egress,
        existing_id=existing.id,
        interface_endpoints=("blob", *homes),
        ssh_from=spec.access.ssh_from,
        dns_zones=dict(existing.dns_zones),
    )
