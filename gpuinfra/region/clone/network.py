"""Sets the network of the clone, and chooses its address range, so that both networks can be peered."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from gpuinfra.base.findings import Finding, error, warn
from gpuinfra.clouds.region.second_region import Manual
from gpuinfra.region.clone.draft import Draft
from gpuinfra.region.clone.pair import RegionPair
from gpuinfra.spec.policy import NetworkSpec

DEFAULT = NetworkSpec().cidr
_FIRST_OCTET = 64


def set_network(pair: RegionPair, draft: Draft) -> None:
    """Set the address range, and replace an existing network with one that the clone creates."""
    network, made = pair.spec.network, "site" in pair.spec.made_layers
    for name in pair.unused("network"):
        draft.set(("network", name), None, f"{pair.there.title} does not support this setting")
    if network.existing and not pair.is_given(("network", "existing")):
        draft.set(
            ("network", "existing"),
            None,
            f"{network.existing.id.rpartition('/')[2]} is a network of {pair.source}; the clone creates its own network",
        )
        draft.manual.append(
            Manual(
                path="network.existing",
                what=f"existing network in {pair.target}",
                why="to use an existing network there, specify it with --set 'network.existing={id: ID, subnets: {ZONE_OR_REGION: SUBNET}}'",
                command=pair.facts.network(pair.target),
            )
        )
        if not pair.request.peers and not pair.is_given(("network", "cidr")):
            what = "is not in the declaration of an existing network, so the clone cannot avoid it"
            draft.findings.append(warn("network.cidr", what, "specify the ranges of the existing network with --peer"))
    for name in ("cidr", "existing"):
        if pair.is_given(("network", name)):
            draft.findings += _unused(pair, name)
            return
    declared = draft.get(("network", "cidr"))
    if not made and declared is None:
        return
    if pair.request.cidr:
        draft.set(("network", "cidr"), pair.request.cidr, "set with --cidr")
        return
    chosen = range_for(network.cidr, pair.source, pair.target, pair.there.regions, pair.request.peers)
    if chosen is None:
        what = f"is {network.cidr}, and every private range of this size overlaps --peer"
        draft.findings.append(error("network.cidr", what, "specify a free range with --cidr"))
        return
    draft.set(
        ("network", "cidr"),
        chosen,
        f"does not overlap {network.cidr}, so that both networks can be peered; other stacks are not read, so specify the ranges of their networks with --peer",
    )


def _unused(pair: RegionPair, name: str) -> Iterator[Finding]:
    """Yield an error for each option that has no effect in combination with `--set network.NAME`."""
    options = (("--cidr", pair.request.cidr is not None), ("--peer", bool(pair.request.peers)))
    for option in (option for option, given in options if given):
        hint = (
            "use one of the two options" if name == "cidr" else "omit the option, because the clone creates no network"
        )
        yield error(option, f"has no effect, because --set sets network.{name}", hint)


def network_of(text: str) -> ipaddress.IPv4Network | None:
    """Parse an IPv4 range, or return None."""
    try:
        return ipaddress.IPv4Network(text, strict=False)
    except ValueError:
        return None


def range_for(cidr: str, source: str, target: str, regions: Sequence[str], avoid: Sequence[str]) -> str | None:
    """Return a private range of the same size for the region `target`, or None if every range overlaps one in `avoid`.

    Each region has one fixed range in 10.0.0.0/8, so that clones of one stack in several regions do not overlap either.
    Other stacks are not read: clones of two stacks in one region get the same range, unless `avoid` contains the range of the first.
    A clone of a clone gets the default range, which most originals use, if it is free.
    """
    here = network_of(cidr)
    if here is None:
        return None
    used = [one for one in (here, *map(network_of, avoid)) if one is not None]
    for base in _bases(cidr, source, target, regions):
        candidate = ipaddress.IPv4Network(f"{base}/{here.prefixlen}")
        if not any(candidate.overlaps(one) for one in used):
            return str(candidate)
    return None


def _bases(cidr: str, source: str, target: str, regions: Sequence[str]) -> Iterator[str]:
    own = _own(source, regions)
    if own and cidr.partition("/")[0] == own:
        yield DEFAULT.partition("/")[0]
    if first := _own(target, regions):
        yield first
    for octet in (*range(_FIRST_OCTET, 256), *range(_FIRST_OCTET)):
        yield f"10.{octet}.0.0"


def _own(region: str, regions: Sequence[str]) -> str | None:
    if region not in regions:
        return None
    return f"10.{(_FIRST_OCTET + 1 + sorted(regions).index(region)) % 256}.0.0"
