"""The clouds that gpuinfra knows: the one table that names them.

A cloud is a folder whose `profile.py` is pure (no SDK); everything up to the plan asks the profile.
A new cloud is one new folder, one line here, one extra in `pyproject.toml` and one stack.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuinfra.clouds.profile import CloudProfile

CLOUDS = {"aws": "gpuinfra.clouds.aws", "azure": "gpuinfra.clouds.azure", "gcp": "gpuinfra.clouds.gcp"}
"""Name in the spec -> package."""


def profile_of(cloud: str) -> CloudProfile:
    """What is decided differently on this cloud; imports its pure modules only."""
    return importlib.import_module(f"{CLOUDS[cloud]}.profile").PROFILE
