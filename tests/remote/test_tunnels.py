"""Tunnels of the clouds as proxy commands of real SSH connections. Stand-ins of the clouds' programs check their arguments against the
documented ones and forward bytes to a real sshd."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuinfra.errors import UsageError
from gpuinfra.inventory import Node
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import HostProblem, Kind
from gpuinfra.remote.tunnels import hosts_of

from .servers import Lab, needed

pytestmark = needed()
RELAY = """
import os, socket, sys, threading
def relay(port, read, write):
    s = socket.create_connection(("127.0.0.1", port))
    def up():
        while d := os.read(read, 65536): s.sendall(d)
        s.shutdown(1)
    threading.Thread(target=up, daemon=True).start()
    while d := s.recv(65536): os.write(write, d)
"""
STDIO = """
expected = {expected!r}
if sys.argv[1:] != expected:
    sys.exit("asked for " + repr(sys.argv[1:]))
relay({port}, 0, 1)
"""
LISTENING = """
words = sys.argv[1:]
fixed, port = words[:-1], int(words[-1])
if fixed != {expected!r}:
    sys.exit("asked for " + repr(words))
listener = socket.create_server(("127.0.0.1", port))
print("Tunnel is ready, connect on port", port, flush=True)
connection = listener.accept()[0]
relay({port}, connection.fileno(), connection.fileno())
connection.close()
"""
Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Add a stand-in of a cloud's program to PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def put(name: str, text: str, **values: object) -> None:
        file = folder / name
        file.write_text(f"#!{sys.executable}\n" + RELAY + text.format(**values))
        file.chmod(0o755)

    return put


def of(lab: Lab, host: Host, key: Path) -> Host:
    """The same host with the user of this lab and a host key of the handover."""
    more = {"user": lab.user, "identity": (lab.key,), "host_keys": (lab.public(key),)}
    return Host(**{**host.__dict__, **more})


@pytest.mark.parametrize(
    ("cloud", "program", "expected"),
    [
        ("aws", "aws", "ssm start-session --target i-00000000000000001 --document-name AWS-StartSSHSession --parameters portNumber=22 --region somewhere-1"),
        ("gcp", "gcloud", "compute start-iap-tunnel train-gpu-0 22 --listen-on-stdin --verbosity=warning --zone a-1 --project p"),
    ],
)  # fmt: skip
def test_nodes_of_a_stack_are_reached_through_the_tunnel_of_their_cloud(
    lab: Lab, play: Play, cloud: str, program: str, expected: str
) -> None:
    """The cloud's program gets the documented arguments, and the host key of the handover is verified inside the tunnel."""
    key, other = lab.keygen("host"), lab.keygen("other")
    play(program, STDIO, expected=expected.split(), port=lab.serve(key=key))
    resource = "projects/p/zones/a-1/instances/train-gpu-0" if cloud == "gcp" else ""
    node = Node(name="gpu-1", id="i-00000000000000001", zone="elsewhere", pool="gpu", resource=resource)
    found = hosts_of([node], cloud=cloud, region="somewhere-1", direct=False, user=lab.user).hosts[0]
    with lab.connector().connect(of(lab, found, key)) as connection:
        assert connection.run("echo through").output == b"through\n"
    with pytest.raises(HostProblem) as error, lab.connector().connect(of(lab, found, other)):
        pass
    assert error.value.kind is Kind.HOST_KEY_CHANGED


TARGET = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/gpu/virtualMachines/0"
AZ = ["network", "bastion", "tunnel", "--name", "door", "--resource-group", "g", "--target-resource-id", TARGET]
AZ += ["--resource-port", "22", "--port"]


def test_nodes_of_an_azure_stack_are_reached_through_its_bastion(lab: Lab, play: Play) -> None:
    """The Bastion is read from the stack's state, the resource ID of the node from the handover."""
    key = lab.keygen("host")
    group = TARGET.partition("/providers/")[0]
    expected = [*AZ[:-2], "22", "--port"]
    play("az", LISTENING, expected=expected, port=lab.serve(key=key))
    door = {"type": "azure-native:network:BastionHost", "id": f"{group}/providers/Microsoft.Network/bastionHosts/door"}
    resources = [{"type": "azure-native:network:VirtualNetwork", "id": "x"}, door]
    node = Node(name="gpu-1", id="00000000-0000-4000-8000-000000000001", resource=TARGET, pool="gpu")
    host = hosts_of([node], cloud="azure", region="r", direct=False, user="u", resources=resources).hosts[0]
    assert "--subscription" in host.proxy_words()
    subscription = TARGET.split("/")[2]
    words = [w for w in host.proxy_words() if w not in ("--subscription", subscription)]
    with lab.connector().connect(of(lab, Host(**{**host.__dict__, "proxy_command": tuple(words)}), key)) as connection:
        assert connection.run("echo through").output == b"through\n"
    with pytest.raises(UsageError, match="has no Bastion"):
        hosts_of([node], cloud="azure", region="r", direct=False, user="u")


def behind_bastion(lab: Lab, key: Path) -> Host:
    """A node behind Azure Bastion."""
    words = (
        f"{shlex.quote(sys.executable)} -m gpuinfra.remote.bastion --name door --resource-group g --target {TARGET} %p"
    )
    return lab.host(22, "gpu-1", "10.0.0.9", proxy_command=tuple(shlex.split(words)), host_keys=(lab.public(key),))


def test_azure_bastion_is_a_proxy_command(lab: Lab, play: Play) -> None:
    """The tunnel that `az` opens on a port is relayed to standard input and output, and ends with the connection."""
    key = lab.keygen("host")
    play("az", LISTENING, expected=AZ, port=lab.serve(key=key))
    with lab.connector().connect(behind_bastion(lab, key)) as connection:
        assert connection.run("head -c 3000000 /dev/zero | wc -c").output.strip() == b"3000000"
        assert connection.run("cat", b"x" * 300_000).output == b"x" * 300_000


def test_error_of_az_is_quoted(lab: Lab, play: Play) -> None:
    """The error quotes `az`, or states that no tunnel opened."""
    key = lab.keygen("host")
    play("az", "sys.exit('(ResourceNotFound) no such Bastion')")
    with pytest.raises(HostProblem) as error, lab.connector().connect(behind_bastion(lab, key)):
        pass
    assert "did not open a tunnel" in error.value.reason or "ResourceNotFound" in error.value.reason
    assert error.value.kind is Kind.UNREACHABLE


def test_missing_az_is_reported_with_a_hint(lab: Lab, play: Play) -> None:
    """Without `az`, the error names the program to install."""
    play("nothing", "")
    with (
        pytest.raises(HostProblem, match="install the Azure CLI"),
        lab.connector().connect(behind_bastion(lab, lab.keygen("host"))),
    ):
        pass
