"""What Google's behaviours share: links, and refusals in Google's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinfra.rehearsal.cloud.core import ids
from gpuinfra.rehearsal.cloud.core.errors import GoogleError
from gpuinfra.rehearsal.cloud.gcp.groups import last, path_of

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud

__all__ = ["exists", "in_use", "last", "link", "missing", "path_of", "refused"]


def link(path: str) -> str:
    """The self link of a path."""
    return f"https://www.googleapis.com/compute/v1/{path}"


def exists(cloud: Cloud, token: str, path: str) -> bool:
    """Whether the cloud holds it, or it lies in a project that is not the stand-in's and is believed."""
    return cloud.store.find(token, path) is not None or f"projects/{ids.PROJECT}/" not in f"{path}/"


def missing(path: str) -> GoogleError:
    """What it refers to is not there."""
    return GoogleError("notFound", f"The resource '{path}' was not found", status=404)


def in_use(kind: str, path: str, by: str) -> GoogleError:
    """Something else holds on to it."""
    text = f"The {kind} resource '{path}' is already being used by '{by}'"
    return GoogleError("resourceInUseByAnotherResource", text, status=400)


def refused(code: str, text: str, status: int = 400) -> GoogleError:
    """Any other refusal."""
    return GoogleError(code, text, status=status)
