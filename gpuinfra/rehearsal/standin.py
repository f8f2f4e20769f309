"""The stand-in cloud as a running process, and the few things asked of it beside what the engine and the nodes ask."""

from __future__ import annotations

import contextlib
import json
import select
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuinfra.errors import DeploymentError
from gpuinfra.rehearsal import processes
from gpuinfra.rehearsal.folder import Folder

READY_TIMEOUT_S = 60.0
END_TIMEOUT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """A stand-in cloud that answers."""

    ready: dict[str, Any]
    process: subprocess.Popen[str]
    stack: str = ""
    """The stack that asks; other stacks of its account are none of its business."""

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def ask(self, path: str, body: Mapping[str, object] | None = None, timeout: float = 10.0) -> dict[str, Any]:
        """One question to the control API."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ready['http']}/.control/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"X-Gpuinfra-Control": str(self.ready["control_token"]), "Content-Type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=timeout) as answer:
                value = json.load(answer)
        except urllib.error.HTTPError as error:
            raise DeploymentError(
                f"the stand-in cloud refused {path}: {error.read(2000).decode(errors='replace')}"
            ) from None
        except (OSError, ValueError) as error:
            raise DeploymentError(
                f"the stand-in cloud does not answer {path}: {error}; its log is in the rehearsal folder, cloud.log"
            ) from None
        return value if isinstance(value, dict) else {}

    def nodes(self) -> list[dict[str, Any]]:
        """The stand-in nodes and their stages."""
        return [n for n in self.ask("nodes").get("nodes", []) if isinstance(n, dict)]

    def nodes_available(self) -> tuple[bool, str]:
        """Whether this system can run stand-in nodes."""
        answer = self.ask("nodes")
        return bool(answer.get("available", True)), str(answer.get("reason") or "")

    def resources(self) -> list[dict[str, Any]]:
        """Everything that the stand-in cloud holds of this stack, and what nobody's stack made."""
        held = [r for r in self.ask("resources").get("resources", []) if isinstance(r, dict)]
        ours = f"urn:pulumi:{self.stack}::"
        return [r for r in held if not self.stack or not r.get("urn") or str(r["urn"]).startswith(ours)]


@contextmanager
def running(
    folder: Folder, env: Mapping[str, str], python: str, faults: Sequence[str], operator: Path | None = None
) -> Iterator[Cloud]:
    """Start the stand-in cloud, and end it so that its nodes are suspended and not lost.

    `operator` is a file with what the operator may do; without one he may do everything.
    """
    argv = [python, "-m", "gpuinfra.rehearsal.cloud", "--folder", str(folder.ground)]
    for fault in faults:
        argv += ["--fault", fault]
    if operator is not None:
        argv += ["--operator", str(operator)]
    with (folder.root / "cloud.log").open("w", encoding="utf-8") as log:
        process = processes.start(
            argv, env=env, cwd=folder.root, stdout=subprocess.PIPE, stderr=log, death_signal=signal.SIGTERM
        )
        try:
            processes.record(folder, {"stand-in cloud": process.pid})
            yield Cloud(ready=_ready(process, folder), process=process, stack=folder.stack)
        finally:
            end(process)


def _ready(process: subprocess.Popen[str], folder: Folder) -> dict[str, Any]:
    """Its one line, or why there is none."""
    assert process.stdout is not None
    limit = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < limit:
        if select.select([process.stdout], [], [], 0.2)[0]:
            line = process.stdout.readline()
            if line:
                return dict(json.loads(line))
            break
        if process.poll() is not None:
            break
    tail = (folder.root / "cloud.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
    raise DeploymentError("the stand-in cloud did not start:\n  " + "\n  ".join(tail or ["it said nothing"]))


def end(process: subprocess.Popen[str]) -> None:
    """Ask it to end, then end it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        with contextlib.suppress(OSError):
            process.stdout.close()
