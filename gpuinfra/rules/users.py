"""Rules about the declared users of the nodes (`access.users`)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in

RSA_BITS = 2048
"""Minimum length of an RSA key. NIST SP 800-131A Rev. 2, table 2 (https://doi.org/10.6028/NIST.SP.800-131Ar2)."""
_NAMES = """
root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats nobody adm tty disk dialout
fax voice cdrom floppy tape sudo audio dip operator src shadow utmp video sasl plugdev staff users nogroup input kvm
render sgx crontab syslog messagebus uuidd tcpdump tss landscape pollinate usbmux sshd ssh lxd netdev dnsmasq polkitd
docker stunnel4 statd nvidia-persistenced
ubuntu gpuinfra admin ec2-user ec2-instance-connect ssm-user google-sudoers
"""
"""Users and groups of Ubuntu (base-passwd 3.5.52 and 3.6.3: `passwd.master` and `group.master`) and its packages, of packages that
the steps install, and of the images, agents and login services of the clouds. The `64-users` step rejects other names that exist on a node."""
_RESERVED = frozenset(_NAMES.split())
_RESERVED_PREFIX = "systemd-"


def user_names_and_ids_are_unique(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The names and the IDs of the declared users are unique."""
    names: dict[object, int] = {}
    ids: dict[object, int] = {}
    for i, user in enumerate(spec.access.users):
        for field, value, seen in (("name", user.name, names), ("uid", user.uid, ids)):
            if value in seen:
                what = f"is {value}, which is also the {field} of access.users[{seen[value]}]"
                yield error(f"access.users[{i}].{field}", what, f"use a unique {field}")
            seen.setdefault(value, i)


def user_name_is_not_reserved(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The name of a declared user is not the name of a user or group of Ubuntu, of the cloud, or of the software on the nodes."""
    for i, user in enumerate(spec.access.users):
        if user.name in _RESERVED or user.name.startswith(_RESERVED_PREFIX):
            what = f"is {user.name}, which is the name of a system user or group"
            yield error(f"access.users[{i}].name", what, "use another name")


def user_keys_are_valid(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The SSH keys of a declared user can be decoded, and RSA keys have at least 2048 bits."""
    for i, user in enumerate(spec.access.users):
        for j, key in enumerate(user.ssh_keys):
            if problem := _key_problem(key):
                hint = "copy the complete line of the .pub file, or create a key with ssh-keygen -t ed25519"
                yield error(f"access.users[{i}].ssh_keys[{j}]", problem, hint)


def user_key_identifies_one_user(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Each SSH key is listed once, so that the key in a log identifies one user."""
    seen: dict[str, str] = {}
    for i, user in enumerate(spec.access.users):
        for j, key in enumerate(user.ssh_keys):
            path, content = f"access.users[{i}].ssh_keys[{j}]", key.split(" ")[1]
            if content in seen:
                yield error(path, f"is also {seen[content]}", "remove one of them")
            seen.setdefault(content, path)


def users_have_nodes(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A stack with declared users creates nodes."""
    if spec.access.users and "cluster" not in spec.made_layers:
        what = "is not empty, but this stack does not create nodes"
        yield error("access.users", what, "move the users to the stack that creates the cluster layer")


def _key_problem(key: str) -> str | None:
    """Return why a public SSH key is not valid, or None. RFC 4253, section 6.6, and RFC 8709, section 4, define the formats."""
    kind, content = key.split(" ")[:2]
    try:
        fields = list(_fields(base64.b64decode(content, validate=True)))
    except (binascii.Error, ValueError):
        return "is incomplete or damaged"
    if not fields or fields[0] != kind.encode():
        return f"does not contain a key of the type {kind}"
    if len(fields) != {"ssh-ed25519": 2, "ssh-rsa": 3}[kind]:
        return "is incomplete or damaged"
    if kind == "ssh-ed25519":
        return None if len(fields[1]) == 32 else "is incomplete or damaged"
    bits = int.from_bytes(fields[2], "big").bit_length()
    return None if bits >= RSA_BITS else f"has {bits} bits; allowed: {RSA_BITS} or more"


def _fields(content: bytes) -> Iterator[bytes]:
    """Yield the fields of a key: each is preceded by its length in four bytes. Raises `ValueError` if the content ends early."""
    while content:
        length = int.from_bytes(content[:4], "big")
        if len(content) < 4 + length:
            raise ValueError("the key ends early")
        yield content[4 : 4 + length]
        content = content[4 + length :]


RULES = rules_in(vars())
