"""Errors of a cloud's API. `reported` gives the text in the form in which the cloud's real provider passes it on."""

from __future__ import annotations


class CloudError(Exception):
    """An API rejected a call."""

    def __init__(self, code: str, message: str, *, status: int = 400, service: str = "", operation: str = "") -> None:
        self.code, self.message, self.status = code, message, status
        self.service, self.operation = service, operation
        super().__init__(f"{code}: {message}")

    def reported(self, doing: str) -> str:
        """`creating FSx for Lustre File System: operation error FSx: CreateFileSystem, https response error ...`."""
        call = f"operation error {self.service}: {self.operation}, " if self.service else ""
        return f"{doing}: {call}https response error StatusCode: {self.status}, RequestID: 00000000-standin, api error {self.code}: {self.message}"


class CreatedButFailed(CloudError):
    """The resource exists, but the call failed. The engine keeps the resource and marks it as not initialized."""


class AnswerLost(CloudError):
    """The resource exists, but the answer never reached the engine, as after a broken connection."""
