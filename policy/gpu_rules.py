"""The rules of the policy pack, as functions of resources. They do not import Pulumi.

A rule of `OF_RESOURCE` sees the inputs of one resource before it is created. A rule of `OF_STACK` sees all resources of a stack. In a preview,
Pulumi does not run a rule that reads a value that is not known yet; the rule runs during `pulumi up`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from gpuinfra.base.registry import CLOUDS
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.plan.profile import profile_of


@dataclass(eq=False)
class Resource:
    """A resource of any Pulumi program."""

    type: str
    """Pulumi type token."""
    name: str
    """Logical name."""
    props: Mapping[str, Any]
    """Inputs, or outputs in a stack rule."""
    uses: list[Resource] = field(default_factory=list)
    """The resources on which this one depends. Set only in a stack rule."""


Config = Mapping[str, Any]
Found = Iterator[tuple[Resource | None, str]]

AWS_INSTANCE = "aws:ec2/instance:Instance"
AWS_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
AWS_GROUP = "aws:autoscaling/group:Group"
AZURE_SET = "azure-native:compute:VirtualMachineScaleSet"
GCP_INSTANCE = "gcp:compute/instance:Instance"
GCP_GROUPS = ("gcp:compute/instanceGroupManager:InstanceGroupManager", "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager")  # fmt: skip

_GPU_MACHINES = {
    # Instance types of the families P and G (https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html).
    "aws": re.compile(r"(p|g)\d[a-z0-9-]*\."),
    # Sizes of the N family (https://learn.microsoft.com/azure/virtual-machines/sizes/overview).
    "azure-native": re.compile(r"(?i)standard_n[cdv]"),
    # Accelerator-optimized machine types (https://cloud.google.com/compute/docs/accelerator-optimized-machines).
    "gcp": re.compile(r"(.*/)?(a2|a3|a4|a4x|g2|g4)-"),
}
TRAILS = {
    "aws": ("aws:cloudtrail/trail:Trail",),
    "azure-native": ("azure-native:monitor:DiagnosticSetting", "azure-native:monitor:SubscriptionDiagnosticSetting"),
    "gcp": ("gcp:projects/iAMAuditConfig:IAMAuditConfig", "gcp:logging/projectSink:ProjectSink"),
}
"""Resources that record calls to the cloud."""
BUDGETS = {
    "aws": ("aws:budgets/budget:Budget",),
    "azure-native": ("azure-native:consumption:Budget",),
    "gcp": ("gcp:billing/budget:Budget",),
}
TAGGED = {
    AWS_INSTANCE: "tags", AWS_GROUP: "tags", AZURE_SET: "tags", GCP_INSTANCE: "labels", "aws:fsx/lustreFileSystem:LustreFileSystem": "tags",
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem": "tags",
}  # fmt: skip
"""Resources that cost money by the hour -> the input with their tags."""
CONFIG: dict[str, dict[str, Any]] = {
    "required_tags": {"tags": {"type": "array", "items": {"type": "string"}, "default": []}},
    "price_limit": {"max_usd_per_hour": {"type": "number", "minimum": 0, "default": 0}},
    "audit_trail": {"elsewhere": {"type": "boolean", "default": False}},
    "budget": {"elsewhere": {"type": "boolean", "default": False}},
}
"""Rule -> JSON schema of its configuration."""


def no_public_gpu_node(one: Resource, config: Config, today: date) -> Iterator[str]:
    """GPU nodes have no public address."""
    del config, today
    if not _machine(one) and not one.props.get("guestAccelerators"):
        return
    if any(_public(one)):
        yield "the GPU node has a public address; remove it, and connect to the node through a bastion or a tunnel"


def imds_v2(one: Resource, config: Config, today: date) -> Iterator[str]:
    """EC2 nodes require a session token for metadata requests (IMDSv2)."""
    del config, today
    if one.type in (AWS_INSTANCE, AWS_TEMPLATE):
        tokens = (one.props.get("metadataOptions") or {}).get("httpTokens")
        if tokens != "required":
            yield f"metadataOptions.httpTokens is {tokens or 'not set'}; set it to required"


def encryption(one: Resource, config: Config, today: date) -> Iterator[str]:
    """Disks and file systems on AWS are encrypted. Azure and Google Cloud encrypt all of them."""
    del config, today
    if one.type in ("aws:ebs/volume:Volume", "aws:efs/fileSystem:FileSystem") and not _true(one.props.get("encrypted")):
        yield "encrypted is not true"
    disks = one.props.get("blockDeviceMappings") if one.type == AWS_TEMPLATE else None
    for at, disk in enumerate(disks or ()):
        if disk.get("ebs") and not _true(disk["ebs"].get("encrypted")):
            yield f"blockDeviceMappings[{at}].ebs.encrypted is not true"
    if one.type == AWS_INSTANCE:
        for name in ("rootBlockDevice", "ebsBlockDevices"):
            found = one.props.get(name) or ()
            for disk in [found] if isinstance(found, Mapping) else found:
                if not _true(disk.get("encrypted")):
                    yield f"{name} has a disk for which encrypted is not true"


def expired_reservation(one: Resource, config: Config, today: date) -> Iterator[str]:
    """Capacity reservations have not ended."""
    del config
    if one.type == "aws:ec2/capacityReservation:CapacityReservation" and (end := one.props.get("endDate")):
        day = datetime.fromisoformat(str(end).replace("Z", "+00:00")).date()
        if day < today:
            yield f"endDate is {day}, which is in the past; nodes that target the reservation do not start"


def required_tags(one: Resource, config: Config, today: date) -> Iterator[str]:
    """Nodes and file systems have the tags that the configuration requires."""
    del today
    wanted = config.get("tags") or ()
    if not wanted or one.type not in TAGGED:
        return
    given = one.props.get(TAGGED[one.type]) or {}
    names = set(given) if isinstance(given, Mapping) else {tag.get("key") for tag in given}
    if missing := [name for name in wanted if name not in names]:
        yield f"{TAGGED[one.type]} has no {', '.join(missing)}"


def efa_group_self_reference(resources: Sequence[Resource], config: Config) -> Found:
    """The security group of an EFA interface allows all traffic from and to itself. EFA does not work without these rules."""
    del config
    for node in resources:
        if node.type not in (AWS_INSTANCE, AWS_TEMPLATE):
            continue
        groups = {
            group
            for nic in node.props.get("networkInterfaces") or ()
            if str(nic.get("interfaceType") or "").startswith("efa")
            for group in nic.get("securityGroups") or ()
        }
        for word in ("ingress", "egress"):
            if groups and not any(_to_itself(one, word, groups) for one in resources):
                yield (
                    node,
                    f"no security group of its EFA interfaces has a rule that allows all {word} traffic within the group",
                )


def audit_trail(resources: Sequence[Resource], config: Config) -> Found:
    """A stack with GPU nodes has an audit trail, or the configuration states that it is elsewhere."""
    yield from _required(resources, config, TRAILS, "audit trail")


def budget(resources: Sequence[Resource], config: Config) -> Found:
    """A stack with GPU nodes has a budget, or the configuration states that it is elsewhere."""
    yield from _required(resources, config, BUDGETS, "budget")


def price_limit(resources: Sequence[Resource], config: Config) -> Found:
    """The on-demand price of all GPU nodes is at most the limit in the configuration."""
    limit = float(config.get("max_usd_per_hour") or 0)
    if not limit:
        return
    total = 0.0
    for one in resources:
        for machine, count in _nodes(one):
            price = _price(machine)
            if price is None:
                yield one, f"the price of {machine} is not in the gpuinfra catalog, so the limit cannot be checked"
            else:
                total += count * price
    if total > limit:
        yield None, f"the GPU nodes cost {total:,.2f} USD an hour on demand; allowed: {limit:,.2f}"


OF_RESOURCE = (no_public_gpu_node, imds_v2, encryption, expired_reservation, required_tags)
OF_STACK = (efa_group_self_reference, audit_trail, budget, price_limit)


def _machine(one: Resource) -> str:
    """Return the GPU machine type of a node, or an empty string."""
    machine = one.props.get("instanceType") or one.props.get("machineType")
    if one.type == AZURE_SET:
        machine = (one.props.get("sku") or {}).get("name")
    pattern = _GPU_MACHINES.get(one.type.partition(":")[0])
    return str(machine) if machine and pattern and pattern.match(str(machine)) else ""


def _public(one: Resource) -> Iterator[bool]:
    """Yield whether each network interface of a node has a public address."""
    yield _true(one.props.get("associatePublicIpAddress"))
    for nic in one.props.get("networkInterfaces") or ():
        yield _true(nic.get("associatePublicIpAddress"))
        yield "accessConfigs" in nic and nic["accessConfigs"] is not None
    profile = (one.props.get("virtualMachineProfile") or {}).get("networkProfile") or {}
    for nic in profile.get("networkInterfaceConfigurations") or ():
        for address in nic.get("ipConfigurations") or ():
            yield bool(address.get("publicIPAddressConfiguration"))


def _true(value: Any) -> bool:
    """Return whether an input is true. Some inputs of AWS are the text `true`."""
    return str(value).lower() == "true"


def _to_itself(one: Resource, word: str, groups: Iterable[str]) -> bool:
    """Return whether a resource allows all traffic of a direction within one of the groups."""
    if one.type == "aws:ec2/securityGroup:SecurityGroup":
        rules = [rule for rule in one.props.get(word) or () if str(rule.get("protocol")) in ("-1", "all")]
        return one.props.get("id") in groups and any(_true(rule.get("self")) for rule in rules)
    kinds = {
        f"aws:vpc/securityGroup{word.title()}Rule:SecurityGroup{word.title()}Rule": ("referencedSecurityGroupId", "ipProtocol"),
        "aws:ec2/securityGroupRule:SecurityGroupRule": ("sourceSecurityGroupId", "protocol"),
    }  # fmt: skip
    if one.type not in kinds or one.props.get("type", word) != word:
        return False
    other, protocol = (one.props.get(name) for name in kinds[one.type])
    own = one.props.get("securityGroupId")
    return own in groups and (other == own or _true(one.props.get("self"))) and str(protocol) in ("-1", "all")


def _required(resources: Sequence[Resource], config: Config, kinds: Mapping[str, tuple[str, ...]], what: str) -> Found:
    if config.get("elsewhere"):
        return
    there = {one.type for one in resources}
    for package, accepted in kinds.items():
        node = next((one for one in resources if one.type.startswith(f"{package}:") and _machine(one)), None)
        if node is not None and not there.intersection(accepted):
            yield (
                node,
                f"the stack has GPU nodes but no {what} ({' or '.join(accepted)}); add one, or set elsewhere: true",
            )


def _nodes(one: Resource) -> Iterator[tuple[str, float]]:
    """Yield the GPU machine type and the number of nodes that a resource starts."""
    if one.type in (AWS_INSTANCE, GCP_INSTANCE, AZURE_SET) and (machine := _machine(one)):
        yield machine, float((one.props.get("sku") or {}).get("capacity") or 0) if one.type == AZURE_SET else 1
    count = {AWS_GROUP: "desiredCapacity", **dict.fromkeys(GCP_GROUPS, "targetSize")}.get(one.type)
    machine = next((name for other in one.uses if (name := _machine(other))), "") if count else ""
    if count and machine:
        yield machine, float(one.props.get(count) or one.props.get("minSize") or 0)


def _price(machine: str) -> float | None:
    """Return the highest on-demand price of a machine type in the catalog, or None."""
    name = machine.rsplit("/", 1)[-1]
    for cloud in CLOUDS:
        known = profile_of(cloud).machines.get(name)
        if known is not None:
            prices = [one.usd_per_hour for one in known.prices if one.kind is CapacityKind.ON_DEMAND and not one.term]
            return max(prices, default=None)
    return None
