"""Azure Bastion as a proxy command: `python -m gpuinfra.remote.bastion --name B --resource-group G --target ID [PORT]`.

The Azure CLI opens its tunnel on a local port, but SSH requires a proxy command on standard input and output. This program opens the
tunnel on a free loopback port, waits until the port accepts a connection, and copies bytes in both directions until either side closes. SSH
verifies the host key inside the tunnel, as it does on any other connection.
`az network bastion tunnel` requires a Bastion host with the Standard or Premium SKU and `enable_tunneling`
(https://learn.microsoft.com/azure/bastion/native-client, retrieved 2026-11-20).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

from gpuinfra.clouds.relay import relay

OPENS_WITHIN_S = 45.0
"""`az` needs several seconds to sign in and open the tunnel."""


def main(argv: list[str] | None = None) -> int:
    """Run until the connection ends. If the connection cannot be opened, print the reason to stderr and return exit code 1."""
    given = _arguments(argv)
    port = _free_port()
    words = ["az", "network", "bastion", "tunnel", "--name", given.name, "--resource-group", given.resource_group]
    words += ["--target-resource-id", given.target, "--resource-port", str(given.port), "--port", str(port)]
    if given.subscription:
        words += ["--subscription", given.subscription]
    try:
        tunnel = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), start_new_session=True)
    except OSError as error:
        sys.stderr.write(f"az cannot be started: {error.strerror}; install the Azure CLI and sign in\n")
        return 1
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    try:
        stream = _open(tunnel, port)
        if stream is None:
            sys.stderr.write(f"az did not open a tunnel to {given.target} within {OPENS_WITHIN_S:g} s\n")
            return 1
        with stream:
            relay(stream)
        return 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(tunnel.pid, signal.SIGTERM)
        tunnel.wait()


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gpuinfra.remote.bastion", description="Azure Bastion as a proxy command."
    )
    parser.add_argument("--name", required=True, help="name of the Bastion host")
    parser.add_argument("--resource-group", required=True, help="resource group of the Bastion host")
    parser.add_argument("--target", required=True, help="resource ID of the virtual machine or scale set instance")
    parser.add_argument(
        "--subscription",
        default="",
        help="subscription of the Bastion host (default: the subscription that the CLI uses)",
    )
    parser.add_argument("port", nargs="?", type=int, default=22, help="port on the machine (default: 22)")
    return parser.parse_args(argv)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _open(tunnel: subprocess.Popen[bytes], port: int) -> socket.socket | None:
    """Connect to the local end of the tunnel. Return None if the tunnel did not open."""
    until = time.monotonic() + OPENS_WITHIN_S
    while time.monotonic() < until and tunnel.poll() is None:
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), timeout=5)
        time.sleep(0.1)
    return None


if __name__ == "__main__":
    sys.exit(main())
