"""The clouds that gpuinfra supports. This is the only table of clouds.

Each cloud is a package whose module `cloud` lists its capabilities (`gpuinfra.clouds.cloud.Cloud`).
To add a cloud, add a package, a line here, an extra in `pyproject.toml`, and a stack (docs/internals/adding-a-cloud.md).
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import TypeVar

from gpuinfra.base.errors import UsageError

C = TypeVar("C")

CLOUDS = {"aws": "gpuinfra.clouds.aws", "azure": "gpuinfra.clouds.azure", "gcp": "gpuinfra.clouds.gcp"}
"""Cloud name in the spec -> package."""


def package_of(cloud: str) -> str:
    """Return the package of a cloud. Raises `UsageError` if gpuinfra does not support the cloud."""
    try:
        return CLOUDS[cloud]
    except KeyError:
        raise UsageError(f"cloud is {cloud!r}; allowed: {', '.join(CLOUDS)}") from None


def folder_of(cloud: str) -> Path:
    """Return the folder of a cloud's package."""
    spec = importlib.util.find_spec(package_of(cloud))
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def cloud_as(cloud: str, kind: type[C]) -> C:
    """Return a cloud as the class that the calling package needs, without importing an SDK.

    `gpuinfra.spec.kinds.DeclaredCloud`, `gpuinfra.plan.profile.PlannedCloud`, `gpuinfra.handover.connect.HandoverCloud` and
    `gpuinfra.clouds.cloud.Cloud`, which derives from all of them, are such classes. Lower packages thus use a cloud without importing it.
    """
    loaded = importlib.import_module(f"{package_of(cloud)}.cloud").CLOUD
    assert isinstance(loaded, kind)
    return loaded
