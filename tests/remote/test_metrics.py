"""`gpuinfra metrics` through a real OpenSSH server on loopback."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.cli import metrics
from gpuinfra.remote.hosts import Host, Hosts
from gpuinfra.spec.monitoring import CONTROL_POOL
from tests.servers import Answering, free_port, serve

from .servers import Lab, needed

pytestmark = needed()


class Prometheus(Answering):
    """Answers as Prometheus that is ready."""

    def do_GET(self) -> None:
        self.answer(200, b"Prometheus Server is Ready.\n")


def control(lab: Lab) -> Host:
    """The control node."""
    key = lab.keygen("host")
    port = lab.serve(key=key)
    return lab.host(port, host_keys=(lab.public(key),), pool=CONTROL_POOL, label="monitoring-1")


def use(monkeypatch: pytest.MonkeyPatch, address: str, *hosts: Host) -> None:
    """The stack has these nodes, and Prometheus listens on this address of the control node."""

    @contextmanager
    def opened(*_: object) -> Iterator[Hosts]:
        yield Hosts(hosts=hosts)

    monkeypatch.setattr(metrics, "opened", opened)
    monkeypatch.setattr(metrics, "PROMETHEUS", address)


def run(*words: str) -> None:
    """Run the command."""
    CliRunner().invoke(metrics.command, ["watched", *words], standalone_mode=False, catch_exceptions=False)


SCRIPT = """
import sys
from contextlib import contextmanager
from pathlib import Path
from gpuinfra.cli import metrics
from gpuinfra.remote.hosts import Host, Hosts
port, user, key, public, prometheus, local = sys.argv[1:]
host = Host(name="node", address="127.0.0.1", port=int(port), user=user, identity=(Path(key),), host_keys=(public,), pool="monitoring", label="monitoring-1")
metrics.opened = contextmanager(lambda *_: iter([Hosts(hosts=(host,))]))
metrics.PROMETHEUS = prometheus
sys.exit(metrics.command(["watched", "--port", local], standalone_mode=False))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_prometheus_is_open_until_ctrl_c(number: signal.Signals, code: int, lab: Lab) -> None:
    """The command prints the addresses when Prometheus answers, forwards requests, and ends with exit code 0 after Ctrl-C. If it is killed, ssh ends too."""
    host, local = control(lab), str(free_port(apart=metrics.APART))
    with serve(Prometheus) as url:
        arguments = [str(host.port), host.user, str(lab.key), host.host_keys[0], url.partition("//")[2], local]
        with subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == f"Prometheus:   http://127.0.0.1:{local}\n"
            assert process.stdout.readline() == f"Alertmanager: http://127.0.0.1:{int(local) + metrics.APART}\n"
            with urllib.request.urlopen(f"http://127.0.0.1:{local}/-/ready", timeout=30) as reply:
                assert reply.read() == b"Prometheus Server is Ready.\n"
            process.send_signal(number)
            assert process.wait(60) == code
        wait_until_free(int(local))


def wait_until_free(port: int) -> None:
    """Wait until no process listens on a port."""
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.1)
    pytest.fail(f"port {port} is still open")


def test_prometheus_that_does_not_answer_is_named(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a successful login, the error names the service and the command that shows its state."""
    monkeypatch.setattr(metrics, "PATIENCE_S", 3.0)
    use(monkeypatch, f"127.0.0.1:{free_port()}", control(lab))
    with pytest.raises(
        DeploymentError, match="`gpuinfra ssh watched monitoring-1 systemctl status gpuinfra-prometheus`"
    ):
        run("--port", str(free_port(apart=metrics.APART)))


def test_a_failed_login_is_an_error(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the host key is not the one of the handover, ssh ends, and the error says so."""
    host = control(lab)
    other = lab.host(host.port, host_keys=(lab.public(lab.keygen("other")),), pool=CONTROL_POOL, label="monitoring-1")
    use(monkeypatch, "127.0.0.1:1", other)
    with pytest.raises(
        DeploymentError, match=r"the connection to monitoring-1 \(node\) ended: ssh exited with code 255"
    ):
        run("--port", str(free_port(apart=metrics.APART)))


def test_a_stack_without_control_node_and_a_used_port_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both errors come before any connection, and say what to change."""
    use(monkeypatch, "127.0.0.1:1", Host(name="node", address="127.0.0.1", pool="gpu", label="gpu-1"))
    with pytest.raises(UsageError, match="watched has no control node, which runs Prometheus; declare monitoring"):
        run("--port", str(free_port(apart=metrics.APART)))
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="is in use; specify"):
        run("--port", str(taken.getsockname()[1]))
