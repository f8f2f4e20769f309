"""`gpuinfra cache`: shows the data that gpuinfra stores on this machine, and removes unused data."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import WARN_PREFIX, UsageError
from gpuinfra.cli.options import folder_option
from gpuinfra.cli.rehearsals import KIND, installed, required

if TYPE_CHECKING:
    from gpuinfra.engine.entries import CacheEntry


@click.command("cache")
@click.argument("action", type=click.Choice(["show", "clean"]), default="show")
@click.option("--engines", is_flag=True, help="Remove engines.")
@click.option("--toolchains", is_flag=True, help="Remove Go toolchains.")
@click.option("--bundles", is_flag=True, help="Remove bundles.")
@click.option("--rehearsals", is_flag=True, help="Remove the rehearsals in --folder, with their state and reports.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Remove all kinds of entries, including entries that were used in the last day.",
)
@click.option(
    "--limit",
    type=click.FloatRange(0),
    metavar="GB",
    help="Remove entries only until this size is left, least recently used first.",
)
@click.option("--dry-run", is_flag=True, help="Print what `clean` would remove without removing it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@folder_option
def command(
    action: str,
    engines: bool,
    toolchains: bool,
    bundles: bool,
    rehearsals: bool,
    everything: bool,
    limit: float | None,
    dry_run: bool,
    as_json: bool,
    folder: Path,
) -> int:
    """Show the data that gpuinfra stores on this machine, or remove unused data.

    `clean` removes engines of other versions, Go toolchains and bundles, except those that were used in the last day. gpuinfra creates
    them again when it needs them. Rehearsals are removed only with --rehearsals or --all. Data that is in use is never removed.
    """
    from gpuinfra.doctor.machine import size
    from gpuinfra.engine.entries import BUNDLE, ENGINE, TOOLCHAIN, entries, in_words, remove
    from gpuinfra.engine.keep import cache_folder
    from gpuinfra.engine.module import read_module

    chosen = {ENGINE: engines, TOOLCHAIN: toolchains, BUNDLE: bundles, KIND: rehearsals}
    if action == "show" and (any(chosen.values()) or everything or limit is not None or dry_run):
        raise UsageError("these options select what to remove; use them with `gpuinfra cache clean`")
    cache, rehearsal = cache_folder(), required() if rehearsals else installed()
    cached = [*entries(cache, read_module(), time.time()), *(rehearsal.entries(folder) if rehearsal else ())]
    if action == "show":
        _show(cached, cache, folder, as_json)
        for row in size(cache, folder, rehearsal.size(folder) if rehearsal else 0):
            click.echo(f"{WARN_PREFIX}{row.found}; {row.fix}", err=True)
        return 0
    kinds = {kind for kind, is_chosen in chosen.items() if is_chosen or everything}
    gone = _to_remove(cached, kinds or {ENGINE, TOOLCHAIN, BUNDLE}, everything, limit)
    removes = {KIND: rehearsal.remove} if rehearsal else {}
    removed = [one for one in gone if dry_run or removes.get(one.kind, remove)(one)]
    if as_json:
        click.echo(json.dumps({**_document(removed), "removed": not dry_run}, indent=2))
        return 0
    for entry in removed:
        if entry.kind != BUNDLE:
            click.echo(f"{'would remove' if dry_run else 'removed'}: {entry.path} ({in_words(entry.size)})")
    count = sum(one.kind == BUNDLE for one in removed)
    if count:
        click.echo(f"{'would remove' if dry_run else 'removed'}: {count} bundles in {cache / 'bundles'}")
    for entry in gone:
        if entry not in removed:
            click.echo(f"in use, not removed: {entry.path}", err=True)
    total = in_words(sum(one.size for one in removed))
    click.echo(f"{'would free' if dry_run else 'freed'}: {total}" if removed else "nothing to remove")
    return 0


def _to_remove(cached: list[CacheEntry], kinds: set[str], everything: bool, limit: float | None) -> list[CacheEntry]:
    """Return what to remove. Rehearsals are kept unless their kind is selected."""
    from dataclasses import replace

    from gpuinfra.engine.entries import GB, over_limit

    own = [one for one in cached if one.kind in kinds]
    free = [replace(one, kept="") if not one.locked and (everything or one.kind == KIND) else one for one in own]
    return over_limit(free, 0 if limit is None else int(limit * GB))


def _show(cached: list[CacheEntry], cache: Path, folder: Path, as_json: bool) -> None:
    from gpuinfra.engine.entries import BUNDLE, in_words
    from gpuinfra.report.tables import Column, Table, text

    if as_json:
        click.echo(json.dumps(_document(cached), indent=2))
        return
    bundles = [one for one in cached if one.kind == BUNDLE]
    rows = [
        (one.kind, one.path.name, in_words(one.size), _day(one.used), one.kept) for one in cached if one.kind != BUNDLE
    ]
    if bundles:
        free = sum(not one.kept for one in bundles)
        kept = f"{len(bundles) - free} used in the last day" if free < len(bundles) else ""
        size = in_words(sum(one.size for one in bundles))
        rows.append((BUNDLE, f"{len(bundles)} files", size, _day(max(one.used for one in bundles)), kept))
    click.echo(f"cache: {cache}; rehearsals: {folder}")
    columns = [
        "kind",
        Column("name", wrap=True),
        Column("size", right=True),
        "last used",
        Column("kept by `clean`", wrap=True),
    ]
    for line in text(Table(columns, rows), indent=2) if rows else ["  empty"]:
        click.echo(line)
    click.echo(f"total: {in_words(sum(one.size for one in cached))}")


def _document(cached: list[CacheEntry]) -> dict[str, object]:
    rows = [
        {"kind": one.kind, "path": str(one.path), "bytes": one.size, "used": int(one.used), "kept": one.kept}
        for one in cached
    ]
    return {"schema": "gpuinfra.cache/1", "bytes": sum(one.size for one in cached), "entries": rows}


def _day(moment: float) -> str:
    return str(datetime.fromtimestamp(moment, UTC).date())
