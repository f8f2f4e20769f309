"""`python -m gpuinfra.rehearsal.cloud --folder .rehearsal/<stack>`: the stand-in cloud as a process.

When everything listens, one line of JSON on standard output says where:

    {"providers": {"aws": 41001, ...}, "http": 41004, "control_token": "...",
     "operator": {"access_key_id": "...", "secret_access_key": "..."}, "nodes": {"available": true, "reason": null}}

It ends on SIGTERM or SIGINT, suspending the nodes first, and when its parent ends.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import secrets
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from gpuinfra.errors import GpuinfraError
from gpuinfra.rehearsal.cloud.aws import credentials
from gpuinfra.rehearsal.cloud.azure import identity as azure_identity
from gpuinfra.rehearsal.cloud.azure.signer import Signer
from gpuinfra.rehearsal.cloud.core import ids
from gpuinfra.rehearsal.cloud.core.cloud import Cloud
from gpuinfra.rehearsal.cloud.core.fleet import Fleet
from gpuinfra.rehearsal.cloud.core.operator import Operator
from gpuinfra.rehearsal.cloud.core.provider import Provider, serve
from gpuinfra.rehearsal.cloud.core.sdk import installed
from gpuinfra.rehearsal.cloud.core.server import Server
from gpuinfra.rehearsal.cloud.gcp import tokens as gcp_tokens

MARK = "GPUINFRA_REHEARSAL"
"""Every process of a rehearsal carries its folder in this variable, so that what a kill left can be found."""


def main(argv: list[str] | None = None) -> int:
    options = _arguments(argv)
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[MARK] = str(folder)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    _end_with_parent(stop)
    try:
        cloud = Cloud(folder, faults=options.fault, operation=options.operation)
    except GpuinfraError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    token = secrets.token_urlsafe(24)
    server = Server(cloud, token)
    host, reason = (None, "nodes were not asked for") if options.no_nodes else _node_host(folder, cloud.endpoint)
    cloud.fleet = Fleet(cloud, host, reason)
    cloud.operator = Operator.read(options.operator)
    server.start()
    providers = {package: serve(Provider(package, cloud)) for package in installed()}
    cloud.fleet.start()
    operator = credentials.operator(cloud)
    ready = {
        "providers": {package: port for package, (_, port) in providers.items()},
        "http": server.port,
        "control_token": token,
        "operator": {
            "access_key_id": operator.id,
            "secret_access_key": operator.secret,
            "azure": {
                "secret": azure_identity.secret_of_operator(cloud),
                "certificates": str(Signer(folder).prepare()),
            },
            "gcp": {"credentials_file": gcp_tokens.operator_file(cloud), "project": ids.PROJECT},
        },
        "nodes": {"available": host is not None, "reason": reason or None},
    }
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(ready), flush=True)
    stop.wait()
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
        prog="python -m gpuinfra.rehearsal.cloud", description="A stand-in for a cloud, for rehearsals."
    )
    parser.add_argument("--folder", type=Path, required=True, help="where the cloud's contents and the nodes are kept")
    parser.add_argument("--fault", action="append", default=[], help="what should go wrong; may be given several times")
    parser.add_argument("--operation", default="rehearsal", help="the name under which changes are recorded")
    parser.add_argument(
        "--operator", type=Path, help="a file with what the operator may do; left out, he may do everything"
    )
    parser.add_argument("--no-nodes", action="store_true", help="groups make instances, and none of them boots")
    return parser.parse_args(argv)


def _node_host(folder: Path, endpoint: str) -> tuple[Any | None, str]:
    """What runs the nodes, or why nothing does."""
    from gpuinfra.rehearsal.nodes import NodeHost, available

    fine, reason = available()
    if not fine:
        return None, reason
    host = NodeHost(folder, endpoint=endpoint)
    host.start()
    return host, ""


def _end_with_parent(stop: threading.Event) -> None:
    """Ask the kernel for a signal when the parent ends, and look now and then.

    The kernel's signal also comes when only the thread ends that started this process, so it is a hint to look, no more.
    """
    parent = os.getppid()

    def look(*_: object) -> None:
        if os.getppid() != parent:
            stop.set()

    signal.signal(signal.SIGUSR1, look)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGUSR1, 0, 0, 0)  # PR_SET_PDEATHSIG

    def watch() -> None:
        while not stop.wait(0.5):
            look()

    threading.Thread(target=watch, name="parent", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
