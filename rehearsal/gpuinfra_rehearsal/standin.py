"""The stand-in cloud process and its control API."""

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

from gpuinfra.base.errors import DeploymentError, reason_of
from gpuinfra_rehearsal import processes
from gpuinfra_rehearsal.folder import Folder

READY_TIMEOUT_S = 180.0
END_TIMEOUT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class StandInCloud:
    """A running stand-in cloud."""

    ready: dict[str, Any]
    process: subprocess.Popen[str]
    stack: str = ""
    """The stack of this rehearsal. Resources of other stacks in the same account are not listed."""

    @property
    def pid(self) -> int:
        """The process ID."""
        return self.process.pid

    def ask(self, path: str, body: Mapping[str, object] | None = None, timeout: float = 10.0) -> dict[str, Any]:
        """Send one request to the control API."""
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
                f"the stand-in cloud does not respond to {path}: {reason_of(error)}; read cloud.log in the rehearsal's folder"
            ) from None
        return value if isinstance(value, dict) else {}

    def nodes(self) -> list[dict[str, Any]]:
        """Return the stand-in nodes and the stage of each node."""
        return [n for n in self.ask("nodes").get("nodes", []) if isinstance(n, dict)]

    def alerts(self) -> list[dict[str, Any]]:
        """Return the messages that the receivers of alerts got, oldest first."""
        return [one for one in self.ask("alerts").get("alerts", []) if isinstance(one, dict)]

    def nodes_available(self) -> tuple[bool, str]:
        """Return whether this system can run stand-in nodes and, if it cannot, the reason."""
        answer = self.ask("nodes")
        return bool(answer.get("available", True)), str(answer.get("reason") or "")

    def resources(self) -> list[dict[str, Any]]:
        """Return the resources of this stack, and the resources that belong to no stack."""
        held = [r for r in self.ask("resources").get("resources", []) if isinstance(r, dict)]
        ours = f"urn:pulumi:{self.stack}::"
        return [r for r in held if not self.stack or not r.get("urn") or str(r["urn"]).startswith(ours)]


@contextmanager
def running_cloud(
    folder: Folder,
    env: Mapping[str, str],
    python: str,
    faults: Sequence[str],
    operator: Path | None = None,
    *,
    nodes: bool = True,
) -> Iterator[StandInCloud]:
    """Run the stand-in cloud within a `with` block. Its nodes are suspended when the block ends.

    `operator` is the file that contains the operator's policy. Without this file, the operator has all permissions.
    Without `nodes`, instances do not boot.
    """
    argv = [python, "-m", "gpuinfra_rehearsal.cloud", "--folder", str(folder.base)]
    for fault in faults:
        argv += ["--fault", fault]
    if not nodes:
        argv += ["--no-nodes"]
    if operator is not None:
        argv += ["--operator", str(operator)]
    with (folder.root / "cloud.log").open("w", encoding="utf-8") as log:
        process = processes.start(
            argv, env=env, cwd=folder.root, stdout=subprocess.PIPE, stderr=log, death_signal=signal.SIGTERM
        )
        try:
            processes.record(folder, {"stand-in cloud": process.pid})
            yield StandInCloud(ready=_ready(process, folder), process=process, stack=folder.stack)
        finally:
            _end(process)


def _ready(process: subprocess.Popen[str], folder: Folder) -> dict[str, Any]:
    """Return the line that the process prints when it is ready. Raise DeploymentError with the end of the log if the process
    does not start."""
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
    raise DeploymentError("the stand-in cloud did not start:\n  " + "\n  ".join(tail or ["its log is empty"]))


def _end(process: subprocess.Popen[str]) -> None:
    """Terminate the process, and kill it if it does not exit in time."""
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
