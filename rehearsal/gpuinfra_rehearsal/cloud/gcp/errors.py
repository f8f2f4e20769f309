"""Google Cloud errors."""

from __future__ import annotations

from gpuinfra_rehearsal.cloud.core.errors import ApiRejected


class GoogleError(ApiRejected):
    """A Google API rejected a call. The code is the reason that Google appends to the message."""

    def reported(self, doing: str) -> str:
        """`Error creating Network: googleapi: Error 409: ..., alreadyExists`."""
        return f"Error {doing}: googleapi: Error {self.status}: {self.message}, {self.code}"


def invalid(message: str) -> GoogleError:
    """Return the error for a value that the API does not accept."""
    return GoogleError("invalid", message)


def missing(path: str) -> GoogleError:
    """Return the error for a referenced resource that does not exist."""
    return GoogleError("notFound", f"The resource '{path}' was not found", status=404)


def in_use(kind: str, path: str, by: str) -> GoogleError:
    """Return the error for a resource that another resource uses."""
    text = f"The {kind} resource '{path}' is already being used by '{by}'"
    return GoogleError("resourceInUseByAnotherResource", text, status=400)
