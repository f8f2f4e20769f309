"""The newest data before a region is stopped: its jobs end with a checkpoint, and its file systems export what was written.

The functions need nothing of a failover but its requests, so a failback uses them for the other direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.words import counted
from gpuinfra.clouds.region.exports import Export, Exports, ScheduledExports
from gpuinfra.clouds.region.failover import Failover, label
from gpuinfra.remote.drain import JobStop

SHOWN = 5


def stop_jobs(cloud: Failover, groups: Sequence[str], stop: Callable[[], Mapping[str, JobStop]]) -> str:
    """Stop the jobs on the nodes of the groups. `stop` returns the result of each node, keyed by its title.

    Raises `Unreachable` if the region does not respond, before a connection to a node is attempted, and `DeploymentError` if jobs were not stopped.
    """
    running = sum(cloud.running(group) for group in groups)
    if not running:
        return "no nodes are running"
    results = stop()
    left = [f"{title}: {one.text}" for title, one in results.items() if not one.done]
    if left:
        more = f"; and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
        raise DeploymentError(
            f"the jobs on {counted(len(left), 'node')} were not stopped, so work since their last checkpoint can be lost: {'; '.join(left[:SHOWN])}{more}"
        )
    unlisted = running - len(results)
    note = f"; {counted(unlisted, 'node')} that the state does not list were not asked" if unlisted > 0 else ""
    return f"jobs stopped on {counted(len(results), 'node')}{note}"


def set_schedules(exports: Exports | None, resources: Iterable[Any], *, paused: bool) -> tuple[str, ...]:
    """Pause or resume the scheduled exports in a stack's state. Returns the schedules."""
    if not isinstance(exports, ScheduledExports):
        return ()
    schedules = exports.schedules(resources)
    for schedule in schedules:
        exports.set_schedule(schedule, paused=paused)
    return schedules


def export_all(exports: Exports, resources: Sequence[Any], polls: Iterable[None], limit_s: float) -> str:
    """Pause the scheduled exports, export each file system, and wait until its bucket has every file. Raises `DeploymentError` after the last poll."""
    paused = set_schedules(exports, resources, paused=True)
    waiting = list(exports.exporting(resources))
    done, started = list(waiting), list[Export]()
    for _ in polls:
        for file_system in list(waiting):
            if (export := exports.start(file_system)) is not None:
                waiting.remove(file_system)
                started.append(export)
        started = [export for export in started if not exports.ended(export)]
        if not waiting and not started:
            note = f"; scheduled exports are paused: {', '.join(map(label, paused))}" if paused else ""
            return f"exported: {', '.join(map(label, done))}{note}"
    left = ", ".join(label(name) for name in (*waiting, *(export.file_system for export in started)))
    raise DeploymentError(f"the export did not finish within {limit_s / 60:.0f} minutes: {left}")
