"""Errors of a cloud's API, in the words and the shape in which the real providers pass them on."""

from __future__ import annotations


class CloudError(Exception):
    """An API refused a call."""

    def __init__(self, code: str, message: str, *, status: int = 400, service: str = "", operation: str = "") -> None:
        self.code, self.message, self.status = code, message, status
        self.service, self.operation = service, operation
        super().__init__(f"{code}: {message}")

    def told(self, doing: str) -> str:
        """As the AWS provider reports it: `creating FSx for Lustre File System: operation error FSx: ...`."""
        call = f"operation error {self.service}: {self.operation}, " if self.service else ""
        return f"{doing}: {call}https response error StatusCode: {self.status}, RequestID: 00000000-standin, api error {self.code}: {self.message}"


class GoogleError(CloudError):
    """A refusal of Google's, where the code is the reason at the end."""

    def told(self, doing: str) -> str:
        """As the Google provider reports it: `Error creating Network: googleapi: Error 409: ..., alreadyExists`."""
        return f"Error {doing}: googleapi: Error {self.status}: {self.message}, {self.code}"


class AzureError(CloudError):
    """A refusal of Azure's."""

    def told(self, doing: str) -> str:
        """As the Azure provider reports it: `Status=409 Code="..." Message="..."`."""
        return f'{doing}: Status={self.status} Code="{self.code}" Message="{self.message}"'


class MadeButFailed(CloudError):
    """The resource exists, and the call failed all the same: the engine keeps it, marked as not initialised."""


class AnswerLost(CloudError):
    """The resource exists, and nobody was told: what a broken connection leaves behind."""


class AzureMadeButFailed(AzureError, MadeButFailed):
    """An operation of Azure's that ended in failure after it had begun: the resource is there, in the state Failed."""
