"""Rules about security: addresses, inbound and outbound access, and the audit trail."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error, info, warn
from gpuinfra.plan.machines import pools_of
from gpuinfra.plan.profile import profile_of
from gpuinfra.spec.base import defaults
from gpuinfra.spec.document import Route
from gpuinfra.spec.messages import LARGEST_NETWORK, host_bits, listed, most_addresses, path_text
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.policy import Access, Audit, NetworkSpec
from gpuinfra.spec.rule import rules_in
from gpuinfra.spec.shown import contains_key, shown

LAST_PORT = 65535


def cidr_is_private(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The network has a private IPv4 range from /16 to /20 without host bits."""
    if spec.network.existing:
        return
    try:
        network = ipaddress.ip_network(spec.network.cidr, strict=True)
    except ValueError:
        try:
            hint = f"set the host bits to zero: {ipaddress.ip_network(spec.network.cidr, strict=False)}"
        except ValueError:
            hint = "correct the range"
        what = f"is {shown(spec.network.cidr)}; allowed: a private range such as 10.64.0.0/16"
        yield error("network.cidr", what, hint)
        return
    private = [
        ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
    ]
    if network.version != 4 or not any(network.subnet_of(p) for p in private if p.version == 4):  # type: ignore[arg-type]
        yield error("network.cidr", f"is {network}, which is not a private range", "use a range in 10.0.0.0/8")
    elif not LARGEST_NETWORK <= network.prefixlen <= 20:
        yield error("network.cidr", f"is a /{network.prefixlen}; allowed: /16 to /20", "use 10.64.0.0/16")


def image_is_prebuilt_without_egress(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Without internet access, nodes use a prebuilt image or a mirror, because bootstrap steps cannot download from vendors."""
    if spec.network.egress != "endpoints" or spec.software.mirror_url:
        return
    for path, pool, machine in pools_of(spec):
        image, _ = profile_of(spec.cloud).image(spec, pool, machine)
        if not image.prebuilt:
            yield error(
                f"{path}.image",
                "is not prebuilt, and nodes cannot reach the vendors' servers, because network.egress is endpoints",
                "use a prebuilt image, set software.mirror_url, or set network.egress to nat",
            )


def bucket_client_is_reachable(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Without internet access, nodes that mount buckets use a mirror, because the GPU images do not contain the client."""
    if spec.network.egress != "endpoints" or spec.software.mirror_url or not spec.pools:
        return
    for i, entry in enumerate(spec.storage):
        if entry.kind == "object":
            what = (
                "is object, and nodes cannot download its client from the vendor, because network.egress is endpoints"
            )
            yield error(f"storage[{i}].kind", what, "set software.mirror_url, or set network.egress to nat")


def ssh_is_not_open_to_internet(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Port 22 is not open to all addresses, neither with one network nor with several, and networks have no host bits.
    Large public networks cause a warning."""
    if (most := most_addresses(spec.access.ssh_from)) and not any(cidr.endswith("/0") for cidr in spec.access.ssh_from):
        what = f"includes at least half of all public {most} addresses"
        yield error("access.ssh_from", what, "list your operators' networks")
    for i, cidr in enumerate(spec.access.ssh_from):
        path = f"access.ssh_from[{i}]"
        try:
            network = ipaddress.ip_network(cidr, strict=False)
        except ValueError:
            yield error(path, f"is {shown(cidr)}; allowed: a network such as 203.0.113.0/24", "correct the CIDR block")
            continue
        if network.prefixlen == 0:
            yield error(path, f"is {network}, which includes every address", "list your operators' networks")
        elif wrong := host_bits(cidr):
            yield error(path, *wrong)
        elif network.is_global and network.prefixlen < (16 if network.version == 4 else 32):
            yield warn(path, f"is {network}, a very large public range", "list smaller networks")


def text_contains_no_key(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """No text of the declaration, such as a tag, contains a private key or an access token."""
    for route, text in _texts(spec.model_dump(warnings=False), ()):
        # Rules of their own check these, and name what to use instead.
        if contains_key(text) and "environment" not in route and route[:2] != ("software", "files"):
            what = "contains a private key or an access token, and everyone who can read the resources or the bill can read it"
            yield error(
                path_text(route),
                what,
                "remove it, and revoke the key, because other copies of the stack file can exist",
            )


def _texts(value: object, route: Route) -> Iterator[tuple[Route, str]]:
    """Yield each text below a value with its path. The path of a key is that of its value, without the key, which is not shown."""
    if isinstance(value, str):
        yield route, value
    elif isinstance(value, dict):
        for key, item in value.items():
            if contains_key(key):
                yield route, key
            else:
                yield from _texts(item, (*route, key))
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from _texts(item, (*route, at))


def ingress_is_private(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Declared connections come from private IPv4 networks, because nodes have no public address. Ports are valid, and no connection is declared twice."""
    seen: set[tuple[str, str, str]] = set()
    for i, entry in enumerate(spec.access.ingress):
        path = f"access.ingress[{i}]"
        for j, cidr in enumerate(entry.sources):
            yield from _source(f"{path}.sources[{j}]", cidr)
        for j, ports in enumerate(entry.ports):
            where = f"{path}.ports[{j}]"
            first, _, last = ports.partition("-")
            if int(last or first) > LAST_PORT:
                yield error(where, f"is {ports}; allowed: ports from 1 to {LAST_PORT}", "correct the port")
            elif last and int(last) <= int(first):
                what = f"is {ports}; allowed: a range that ends after its start"
                hint = f'use "{last}-{first}"' if last != first else f'use "{first}"'
                yield error(where, what, hint)
        opened = [(entry.protocol, ports, cidr) for ports in entry.ports for cidr in entry.sources]
        twice = [one for n, one in enumerate(opened) if one in seen or one in opened[:n]]
        if twice:
            protocol, ports, cidr = twice[0]
            yield error(path, f"opens {protocol} {ports} to {cidr} a second time", "remove one of the entries")
        seen.update(opened)
    if spec.access.ingress and spec.use.site:
        what = "has no effect, because the site is in another stack"
        yield error("access.ingress", what, "set it in the stack that creates the site")


def _source(path: str, cidr: str) -> Iterator[Finding]:
    try:
        network = ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        yield error(path, f"is {shown(cidr)}; allowed: a network such as 10.0.0.0/16", "correct the CIDR block")
        return
    if network.version == 6:
        yield error(path, f"is {network}, but the cluster's network does not use IPv6", "use an IPv4 network")
    elif network.prefixlen == 0 or network.is_global:
        what = f"is {network}, which cannot reach the nodes, because they have no public address"
        yield error(path, what, "use the private addresses of a peered network or a VPN")
    elif wrong := host_bits(cidr):
        yield error(path, *wrong)


def node_roles_are_listed_once(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Each node role is assigned once at a scope, because the same assignment cannot exist twice."""
    roles = spec.access.node_roles
    for i, role in enumerate(roles):
        if role in roles[:i]:
            yield error(f"access.node_roles[{i}]", f"assigns {shown(role.role)} a second time", "remove it")


def access_fields_have_an_effect(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A field of `access` that the cloud does not use is an error."""
    cloud = profile_of(spec.cloud)
    for name in Access.model_fields:
        if name not in cloud.access_fields and getattr(spec.access, name):
            yield error(f"access.{name}", f"has no effect on {cloud.title}", "remove it")


def all_buckets_are_recorded(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """`audit.all_buckets` requires data events and a cloud whose audit trail can be limited to selected buckets."""
    audit, cloud = spec.audit, profile_of(spec.cloud)
    if audit.all_buckets and not cloud.selects_buckets:
        yield error("audit.all_buckets", f"is true, which has no effect on {cloud.title}", "remove it")
    elif audit.all_buckets and not audit.data_events:
        yield error("audit.all_buckets", "is true, but audit.data_events is false", "remove one of them")
    elif audit.all_buckets and audit.trail == "create" and "foundation" in spec.made_layers:
        what = "is true, so each read and write of an object in the account is billed, which the plan's price does not include"
        yield info("audit.all_buckets", what, "remove it to record only the stack's buckets")


def compliance_lock_is_confirmed(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A compliance lock, which cannot be shortened, requires confirm_compliance."""
    audit = spec.audit
    if audit.lock_mode == "compliance" and not audit.confirm_compliance:
        what = f"is compliance, so audit records cannot be deleted for {audit.lock_days} days, not even by the account owner"
        yield error("audit.lock_mode", what, "add confirm_compliance: true, or use governance")


def audit_trail_is_enabled(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The foundation has an audit trail. A declaration without one causes a warning."""
    if "foundation" in spec.made_layers and spec.audit.trail == "none":
        yield warn("audit.trail", "is none, so actions in the account are not recorded", "use create or existing")


def weakened_protection_is_reported(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A setting that provides less protection than its default is allowed but reported."""
    audit, usual = spec.audit, defaults(Audit)
    own_network = "site" in spec.made_layers and spec.network.existing is None
    if own_network and spec.access.ssh_from:
        what = f"opens port 22 of every node to {listed(list(spec.access.ssh_from))}"
        yield info("access.ssh_from", what, "remove the setting to keep port 22 closed")
    if own_network and spec.network.flow_log_days < (days := defaults(NetworkSpec).flow_log_days):
        what = f"is {spec.network.flow_log_days}; flow logs are kept for {days} days by default"
        yield warn("network.flow_log_days", what, f"remove the setting to keep flow logs for {days} days")
    if "foundation" not in spec.made_layers or audit.trail != "create":
        return
    if not audit.data_events:
        what = "is false, so reads and writes of objects are not recorded"
        yield warn("audit.data_events", what, "remove it")
    for name, given, days in (
        ("lock_days", audit.lock_days, usual.lock_days),
        ("log_retention_days", audit.log_retention_days, usual.log_retention_days),
    ):
        if given < days:
            what = f"is {given}; audit records are kept for {days} days by default"
            yield warn(f"audit.{name}", what, "remove the setting, or make sure that you do not need older records")


RULES = rules_in(vars())
