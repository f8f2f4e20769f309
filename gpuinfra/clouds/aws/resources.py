"""What a plan will be made of: type and logical name of every resource, and which of them a destroy keeps.

Pure, so that `gpuinfra plan` can say it without an engine or an SDK.
The components are written in Pulumi's words and this list in a table's; a test holds the two together, resource by resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gpuinfra import naming
from gpuinfra.clouds.planned import Made, Parents
from gpuinfra.plan.model import FileSystemPlan, Group, Lifetime, NetworkPlan, Plan, PoolPlan

AUDIT = "audit is kept: what happened in the account has to be readable after the cluster is gone"
KEY = "keys outlive what they encrypt"
EVIDENCE = "evidence of nodes is read long after they are gone"
DATA = "holds data"
SETTINGS = "a bucket whose settings are gone is not locked any more"
STANDS = "a kept file system lies in it"
WRITES = "a kept file system writes to it"


@dataclass(frozen=True, kw_only=True)
class Handle:
    """What a thing is called in the account, before its region, account and stack are put into the name."""

    kind: str
    """`bucket`, `key`, `alias`, `logs`, `vpc`, `subnet`, `security-group`, `file-system`, `file-system-logs`."""
    purpose: str
    """The part of its name that says what it is for."""


@dataclass(frozen=True, kw_only=True)
class Thing(Made):
    """One resource of a plan."""

    handle: Handle | None = None
    """How a kept thing is found again in the account."""


def things(plan: Plan) -> tuple[Thing, ...]:
    """Every resource that a cloud will hold, in no particular order."""
    found: list[Thing] = []
    audited = "foundation" in plan.layers and plan.audit.trail
    logged = audited and plan.audit.existing_bucket is None
    if "foundation" in plan.layers:
        found += _foundation(plan, audited=audited, logged=logged)
    if "site" in plan.layers:
        if plan.network and plan.network.existing_id is None:
            name = naming.logical(plan.name, "network")
            found += _network(_top(plan), name, plan.network, kept_subnets(plan))
        found += _security(plan)
        for file_system in plan.file_systems:
            found += _file_system(plan, file_system, logged=logged)
    if "cluster" in plan.layers and plan.pools:
        found += _node_role(naming.logical(plan.name, "node"))
        for pool in plan.pools:
            found += _pool(plan.name, pool)
        found.append(Thing(type="gpuinfra:index:NodesReady", name=naming.logical(plan.name, "ready")))
    return tuple(found)


def kept_subnets(plan: Plan) -> frozenset[str]:
    """Subnets that kept file systems lie in, by the plan's names.

    AWS deletes no subnet, network or security group that a file system has interfaces in, so they stay with it.
    """
    made = "site" in plan.layers
    return frozenset(
        one.subnet for one in plan.file_systems if made and one.kind == "lustre" and one.lifetime is Lifetime.KEPT
    )


def _top(plan: Plan) -> Parents:
    return (("gpuinfra:index:GpuCluster", plan.name),)


def _foundation(plan: Plan, *, audited: bool, logged: bool) -> Iterator[Thing]:
    name = naming.logical(plan.name, "foundation")
    audit = naming.logical(name, "audit")
    within: Parents = (*_top(plan), ("gpuinfra:aws:Foundation", name))
    within_audit: Parents = (*within, ("gpuinfra:aws:AuditTrail", audit))
    if audited:
        yield from _key(within_audit, naming.logical(audit, "key"), "audit")
        events = naming.logical(audit, "events")
        yield _log_group(within_audit, events, "trail")
        yield Thing(type="aws:iam/role:Role", name=events)
        yield Thing(type="aws:iam/rolePolicy:RolePolicy", name=events)
        yield Thing(type="aws:cloudtrail/trail:Trail", name=naming.logical(audit, "trail"))
    if logged:
        yield from _bucket(within_audit, naming.logical(audit, "access"), "access", AUDIT)
        yield from _bucket(within_audit, naming.logical(audit, "records"), "audit", AUDIT, "lock", "logging")
    yield from _key(within, naming.logical(name, "data"), "data")
    evidence = naming.logical(name, "evidence")
    within_evidence: Parents = (*within, ("gpuinfra:aws:Evidence", evidence))
    extras = ("logging",) if logged else ()
    yield from _bucket(within_evidence, naming.logical(evidence, "store"), "evidence", EVIDENCE, *extras)
    if plan.budget:
        yield Thing(type="aws:budgets/budget:Budget", name=naming.logical(name, "budget", "month"))


def _key(within: Parents, name: str, purpose: str) -> Iterator[Thing]:
    for part, type_ in (("key", "aws:kms/key:Key"), ("alias", "aws:kms/alias:Alias")):
        handle = Handle(kind=part, purpose=purpose)
        yield Thing(type=type_, name=naming.logical(name, part), kept=KEY, parents=within, handle=handle)


def _log_group(within: Parents, name: str, purpose: str) -> Thing:
    handle = Handle(kind="logs", purpose=purpose)
    return Thing(type="aws:cloudwatch/logGroup:LogGroup", name=name, kept=AUDIT, parents=within, handle=handle)


_BUCKET_SETTINGS = {
    "public": "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
    "ownership": "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
    "versioning": "aws:s3/bucketVersioning:BucketVersioning",
    "encryption": "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    "policy": "aws:s3/bucketPolicy:BucketPolicy",
    "lifecycle": "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
}
_BUCKET_EXTRAS = {
    "lock": "aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration",
    "logging": "aws:s3/bucketLogging:BucketLogging",
}


def _bucket(within: Parents, name: str, purpose: str, why: str, *extras: str) -> Iterator[Thing]:
    # A setting of a bucket has the bucket's name as its id.
    handle = Handle(kind="bucket", purpose=purpose)
    settings = {**_BUCKET_SETTINGS, **{part: _BUCKET_EXTRAS[part] for part in extras}}
    yield Thing(
        type="aws:s3/bucket:Bucket", name=naming.logical(name, "bucket"), kept=why, parents=within, handle=handle
    )
    for part, type_ in settings.items():
        yield Thing(type=type_, name=naming.logical(name, part), kept=SETTINGS, parents=within, handle=handle)


def _network(within: Parents, name: str, plan: NetworkPlan, stays: frozenset[str]) -> Iterator[Thing]:
    inside: Parents = (*within, ("gpuinfra:aws:Network", name))

    def thing(type_: str, *parts: str | int) -> Thing:
        return Thing(type=type_, name=naming.logical(name, *parts))

    def ground(type_: str, kind: str, purpose: str, part: str, *, stays: bool) -> Thing:
        handle = Handle(kind=kind, purpose=purpose)
        return _stands(thing(type_, part), inside, handle) if stays else thing(type_, part)

    yield ground("aws:ec2/vpc:Vpc", "vpc", name, "vpc", stays=bool(stays))
    yield thing("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", "default-group")
    for subnet in plan.subnets:
        tag = naming.logical(name, subnet.name)
        yield ground("aws:ec2/subnet:Subnet", "subnet", tag, subnet.name, stays=subnet.name in stays)
        yield thing("aws:ec2/routeTableAssociation:RouteTableAssociation", subnet.name, "routes")
        if subnet.role == "nat":
            yield thing("aws:ec2/eip:Eip", subnet.name, "address")
            yield thing("aws:ec2/natGateway:NatGateway", subnet.name, "gateway")
    nat = plan.egress == "nat"
    if nat:
        yield thing("aws:ec2/internetGateway:InternetGateway", "internet")
        yield thing("aws:ec2/routeTable:RouteTable", "nat-routes", 0)
        yield thing("aws:ec2/route:Route", "nat-way-out", 0)
    zones = dict.fromkeys(subnet.zone for subnet in plan.subnets if subnet.role != "nat")
    for index in range(len(zones)):
        yield thing("aws:ec2/routeTable:RouteTable", "private-routes", index)
        if nat:
            yield thing("aws:ec2/route:Route", "private-way-out", index)
    for service in (*plan.gateway_endpoints, *plan.interface_endpoints):
        yield thing("aws:ec2/vpcEndpoint:VpcEndpoint", "endpoint", service.replace(".", "-"))
    if plan.interface_endpoints:
        yield thing("aws:ec2/securityGroup:SecurityGroup", "endpoints")
        yield thing("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "endpoints", "https")
    yield _log_group(inside, naming.logical(name, "flow"), "flow")
    yield thing("aws:iam/role:Role", "flow")
    yield thing("aws:iam/rolePolicy:RolePolicy", "flow")
    yield thing("aws:ec2/flowLog:FlowLog", "flow")


def _stands(thing: Thing, within: Parents, handle: Handle) -> Thing:
    """The thing, kept because of the file system in it."""
    return replace(thing, kept=STANDS, parents=within, handle=handle)


def _security(plan: Plan) -> Iterator[Thing]:
    name = naming.logical(plan.name, "security")
    lustre = [one for one in plan.file_systems if one.kind == "lustre"]
    pairs = ["fabric"]
    groups = ["nodes"]
    if lustre:
        groups.append("storage")
        spans = 1 if any(one.efa for one in lustre) else 2
        pairs += [
            naming.logical(pair, index)
            for pair in ("servers", "servers-nodes", "nodes-servers")
            for index in range(spans)
        ]
    for group in groups:
        made = Thing(type="aws:ec2/securityGroup:SecurityGroup", name=naming.logical(name, group))
        if group == "storage" and kept_subnets(plan):
            made = _stands(made, _top(plan), Handle(kind="security-group", purpose=group))
        yield made
    for pair in pairs:
        yield Thing(
            type="aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", name=naming.logical(name, pair, "in")
        )
        yield Thing(
            type="aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", name=naming.logical(name, pair, "out")
        )
    for port in (80, 443):
        yield Thing(
            type="aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", name=naming.logical(name, "web", port)
        )


def _file_system(plan: Plan, file_system: FileSystemPlan, *, logged: bool) -> Iterable[Thing]:
    if file_system.kind != "lustre":
        return
    name = naming.logical(plan.name, file_system.name)
    stays = file_system.lifetime_reason or DATA if file_system.lifetime is Lifetime.KEPT else None
    within: Parents = (*_top(plan), ("gpuinfra:aws:SharedFilesystem", name))
    yield Thing(
        type="aws:cloudwatch/logGroup:LogGroup",
        name=naming.logical(name, "log"),
        kept=WRITES if stays else None,
        parents=within if stays else (),
        handle=Handle(kind="file-system-logs", purpose=file_system.name) if stays else None,
    )
    yield Thing(
        type="aws:fsx/lustreFileSystem:LustreFileSystem",
        name=naming.logical(name, "lustre"),
        kept=stays,
        parents=within if stays else (),
        handle=Handle(kind="file-system", purpose=name) if stays else None,
    )
    if file_system.bucket == "auto":
        extras = ("logging",) if logged else ()
        yield from _bucket(within, naming.logical(name, "data"), file_system.name, DATA, *extras)
    if file_system.bucket is not None:
        yield Thing(
            type="aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation", name=naming.logical(name, "link")
        )


def _node_role(name: str) -> Iterator[Thing]:
    yield Thing(type="aws:iam/role:Role", name=naming.logical(name, "role"))
    yield Thing(type="aws:iam/rolePolicy:RolePolicy", name=naming.logical(name, "own"))
    yield Thing(type="aws:iam/rolePolicyAttachment:RolePolicyAttachment", name=naming.logical(name, "sessions"))
    yield Thing(type="aws:iam/instanceProfile:InstanceProfile", name=naming.logical(name, "profile"))


def _pool(cluster: str, pool: PoolPlan) -> Iterator[Thing]:
    name = naming.logical(cluster, pool.name)
    yield Thing(type="aws:s3/bucketObjectv2:BucketObjectv2", name=naming.logical(name, "bundle"))
    if pool.image.source == "ssm":
        yield Thing(
            type="aws:ssm/parameter:Parameter", name=naming.logical(name, "image", naming.text_token(pool.image.ref))
        )
    for index in range(len(made_placement_groups(pool))):
        yield Thing(type="aws:ec2/placementGroup:PlacementGroup", name=naming.logical(name, "placement", index))
    for group in pool.groups:
        logical = naming.logical(cluster, group.name)
        yield Thing(type="aws:ec2/launchTemplate:LaunchTemplate", name=naming.logical(logical, "template"))
        yield Thing(type="aws:autoscaling/group:Group", name=logical)
        for what, _moment in window(group):
            yield Thing(type="aws:autoscaling/schedule:Schedule", name=naming.logical(logical, what))


def window(group: Group) -> tuple[tuple[str, str], ...]:
    """What fills and empties a group with a window. One that is open already is filled from its first day: no action can lie in the past."""
    start = (("start", group.starts_at),) if group.starts_at and not group.count else ()
    end = (("end", group.ends_at),) if group.ends_at else ()
    return (*start, *end)


def made_placement_groups(pool: PoolPlan) -> tuple[str, ...]:
    """The plan's names of the placement groups that the pool makes; one that is there already is only named."""
    return tuple(
        dict.fromkeys(
            group.placement_group for group in pool.groups if group.placement_group and not group.placement_existing
        )
    )
