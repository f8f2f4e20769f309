"""Responses of Google's APIs that the caller of a request handles."""

from __future__ import annotations


class NotFound(Exception):
    """The requested resource does not exist."""


class Invalid(Exception):
    """The request contains a value that the API does not accept. The text is Google's message."""
