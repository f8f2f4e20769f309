"""Loads the clouds' stand-ins from gpuinfra's table of clouds. `core` itself does not refer to any cloud by name.

A stand-in is a folder next to `core` with the cloud's name. If it does not exist, the cloud uses the generic `StandIn`.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache

from gpuinfra.base.registry import CLOUDS
from gpuinfra_rehearsal.cloud.core import ids
from gpuinfra_rehearsal.cloud.core.sdk import NotDeclared, Sdk, UntypedSdk, module_of, sdk
from gpuinfra_rehearsal.cloud.core.stand_in import StandIn

ROOT = __name__.rsplit(".", 2)[0]


@cache
def of_cloud(name: str) -> StandIn:
    """Return the stand-in of a cloud, given its name in a spec."""
    if importlib.util.find_spec(f"{ROOT}.{name}"):
        return importlib.import_module(f"{ROOT}.{name}.stand_in").STAND_IN(name)
    return StandIn(name)


def of_package(package: str) -> StandIn:
    """Return the stand-in of a Pulumi package. Raises NotDeclared if no cloud in gpuinfra uses the package."""
    for name in CLOUDS:
        if (stand_in := of_cloud(name)).package == package:
            return stand_in
    packages = ", ".join(of_cloud(name).package for name in CLOUDS)
    raise NotDeclared(f"the Pulumi package {package} cannot be rehearsed; allowed: {packages}")


def of_token(token: str) -> StandIn:
    """Return the stand-in of a resource type or a function."""
    return of_package(ids.package(token))


def installed() -> tuple[StandIn, ...]:
    """Return the stand-ins of the clouds that can be rehearsed here: clouds whose Pulumi SDK is installed, and clouds
    that do not require an SDK."""
    return _installed(tuple(CLOUDS))


@cache
def _installed(names: tuple[str, ...]) -> tuple[StandIn, ...]:
    return tuple(stand_in for stand_in in map(of_cloud, names) if _has_sdk(stand_in) or not stand_in.typed)


def sdk_of(token: str) -> Sdk | UntypedSdk:
    """Return the SDK that declares a resource type or a function."""
    stand_in = of_token(token)
    return sdk(stand_in.package) if stand_in.typed or _has_sdk(stand_in) else UntypedSdk()


def _has_sdk(stand_in: StandIn) -> bool:
    return importlib.util.find_spec(module_of(stand_in.package)) is not None
