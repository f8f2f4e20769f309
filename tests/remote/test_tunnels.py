"""Tunnels of the clouds as proxy commands of real SSH connections. Stand-ins of the clouds' programs check their arguments against the
documented ones and forward bytes to a real sshd."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paramiko
import pytest

from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.clouds.azure.tunnel import placeholder_key
from gpuinfra.handover.wire import TYPE
from gpuinfra.inventory import Node
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import HostProblem, ProblemKind
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
    more = {
        "address": host.address,
        "sudo": False,
        "user": lab.user,
        "identity": (lab.key,),
        "host_keys": (lab.public(key),),
    }
    return Host(**{**host.__dict__, **more})


SENT = """
import pathlib
expected = {expected!r}
log = pathlib.Path({log!r})
if sys.argv[1:3] == ["ec2-instance-connect", "send-ssh-public-key"]:
    file = next(word for word in sys.argv if word.startswith("file://")).removeprefix("file://")
    log.write_text(pathlib.Path(file).read_text())
    words = [word if not word.startswith("file://") else "file://KEY" for word in sys.argv[1:]]
    if words != {send!r}:
        sys.exit("asked for " + repr(words))
elif sys.argv[1:] == expected:
    relay({port}, 0, 1)
else:
    sys.exit("asked for " + repr(sys.argv[1:]))
"""
GCLOUD = """
import pathlib
if sys.argv[1:5] == ["compute", "os-login", "ssh-keys", "add"]:
    file = sys.argv[5].removeprefix("--key-file=")
    pathlib.Path({log!r}).write_text(pathlib.Path(file).read_text())
    if sys.argv[6:] != ["--ttl=3h", "--project", "p", "--format=json", "--quiet"]:
        sys.exit("asked for " + repr(sys.argv[6:]))
    print({profile!r})
elif sys.argv[1:] == {expected!r}:
    relay({port}, 0, 1)
else:
    sys.exit("asked for " + repr(sys.argv[1:]))
"""
PROFILE = """{
  "loginProfile": {
    "name": "107615736039570311862",
    "posixAccounts": [
      {"accountId": "other", "primary": false, "username": "someone_example_com"},
      {"accountId": "p", "gid": "2566290116", "homeDirectory": "/home/sa_107615736039570311862", "primary": true,
       "operatingSystemType": "LINUX", "uid": "2566290116", "username": "sa_107615736039570311862"}
    ]
  }
}"""
"""The shape that gcloud printed for a service account (a public deployment guide, output of 2023-11-19)."""


def test_aws_login_sends_a_new_key_and_opens_a_session(lab: Lab, play: Play, tmp_path: Path) -> None:
    """EC2 Instance Connect gets the public key of this command for the user `ubuntu`, before each session opens."""
    key, other, log = lab.keygen("host"), lab.keygen("other"), tmp_path / "sent"
    session = "ssm start-session --target i-00000000000000001 --document-name AWS-StartSSHSession --parameters portNumber=22 --region somewhere-1"
    send = (
        "ec2-instance-connect send-ssh-public-key --instance-id i-00000000000000001 --instance-os-user ubuntu --ssh-public-key "
        "file://KEY --region somewhere-1"
    )
    play("aws", SENT, expected=session.split(), send=send.split(), log=str(log), port=lab.serve(key=key))
    node = Node(name="gpu-1", id="i-00000000000000001", zone="elsewhere", pool="gpu", address="10.0.0.9")
    found = hosts_of([node], cloud="aws", region="somewhere-1", direct=False, folder=tmp_path).hosts[0]
    assert (found.user, found.sudo) == ("ubuntu", True)
    with lab.connector().connect(of(lab, found, key)) as connection:
        assert connection.run("echo through").output == b"through\n"
    private = found.identity[0]
    assert log.read_text() == private.with_suffix(".pub").read_text()
    assert private.stat().st_mode & 0o777 == 0o600
    assert paramiko.PKey.from_path(private).get_base64() == log.read_text().split()[1]
    with pytest.raises(HostProblem) as error, lab.connector().connect(of(lab, found, other)):
        pass
    assert error.value.kind is ProblemKind.HOST_KEY_CHANGED
    (tmp_path / "direct").mkdir()
    direct = hosts_of([node], cloud="aws", region="r", direct=True, folder=tmp_path / "direct").hosts[0]
    assert (direct.address, "--address") == ("10.0.0.9", direct.proxy_words()[-3])


def test_refusal_of_the_key_is_quoted(lab: Lab, play: Play, tmp_path: Path) -> None:
    """Without the permission to send a key, the error quotes `aws`."""
    play("aws", "sys.exit('An error occurred (AccessDeniedException) when calling the SendSSHPublicKey operation')")
    node = Node(name="gpu-1", id="i-00000000000000001", pool="gpu")
    found = hosts_of([node], cloud="aws", region="r", direct=False, folder=tmp_path).hosts[0]
    with pytest.raises(HostProblem, match="AccessDeniedException"), lab.connector().connect(found):
        pass


def test_google_login_is_the_os_login_account(lab: Lab, play: Play, tmp_path: Path) -> None:
    """OS Login gets the public key of this command in the project of the nodes, and its primary POSIX account is the user. IAP carries the connection."""
    key, log = lab.keygen("host"), tmp_path / "sent"
    expected = "compute start-iap-tunnel train-gpu-0 22 --listen-on-stdin --verbosity=warning --zone a-1 --project p"
    play("gcloud", GCLOUD, expected=expected.split(), log=str(log), port=lab.serve(key=key), profile=PROFILE)
    node = Node(
        name="gpu-1", id="1", zone="elsewhere", pool="gpu", resource="projects/p/zones/a-1/instances/train-gpu-0"
    )
    state = [{"type": TYPE, "outputs": {"nodes": [{"instanceId": "1", "resource": node.resource}]}}]
    found = hosts_of([node], cloud="gcp", region="somewhere-1", direct=False, folder=tmp_path, resources=state).hosts[0]
    assert (found.user, found.sudo) == ("sa_107615736039570311862", True)
    assert log.read_text() == found.identity[0].with_suffix(".pub").read_text()
    with lab.connector().connect(of(lab, found, key)) as connection:
        assert connection.run("echo through").output == b"through\n"


@pytest.mark.parametrize("answer", ["", "{}", '{"loginProfile": {"posixAccounts": []}}', "[]"])
def test_profile_without_an_account_is_refused(play: Play, tmp_path: Path, answer: str) -> None:
    """A profile without a POSIX account is one error with the role that is missing."""
    play("gcloud", "print({answer!r})", answer=answer)
    with pytest.raises(DeploymentError, match="osAdminLogin"):
        hosts_of([Node(name="gpu-1", id="1")], cloud="gcp", region="r", direct=False, folder=tmp_path)


TARGET = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/gpu/virtualMachines/0"
AZ = ["network", "bastion", "tunnel", "--name", "door", "--resource-group", "g", "--target-resource-id", TARGET]
AZ += ["--resource-port", "22", "--port"]


def scale_set(*keys: str) -> dict[str, Any]:
    """A scale set in the state, as the component declares it."""
    public = [{"path": "/home/gpuinfra/.ssh/authorized_keys", "keyData": key} for key in keys]
    profile = {"adminUsername": "gpuinfra", "linuxConfiguration": {"ssh": {"publicKeys": public}}}
    inputs = {"virtualMachineProfile": {"osProfile": profile}}
    return {"type": "azure-native:compute/v20241101:VirtualMachineScaleSet", "inputs": inputs}


def test_nodes_of_an_azure_stack_are_reached_through_its_bastion(lab: Lab, play: Play) -> None:
    """The Bastion is read from the stack's state, the resource ID of the node from the handover."""
    key = lab.keygen("host")
    group = TARGET.partition("/providers/")[0]
    expected = [*AZ[:-2], "22", "--port"]
    play("az", LISTENING, expected=expected, port=lab.serve(key=key))
    door = {"type": "azure-native:network:BastionHost", "id": f"{group}/providers/Microsoft.Network/bastionHosts/door"}
    resources = [{"type": "azure-native:network:VirtualNetwork", "id": "x"}, door, scale_set(lab.public(lab.key))]
    node = Node(name="gpu-1", id="00000000-0000-4000-8000-000000000001", resource=TARGET, pool="gpu")
    host = hosts_of([node], cloud="azure", region="r", direct=False, folder=lab.folder, resources=resources).hosts[0]
    assert (host.user, host.identity) == ("gpuinfra", ())
    assert "--subscription" in host.proxy_words()
    subscription = TARGET.split("/")[2]
    words = [w for w in host.proxy_words() if w not in ("--subscription", subscription)]
    with lab.connector().connect(of(lab, Host(**{**host.__dict__, "proxy_command": tuple(words)}), key)) as connection:
        assert connection.run("echo through").output == b"through\n"
    with pytest.raises(UsageError, match="has no Bastion"):
        hosts_of([node], cloud="azure", region="r", direct=False, folder=lab.folder, resources=resources[2:])
    for keys in ([], [placeholder_key()]):
        with pytest.raises(UsageError, match=r"access\.ssh_keys"):
            hosts_of([node], cloud="azure", region="r", direct=False, folder=lab.folder, resources=[scale_set(*keys)])


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
    assert error.value.kind is ProblemKind.UNREACHABLE


def test_missing_az_is_reported_with_a_hint(lab: Lab, play: Play) -> None:
    """Without `az`, the error names the program to install."""
    play("nothing", "")
    with (
        pytest.raises(HostProblem, match="install the Azure CLI"),
        lab.connector().connect(behind_bastion(lab, lab.keygen("host"))),
    ):
        pass
