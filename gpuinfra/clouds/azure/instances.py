"""Functions that list the instances of each resource kind in `resources.py` for a plan. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from gpuinfra.base import naming
from gpuinfra.clouds import instances as common
from gpuinfra.clouds.azure import names
from gpuinfra.plan.model import FileSystemPlan, Lifetime, NetworkPlan, Plan, Subnet
from gpuinfra.plan.planned import PlannedInstance, retained_subnets

EVIDENCE_CONTAINER = "evidence"
BUNDLES = "bootstrap"
"""Bundle folder in the evidence container."""
ACTIVITY_CONTAINER = "insights-activity-logs"
"""Container for the Activity Log. Azure Monitor writes only to a container with this name."""
DATA_CONTAINER = "data"
LOG_CONTAINER = "import-log"
RECORD_CONTAINER = "active-region"
"""Container for the record of the active region, in the account of the evidence replica."""
RECORD_WHY = "the record names the region in which the stack runs"
HOMES = "homes"
"""Purpose in the names of the component and the storage account of the home directories."""
NETAPP = "netapp"
"""Purpose in the names of the component, the account and the security group of Azure NetApp Files, and role of their subnet."""
NETAPP_SUBNET = "netapp-0"
"""The subnet that is delegated to Azure NetApp Files. A network has at most one
(https://learn.microsoft.com/azure/azure-netapp-files/azure-netapp-files-network-topologies, retrieved 2026-11-27)."""
BASTION_SUBNET = "AzureBastionSubnet"
"""Subnet name that Bastion requires (https://learn.microsoft.com/azure/bastion/configuration-settings)."""
REGIONAL = "regional"
"""Zone value for resources whose zone Azure selects."""
ENDPOINTS_SUBNET = "endpoints-0"
DNS_ZONES = {
    "blob": "privatelink.blob.core.windows.net",
    "vault": "privatelink.vaultcore.azure.net",
    "file": "privatelink.file.core.windows.net",
}
"""Maps the service of a private endpoint to its private DNS zone (https://learn.microsoft.com/azure/private-link/private-endpoint-dns)."""

WORKSPACE_DAYS = (30, 730)
"""Minimum and maximum retention period of a Log Analytics workspace, in days."""
MIN_BATCH_PERCENT = 5
"""Smallest batch of a rolling upgrade that Azure accepts."""

Kind = Literal[
    "group", "vault", "key", "identity", "grant", "workspace", "account", "blobs", "lifecycle", "container", "lock",
    "network", "subnet", "security-group", "gateway", "address", "file-system", "files", "share",
    "netapp-account", "netapp-snapshots", "netapp-pool", "netapp-volume",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """What `adopt` needs to find a retained resource, in addition to the subscription and stack in its name."""

    kind: Kind
    layer: str
    """The layer whose resource group contains the resource."""
    purpose: str = ""
    """The purpose in the resource name."""
    part: str = ""
    """The child resource: a container or share of an account, or a subnet of a network."""
    region: str = ""
    """Region of a resource in the second region, or empty for the plan's region."""


def foundations(plan: Plan) -> Iterator[PlannedInstance]:
    """The foundation."""
    return common.foundations("azure", plan, layer="foundation")


def second_regions(plan: Plan) -> Iterator[PlannedInstance]:
    """The second region, if the plan has one. Its resource group has the region in its name."""
    for second_region in common.second_regions("azure", plan):
        yield replace(
            second_region,
            values={**second_region.values, "layer": in_region("recovery", second_region.values["region"])},
        )


def in_region(purpose: str, region: str) -> str:
    """Return the purpose in the name of a resource in the second region. Global names do not contain the region."""
    return naming.logical(purpose, region)


def replicas(plan: Plan) -> Iterator[PlannedInstance]:
    """Replicated containers."""
    return common.replicas("azure", plan)


def alerted(plan: Plan) -> Iterator[PlannedInstance]:
    """The recipients of replication alerts. A single action group contains all of them."""
    if plan.recovery and plan.recovery.recipients:
        yield from second_regions(plan)


def record_operators(plan: Plan) -> Iterator[PlannedInstance]:
    """Principals that can read and write the record of the active region."""
    for above in second_regions(plan):
        for index in range(max(1, len(plan.evidence.operators))):
            yield replace(above, values={**above.values, "index": index})


def replica_container(purpose: str) -> str:
    """Return the name of the container of a replica."""
    return EVIDENCE_CONTAINER if purpose == "evidence" else DATA_CONTAINER


def replica_containers(container: str) -> tuple[str, ...]:
    """Return the containers in the account of a replica, given the container of the replica. A replica is read-only, so the record has its own container."""
    return (container, RECORD_CONTAINER) if container == EVIDENCE_CONTAINER else (container,)


def vaults(plan: Plan) -> Iterator[PlannedInstance]:
    """The key vaults of the foundation and of the second region."""
    for above in (*foundations(plan), *second_regions(plan)):
        yield common.inside("azure", above, "Vault", "vault")


def audited_vaults(plan: Plan) -> Iterator[PlannedInstance]:
    """The key vaults, if requests to them are logged."""
    return vaults(plan) if plan.audit.trail else iter(())


def keys(plan: Plan) -> Iterator[PlannedInstance]:
    """Customer-managed keys for audit records and for data, and the key of the second region."""
    for above in foundations(plan):
        if _has_records(plan):
            yield common.inside("azure", above, "Key", "key-audit", purpose="audit")
        yield common.inside("azure", above, "Key", "key-data", purpose="data")
    for above in second_regions(plan):
        yield common.inside("azure", above, "Key", "key-data", purpose="data")


def trails(plan: Plan) -> Iterator[PlannedInstance]:
    """The audit trail."""
    if plan.audit.trail:
        for above in foundations(plan):
            yield common.inside("azure", above, "AuditTrail", "audit", purpose="logs")


def _has_records(plan: Plan) -> bool:
    """Trails with their own storage account."""
    return plan.audit.trail and plan.audit.existing_bucket is None


def evidence_stores(plan: Plan) -> Iterator[PlannedInstance]:
    """The container for evidence and bundles."""
    return common.evidence("azure", plan, layer="foundation")


def operators(plan: Plan) -> Iterator[PlannedInstance]:
    """Principals that can read evidence and upload bundles."""
    for above in evidence_stores(plan):
        for index in range(max(1, len(plan.evidence.operators))):
            yield replace(above, values={"index": index})


def stores(plan: Plan) -> Iterator[PlannedInstance]:
    """Storage accounts for audit records, evidence, flow logs, file system data and mounted containers, and the accounts of the replicas."""
    if _has_records(plan):
        for above in trails(plan):
            yield _store(above, "records", "audit", common.AUDIT)
    for above in evidence_stores(plan):
        yield _store(above, "store", "evidence", common.EVIDENCE)
    for above in networks(plan):
        yield _store(above, "flow", "flow", common.AUDIT)
    for instance, above in _lustre(plan):
        if instance.bucket == "auto":
            yield _store(above, "data", instance.name, common.DATA)
    for instance in _own_mounts(plan):
        for above in sites(plan):
            container = _store(above, instance.name, instance.name, common.DATA)
            yield replace(container, values={**container.values, "container": DATA_CONTAINER})
    for above in second_regions(plan):
        for replica in plan.recovery.replicas if plan.recovery else ():
            why = common.EVIDENCE if replica.name == "evidence" else common.DATA
            instance = _store(above, replica.name, in_region(replica.name, above.values["region"]), why)
            yield replace(instance, values={**instance.values, "container": replica_container(replica.name)})


def _own_mounts(plan: Plan) -> Iterator[FileSystemPlan]:
    """Mounted containers that this stack creates."""
    return (one for one in plan.file_systems if one.kind == "object" and one.bucket == "auto")


def _store(above: PlannedInstance, part: str, purpose: str, why: str) -> PlannedInstance:
    return common.inside("azure", above, "PrivateStore", part, purpose=purpose, why=why)


def logged_stores(plan: Plan) -> Iterator[PlannedInstance]:
    """Storage accounts to which requests are logged: all accounts except the flow log account."""
    logged = "foundation" in plan.layers and plan.audit.trail and plan.audit.data_events
    return (one for one in stores(plan) if logged and one.values["purpose"] != "flow")


def containers(plan: Plan) -> Iterator[PlannedInstance]:
    """Containers of storage accounts. Azure creates the container for flow logs."""
    for store in stores(plan):
        purpose = store.values["purpose"]
        own = {"audit": (ACTIVITY_CONTAINER,), "evidence": (EVIDENCE_CONTAINER,), "flow": ()}
        replica = replica_containers(store.values["container"]) if "container" in store.values else None
        for container in replica or own.get(purpose, (DATA_CONTAINER, LOG_CONTAINER)):
            why = {"why": RECORD_WHY} if container == RECORD_CONTAINER else {}
            yield replace(store, values={**store.values, "part": container, **why})


def locked_containers(plan: Plan) -> Iterator[PlannedInstance]:
    """Containers with an immutability policy."""
    return (one for one in containers(plan) if one.values["part"] == ACTIVITY_CONTAINER)


def uses_nat_gateway(subnet: Subnet, plan: NetworkPlan) -> bool:
    """Return whether a subnet uses the NAT gateway. Node subnets use it if the plan has NAT.
    File system subnets always use it, because the service is managed through it."""
    return subnet.role == "storage" or (subnet.role == "nodes" and plan.egress == "nat")


def sites(plan: Plan) -> Iterator[PlannedInstance]:
    """The site."""
    if "site" in plan.layers and plan.network:
        yield common.top(plan, layer="site")


def networks(plan: Plan) -> Iterator[PlannedInstance]:
    """The virtual network, if this stack creates one."""
    if plan.network and plan.network.existing_id is None:
        for above in sites(plan):
            network = common.inside("azure", above, "Network", "network", purpose="network")
            yield replace(network, data=bool(retained_subnets(plan)))


def subnets(plan: Plan) -> Iterator[PlannedInstance]:
    """Subnets for nodes, file systems, private endpoints and Bastion."""
    for above in networks(plan):
        for subnet in plan.network.subnets if plan.network else ():
            yield replace(
                above, values={**above.values, "part": subnet.name}, data=subnet.name in retained_subnets(plan)
            )


def nat_gateways(plan: Plan) -> Iterator[PlannedInstance]:
    """The NAT gateway. The subnet of a retained file system depends on it."""
    return _nat(plan, "nat-gateway")


def nat_addresses(plan: Plan) -> Iterator[PlannedInstance]:
    """The public address of the NAT gateway."""
    return _nat(plan, "nat-address")


def _nat(plan: Plan, name: str) -> Iterator[PlannedInstance]:
    for above in networks(plan):
        if plan.network and any(uses_nat_gateway(subnet, plan.network) for subnet in plan.network.subnets):
            data = retains_nat_gateway(plan.network, retained_subnets(plan))
            yield replace(above, values={**above.values, "purpose": name}, data=data)


def retains_nat_gateway(network: NetworkPlan, retained: frozenset[str]) -> bool:
    """Return whether a retained subnet uses the NAT gateway. The subnet of Azure NetApp Files does not."""
    return any(one.name in retained and uses_nat_gateway(one, network) for one in network.subnets)


def bastions(plan: Plan) -> Iterator[PlannedInstance]:
    """The Bastion host."""
    return (one for one in subnets(plan) if one.values["part"] == BASTION_SUBNET)


def security_groups(plan: Plan) -> Iterator[PlannedInstance]:
    """Network security groups for nodes, private endpoints and Bastion."""
    for role in ("nodes", "endpoints", "bastion"):
        if role == "nodes" or (plan.network and any(one.role == role for one in plan.network.subnets)):
            yield from _security_group(plan, role)


def member_groups(plan: Plan) -> Iterator[PlannedInstance]:
    """The application security group of the nodes' interfaces in an existing network. The network's address ranges are unknown."""
    if plan.network and plan.network.existing_id is not None:
        for above in sites(plan):
            yield common.inside("azure", above, "SecurityGroups", "security")


def storage_security_groups(plan: Plan) -> Iterator[PlannedInstance]:
    """The network security group for file systems."""
    if any(_lustre(plan)) and plan.network:
        for group in _security_group(plan, "storage"):
            yield replace(group, data=retains_storage_group(plan))


def netapp_groups(plan: Plan) -> Iterator[PlannedInstance]:
    """The network security group for the subnet of Azure NetApp Files, in a network of this stack."""
    if any(netapp(plan)) and any(networks(plan)):
        for group in _security_group(plan, NETAPP):
            yield replace(group, data=bool(retained_subnets(plan)))


def retains_storage_group(plan: Plan) -> bool:
    """Return whether a retained Lustre file system uses the security group. In an existing network, the subnet is not associated with the group."""
    retained = any(one.lifetime is Lifetime.KEPT for one, _ in _lustre(plan))
    return retained and plan.network is not None and plan.network.existing_id is None


def _security_group(plan: Plan, role: str) -> Iterator[PlannedInstance]:
    for above in sites(plan):
        yield common.inside("azure", above, "SecurityGroups", "security", purpose=role)


def dns_zones(plan: Plan) -> Iterator[PlannedInstance]:
    """Private DNS zones that this stack creates."""
    for endpoint in _endpoints(plan):
        if plan.network and DNS_ZONES[endpoint.values["purpose"]] not in plan.network.dns_zones:
            yield endpoint


def _endpoints(plan: Plan) -> Iterator[PlannedInstance]:
    for above in sites(plan):
        for service in plan.network.interface_endpoints if plan.network else ():
            yield common.inside("azure", above, "Endpoints", "endpoints", purpose=service)


def private_endpoints(plan: Plan) -> Iterator[PlannedInstance]:
    """Private endpoints for the site, for file system data and for mounted containers."""
    for instance in _endpoints(plan):
        yield PlannedInstance(component=naming.logical(instance.component, instance.values["purpose"]))
    for file_system, above in _lustre(plan):
        if not plan.network or "blob" not in plan.network.interface_endpoints:
            continue
        if file_system.bucket == "auto" or file_system.private_endpoint:
            yield PlannedInstance(component=naming.logical(above.component, "data"))
    mounted = [one for one in plan.file_systems if one.kind == "object" and one.private_endpoint]
    for instance in (*_own_mounts(plan), *mounted):
        for above in sites(plan):
            if plan.network and "blob" in plan.network.interface_endpoints:
                yield PlannedInstance(component=naming.logical(above.component, instance.name))


def _lustre(plan: Plan) -> Iterator[tuple[FileSystemPlan, PlannedInstance]]:
    for file_system in plan.file_systems:
        for above in sites(plan) if file_system.kind == "lustre" else ():
            why = file_system.lifetime_reason or common.DATA
            instance = common.inside(
                "azure", above, "SharedFilesystem", file_system.name, purpose=file_system.name, why=why
            )
            yield file_system, replace(instance, data=file_system.lifetime is Lifetime.KEPT)


def file_systems(plan: Plan) -> Iterator[PlannedInstance]:
    """Lustre file systems."""
    return (instance for _, instance in _lustre(plan))


def homes(plan: Plan) -> Iterator[PlannedInstance]:
    """The storage account of the home directories on Azure Files, which contains a share for each of them."""
    if shares := of_service(plan, "files"):
        for above in sites(plan):
            yield common.inside("azure", above, "HomeDirectories", HOMES, purpose=HOMES, why=shares[0].lifetime_reason)


def of_service(plan: Plan, service: str) -> tuple[FileSystemPlan, ...]:
    """Return the file systems for home directories on a service."""
    return tuple(one for one in plan.file_systems if one.service == service)


def netapp(plan: Plan) -> Iterator[PlannedInstance]:
    """The NetApp account of the home directories, which contains a capacity pool and a volume for each of them."""
    if volumes := of_service(plan, "netapp"):
        for above in sites(plan):
            why = volumes[0].lifetime_reason
            yield common.inside("azure", above, "NetAppHomeDirectories", NETAPP, purpose=NETAPP, why=why)


def netapp_volumes(plan: Plan) -> Iterator[PlannedInstance]:
    """Capacity pools and volumes for home directories."""
    for above in netapp(plan):
        for instance in of_service(plan, "netapp"):
            yield replace(above, values={**above.values, "part": instance.name})


def netapp_snapshots(plan: Plan) -> Iterator[PlannedInstance]:
    """Snapshot policies of volumes with daily snapshots."""
    kept = {one.name for one in of_service(plan, "netapp") if one.snapshot_days}
    return (one for one in netapp_volumes(plan) if one.values["part"] in kept)


def home_shares(plan: Plan) -> Iterator[PlannedInstance]:
    """File shares for home directories."""
    for above in homes(plan):
        for instance in of_service(plan, "files"):
            yield replace(above, values={**above.values, "part": names.share(instance.name)})


def existing_data(plan: Plan) -> Iterator[PlannedInstance]:
    """File systems that import from an existing container. Their import log requires a second container."""
    return (instance for one, instance in _lustre(plan) if one.bucket not in (None, "auto"))


def scheduled(plan: Plan) -> Iterator[PlannedInstance]:
    """Lustre file systems with scheduled exports."""
    return (instance for one, instance in _lustre(plan) if one.export_minutes is not None)


def importers(plan: Plan) -> Iterator[PlannedInstance]:
    """Roles of the importing service: one for the account and one for its blobs."""
    for file_system, instance in _lustre(plan):
        for at in (
            ("account", "blobs") if file_system.bucket is not None and file_system.importer_id is not None else ()
        ):
            yield replace(instance, values={"at": at})


def clusters(plan: Plan) -> Iterator[PlannedInstance]:
    """The cluster, if it has nodes."""
    if "cluster" in plan.layers and plan.pools:
        yield common.top(plan, layer="nodes")


def node_roles(plan: Plan) -> Iterator[PlannedInstance]:
    """The identity of the nodes, and the identity of the control node."""
    yield from shared_roles(plan)
    yield from control_roles(plan)


def shared_roles(plan: Plan) -> Iterator[PlannedInstance]:
    """The identity of the nodes of the declared pools."""
    for above in clusters(plan):
        yield common.inside("azure", above, "NodeRole", "node")


def control_roles(plan: Plan) -> Iterator[PlannedInstance]:
    """The identity of the control node."""
    for above in clusters(plan) if plan.monitoring else ():
        yield common.inside("azure", above, "NodeRole", common.CONTROL_ROLE)


def ordering_roles(plan: Plan) -> Iterator[PlannedInstance]:
    """The identity of a control node that gives orders to the nodes."""
    return control_roles(plan) if plan.monitoring and plan.monitoring.repair else iter(())


def replacing_roles(plan: Plan) -> Iterator[PlannedInstance]:
    """The identity of a control node that replaces nodes."""
    return common.if_replacing(plan, control_roles(plan))


def secrets(plan: Plan) -> Iterator[PlannedInstance]:
    """Secrets that the control node can read."""
    return common.secrets(plan, control_roles(plan))


def declared_roles(plan: Plan) -> Iterator[PlannedInstance]:
    """Roles that the declaration assigns to the identity of the nodes."""
    return common.declared_roles(plan, shared_roles(plan))


def mounts(plan: Plan) -> Iterator[PlannedInstance]:
    """The containers that nodes mount."""
    for above in shared_roles(plan):
        for mounted_bucket in plan.mounted_buckets:
            yield replace(above, component=naming.logical(above.component, mounted_bucket.name))
