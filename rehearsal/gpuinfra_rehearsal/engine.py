"""Runs one Pulumi CLI command on the project of a rehearsal, and returns its events and exit code."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.plan.planned import is_counted
from gpuinfra_rehearsal import processes
from gpuinfra_rehearsal.events import RunProgress, Tail
from gpuinfra_rehearsal.folder import Folder

COMMON_FLAGS = ("--non-interactive", "--color", "never")
INTERRUPT_TIMEOUT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class OperationResult:
    """The result of one operation of the engine."""

    name: str
    exit_code: int
    seconds: float
    progress: RunProgress = field(default_factory=RunProgress)
    output: str = ""

    @property
    def ok(self) -> bool:
        """Whether the engine succeeded."""
        return self.exit_code == 0


@dataclass
class Pulumi:
    """The Pulumi CLI with the project and the environment of this rehearsal."""

    path: Path
    version: str
    folder: Folder
    env: Mapping[str, str]
    others: Mapping[str, int] = field(default_factory=dict)
    """Other processes of the rehearsal (name -> process ID), recorded together with the engine."""

    def quick(self, *arguments: str, check: bool = True) -> str:
        """Run a command without events and return its output."""
        with self._recorded(arguments, subprocess.PIPE, subprocess.PIPE) as process:
            out, err = process.communicate()
        if check and process.returncode != 0:
            raise DeploymentError(f"pulumi {' '.join(arguments[:2])} failed: {(err or out).strip()}")
        return out

    def operate(self, name: str, *arguments: str, watch: Callable[[RunProgress, str | None], None]) -> OperationResult:
        """Run an operation and read its events. `watch` is called for each event and, between events, a few times per second."""
        self.folder.events.unlink(missing_ok=True)
        begun, tail, progress = time.monotonic(), Tail(self.folder.events), RunProgress()
        argv = (
            name,
            *arguments,
            "--stack",
            self.folder.stack,
            "--event-log",
            str(self.folder.events),
            "--suppress-permalink=true",
        )
        with self.folder.log.open("a", encoding="utf-8") as log:
            log.write(f"\n== pulumi {' '.join(argv)}\n")
            log.flush()
            start = log.tell()
            with self._recorded(argv, log, log) as process:
                while True:
                    code = process.poll()
                    for event in tail.new():
                        watch(progress, progress.take(event))
                    if code is not None:
                        break
                    watch(progress, None)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0.15)
        with self.folder.log.open(encoding="utf-8", errors="replace") as log:
            log.seek(start)
            output = log.read()
        return OperationResult(
            name=name, exit_code=code, seconds=round(time.monotonic() - begun, 1), progress=progress, output=output
        )

    @contextlib.contextmanager
    def _recorded(self, arguments: Sequence[str], stdout: Any, stderr: Any) -> Iterator[subprocess.Popen[str]]:
        """A running CLI process that is recorded for cleanup. An interrupt is forwarded once, and the CLI then has time to exit."""
        process = processes.start(
            [str(self.path), *arguments, *COMMON_FLAGS],
            env=self.env,
            cwd=self.folder.project,
            stdout=stdout,
            stderr=stderr,
        )
        processes.record(self.folder, {**self.others, "pulumi": process.pid})
        try:
            yield process
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(INTERRUPT_TIMEOUT_S)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                process.kill()
                process.wait()
            raise
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    @property
    def checkpoint(self) -> Path | None:
        """Return the state file if the stack exists."""
        return next(iter(sorted(self.folder.state.glob(f".pulumi/stacks/*/{self.folder.stack}.json"))), None)

    def deployment(self) -> dict[str, Any]:
        """Return the last state that the engine wrote (`resources`, `pending_operations`), or an empty mapping."""
        path = self.checkpoint
        if path is None:
            return {}
        latest = json.loads(path.read_text(encoding="utf-8")).get("checkpoint", {}).get("latest")
        return latest if isinstance(latest, dict) else {}

    def resources(self) -> list[dict[str, Any]]:
        """Return the resources in the state, except the stack and the providers."""
        return [r for r in self.deployment().get("resources") or [] if not str(r.get("type", "")).startswith("pulumi:")]

    def counted(self) -> list[dict[str, Any]]:
        """Return the resources in the state that count toward the number of resources."""
        return [r for r in self.resources() if is_counted(str(r.get("type", "")), r.get("custom"))]

    def ensure_stack(self) -> None:
        """Create the stack if it does not exist."""
        if self.checkpoint is None:
            self.quick("stack", "init", self.folder.stack)
