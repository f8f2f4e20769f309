"""Fields of the declaration that only other clouds support."""

from __future__ import annotations

from collections.abc import Iterator

from gpuinfra.base.findings import Finding, error
from gpuinfra.spec.storage import ExistingFileSystem


def fields_of_other_clouds(path: str, existing: ExistingFileSystem) -> Iterator[Finding]:
    """Yield an error for each field of an existing file system that Azure does not support."""
    for name in ("security_group", "efa_enabled", "address_range"):
        if getattr(existing, name):
            where = "Google Cloud" if name == "address_range" else "AWS"
            yield error(f"{path}.{name}", f"is set, but only {where} supports it", "remove it")
