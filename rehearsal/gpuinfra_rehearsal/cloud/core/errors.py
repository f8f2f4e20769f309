"""Errors of a cloud's API. `reported` returns the text as the cloud's real provider formats it."""

from __future__ import annotations

import copy
from typing import Any, Self


class ApiRejected(Exception):
    """An API rejected a call."""

    def __init__(self, code: str, message: str, call: str = "", *, status: int = 400) -> None:
        self.code, self.message, self.status = code, message, status
        self.call = call
        """The service and operation in the AWS provider's message: `FSx: CreateFileSystem`."""
        super().__init__(code, message)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def filled(self, **values: Any) -> Self:
        """Return a copy of the error with `{name}` replaced in its message and call."""
        made = copy.copy(self)
        made.message, made.call = self.message.format(**values), self.call.format(**values)
        return made

    def reported(self, doing: str) -> str:
        """Return the error as the provider reports it: `creating FSx for Lustre File System: operation error FSx:
        CreateFileSystem, https response error ...`."""
        call = f"operation error {self.call}, " if self.call else ""
        return f"{doing}: {call}https response error StatusCode: {self.status}, RequestID: 00000000-standin, api error {self.code}: {self.message}"


class CreatedButFailed(ApiRejected):
    """The resource exists, but the call failed. The engine keeps the resource and marks it as not initialized."""


class AnswerLost(ApiRejected):
    """The resource exists, but the response never reached the engine, as after a broken connection."""
