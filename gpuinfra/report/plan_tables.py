"""Tables and sentences that are used in both the text and the page of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuinfra.base.words import counted
from gpuinfra.clouds.timing import ChainPart, ReadyTime
from gpuinfra.cost.compare import ComparisonRow
from gpuinfra.plan.model import (
    ExistingFileSystemPlan,
    FileSystemPlan,
    Lifetime,
    OwnStep,
    Plan,
    PoolPlan,
    Subnet,
)
from gpuinfra.plan.recovery_model import RecoveryImage, RecoveryPlan
from gpuinfra.report.prices import usd
from gpuinfra.report.tables import Cell, Column, Table


def gpus_of(plan: Plan) -> int:
    """Return the number of GPUs in all pools."""
    return sum(pool.count * pool.expectation["gpus"] for pool in plan.pools)


def subnet_table(subnets: Sequence[Subnet]) -> Table:
    """Return the table of subnets. An existing subnet shows its ID instead of a range."""
    rows = [(one.name, Cell(one.cidr or one.existing_id or "", code=True), one.zone, one.role) for one in subnets]
    return Table(["subnet", "addresses", "zone", "role"], rows)


def own_steps_table(pool: PoolPlan) -> Table:
    """Return the table of the pool's declared steps. It has no rows if there are none."""
    rows = [
        (one.id, Cell(one.source, code=True), Cell(one.sha256[:12], code=True), _run(one))
        for one in pool.steps
        if isinstance(one, OwnStep)
    ]
    return Table(["own step", Column("script", wrap=True), "SHA-256", "run"], rows)


def dates(pool: PoolPlan) -> Iterator[str]:
    """Describe when the nodes of each group start and are removed, for groups with a start or an end."""
    for group in pool.groups:
        starts = f"start at {group.starts_at}" if group.starts_at and not group.count else ""
        ends = f"are removed at {group.ends_at}" if group.ends_at else ""
        if text := " and ".join(one for one in (starts, ends) if one):
            yield f"{group.name}: nodes {text}"


def _run(step: OwnStep) -> str:
    """Describe how a declared step runs: `at most 10 minutes, 2 retries, then a reboot`."""
    retries = f", {counted(step.retries, 'retry', 'retries')}" if step.retries else ""
    return f"at most {counted(step.timeout_s // 60, 'minute')}{retries}{', then a reboot' if step.reboot else ''}"


def storage_text(entry: FileSystemPlan) -> str:
    """Describe a file system, its link to a bucket, and what happens to its files on `destroy`.

    `lustre SCRATCH_2, 4,800 GiB, bucket auto; imports new objects automatically; exports no files automatically;
    destroy deletes it, and files that are not exported are lost`
    """
    if entry.kind == "object":
        return "; ".join((f"object {entry.deployment}, bucket {entry.bucket}", *_bucket(entry)))
    size = "grows with its files" if entry.deployment == "elastic" else f"{entry.capacity_gib:,} GiB"
    tier = f" at {entry.throughput_mb_s_per_tib} MB/s per TiB" if entry.throughput_mb_s_per_tib else ""
    tier = f" at {entry.throughput_mb_s} MB/s" if entry.throughput_mb_s else tier
    bucket = f", bucket {entry.bucket}" if entry.bucket else ""
    restored = f", from {entry.restore_from}" if entry.restore_from else ""
    what = " ".join(word for word in (entry.kind, entry.service, entry.deployment) if word)
    return "; ".join((f"{what}, {size}{tier}{bucket}{restored}", *_copies(entry), *_link(entry), _on_destroy(entry)))


def existing_text(entry: ExistingFileSystemPlan) -> str:
    """Describe an existing file system: that it is not part of the price, what nodes mount, and what its owner must open.

    `lustre fs-0123456789abcdef0, existing, not part of the price; mounted from 10.40.0.2, name scratch; its owner must open ...; destroy does not change it`
    """
    word = "name" if entry.kind == "lustre" else "path"
    parts = (
        f"{entry.kind} {entry.id}, existing, not part of the price",
        f"mounted from {entry.address}, {word} {entry.mount_name}{' over EFA' if entry.efa else ''}",
        f"its owner must open {entry.owner_opens}",
        "destroy does not change it",
    )
    return "; ".join(parts)


def _copies(entry: FileSystemPlan) -> tuple[str, ...]:
    """Describe the automatic backups and snapshots of a file system."""
    return (
        *((f"daily backups, retained for {entry.backup_days} days",) if entry.backup_days else ()),
        *((f"daily snapshots, of which {entry.snapshot_days} are retained",) if entry.snapshot_days else ()),
    )


def _bucket(entry: FileSystemPlan) -> tuple[str, ...]:
    """Describe a mounted bucket. Its files are the objects, so nothing is imported or exported."""
    cache = "a tenth of the local disks" if entry.cache_gib is None else f"{entry.cache_gib:,} GiB of the local disks"
    kept = entry.lifetime is Lifetime.KEPT
    return (
        "read-only" if entry.read_only else "nodes can write and delete objects",
        "no cache" if entry.cache_gib == 0 else f"caches objects on {cache}",
        *((f"nodes use the key {entry.key_arn}",) if entry.key_arn else ()),
        "files are the objects of the bucket, so nothing is imported or exported",
        "destroy retains the bucket" if kept else "destroy removes the nodes' access and retains the bucket",
    )


def _link(entry: FileSystemPlan) -> tuple[str, ...]:
    """Describe the automatic imports and exports of a file system that is linked to a bucket."""
    if entry.bucket is None:
        return ()
    where = "" if entry.bucket_path == "/" else f" in {entry.bucket_path}"
    imports = f"imports {_events(entry.import_events)} objects" if entry.import_events else "imports no later changes"
    exports = f"exports {_events(entry.export_events)} files{where}" if entry.export_events else "exports no files"
    if entry.export_minutes is not None:
        return f"{imports} automatically", f"exports new and changed files every {entry.export_minutes} minutes"
    return f"{imports} automatically", f"{exports} automatically"


def _events(events: Sequence[str]) -> str:
    """Return events in words: `new, changed and deleted`."""
    words = [event.lower() for event in events]
    return " and ".join([*([", ".join(words[:-1])] if words[1:] else []), words[-1]])


def _on_destroy(entry: FileSystemPlan) -> str:
    if entry.lifetime is Lifetime.KEPT:
        return "destroy retains it"
    if entry.bucket is None:
        return "destroy deletes it with all its files"
    return "destroy deletes it, and files that are not exported are lost"


def recovery_table(recovery: RecoveryPlan) -> Table:
    """Return the calculation of both recovery objectives: a row for each step, a row with the sum and the target, and a row for each step without a value."""
    rows: list[tuple[str, str, str]] = []
    for name, target in (("RPO", recovery.rpo), ("RTO", recovery.rto)):
        rows += [
            (one.what, f"{one.minutes:,.1f}", f"{'assumption: ' if one.assumed else ''}{one.how}")
            for one in target.parts
        ]
        result = "met if the rates are reached" if target.holds else "not met"
        rows.append((name, f"{target.minutes:,.1f}", f"{result}: the target is {target.declared_minutes} minutes"))
        rows += [(f"not in {name}", "", what) for what in target.excluded]
    return Table([Column("step", wrap=True), Column("minutes", right=True), Column("calculation", wrap=True)], rows)


def time_table(time: ReadyTime | None, *, sources: bool = False) -> Table:
    """Return the longest chain until the nodes are verified, in order. The first cell of a row is the step, so that a row is readable on a phone.

    `sources` adds a column with the source of each duration, and shows the resource and its type in the cell of the step.
    """
    parts = time.parts if time else ()
    minutes = Column("minutes", right=True)
    if sources:
        titles = (f"{one.step}: {one.name}" if one.name else one.step for one in parts)
        rows = [
            (Cell(title, note=one.type), _minutes(one), one.source) for title, one in zip(titles, parts, strict=True)
        ]
        return Table([Column("step", wrap=True), minutes, Column("source", wrap=True)], rows)
    rows = [(one.step, _minutes(one), one.name, Cell(one.type, code=True)) for one in parts]
    return Table([Column("step", wrap=True), minutes, Column("resource", wrap=True), Column("type", wrap=True)], rows)


def _minutes(part: ChainPart) -> str:
    if part.minutes is None:
        return "unknown"
    return f"{'at least ' if part.at_least else ''}{part.minutes:,.1f}"


def image_text(image: RecoveryImage) -> str:
    """Return how the second region gets an image of the nodes."""
    how = "copied by this stack" if image.copied else "not copied" if image.regional else "no copy needed"
    return f"{image.ref}: {how}, because {image.why}"


def commands_table(recovery: RecoveryPlan | None) -> Table:
    """Return the table of commands that you run yourself for the second region."""
    rows = [(Cell(one.command, code=True), one.why) for one in (recovery.commands if recovery else ())]
    return Table([Column("command", wrap=True), Column("reason", wrap=True)], rows)


def ways_table(ways: Sequence[ComparisonRow], *, notes: bool = False) -> Table:
    """Return the price of the same nodes by purchase option. The result is empty if there is nothing to compare."""
    columns = [
        Column("purchase option"),
        Column("USD/hour", right=True),
        Column("USD/month", right=True),
        Column("cheaper from"),
        Column("price of"),
    ]
    rows = [
        [
            way.way.replace("_", "-"),
            usd(way.usd_per_hour),
            usd(way.usd_per_month, 0),
            f"{way.break_even_hours:,.0f} hours a month" if way.break_even_hours is not None else "",
            str(way.read),
            way.note,
        ]
        for way in (ways if len(ways) > 1 else ())
    ]
    return Table([*columns, Column("note", wrap=True)], rows) if notes else Table(columns, [row[:-1] for row in rows])
