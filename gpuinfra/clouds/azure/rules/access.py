"""Azure rules for resource IDs, access, audit and renewal. Azure reports these errors late or not at all."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error, info, warn
from gpuinfra.clouds.azure.instances import MIN_BATCH_PERCENT, NETAPP_SUBNET, WORKSPACE_DAYS
from gpuinfra.clouds.azure.profile import LUSTRE_NAME, STORAGE_SUBNET, node_subnet
from gpuinfra.clouds.azure.rules.fields import fields_of_other_clouds
from gpuinfra.plan.storage import created
from gpuinfra.spec.capacity import Reserved
from gpuinfra.spec.messages import host_bits, listed, most_addresses
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in
from gpuinfra.spec.shown import shown
from gpuinfra.spec.storage import Home, Lustre, ObjectMount

_GUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ID = r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/"
_NETWORK = re.compile(_ID + r"Microsoft\.Network/virtualNetworks/[^/]+", re.IGNORECASE)
_SUBNET = re.compile(_NETWORK.pattern + r"/subnets/[^/]+", re.IGNORECASE)
_ZONE = re.compile(_ID + r"Microsoft\.Network/privateDnsZones/[^/]+", re.IGNORECASE)
_GROUP = re.compile(_ID + r"Microsoft\.Compute/capacityReservationGroups/[^/]+", re.IGNORECASE)
_ACCOUNT = re.compile(_ID + r"Microsoft\.Storage/storageAccounts/[^/]+", re.IGNORECASE)
_CONTAINER = re.compile(_ACCOUNT.pattern + r"/blobServices/default/containers/[^/]+", re.IGNORECASE)
_RESOURCE = re.compile(_ID + r"[^/]+(/[^/]+/[^/]+)+", re.IGNORECASE)
_LUSTRE = re.compile(_ID + r"Microsoft\.StorageCache/amlFilesystems/[^/]+", re.IGNORECASE)
_CONTAINER_FORM = "use /subscriptions/.../storageAccounts/NAME/blobServices/default/containers/NAME"
_IMPORTER = 'az ad sp list --display-name "HPC Cache Resource Provider" --query "[].id"'


def evidence_account_is_reachable(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The evidence account allows access from the addresses from which you run `up`, which writes bundles and reads evidence."""
    if "foundation" not in spec.made_layers or spec.access.evidence_from:
        return
    if "site" in spec.made_layers and "cluster" in spec.made_layers and not spec.network.existing:
        what = "is required: `up` uploads the bundles to an account that only the cluster's network can reach, and this stack creates that network"
        yield error("access.evidence_from", what, "list the public ranges of your operators, such as [203.0.113.0/24]")
    else:
        what = "is empty, so only the cluster's network can reach the evidence account, and you must run `up` inside that network"
        yield warn("access.evidence_from", what, "list the public ranges of your operators")


def lustre_container_is_in_the_subscription(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An existing container is in the subscription of the existing network,
    because Managed Lustre uses only resources in its own subscription (create-file-system-resource-manager)."""
    if spec.network.existing is None or not _NETWORK.fullmatch(spec.network.existing.id):
        return
    own = spec.network.existing.id.split("/")[2].lower()
    for i, entry in enumerate(spec.storage):
        if isinstance(entry, Lustre) and entry.bucket and _CONTAINER.fullmatch(entry.bucket):
            other = entry.bucket.split("/")[2].lower()
            if other != own:
                what = f"is in subscription {other}; allowed: the subscription of the network, {own}"
                yield error(
                    f"storage[{i}].bucket", what, "use a container in that subscription, or copy the data to one"
                )


def node_roles_are_limited(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Each node role is assigned at a resource, because a role at subscription or resource group scope also applies to the evidence account."""
    for i, node_role in enumerate(spec.access.node_roles):
        path = f"access.node_roles[{i}]"
        if not _GUID.fullmatch(node_role.role):
            what = f"is {shown(node_role.role)}; allowed: the ID of a role definition such as 7f951dda-4ed3-4680-a7ca-43fe172d538d"
            yield error(
                f"{path}.role", what, 'run `az role definition list --name AcrPull --query "[].name"` to get the ID'
            )
        if node_role.scope is None:
            yield error(f"{path}.scope", "is required on Azure", "set it to the ID of the resource that the nodes use")
        elif not _RESOURCE.fullmatch(node_role.scope):
            what = f"is {shown(node_role.scope)}; allowed: the ID of a resource, /subscriptions/ID/resourceGroups/NAME/providers/TYPE/NAME"
            yield error(f"{path}.scope", what, "assign the role at the resource that the nodes use")


def evidence_ranges_are_public(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The firewall of a storage account accepts public IPv4 ranges without host bits. Ranges that include most addresses together are not allowed."""
    if most_addresses(spec.access.evidence_from) and not any(text.endswith("/0") for text in spec.access.evidence_from):
        what = "includes at least half of all public IPv4 addresses"
        yield error("access.evidence_from", what, "list the public ranges of your operators")
    for i, text in enumerate(spec.access.evidence_from):
        path = f"access.evidence_from[{i}]"
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError:
            what = f"is {shown(text)}; allowed: a range such as 203.0.113.0/24"
            yield error(path, what, "fix the range")
            continue
        if network.version != 4:
            yield error(path, f"is {network}; allowed: IPv4 ranges", "use an IPv4 range")
        elif network.prefixlen == 0:
            yield error(path, f"is {network}, which includes every address", "list the public ranges of your operators")
        elif any(network.overlaps(private) for private in _PRIVATE):
            what = f"is {network}, which is private; clients in the network use the private endpoint"
            yield error(path, what, "remove the range, or use the public addresses from which operators connect")
        elif wrong := host_bits(text):
            yield error(path, *wrong)
        elif network.prefixlen < 16:
            yield warn(path, f"is {network}, which is very large", "list smaller ranges")


_PRIVATE = tuple(ipaddress.IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))


def operators_are_object_ids(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Operators are specified as object IDs, to which roles are assigned."""
    for i, operator in enumerate(spec.access.operators):
        if not _GUID.fullmatch(operator):
            what = f"is {shown(operator)}; allowed: an object ID"
            hint = "run: az ad signed-in-user show --query id"
            yield error(f"access.operators[{i}]", what, hint)


def bastion_is_public(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Bastion causes a warning, because its host has a public address."""
    if spec.access.bastion and not spec.network.existing:
        what = "is true, which creates a host with a public address for users who have the role"
        yield warn("access.bastion", what, "remove it if you can reach the network over a VPN")


def bastion_subnet_fits(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The network has a /26 for Bastion and is created by this stack."""
    if not spec.access.bastion:
        return
    if spec.network.existing:
        what = "is true, but network.existing is set"
        yield error("access.bastion", what, "create Bastion in the existing network yourself")
        return
    prefix = int(spec.network.cidr.rpartition("/")[2])
    if min(28, prefix + 7) > 26:
        what = f"is a /{prefix}, which is too small for the /26 that Bastion requires"
        yield error("network.cidr", what, "use a /19 or larger")


def lustre_importer_is_named(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An import specifies its container and the service principal of Managed Lustre, whose roles must exist before the file system is created."""
    for i, entry in enumerate(spec.storage):
        if not isinstance(entry, Lustre) or entry.existing:
            continue
        path = f"storage[{i}]"
        if entry.bucket is None:
            if entry.importer_id:
                what = "is set, but bucket is not"
                yield error(f"{path}.importer_id", what, "remove it, or add bucket: auto")
            continue
        if entry.bucket != "auto" and not _CONTAINER.fullmatch(entry.bucket):
            what = f"is {shown(entry.bucket)}; allowed: auto, or the ID of a container"
            yield error(f"{path}.bucket", what, _CONTAINER_FORM)
        if entry.importer_id is None and entry.bucket == "auto":
            what = "is required: the importing service needs two roles on the account, and the object ID of the service differs between tenants"
            yield error(f"{path}.importer_id", what, f"run: {_IMPORTER}")
        elif entry.importer_id is not None and not _GUID.fullmatch(entry.importer_id):
            what = f"is {shown(entry.importer_id)}; allowed: an object ID"
            yield error(f"{path}.importer_id", what, f"run: {_IMPORTER}")


def mounted_container_is_valid(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A mounted container is `auto` or a resource ID, and has no `key_arn`, because Azure Storage uses the key of the account for all clients."""
    for i, entry in enumerate(spec.storage):
        if not isinstance(entry, ObjectMount):
            continue
        if entry.bucket != "auto" and not _CONTAINER.fullmatch(entry.bucket):
            what = f"is {shown(entry.bucket)}; allowed: auto, or the ID of a container"
            yield error(f"storage[{i}].bucket", what, _CONTAINER_FORM)
        if entry.key_arn:
            what = "is set, but Azure Storage uses the key of an account for all clients with access"
            yield error(f"storage[{i}].key_arn", what, "remove it")


def private_endpoint_is_needed(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """`private_endpoint` is set for an existing container only, and once for each account, because an account has one name in the DNS zone of the network."""
    first: dict[str, str] = {}
    for i, entry in enumerate(spec.storage):
        if not isinstance(entry, Lustre | ObjectMount) or not entry.private_endpoint:
            continue
        path = f"storage[{i}].private_endpoint"
        if entry.bucket in (None, "auto"):
            what = f"is true, but {'the stack creates the container, which has an endpoint' if entry.bucket else 'bucket is not set'}"
            yield error(path, what, "remove it, or set bucket to the ID of an existing container")
            continue
        account = str(entry.bucket).partition("/blobServices/")[0].lower()
        if account in first:
            yield error(path, f"is true, but {first[account]} already has an endpoint for this account", "remove it")
        first.setdefault(account, f"storage[{i}]")


def lustre_import_uses_account_keys(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Managed Lustre imports with an account key, but CIS 9.3.1.3 requires that account keys are disabled."""
    for i, entry in enumerate(spec.storage):
        if isinstance(entry, Lustre) and entry.bucket == "auto":
            what = "is auto, so its storage account allows access with account keys, which Managed Lustre requires for imports"
            yield info(f"storage[{i}].bucket", what)


def container_export_is_manual(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Managed Lustre exports to its container only if you start an export, so `destroy` retains the file system."""
    for i, entry in enumerate(spec.storage):
        if isinstance(entry, Lustre) and entry.bucket is not None:
            what = "is set, and exports are not continuous, so destroy retains the file system, which is billed until you delete it"
            hint = "to delete the file system after `destroy`, first check that your last export (`az amlfs archive`) contains all changes"
            yield info(f"storage[{i}].bucket", what, hint)


def existing_network_ids_are_valid(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An existing network specifies the resource IDs of the network, its subnets and its private DNS zones,
    including a subnet for the nodes and one per file system."""
    existing = spec.network.existing
    if existing is None:
        return
    path = "network.existing"
    if "cidr" in spec.network.model_fields_set:
        yield error("network.cidr", "has no effect, because network.existing is set", "remove it")
    if not _NETWORK.fullmatch(existing.id):
        what = f"is {shown(existing.id)}; allowed: the ID of a virtual network"
        yield error(f"{path}.id", what, "run: az network vnet show --query id")
    for key, value in existing.subnets.items():
        if not _SUBNET.fullmatch(value):
            what = f"is {shown(value)}; allowed: the ID of a subnet"
            hint = "run: az network vnet subnet show --query id"
            yield error(f"{path}.subnets.{key}", what, hint)
    for key, value in existing.dns_zones.items():
        if not _ZONE.fullmatch(value):
            what = f"is {shown(value)}; allowed: the ID of a private DNS zone"
            hint = "run: az network private-dns zone show --query id"
            yield error(f"{path}.dns_zones.{key}", what, hint)
    if node_subnet(existing.subnets, spec.where.region) is None:
        what = f"has no subnet for the nodes; {listed(list(existing.subnets))} {'is' if len(existing.subnets) == 1 else 'are'} for file systems"
        yield error(f"{path}.subnets", what, f"add `{spec.where.region}: /subscriptions/...`")
    for name, entry in created(spec.storage):
        subnet = f"{STORAGE_SUBNET}{name}"
        if entry.kind == "lustre" and subnet not in existing.subnets:
            what = f"has no subnet {subnet}, which the file system requires"
            hint = f"add `{subnet}: /subscriptions/...`"
            yield error(f"{path}.subnets", what, hint)
    netapp = any(isinstance(entry, Home) and entry.service == "netapp" for _, entry in created(spec.storage))
    if netapp and NETAPP_SUBNET not in existing.subnets:
        what = f"has no subnet {NETAPP_SUBNET}, which Azure NetApp Files requires"
        hint = f"add `{NETAPP_SUBNET}: /subscriptions/...`, a subnet that is delegated to Microsoft.Netapp/volumes"
        yield error(f"{path}.subnets", what, hint)


def resource_logs_have_a_workspace(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The reads of keys and data are recorded. With an existing trail, the stack has no Log Analytics workspace, so it creates no
    diagnostic settings for its key vault and storage accounts (`azure/instances.py`, `vaults` and `trails`)."""
    if spec.audit.trail == "existing" and "foundation" in spec.made_layers:
        what = "is existing, so reads of the key vault and of the storage accounts are not recorded, because the stack has no workspace for their logs"
        hint = "set it to create, or add diagnostic settings for the key vault and the storage accounts to your own workspace"
        yield warn("audit.trail", what, hint)


def existing_lustre_is_identified(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An existing file system has the resource ID of a Managed Lustre file system and the address of its management server.
    Its mount name is always the same."""
    for i, entry in enumerate(spec.storage):
        if not isinstance(entry, Lustre) or (existing := entry.existing) is None:
            continue
        path = f"storage[{i}].existing"
        command = "run: az amlfs show --query '{id: id, address: clientInfo.mgsAddress}'"
        if not _LUSTRE.fullmatch(existing.id):
            what = f"is {shown(existing.id)}; allowed: the ID of a Managed Lustre file system"
            yield error(f"{path}.id", what, command)
        if existing.address is None:
            yield error(f"{path}.address", "is required for Managed Lustre", command)
        if existing.mount_name not in (None, LUSTRE_NAME):
            what = (
                f"is {shown(existing.mount_name)}; allowed: {LUSTRE_NAME}, the name of every Managed Lustre file system"
            )
            yield error(f"{path}.mount_name", what, "remove it")
        yield from fields_of_other_clouds(path, existing)


def reservation_is_group_id(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A reservation is specified as the ID of a capacity reservation group."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if isinstance(entry, Reserved) and not _GROUP.fullmatch(entry.id or ""):
                what = f"is {shown(entry.id)}; allowed: the ID of a capacity reservation group"
                hint = "run: az capacity reservation group show --query id"
                yield error(f"pools[{i}].capacity[{j}].id", what, hint)


def audit_settings_fit_azure(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Audit settings are valid on Azure: a storage account ID, an unlocked immutability policy, and a retention period that Log Analytics supports."""
    audit = spec.audit
    if audit.trail != "create" or "foundation" not in spec.made_layers:
        return
    if audit.bucket and not _ACCOUNT.fullmatch(audit.bucket):
        what = f"is {shown(audit.bucket)}; allowed: the ID of a storage account"
        yield error("audit.bucket", what, "run: az storage account show --query id")
    if audit.lock_mode == "compliance":
        what = "is compliance, but `up` creates an unlocked immutability policy, because only a user can lock it"
        hint = "after `up`, run: az storage container immutability-policy lock"
        yield warn("audit.lock_mode", what, hint)
    if not WORKSPACE_DAYS[0] <= audit.log_retention_days <= WORKSPACE_DAYS[1]:
        what = f"is {audit.log_retention_days}; Log Analytics keeps {WORKSPACE_DAYS[0]} to {WORKSPACE_DAYS[1]} days, and the nearest value is used"
        yield info("audit.log_retention_days", what, "the audit container keeps records longer")


def host_encryption_is_registered(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The EncryptionAtHost feature is registered in the subscription. Registration is required once for each subscription."""
    if spec.pools:
        what = "use encryption at host, a feature that must be registered once in the subscription"
        hint = "run: az feature register --namespace Microsoft.Compute --name EncryptionAtHost"
        yield info("pools", what, hint)


def renewal_batch_is_allowed(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Renewal batches are at least 5 % of the scale set, and the first batch is the canary."""
    for i, pool in enumerate(spec.pools):
        share = pool.renew.at_once_percent
        path = f"pools[{i}].renew"
        if share < MIN_BATCH_PERCENT:
            what = f"is {share}; the minimum on Azure is {MIN_BATCH_PERCENT}, so gpuinfra uses the minimum"
            yield info(f"{path}.at_once_percent", what)
        batch = max(1, pool.nodes * max(share, MIN_BATCH_PERCENT) // 100)
        if "canary" in pool.renew.model_fields_set and pool.renew.canary != batch:
            what = f"is {pool.renew.canary}; on Azure the first batch is the canary, and its size is {batch}"
            yield info(f"{path}.canary", what, "set at_once_percent for a different batch size, or remove the canary")


RULES = rules_in(vars())
