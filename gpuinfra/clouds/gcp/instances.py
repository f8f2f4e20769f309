"""Functions that list the instances of each resource kind in `resources.py` for a plan. Pure.

The module also contains values that both the components and the table derive from a plan: APIs, interface subnets and placement policies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from gpuinfra.base import naming
from gpuinfra.clouds import instances as common
from gpuinfra.clouds.gcp.names import repository
from gpuinfra.clouds.gcp.region.recovery import APIS as REPLICATION_APIS
from gpuinfra.plan.model import FileSystemPlan, Group, Lifetime, NetworkPlan, Plan, PoolPlan
from gpuinfra.plan.planned import PlannedInstance

ZONAL_NETWORKS = frozenset({"roce"})
"""Networks that belong to one zone and that the cluster therefore creates. Each interface has its own subnet."""

PRIVATE_DOMAINS = ("googleapis.com", "pkg.dev")
"""Domains for which a network without internet access has private DNS zones: Google APIs, and Google's package and image registries."""

PROJECT_ACCESS = ("events", "notifications")
"""Roles on the project: Storage Transfer Service reads events, and Cloud Storage publishes them."""
BUCKET_ACCESS = ("source", "replica")
"""Roles of Storage Transfer Service on the buckets."""

CONTROL_GRANTS = ("bundle", "evidence")
"""Grants for the control node on the evidence bucket."""
NODE_GRANTS = (*CONTROL_GRANTS, "rendezvous")
"""Grants for the nodes on the evidence bucket."""
ORDERS_GRANT = "orders"
"""Grant for the control node on its orders in the evidence bucket."""
DISCOVERY, REPAIR, ATTACH = "discovery", "repair", "attach"
"""Purposes in the names of the roles with which the control node finds and replaces nodes, and attaches its data disk."""

Found = Literal["bucket", "ring", "key", "network", "address", "connection", "lustre", "filestore"]


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """What `adopt` needs to find a retained resource, in addition to the project, region and stack in its name."""

    kind: Found
    purpose: str
    """The purpose in the resource name."""
    zone: str = ""
    region: str = ""
    """Region of a resource in the second region, or empty for the plan's region."""


def find(kind: Found, part: str = "") -> Callable[[PlannedInstance], Lookup]:
    """Return a lookup by the purpose of the instance, or by the logical name of a part of the component."""

    def lookup(instance: PlannedInstance) -> Lookup:
        purpose = naming.logical(instance.component, part) if part else instance.values["purpose"]
        zone, region = instance.values.get("zone", ""), instance.values.get("region", "")
        return Lookup(kind=kind, purpose=purpose, zone=zone, region=region)

    return lookup


def apis(plan: Plan) -> tuple[str, ...]:
    """Return the APIs that the layers of the plan call, such as `compute` for compute.googleapis.com."""
    needed = {"cloudresourcemanager", "iam", "serviceusage"}
    if "foundation" in plan.layers:
        needed |= {"cloudkms", "compute", "logging", "storage"}
        if plan.budget:
            needed |= {"billingbudgets", *(["monitoring"] if plan.budget.recipients else [])}
    if "site" in plan.layers:
        needed |= {"cloudkms", "compute", "storage"} if plan.file_systems else {"compute"}
        needed |= {{"lustre": "lustre", "home": "file"}.get(one.kind, "storage") for one in plan.file_systems}
        needed |= {"cloudscheduler"} if any(scheduled(plan)) else set()
        if plan.network and plan.network.existing_id is None:
            needed |= {"dns", "logging", *(["servicenetworking"] if plan.network.service_range else [])}
    if _pools(plan):
        needed |= {"compute", "storage", *(["artifactregistry"] if any(image_readers(plan)) else [])}
        needed |= {"secretmanager"} if any(secrets(plan)) else set()
    if plan.recovery:
        needed |= {"cloudkms", "storage", *REPLICATION_APIS}
    return tuple(sorted(needed))


def secure_boot(pool: PoolPlan) -> bool:
    """Return whether nodes use Secure Boot, which requires that no step of the pool loads unsigned kernel modules
    (GoogleCloudPlatform/compute-gpu-installation: linux/README.md)."""
    unsigned = ("30-driver", "50-", "60-lustre")
    return not any(step.id.startswith(unsigned) for step in pool.steps)


def nic_subnets(pool: PoolPlan) -> tuple[str, ...]:
    """Return the name in the plan of each interface's subnet, in interface order."""
    taken: Counter[str] = Counter()
    subnet_per_nic = []
    for nic in pool.nics:
        zonal = f"{nic.network}-{taken[nic.network]}" if nic.network in ZONAL_NETWORKS else nic.network
        subnet_per_nic.append(pool.subnet if nic.network == "main" else zonal)
        taken[nic.network] += 1
    return tuple(subnet_per_nic)


def created_placement_policies(pool: PoolPlan) -> tuple[str, ...]:
    """Placement policies that the pool creates, keyed by name in the plan."""
    return tuple(dict.fromkeys(group.placement_group for group in pool.groups if group.placement_group))


def retains_network(plan: Plan) -> bool:
    """Return whether the plan retains a file system in a network that it creates. Google Cloud does not delete a network while the peering exists."""
    return any(main_networks(plan)) and any(one.lifetime is Lifetime.KEPT for one, _ in _file_systems(plan))


def services(plan: Plan) -> Iterator[PlannedInstance]:
    """APIs to enable in the project."""
    for api in apis(plan):
        yield PlannedInstance(component=naming.logical(plan.name, "services"), values={"api": api})


def audit_trails(plan: Plan) -> Iterator[PlannedInstance]:
    """The audit trail."""
    return common.audit_trails("gcp", plan, purpose="audit")


def recipients(plan: Plan) -> Iterator[PlannedInstance]:
    """Recipients of budget emails."""
    for instance in common.budgets(plan):
        for index in range(len(plan.budget.recipients) if plan.budget else 0):
            yield replace(instance, values={"index": index})


def keys(plan: Plan) -> Iterator[PlannedInstance]:
    """Customer-managed keys for the audit trail and for data, and the key of the second region."""
    yield from common.keys("gcp", plan)
    yield from common.second_keys("gcp", plan, "data")


def second_regions(plan: Plan) -> Iterator[PlannedInstance]:
    """The second region, if the plan has one."""
    return common.second_regions("gcp", plan)


def replicas(plan: Plan) -> Iterator[PlannedInstance]:
    """Replicated buckets."""
    return common.replicas("gcp", plan)


def replication_roles(plan: Plan) -> Iterator[PlannedInstance]:
    """Roles of the services that perform the replication."""
    for above in second_regions(plan):
        for access in (*PROJECT_ACCESS, *BUCKET_ACCESS):
            yield replace(above, values={"access": access})


def replication_grants(plan: Plan) -> Iterator[PlannedInstance]:
    """Grants of these roles on the project."""
    for above in second_regions(plan):
        for access in PROJECT_ACCESS:
            yield replace(above, values={"access": access})


def replica_grants(plan: Plan) -> Iterator[PlannedInstance]:
    """Grants of these roles on the buckets."""
    for above in replicas(plan):
        for access in BUCKET_ACCESS:
            yield replace(above, values={"purpose": above.values["purpose"], "access": access})


def alert_recipients(plan: Plan) -> Iterator[PlannedInstance]:
    """Recipients of replication alerts."""
    return common.alert_recipients(plan, second_regions(plan))


def replica_purpose(purpose: str, region: str) -> str:
    """Return the purpose in the name of a replica. Bucket names are global and do not contain the region."""
    return naming.logical(purpose, region)


def key_users(plan: Plan) -> Iterator[PlannedInstance]:
    """Services that encrypt with a key."""
    for instance in keys(plan):
        first = "logging" if instance.values["purpose"] == "audit" else "compute"
        # Only Cloud Storage encrypts with the key of the second region.
        for user in ("storage",) if "region" in instance.values else (first, "storage"):
            yield replace(instance, values={"user": user})


def evidence_readers(plan: Plan) -> Iterator[PlannedInstance]:
    """Operators who can read evidence."""
    for above in common.evidence("gcp", plan):
        for index in range(len(plan.evidence.operators)):
            yield PlannedInstance(component=above.component, values={"index": index})


def buckets(plan: Plan) -> Iterator[PlannedInstance]:
    """Private buckets for audit records, evidence and file system data, buckets that nodes mount, and replicas."""
    yield from common.buckets("gcp", plan, _file_systems(plan))
    yield from common.replica_buckets("gcp", plan, replica_purpose)


def _network(plan: Plan) -> NetworkPlan | None:
    return plan.network if "site" in plan.layers else None


def _network_component(plan: Plan) -> PlannedInstance:
    return common.inside("gcp", common.top(plan), "Network", "network", purpose="flow")


def main_networks(plan: Plan) -> Iterator[PlannedInstance]:
    """The network of the first node interface, if this stack creates one."""
    network = _network(plan)
    if network and network.existing_id is None:
        retains = any(one.lifetime is Lifetime.KEPT for one, _ in _file_systems(plan))
        yield replace(_network_component(plan), data=retains)


def peered_networks(plan: Plan) -> Iterator[PlannedInstance]:
    """The main network, if it has a peering for file systems."""
    network = _network(plan)
    return main_networks(plan) if network and network.service_range else iter(())


def nat_networks(plan: Plan) -> Iterator[PlannedInstance]:
    """The main network, if its nodes reach the internet through Cloud NAT."""
    network = _network(plan)
    return main_networks(plan) if network and network.egress == "nat" else iter(())


def private_domains(plan: Plan) -> Iterator[PlannedInstance]:
    """Domains of Google APIs, if nodes have no internet access."""
    network = _network(plan)
    if network and network.egress == "endpoints":
        for instance in main_networks(plan):
            for domain in PRIVATE_DOMAINS:
                yield replace(instance, values={"domain": domain.replace(".", "-")})


def private_records(plan: Plan) -> Iterator[PlannedInstance]:
    """DNS records of these domains: the domain and a wildcard."""
    for instance in private_domains(plan):
        for record in ("apex", "wildcard"):
            yield replace(instance, values={**instance.values, "record": record})


def data_networks(plan: Plan) -> Iterator[PlannedInstance]:
    """Networks of additional node interfaces."""
    network = _network(plan)
    for extra in network.extra if network else ():
        yield replace(_network_component(plan), values={"network": extra.name})


def subnets(plan: Plan) -> Iterator[PlannedInstance]:
    """Subnets of the main network and of the data networks."""
    network = _network(plan)
    for subnet in network.subnets if network else ():
        if subnet.existing_id is None:
            yield replace(_network_component(plan), values={"subnet": subnet.name})


def firewall_rules(plan: Plan) -> Iterator[PlannedInstance]:
    """Rules of the main network, and the single rule of each data network."""
    for data in data_networks(plan):
        name = naming.logical(data.component, data.values["network"], "firewall")
        yield PlannedInstance(component=name, values={"rule": "allow-internal-ingress"})
    network = _network(plan)
    for main in main_networks(plan):
        for rule in _main_rules(plan, network) if network else ():
            yield PlannedInstance(component=naming.logical(main.component, "firewall"), values={"rule": rule})


def _main_rules(plan: Plan, network: NetworkPlan) -> Iterator[str]:
    yield from (
        "allow-internal-ingress", "allow-internal-egress", "deny-ingress", "deny-egress", "allow-web-egress"
    )  # fmt: skip
    if network.ssh_from:
        yield "allow-ssh"
    yield from (f"allow-declared-{index}" for index in range(len(network.ingress)))
    if network.service_range:
        yield "allow-file-systems-egress"
        if any(one.kind == "lustre" for one in plan.file_systems):
            yield "allow-file-systems-ingress"


def existing_networks(plan: Plan) -> Iterator[PlannedInstance]:
    """Existing networks in which a cluster adds a rule for its nodes."""
    if _pools(plan) and plan.network and plan.network.existing_id is not None:
        yield PlannedInstance(component=naming.logical(plan.name, "node-firewall"))


def lustre_ranges(plan: Plan) -> tuple[str, ...]:
    """Return the address ranges of existing Lustre file systems."""
    ranges = (one.address_range for one in plan.existing_file_systems if one.kind == "lustre")
    return tuple(dict.fromkeys(range for range in ranges if range))


def existing_lustre_networks(plan: Plan) -> Iterator[PlannedInstance]:
    """Existing networks in which a cluster adds a rule for existing Lustre file systems."""
    return existing_networks(plan) if lustre_ranges(plan) else iter(())


def rdma_networks(plan: Plan) -> Iterator[PlannedInstance]:
    """RDMA networks of the cluster."""
    for network in plan.own_networks if _pools(plan) else ():
        yield PlannedInstance(component=naming.logical(plan.name, network.name))


def rdma_subnets(plan: Plan) -> Iterator[PlannedInstance]:
    """Subnets of RDMA networks, one per rail."""
    for network, instance in zip(plan.own_networks, rdma_networks(plan), strict=False):
        for index in range(len(network.subnets)):
            yield replace(instance, values={"index": index})


def _file_systems(plan: Plan) -> Iterator[tuple[FileSystemPlan, PlannedInstance]]:
    for file_system in plan.file_systems:
        if file_system.kind in ("lustre", "home") and "site" in plan.layers:
            why, name = file_system.lifetime_reason or common.DATA, naming.logical(plan.name, file_system.name)
            values = {"purpose": name, "zone": file_system.zone or "", "why": why}
            above = common.inside("gcp", common.top(plan), "SharedFilesystem", file_system.name, **values)
            yield file_system, replace(above, data=file_system.lifetime is Lifetime.KEPT)


def file_systems(plan: Plan) -> Iterator[PlannedInstance]:
    """File systems, Lustre and Filestore."""
    return (instance for _, instance in _file_systems(plan))


def lustre(plan: Plan) -> Iterator[PlannedInstance]:
    """Managed Lustre."""
    return (instance for one, instance in _file_systems(plan) if one.kind == "lustre")


def filestores(plan: Plan) -> Iterator[PlannedInstance]:
    """Filestore."""
    return (instance for one, instance in _file_systems(plan) if one.kind == "home")


def bucket_grants(plan: Plan) -> Iterator[PlannedInstance]:
    """Grants for Managed Lustre on its import and export bucket."""
    for file_system, instance in _file_systems(plan):
        for access in ("objects", "bucket") if file_system.bucket is not None else ():
            yield replace(instance, values={"access": access})


def export_purpose(file_system: str) -> str:
    """Return the purpose in the names of the service account and the role of scheduled exports. An account ID has no room for the name of a file system."""
    return f"export-{naming.text_token(file_system, 6)}"


def scheduled(plan: Plan) -> Iterator[PlannedInstance]:
    """File systems with scheduled exports."""
    return (instance for one, instance in _file_systems(plan) if one.export_minutes is not None)


def node_roles(plan: Plan) -> Iterator[PlannedInstance]:
    """The identity of the nodes, and the identity of the control node."""
    yield from shared_roles(plan)
    yield from control_roles(plan)


def shared_roles(plan: Plan) -> Iterator[PlannedInstance]:
    """The identity of the nodes of the declared pools."""
    if _pools(plan):
        yield PlannedInstance(component=naming.logical(plan.name, "node"))


def control_roles(plan: Plan) -> Iterator[PlannedInstance]:
    """The identity of the control node."""
    if plan.monitoring and _pools(plan):
        yield PlannedInstance(component=naming.logical(plan.name, common.CONTROL_ROLE))


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


def node_health(plan: Plan) -> Iterator[PlannedInstance]:
    """The health check of groups that replace their nodes in rolling updates."""
    if any(group.kind != "flex" for pool in _pools(plan) for group in pool.groups):
        yield PlannedInstance(component=naming.logical(plan.name, "node-health"))


def image_readers(plan: Plan) -> Iterator[PlannedInstance]:
    """The identity of the nodes, if it pulls images from Artifact Registry."""
    return shared_roles(plan) if repository(plan.registry or "") else iter(())


def node_grants(plan: Plan) -> Iterator[PlannedInstance]:
    """Grants for the nodes and the control node on the evidence bucket."""
    for instance in shared_roles(plan):
        for grant in NODE_GRANTS:
            yield replace(instance, values={"grant": grant})
    for instance in control_roles(plan):
        for grant in CONTROL_GRANTS:
            yield replace(instance, values={"grant": grant})
    for instance in ordering_roles(plan):
        yield replace(instance, values={"grant": ORDERS_GRANT})


def replaced_groups(plan: Plan) -> Iterator[PlannedInstance]:
    """Grants for the control node on the instances of each group."""
    for instance in replacing_roles(plan):
        for pool in _pools(plan):
            for group in pool.groups if plan.monitoring and pool.name != plan.monitoring.pool else ():
                yield replace(instance, values={"group": group.name})


def mounted_buckets(plan: Plan) -> Iterator[PlannedInstance]:
    """Grants for the nodes on the buckets that they mount."""
    for instance in shared_roles(plan):
        for mounted_bucket in plan.mounted_buckets:
            yield replace(instance, values={"mount": mounted_bucket.name})


def _pools(plan: Plan) -> tuple[PoolPlan, ...]:
    return tuple(plan.pools) if "cluster" in plan.layers else ()


def placement_policies(plan: Plan) -> Iterator[PlannedInstance]:
    """Placement policies that pools create."""
    for pool in _pools(plan):
        for policy in created_placement_policies(pool):
            yield PlannedInstance(component=naming.logical(plan.name, policy))


def queued_groups(plan: Plan) -> Iterator[PlannedInstance]:
    """Groups that request their nodes with flex-start."""
    for pool in _pools(plan):
        for group in pool.groups:
            if is_queued(group):
                yield PlannedInstance(component=naming.logical(plan.name, group.name))


def is_queued(group: Group) -> bool:
    """Return whether a group requests its nodes from the flex-start queue. After the cluster expires, it requests none."""
    return group.kind == "flex" and group.max_count > 0
