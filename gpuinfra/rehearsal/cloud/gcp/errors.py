"""Errors in Google's words."""

from __future__ import annotations

from gpuinfra.rehearsal.cloud.core.errors import CloudError


class GoogleError(CloudError):
    """An API of Google's rejected a call; the code is the reason that Google puts at the end."""

    def reported(self, doing: str) -> str:
        """`Error creating Network: googleapi: Error 409: ..., alreadyExists`."""
        return f"Error {doing}: googleapi: Error {self.status}: {self.message}, {self.code}"


def invalid(message: str) -> GoogleError:
    """A value that the API does not accept."""
    return GoogleError("invalid", message)


def missing(path: str) -> GoogleError:
    """A resource that is referred to does not exist."""
    return GoogleError("notFound", f"The resource '{path}' was not found", status=404)


def in_use(kind: str, path: str, by: str) -> GoogleError:
    """Another resource uses this one."""
    text = f"The {kind} resource '{path}' is already being used by '{by}'"
    return GoogleError("resourceInUseByAnotherResource", text, status=400)
