"""What a plan will be made of: type and logical name of every resource, and which of them a destroy keeps.

Pure, so that `gpuinfra plan` can say it without an engine or an SDK.
The components are written in Pulumi's words and this list in a table's; a test holds the two together, resource by resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gpuinfra import naming
from gpuinfra.clouds.planned import Parents, PlannedResource
from gpuinfra.plan.model import FileSystemPlan, Lifetime, NetworkPlan, Plan, PoolPlan, Subnet

AUDIT = "audit is kept: what happened in the subscription has to be readable after the cluster is gone"
KEY = "keys outlive what they encrypt"
EVIDENCE = "evidence of nodes is read long after they are gone"
DATA = "holds data"
SETTINGS = "an account whose settings are gone is not private any more"
HOLDS = "deleting a resource group deletes what is kept in it"
STANDS = "a kept file system lies in it"

EVIDENCE_CONTAINER = "evidence"
BUNDLES = "bootstrap"
"""Folder of bundles in the evidence container."""
ACTIVITY_CONTAINER = "insights-activity-logs"
"""Container that Azure Monitor writes the Activity Log into; nobody can choose another name."""
DATA_CONTAINER = "data"
LOG_CONTAINER = "import-log"
BASTION_SUBNET = "AzureBastionSubnet"
"""The one name that Bastion takes (azure.md 5.2)."""
REGIONAL = "regional"
"""The zone of what names none: the cloud picks."""
ENDPOINTS_SUBNET = "endpoints-0"
ZONES = {"blob": "privatelink.blob.core.windows.net", "vault": "privatelink.vaultcore.azure.net"}
"""Kind of endpoint -> zone that answers its name (azure.md 5.2)."""

WORKSPACE_DAYS = (30, 730)
"""Fewest and most days that Log Analytics keeps what can be searched at once."""
LEAST_BATCH_PERCENT = 5
"""Smallest batch of a rolling upgrade that Azure takes."""


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """What a kept thing is called in the subscription, before its subscription and stack are put into the name."""

    kind: str
    """`group`, `vault`, `key`, `identity`, `grant`, `workspace`, `account`, `blobs`, `lifecycle`, `container`, `lock`, `network`, `subnet`, `security-group`, `gateway`, `address`, `file-system`."""
    layer: str
    """Whose resource group it is in."""
    purpose: str = ""
    """The part of its name that says what it is for."""
    part: str = ""
    """A container of an account, a subnet of a network."""


def resources(plan: Plan) -> tuple[PlannedResource[Lookup], ...]:
    """Every resource that a cloud will hold, in no particular order."""
    found: list[PlannedResource[Lookup]] = []
    searched = "foundation" in plan.layers and plan.audit.trail
    logged = searched and plan.audit.data_events
    if "foundation" in plan.layers:
        found += _foundation(plan, searched=searched, logged=logged)
    if "site" in plan.layers and plan.network:
        found.append(_thing(GROUP, _top(plan), plan.name, "site", retained=HOLDS, lookup=_at("group", "site")))
        found += _security(plan, plan.network)
        if plan.network.existing_id is None:
            found += _network(plan, plan.network)
        found += _endpoints(plan, plan.network)
        for file_system in plan.file_systems:
            found += _file_system(plan, plan.network, file_system, logged=logged)
    if "cluster" in plan.layers and plan.pools:
        found.append(_thing(GROUP, _top(plan), plan.name, "nodes"))
        found += _node_role(plan)
        for pool in plan.pools:
            found += _pool(plan.name, pool)
        found.append(PlannedResource(type="gpuinfra:index:NodesReady", name=naming.logical(plan.name, "ready")))
    return tuple(found)


def kept_subnets(plan: Plan) -> frozenset[str]:
    """Subnets that kept file systems lie in, by the plan's names.

    Azure deletes no subnet, network, security group or gateway that something uses, so they stay with it.
    """
    made = "site" in plan.layers
    return frozenset(
        one.subnet for one in plan.file_systems if made and one.kind == "lustre" and one.lifetime is Lifetime.KEPT
    )


def uses_way_out(subnet: Subnet, plan: NetworkPlan) -> bool:
    """Whether a subnet has the NAT gateway: nodes where the plan says so, file systems always, because their service is managed through it."""
    return subnet.role == "storage" or (subnet.role == "nodes" and plan.egress == "nat")


def has_way_out(plan: NetworkPlan) -> bool:
    """Whether the network has a NAT gateway."""
    return any(uses_way_out(subnet, plan) for subnet in plan.subnets)


def way_out_zone(plan: Plan) -> str | None:
    """The zone of the NAT gateway, where all nodes are in one; elsewhere it belongs to none."""
    return plan.zones[0] if len(plan.zones) == 1 and plan.zones[0].isdigit() else None


def way_out_name(zone: str | None) -> str:
    """What gateway and address are called: with their zone, which cannot be changed, so that another zone's stand beside them."""
    return f"way-out-{zone}" if zone else "way-out"


GROUP = "azure-native:resources:ResourceGroup"
_CLUSTER = "gpuinfra:index:GpuCluster"
_BLOB = "azure-native:storage:BlobContainer"
_GRANT = "azure-native:authorization:RoleAssignment"
_IDENTITY = "azure-native:managedidentity:UserAssignedIdentity"
_DIAGNOSTIC = "azure-native:monitor:DiagnosticSetting"
_ADDRESS = "azure-native:network:PublicIPAddress"


def _at(kind: str, layer: str, purpose: str = "") -> Lookup:
    return Lookup(kind=kind, layer=layer, purpose=purpose)


def _top(plan: Plan) -> Parents:
    return ((_CLUSTER, plan.name),)


def _thing(
    type_: str, within: Parents, *parts: str | int, retained: str | None = None, lookup: Lookup | None = None
) -> PlannedResource[Lookup]:
    return PlannedResource(
        type=type_,
        name=naming.logical(str(parts[0]), *parts[1:]),
        retained=retained,
        parents=within if retained else (),
        lookup=lookup if retained else None,
    )


def _foundation(plan: Plan, *, searched: bool, logged: bool) -> Iterator[PlannedResource[Lookup]]:
    name = naming.logical(plan.name, "foundation")
    within: Parents = (*_top(plan), ("gpuinfra:azure:Foundation", name))
    yield _thing(GROUP, within, name, "group", retained=HOLDS, lookup=_at("group", "foundation"))
    vault = naming.logical(name, "vault")
    yield _thing(
        "azure-native:keyvault:Vault",
        within,
        vault,
        "vault",
        retained=KEY,
        lookup=_at("vault", "foundation"),
    )
    if searched:
        audit = naming.logical(name, "audit")
        within_audit: Parents = (*within, ("gpuinfra:azure:AuditTrail", audit))
        yield _thing(_DIAGNOSTIC, within, vault, "requests")
        yield _thing(
            "azure-native:operationalinsights:Workspace",
            within_audit,
            audit,
            "logs",
            retained=AUDIT,
            lookup=_at("workspace", "foundation", "logs"),
        )
        yield _thing("azure-native:monitor:SubscriptionDiagnosticSetting", within_audit, audit, "activity")
        if plan.audit.existing_bucket is None:
            yield from _key(within, naming.logical(name, "key", "audit"), "audit")
            records = naming.logical(audit, "records")
            yield from _store(
                within_audit,
                records,
                _at("account", "foundation", "audit"),
                (ACTIVITY_CONTAINER,),
                AUDIT,
                locked=True,
                logged=logged,
            )
    yield from _key(within, naming.logical(name, "key", "data"), "data")
    evidence = naming.logical(name, "evidence")
    within_evidence: Parents = (*within, ("gpuinfra:azure:Evidence", evidence))
    store = naming.logical(evidence, "store")
    yield from _store(
        within_evidence,
        store,
        _at("account", "foundation", "evidence"),
        (EVIDENCE_CONTAINER,),
        EVIDENCE,
        logged=logged,
    )
    for index in range(max(1, len(plan.evidence.operators))):
        yield _thing(_GRANT, within_evidence, evidence, "operator", index)
    yield _thing("azure-native:compute:DiskEncryptionSet", within, name, "disks")
    if plan.budget:
        yield _thing("azure-native:consumption:Budget", within, name, "budget", "month")


def _key(within: Parents, name: str, purpose: str) -> Iterator[PlannedResource[Lookup]]:
    for kind, type_, part in (
        ("key", "azure-native:keyvault:Key", "key"),
        ("identity", _IDENTITY, "user"),
        ("grant", _GRANT, "use"),
    ):
        yield _thing(type_, within, name, part, retained=KEY, lookup=_at(kind, "foundation", purpose))


def _store(
    within: Parents,
    name: str,
    place: Lookup,
    containers: Iterable[str],
    why: str,
    *,
    locked: bool = False,
    logged: bool = False,
) -> Iterator[PlannedResource[Lookup]]:
    """An account with its settings; `place` is the account's own handle."""

    def thing(type_: str, kind: str, why: str, *parts: str, part: str = "") -> PlannedResource[Lookup]:
        return _thing(type_, within, name, *parts, retained=why, lookup=replace(place, kind=kind, part=part))

    yield thing("azure-native:storage:StorageAccount", "account", why, "account")
    yield thing("azure-native:storage:BlobServiceProperties", "blobs", SETTINGS, "blobs")
    yield thing("azure-native:storage:ManagementPolicy", "lifecycle", SETTINGS, "lifecycle")
    for container in containers:
        yield thing(_BLOB, "container", why, container, part=container)
        if locked:
            lock = "azure-native:storage:BlobContainerImmutabilityPolicy"
            yield thing(lock, "lock", SETTINGS, container, "lock", part=container)
    if logged:
        yield _thing(_DIAGNOSTIC, within, name, "requests")


def _security(plan: Plan, network: NetworkPlan) -> Iterator[PlannedResource[Lookup]]:
    name = naming.logical(plan.name, "security")
    within = _top(plan)
    roles = ["nodes"]
    if any(one.kind == "lustre" for one in plan.file_systems):
        roles.append("storage")
    roles += [role for role in ("endpoints", "bastion") if any(one.role == role for one in network.subnets)]
    for role in roles:
        stays = STANDS if role == "storage" and kept_subnets(plan) and network.existing_id is None else None
        yield _thing(
            "azure-native:network:NetworkSecurityGroup",
            within,
            name,
            role,
            retained=stays,
            lookup=_at("security-group", "site", role),
        )


def _network(plan: Plan, network: NetworkPlan) -> Iterator[PlannedResource[Lookup]]:
    name = naming.logical(plan.name, "network")
    within: Parents = (*_top(plan), ("gpuinfra:azure:Network", name))
    stays = kept_subnets(plan)
    standing = STANDS if stays else None
    yield _thing(
        "azure-native:network:VirtualNetwork",
        within,
        name,
        "network",
        retained=standing,
        lookup=_at("network", "site", "network"),
    )
    for subnet in network.subnets:
        why = STANDS if subnet.name in stays else None
        lookup = Lookup(kind="subnet", layer="site", purpose="network", part=subnet.name)
        yield _thing("azure-native:network:Subnet", within, name, subnet.name, retained=why, lookup=lookup)
    if has_way_out(network):
        called = way_out_name(way_out_zone(plan))
        # A kept file system's subnet always has the gateway.
        yield _thing(
            "azure-native:network:NatGateway",
            within,
            name,
            "way-out",
            retained=standing,
            lookup=_at("gateway", "site", called),
        )
        lookup = _at("address", "site", f"{called}-address")
        yield _thing(_ADDRESS, within, name, "way-out", "address", retained=standing, lookup=lookup)
    yield from _store(within, naming.logical(name, "flow"), _at("account", "site", "flow"), (), AUDIT)
    yield _thing(_IDENTITY, within, name, "flow")
    yield _thing(_GRANT, within, name, "flow")
    yield _thing("azure-native:network:FlowLog", within, name, "flow")
    if any(subnet.name == BASTION_SUBNET for subnet in network.subnets):
        yield _thing("azure-native:network:BastionHost", within, name, "bastion")
        yield _thing(_ADDRESS, within, name, "bastion", "address")


def _endpoints(plan: Plan, network: NetworkPlan) -> Iterator[PlannedResource[Lookup]]:
    name = naming.logical(plan.name, "endpoints")
    within = _top(plan)
    for kind in network.interface_endpoints:
        if ZONES[kind] not in network.dns_zones:
            yield _thing("azure-native:privatedns:PrivateZone", within, name, kind, "zone")
            yield _thing("azure-native:privatedns:VirtualNetworkLink", within, name, kind, "link")
        yield from _endpoint(within, naming.logical(name, kind))


def _endpoint(within: Parents, name: str) -> Iterator[PlannedResource[Lookup]]:
    yield _thing("azure-native:network:PrivateEndpoint", within, name, "endpoint")
    yield _thing("azure-native:network:PrivateDnsZoneGroup", within, name, "names")


def _file_system(
    plan: Plan, network: NetworkPlan, one: FileSystemPlan, *, logged: bool
) -> Iterator[PlannedResource[Lookup]]:
    if one.kind != "lustre":
        return
    name = naming.logical(plan.name, one.name)
    within: Parents = (*_top(plan), ("gpuinfra:azure:SharedFilesystem", name))
    stays = (one.lifetime_reason or DATA) if one.lifetime is Lifetime.KEPT else None
    yield _thing(
        "azure-native:storagecache:AmlFilesystem",
        within,
        name,
        "lustre",
        retained=stays,
        lookup=_at("file-system", "site", one.name),
    )
    if one.bucket == "auto":
        data = naming.logical(name, "data")
        place = _at("account", "site", one.name)
        yield from _store(within, data, place, (DATA_CONTAINER, LOG_CONTAINER), DATA, logged=logged)
        if "blob" in network.interface_endpoints:
            yield from _endpoint(within, data)
    elif one.bucket is not None:
        yield _thing(_BLOB, within, name, LOG_CONTAINER)
    if one.bucket is not None and one.importer_id is not None:
        yield _thing(_GRANT, within, name, "importer", "account")
        yield _thing(_GRANT, within, name, "importer", "blobs")


def _node_role(plan: Plan) -> Iterator[PlannedResource[Lookup]]:
    name = naming.logical(plan.name, "node")
    yield _thing(_IDENTITY, (), name, "identity")
    yield _thing(_GRANT, (), name, "own")


def _pool(cluster: str, pool: PoolPlan) -> Iterator[PlannedResource[Lookup]]:
    name = naming.logical(cluster, pool.name)
    yield _thing("gpuinfra:index:Upload", (), name, "bundle")
    for group in pool.groups:
        yield _thing("azure-native:compute:VirtualMachineScaleSet", (), cluster, group.name)
