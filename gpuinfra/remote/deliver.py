"""A bundle brought to hosts, started, and followed to its end.

Every call is short: it connects, looks, perhaps delivers and starts, and leaves. The truth is the journal on the host
(docs/design.md, "Journal of a node"), so an operator's machine that dies loses nothing, and a second run finds what runs.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuinfra.bundle import Bundle
from gpuinfra.plan.model import PoolPlan
from gpuinfra.remote import agent as far
from gpuinfra.remote.connect import Connector
from gpuinfra.remote.connection import KEPT_BYTES, Connection
from gpuinfra.remote.fleet import Again
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import HostProblem, Kind

_SOURCE = Path(far.__file__).read_bytes()
# The text of far.py comes over standard input: nothing is written to the host to look at it.
_LOADER = 'import sys;i=sys.stdin.buffer;exec(compile(i.read(int(i.readline())),"gpuinfra-far","exec"))'
LOOK_LIMIT_S = 60.0
DELIVER_LIMIT_S = 300.0
DRY_LIMIT_S = 580.0
STARTS = 3
"""Starts of one run. A runner that ends without a word twice will do so again."""
REBOOT_PATIENCE_S = 1200.0
"""Machines with eight GPUs and terabytes of memory take many minutes to come back."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a pool's hosts get."""

    pool: PoolPlan
    bundle: Bundle = field(repr=False)
    node: Mapping[str, Any]
    """`node.json` for a machine that has none yet."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """A host on which every step of the bundle is done."""

    steps: int
    changed: int
    already: bool
    """True when there was nothing to do."""


@dataclass(frozen=True, kw_only=True)
class Would:
    """What steps would do on a host."""

    lines: tuple[str, ...]


@dataclass
class _Memory:
    """What this run knows about one host."""

    since: float = 0.0
    starts: int = 0
    looks: int = 0
    stage: str = ""
    rebooting_since: float | None = None


def ask(
    connection: Connection,
    order: Mapping[str, Any],
    payload: bytes = b"",
    limit_s: float = 60.0,
    keep_bytes: int = KEPT_BYTES,
) -> dict[str, Any]:
    """Send the far side with one order and read its answer. Raises `HostProblem`."""
    host = connection.host
    command = f"python3 -I -c {shlex.quote(_LOADER)}"
    if host.sudo:
        command = f"sudo -n -- {command}"
    line = json.dumps({**order, "root": str(host.root), "size": len(payload)}).encode() + b"\n"
    answer = connection.run(command, b"%d\n%s%s%s" % (len(_SOURCE), _SOURCE, line, payload), limit_s, keep_bytes)
    for text in reversed(answer.output.split(b"\n")):
        if text.startswith(far.MARK.encode()):
            try:
                found = json.loads(text[len(far.MARK) :])
            except ValueError:
                break
            if isinstance(found, dict):
                if "refused" in found:
                    raise HostProblem(_refusal(found), f"{host.name}: {found['refused']}", "mend this, then run again")
                return found
            break
    raise _no_answer(host, answer.exit, answer.last_words)


class Bootstrap:
    """The task of a fleet: one host, one short look, and what has to follow from it."""

    def __init__(
        self,
        connector: Connector,
        orders: Mapping[str, Order],
        pool_of: Callable[[Host], str],
        *,
        limit_s: float = 7200.0,
        said: Callable[[Host, str], None] = lambda host, stage: None,
    ) -> None:
        self._connector = connector
        self._orders = orders
        self._pool_of = pool_of
        self._limit_s = limit_s
        self._said = said
        self._memory: dict[str, _Memory] = {}

    def __call__(self, host: Host) -> Done | Again:
        """Look, act where that is due, say when to look again."""
        memory = self._memory.setdefault(host.name, _Memory(since=time.monotonic()))
        order = self._orders[self._pool_of(host)]
        if time.monotonic() - memory.since > self._limit_s:
            raise HostProblem(
                # Not of a kind that passes: the time that was given is over.
                Kind.STEP,
                f"{host.name} was not done within {self._limit_s:g} s; last seen: {memory.stage or 'nothing'}",
                "its steps go on; run again to go on watching, or give a longer --timeout",
            )
        try:
            with self._connector.connect(host) as connection:
                found = ask(connection, {"do": "look"}, limit_s=LOOK_LIMIT_S)
                decided = self._judge(host, order, found, memory)
                if decided is not None:
                    return decided
                sha256 = order.bundle.sha256
                payload = b"" if sha256 in found["bundles"] else order.bundle.data
                self._stage(host, memory, f"delivers {len(payload) // 1024} KiB" if payload else "starts again")
                ask(
                    connection,
                    {"do": "begin", "sha256": sha256, "node": dict(order.node)},
                    payload,
                    limit_s=DELIVER_LIMIT_S,
                )
        except HostProblem as problem:
            since = memory.rebooting_since
            if problem.kind.passes and since is not None and time.monotonic() - since < REBOOT_PATIENCE_S:
                return Again(10.0)
            raise
        memory.starts += 1
        memory.looks = 0
        self._stage(host, memory, "steps begin")
        return Again(0.5)

    def _judge(self, host: Host, order: Order, found: Mapping[str, Any], memory: _Memory) -> Done | Again | None:
        """None when the runner has to be started."""
        sha256 = order.bundle.sha256
        ours = found["current"] == sha256
        state = found["state"] or {}
        steps = _steps(state) if ours and state.get("bundle_sha256") == sha256 else []
        names = [step.id for step in order.pool.steps]
        if found["running"]:
            if not ours:
                raise HostProblem(
                    Kind.BUSY,
                    f"{host.name} installs another bundle, {str(found['current'])[:12]}",
                    "wait for it, or see on that machine who started it",
                )
            memory.rebooting_since = None
            self._stage(host, memory, _progress(steps, len(names)))
            memory.looks += 1
            return Again(min(20.0, 0.5 * 1.5**memory.looks))
        by_id = {str(step.get("id")): step for step in steps}
        if names and all((by_id.get(name) or {}).get("status") == "done" for name in names):
            changed = sum(bool(by_id[name].get("changed")) for name in names)
            return Done(steps=len(names), changed=changed, already=memory.starts == 0)
        if memory.starts:
            failed = next((step for step in steps if step.get("status") == "failed"), None)
            if failed is not None:
                raise HostProblem(
                    Kind.STEP,
                    f"{host.name}: {one_line(failed.get('id'))}: {one_line(failed.get('reason'))}",
                    "the log is /var/log/gpuinfra/bootstrap.log there; mend the cause, then run again",
                )
        waiting = next((step for step in steps if step.get("status") == "reboot"), None)
        if waiting is not None and waiting.get("boot_id") == found["boot_id"]:
            if not found["systemd"]:
                raise HostProblem(
                    Kind.REBOOT,
                    f"{host.name}: {one_line(waiting.get('id'))}: {one_line(waiting.get('reason'))}",
                    "reboot it, then run again; without systemd it does not go on by itself",
                )
            memory.rebooting_since = memory.rebooting_since or time.monotonic()
            if time.monotonic() - memory.rebooting_since < REBOOT_PATIENCE_S:
                self._stage(host, memory, "reboots")
                return Again(10.0)
        memory.rebooting_since = None
        if memory.starts >= STARTS:
            raise HostProblem(
                Kind.STEP,
                f"{host.name}: the runner ended {memory.starts} times without an outcome: {one_line(found.get('said'))}",
                "look at /var/log/gpuinfra/ there and at `journalctl -u gpuinfra-bootstrap`",
            )
        return None

    def _stage(self, host: Host, memory: _Memory, stage: str) -> None:
        if stage != memory.stage:
            memory.stage = stage
            self._said(host, stage)


class DryRun:
    """The task of a fleet that changes nothing."""

    def __init__(self, connector: Connector, orders: Mapping[str, Order], pool_of: Callable[[Host], str]) -> None:
        self._connector = connector
        self._orders = orders
        self._pool_of = pool_of

    def __call__(self, host: Host) -> Would:
        """What the steps say that they would do."""
        order = self._orders[self._pool_of(host)]
        with self._connector.connect(host) as connection:
            found = ask(connection, {"do": "look"}, limit_s=LOOK_LIMIT_S)
            payload = b"" if order.bundle.sha256 in found["bundles"] else order.bundle.data
            told = ask(
                connection,
                {"do": "rehearse", "sha256": order.bundle.sha256, "node": dict(order.node)},
                payload,
                limit_s=DRY_LIMIT_S,
            )
        lines = tuple(one_line(line).removeprefix("gpuinfra: ") for line in told.get("lines", []))
        if told.get("exit") != 0:
            raise HostProblem(
                Kind.UNUSABLE, f"{host.name}: {lines[-1] if lines else 'the dry run said nothing'}", "mend this there"
            )
        return Would(lines=lines)


def _steps(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    steps = state.get("steps")
    return [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []


def _progress(steps: Sequence[Mapping[str, Any]], total: int) -> str:
    done = sum(step.get("status") == "done" for step in steps)
    now = next((step for step in steps if step.get("status") == "running"), None)
    return f"{done} of {total} steps" + (f", {one_line(now.get('id'))} runs" if now else "")


def _refusal(found: Mapping[str, Any]) -> Kind:
    return Kind.BUSY if "another bundle" in str(found["refused"]) else Kind.UNUSABLE


def _no_answer(host: Host, code: int, words: str) -> HostProblem:
    if code == 127:
        return HostProblem(Kind.UNUSABLE, f"{host.name} has no python3", "install python3 (3.9 or newer) there")
    if host.sudo and "sudo" in words:
        return HostProblem(
            Kind.UNUSABLE,
            f"{host.user} may not become root on {host.name} without a password: {words}",
            "allow it (NOPASSWD), or log in as root",
        )
    return HostProblem(
        Kind.UNUSABLE, f"{host.name} gave no answer that is understood (exit code {code}): {words}", "log in and look"
    )


def one_line(value: object) -> str:
    """One line of somebody else's text; nothing in it acts on a terminal."""
    text = " ".join(str(value).split())
    return "".join(c if c.isprintable() else " " for c in text)[:400]
