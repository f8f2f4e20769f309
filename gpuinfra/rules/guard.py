"""Rules that guard the account: addresses, ways in and out, the audit trail."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import date

from gpuinfra.clouds import profile_of
from gpuinfra.clouds.machines import machines_of
from gpuinfra.clouds.profile import Rule
from gpuinfra.findings import Finding, error, info, warn
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.policy import Audit, Network
from gpuinfra.spec.shown import shown


def cidr_is_private(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The network's addresses are private ones, on a boundary, and large enough."""
    if spec.network.existing:
        return
    try:
        network = ipaddress.ip_network(spec.network.cidr, strict=True)
    except ValueError:
        yield error(
            cidr_is_private,
            "network.cidr",
            f"is {shown(spec.network.cidr)}; allowed is a private network such as 10.64.0.0/16",
            "end it in zeros",
        )
        return
    private = [
        ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
    ]
    if network.version != 4 or not any(network.subnet_of(p) for p in private if p.version == 4):  # type: ignore[arg-type]
        yield error(
            cidr_is_private, "network.cidr", f"is {network}, which is no private network", "take one in 10.0.0.0/8"
        )
    elif not 16 <= network.prefixlen <= 20:
        yield error(
            cidr_is_private, "network.cidr", f"is a /{network.prefixlen}; allowed are /16 to /20", "take 10.64.0.0/16"
        )


def image_is_prebuilt_without_egress(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Without a way out, steps cannot fetch from vendors: the image has to bring everything, or a mirror is named."""
    if spec.network.egress != "endpoints" or spec.software.mirror_url:
        return
    for i, pool in enumerate(spec.pools):
        machine = machines_of(spec).get(pool.machine)
        if machine is None:
            continue
        image, _ = profile_of(spec.cloud).image(spec, pool, machine)
        if not image.prebuilt:
            yield error(
                image_is_prebuilt_without_egress,
                f"pools[{i}].image",
                "installs from vendors' servers, but network.egress is endpoints, so nodes cannot reach them",
                "take a prebuilt image, name software.mirror_url, or let egress be nat",
            )


def nobody_enters_from_everywhere(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Port 22 is never open to the whole world."""
    for i, cidr in enumerate(spec.access.ssh_from):
        path = f"access.ssh_from[{i}]"
        try:
            network = ipaddress.ip_network(cidr, strict=False)
        except ValueError:
            yield error(
                nobody_enters_from_everywhere,
                path,
                f"is {shown(cidr)}; allowed is a network such as 203.0.113.0/24",
                "mend it",
            )
            continue
        if network.prefixlen == 0:
            yield error(
                nobody_enters_from_everywhere,
                path,
                f"is {network}: everybody",
                "name the networks that operators come from",
            )
        elif network.is_global and network.prefixlen < (16 if network.version == 4 else 32):
            yield warn(
                nobody_enters_from_everywhere, path, f"is {network}, which is very large", "name smaller networks"
            )


def compliance_is_confirmed(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A lock that nobody can shorten is confirmed by a field of its own."""
    audit = spec.audit
    if audit.lock_mode == "compliance" and not audit.confirm_compliance:
        what = f"is compliance: for {audit.lock_days} days nobody can delete an entry, the account's owner included"
        yield error(
            compliance_is_confirmed, "audit.lock_mode", what, "add confirm_compliance: true, or take governance"
        )


def trail_is_made(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An account without an audit trail is a decision that somebody has to see."""
    if "foundation" in spec.made_layers and spec.audit.trail == "none":
        yield warn(trail_is_made, "audit.trail", "is none, so nobody will know who did what", "take create or existing")


def what_is_loosened_is_said(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Where a person takes less protection than there is by itself, it is said; the choice stays theirs."""
    audit, usual = spec.audit, Audit()
    own_network = "site" in spec.made_layers and spec.network.existing is None
    if own_network and spec.access.ssh_from:
        what = f"wants port 22 of every node open to {listed(list(spec.access.ssh_from))}"
        yield info(what_is_loosened_is_said, "access.ssh_from", what, "left out, nobody reaches it")
    if own_network and spec.network.flow_log_days < (days := Network().flow_log_days):
        what = f"is {spec.network.flow_log_days}, so what happened {days} days ago cannot be looked up"
        yield warn(what_is_loosened_is_said, "network.flow_log_days", what, f"leave it out: {days}")
    if "foundation" not in spec.made_layers or audit.trail != "create":
        return
    if not audit.data_events:
        what = "is false, so nobody will know who read or wrote which object"
        yield warn(what_is_loosened_is_said, "audit.data_events", what, "leave it out")
    for name, given, days in (
        ("lock_days", audit.lock_days, usual.lock_days),
        ("log_retention_days", audit.log_retention_days, usual.log_retention_days),
    ):
        if given < days:
            what = f"is {given}, so who did what is gone after that; {days} is usual"
            yield warn(
                what_is_loosened_is_said, f"audit.{name}", what, "leave it out, or be sure that nobody asks later"
            )


RULES: tuple[Rule, ...] = (
    cidr_is_private,
    image_is_prebuilt_without_egress,
    nobody_enters_from_everywhere,
    compliance_is_confirmed,
    trail_is_made,
    what_is_loosened_is_said,
)
