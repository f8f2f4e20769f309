"""Code that `verify` and `check` share: judges the evidence, writes the result as text, HTML, JSON and JUnit XML, and returns the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gpuinfra.cli.expectations import Expectation
    from gpuinfra.cli.stacks import Stacks
    from gpuinfra.verification.read import EvidenceDocument, FoundEvidence


def publish(
    gathered: FoundEvidence,
    expected: Callable[[EvidenceDocument], Expectation],
    title: str,
    *,
    stacks: Stacks,
    baseline: Path | None,
    save: Path | None,
    as_json: bool,
    junit: Path | None,
    html: Path | None,
) -> int:
    """Write the judgement. Return exit code 0 if every node is verified, and 1 otherwise."""
    from gpuinfra.report import verification_text as write
    from gpuinfra.verification.judged import judge_all
    from gpuinfra.verification.read import read_folder

    earlier = read_folder(baseline) if baseline else None
    if save is not None:
        _save(save, gathered)
    nodes = judge_all(gathered, expected, earlier)
    document: dict[str, Any] = {**write.document(nodes, gathered), **stacks.marks}
    if junit:
        write_file(junit, write.junit(nodes, gathered), "--junit")
    if html:
        from gpuinfra.report.verification_page import page

        write_file(html, page(document, title, stacks.notice), "--html")
    if as_json:
        click.echo(json.dumps(document, indent=2, ensure_ascii=True))
    else:
        if stacks.notice:
            click.echo(stacks.notice)
        for line in write.text(nodes, gathered):
            click.echo(line)
    return 0 if document["verified"] else 1


def _save(folder: Path, gathered: FoundEvidence) -> None:
    """Write one file per node. A new file replaces the earlier file for the same node."""
    from gpuinfra.base.file_errors import naming
    from gpuinfra.node import evidence

    folder.mkdir(parents=True, exist_ok=True)
    for document in gathered.newest:
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in document.label)[:100]
        path = folder / f"{name}.json"
        with naming(path):
            path.write_bytes(evidence.dumped(document.document))


def write_file(path: Path, content: str, option: str) -> None:
    """Write the output file that an option requests. A pipe or a device, such as `/dev/stdout`, is written directly."""
    from gpuinfra.base.file_errors import cannot_write
    from gpuinfra.base.people_files import replace_file, replaceable

    fix = f"specify a different path with {option}"
    if (path.is_file() or not path.exists()) and not path.absolute().is_relative_to("/dev"):
        replace_file(replaceable(path), content, fix)
        return
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as problem:
        raise cannot_write(path, problem, fix) from None
