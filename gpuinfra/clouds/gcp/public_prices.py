"""Rejects pages of the Google Cloud Billing catalog, which have prices of GPUs, cores and memory, but not of machine types.

https://docs.cloud.google.com/billing/docs/reference/rest/v1/services.skus/list
"""

from __future__ import annotations

from datetime import date
from typing import Any, TextIO

from gpuinfra.catalog.public import NotUsable, PublicFile

FORM = ""


def table(file: TextIO) -> PublicFile | None:
    """The catalog is available only as JSON."""
    return None


def document(value: Any, today: date) -> PublicFile | None:
    """Raise `NotUsable` for a page of the catalog. Return None if the document has a different format."""
    if not isinstance(value, dict) or "skus" not in value:
        return None
    what = "is a page of the Google Cloud Billing catalog, which has prices of GPUs, cores and memory, but not of machine types"
    raise NotUsable(what, "write the prices of machine types to a price file yourself")
