"""Reads hosts and their connection settings from a hosts file.

`tunnels.py` creates the same `Host` objects for the nodes of a deployed stack. `known.py` verifies host keys, and `connect.py` connects.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import UsageError, reason_of
from gpuinfra.base.json_text import parsed
from gpuinfra.base.words import titled

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ADDRESS = re.compile(r"[A-Za-z0-9:][A-Za-z0-9:._%-]{0,254}")
_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,31}\$?")


@dataclass(frozen=True, kw_only=True)
class Host:
    """One machine and how to reach it."""

    name: str
    address: str
    private_address: str = ""
    """Address for connections between hosts, if it differs from `address`."""
    port: int = 22
    user: str = "root"
    jump: str | None = None
    """Name of the jump host."""
    proxy_command: tuple[str, ...] | None = None
    """Arguments for a proxy command, whose standard input and output carry the connection. Tokens: %n is the name, %h the address, %p the port, %r the user."""
    identity: tuple[Path, ...] = ()
    """Private keys. A certificate next to a key (KEY-cert.pub) is used together with the key. Default: the keys in the SSH agent and in ~/.ssh."""
    host_keys: tuple[str, ...] = ()
    """Trusted host keys, `ssh-ed25519 AAAA...`, from the handover or the hosts file. Default: the known_hosts files."""
    pool: str | None = None
    label: str = ""
    """Name of a node in its stack, such as `gpu-1`. Empty for hosts from a hosts file."""
    verified: bool = True
    """Whether a job can use the host. False for a node that the handover did not verify."""
    sudo: bool = False
    root: Path = Path("/")
    """Root of the machine's file system. Set a different folder to prepare a mounted image."""

    @property
    def title(self) -> str:
        """Name for messages: `gpu-1 (i-0123...)`, or only the name of a host without a label."""
        return titled(self.label, self.name)

    @property
    def where(self) -> str:
        """Address and port, for use in messages."""
        return f"{self.address}:{self.port}"

    def proxy_words(self) -> list[str]:
        """Return the proxy command with its tokens replaced. It runs without a shell, so names cannot inject commands."""
        tokens = {"%h": self.address, "%n": self.name, "%p": str(self.port), "%r": self.user, "%%": "%"}
        return [re.sub(r"%[hnpr%]", lambda found: tokens[found[0]], word) for word in self.proxy_command or ()]


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """The hosts on which one command operates."""

    hosts: tuple[Host, ...]
    """The target hosts."""
    jumps: dict[str, Host] = field(default_factory=dict)
    """Jump hosts and target hosts, by name."""
    known_hosts: tuple[Path, ...] = ()
    stack: str | None = None
    pool: str | None = None
    key_lifetime: str = ""
    """How long the cloud accepts the identity of the hosts, such as `3h`. Empty if it does not expire."""

    def of_pool(self, pool: str | None) -> Hosts:
        """Return the hosts in one pool."""
        if pool is None:
            return self
        chosen = tuple(host for host in self.hosts if (host.pool or self.pool or pool) == pool)
        if not chosen:
            pools = sorted({host.pool for host in self.hosts if host.pool})
            raise UsageError(
                f"pool is {pool!r}; pools of the hosts: {', '.join(pools) or 'none'}; specify one of these pools"
            )
        return replace(self, hosts=chosen)


def read_hosts(path: Path) -> Hosts:
    """Read a hosts file in YAML or JSON. Reports all errors in the file together."""
    content = _load(path)
    reader = _Reader(path)
    reader.only(content, "", {"stack", "pool", "known_hosts", "defaults", "hosts", "jumps"})
    defaults = reader.mapping(content.get("defaults", {}), "defaults")
    hosts = reader.section(content.get("hosts"), "hosts", defaults)
    # Jump hosts use only the login fields of the node defaults.
    login = {name: defaults[name] for name in ("user", "identity") if name in defaults}
    jumps = reader.section(content.get("jumps", {}), "jumps", login)
    if not hosts and not reader.wrong:
        reader.wrong.append("hosts is empty; add at least one host")
    by_name = {host.name: host for host in (*jumps, *hosts)}
    if len(by_name) < len(hosts) + len(jumps):
        reader.wrong.append("jumps and hosts share a name; use a different name for each machine")
    for host in by_name.values():
        reader.route(host, by_name)
    declared = content.get("known_hosts", [])
    files = [declared] if isinstance(declared, str) else declared
    if not isinstance(files, list) or not all(isinstance(one, str) for one in files):
        reader.wrong.append(f"known_hosts is {declared!r}; allowed: a path or a list of paths")
        files = []
    if reader.wrong:
        raise UsageError(f"hosts file {path} cannot be used:\n" + "\n".join(f"  {line}" for line in reader.wrong))
    return Hosts(
        hosts=tuple(hosts),
        jumps=by_name,
        known_hosts=tuple(_path(one, path.parent) for one in files),
        stack=reader.text(content.get("stack")),
        pool=reader.text(content.get("pool")),
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"hosts file {path} cannot be read: {reason_of(error)}; docs/guides/remote.md has an example"
        ) from None
    try:
        if path.suffix == ".json":
            content = parsed(text)
        else:
            from ruamel.yaml import YAML
            from ruamel.yaml.error import YAMLError

            try:
                content = YAML(typ="safe", pure=True).load(text)
            except YAMLError as error:
                raise ValueError(" ".join(str(error).split())) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"hosts file {path} is not {path.suffix.lstrip('.') or 'YAML'}: {error}") from None
    if not isinstance(content, dict):
        raise UsageError(
            f"hosts file {path} is not a mapping; it requires at least `hosts:`; docs/guides/remote.md has an example"
        )
    return content


def _path(text: str, base: Path) -> Path:
    path = Path(text).expanduser()
    return path if path.is_absolute() else base / path


class _Reader:
    """Converts plain values into hosts and collects all errors."""

    fields = frozenset(
        {"address", "port", "user", "jump", "proxy_command", "identity", "host_key", "pool", "sudo", "root"}
    )

    def __init__(self, path: Path) -> None:
        self.base = path.parent
        self.wrong: list[str] = []

    def mapping(self, value: object, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.wrong.append(f"{where} is {value!r}; allowed: a mapping")
            return {}
        return value

    def only(self, given: Mapping[Any, Any], where: str, allowed: Sequence[str] | set[str] | frozenset[str]) -> None:
        for name in given:
            if name not in allowed:
                near = get_close_matches(str(name), list(allowed), n=1)
                hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(sorted(allowed))}"
                self.wrong.append(f"{where + '.' if where else ''}{name} is not a known field; {hint}")

    def section(self, value: object, where: str, defaults: Mapping[str, Any]) -> list[Host]:
        """Convert a mapping from names to fields, or a list of names or addresses, to hosts."""
        if value is None:
            return []
        if isinstance(value, list):
            if not all(isinstance(one, str) for one in value):
                self.wrong.append(
                    f"{where} is a list with items that are not names; allowed: a list of names, or a mapping of names to fields"
                )
                return []
            doubles = sorted({one for one in value if value.count(one) > 1}) if len(set(value)) < len(value) else []
            if doubles:
                self.wrong.append(f"{where} lists {', '.join(doubles[:5])} more than once")
            value = {str(one): {} for one in value}
        self.only(defaults, "defaults", self.fields - {"address", "host_key"})
        return [
            made
            for name, given in self.mapping(value, where).items()
            if (made := self.host(str(name), given, f"{where}.{name}", defaults)) is not None
        ]

    def host(self, name: str, given: object, where: str, defaults: Mapping[str, Any]) -> Host | None:
        given = {} if given is None else {"address": given} if isinstance(given, str) else given
        fields = {**defaults, **self.mapping(given, where)}
        before = len(self.wrong)
        if not _NAME.fullmatch(name):
            self.wrong.append(f"{where} is not a valid name; allowed: letters, digits, dots, hyphens and underscores")
        self.only(fields, where, self.fields)
        address, port, user = fields.get("address", name), fields.get("port", 22), fields.get("user", "root")
        if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
            self.wrong.append(f"{where}.address is {address!r}; allowed: a host name or an IP address")
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            self.wrong.append(f"{where}.port is {port!r}; allowed: 1 to 65535")
        if not isinstance(user, str) or not _USER.fullmatch(user):
            self.wrong.append(f"{where}.user is {user!r}; allowed: a user name of the machine")
        sudo = fields.get("sudo", user != "root")
        if not isinstance(sudo, bool):
            self.wrong.append(f"{where}.sudo is {sudo!r}; allowed: true or false")
        jump, proxy = fields.get("jump"), fields.get("proxy_command")
        if jump and proxy:
            self.wrong.append(f"{where} has both jump and proxy_command; remove one")
        words = self.words(proxy, f"{where}.proxy_command")
        lists = {key: self.texts(fields.get(key), f"{where}.{key}") for key in ("identity", "host_key")}
        root = fields.get("root", "/")
        if not isinstance(root, str) or not root.startswith("/"):
            self.wrong.append(f"{where}.root is {root!r}; allowed: an absolute path on the machine")
        if len(self.wrong) > before:
            return None
        return Host(
            name=name,
            address=str(address),
            port=int(port),
            user=str(user),
            jump=self.text(jump),
            proxy_command=words,
            identity=tuple(_path(one, self.base) for one in lists["identity"]),
            host_keys=lists["host_key"],
            pool=self.text(fields.get("pool")),
            sudo=bool(sudo),
            root=Path(root),
        )

    def words(self, value: object, where: str) -> tuple[str, ...] | None:
        if value is None:
            return None
        try:
            words = tuple(shlex.split(value)) if isinstance(value, str) else self.texts(value, where)
        except ValueError as error:
            self.wrong.append(f"{where} cannot be split into words: {error}")
            return None
        if not words:
            self.wrong.append(f"{where} is empty; remove it or set a command")
        return words or None

    def texts(self, value: object, where: str) -> tuple[str, ...]:
        if value is None:
            return ()
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(one, str) and one for one in values):
            self.wrong.append(f"{where} is {value!r}; allowed: a string or a list of strings")
            return ()
        return tuple(values)

    @staticmethod
    def text(value: object) -> str | None:
        return str(value) if value else None

    def route(self, host: Host, by_name: Mapping[str, Host]) -> None:
        """Check that the chain of jump hosts terminates."""
        seen, at = [host.name], host
        while at.jump is not None:
            if at.jump not in by_name:
                self.wrong.append(
                    f"{at.name}.jump is {at.jump!r}, which is neither in jumps nor in hosts; add it to jumps"
                )
                return
            if at.jump in seen:
                self.wrong.append(f"the jump hosts of {host.title} form a cycle: {' -> '.join([*seen, at.jump])}")
                return
            seen.append(at.jump)
            at = by_name[at.jump]
