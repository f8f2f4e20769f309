"""SSH to nodes on AWS: EC2 Instance Connect accepts the key, and Systems Manager Session Manager forwards the connection.

The `ec2-instance-connect` package in the image has an AuthorizedKeysCommand that reads the keys from the metadata
service (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/connect-linux-inst-eic.html, retrieved 2026-11-22). A key is valid
for 60 seconds, so the proxy command sends it for each connection.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuinfra.clouds.aws import credentials
from gpuinfra.clouds.aws.profile import USER
from gpuinfra.clouds.login import Login, new_key
from gpuinfra.inventory import Node


def login(folder: Path, resources: Sequence[Mapping[str, Any]]) -> Login:
    """Return a login with a new key."""
    return Login(user=USER, identity=(new_key(folder),))


def proxy_command(
    node: Node, login: Login, region: str, resources: Sequence[Mapping[str, Any]], *, direct: bool
) -> list[str]:
    """Return the arguments of `gpuinfra.clouds.aws.instance_connect` for a node."""
    words = [sys.executable, "-m", "gpuinfra.clouds.aws.instance_connect", "--instance", node.id, "--user", login.user]
    words += ["--key", f"{login.identity[0]}.pub"]
    words += ["--region", region] if region else []
    settings = credentials.of_provider(resources)
    for option, name in (("--profile", credentials.PROFILE), ("--assume-roles", credentials.ROLES)):
        words += [option, settings[name]] if name in settings else []
    return [*words, *(["--address", node.address] if direct else []), "22"]
