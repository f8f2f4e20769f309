"""Runs the stand-in cloud as a process: `python -m gpuinfra_rehearsal.cloud --folder .rehearsal/<stack>`.

When all servers are listening, it prints one line of JSON:

    {"providers": {"aws": 41001, ...}, "http": 41004, "control_token": "...",
     "operator": {"aws": {"access_key_id": "...", "secret_access_key": "..."}, ...},
     "nodes": {"available": true, "reason": null}}

It exits on SIGTERM, on SIGINT, or when its parent process exits. Before it exits, it suspends the nodes.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import secrets
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import GpuinfraError
from gpuinfra_rehearsal.cloud.core import registry
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.fleet import Fleet
from gpuinfra_rehearsal.cloud.core.operator import Operator
from gpuinfra_rehearsal.cloud.core.provider import Provider, serve
from gpuinfra_rehearsal.cloud.core.server import Server

MARK = "GPUINFRA_REHEARSAL"
"""The environment variable that holds the rehearsal folder in every process of a rehearsal. The next run uses it to
find leftover processes."""


def main(argv: list[str] | None = None) -> int:
    options = _arguments(argv)
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[MARK] = str(folder)
    wait_for_end = _end()
    try:
        cloud = Cloud(folder, faults=options.fault, operation=options.operation)
    except GpuinfraError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    token = secrets.token_urlsafe(24)
    server = Server(cloud, token)
    host, reason = (None, "--without-nodes is set") if options.no_nodes else _node_host(folder, cloud.endpoint)
    cloud.fleet = Fleet(cloud, host, reason)
    cloud.operator = Operator.read(options.operator)
    server.start()
    providers = {one.package: serve(Provider(one.package, cloud)) for one in registry.installed()}
    cloud.fleet.start()
    ready = {
        "providers": {package: port for package, (_, port) in providers.items()},
        "http": server.port,
        "control_token": token,
        "operator": {one.name: one.operator_credentials(cloud) for one in registry.installed()},
        "nodes": {"available": host is not None, "reason": reason or None},
    }
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(ready), flush=True)
    wait_for_end()
    for grpc_server, _ in providers.values():
        grpc_server.stop(grace=0.2)
    cloud.fleet.stop()
    if host is not None:
        host.close()
    server.shutdown()
    cloud.close()
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gpuinfra_rehearsal.cloud", description="Run the stand-in cloud of a rehearsal."
    )
    parser.add_argument("--folder", type=Path, required=True, help="folder for the data of the cloud and the nodes")
    parser.add_argument("--fault", action="append", default=[], help="fault to inject; can be repeated")
    parser.add_argument("--operation", default="rehearsal", help="name under which changes are recorded")
    parser.add_argument(
        "--operator",
        type=Path,
        help="file with the operator's policies; by default, all operator requests are allowed",
    )
    parser.add_argument("--no-nodes", action="store_true", help="create instances without booting them")
    return parser.parse_args(argv)


def _node_host(folder: Path, endpoint: str) -> tuple[Any | None, str]:
    """Return (the node host or None, the reason if there is none)."""
    from gpuinfra_rehearsal.nodes import NodeHost, available

    fine, reason = available()
    if not fine:
        return None, reason
    host = NodeHost(folder, endpoint=endpoint)
    host.start()
    return host, ""


def _end() -> Callable[[], None]:
    """Return a function that returns when a signal ends this process or when the parent process has exited.

    Uses a kernel signal for the exit of the parent process, and polling. The kernel also sends the signal if only the
    thread that started this process exits, so the function checks the parent process.
    """
    parent = os.getppid()
    received, sent = os.pipe()
    # Not an Event: its lock is not reentrant, so a handler that runs while the main thread enters `wait` never returns.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda number, _: os.write(sent, bytes([number])))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGUSR1, 0, 0, 0)  # PR_SET_PDEATHSIG

    def wait() -> None:
        while os.getppid() == parent:
            ready, _, _ = select.select([received], [], [], 0.5)
            if ready and os.read(received, 1)[0] != signal.SIGUSR1:
                return

    return wait


if __name__ == "__main__":
    sys.exit(main())
