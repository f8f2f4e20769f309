"""Stops the jobs on one node without a scheduler: jobs of `gpuinfra run -N`, and processes that use a GPU.

With a grace time, the node first announces a planned notice (`gpuinfra.node.notices`): jobs of `gpuinfra run -N` receive their signal, the programs in
`/etc/gpuinfra-notice.d/` run, and the jobs have this time to save a checkpoint and to end. Written data is then flushed to the file systems.
A process that uses a GPU has an open `/dev/nvidiaN` device. Processes of system services are not stopped, such as the persistence daemon and DCGM.
A job of `gpuinfra run -N` then also ends on its other nodes (docs/guides/jobs.md). A process gets SIGTERM, and SIGKILL after 20 s.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuinfra.base.errors import DeploymentError, GpuinfraError
from gpuinfra.base.words import counted
from gpuinfra.node.notices import PLANNED, Notice, NoticeKind, dumped, iso
from gpuinfra.remote.problem import HostProblem

if TYPE_CHECKING:
    from gpuinfra.remote.connect import Connector
    from gpuinfra.remote.connection import Connection
    from gpuinfra.remote.hosts import Host

LIMIT_S = 120.0
FLUSH_S = 300
"""Time limit to flush written data to the file systems."""
ABSENT = "the node is not in the state of the stack"

# The character class keeps the pattern from matching the process that reads it.
SCRIPT = r"""
busy() {
    for folder in /proc/[0-9]*; do
        id=${folder#/proc/}
        if tr '\0' ' ' <"$folder/cmdline" 2>/dev/null | grep -q '[g]puinfra-supervisor'; then
            echo "$id"
        elif ! grep -q '/system\.slice/[^/]*\.service' "$folder/cgroup" 2>/dev/null &&
            ls -l "$folder/fd" 2>/dev/null | grep -q ' /dev/nvidia[0-9]'; then
            echo "$id"
        fi
    done
}
found=$(busy)
count=$(echo $found | wc -w)
if [ -n "$found" ] && [ "${grace:-0}" -gt 0 ]; then
    trap 'rm -f "$planned"' EXIT
    trap 'exit 1' HUP INT TERM
    mkdir -p "${planned%/*}" && printf '%s' "$notice" >"$planned.new" && mv "$planned.new" "$planned" || exit 1
    waited=0
    while [ -n "$found" ] && [ "$waited" -lt "$grace" ]; do
        sleep 1
        waited=$((waited + 1))
        found=$(busy)
    done
fi
waited=0
while [ -n "$found" ] && [ "$waited" -lt 30 ]; do
    signal=TERM
    [ "$waited" -ge 20 ] && signal=KILL
    if [ "$waited" -eq 0 ] || [ "$signal" = KILL ]; then
        for id in $found; do kill -s "$signal" "$id" 2>/dev/null; done
    fi
    sleep 1
    waited=$((waited + 1))
    found=$(busy)
done
if [ "${flush:-0}" -gt 0 ] && ! timeout "$flush" sync; then
    echo "written data was not flushed to the file systems within $flush s"
    exit 1
fi
echo "stopped=$count left=$(echo $found | wc -w)"
"""


@dataclass(frozen=True, kw_only=True)
class PlannedStop:
    """The announcement of a planned stop."""

    what: str
    """Why the jobs end, for the notice."""
    grace_s: int
    """Time between the notice and SIGTERM, in seconds. 0 announces nothing."""

    def script(self, now: float) -> str:
        """Return the script that announces the stop, stops the jobs and flushes written data."""
        notice = Notice(f"stop {iso(now)}", NoticeKind.STOP, self.what, now + self.grace_s)
        values = {"grace": self.grace_s, "flush": FLUSH_S, "planned": PLANNED, "notice": dumped([notice])}
        return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items()) + SCRIPT


@dataclass(frozen=True, kw_only=True)
class JobStop:
    """The result of the request to stop the jobs on a node."""

    done: bool
    text: str


def not_stopped(why: object) -> JobStop:
    """Return the result of a node whose jobs were not stopped."""
    return JobStop(done=False, text=f"jobs not stopped: {why}")


def drain_all(
    connector: Connector, hosts: Sequence[Host], names: Sequence[str], planned: PlannedStop | None = None
) -> dict[str, JobStop]:
    """Stop the jobs on the hosts with these names in parallel, after a notice if `planned` is set. Returns the result of each host.

    A host that cannot be reached does not affect the others."""
    by_name = {host.name: host for host in hosts}

    def result(name: str) -> JobStop:
        host = by_name.get(name)
        if host is None:
            return not_stopped(ABSENT)
        try:
            with connector.connect(host) as connection:
                count = drain(connection, sudo=host.sudo, planned=planned)
                return JobStop(done=True, text=f"{counted(count, 'process', 'processes')} stopped")
        except (GpuinfraError, HostProblem) as problem:
            return not_stopped(problem)

    with ThreadPoolExecutor(max_workers=min(64, max(1, len(names)))) as pool:
        try:
            return dict(zip(names, pool.map(result, names), strict=True))
        except KeyboardInterrupt:
            connector.close()
            raise


def drain(connection: Connection, *, sudo: bool, planned: PlannedStop | None = None) -> int:
    """Stop the jobs on a node. Returns the number of processes that were running. Raises `HostProblem` and `DeploymentError`."""
    script, limit_s = SCRIPT, LIMIT_S
    if planned:
        script, limit_s = planned.script(time.time()), LIMIT_S + planned.grace_s + FLUSH_S
    answer = connection.run("sudo -n -- sh -s" if sudo else "sh -s", script.encode(), limit_s=limit_s)
    return stopped(answer.exit, answer.output.decode("utf-8", "replace"))


def stopped(code: int, output: str) -> int:
    """Return the number of processes that the script stopped. Raises `DeploymentError` if processes are left."""
    match = re.search(r"^stopped=(\d+) left=(\d+)$", output, re.M)
    if code != 0 or match is None:
        last = (output.strip() or "no output").splitlines()[-1]
        raise DeploymentError(f"the command that stops jobs failed with exit code {code}: {last}")
    if int(match[2]):
        raise DeploymentError(f"{match[2]} of {match[1]} processes did not end after SIGKILL")
    return int(match[1])
