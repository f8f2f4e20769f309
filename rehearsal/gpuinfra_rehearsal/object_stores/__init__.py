"""Object storage of a rehearsed stack, read and written through the API of its cloud, as the workload of a drill does.

Each cloud whose stacks can be drilled has a module here with the functions `connect` and `pattern`. The module has the function `admit` if the operator
of a stack has no access to its buckets.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

Ask = Callable[[str, Mapping[str, Any]], object]
"""Sends a request to the control interface of the stand-in cloud."""


class ObjectStore(Protocol):
    """The objects of one region."""

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Write an object."""
        ...

    def keys(self, bucket: str, prefix: str) -> set[str]:
        """Return the keys with a prefix."""
        ...

    def get(self, bucket: str, key: str) -> bytes:
        """Return the content of an object."""
        ...


def store_of(cloud: str, region: str) -> ObjectStore:
    """Return the object storage of a region, with the credentials and addresses from the environment."""
    store: ObjectStore = importlib.import_module(f"{__name__}.{cloud}").connect(region)
    return store


def pattern_of(cloud: str, bucket: str) -> str:
    """Return a regular expression for the names that a bucket of the stand-in account has in other accounts."""
    pattern: str = importlib.import_module(f"{__name__}.{cloud}").pattern(bucket)
    return pattern


def admit(cloud: str, ask: Ask, buckets: Iterable[str]) -> bool:
    """Allow the operator to read and write these buckets, on a cloud where a stack does not allow it. Returns whether the cloud is such a one."""
    allow = getattr(importlib.import_module(f"{__name__}.{cloud}"), "admit", None)
    if allow is not None:
        allow(ask, buckets)
    return allow is not None
