"""SSH to nodes on Azure: the scale sets list the public keys, and the Bastion host of the stack forwards the connection."""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import UsageError
from gpuinfra.clouds.login import Login
from gpuinfra.inventory import Node

USER = "gpuinfra"
"""The administrator of the scale sets, who can run any command with sudo."""


def login(folder: Path, resources: Sequence[Mapping[str, Any]]) -> Login:
    """Return the administrator of the stack's scale sets. Raises `UsageError` if the scale sets accept no key."""
    profiles = [one for one in map(_os_profile, resources) if one]
    users = {str(one.get("adminUsername") or "") for one in profiles} - {""}
    keys = {str(key.get("keyData") or "") for one in profiles for key in _keys(one)} - {placeholder_key()}
    if not users or not keys:
        raise UsageError(
            "the nodes accept no SSH key; add your public key to access.ssh_keys, and run `pulumi up` (only new nodes accept the key)"
        )
    return Login(user=min(users))


def proxy_command(
    node: Node, login: Login, region: str, resources: Sequence[Mapping[str, Any]], *, direct: bool
) -> list[str]:
    """Return the arguments of `gpuinfra.remote.bastion` for a node, which Bastion identifies by resource ID."""
    if direct:
        return []
    bastion = _bastion(resources)
    if bastion is None:
        raise UsageError(
            "the stack has no Bastion; use --direct if the private addresses of the nodes are reachable, or --hosts FILE (docs/guides/remote.md)"
        )
    if not node.resource:
        raise UsageError(f"the state has no resource ID for {node.id}; run `pulumi refresh` first")
    words = [sys.executable, "-m", "gpuinfra.remote.bastion", "--name", bastion["bastionHosts"]]
    words += ["--resource-group", bastion.get("resourceGroups", "")]
    words += ["--subscription", bastion["subscriptions"]] if bastion.get("subscriptions") else []
    return [*words, "--target", node.resource, "22"]


def placeholder_key() -> str:
    """Return a public key without a known private key. Azure requires a key if passwords are disabled.

    The 32 bytes are the first hash in a series that is a valid point on the curve (RFC 8032, 5.1.3), so no private key was ever generated.
    """
    prime = 2**255 - 19
    d = (-121665 * pow(121666, -1, prime)) % prime
    for count in range(256):
        data = bytearray(hashlib.sha256(f"gpuinfra: public key without a private key {count}".encode()).digest())
        data[31] &= 0x7F
        y = int.from_bytes(data, "little")
        square = (y * y - 1) * pow(d * y * y + 1, -1, prime) % prime
        if y < prime and square and pow(square, (prime - 1) // 2, prime) == 1:
            wire = b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20" + bytes(data)
            return f"ssh-ed25519 {base64.b64encode(wire).decode()} placeholder"
    raise AssertionError("half of all hashes are points on the curve")


def _is(resource: Mapping[str, Any], service: str, wanted: str) -> bool:
    """Return whether a resource has a type, in any version of the API."""
    module, _, kind = str(resource.get("type", "")).rpartition(":")
    return module.partition("/")[0].startswith(f"azure-native:{service}") and kind == wanted


def _os_profile(resource: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if not _is(resource, "compute", "VirtualMachineScaleSet"):
        return None
    profile = (resource.get("inputs") or {}).get("virtualMachineProfile") or {}
    profile_of_os: Mapping[str, Any] | None = profile.get("osProfile")
    return profile_of_os


def _keys(profile: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    ssh = (profile.get("linuxConfiguration") or {}).get("ssh") or {}
    return list(ssh.get("publicKeys") or [])


def _bastion(resources: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    """Return the parts of the resource ID of the stack's first Bastion host."""
    for resource in resources:
        if _is(resource, "network", "BastionHost"):
            parts = str(resource.get("id") or "").strip("/").split("/")
            names = dict(zip(parts[::2], parts[1::2], strict=False))
            if names.get("bastionHosts"):
                return names
    return None
