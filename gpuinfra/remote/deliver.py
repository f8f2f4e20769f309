"""Installs bundles on hosts, starts them and follows their journals.

Each connection is short: it reads the host's status, and installs and starts the bundle if necessary. The journal on the host
(docs/reference/formats.md, "Journal") is authoritative: if the operator's machine fails, nothing is lost, and a second run continues.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuinfra.base.json_text import bounded
from gpuinfra.base.safe_text import one_line
from gpuinfra.bundle import Bundle
from gpuinfra.plan.model import PoolPlan
from gpuinfra.remote import agent
from gpuinfra.remote.connect import Connector
from gpuinfra.remote.connection import MAX_OUTPUT_BYTES, Connection
from gpuinfra.remote.fleet import Reschedule
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import HostProblem, ProblemKind

_SOURCE = Path(agent.__file__).read_bytes()
# The source of agent.py is sent over standard input, so that a status request writes nothing to the host.
_LOADER = 'import sys;i=sys.stdin.buffer;exec(compile(i.read(int(i.readline())),"gpuinfra-agent","exec"))'
STATUS_LIMIT_S = 60.0
DELIVER_LIMIT_S = 300.0
DRY_LIMIT_S = 580.0
STARTS = 3
"""Maximum number of times that one run starts the runner. A runner that repeatedly exits without a result is not restarted."""
REBOOT_PATIENCE_S = 1200.0
"""Machines with eight GPUs and terabytes of memory take many minutes to reboot."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is installed on the hosts of a pool."""

    pool: PoolPlan
    bundle: Bundle = field(repr=False)
    node: Mapping[str, Any]
    """`node.json` for a machine without one."""


@dataclass(frozen=True, kw_only=True)
class BootstrapResult:
    """The result for a host that completed every step in the bundle."""

    steps: int
    changed: int
    already: bool
    """True if this run did not start the steps."""


@dataclass(frozen=True, kw_only=True)
class DryRunResult:
    """The changes that the steps would make on a host."""

    lines: tuple[str, ...]


@dataclass
class _Progress:
    """The state of one host during this run."""

    since: float = 0.0
    starts: int = 0
    polls: int = 0
    stage: str = ""
    rebooting_since: float | None = None


def call_agent(
    connection: Connection,
    order: Mapping[str, Any],
    payload: bytes = b"",
    limit_s: float = 60.0,
    keep_bytes: int = MAX_OUTPUT_BYTES,
) -> dict[str, Any]:
    """Run the host agent with one request and return its response. Raises `HostProblem`."""
    host = connection.host
    command = f"python3 -I -c {shlex.quote(_LOADER)}"
    if host.sudo:
        command = f"sudo -n -- {command}"
    line = json.dumps({**order, "root": str(host.root), "size": len(payload)}).encode() + b"\n"
    answer = connection.run(command, b"%d\n%s%s%s" % (len(_SOURCE), _SOURCE, line, payload), limit_s, keep_bytes)
    for text in reversed(answer.output.split(b"\n")):
        if text.startswith(agent.MARK.encode()):
            try:
                document = bounded(text[len(agent.MARK) :], keep_bytes)
            except ValueError:
                break
            if isinstance(document, dict):
                if "refused" in document:
                    raise HostProblem(
                        ProblemKind.BUSY if document.get("busy") else ProblemKind.UNUSABLE,
                        f"{host.title}: {document['refused']}",
                        "fix the problem, then run the command again",
                    )
                return document
            break
    raise _no_answer(host, answer.exit, answer.last_line)


class Bootstrap:
    """The fleet task that installs a bundle: each call reads a host's status and takes the next action."""

    def __init__(
        self,
        connector: Connector,
        orders: Mapping[str, Order],
        pool_of: Callable[[Host], str],
        *,
        limit_s: float = 7200.0,
        on_stage: Callable[[Host, str], None] = lambda host, stage: None,
    ) -> None:
        self._connector = connector
        self._orders = orders
        self._pool_of = pool_of
        self._limit_s = limit_s
        self._on_stage = on_stage
        self._progress: dict[str, _Progress] = {}

    def __call__(self, host: Host) -> BootstrapResult | Reschedule:
        """Take the next action on a host. Returns its result, or the time of the next call."""
        progress = self._progress.setdefault(host.name, _Progress(since=time.monotonic()))
        order = self._orders[self._pool_of(host)]
        if time.monotonic() - progress.since > self._limit_s:
            raise HostProblem(
                # This kind is not transient, because the time limit of the run has expired.
                ProblemKind.STEP,
                f"{host.title} did not finish within {self._limit_s:g} s; last stage: {progress.stage or 'none'}",
                "its steps continue on the host; run the command again to follow them, or set a longer --timeout",
            )
        try:
            with self._connector.connect(host) as connection:
                status = call_agent(connection, {"do": "status"}, limit_s=STATUS_LIMIT_S)
                result = self._result(host, order, status, progress)
                if result is not None:
                    return result
                sha256 = order.bundle.sha256
                payload = b"" if sha256 in status["bundles"] else order.bundle.data
                self._stage(host, progress, f"sending {len(payload) // 1024} KiB" if payload else "restarting")
                call_agent(
                    connection,
                    {"do": "start", "sha256": sha256, "node": dict(order.node)},
                    payload,
                    limit_s=DELIVER_LIMIT_S,
                )
        except HostProblem as problem:
            since = progress.rebooting_since
            if problem.kind.is_transient and since is not None and time.monotonic() - since < REBOOT_PATIENCE_S:
                return Reschedule(10.0)
            raise
        progress.starts += 1
        progress.polls = 0
        self._stage(host, progress, "starting the steps")
        return Reschedule(0.5)

    def _result(
        self, host: Host, order: Order, status: Mapping[str, Any], progress: _Progress
    ) -> BootstrapResult | Reschedule | None:
        """Return the result, or the time of the next call. Return None if the runner must be started."""
        sha256 = order.bundle.sha256
        is_current = status["current"] == sha256
        state = status["state"] or {}
        steps = _steps(state) if is_current and state.get("bundle_sha256") == sha256 else []
        names = [step.id for step in order.pool.steps]
        if status["running"]:
            if not is_current:
                raise HostProblem(
                    ProblemKind.BUSY,
                    f"{host.title} is installing another bundle, {str(status['current'])[:12]}",
                    "wait until the installation finishes, or check on the host who started it",
                )
            progress.rebooting_since = None
            self._stage(host, progress, _stage_text(steps, len(names)))
            progress.polls += 1
            return Reschedule(min(20.0, 0.5 * 1.5**progress.polls))
        by_id = {str(step.get("id")): step for step in steps}
        if names and all((by_id.get(name) or {}).get("status") == "done" for name in names):
            changed = sum(bool(by_id[name].get("changed")) for name in names)
            return BootstrapResult(steps=len(names), changed=changed, already=progress.starts == 0)
        if progress.starts:
            failed = next((step for step in steps if step.get("status") == "failed"), None)
            if failed is not None:
                raise HostProblem(
                    ProblemKind.STEP,
                    f"{host.title}: {one_line(failed.get('id'))}: {one_line(failed.get('reason'))}",
                    "read /var/log/gpuinfra/bootstrap.log on the host, fix the cause, then run the command again",
                )
        waiting = next((step for step in steps if step.get("status") == "reboot"), None)
        if waiting is not None and waiting.get("boot_id") == status["boot_id"]:
            if not status["systemd"]:
                raise HostProblem(
                    ProblemKind.REBOOT,
                    f"{host.title}: {one_line(waiting.get('id'))}: {one_line(waiting.get('reason'))}",
                    "reboot the host, then run the command again; without systemd, the steps do not continue after the reboot",
                )
            progress.rebooting_since = progress.rebooting_since or time.monotonic()
            if time.monotonic() - progress.rebooting_since < REBOOT_PATIENCE_S:
                self._stage(host, progress, "reboots")
                return Reschedule(10.0)
        progress.rebooting_since = None
        if progress.starts >= STARTS:
            raise HostProblem(
                ProblemKind.STEP,
                f"{host.title}: the runner exited {progress.starts} times without a result: {one_line(status.get('output'))}",
                "read /var/log/gpuinfra/ and `journalctl -u gpuinfra-bootstrap` on the host",
            )
        return None

    def _stage(self, host: Host, progress: _Progress, stage: str) -> None:
        if stage != progress.stage:
            progress.stage = stage
            self._on_stage(host, stage)


class DryRun:
    """The fleet task that reports what a bundle would change."""

    def __init__(self, connector: Connector, orders: Mapping[str, Order], pool_of: Callable[[Host], str]) -> None:
        self._connector = connector
        self._orders = orders
        self._pool_of = pool_of

    def __call__(self, host: Host) -> DryRunResult:
        """Report what the steps would change on one host."""
        order = self._orders[self._pool_of(host)]
        with self._connector.connect(host) as connection:
            status = call_agent(connection, {"do": "status"}, limit_s=STATUS_LIMIT_S)
            payload = b"" if order.bundle.sha256 in status["bundles"] else order.bundle.data
            answer = call_agent(
                connection,
                {"do": "dry_run", "sha256": order.bundle.sha256, "node": dict(order.node)},
                payload,
                limit_s=DRY_LIMIT_S,
            )
        lines = tuple(one_line(line).removeprefix("gpuinfra: ") for line in answer.get("lines", []))
        if answer.get("exit") != 0:
            raise HostProblem(
                ProblemKind.UNUSABLE,
                f"{host.title}: {lines[-1] if lines else 'the dry run printed nothing'}",
                "fix the problem on the host",
            )
        return DryRunResult(lines=lines)


def _steps(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    steps = state.get("steps")
    return [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []


def _stage_text(steps: Sequence[Mapping[str, Any]], total: int) -> str:
    done = sum(step.get("status") == "done" for step in steps)
    now = next((step for step in steps if step.get("status") == "running"), None)
    return f"{done} of {total} steps" + (f", running {one_line(now.get('id'))}" if now else "")


def _no_answer(host: Host, code: int, output: str) -> HostProblem:
    if code == 127:
        return HostProblem(
            ProblemKind.UNUSABLE, f"{host.title} has no python3", "install Python 3.9 or later on the host"
        )
    if host.sudo and "sudo" in output:
        return HostProblem(
            ProblemKind.UNUSABLE,
            f"{host.user} on {host.title} cannot run sudo without a password: {output}",
            "allow passwordless sudo (NOPASSWD in sudoers), or log in as root",
        )
    return HostProblem(
        ProblemKind.UNUSABLE,
        f"{host.title} returned an invalid response (exit code {code}): {output}",
        "log in to the host and check its Python",
    )
