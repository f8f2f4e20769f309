"""The clouds that gpuinfra supports. This is the only table of clouds.

Each cloud is a package. Its pure modules (`profile`, `catalog`, `rules`, ...) do not import an SDK. Its Pulumi components are in `components`.
To add a cloud, add a package, a line here, an extra in `pyproject.toml`, and a stack (docs/internals/adding-a-cloud.md).
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import UsageError

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


def has_module(cloud: str, name: str) -> bool:
    """Return whether the package of a cloud contains a module. This imports the package but not the module."""
    try:
        return importlib.util.find_spec(f"{package_of(cloud)}.{name}") is not None
    except ModuleNotFoundError:  # the parent package of a dotted name
        return False


def module_of(cloud: str, name: str) -> Any:
    """Import and return a module of a cloud's package."""
    return importlib.import_module(f"{package_of(cloud)}.{name}")
