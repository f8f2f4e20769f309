"""A package for each cloud, and the modules that clouds share.

`gpuinfra/registry.py` lists the clouds. `profile.py` is the protocol of a cloud's decisions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinfra.registry import CLOUDS, has_module, module_of

if TYPE_CHECKING:
    from gpuinfra.clouds.profile import CloudProfile


def profile_of(cloud: str) -> CloudProfile:
    """The profile of a cloud. Imports no SDK. Raises `UsageError` for a cloud that gpuinfra does not support."""
    profile: CloudProfile = module_of(cloud, "profile").PROFILE
    return profile


def why_not_built(cloud: str) -> str | None:
    """None if this cloud has components, else the error message."""
    if has_module(cloud, "components"):
        return None
    built = [name for name in CLOUDS if has_module(name, "components")]
    return (
        f"where.cloud is {cloud}, which has no components yet: `gpuinfra plan` works, `pulumi up` does not; "
        f"allowed for deployments and rehearsals: {', '.join(built)}"
    )


def why_not_here(cloud: str) -> str | None:
    """None if the packages of the extra of this cloud are installed, else the error message with the command to run."""
    import importlib.metadata  # slow, and a plan does not need it

    try:
        required = importlib.metadata.requires("gpuinfra") or []
    except importlib.metadata.PackageNotFoundError:
        return None  # runs from a checkout; a missing package then fails at its import
    extra = re.compile(rf"""extra\s*==\s*["']{cloud}["']""")
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in required if extra.search(line)]
    absent = [name for name in names if not _installed(name)]
    if not absent:
        return None
    return (
        f"where.cloud is {cloud}, but these packages are not installed: {', '.join(absent)}; "
        f"run pip install 'gpuinfra[{cloud}]', or in a checkout python3 tools/environment.py {cloud}"
    )


def _installed(name: str) -> bool:
    import importlib.metadata

    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
