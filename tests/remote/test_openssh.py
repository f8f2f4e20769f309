"""Connections to real OpenSSH servers on loopback."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpuinfra.remote.connection import MAX_OUTPUT_BYTES, Limits
from gpuinfra.remote.problem import HostProblem, ProblemKind

from .servers import Lab, needed

pytestmark = needed()


@contextmanager
def stalled_port(answer: bytes = b"") -> Iterator[int]:
    """A port that accepts connections, sends at most one message and stalls."""
    listener = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def take() -> None:
        while True:
            try:
                taken.append(listener.accept()[0])
                taken[-1].sendall(answer)
            except OSError:
                return

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for one in taken:
            one.close()
        thread.join(300)


def test_host_with_a_known_key_runs_commands(lab: Lab) -> None:
    """A command on a host from known_hosts returns its output and exit code."""
    key = lab.keygen("host")
    host = lab.host(lab.serve(key=key))
    known = f"[127.0.0.1]:{host.port} {lab.public(key)}\n"
    with lab.connector(known=known).connect(host) as connection:
        answer = connection.run("cat; echo err >&2; exit 7", b"hello\n")
    assert answer.exit == 7
    assert answer.output.splitlines() == [b"hello", b"err"]


def test_host_key_from_the_handover_overrides_known_hosts(lab: Lab) -> None:
    """A key from the handover is the only trusted key of its host, even if known_hosts contains another."""
    key, other = lab.keygen("host"), lab.keygen("other")
    port = lab.serve(key=key)
    connector = lab.connector(known=f"[127.0.0.1]:{port} {lab.public(other)}\n")
    with connector.connect(lab.host(port, host_keys=(lab.public(key),))) as connection:
        assert connection.run("true").exit == 0
    with pytest.raises(HostProblem) as error, connector.connect(lab.host(port, host_keys=(lab.public(other),))):
        pass
    assert error.value.kind is ProblemKind.HOST_KEY_CHANGED


def test_unknown_key_is_refused_and_not_added(lab: Lab) -> None:
    """An unknown host key is refused with its fingerprint, and known_hosts is not changed."""
    key = lab.keygen("host")
    host = lab.host(lab.serve(key=key))
    connector = lab.connector(known="# nothing\n")
    with pytest.raises(HostProblem) as error, connector.connect(host):
        pass
    assert error.value.kind is ProblemKind.HOST_KEY_UNKNOWN
    shown = subprocess.check_output(["ssh-keygen", "-lf", f"{key}.pub"], text=True).split()[1]
    assert shown in error.value.reason
    assert (lab.folder / "known_hosts").read_text() == "# nothing\n"


def test_changed_key_is_refused_before_login(lab: Lab) -> None:
    """The error names the expected and the presented key, and no login is attempted."""
    key, before = lab.keygen("host"), lab.keygen("before")
    port = lab.serve(key=key)
    connector = lab.connector(known=f"[127.0.0.1]:{port} {lab.public(before)}\n")
    with pytest.raises(HostProblem) as error, connector.connect(lab.host(port)):
        pass
    assert error.value.kind is ProblemKind.HOST_KEY_CHANGED
    shown = [
        subprocess.check_output(["ssh-keygen", "-lf", f"{one}.pub"], text=True).split()[1] for one in (key, before)
    ]
    assert all(one in error.value.reason for one in shown)
    assert "Accepted" not in (lab.folder / "sshd-1.log").read_text()


def test_host_certificate_is_verified(lab: Lab) -> None:
    """A host certificate of a trusted CA is accepted; @cert-authority lines may use patterns."""
    authority, key = lab.keygen("ca"), lab.keygen("host")
    certificate = lab.sign(authority, key, names="node,other")
    port = lab.serve(key=key, more=f"HostCertificate {certificate}\n")
    connector = lab.connector(known=f"@cert-authority *,!bad {lab.public(authority)}\n")
    with connector.connect(lab.host(port)) as connection:
        assert connection.run("true").exit == 0


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("name", "for elsewhere"),
        ("expired", "valid from"),
        ("user", "for a user, not for a host"),
        ("authority", "not trusted"),
        ("revoked", "revoked"),
    ],
)
def test_invalid_host_certificate_is_refused(lab: Lab, how: str, words: str) -> None:
    """A certificate for another name, a user or another time, of another CA, or a revoked one is refused."""
    authority, other, key = lab.keygen("ca"), lab.keygen("other"), lab.keygen("host")
    certificate = lab.sign(
        other if how == "authority" else authority,
        key,
        names="elsewhere" if how == "name" else "node",
        host=how != "user",
        valid="20200101:20200102" if how == "expired" else "+1h",
    )
    # sshd refuses to present a user certificate, so this case runs without a server.
    known = f"@cert-authority * {lab.public(authority)}\n" + (
        f"@revoked * {lab.public(key)}\n" if how == "revoked" else ""
    )
    if how == "user":
        import base64

        from gpuinfra.remote.known import KnownHosts

        file = lab.folder / "known_hosts"
        file.write_text(known)
        blob = base64.b64decode(certificate.read_text().split()[1])
        with pytest.raises(HostProblem) as error:
            KnownHosts([file]).trust(lab.host(22)).check(blob)
    else:
        port = lab.serve(key=key, more=f"HostCertificate {certificate}\n")
        with pytest.raises(HostProblem) as error, lab.connector(known=known).connect(lab.host(port)):
            pass
    assert words in error.value.reason
    assert not error.value.kind.is_transient


def test_user_certificate_is_offered(lab: Lab) -> None:
    """A certificate next to the identity file is offered, and a server that trusts its CA accepts it."""
    authority, key, own = lab.keygen("user-ca"), lab.keygen("host"), lab.keygen("own")
    lab.sign(authority, own, names=lab.user, host=False)
    port = lab.serve(key=key, more=f"TrustedUserCAKeys {authority}.pub\n")
    host = lab.host(port, identity=(own,), host_keys=(lab.public(key),))
    with lab.connector().connect(host) as connection:
        assert connection.run("true").exit == 0


def test_agent_keys_are_offered(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without identity, the keys of the SSH agent are offered."""
    key = lab.keygen("host")
    socket_path = lab.folder / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket_path)], stdout=subprocess.DEVNULL)
    try:
        while not socket_path.exists():
            time.sleep(0.01)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket_path))
        subprocess.run(["ssh-add", "-q", str(lab.key)], check=True)
        host = lab.host(lab.serve(key=key), identity=(), host_keys=(lab.public(key),))
        with lab.connector().connect(host) as connection:
            assert connection.run("true").exit == 0
    finally:
        agent.terminate()
        agent.wait(300)


def test_refused_login_lists_the_keys(lab: Lab) -> None:
    """A refused login names the user and the keys, and is not retried."""
    key, stranger = lab.keygen("host"), lab.keygen("stranger")
    host = lab.host(lab.serve(key=key), identity=(stranger,), host_keys=(lab.public(key),))
    with pytest.raises(HostProblem) as error, lab.connector().connect(host):
        pass
    assert error.value.kind is ProblemKind.LOGIN
    assert str(stranger) in error.value.reason
    assert not error.value.kind.is_transient


def test_jump_host_connection_is_shared_and_both_keys_are_verified(lab: Lab) -> None:
    """Hosts behind a jump host share one connection to it, and their own host keys are verified."""
    outer, inner = lab.keygen("outer"), lab.keygen("inner")
    jump = lab.host(lab.serve(key=outer), "jump", host_keys=(lab.public(outer),))
    port = lab.serve(key=inner)
    connector = lab.connector(jump)
    for number in range(3):
        host = lab.host(port, f"node-{number}", jump="jump", host_keys=(lab.public(inner),))
        with connector.connect(host) as connection:
            assert connection.run("echo $SSH_CONNECTION").exit == 0
    with (
        pytest.raises(HostProblem) as error,
        connector.connect(lab.host(port, jump="jump", host_keys=(lab.public(outer),))),
    ):
        pass
    connector.close()
    assert error.value.kind is ProblemKind.HOST_KEY_CHANGED
    assert (lab.folder / "sshd-1.log").read_text().count("Accepted publickey") == 1


def test_chained_jump_hosts(lab: Lab) -> None:
    """A node behind two jump hosts is reached through both, and all three host keys are verified."""
    keys = [lab.keygen(name) for name in ("first", "second", "node")]
    ports = [lab.serve(key=key) for key in keys]
    first = lab.host(ports[0], "first", host_keys=(lab.public(keys[0]),))
    second = lab.host(ports[1], "second", jump="first", host_keys=(lab.public(keys[1]),))
    node = lab.host(ports[2], "node", jump="second", host_keys=(lab.public(keys[2]),))
    connector = lab.connector(first, second)
    with connector.connect(node) as connection:
        assert connection.run("echo there").output == b"there\n"
    connector.close()
    wrong = lab.host(ports[1], "second", jump="first", host_keys=(lab.public(keys[0]),))
    connector = lab.connector(first, wrong)
    with pytest.raises(HostProblem) as error, connector.connect(node):
        pass
    connector.close()
    assert error.value.kind is ProblemKind.HOST_KEY_CHANGED
    assert "node is behind second" in error.value.reason


def test_idle_connection_sends_keepalives(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """During a command without output, keepalives prevent a firewall from dropping the connection."""
    monkeypatch.setattr("gpuinfra.remote.connection._KEEPALIVE_S", 1)
    key = lab.keygen("host")
    host = lab.host(
        lab.serve(key=key, more="Match User *\nLogLevel DEBUG3\n"),
        host_keys=(lab.public(key),),
    )
    with lab.connector().connect(host) as connection:
        connection.run("sleep 3")
    assert "keepalive@" in (lab.folder / "sshd-1.log").read_text(errors="replace")


def test_jump_host_that_cannot_reach_the_node_is_named(lab: Lab) -> None:
    """The error names the jump host and the node."""
    key = lab.keygen("outer")
    jump = lab.host(lab.serve(key=key), "jump", host_keys=(lab.public(key),))
    connector = lab.connector(jump)
    with (
        pytest.raises(HostProblem, match="jump did not forward a connection to node"),
        connector.connect(lab.host(1, jump="jump")),
    ):
        pass
    connector.close()


def test_proxy_command_carries_the_connection(lab: Lab) -> None:
    """The connection uses the command's standard input and output, tokens are replaced, and the process ends with the connection."""
    key = lab.keygen("host")
    port = lab.serve(key=key)
    marker = f"gpuinfra-proxy-{port}"
    relay = (
        "import socket,sys,threading,os\n"
        "s=socket.create_connection((sys.argv[1],int(sys.argv[2])))\n"
        "def up():\n"
        "  while d:=os.read(0,65536): s.sendall(d)\n"
        "  s.shutdown(1)\n"
        "threading.Thread(target=up,daemon=True).start()\n"
        "while d:=s.recv(65536): os.write(1,d)\n"
    )
    words = (sys.executable, "-c", relay, "%h", "%p", marker)
    host = lab.host(port, "i-1", proxy_command=words, host_keys=(lab.public(key),))
    with lab.connector().connect(host) as connection:
        assert connection.run("echo through").output == b"through\n"
    assert subprocess.run(["pgrep", "-f", marker], stdout=subprocess.DEVNULL, check=False).returncode == 1


def test_proxy_command_error_is_quoted(lab: Lab) -> None:
    """The error quotes the standard error of the command, or names a program that does not exist."""
    host = lab.host(22, proxy_command=("sh", "-c", "echo TargetNotConnected >&2; exit 255"))
    with pytest.raises(HostProblem, match="TargetNotConnected"), lab.connector().connect(host):
        pass
    with (
        pytest.raises(HostProblem, match="no-such-program"),
        lab.connector().connect(lab.host(22, proxy_command=("no-such-program",))),
    ):
        pass


@pytest.mark.parametrize("banner", [b"", b"SSH-2.0-OpenSSH_9.2\r\n"])
def test_stalled_handshake_times_out(lab: Lab, banner: bytes) -> None:
    """A port that accepts the connection and then stalls ends at the time limit."""
    began = time.monotonic()
    with (
        stalled_port(banner) as port,
        pytest.raises(HostProblem) as error,
        lab.connector(limits=Limits(handshake_s=1)).connect(lab.host(port)),
    ):
        pass
    assert error.value.kind in (ProblemKind.TIMEOUT, ProblemKind.DROPPED)
    assert error.value.kind.is_transient
    assert time.monotonic() - began < 200


def test_refused_connection_is_unreachable(lab: Lab) -> None:
    """The error names address and port."""
    with pytest.raises(HostProblem) as error, lab.connector().connect(lab.host(1)):
        pass
    assert error.value.kind is ProblemKind.UNREACHABLE
    assert "127.0.0.1:1" in error.value.reason


def test_stalled_command_times_out(lab: Lab) -> None:
    """A command without output ends at its time limit."""
    key = lab.keygen("host")
    host = lab.host(lab.serve(key=key), host_keys=(lab.public(key),))
    with lab.connector().connect(host) as connection, pytest.raises(HostProblem) as error:
        connection.run("sleep 30", limit_s=0.5)
    assert error.value.kind is ProblemKind.TIMEOUT


def test_closing_the_connector_ends_a_command(lab: Lab) -> None:
    """After an interrupt, a command that is waited for ends at once, and no new connection is opened."""
    key = lab.keygen("host")
    host = lab.host(lab.serve(key=key), host_keys=(lab.public(key),))
    connector = lab.connector()
    with connector.connect(host) as connection:
        threading.Timer(0.2, connector.close).start()
        with pytest.raises(HostProblem) as error:
            connection.run("sleep 60", limit_s=30)
    assert error.value.kind is ProblemKind.DROPPED
    with pytest.raises(HostProblem) as error, connector.connect(host):
        pass
    assert error.value.kind is ProblemKind.INTERRUPTED


def test_connection_dropped_during_a_command_is_a_failure(lab: Lab) -> None:
    """A connection that breaks during a command is reported as dropped, whatever the output was."""
    key = lab.keygen("host")
    host = lab.host(lab.serve(key=key), host_keys=(lab.public(key),))
    # The command kills its own sshd process, which the client cannot distinguish from a crash of the machine.
    with lab.connector().connect(host) as connection, pytest.raises(HostProblem) as error:
        connection.run("echo begun; kill -9 $PPID; sleep 1; echo ended")
    assert error.value.kind is ProblemKind.DROPPED


def test_output_is_limited(lab: Lab) -> None:
    """The end of a large output is kept, and the size of the rest is counted."""
    key = lab.keygen("host")
    host = lab.host(lab.serve(key=key), host_keys=(lab.public(key),))
    with lab.connector().connect(host) as connection:
        answer = connection.run("head -c 20000000 /dev/zero; echo the-end")
    assert answer.output.endswith(b"the-end\n")
    assert len(answer.output) <= 2 * MAX_OUTPUT_BYTES
    assert answer.dropped_bytes + len(answer.output) == 20_000_008


def test_server_with_only_weak_algorithms_is_refused(lab: Lab) -> None:
    """The error of a server that offers only SHA-1 and CBC differs from that of an unreachable one."""
    key = lab.keygen("host")
    host = lab.host(lab.serve(key=key, more="Ciphers aes128-cbc\nMACs hmac-sha1\n"), host_keys=(lab.public(key),))
    with pytest.raises(HostProblem, match="offers no algorithm that gpuinfra accepts"), lab.connector().connect(host):
        pass
