"""Reads the price files that clouds publish, and writes their prices as a price file. The module of each cloud reads the files of that cloud."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TextIO

from gpuinfra.base.errors import SpecError
from gpuinfra.base.findings import error
from gpuinfra.base.registry import CLOUDS
from gpuinfra.catalog.public import NotUsable, PublicFile, PublicPrices
from gpuinfra.plan.profile import planned_cloud


def read_public(path: Path, today: date) -> PublicFile:
    """Read a price file of a cloud. `today` is used if the file has no date. Raises `SpecError` with one finding."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            file_of_prices = _read(file, today)
    except OSError as problem:
        raise _refused(path, f"cannot be read: {problem.strerror}", "specify the path of a price file") from None
    except UnicodeDecodeError:
        raise _refused(path, f"is not a text file; allowed: {_forms()}", "download the file again") from None
    except NotUsable as problem:
        raise _refused(path, *problem.args) from None
    if not file_of_prices.prices:
        what = "contains no price in USD for a machine type in the catalog"
        raise _refused(path, what, "download the prices of instances that run Linux")
    return file_of_prices


def text(files: Iterable[PublicFile], region: str | None = None) -> str:
    """Return the content of a price file with the prices of all files, or of one region."""
    files = tuple(files)
    machines: dict[str, dict[str, dict[str, float]]] = {}
    for listed in (price for file in files for price in file.prices):
        if region in (None, listed.region):
            machines.setdefault(listed.machine, {}).setdefault(listed.kind.value, {})[listed.region] = listed.usd
    # The oldest date, so that no price appears newer than it is.
    lines = [f"read: {min(file.read for file in files)}"]
    lines += [f"source: {json.dumps('; '.join(dict.fromkeys(file.source for file in files)))}", "machines:"]
    for machine, kinds in sorted(machines.items()):
        lines.append(f"  {machine}:")
        for kind, regions in sorted(kinds.items()):
            values = ", ".join(f"{name}: {usd:.10g}" for name, usd in sorted(regions.items()))
            lines.append(f"    {kind}: {{{values}}}")
    return "\n".join(lines) + "\n"


def _read(file: TextIO, today: date) -> PublicFile:
    for module in _modules():
        file.seek(0)
        if document := module.table(file):
            return document
    file.seek(0)
    try:
        value = json.load(file)
    except (ValueError, RecursionError):
        value = None
    for module in _modules():
        if document := module.document(value, today):
            return document
    raise NotUsable(f"is not a known price file; allowed: {_forms()}", "download the file again")


def _modules() -> Iterator[PublicPrices]:
    return filter(None, (planned_cloud(cloud).public_prices for cloud in CLOUDS))


def _forms() -> str:
    return " or ".join(filter(None, (module.FORM for module in _modules())))


def _refused(path: Path, message: str, hint: str) -> SpecError:
    return SpecError([replace(error("", message, hint, rule="price_file"), file=str(path))])
