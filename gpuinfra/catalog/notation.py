"""Short notations for the tables of machine types."""

from __future__ import annotations


def zones_by_region(text: str, name: str = "{zone}") -> dict[str, tuple[str, ...]]:
    """Parse `us-central1:a,b eastus2` into region -> zones. A region without a list has no zones. `name` is the pattern of a zone's name."""
    found: dict[str, tuple[str, ...]] = {}
    for part in text.split():
        region, _, zones = part.partition(":")
        found[region] = tuple(name.format(region=region, zone=zone) for zone in zones.split(",") if zone)
    return found
