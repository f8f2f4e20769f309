"""`gpuinfra metrics`: opens Prometheus and Alertmanager of a stack on this machine, through the tunnel of the cloud."""

from __future__ import annotations

import contextlib
import errno
import http.client
import socket
import subprocess
import time
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.cli.openssh import in_folder, opened, program
from gpuinfra.cli.stacks import short_name, stacks_of
from gpuinfra.monitoring.config import ALERTMANAGER, PROMETHEUS
from gpuinfra.spec.monitoring import CONTROL_POOL

if TYPE_CHECKING:
    from gpuinfra.remote.hosts import Host

APART = 3
"""The local port of Alertmanager minus that of Prometheus, as on the control node."""
PATIENCE_S = 60.0
"""Time for the login and the first answer of Prometheus. The tunnel of a cloud takes several seconds."""


@click.command("metrics")
@click.argument("stack")
@click.option(
    "--port",
    type=click.IntRange(1, 65535 - APART),
    default=9090,
    show_default=True,
    help=f"Local port of Prometheus. Alertmanager gets the port that is {APART} higher.",
)
@click.option("--direct", is_flag=True, help="Connect to the private address instead of through the cloud's tunnel.")
def command(stack: str, port: int, direct: bool) -> int:
    """Open Prometheus and Alertmanager of STACK on this machine, until you press Ctrl-C.

    Both listen only on the loopback address of the control node, and here only on the loopback address of this machine. The command prints their
    addresses when Prometheus is ready.

    The exit code is 0 after Ctrl-C, and 1 if the connection fails or ends.
    """
    ssh = program("ssh")
    for local in (port, port + APART):
        _free(local)
    with opened(stack, None, direct, stacks_of({})) as hosts:
        host = next((one for one in hosts.hosts if one.pool == CONTROL_POOL), None)
        if host is None:
            raise UsageError(f"{short_name(stack)} has no control node, which runs Prometheus; declare monitoring")
        with in_folder(hosts, [host]) as file:
            forwarded = [("-L", f"127.0.0.1:{port}:{PROMETHEUS}"), ("-L", f"127.0.0.1:{port + APART}:{ALERTMANAGER}")]
            options = ["-T", "-o", "ExitOnForwardFailure=yes", *(word for pair in forwarded for word in pair)]
            # `cat` ends with its input, so the connection also ends if this process is killed.
            tunnel = subprocess.Popen([ssh, "-F", str(file), *options, host.name, "cat"], stdin=subprocess.PIPE)
            try:
                _await(tunnel, port, host, stack)
                click.echo(f"Prometheus:   http://127.0.0.1:{port}\nAlertmanager: http://127.0.0.1:{port + APART}")
                click.echo("press Ctrl-C to close the connection", err=True)
                raise _ended(tunnel.wait(), host)
            except KeyboardInterrupt:
                return 0
            finally:
                tunnel.terminate()
                tunnel.communicate()  # also closes the pipe


def _free(port: int) -> None:
    """Raise `UsageError` if a local port is in use."""
    with socket.socket() as probe:
        # As ssh: a port whose last connections are closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as problem:
            why = "is in use" if problem.errno == errno.EADDRINUSE else f"cannot be opened: {problem.strerror}"
            raise UsageError(f"port {port} of this machine {why}; specify a different one with --port") from None


def _await(tunnel: subprocess.Popen[bytes], port: int, host: Host, stack: str) -> None:
    """Wait until Prometheus answers. Raises `DeploymentError`."""
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit:
        if (code := tunnel.poll()) is not None:
            raise _ended(code, host)
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection,
        ):
            connection.request("GET", "/-/ready")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.3)
    fix = f"gpuinfra ssh {short_name(stack)} {host.label} systemctl status gpuinfra-prometheus"
    raise DeploymentError(f"Prometheus on {host.title} does not answer; run `{fix}`")


def _ended(code: int, host: Host) -> DeploymentError:
    return DeploymentError(
        f"the connection to {host.title} ended: ssh exited with code {code}, and its message is above"
    )
