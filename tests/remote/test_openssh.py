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

from gpuinfra.remote.connection import KEPT_BYTES, Limits
from gpuinfra.remote.problem import HostProblem, Kind

from .servers import Lab, needed

pytestmark = needed()


@contextmanager
def deaf(answer: bytes = b"") -> Iterator[int]:
    """A port that takes connections, may say one thing, and stalls."""
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
        thread.join(5)


def test_a_known_key_is_logged_into(lab: Lab) -> None:
    """A host whose key is in known_hosts runs a command and gives its output and exit code."""
    key = lab.keygen("host")
    host = lab.host(lab.serve(key=key))
    known = f"[127.0.0.1]:{host.port} {lab.public(key)}\n"
    with lab.connector(known=known).connect(host) as connection:
        answer = connection.run("cat; echo err >&2; exit 7", b"hello\n")
    assert answer.exit == 7
    assert answer.output.splitlines() == [b"hello", b"err"]


def test_a_key_of_the_handover_is_believed_and_leaves_known_hosts_no_word(lab: Lab) -> None:
    """A key that comes with the host decides alone, also against a known_hosts file that says otherwise."""
    key, other = lab.keygen("host"), lab.keygen("other")
    port = lab.serve(key=key)
    connector = lab.connector(known=f"[127.0.0.1]:{port} {lab.public(other)}\n")
    with connector.connect(lab.host(port, host_keys=(lab.public(key),))) as connection:
        assert connection.run("true").exit == 0
    with pytest.raises(HostProblem) as told, connector.connect(lab.host(port, host_keys=(lab.public(other),))):
        pass
    assert told.value.kind is Kind.HOST_KEY_CHANGED


def test_an_unknown_key_is_refused_and_not_added(lab: Lab) -> None:
    """A host that nothing vouches for is refused with its fingerprint, and known_hosts stays as it was."""
    key = lab.keygen("host")
    host = lab.host(lab.serve(key=key))
    connector = lab.connector(known="# nothing\n")
    with pytest.raises(HostProblem) as told, connector.connect(host):
        pass
    assert told.value.kind is Kind.HOST_KEY_UNKNOWN
    shown = subprocess.check_output(["ssh-keygen", "-lf", f"{key}.pub"], text=True).split()[1]
    assert shown in told.value.reason
    assert (lab.folder / "known_hosts").read_text() == "# nothing\n"


def test_a_changed_key_is_refused_before_anything_is_offered(lab: Lab) -> None:
    """A changed key names what was expected and what came, and the server never sees a login."""
    key, before = lab.keygen("host"), lab.keygen("before")
    port = lab.serve(key=key)
    connector = lab.connector(known=f"[127.0.0.1]:{port} {lab.public(before)}\n")
    with pytest.raises(HostProblem) as told, connector.connect(lab.host(port)):
        pass
    assert told.value.kind is Kind.HOST_KEY_CHANGED
    shown = [
        subprocess.check_output(["ssh-keygen", "-lf", f"{one}.pub"], text=True).split()[1] for one in (key, before)
    ]
    assert all(one in told.value.reason for one in shown)
    assert "Accepted" not in (lab.folder / "sshd-1.log").read_text()


def test_a_host_certificate_is_verified(lab: Lab) -> None:
    """A host whose certificate the named CA signed is believed; @cert-authority lines may use patterns."""
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
        ("user", "a user's and not a host's"),
        ("authority", "nobody named"),
        ("revoked", "revoked"),
    ],
)
def test_a_host_certificate_that_is_not_right_is_refused(lab: Lab, how: str, words: str) -> None:
    """A certificate for another name, out of its time, of a user, of another CA or revoked opens nothing."""
    authority, other, key = lab.keygen("ca"), lab.keygen("other"), lab.keygen("host")
    certificate = lab.sign(
        other if how == "authority" else authority,
        key,
        names="elsewhere" if how == "name" else "node",
        host=how != "user",
        valid="20200101:20200102" if how == "expired" else "+1h",
    )
    # sshd itself refuses to serve a user's certificate, so that one is judged without a server.
    known = f"@cert-authority * {lab.public(authority)}\n" + (
        f"@revoked * {lab.public(key)}\n" if how == "revoked" else ""
    )
    if how == "user":
        import base64

        from gpuinfra.remote.known import Known

        file = lab.folder / "known_hosts"
        file.write_text(known)
        blob = base64.b64decode(certificate.read_text().split()[1])
        with pytest.raises(HostProblem) as told:
            Known([file]).of(lab.host(22)).check(blob)
    else:
        port = lab.serve(key=key, more=f"HostCertificate {certificate}\n")
        with pytest.raises(HostProblem) as told, lab.connector(known=known).connect(lab.host(port)):
            pass
    assert words in told.value.reason
    assert not told.value.kind.passes


def test_a_user_certificate_logs_in(lab: Lab) -> None:
    """A certificate beside the identity file is offered, and a server that trusts its CA lets it in."""
    authority, key, own = lab.keygen("user-ca"), lab.keygen("host"), lab.keygen("own")
    lab.sign(authority, own, names=lab.user, host=False)
    port = lab.serve(key=key, more=f"TrustedUserCAKeys {authority}.pub\n")
    host = lab.host(port, identity=(own,), host_keys=(lab.public(key),))
    with lab.connector().connect(host) as connection:
        assert connection.run("true").exit == 0


def test_an_agent_logs_in(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an identity the agent's keys are offered."""
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
        agent.wait(5)


def test_a_login_that_is_refused_says_what_was_tried(lab: Lab) -> None:
    """A key that the machine does not know is a refusal that names user and key, and is not tried again."""
    key, stranger = lab.keygen("host"), lab.keygen("stranger")
    host = lab.host(lab.serve(key=key), identity=(stranger,), host_keys=(lab.public(key),))
    with pytest.raises(HostProblem) as told, lab.connector().connect(host):
        pass
    assert told.value.kind is Kind.LOGIN
    assert str(stranger) in told.value.reason
    assert not told.value.kind.passes


def test_jump_hosts_are_shared_and_both_keys_are_checked(lab: Lab) -> None:
    """Hosts behind a jump host are reached through one connection to it, and the key inside is checked as well."""
    outer, inner = lab.keygen("outer"), lab.keygen("inner")
    jump = lab.host(lab.serve(key=outer), "jump", host_keys=(lab.public(outer),))
    port = lab.serve(key=inner)
    connector = lab.connector(jump)
    for number in range(3):
        host = lab.host(port, f"node-{number}", jump="jump", host_keys=(lab.public(inner),))
        with connector.connect(host) as connection:
            assert connection.run("echo $SSH_CONNECTION").exit == 0
    with (
        pytest.raises(HostProblem) as told,
        connector.connect(lab.host(port, jump="jump", host_keys=(lab.public(outer),))),
    ):
        pass
    connector.close()
    assert told.value.kind is Kind.HOST_KEY_CHANGED
    assert (lab.folder / "sshd-1.log").read_text().count("Accepted publickey") == 1


def test_jump_hosts_in_a_row_are_passed_in_order(lab: Lab) -> None:
    """A node behind two jump hosts is reached through both, and each of the three keys is checked."""
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
    with pytest.raises(HostProblem) as told, connector.connect(node):
        pass
    connector.close()
    assert told.value.kind is Kind.HOST_KEY_CHANGED
    assert "node is behind second" in told.value.reason


def test_a_waiting_connection_is_kept_alive(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a command says nothing, the server hears from us, so that no firewall forgets the connection."""
    monkeypatch.setattr("gpuinfra.remote.connection._KEEPALIVE_S", 1)
    key = lab.keygen("host")
    host = lab.host(
        lab.serve(key=key, more="Match User *\nLogLevel DEBUG3\n"),
        host_keys=(lab.public(key),),
    )
    with lab.connector().connect(host) as connection:
        connection.run("sleep 3")
    assert "keepalive@" in (lab.folder / "sshd-1.log").read_text(errors="replace")


def test_a_jump_host_that_cannot_reach_the_node_is_named(lab: Lab) -> None:
    """What the jump host refuses is told with both names."""
    key = lab.keygen("outer")
    jump = lab.host(lab.serve(key=key), "jump", host_keys=(lab.public(key),))
    connector = lab.connector(jump)
    with (
        pytest.raises(HostProblem, match="jump did not pass a connection on to node"),
        connector.connect(lab.host(1, jump="jump")),
    ):
        pass
    connector.close()


def test_a_proxy_command_carries_the_connection(lab: Lab) -> None:
    """A command's standard input and output are the connection, its tokens are filled in, and it ends with it."""
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


def test_a_proxy_command_that_fails_is_quoted(lab: Lab) -> None:
    """What the command complained about is the reason, and one that does not exist is named."""
    host = lab.host(22, proxy_command=("sh", "-c", "echo TargetNotConnected >&2; exit 255"))
    with pytest.raises(HostProblem, match="TargetNotConnected"), lab.connector().connect(host):
        pass
    with (
        pytest.raises(HostProblem, match="no-such-program"),
        lab.connector().connect(lab.host(22, proxy_command=("no-such-program",))),
    ):
        pass


@pytest.mark.parametrize("banner", [b"", b"SSH-2.0-OpenSSH_9.2\r\n"])
def test_a_stalled_connection_ends_in_time(lab: Lab, banner: bytes) -> None:
    """A port that takes the connection and then says nothing more costs its limit and not more."""
    began = time.monotonic()
    with (
        deaf(banner) as port,
        pytest.raises(HostProblem) as told,
        lab.connector(limits=Limits(handshake_s=1)).connect(lab.host(port)),
    ):
        pass
    assert told.value.kind in (Kind.TIMEOUT, Kind.DROPPED)
    assert told.value.kind.passes
    assert time.monotonic() - began < 10


def test_a_port_where_nobody_listens_is_not_reachable(lab: Lab) -> None:
    """A refused connection says so with address and port."""
    with pytest.raises(HostProblem) as told, lab.connector().connect(lab.host(1)):
        pass
    assert told.value.kind is Kind.UNREACHABLE
    assert "127.0.0.1:1" in told.value.reason


def test_a_command_that_stalls_ends_in_time(lab: Lab) -> None:
    """A command that says nothing is left when its limit is over."""
    key = lab.keygen("host")
    host = lab.host(lab.serve(key=key), host_keys=(lab.public(key),))
    with lab.connector().connect(host) as connection, pytest.raises(HostProblem) as told:
        connection.run("sleep 30", limit_s=0.5)
    assert told.value.kind is Kind.TIMEOUT


def test_a_connection_dropped_in_mid_command_is_no_success(lab: Lab) -> None:
    """A connection that breaks while a command runs is a dropped connection, whatever had been said until then."""
    key = lab.keygen("host")
    host = lab.host(lab.serve(key=key), host_keys=(lab.public(key),))
    # The command ends the sshd process that serves it, which is what a crash of the machine looks like from here.
    with lab.connector().connect(host) as connection, pytest.raises(HostProblem) as told:
        connection.run("echo begun; kill -9 $PPID; sleep 1; echo ended")
    assert told.value.kind is Kind.DROPPED


def test_output_is_bounded(lab: Lab) -> None:
    """A command that floods costs little memory: the end of its output is kept, the rest is counted."""
    key = lab.keygen("host")
    host = lab.host(lab.serve(key=key), host_keys=(lab.public(key),))
    with lab.connector().connect(host) as connection:
        answer = connection.run("head -c 20000000 /dev/zero; echo the-end")
    assert answer.output.endswith(b"the-end\n")
    assert len(answer.output) <= 2 * KEPT_BYTES
    assert answer.dropped_bytes + len(answer.output) == 20_000_008


def test_a_server_with_weak_algorithms_only_is_refused(lab: Lab) -> None:
    """A server that offers nothing but SHA-1 and CBC is told apart from one that is down."""
    key = lab.keygen("host")
    host = lab.host(lab.serve(key=key, more="Ciphers aes128-cbc\nMACs hmac-sha1\n"), host_keys=(lab.public(key),))
    with pytest.raises(HostProblem, match="agree on no algorithm"), lab.connector().connect(host):
        pass
