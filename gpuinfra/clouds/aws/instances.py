"""Functions that list the instances of each resource kind in `resources.py` for a plan. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from gpuinfra.base import naming
from gpuinfra.clouds import instances as common
from gpuinfra.plan.model import FileSystemPlan, Group, Lifetime, NetworkPlan, Plan, PoolPlan
from gpuinfra.plan.planned import PlannedInstance, retained_subnets

WEB_PORTS = (80, 443)
"""TCP ports for egress to the internet. The Ubuntu archive serves signed packages on port 80; all other services use port 443."""

NODE_LOGS = "nodes"
"""Purpose in the name of the log group of the nodes."""

Found = Literal[
    "bucket",
    "key",
    "alias",
    "log-group",
    "file-system-log-group",
    "vpc",
    "subnet",
    "security-group",
    "file-system",
    "home",
    "openzfs",
]


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """What `adopt` needs to find a retained resource, in addition to the account, Region and stack in its name."""

    kind: Found
    purpose: str
    """The purpose in the resource name, or the `Name` tag."""
    region: str | None = None
    """The second Region, or `None` for the Region of the plan."""


def by_purpose(kind: Found) -> Callable[[PlannedInstance], Lookup]:
    """Return a lookup by the purpose of the instance."""
    return lambda instance: Lookup(kind=kind, purpose=instance.values["purpose"], region=instance.values.get("region"))


def _has_access_logs(plan: Plan) -> bool:
    """Trails with their own buckets. In that case, the other buckets of the stack write access logs."""
    return any(trails(plan)) and plan.audit.existing_bucket is None


def node_logs(plan: Plan) -> Iterator[PlannedInstance]:
    """The logs of the nodes."""
    return common.node_logs("aws", plan)


def log_recipients(plan: Plan) -> Iterator[PlannedInstance]:
    """Subscriptions of the recipients to the alarm about Xids."""
    return common.log_recipients(plan, node_logs(plan))


def trails(plan: Plan) -> Iterator[PlannedInstance]:
    """The audit trail."""
    return common.audit_trails("aws", plan, purpose="trail")


def trail_name(unique: str) -> str:
    """Return the name of a trail. CloudTrail rejects adjacent hyphens, which a cluster name can contain."""
    return re.sub("-{2,}", "-", unique)


def keys(plan: Plan) -> Iterator[PlannedInstance]:
    """Customer managed keys for the audit trail and for data, and those in the second Region."""
    yield from common.keys("aws", plan)
    yield from common.second_keys("aws", plan, *(("logs", "data") if _has_access_logs(plan) else ("data",)))


def second_regions(plan: Plan) -> Iterator[PlannedInstance]:
    """The second Region, if the plan has one."""
    return common.second_regions("aws", plan)


def replicas(plan: Plan) -> Iterator[PlannedInstance]:
    """Replicated buckets. Their replication is set up in the first Region."""
    for replica in common.replicas("aws", plan):
        yield replace(replica, values={"purpose": replica.values["purpose"]})


def image_copies(plan: Plan) -> Iterator[PlannedInstance]:
    """Copies of images in the second Region."""
    for above in second_regions(plan):
        for image in plan.recovery.images if plan.recovery else ():
            if image.copied:
                yield replace(above, values={**above.values, "image": image.ref})


def lag_alarms(plan: Plan) -> Iterator[PlannedInstance]:
    """Alarms on the replication lag of each bucket, in the second Region."""
    for above in replicas(plan):
        if plan.recovery:
            yield replace(above, values={**above.values, "region": plan.recovery.region})


def failure_alarms(plan: Plan) -> Iterator[PlannedInstance]:
    """Alarms on failed replications of each bucket, in the first Region."""
    for above in replicas(plan):
        yield replace(above, values={**above.values, "region": plan.region})


def change_alerts(plan: Plan) -> Iterator[PlannedInstance]:
    """The notification of changed replication rules, in the first Region."""
    for above in second_regions(plan):
        yield replace(above, values={"region": plan.region})


def alerts(plan: Plan) -> Iterator[PlannedInstance]:
    """Topics of the alarms, in both Regions."""
    for above in second_regions(plan):
        for region in (plan.region, above.values["region"]):
            yield replace(above, values={"region": region})


def alert_recipients(plan: Plan) -> Iterator[PlannedInstance]:
    """Subscriptions of the recipients to the topics."""
    return common.alert_recipients(plan, alerts(plan))


def buckets(plan: Plan) -> Iterator[PlannedInstance]:
    """Private buckets for access logs, audit records, evidence and file system data, and buckets that nodes mount."""
    for above in trails(plan):
        if _has_access_logs(plan):
            yield common.bucket("aws", above, "access", "access", common.AUDIT)
    yield from common.buckets("aws", plan, _lustre(plan))
    for above in second_regions(plan):
        if _has_access_logs(plan):
            yield common.bucket("aws", above, "access", "access", common.AUDIT)
    # The name of a bucket contains its Region.
    yield from common.replica_buckets("aws", plan, lambda purpose, region: purpose)


def locked_buckets(plan: Plan) -> Iterator[PlannedInstance]:
    """Buckets with Object Lock."""
    return (one for one in buckets(plan) if one.values["purpose"] == "audit")


def logged_buckets(plan: Plan) -> Iterator[PlannedInstance]:
    """Buckets with access logging: all buckets except the log destination."""
    return (one for one in buckets(plan) if _has_access_logs(plan) and one.values["purpose"] != "access")


def _network(plan: Plan) -> NetworkPlan | None:
    """The network, if this stack creates one."""
    created = "site" in plan.layers and plan.network and plan.network.existing_id is None
    return plan.network if created else None


def networks(plan: Plan) -> Iterator[PlannedInstance]:
    """The VPC."""
    if _network(plan):
        above = common.inside("aws", common.top(plan), "Network", "network", purpose="flow")
        yield replace(above, data=bool(retained_subnets(plan)))


def nat_networks(plan: Plan) -> Iterator[PlannedInstance]:
    """The VPC, if its nodes reach the internet through NAT gateways."""
    network = _network(plan)
    return networks(plan) if network and network.egress == "nat" else iter(())


def endpoint_networks(plan: Plan) -> Iterator[PlannedInstance]:
    """The VPC, if it has interface endpoints."""
    network = _network(plan)
    return networks(plan) if network and network.interface_endpoints else iter(())


def subnets(plan: Plan) -> Iterator[PlannedInstance]:
    """Subnets for nodes and for NAT gateways."""
    network = _network(plan)
    for instance in networks(plan):
        for subnet in network.subnets if network else ():
            tag = naming.logical(instance.component, subnet.name)
            retained = subnet.name in retained_subnets(plan)
            yield replace(instance, values={"subnet": subnet.name, "purpose": tag}, data=retained)


def nat_subnets(plan: Plan) -> Iterator[PlannedInstance]:
    """Subnets for NAT gateways."""
    network = _network(plan)
    names = {one.name for one in network.subnets if one.role == "nat"} if network else set()
    return (one for one in subnets(plan) if one.values["subnet"] in names)


def zones(plan: Plan) -> Iterator[PlannedInstance]:
    """Zones with nodes. Each zone has a route table."""
    network = _network(plan)
    for instance in networks(plan):
        zones_of_nodes = dict.fromkeys(one.zone for one in (network.subnets if network else ()) if one.role != "nat")
        for index in range(len(zones_of_nodes)):
            yield replace(instance, values={"index": index})


def nat_zones(plan: Plan) -> Iterator[PlannedInstance]:
    """Zones whose nodes reach the internet through a NAT gateway."""
    return zones(plan) if any(nat_networks(plan)) else iter(())


def gateway_endpoints(plan: Plan) -> Iterator[PlannedInstance]:
    """Gateway endpoints, which are route table targets."""
    network = _network(plan)
    return _endpoints(plan, network.gateway_endpoints if network else ())


def interface_endpoints(plan: Plan) -> Iterator[PlannedInstance]:
    """Interface endpoints, which have addresses in subnets."""
    network = _network(plan)
    return _endpoints(plan, network.interface_endpoints if network else ())


def _endpoints(plan: Plan, services: tuple[str, ...]) -> Iterator[PlannedInstance]:
    for instance in networks(plan):
        for service in services:
            yield replace(instance, values={"service": service.replace(".", "-")})


def security_groups(plan: Plan) -> Iterator[PlannedInstance]:
    """The security groups of a site."""
    if "site" in plan.layers:
        above = common.inside("aws", common.top(plan), "SecurityGroups", "security", purpose="storage")
        yield replace(above, data=bool(retained_subnets(plan)))


def storage_groups(plan: Plan) -> Iterator[PlannedInstance]:
    """The security group for the file servers of FSx."""
    return security_groups(plan) if any(_lustre(plan)) or any(openzfs(plan)) else iter(())


def home_groups(plan: Plan) -> Iterator[PlannedInstance]:
    """The security group for the mount targets of home directories on EFS."""
    return security_groups(plan) if any(_mounted_homes(plan)) else iter(())


def openzfs_rules(plan: Plan) -> Iterator[PlannedInstance]:
    """Rules for the ports of FSx for OpenZFS."""
    for instance in security_groups(plan) if any(openzfs(plan)) else ():
        for first, _ in OPENZFS_PORTS:
            yield replace(instance, values={"port": first})


def peer_rules(plan: Plan) -> Iterator[PlannedInstance]:
    """Pairs of rules between security groups."""
    lustre = [one for one, _ in _lustre(plan)]
    spans = 0 if not lustre else 1 if any(one.efa for one in lustre) else 2
    pairs = [f"{pair}-{index}" for pair in ("allow-storage", "allow-storage-nodes", "allow-nodes-storage") for index in range(spans)]  # fmt: skip
    for instance in security_groups(plan):
        for pair in ("allow-nodes", *pairs):
            yield replace(instance, values={"rule": pair})


@dataclass(frozen=True)
class DeclaredRule:
    """One network and one range of ports that the nodes accept."""

    protocol: str
    first: int
    last: int
    cidr: str

    @property
    def name(self) -> str:
        """Name that contains the values. AWS rejects a rule with the same values as another rule, and rules that are named by index could swap their values."""
        ports = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.protocol}-{ports}-from-{self.cidr.replace('.', '-').replace('/', '-')}"


def declared_rules(network: NetworkPlan | None) -> Iterator[DeclaredRule]:
    """Yield the rules for declared connections from other networks."""
    for entry in network.ingress if network else ():
        for ports in entry.ports:
            first, _, last = ports.partition("-")
            for cidr in entry.sources:
                yield DeclaredRule(entry.protocol, int(first), int(last or first), cidr)


def declared_ingress(plan: Plan) -> Iterator[PlannedInstance]:
    """Rules for declared connections from other networks."""
    for instance in security_groups(plan):
        for rule in declared_rules(_network(plan)):
            yield replace(instance, values={"rule": rule.name})


@dataclass(frozen=True)
class ExistingRule:
    """Traffic between the nodes and the security group of an existing file system."""

    group: str
    protocol: str
    first: int | None
    last: int | None
    both_ways: bool
    """Whether the file servers also open connections to the nodes, as Lustre does."""

    @property
    def name(self) -> str:
        """Name that contains the values, as in `DeclaredRule`."""
        ports = "all" if self.first is None else str(self.first) if self.first == self.last else f"{self.first}-{self.last}"  # fmt: skip
        return f"existing-{self.group}-{ports}"


LUSTRE_PORTS = ((988, 988), (1018, 1023))
"""TCP ports between Lustre clients and servers, in both directions
(https://docs.aws.amazon.com/fsx/latest/LustreGuide/limit-access-security-groups.html, retrieved 2026-08)."""
OPENZFS_PORTS = ((111, 111), (2049, 2049), (20001, 20003))
"""TCP ports from NFS clients to FSx for OpenZFS: portmapper, NFS, and mount, status monitor and lock daemon.
AWS also lists them for UDP, which the nodes do not
use (https://docs.aws.amazon.com/fsx/latest/OpenZFSGuide/limit-access-security-groups.html, as in aws/aws-parallelcluster: cli/src/pcluster/constants.py,
FSX_PORTS, retrieved 2026-11-27)."""
NFS_PORT = 2049
"""TCP port of EFS mount targets, with and without TLS (https://docs.aws.amazon.com/efs/latest/ug/network-access.html, retrieved 2026-11-22)."""


def existing_rules(plan: Plan) -> tuple[ExistingRule, ...]:
    """Return the rules of the nodes' security group for existing file systems. File systems with the same security group share their rules."""
    rules: list[ExistingRule] = []
    for existing_file_system in plan.existing_file_systems:
        group = existing_file_system.security_group or ""
        if existing_file_system.service == "openzfs":
            rules += [ExistingRule(group, "tcp", first, last, both_ways=False) for first, last in OPENZFS_PORTS]
        elif existing_file_system.kind == "home":
            rules.append(ExistingRule(group, "tcp", NFS_PORT, NFS_PORT, both_ways=False))
        elif existing_file_system.efa:
            rules.append(ExistingRule(group, "-1", None, None, both_ways=True))
        else:
            rules += [ExistingRule(group, "tcp", first, last, both_ways=True) for first, last in LUSTRE_PORTS]
    return tuple(dict.fromkeys(rules))


def existing_egress(plan: Plan) -> Iterator[PlannedInstance]:
    """Rules that let nodes reach existing file systems."""
    for instance in security_groups(plan):
        for rule in existing_rules(plan):
            yield replace(instance, values={"rule": rule.name})


def existing_ingress(plan: Plan) -> Iterator[PlannedInstance]:
    """Rules that let the servers of existing Lustre file systems reach the nodes."""
    for instance in security_groups(plan):
        for rule in existing_rules(plan):
            if rule.both_ways:
                yield replace(instance, values={"rule": rule.name})


def web_ports(plan: Plan) -> Iterator[PlannedInstance]:
    """Ports for node egress to the internet."""
    for instance in security_groups(plan):
        for port in WEB_PORTS:
            yield replace(instance, values={"port": port})


def _lustre(plan: Plan) -> Iterator[tuple[FileSystemPlan, PlannedInstance]]:
    for file_system in plan.file_systems:
        if file_system.kind == "lustre" and "site" in plan.layers:
            why = file_system.lifetime_reason or common.DATA
            above = common.inside(
                "aws", common.top(plan), "SharedFilesystem", file_system.name, purpose=file_system.name, why=why
            )
            yield file_system, replace(above, data=file_system.lifetime is Lifetime.KEPT)


def file_systems(plan: Plan) -> Iterator[PlannedInstance]:
    """Lustre file systems."""
    return (instance for _, instance in _lustre(plan))


def homes(plan: Plan) -> Iterator[PlannedInstance]:
    """EFS file systems for home directories, without those that another stack replicates."""
    replicas = {one.name for one in plan.file_systems if one.replica}
    return (one for one in _mounted_homes(plan) if one.values["purpose"] not in replicas)


def _mounted_homes(plan: Plan) -> Iterator[PlannedInstance]:
    return _homes(plan, "efs", "HomeDirectories")


def home_replicas(plan: Plan) -> Iterator[PlannedInstance]:
    """Replicas of the home directories, in the second Region."""
    for above in second_regions(plan):
        for home in plan.recovery.homes if plan.recovery else ():
            why = "the replica is needed after the first Region fails"
            yield replace(above, values={**above.values, "purpose": home.name, "why": why})


def home_replications(plan: Plan) -> Iterator[PlannedInstance]:
    """Replications of home directories, which are set up in the first Region."""
    for replica in home_replicas(plan):
        yield replace(replica, values={"purpose": replica.values["purpose"]})


def openzfs(plan: Plan) -> Iterator[PlannedInstance]:
    """FSx for OpenZFS file systems for home directories."""
    for home in _homes(plan, "openzfs", "OpenZfsHomeDirectories"):
        yield replace(home, data=True)


def _homes(plan: Plan, service: str, component: str) -> Iterator[PlannedInstance]:
    for file_system in plan.file_systems:
        if file_system.service == service and "site" in plan.layers:
            why = file_system.lifetime_reason
            yield common.inside("aws", common.top(plan), component, file_system.name, purpose=file_system.name, why=why)


def mount_targets(plan: Plan) -> Iterator[PlannedInstance]:
    """Mount targets of home directories: one in each node subnet, because each zone requires its own."""
    for instance in _mounted_homes(plan):
        for subnet in mount_subnets(plan):
            yield replace(instance, values={**instance.values, "subnet": subnet})


def mount_subnets(plan: Plan) -> tuple[str, ...]:
    """Return the names of the subnets in which nodes mount home directories."""
    return tuple(one.name for one in plan.network.subnets if one.role == "nodes") if plan.network else ()


def linked_file_systems(plan: Plan) -> Iterator[PlannedInstance]:
    """File systems that are linked to a bucket."""
    return (instance for one, instance in _lustre(plan) if one.bucket is not None)


def node_roles(plan: Plan) -> Iterator[PlannedInstance]:
    """The identity of the nodes, which the site or the cluster creates, and the identity of the control node."""
    yield from shared_roles(plan)
    if plan.monitoring and _pools(plan):
        yield PlannedInstance(component=naming.logical(plan.name, common.CONTROL_ROLE))


def set_stores(plan: Plan) -> Iterator[PlannedInstance]:
    """The workspace for metrics, if its retention is declared."""
    if plan.monitoring and plan.monitoring.store and plan.monitoring.store.retention_days is not None:
        yield from common.stores(plan)


def store_recipients(plan: Plan) -> Iterator[PlannedInstance]:
    """Recipients of the alerts of the workspace for metrics."""
    for instance in common.alerting_stores(plan):
        for index in range(len(plan.monitoring.store.recipients) if plan.monitoring and plan.monitoring.store else 0):
            yield replace(instance, values={"index": index})


def alert_emails(plan: Plan) -> Iterator[PlannedInstance]:
    """The receivers of alerts by email."""
    for email in plan.monitoring.emails if plan.monitoring else ():
        yield PlannedInstance(component=naming.logical(plan.name, email.receiver))


def email_recipients(plan: Plan) -> Iterator[PlannedInstance]:
    """Recipients of the alerts by email."""
    for email in plan.monitoring.emails if plan.monitoring else ():
        for index in range(len(email.recipients)):
            yield PlannedInstance(component=naming.logical(plan.name, email.receiver), values={"index": index})


def shared_roles(plan: Plan) -> Iterator[PlannedInstance]:
    """The identity of the nodes of the declared pools."""
    if "site" in plan.layers if plan.roles.node_role_in_site else _pools(plan):
        yield PlannedInstance(component=node_component(plan))


def node_component(plan: Plan) -> str:
    """Return the name of the component of the nodes' role. It is the same in the stack that creates the role and in the one that uses it."""
    return naming.logical(plan.name, "node")


def node_policies(plan: Plan) -> Iterator[PlannedInstance]:
    """Managed policies that the declaration attaches to the node role."""
    for instance in shared_roles(plan):
        for arn in plan.roles.node_policies:
            yield replace(instance, values={"token": naming.text_token(arn)})


def _pools(plan: Plan) -> tuple[PoolPlan, ...]:
    return tuple(plan.pools) if "cluster" in plan.layers else ()


def pinned_pools(plan: Plan) -> Iterator[PlannedInstance]:
    """Pools whose image is resolved from an SSM parameter or a name, and pinned."""
    for pool in _pools(plan):
        if pool.image.source != "id":
            token = naming.text_token(pool.image.ref)
            yield PlannedInstance(component=naming.logical(plan.name, pool.name), values={"token": token})


def placement_groups(plan: Plan) -> Iterator[PlannedInstance]:
    """Placement groups that pools create."""
    for pool in _pools(plan):
        for index in range(len(created_placement_groups(pool))):
            yield PlannedInstance(component=naming.logical(plan.name, pool.name), values={"index": index})


def schedules(plan: Plan) -> Iterator[PlannedInstance]:
    """Scheduled actions of groups with a time window."""
    for pool in _pools(plan):
        for group in pool.groups:
            for action, _ in schedule(group):
                yield PlannedInstance(component=naming.logical(plan.name, group.name), values={"action": action})


def schedule(group: Group) -> tuple[tuple[str, str], ...]:
    """Return the actions that scale a group with a time window up and down.
    If the window is already open, there is no start action, because an action cannot be in the past."""
    start = (("start", group.starts_at),) if group.starts_at and not group.count else ()
    end = (("end", group.ends_at),) if group.ends_at else ()
    return (*start, *end)


def created_placement_groups(pool: PoolPlan) -> tuple[str, ...]:
    """Placement groups that the pool creates, keyed by name in the plan. Existing placement groups are only referenced."""
    return tuple(
        dict.fromkeys(
            group.placement_group for group in pool.groups if group.placement_group and not group.placement_existing
        )
    )
