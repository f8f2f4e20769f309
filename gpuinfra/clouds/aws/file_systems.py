"""Finds the file system of a stack in an account.

FSx file systems have no name, and a different stack can have the same tags. The log group identifies the file system, because its
name contains the stack token.
"""

from __future__ import annotations

from typing import Any

from gpuinfra import naming

_ENDED = ("DELETING", "FAILED")
"""States in which the data of a file system is lost."""


def log_group(cluster: str, purpose: str, token: str) -> str:
    """Return the name of the log group. FSx accepts only log group names with this prefix."""
    return f"/aws/fsx/{naming.unique_name(cluster, purpose, token)}"


def find(fsx: Any, group: str) -> str | None:
    """Return the ID of the file system that logs to this group, or None. `fsx` is a boto3 client."""
    for page in fsx.get_paginator("describe_file_systems").paginate():
        for one in page["FileSystems"]:
            log = (one.get("LustreConfiguration") or {}).get("LogConfiguration") or {}
            # FSx adds its log stream to the group's ARN: `...:log-group:/aws/fsx/NAME:log-stream:datarepo_fs-...`.
            name = str(log.get("Destination") or "").partition(":log-group:")[2].partition(":")[0]
            if name == group and one.get("Lifecycle") not in _ENDED:
                return str(one["FileSystemId"])
    return None
