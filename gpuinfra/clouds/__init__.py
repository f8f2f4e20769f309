"""The clouds that gpuinfra knows: the one table that names them.

A cloud is a folder whose `profile.py` is pure (no SDK); everything up to the plan asks the profile.
A new cloud is one new folder, one line here, one extra in `pyproject.toml` and one stack.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuinfra.clouds.profile import CloudProfile

CLOUDS = {"aws": "gpuinfra.clouds.aws", "azure": "gpuinfra.clouds.azure", "gcp": "gpuinfra.clouds.gcp"}
"""Name in the spec -> package."""


def profile_of(cloud: str) -> CloudProfile:
    """What is decided differently on this cloud; imports its pure modules only."""
    return importlib.import_module(f"{CLOUDS[cloud]}.profile").PROFILE


def why_not_built(cloud: str) -> str | None:
    """None where this cloud has components; else one sentence for people who ask for them."""
    if importlib.util.find_spec(f"{CLOUDS[cloud]}.components"):
        return None
    built = [name for name, package in CLOUDS.items() if importlib.util.find_spec(f"{package}.components")]
    return (
        f"where.cloud is {cloud}, which gpuinfra can plan and price but not build yet: its components do not exist; "
        f"`gpuinfra plan` answers for it, and {', '.join(built)} can be built and rehearsed"
    )


def why_not_here(cloud: str) -> str | None:
    """None where the packages of this cloud's extra are installed; else one sentence with what to type."""
    try:
        wanted = importlib.metadata.requires("gpuinfra") or []
    except importlib.metadata.PackageNotFoundError:
        return None  # run from its sources; what is missing then shows at its import
    extra = re.compile(rf"""extra\s*==\s*["']{cloud}["']""")
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in wanted if extra.search(line)]
    absent = [name for name in names if not _installed(name)]
    if not absent:
        return None
    return (
        f"where.cloud is {cloud}, and its packages are not installed here ({', '.join(absent)}): "
        f"pip install 'gpuinfra[{cloud}]', or in a checkout: python3 tools/environment.py {cloud}"
    )


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
