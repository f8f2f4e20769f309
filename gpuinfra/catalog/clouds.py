"""The machine types of a cloud, read without the models of a declaration, whose import is slow."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from gpuinfra.base.registry import package_of
from gpuinfra.catalog.records import MachineType


def machines_of(cloud: str) -> Mapping[str, MachineType]:
    """Return the machine types in the catalog of a cloud. Raises `UsageError` if gpuinfra does not support the cloud."""
    machines: Mapping[str, MachineType] = importlib.import_module(f"{package_of(cloud)}.catalog").MACHINES
    return machines
