"""SSH to nodes on Google Cloud: OS Login accepts the key, and Identity-Aware Proxy (IAP) forwards the connection.

Nodes have the metadata `enable-oslogin`. `gcloud compute os-login ssh-keys add` adds a key to your OS Login profile and
prints the profile, whose POSIX account is the user name on the nodes
(https://cloud.google.com/sdk/gcloud/reference/compute/os-login/ssh-keys/add, retrieved 2026-11-22). Your account needs
`roles/compute.osAdminLogin`, which also permits sudo, and `roles/iap.tunnelResourceAccessor`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.json_text import parsed
from gpuinfra.clouds.login import Login, answer_of, new_key
from gpuinfra.inventory import Node, nodes_of

KEY_LIFETIME = "3h"
"""Lifetime of a key. It is longer than the default time limit of `gpuinfra bootstrap`, which opens connections until it ends."""


def login(folder: Path, resources: Sequence[Mapping[str, Any]]) -> Login:
    """Add a new key to the operator's OS Login profile, and return a login with the user of this profile.

    The profile gets its POSIX account in a project, which is that of the nodes. Without `--project`, gcloud sends its own project
    (`projectId` in https://cloud.google.com/compute/docs/oslogin/rest/v1/users/importSshPublicKey, retrieved 2026-11-30).
    """
    key = new_key(folder)
    words = ["gcloud", "compute", "os-login", "ssh-keys", "add", f"--key-file={key}.pub", f"--ttl={KEY_LIFETIME}"]
    projects = [project for node in nodes_of(resources) if (project := _names(node).get("projects"))]
    words += ["--project", projects[0]] if projects else []
    answer = answer_of([*words, "--format=json", "--quiet"], "install the Google Cloud CLI and sign in")
    return Login(user=_user(answer), identity=(key,), key_lifetime=KEY_LIFETIME)


def proxy_command(
    node: Node, login: Login, region: str, resources: Sequence[Mapping[str, Any]], *, direct: bool
) -> list[str]:
    """Return the `gcloud compute start-iap-tunnel` arguments for a node, which IAP identifies by project, zone and name."""
    if direct:
        return []
    names = _names(node)
    name, zone = names.get("instances") or node.id, names.get("zones") or node.zone
    words = ["gcloud", "compute", "start-iap-tunnel", name, "22", "--listen-on-stdin", "--verbosity=warning"]
    words += ["--zone", zone] if zone else []
    return words + (["--project", names["projects"]] if "projects" in names else [])


def _names(node: Node) -> dict[str, str]:
    """Return the parts of the resource of a node, by collection."""
    parts = node.resource.split("/")
    return dict(zip(parts[::2], parts[1::2], strict=False))


def _user(answer: str) -> str:
    """Return the user name of the primary POSIX account in a login profile."""
    try:
        accounts = parsed(answer)["loginProfile"]["posixAccounts"]
        accounts = sorted(accounts, key=lambda one: not one.get("primary"))
        return str(accounts[0]["username"])
    except (ValueError, LookupError, TypeError, AttributeError):
        raise DeploymentError(
            "your OS Login profile has no POSIX account; ask an administrator for roles/compute.osAdminLogin in the project"
        ) from None
