"""Rules about ids, ways in, and what Azure wants to be told: whatever is wrong here fails late there, or not at all."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from datetime import date

from gpuinfra.clouds.azure.resources import LEAST_BATCH_PERCENT, WORKSPACE_DAYS
from gpuinfra.clouds.profile import Rule
from gpuinfra.findings import Finding, error, info, warn
from gpuinfra.plan.storage import named
from gpuinfra.spec.capacity import Reserved
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.shown import shown
from gpuinfra.spec.storage import Lustre

_GUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ID = r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/"
_NETWORK = re.compile(_ID + r"Microsoft\.Network/virtualNetworks/[^/]+", re.IGNORECASE)
_SUBNET = re.compile(_NETWORK.pattern + r"/subnets/[^/]+", re.IGNORECASE)
_ZONE = re.compile(_ID + r"Microsoft\.Network/privateDnsZones/[^/]+", re.IGNORECASE)
_GROUP = re.compile(_ID + r"Microsoft\.Compute/capacityReservationGroups/[^/]+", re.IGNORECASE)
_ACCOUNT = re.compile(_ID + r"Microsoft\.Storage/storageAccounts/[^/]+", re.IGNORECASE)
_CONTAINER = re.compile(_ACCOUNT.pattern + r"/blobServices/default/containers/[^/]+", re.IGNORECASE)
_IMPORTER = 'az ad sp list --display-name "HPC Cache Resource Provider" --query "[].id"'


def evidence_is_reached(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Whoever runs `up` puts bundles into the evidence account and reads it, so some address outside has to be let in."""
    if "foundation" in spec.made_layers and not spec.access.evidence_from:
        what = "is empty, so the evidence account is reached from its network only, and `up` has to run inside it"
        yield warn(evidence_is_reached, "access.evidence_from", what, "name the public ranges that operators come from")


def evidence_ranges_are_public(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The firewall of a storage account takes public IPv4 ranges, and everybody is no range."""
    for i, text in enumerate(spec.access.evidence_from):
        path = f"access.evidence_from[{i}]"
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError:
            what = f"is {shown(text)}; allowed is a range such as 203.0.113.0/24"
            yield error(evidence_ranges_are_public, path, what, "mend it")
            continue
        if network.version != 4:
            yield error(evidence_ranges_are_public, path, f"is {network}; Azure takes IPv4 only", "name an IPv4 range")
        elif network.prefixlen == 0:
            yield error(evidence_ranges_are_public, path, f"is {network}: everybody", "name where operators come from")
        elif any(network.overlaps(private) for private in _PRIVATE):
            what = f"is {network}, which is private; from inside, the private endpoint is the way"
            yield error(evidence_ranges_are_public, path, what, "take it out, or name the public address behind it")
        elif network.prefixlen < 16:
            yield warn(evidence_ranges_are_public, path, f"is {network}, which is very large", "name smaller ranges")


_PRIVATE = tuple(ipaddress.IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))


def operators_are_object_ids(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A role is given to an object id, never to a name or an address."""
    for i, one in enumerate(spec.access.operators):
        if not _GUID.fullmatch(one):
            what = f"is {shown(one)}; Azure gives roles to object ids"
            hint = "az ad signed-in-user show --query id"
            yield error(operators_are_object_ids, f"access.operators[{i}]", what, hint)


def bastion_is_public(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A Bastion host has the one public address that people can ask for."""
    if spec.access.bastion and not spec.network.existing:
        what = "is true: a host with a public address takes sessions of whoever may sign in and has the role"
        yield warn(bastion_is_public, "access.bastion", what, "leave it out where a VPN reaches the network")


def bastion_has_room(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A Bastion host has a subnet of its own of at least a /26, in a network that is made here."""
    if not spec.access.bastion:
        return
    if spec.network.existing:
        what = "is true, but the network is somebody else's"
        yield error(bastion_has_room, "access.bastion", what, "make Bastion there")
        return
    prefix = int(spec.network.cidr.rpartition("/")[2])
    if min(28, prefix + 7) > 26:
        what = f"is a /{prefix}, which leaves Bastion less than the /26 that it needs"
        yield error(bastion_has_room, "network.cidr", what, "take a /19 or larger")


def importer_may_import(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Managed Lustre imports under a service principal whose roles have to be there first; without them creation fails late."""
    for i, entry in enumerate(spec.storage):
        if not isinstance(entry, Lustre):
            continue
        path = f"storage[{i}]"
        if entry.bucket is None:
            if entry.importer_id:
                what = "is given, but nothing is imported without a bucket"
                yield error(importer_may_import, f"{path}.importer_id", what, "take it out, or add bucket: auto")
            continue
        if entry.bucket != "auto" and not _CONTAINER.fullmatch(entry.bucket):
            what = f"is {shown(entry.bucket)}; allowed is auto or the id of a container"
            hint = "/subscriptions/.../storageAccounts/NAME/blobServices/default/containers/NAME"
            yield error(importer_may_import, f"{path}.bucket", what, hint)
        if entry.importer_id is None and entry.bucket == "auto":
            what = "is missing: the service that imports needs two roles on the account, and its object id differs by tenant"
            yield error(importer_may_import, f"{path}.importer_id", what, f"name it: {_IMPORTER}")
        elif entry.importer_id is not None and not _GUID.fullmatch(entry.importer_id):
            what = f"is {shown(entry.importer_id)}; allowed is an object id"
            yield error(importer_may_import, f"{path}.importer_id", what, f"name it: {_IMPORTER}")


def import_takes_account_keys(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Managed Lustre imports with the account's key, which a compliance profile wants off (CIS 9.3.1.3)."""
    for i, entry in enumerate(spec.storage):
        if isinstance(entry, Lustre) and entry.bucket == "auto":
            what = "is auto: its account takes the account's key, because Managed Lustre imports in no other way; all other accounts take none"
            yield info(import_takes_account_keys, f"storage[{i}].bucket", what)


def changes_are_exported_by_hand(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Managed Lustre exports when a person starts it, so a file system that ends with its container kept still ends with something."""
    for i, entry in enumerate(spec.storage):
        if isinstance(entry, Lustre) and entry.bucket is not None:
            what = "is imported from, and nothing is exported to it by itself: what nodes wrote since the last export is lost when the file system ends"
            hint = (
                "start an export before a destroy (az amlfs archive); without a bucket the file system itself is kept"
            )
            yield warn(changes_are_exported_by_hand, f"storage[{i}].bucket", what, hint)


def existing_network_is_named_by_ids(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A network that is there is named by its id, with a subnet for nodes and one for each file system."""
    existing = spec.network.existing
    if existing is None:
        return
    path = "network.existing"
    if not _NETWORK.fullmatch(existing.id):
        what = f"is {shown(existing.id)}; allowed is the id of a virtual network"
        yield error(existing_network_is_named_by_ids, f"{path}.id", what, "az network vnet show --query id")
    for key, value in existing.subnets.items():
        if not _SUBNET.fullmatch(value):
            what = f"is {shown(value)}; allowed is the id of a subnet"
            hint = "az network vnet subnet show --query id"
            yield error(existing_network_is_named_by_ids, f"{path}.subnets.{key}", what, hint)
    for key, value in existing.dns_zones.items():
        if not _ZONE.fullmatch(value):
            what = f"is {shown(value)}; allowed is the id of a private DNS zone"
            hint = "az network private-dns zone show --query id"
            yield error(existing_network_is_named_by_ids, f"{path}.dns_zones.{key}", what, hint)
    for name, entry in named(spec.storage):
        if entry.kind == "lustre" and f"storage-{name}" not in existing.subnets:
            what = f"has no subnet storage-{name}, and a file system needs one of its own"
            hint = f"add `storage-{name}: /subscriptions/...`"
            yield error(existing_network_is_named_by_ids, f"{path}.subnets", what, hint)


def reservation_is_a_group(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A scale set names a capacity reservation by its group's id."""
    for i, pool in enumerate(spec.pools):
        for j, entry in enumerate(pool.capacity):
            if isinstance(entry, Reserved) and not _GROUP.fullmatch(entry.id or ""):
                what = f"is {shown(entry.id)}; allowed is the id of a capacity reservation group"
                hint = "az capacity reservation group show --query id"
                yield error(reservation_is_a_group, f"pools[{i}].capacity[{j}].id", what, hint)


def audit_goes_where_azure_writes(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Records go into a storage account by its id, a lock is closed by a person, and Log Analytics keeps two years."""
    audit = spec.audit
    if audit.trail != "create" or "foundation" not in spec.made_layers:
        return
    if audit.bucket and not _ACCOUNT.fullmatch(audit.bucket):
        what = f"is {shown(audit.bucket)}; allowed is the id of a storage account"
        yield error(audit_goes_where_azure_writes, "audit.bucket", what, "az storage account show --query id")
    if audit.lock_mode == "compliance":
        what = "is compliance, which Azure takes from a person only: `up` makes the lock, and it stays open"
        hint = "close it afterwards: az storage container immutability-policy lock"
        yield warn(audit_goes_where_azure_writes, "audit.lock_mode", what, hint)
    if not WORKSPACE_DAYS[0] <= audit.log_retention_days <= WORKSPACE_DAYS[1]:
        what = f"is {audit.log_retention_days}; Log Analytics keeps {WORKSPACE_DAYS[0]} to {WORKSPACE_DAYS[1]}, and the nearest is taken"
        yield info(audit_goes_where_azure_writes, "audit.log_retention_days", what, "the locked container keeps more")


def disks_are_encrypted_at_the_host(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Encryption at the host is a feature that a subscription registers once."""
    if spec.pools:
        what = "have disks that are encrypted at the host, which a subscription has to be registered for once"
        hint = "az feature register --namespace Microsoft.Compute --name EncryptionAtHost"
        yield info(disks_are_encrypted_at_the_host, "pools", what, hint)


def batch_is_one_that_azure_takes(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A new model goes to batches of one size, at least a twentieth of the set; the first batch is the canary."""
    for i, pool in enumerate(spec.pools):
        share = pool.renew.at_once_percent
        path = f"pools[{i}].renew"
        if share < LEAST_BATCH_PERCENT:
            what = f"is {share}; Azure's smallest batch is {LEAST_BATCH_PERCENT}, and that is taken"
            yield info(batch_is_one_that_azure_takes, f"{path}.at_once_percent", what)
        batch = max(1, pool.nodes * max(share, LEAST_BATCH_PERCENT) // 100)
        if "canary" in pool.renew.model_fields_set and pool.renew.canary != batch:
            what = f"is {pool.renew.canary}; on Azure the first batch is the canary, and it has {batch}"
            yield info(batch_is_one_that_azure_takes, f"{path}.canary", what, "lower at_once_percent for a smaller one")


RULES: tuple[Rule, ...] = (
    evidence_is_reached,
    evidence_ranges_are_public,
    operators_are_object_ids,
    bastion_is_public,
    bastion_has_room,
    importer_may_import,
    import_takes_account_keys,
    changes_are_exported_by_hand,
    existing_network_is_named_by_ids,
    reservation_is_a_group,
    audit_goes_where_azure_writes,
    disks_are_encrypted_at_the_host,
    batch_is_one_that_azure_takes,
)
