"""What differs between the clouds: a package for each cloud, and the modules that they share.

`gpuinfra/registry.py` lists the clouds. `profile.py` is the protocol of a cloud's decisions.
"""

from __future__ import annotations

import importlib.metadata
import re
from typing import TYPE_CHECKING

from gpuinfra.registry import CLOUDS, has_module, module_of

if TYPE_CHECKING:
    from gpuinfra.clouds.profile import CloudProfile


def profile_of(cloud: str) -> CloudProfile:
    """The decisions of a cloud. Imports no SDK. Raises `UsageError` for a cloud that gpuinfra does not support."""
    profile: CloudProfile = module_of(cloud, "profile").PROFILE
    return profile


def why_not_built(cloud: str) -> str | None:
    """None where this cloud has components; else one sentence for people who ask for them."""
    if has_module(cloud, "components"):
        return None
    built = [name for name in CLOUDS if has_module(name, "components")]
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
