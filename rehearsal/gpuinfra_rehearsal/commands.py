"""What the commands of gpuinfra need from rehearsals. gpuinfra finds this class through the entry point in `rehearsal/pyproject.toml`.

Imports are in the methods, because a command needs one of them, and completion must be fast.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.base.errors import Interrupted
from gpuinfra.cli.rehearsals import DEFAULT_FOLDER, RehearsalRequest, Rehearsals

if TYPE_CHECKING:
    from gpuinfra.clouds.preflight import PreflightQuestion
    from gpuinfra.engine.entries import CacheEntry
    from gpuinfra.report.plan_diff import ResourceChange
    from gpuinfra.spec.load import LoadedStack


class Commands(Rehearsals):
    """Rehearsals with the stand-ins of this package. `Rehearsals` describes the methods."""

    def run(self, request: RehearsalRequest) -> int:
        from gpuinfra.doctor.machine import size
        from gpuinfra.engine.keep import cache_folder
        from gpuinfra_rehearsal.access import run_command
        from gpuinfra_rehearsal.progress import view_for
        from gpuinfra_rehearsal.run import rehearse
        from gpuinfra_rehearsal.session import Options
        from gpuinfra_rehearsal.summary import summary_lines

        folder = request.folder
        options = Options(
            stack=request.stack,
            faults=request.faults,
            deadline=request.deadline,
            folder=folder,
            least_privilege=request.least_privilege,
            without_nodes=request.without_nodes,
            every_stack=bool(request.words),
            on=request.on,
        )
        if request.words:
            return run_command(options, request.words)
        view = view_for(sys.stderr if request.as_json else sys.stdout)
        try:
            with view.alive():
                result = rehearse(request.action, options, view, request.to, request.lag_minutes)
        except KeyboardInterrupt:
            where = "" if folder == DEFAULT_FOLDER else f" --folder {shlex.quote(str(folder))}"
            again = f"gpuinfra rehearse {request.action} {request.stack}{where}"
            raise Interrupted(
                f"interrupted; the rehearsal data remains in {folder}; to continue, run "
                f"`{again}` again; to remove the data, run `gpuinfra rehearse destroy {request.stack}{where}`"
            ) from None
        if request.as_json:
            click.echo(json.dumps(result.report, indent=2, sort_keys=True, default=str))
        for line in summary_lines(result.report, folder, result.closing):
            view.line(line)
        for row in size(cache_folder(), folder, self.size(folder)):
            view.line(f"warning: {row.found}; {row.fix}")
        return 0 if result.ok else 1

    def opened(
        self, stack: str, folder: Path, *, nodes: bool = True
    ) -> AbstractContextManager[Sequence[Mapping[str, Any]]]:
        from gpuinfra_rehearsal.access import rehearsed

        return rehearsed(stack, folder, nodes=nodes)

    def entries(self, folder: Path) -> Iterator[CacheEntry]:
        from gpuinfra_rehearsal import kept

        return kept.rehearsals(folder)

    def size(self, folder: Path) -> int:
        from gpuinfra_rehearsal import kept

        return kept.size(folder)

    def remove(self, entry: CacheEntry) -> bool:
        from gpuinfra_rehearsal import kept

        return kept.remove(entry)

    def questions(self) -> Iterator[PreflightQuestion]:
        from gpuinfra_rehearsal import prerequisites

        return prerequisites.questions()

    def faults(self, labels: Sequence[str], targets: Sequence[str]) -> Iterator[str]:
        from gpuinfra_rehearsal import faults

        return faults.values(labels, targets)

    def resource_changes(self, old: LoadedStack, new: LoadedStack, day: date) -> tuple[ResourceChange, ...]:
        from gpuinfra_rehearsal.changes import resource_changes

        return resource_changes(old, new, day)
