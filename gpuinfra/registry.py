"""The clouds that gpuinfra supports: the one table that names them.

A cloud is a package. Its pure modules (`profile`, `catalog`, `rules`, ...) import no SDK; its Pulumi components are in `components`.
A new cloud is one new package, one line here, one extra in `pyproject.toml` and one stack (docs/adding-a-cloud.md).
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from gpuinfra.errors import UsageError

CLOUDS = {"aws": "gpuinfra.clouds.aws", "azure": "gpuinfra.clouds.azure", "gcp": "gpuinfra.clouds.gcp"}
"""Name in the spec -> package."""


def package_of(cloud: str) -> str:
    """The package of a cloud. Raises `UsageError` for a cloud that gpuinfra does not support."""
    try:
        return CLOUDS[cloud]
    except KeyError:
        raise UsageError(f"cloud is {cloud!r}; allowed: {', '.join(CLOUDS)}") from None


def folder_of(cloud: str) -> Path:
    """The folder of a cloud's package."""
    spec = importlib.util.find_spec(package_of(cloud))
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def has_module(cloud: str, name: str) -> bool:
    """True if the package of a cloud has this module; imports the package, but not the module."""
    return importlib.util.find_spec(f"{package_of(cloud)}.{name}") is not None


def module_of(cloud: str, name: str) -> Any:
    """A module of a cloud's package, imported."""
    return importlib.import_module(f"{package_of(cloud)}.{name}")
