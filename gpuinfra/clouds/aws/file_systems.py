"""Finds the file system of a stack in an account.

FSx file systems have no name, and a different stack can have the same cluster name. The log group of FSx for Lustre and the tag `IDENTITY` of FSx for OpenZFS
identify the file system, because they contain the stack token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuinfra.base import naming

IDENTITY = "gpuinfra:file-system"
"""Key of the tag that identifies an FSx for OpenZFS file system, which has no log group. Its value is the unique name of the file system."""
_ENDED = ("DELETING", "FAILED")
"""States in which the data of a file system is lost."""


def log_group(cluster: str, purpose: str, token: str) -> str:
    """Return the name of the log group. FSx accepts only log group names with this prefix."""
    return f"/aws/fsx/{naming.unique_name(cluster, purpose, token)}"


def find(fsx: Any, identity: str) -> str | None:
    """Return the ID of the file system with this log group or this value of the tag `IDENTITY`, or None. `fsx` is a boto3 client."""
    for page in fsx.get_paginator("describe_file_systems").paginate():
        for file_system in page["FileSystems"]:
            if identity in _identities(file_system) and file_system.get("Lifecycle") not in _ENDED:
                return str(file_system["FileSystemId"])
    return None


def _identities(file_system: Mapping[str, Any]) -> Iterator[str]:
    log = (file_system.get("LustreConfiguration") or {}).get("LogConfiguration") or {}
    # FSx adds its log stream to the group's ARN: `...:log-group:/aws/fsx/NAME:log-stream:datarepo_fs-...`.
    yield str(log.get("Destination") or "").partition(":log-group:")[2].partition(":")[0]
    yield from (str(tag["Value"]) for tag in file_system.get("Tags", ()) if tag["Key"] == IDENTITY)
