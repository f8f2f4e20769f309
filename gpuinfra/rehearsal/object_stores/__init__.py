"""Object storage of a rehearsed stack, read and written through the API of its cloud, as the workload of a drill does.

Each cloud whose stacks can be drilled has a module here with the functions `connect` and `pattern`.
"""

from __future__ import annotations

import importlib
from typing import Protocol


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
    found: ObjectStore = importlib.import_module(f"{__name__}.{cloud}").connect(region)
    return found


def pattern_of(cloud: str, bucket: str) -> str:
    """Return a regular expression for the names that a bucket of the stand-in account has in other accounts."""
    found: str = importlib.import_module(f"{__name__}.{cloud}").pattern(bucket)
    return found
