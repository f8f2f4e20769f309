from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpuinfra.base.errors import UsageError
from gpuinfra.inventory import Node
from gpuinfra.remote.hosts import read_hosts
from gpuinfra.remote.tunnels import hosts_of

GOOD = """
stack: aws-p4d
known_hosts: keys/known_hosts
defaults: {user: ubuntu, port: 2222, identity: id, pool: gpu}
jumps:
  bastion: {address: bastion.example.com, host_key: ssh-ed25519 AAAA}
hosts:
  a: 10.0.0.1
  b: {address: 10.0.0.2, jump: bastion, user: root}
  c: {proxy_command: 'tunnel --to %n --port %p "two words" 100%%'}
"""


def write(tmp_path: Path, text: str, name: str = "hosts.yaml") -> Path:
    """A hosts file."""
    file = tmp_path / name
    file.write_text(text)
    return file


def test_hosts_file_sets_the_route_to_each_host(tmp_path: Path) -> None:
    """Defaults apply to hosts, their login fields also to jump hosts; relative paths start at the folder of the file."""
    hosts = read_hosts(write(tmp_path, GOOD))
    a, b, c = hosts.hosts
    assert (a.name, a.where, a.user, a.sudo, a.pool) == ("a", "10.0.0.1:2222", "ubuntu", True, "gpu")
    assert a.identity == (tmp_path / "id",)
    assert (b.jump, b.user, b.sudo) == ("bastion", "root", False)
    assert hosts.jumps["bastion"].where == "bastion.example.com:22"
    assert hosts.jumps["bastion"].user == "ubuntu"
    assert c.proxy_words() == ["tunnel", "--to", "c", "--port", "2222", "two words", "100%"]
    assert hosts.known_hosts == (tmp_path / "keys/known_hosts",)
    assert hosts.stack == "aws-p4d"


def test_proxy_command_tokens_cannot_inject_words(tmp_path: Path) -> None:
    """A proxy command runs without a shell, and the value of a token stays inside its word."""
    hosts = read_hosts(write(tmp_path, "hosts: {a: {proxy_command: 'sh -c %n'}}"))
    assert hosts.hosts[0].proxy_words() == ["sh", "-c", "a"]
    with pytest.raises(UsageError, match="is not a valid name"):
        read_hosts(write(tmp_path, "hosts: {'a; rm -rf /': {}}"))
    with pytest.raises(UsageError, match="address is '-oProxyCommand=x'"):
        read_hosts(write(tmp_path, "hosts: {a: {address: '-oProxyCommand=x'}}"))


def test_hosts_file_may_be_json_and_a_list_of_addresses(tmp_path: Path) -> None:
    """The shortest hosts file is a list of addresses."""
    hosts = read_hosts(write(tmp_path, json.dumps({"hosts": ["n1", "n2"]}), "hosts.json"))
    assert [(host.name, host.where, host.user) for host in hosts.hosts] == [
        ("n1", "n1:22", "root"),
        ("n2", "n2:22", "root"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hosts: {a: {adress: x}}", "hosts.a.adress is not a known field; did you mean address?"),
        ("hosts: {a: {port: 0}}", "hosts.a.port is 0; allowed: 1 to 65535"),
        ("hosts: {a: {port: true}}", "hosts.a.port is True"),
        ("hosts: {a: {user: 'a b'}}", "hosts.a.user is 'a b'"),
        ("hosts: {a: {sudo: perhaps}}", "hosts.a.sudo is 'perhaps'"),
        ("hosts: {a: {jump: b}}", "a.jump is 'b', which is neither in jumps nor in hosts"),
        ("hosts: {a: {jump: b}, b: {jump: a}}", "form a cycle: a -> b"),
        ("hosts: {a: {jump: b, proxy_command: x}, b: {}}", "has both jump and proxy_command"),
        ("hosts: {a: {proxy_command: ''}}", "proxy_command is empty"),
        ('hosts: {a: {proxy_command: "\'"}}', "cannot be split into words"),
        ("hosts: {a: {identity: [1]}}", "hosts.a.identity is [1]"),
        ("hosts: {a: {root: here}}", "root is 'here'; allowed: an absolute path"),
        ("hosts: {a: 5}", "hosts.a is 5; allowed: a mapping"),
        ("hosts: [a, a]", "lists a more than once"),
        ("hosts: [[a]]", "items that are not names"),
        ("hosts: {}", "hosts is empty"),
        ("host: {a: {}}", "host is not a known field; did you mean hosts?"),
        ("jumps: {a: {}}\nhosts: {a: {}}", "share a name"),
        ("known_hosts: {a: b}\nhosts: {a: {}}", "known_hosts is"),
        ("- a", "is not a mapping"),
        ("hosts: [", "is not yaml"),
    ],
)
def test_error_in_a_hosts_file_names_the_field(tmp_path: Path, text: str, message: str) -> None:
    """A message names the field, its value and what is allowed."""
    with pytest.raises(UsageError) as error:
        read_hosts(write(tmp_path, text))
    assert message in str(error.value)


def test_all_errors_of_a_hosts_file_are_reported_together(tmp_path: Path) -> None:
    """One error lists every mistake in the file."""
    with pytest.raises(UsageError) as error:
        read_hosts(write(tmp_path, "hosts: {a: {port: 0}, b: {usr: x}, c: {jump: zz}}"))
    assert len(str(error.value).splitlines()) == 4


def test_pool_selects_its_hosts(tmp_path: Path) -> None:
    """--pool selects the hosts of a pool; a pool without hosts is a usage error that lists the pools."""
    hosts = read_hosts(write(tmp_path, "hosts: {a: {pool: gpu}, b: {pool: cpu}}"))
    assert [host.name for host in hosts.of_pool("cpu").hosts] == ["b"]
    with pytest.raises(UsageError, match="pools of the hosts: cpu, gpu"):
        hosts.of_pool("tpu")


def test_stack_outputs_become_hosts_with_the_host_keys_of_the_handover(tmp_path: Path) -> None:
    """Nodes get the login of their cloud, and the host keys from their evidence."""
    node = Node(name="gpu-1", id="i-00000000000000001", address="10.0.0.9", pool="gpu", host_keys=("ssh-ed25519 A",))
    (host,) = hosts_of([node], cloud="aws", region="us-east-1", direct=False, folder=tmp_path).hosts
    assert host.title == f"{node.name} ({node.id})"
    assert "gpuinfra.clouds.aws.instance_connect" in host.proxy_words()
    assert (host.host_keys, host.user, host.sudo, host.pool) == (("ssh-ed25519 A",), "ubuntu", True, "gpu")
    folder = tmp_path / "twins"
    folder.mkdir()
    twins = hosts_of([node, replace(node, id="i-2")], cloud="aws", region="r", direct=False, folder=folder).hosts
    assert [host.title for host in twins] == [node.id, "i-2"]
    with pytest.raises(UsageError, match="deploy the stack first"):
        hosts_of([], cloud="aws", region="r", direct=False, folder=tmp_path)


def test_hosts_file_example_in_the_docs_is_valid(tmp_path: Path) -> None:
    """The example in docs/guides/remote.md sets what its comments state."""
    text = (Path(__file__).parents[2] / "docs" / "guides" / "remote.md").read_text()
    hosts = read_hosts(write(tmp_path, text.split("```yaml\n")[1].split("```")[0]))
    assert [(host.name, host.jump, host.sudo) for host in hosts.hosts] == [
        ("gpu-1", "bastion", True),
        ("gpu-2", "bastion", True),
        ("gpu-3", None, True),
    ]
    assert hosts.hosts[2].proxy_words()[-1] == "portNumber=22"
