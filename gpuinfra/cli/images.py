"""`gpuinfra images`: shows the image of each pool, newer releases of its family, and what a newer release changes.

The catalog records require no network access. With `--live`, the cloud is queried for the newest image.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gpuinfra.doctor.cloud import NewestImage
    from gpuinfra.plan.model import Image, Plan
    from gpuinfra.software.images import ImageFamily
    from gpuinfra.spec.model import ClusterSpec

NOT_KNOWN = "not known"


@click.command("images")
@click.argument("stack", metavar="STACK|FILE")
@click.option("--live", is_flag=True, help="Also query the cloud for the newest image (docs/reference/images.md).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(stack: str, live: bool, as_json: bool) -> int:
    """Show the image of each pool in STACK, newer releases of the same image family, and what they change.

    The command lists the releases that gpuinfra records, each with its source. Without --live, it does not query the cloud, so newer
    releases might exist. With --live, the command sends read-only requests with your credentials. Without credentials, it reports which
    images it could not check.
    """
    from gpuinfra.base.day import today
    from gpuinfra.doctor.cloud import newest_images
    from gpuinfra.plan.make import build_plan
    from gpuinfra.plan.profile import profile_of
    from gpuinfra.rules import load_stack
    from gpuinfra.spec.load import find_stack

    day = today()
    loaded = load_stack(find_stack(stack), day)
    plan = build_plan(loaded.spec, day)
    families = {family.name: family for family in profile_of(loaded.spec.cloud).image_families}
    used = [families[pool.image.family] for pool in plan.pools if pool.image.family in families]
    newest = newest_images(loaded, used) if live else None
    pools = list(_pools(loaded.spec, plan, families, newest))
    if as_json:
        click.echo(json.dumps({"schema": "gpuinfra.images/1", "stack": loaded.name, "pools": pools}, indent=2))
        return 0
    for pool in pools:
        click.echo("\n".join(_lines(pool)))
    return 0


def _pools(
    spec: ClusterSpec, plan: Plan, families: Mapping[str, ImageFamily], newest: Mapping[str, NewestImage] | None
) -> Iterator[dict[str, Any]]:
    """Return the image and the newer releases of each pool, as plain values. `newest` contains the cloud's answers, or is None."""
    from gpuinfra.clouds import images
    from gpuinfra.software.images import changes

    declared = {pool.name: images.where(pool, f"pools[{index}]") for index, pool in enumerate(spec.pools)}
    for pool in plan.pools:
        image, family = pool.image, families.get(pool.image.family)
        newer = [one for one in family.releases if image.date and one.date > image.date] if family else []
        contents = dict(image.release.contents) if image.release and image.date else {}
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
                    "changes": changes(contents, one.contents),
                    "source": one.source,
                    "read": one.read.isoformat(),
                }
                for one in newer
            ],
            **({} if newest is None else {"newest_in_cloud": _in_cloud(image, family, newest)}),
        }


def _in_cloud(image: Image, family: ImageFamily | None, newest: Mapping[str, NewestImage]) -> dict[str, Any]:
    """Return the newest image in the cloud and what it changes, or why the cloud was not queried.

    For a pool without a date, the changes are relative to the newest recorded release, which the plan uses.
    """
    from gpuinfra.software.images import unrecorded_changes

    if family is None:
        return {"not_asked": "the image is not a release of one of the cloud's GPU images", "fix": ""}
    answer = newest[family.name]
    if not answer.ref:
        return {"not_asked": answer.why, "fix": answer.fix}
    on = family.day(answer.ref)
    planned = image.release.date if image.release else image.date
    same = answer.ref == image.ref or (on is not None and on == planned)
    before = family.contents(planned)
    return {
        "ref": answer.ref,
        "date": on.isoformat() if on else None,
        "newer": not same and (on is None or planned is None or on > planned),
        "changes": {} if same else unrecorded_changes(family, before, family.contents(on)),
    }


def _lines(pool: dict[str, Any]) -> Iterator[str]:
    yield f"{pool['pool']}: {pool['family'] or pool['ref']}"
    yield f"  release  {pool['release']}; {pool['contains']}"
    for newer in pool["newer"]:
        changed = ", ".join(f"{name} {old or 'unknown'} -> {new}" for name, (old, new) in newer["changes"].items())
        yield f"  newer    {newer['date']}: {changed or 'no recorded change'} ({newer['source']}; retrieved {newer['read']})"
    latest = [one["date"] for one in pool["newer"]]
    cloud = pool.get("newest_in_cloud")
    if cloud is not None:
        yield f"  cloud    {_answer(cloud)}"
        if cloud.get("newer") and cloud["date"]:
            latest.append(cloud["date"])
    if latest:
        chosen = max(latest)
        yield f"  to use the release of {chosen}, set {pool['declared_in']} to {chosen} and run `pulumi up`"
    elif pool["date"] and cloud is None:
        yield "  no newer release is recorded; use --live to query the cloud"


def _answer(cloud: Mapping[str, Any]) -> str:
    """Return the cloud's answer on one line."""
    if "not_asked" in cloud:
        return f"not queried: {cloud['not_asked']}" + (f"; fix: {cloud['fix']}" if cloud["fix"] else "")
    about = f"{cloud['ref']} is the newest image"
    if not cloud["newer"]:
        return f"{about}, which is not newer than the release of this pool"
    changed = ", ".join(
        f"{name} {old or NOT_KNOWN} -> {new or NOT_KNOWN}" for name, (old, new) in cloud["changes"].items()
    )
    undated = "" if cloud["date"] else "; its name has no date, so set `image` to an object with `ref` to select it"
    return f"{about}: {changed or 'no known change'}{undated}"
