"""Rules about what Google Cloud takes of labels, mails, networks of others and ways in."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from datetime import date

from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp.profile import PROFILE
from gpuinfra.clouds.gcp.regions import IAP_RANGE
from gpuinfra.clouds.machines import machines_of
from gpuinfra.clouds.profile import Rule
from gpuinfra.findings import Finding, error, info
from gpuinfra.spec.messages import listed, nearest
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.shown import shown
from gpuinfra.spec.storage import Lustre

_KINDS = ["user", "group", "serviceAccount", "domain", "principal", "principalSet"]
_MEMBER = re.compile(rf"({'|'.join(_KINDS)}):\S+")
MAILS = 5
"""Notification channels of one budget."""


def labels_differ(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Tags are still different from each other as labels, which are lower case and have few signs."""
    for path, tags in (("tags", spec.tags), *((f"pools[{i}].tags", pool.tags) for i, pool in enumerate(spec.pools))):
        known: dict[str, str] = {"gpuinfra-cluster": "gpuinfra:cluster", "gpuinfra-managed-by": "gpuinfra:managed-by"}
        for key, value in tags.items():
            (one,) = names.labels({key: value})
            if one in known and known[one] != key:
                what = f"becomes the label {one}, and so does {shown(known[one])}"
                yield error(labels_differ, f"{path}.{key}", what, "give it another name")
            elif (one, names.label(value)) != (key, value):
                what = f"becomes the label {one}={names.label(value)}: labels are lower-case letters, digits, - and _"
                yield info(labels_differ, f"{path}.{key}", what, "write it so, if the bill should be read by it")
            known[one] = key


def budget_tells_five(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A budget tells five addresses, and those who manage the billing account."""
    count = len(spec.budget.recipients)
    if count > MAILS:
        what = f"has {count} addresses; a budget of Google Cloud tells {MAILS}"
        yield error(budget_tells_five, "budget.recipients", what, "take a mailing list")


def ssh_comes_through_the_tunnel(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Port 22 is opened to Google's own tunnel or to private networks: a node has no address that others could reach."""
    for i, cidr in enumerate(spec.access.ssh_from):
        path = f"access.ssh_from[{i}]"
        try:
            network = ipaddress.ip_network(cidr, strict=False)
        except ValueError:
            continue
        if str(network) != IAP_RANGE and not network.is_private:
            what = f"is {network}; nodes have no public address, so nobody there reaches them"
            yield error(ssh_comes_through_the_tunnel, path, what, f"write {IAP_RANGE}, Google's tunnel (IAP)")
    if spec.access.ssh_from and spec.network.existing:
        what = "opens nothing, because network.existing keeps its own firewall rules"
        yield info(ssh_comes_through_the_tunnel, "access.ssh_from", what, "open port 22 in that network yourself")


def operators_are_members(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A role is given to members, who are named with their kind; everybody is no member."""
    for i, one in enumerate(spec.access.operators):
        if not _MEMBER.fullmatch(one):
            what = f"is {shown(one)}; Google Cloud gives roles to members: {listed(_KINDS)}, a colon, and who it is"
            hint = "write group:ops@example.com or serviceAccount:deploy@my-project.iam.gserviceaccount.com"
            yield error(operators_are_members, f"access.operators[{i}]", what, hint)


def existing_subnets_are_named(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Subnets of a network that is there already are named by the region, and by the further networks of the machines."""
    existing = spec.network.existing
    if existing is None:
        return
    region, machines = spec.where.region, machines_of(spec)
    if region not in PROFILE.regions or any(pool.machine not in machines for pool in spec.pools):
        return
    further = {nic.network for pool in spec.pools for nic in machines[pool.machine].nics}
    allowed = [region, *sorted(further - {"main", "roce"})]
    if region not in existing.subnets:
        what = f"names {listed(sorted(existing.subnets))}, but no subnet for {region}"
        yield error(existing_subnets_are_named, "network.existing.subnets", what, f"write {region}: SUBNET")
    for key in existing.subnets:
        if key not in allowed:
            what = f"is no region or network of this cluster; allowed are {listed(allowed)}"
            yield error(existing_subnets_are_named, f"network.existing.subnets.{key}", what, "take it out or mend it")


def existing_network_is_peered(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """File systems are reached over a peering that a network of others has to have already."""
    if spec.network.existing and spec.storage and "site" in spec.made_layers:
        what = f"is {shown(spec.network.existing.id)}, over whose peering with servicenetworking.googleapis.com storage is reached"
        hint = "make sure that it has one with 1024 free addresses, or let gpuinfra make the network"
        yield info(existing_network_is_peered, "network.existing.id", what, hint)


def lustre_is_exported_by_hand(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A file system with a bucket goes with its stack, and the bucket has what somebody exported: Google exports nothing by itself."""
    for i, entry in enumerate(spec.storage):
        if isinstance(entry, Lustre) and entry.bucket is not None and "site" in spec.made_layers:
            what = f"is {entry.bucket}, which gets what is written to {entry.mount} when somebody exports it and not before"
            hint = "run the output export_commands before a destroy or a change of the tier, or leave bucket out: then it is kept"
            yield info(lustre_is_exported_by_hand, f"storage[{i}].bucket", what, hint)


def site_machines_are_known(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Machines that a site makes networks for are in the catalogue."""
    known = machines_of(spec)
    for i, name in enumerate(spec.network.machines):
        if name not in known:
            near = nearest(name, list(known))
            hint = f"did you mean {near}?" if near else "`gpuinfra catalog --cloud gcp` lists them"
            what = f"is {shown(name)}, which is not in the catalogue of {PROFILE.title}"
            yield error(site_machines_are_known, f"network.machines[{i}]", what, hint)


def first_lot_is_the_canary(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Groups renew their nodes in lots of one size, with a pause after each; a canary that is smaller than a lot is not."""
    for i, pool in enumerate(spec.pools):
        largest = max(entry.count for entry in pool.capacity)
        lot = max(1, largest * pool.renew.at_once_percent // 100)
        if 0 < pool.renew.canary < lot:
            what = f"is {pool.renew.canary}, but the first lot of {largest} nodes is {lot}: groups here know no canary"
            hint = f"lower renew.at_once_percent to {max(1, pool.renew.canary * 100 // largest)}, or take the lot as canary"
            yield info(first_lot_is_the_canary, f"pools[{i}].renew.canary", what, hint)


def registry_is_ours_to_open(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Nodes are let into an Artifact Registry; into another registry they have to get by themselves."""
    registry = spec.software.registry
    if registry and names.repository(registry) is None:
        what = f"is {shown(registry)}, which is no Artifact Registry, so nodes get no grant on it"
        hint = "name LOCATION-docker.pkg.dev/PROJECT/REPOSITORY, or let the registry be read without one"
        yield info(registry_is_ours_to_open, "software.registry", what, hint)


def nvlink_domains_are_not_made(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A4X is bought by NVLink domain, and its groups need a topology policy that gpuinfra does not make."""
    machines = machines_of(spec)
    for i, pool in enumerate(spec.pools):
        if pool.machine in machines and machines[pool.machine].family == "a4x":
            what = f"is {pool.machine}, whose groups need a policy for NVLink domains, which gpuinfra does not make yet"
            yield error(
                nvlink_domains_are_not_made, f"pools[{i}].machine", what, "take a4-highgpu-8g or a3-ultragpu-8g"
            )


RULES: tuple[Rule, ...] = (
    labels_differ,
    budget_tells_five,
    ssh_comes_through_the_tunnel,
    existing_subnets_are_named,
    existing_network_is_peered,
    lustre_is_exported_by_hand,
    operators_are_members,
    site_machines_are_known,
    first_lot_is_the_canary,
    registry_is_ours_to_open,
    nvlink_domains_are_not_made,
)
