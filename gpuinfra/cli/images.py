"""`gpuinfra images`: shows the recorded releases of each pool's image family, and what a newer release changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from typing import Any

import click


@click.command("images")
@click.argument("stack", metavar="STACK|FILE")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(stack: str, as_json: bool) -> int:
    """Show the image of each pool of STACK, newer releases of the same image family, and what they change.

    The releases are those that gpuinfra records, each with its source. The command does not query the cloud, so newer releases can exist.
    """
    from gpuinfra.day import today
    from gpuinfra.rules import load_stack
    from gpuinfra.spec.load import find_stack

    day = today()
    loaded = load_stack(find_stack(stack), day)
    pools = list(_pools(loaded.spec, day))
    if as_json:
        click.echo(json.dumps({"schema": "gpuinfra.images/1", "stack": loaded.name, "pools": pools}, indent=2))
        return 0
    for pool in pools:
        click.echo("\n".join(_lines(pool)))
    return 0


def _pools(spec: Any, day: date) -> Iterator[dict[str, Any]]:
    """Return the image and the newer releases of each pool, as plain values."""
    from gpuinfra.clouds import images, profile_of
    from gpuinfra.planning import make_plan
    from gpuinfra.software.images import changes

    families = {family.name: family for family in profile_of(spec.cloud).image_families}
    declared = {pool.name: images.where(pool, f"pools[{index}]") for index, pool in enumerate(spec.pools)}
    for pool in make_plan(spec, day).pools:
        image, family = pool.image, families.get(pool.image.family)
        newer = [one for one in family.releases if image.date and one.date > image.date] if family else []
        known = dict(image.release.contents) if image.release and image.date else {}
        yield {
            "pool": pool.name,
            "declared_in": declared[pool.name],
            "ref": image.ref,
            "family": image.family,
            "date": image.date.isoformat() if image.date else None,
            "release": image.on,
            "contains": image.contains,
            "newer": [
                {
                    "date": one.date.isoformat(),
                    "changes": changes(known, one.contents),
                    "source": one.source,
                    "read": one.read.isoformat(),
                }
                for one in newer
            ],
        }


def _lines(pool: dict[str, Any]) -> Iterator[str]:
    yield f"{pool['pool']}: {pool['family'] or pool['ref']}"
    yield f"  release  {pool['release']}; {pool['contains']}"
    for one in pool["newer"]:
        changed = ", ".join(f"{name} {old or 'unknown'} -> {new}" for name, (old, new) in one["changes"].items())
        yield f"  newer    {one['date']}: {changed or 'no recorded change'} ({one['source']}; read {one['read']})"
    if pool["newer"]:
        yield f"  to use the release of {pool['newer'][-1]['date']}, set {pool['declared_in']} to {pool['newer'][-1]['date']} and run `pulumi up`"
    elif pool["date"]:
        yield "  no newer release is recorded"
