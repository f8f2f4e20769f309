from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuinfra.errors import UsageError
from gpuinfra.inventory import Node
from gpuinfra.remote.hosts import read_hosts
from gpuinfra.remote.tunnels import hosts_of

GOOD = """
stack: aws-p4d
known_hosts: keys/known_hosts
defaults: {user: ubuntu, port: 2222, identity: id, pool: gpu}
jumps:
  door: {address: door.example.com, host_key: ssh-ed25519 AAAA}
hosts:
  a: 10.0.0.1
  b: {address: 10.0.0.2, jump: door, user: root}
  c: {proxy_command: 'tunnel --to %n --port %p "two words" 100%%'}
"""


def write(tmp_path: Path, text: str, name: str = "hosts.yaml") -> Path:
    """A hosts file."""
    file = tmp_path / name
    file.write_text(text)
    return file


def test_a_hosts_file_says_how_each_host_is_reached(tmp_path: Path) -> None:
    """Defaults apply to hosts and only the login to jump hosts; relative paths are beside the file."""
    hosts = read_hosts(write(tmp_path, GOOD))
    a, b, c = hosts.hosts
    assert (a.name, a.where, a.user, a.sudo, a.pool) == ("a", "10.0.0.1:2222", "ubuntu", True, "gpu")
    assert a.identity == (tmp_path / "id",)
    assert (b.jump, b.user, b.sudo) == ("door", "root", False)
    assert hosts.jumps["door"].where == "door.example.com:22"
    assert hosts.jumps["door"].user == "ubuntu"
    assert c.proxy_words() == ["tunnel", "--to", "c", "--port", "2222", "two words", "100%"]
    assert hosts.known_hosts == (tmp_path / "keys/known_hosts",)
    assert hosts.stack == "aws-p4d"


def test_names_in_tokens_stay_one_word(tmp_path: Path) -> None:
    """No shell reads a proxy command, and what a token stands for cannot become another word of it."""
    hosts = read_hosts(write(tmp_path, "hosts: {a: {proxy_command: 'sh -c %n'}}"))
    assert hosts.hosts[0].proxy_words() == ["sh", "-c", "a"]
    with pytest.raises(UsageError, match="a name is letters"):
        read_hosts(write(tmp_path, "hosts: {'a; rm -rf /': {}}"))
    with pytest.raises(UsageError, match="address is '-oProxyCommand=x'"):
        read_hosts(write(tmp_path, "hosts: {a: {address: '-oProxyCommand=x'}}"))


def test_json_and_a_list_of_names_are_enough(tmp_path: Path) -> None:
    """The shortest file is a list of addresses."""
    hosts = read_hosts(write(tmp_path, json.dumps({"hosts": ["n1", "n2"]}), "hosts.json"))
    assert [(host.name, host.where, host.user) for host in hosts.hosts] == [
        ("n1", "n1:22", "root"),
        ("n2", "n2:22", "root"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hosts: {a: {adress: x}}", "hosts.a.adress is not known; did you mean address?"),
        ("hosts: {a: {port: 0}}", "hosts.a.port is 0; allowed is 1 to 65535"),
        ("hosts: {a: {port: true}}", "hosts.a.port is True"),
        ("hosts: {a: {user: 'a b'}}", "hosts.a.user is 'a b'"),
        ("hosts: {a: {sudo: perhaps}}", "hosts.a.sudo is 'perhaps'"),
        ("hosts: {a: {jump: b}}", "a goes through 'b', which is neither in jumps nor in hosts"),
        ("hosts: {a: {jump: b}, b: {jump: a}}", "goes in a circle: a -> b"),
        ("hosts: {a: {jump: b, proxy_command: x}, b: {}}", "one connection goes one way"),
        ("hosts: {a: {proxy_command: ''}}", "proxy_command is empty"),
        ('hosts: {a: {proxy_command: "\'"}}', "cannot be split into words"),
        ("hosts: {a: {identity: [1]}}", "hosts.a.identity is [1]"),
        ("hosts: {a: {root: here}}", "root is 'here'; allowed is an absolute path"),
        ("hosts: {a: 5}", "hosts.a is 5; allowed is a mapping"),
        ("hosts: [a, a]", "lists a more than once"),
        ("hosts: [[a]]", "holds more than names"),
        ("hosts: {}", "hosts is empty"),
        ("host: {a: {}}", "host is not known; did you mean hosts?"),
        ("jumps: {a: {}}\nhosts: {a: {}}", "share a name"),
        ("known_hosts: {a: b}\nhosts: {a: {}}", "known_hosts is"),
        ("- a", "holds no mapping"),
        ("hosts: [", "is not yaml"),
    ],
)
def test_a_mistake_in_a_hosts_file_is_told_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    """Bad input is one clear message: where, what was given, what is allowed."""
    with pytest.raises(UsageError) as told:
        read_hosts(write(tmp_path, text))
    assert said in str(told.value)


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    """A person mends a file once."""
    with pytest.raises(UsageError) as told:
        read_hosts(write(tmp_path, "hosts: {a: {port: 0}, b: {usr: x}, c: {jump: zz}}"))
    assert len(str(told.value).splitlines()) == 4


def test_only_a_pools_hosts_are_chosen(tmp_path: Path) -> None:
    """--pool leaves the others out, and a pool without hosts is a wrong use that names the pools."""
    hosts = read_hosts(write(tmp_path, "hosts: {a: {pool: gpu}, b: {pool: cpu}}"))
    assert [host.name for host in hosts.of_pool("cpu").hosts] == ["b"]
    with pytest.raises(UsageError, match="hosts are of cpu, gpu"):
        hosts.of_pool("tpu")


def test_a_stacks_outputs_give_hosts_with_the_keys_of_the_handover() -> None:
    """Nodes are reached through the cloud's tunnel, or directly, with the host keys that their evidence carried."""
    node = Node(name="gpu-1", id="i-00000000000000001", address="10.0.0.9", pool="gpu", host_keys=("ssh-ed25519 A",))
    tunnelled = hosts_of([node], cloud="aws", region="us-east-1", direct=False, user="ubuntu").hosts
    assert len(tunnelled) == 1
    words = tunnelled[0].proxy_words()
    assert words[:5] == ["aws", "ssm", "start-session", "--target", "i-00000000000000001"]
    assert words[-3:] == ["portNumber=22", "--region", "us-east-1"]
    assert (tunnelled[0].host_keys, tunnelled[0].sudo, tunnelled[0].pool) == (("ssh-ed25519 A",), True, "gpu")
    direct = hosts_of([node], cloud="aws", region="us-east-1", direct=True, user="ubuntu").hosts
    assert (direct[0].where, direct[0].proxy_command) == ("10.0.0.9:22", None)
    with pytest.raises(UsageError, match="made no Bastion"):
        hosts_of([node], cloud="azure", region="r", direct=False, user="ubuntu")
    with pytest.raises(UsageError, match="deploy it first"):
        hosts_of([], cloud="aws", region="r", direct=False, user="ubuntu")


def test_the_hosts_file_of_the_documentation_is_read(tmp_path: Path) -> None:
    """The example in docs/remote.md says what the text around it says."""
    text = (Path(__file__).parents[2] / "docs" / "remote.md").read_text()
    hosts = read_hosts(write(tmp_path, text.split("```yaml\n")[1].split("```")[0]))
    assert [(host.name, host.jump, host.sudo) for host in hosts.hosts] == [
        ("gpu-1", "door", True),
        ("gpu-2", "door", True),
        ("gpu-3", None, True),
    ]
    assert hosts.hosts[2].proxy_words()[-1] == "portNumber=22"
