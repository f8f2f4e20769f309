"""What a plan will be made of: type and logical name of every resource, and which of them a destroy keeps.

Pure, so that `gpuinfra plan` can say it without an engine or an SDK.
The components are written in Pulumi's words and this list in a table's; a test holds the two together, resource by resource.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from gpuinfra import naming
from gpuinfra.clouds.gcp.names import repository
from gpuinfra.clouds.planned import Parents, PlannedResource
from gpuinfra.plan.model import FileSystemPlan, Lifetime, NetworkPlan, OwnNetwork, Plan, PoolPlan

AUDIT = "audit is kept: what happened in the project has to be readable after the cluster is gone"
KEY = "keys outlive what they encrypt"
GRANT = "a key that its services may not use opens nothing"
EVIDENCE = "evidence of nodes is read long after they are gone"
DATA = "holds data"
STANDS = "a kept file system lies behind it"

ZONAL = frozenset({"roce"})
"""Networks that belong to one zone, so that a cluster makes its own; each interface on one has a subnet of its own there."""

PRIVATE_DOMAINS = ("googleapis.com", "pkg.dev")
"""Domains that are answered inside a network without a way out: Google's APIs, and its registries of packages and images."""

BUCKET = "gcp:storage/bucket:Bucket"
GRANT_ON_BUCKET = "gcp:storage/bucketIAMMember:BucketIAMMember"
GRANT_ON_KEY = "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember"
LOG_BUCKET = "gcp:logging/projectBucketConfig:ProjectBucketConfig"
SINK = "gcp:logging/projectSink:ProjectSink"
NETWORK = "gcp:compute/network:Network"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
FIREWALL = "gcp:compute/firewall:Firewall"


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """What a kept thing is called in the project, before project, region and stack are put into the name."""

    kind: str
    """`bucket`, `ring`, `key`, `logs`, `network`, `address`, `connection`, `lustre`, `filestore`."""
    purpose: str
    """The part of its name that says what it is for."""
    zone: str = ""


def resources(plan: Plan) -> tuple[PlannedResource[Lookup], ...]:
    """Every resource that the project will hold, in no particular order."""
    found = [
        PlannedResource(type="gcp:projects/service:Service", name=naming.logical(plan.name, "services", api))
        for api in apis(plan)
    ]
    if "foundation" in plan.layers:
        found += _foundation(plan)
    if "site" in plan.layers:
        if plan.network:
            found += _network(plan, plan.network)
        for file_system in plan.file_systems:
            found += _file_system(plan, file_system)
    if "cluster" in plan.layers and plan.pools:
        for network in plan.own_networks:
            found += _own_network(naming.logical(plan.name, network.name), network)
        found += _node_role(naming.logical(plan.name, "node"), plan.registry)
        if plan.network and plan.network.existing_id is not None:
            found.append(PlannedResource(type=FIREWALL, name=naming.logical(plan.name, "neighbours", "in")))
        for pool in plan.pools:
            found += _pool(plan.name, pool)
        found.append(PlannedResource(type="gpuinfra:index:NodesReady", name=naming.logical(plan.name, "ready")))
    return tuple(found)


def apis(plan: Plan) -> tuple[str, ...]:
    """APIs that the plan's layers call, `compute` for compute.googleapis.com."""
    wanted = {"cloudresourcemanager", "iam", "serviceusage"}
    if "foundation" in plan.layers:
        wanted |= {"cloudkms", "compute", "logging", "storage"}
        if plan.budget:
            wanted |= {"billingbudgets", *(["monitoring"] if plan.budget.recipients else [])}
    if "site" in plan.layers:
        wanted |= {"cloudkms", "compute", "storage"} if plan.file_systems else {"compute"}
        wanted |= {{"lustre": "lustre", "home": "file"}.get(one.kind, "storage") for one in plan.file_systems}
        if plan.network and plan.network.existing_id is None:
            wanted |= {"dns", "logging", *(["servicenetworking"] if plan.network.service_range else [])}
    if "cluster" in plan.layers and plan.pools:
        wanted |= {"compute", "storage"}
    return tuple(sorted(wanted))


def keeps_network(plan: Plan) -> bool:
    """True where a kept file system lies behind the network that this plan makes; Google deletes no network that is peered for one."""
    made = "site" in plan.layers and plan.network is not None and plan.network.existing_id is None
    return made and any(one.lifetime is Lifetime.KEPT and one.kind in ("lustre", "home") for one in plan.file_systems)


def secure_boot(pool: PoolPlan) -> bool:
    """Whether a pool's nodes start signed code only: not where a step loads modules that nobody signed for the machine (gcp.md 6.2)."""
    unsigned = ("30-driver", "50-", "60-lustre")
    return not any(step.id.startswith(unsigned) for step in pool.steps)


def nic_subnets(pool: PoolPlan) -> tuple[str, ...]:
    """The plan's name of the subnet of each interface, in the interfaces' order."""
    taken: Counter[str] = Counter()
    found = []
    for nic in pool.nics:
        own = f"{nic.network}-{taken[nic.network]}" if nic.network in ZONAL else nic.network
        found.append(pool.subnet if nic.network == "main" else own)
        taken[nic.network] += 1
    return tuple(found)


def near(pool: PoolPlan) -> tuple[str, ...]:
    """The plan's names of the placement policies that the pool makes."""
    return tuple(dict.fromkeys(group.placement_group for group in pool.groups if group.placement_group))


def _top(plan: Plan) -> Parents:
    return (("gpuinfra:index:GpuCluster", plan.name),)


def _foundation(plan: Plan) -> Iterator[PlannedResource[Lookup]]:
    name = naming.logical(plan.name, "foundation")
    within: Parents = (*_top(plan), ("gpuinfra:gcp:Foundation", name))
    if plan.audit.trail:
        yield from _audit(within, naming.logical(name, "audit"), existing=plan.audit.existing_bucket is not None)
    yield from _key(within, naming.logical(name, "data"), "data", "compute", "storage")
    evidence = naming.logical(name, "evidence")
    within_evidence: Parents = (*within, ("gpuinfra:gcp:Evidence", evidence))
    yield _bucket(within_evidence, naming.logical(evidence, "store"), "evidence", EVIDENCE)
    for index in range(len(plan.evidence.operators)):
        yield PlannedResource(type=GRANT_ON_BUCKET, name=naming.logical(evidence, "reader", index))
    if plan.budget:
        budget = naming.logical(name, "budget")
        yield PlannedResource(type="gcp:billing/budget:Budget", name=naming.logical(budget, "month"))
        for index in range(len(plan.budget.recipients)):
            channel = naming.logical(budget, "mail", index)
            yield PlannedResource(type="gcp:monitoring/notificationChannel:NotificationChannel", name=channel)


def _audit(above: Parents, name: str, *, existing: bool) -> Iterator[PlannedResource[Lookup]]:
    within: Parents = (*above, ("gpuinfra:gcp:AuditTrail", name))
    yield from _key(within, naming.logical(name, "key"), "audit", "logging", "storage")
    yield PlannedResource(type="gcp:projects/iAMAuditConfig:IAMAuditConfig", name=naming.logical(name, "config"))
    yield PlannedResource(
        type=LOG_BUCKET,
        name=naming.logical(name, "logs"),
        retained=AUDIT,
        parents=within,
        lookup=Lookup(kind="logs", purpose="audit"),
    )
    yield PlannedResource(type=SINK, name=naming.logical(name, "everything"))
    if not existing:
        yield _bucket(within, naming.logical(name, "records"), "audit", AUDIT)
    yield PlannedResource(type=SINK, name=naming.logical(name, "records"))
    yield PlannedResource(type=GRANT_ON_BUCKET, name=naming.logical(name, "writer"))


def _key(within: Parents, name: str, purpose: str, *users: str) -> Iterator[PlannedResource[Lookup]]:
    for part, type_ in (("ring", "gcp:kms/keyRing:KeyRing"), ("key", "gcp:kms/cryptoKey:CryptoKey")):
        lookup = Lookup(kind=part, purpose=purpose)
        yield PlannedResource(type=type_, name=naming.logical(name, part), retained=KEY, parents=within, lookup=lookup)
    for user in users:
        yield PlannedResource(type=GRANT_ON_KEY, name=naming.logical(name, user), retained=GRANT, parents=within)


def _bucket(within: Parents, name: str, purpose: str, why: str) -> PlannedResource[Lookup]:
    return PlannedResource(
        type=BUCKET,
        name=naming.logical(name, "bucket"),
        retained=why,
        parents=within,
        lookup=Lookup(kind="bucket", purpose=purpose),
    )


def _network(plan: Plan, network: NetworkPlan) -> Iterator[PlannedResource[Lookup]]:
    name = naming.logical(plan.name, "network")
    within: Parents = (*_top(plan), ("gpuinfra:gcp:Network", name))
    for extra in network.extra:
        yield PlannedResource(type=NETWORK, name=naming.logical(name, extra.name))
        yield PlannedResource(type=FIREWALL, name=naming.logical(name, extra.name, "walls", "inside-in"))
    for subnet in network.subnets:
        if subnet.existing_id is None:
            yield PlannedResource(type=SUBNETWORK, name=naming.logical(name, subnet.name))
    if network.existing_id is not None:
        return
    keep = STANDS if keeps_network(plan) else None
    services = naming.logical(name, "services")
    yield _behind(keep, within, NETWORK, naming.logical(name, "main"), "network")
    if network.service_range:
        yield _behind(keep, within, "gcp:compute/globalAddress:GlobalAddress", services, "address")
        yield _behind(keep, within, "gcp:servicenetworking/connection:Connection", services, "connection")
    for wall in _walls(network, lustre=any(one.kind == "lustre" for one in plan.file_systems)):
        yield PlannedResource(type=FIREWALL, name=naming.logical(name, "walls", wall))
    if network.egress == "nat":
        yield PlannedResource(type="gcp:compute/router:Router", name=naming.logical(name, "router"))
        yield PlannedResource(type="gcp:compute/routerNat:RouterNat", name=naming.logical(name, "nat"))
    yield PlannedResource(type="gcp:dns/policy:Policy", name=naming.logical(name, "names"))
    if network.egress == "endpoints":
        for domain in PRIVATE_DOMAINS:
            zone = naming.logical(name, "apis", domain.replace(".", "-"))
            yield PlannedResource(type="gcp:dns/managedZone:ManagedZone", name=zone)
            for word in ("here", "below"):
                yield PlannedResource(type="gcp:dns/recordSet:RecordSet", name=naming.logical(zone, word))
    flow = naming.logical(name, "flow")
    yield PlannedResource(
        type=LOG_BUCKET, name=flow, retained=AUDIT, parents=within, lookup=Lookup(kind="logs", purpose="flow")
    )
    yield PlannedResource(type=SINK, name=flow)


def _behind(keep: str | None, within: Parents, type_: str, name: str, kind: str) -> PlannedResource[Lookup]:
    """What a kept file system stands on, or the same where none is kept."""
    if keep is None:
        return PlannedResource(type=type_, name=name)
    return PlannedResource(type=type_, name=name, retained=keep, parents=within, lookup=Lookup(kind=kind, purpose=name))


def _walls(network: NetworkPlan, *, lustre: bool) -> Iterator[str]:
    yield from ("inside-in", "inside-out", "closed-in", "closed-out", "web-out")
    if network.ssh_from:
        yield "ssh-in"
    if network.service_range:
        yield "files-out"
    if network.service_range and lustre:
        yield "files-in"


def _own_network(name: str, network: OwnNetwork) -> Iterator[PlannedResource[Lookup]]:
    yield PlannedResource(type=NETWORK, name=name)
    for index in range(len(network.subnets)):
        yield PlannedResource(type=SUBNETWORK, name=naming.logical(name, index))


def _file_system(plan: Plan, one: FileSystemPlan) -> Iterator[PlannedResource[Lookup]]:
    if one.kind not in ("lustre", "home"):
        return
    name = naming.logical(plan.name, one.name)
    within: Parents = (*_top(plan), ("gpuinfra:gcp:SharedFilesystem", name))
    stays = one.lifetime_reason or DATA if one.lifetime is Lifetime.KEPT else None
    lustre = one.kind == "lustre"
    yield PlannedResource(type="gcp:projects/serviceIdentity:ServiceIdentity", name=naming.logical(name, "agent"))
    yield PlannedResource(type=GRANT_ON_KEY, name=naming.logical(name, "key"), retained=GRANT, parents=within)
    yield PlannedResource(
        type="gcp:lustre/instance:Instance" if lustre else "gcp:filestore/instance:Instance",
        name=naming.logical(name, "lustre" if lustre else "home"),
        retained=stays,
        parents=within if stays else (),
        lookup=Lookup(kind="lustre" if lustre else "filestore", purpose=name, zone=one.zone or "") if stays else None,
    )
    if one.bucket == "auto":
        yield _bucket(within, naming.logical(name, "data"), one.name, DATA)
    if one.bucket is not None:
        for word in ("objects", "bucket"):
            yield PlannedResource(type=GRANT_ON_BUCKET, name=naming.logical(name, "data", word))


def _node_role(name: str, registry: str | None) -> Iterator[PlannedResource[Lookup]]:
    if repository(registry or ""):
        type_ = "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember"
        yield PlannedResource(type=type_, name=naming.logical(name, "images"))
    yield PlannedResource(type="gcp:serviceaccount/account:Account", name=naming.logical(name, "account"))
    for what in ("bundle", "evidence", "proof", "meeting"):
        yield PlannedResource(type=GRANT_ON_BUCKET, name=naming.logical(name, what))


def _pool(cluster: str, pool: PoolPlan) -> Iterator[PlannedResource[Lookup]]:
    yield PlannedResource(
        type="gcp:storage/bucketObject:BucketObject", name=naming.logical(cluster, pool.name, "bundle")
    )
    for wish in near(pool):
        yield PlannedResource(type="gcp:compute/resourcePolicy:ResourcePolicy", name=naming.logical(cluster, wish))
    for group in pool.groups:
        logical = naming.logical(cluster, group.name)
        template = naming.logical(logical, "template")
        yield PlannedResource(type="gcp:compute/instanceTemplate:InstanceTemplate", name=template)
        yield PlannedResource(type="gcp:compute/instanceGroupManager:InstanceGroupManager", name=logical)
        if group.kind == "flex":
            request = naming.logical(logical, "request")
            yield PlannedResource(type="gcp:compute/resizeRequest:ResizeRequest", name=request)
