"""The part of `docs/internals/cloud-models.md` about recorded traffic: counts by cloud."""

from __future__ import annotations

import re
from pathlib import Path

from gpuinfra_rehearsal.cloud.core import registry
from tests.providers import replay

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "cloud-models.md"
BEGIN, END = "<!-- recorded traffic: begin -->", "<!-- recorded traffic: end -->"
TITLES = {"aws": "AWS", "azure": "Azure", "gcp": "Google Cloud"}


def written() -> str:
    """The page with the current counts."""
    part = f"{BEGIN}\n\n{_counts()}\n\n{END}"
    return re.sub(f"{BEGIN}.*{END}", lambda _: part, PAGE.read_text(encoding="utf-8"), count=1, flags=re.S)


def _counts() -> str:
    rows = [
        "| cloud | recordings | exchanges replayed | recorded calls that they represent | resource types | remaining differences |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    groups = [
        (f"{_title(package)}{kind}", chosen)
        for package, files in _files().items()
        for kind, chosen in (
            ("", [one for one in files if not replay.is_example(one)]),
            (", examples of the API", [one for one in files if replay.is_example(one)]),
        )
        if chosen
    ]
    for title, files in groups:
        results = [replay.replay(file) for file in files]
        types = {one["type"] for file in files for one in replay.load(file)["exchanges"]}
        left = {one for result in results for one in result.differences}
        rows.append(
            f"| {title} | {len(files)} | {sum(one.exchanges for one in results)} |"
            f" {sum(one.recorded for one in results)} | {len(types)} | {len(left)} |"
        )
    return "\n".join(rows)


def _files() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for file in replay.RECORDINGS:
        found.setdefault(file.parent.name, []).append(file)
    return found


def _title(package: str) -> str:
    return TITLES[registry.of_package(package).name]
