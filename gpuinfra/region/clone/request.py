"""Checks the options of a clone before anything else, so that an impossible request causes only one finding."""

from __future__ import annotations

from collections.abc import Iterator

from gpuinfra.base.findings import Finding, error, info, warn
from gpuinfra.base.registry import CLOUDS
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.plan.profile import profile_of
from gpuinfra.region.clone.model import MODES, CloneRequest
from gpuinfra.region.clone.network import network_of
from gpuinfra.region.clone.pair import facts_of
from gpuinfra.region.clone.storage import with_bucket
from gpuinfra.spec.messages import listed
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.shown import shown

MAX_RPO = 10_080
"""Maximum RPO in minutes, as in `recovery.rpo_minutes`."""


def request_findings(spec: ClusterSpec, request: CloneRequest) -> Iterator[Finding]:
    """Yield the first reason why the request is impossible for any stack."""
    if request.mode not in MODES:
        yield error("--mode", f"is {shown(request.mode)}; allowed: {', '.join(MODES)}", "use one of these modes")
        return
    name = spec.cloud if request.cloud is None else request.cloud
    if name not in CLOUDS:
        yield error("--cloud", f"is {shown(name)}; allowed: {', '.join(CLOUDS)}", "use one of these clouds")
        return
    facts, cloud, region = cloud_of(name).second_region, profile_of(name), request.region
    if facts is None or cloud_of(spec.cloud).second_region is None:
        yield error(
            "--cloud",
            f"is {name}, which gpuinfra does not support as the cloud of a clone yet",
            "use a different cloud",
        )
        return
    here, there = facts.partition(spec.where.region), facts.partition(region)
    if name == spec.cloud and here != there:
        what = f"is {shown(region)} in the {there} partition, but the stack is in {here}: accounts, images, keys and peering do not cross partitions"
        yield error("--region", what, f"use a region of {here}")
    elif not cloud.is_region(region):
        yield from cloud.region_findings("--region", region)
    elif name == spec.cloud and region == spec.where.region:
        yield error("--region", f"is {region}, which is the region of the stack", "specify a different region")
    elif request.zone is not None and cloud.region_of_zone(request.zone, region) != region:
        first = cloud.first_zone(region)
        like = first if cloud.region_of_zone(first, region) else "1"
        yield error(
            "--zone", f"is {shown(request.zone)}, which is not a zone of {region}", f"use a zone such as {like}"
        )
    else:
        yield from _option_findings(spec, request)


def _option_findings(spec: ClusterSpec, request: CloneRequest) -> Iterator[Finding]:
    pools = [pool.name for pool in spec.pools]
    for option, values in (("--count", request.count), ("--machine", request.machine)):
        for name in values:
            if not pools:
                yield error(option, "is set, but the stack has no pools", "remove it")
                return
            if name == "*" and option == "--count" and len(pools) > 1:
                what = f"is one number, but the stack has {len(pools)} pools"
                yield error(option, what, f"use the form {pools[0]}=N for each pool to change")
                return
            if name != "*" and name not in pools:
                yield error(
                    option, f"has the pool {shown(name)}; the pools are {listed(pools)}", "use one of these pools"
                )
                return
    for name, count in request.count.items():
        if not 1 <= count <= 100_000:
            pool = f" for {name}" if name != "*" else ""
            yield error("--count", f"is {shown(count)}{pool}; allowed: 1 to 100000", "use a number in this range")
            return
    option = "--cidr" if request.cidr is not None else "--peer" if request.peers else ""
    if option and "site" not in spec.made_layers and "cidr" not in spec.network.model_fields_set:
        hint = "omit the option"
        if spec.use.site:
            hint = f"{hint} here, and specify it for the clone of {shown(spec.use.site)}, which creates the network"
        yield error(option, "is set, but the clone does not create the network", hint)
        return
    own = None if spec.network.existing else network_of(spec.network.cidr)
    given = []
    for option, text in (
        *(("--peer", one) for one in request.peers),
        *((("--cidr", request.cidr),) if request.cidr is not None else ()),
    ):
        network = network_of(text)
        if network is None:
            yield error(option, f"is {shown(text)}; allowed: an IPv4 network such as 10.80.0.0/16", "correct the range")
            return
        given.append((option, network))
    for option, network in given:
        if option != "--cidr":
            continue
        if own and network.overlaps(own):
            what = f"is {network}, which overlaps {own}, the network of the stack, so the networks cannot be peered"
            yield error("--cidr", what, "use a different range, or omit the option")
            return
        for _, peer in given:
            if peer is not network and network.overlaps(peer):
                yield error("--cidr", f"is {network}, which overlaps {peer} in --peer", "use a different range")
                return
    if request.rpo_minutes is not None:
        yield from _rpo_findings(spec, request)


def _rpo_findings(spec: ClusterSpec, request: CloneRequest) -> Iterator[Finding]:
    replication = facts_of(spec.cloud).replication
    rpo = request.rpo_minutes
    assert rpo is not None
    if not 1 <= rpo <= MAX_RPO:
        yield error("--rpo", f"is {shown(rpo)}; allowed: 1 to {MAX_RPO} minutes", "use a number in this range")
    elif not any(with_bucket(spec)):
        what = f"is {rpo}, but no file system of the stack has a bucket, and only buckets are replicated"
        yield error("--rpo", what, "link a bucket to the file system (bucket: auto), or omit the option")
    elif replication.minutes is not None and rpo < replication.minutes:
        what = f"is {rpo}, but the shortest lag that {profile_of(spec.cloud).title} commits to is {replication.minutes} minutes"
        yield error("--rpo", what, f"use {replication.minutes} or more")
    elif replication.minutes is None:
        what = f"is {rpo}, but {profile_of(spec.cloud).title} does not commit to a lag: {replication.feature}; {replication.export}"
        yield warn("--rpo", what, "measure the lag of the replica, and export at least as often as the RPO")
    else:
        yield info("--rpo", f"is {rpo}, which requires {replication.feature}; {replication.export}", "")
