"""One package per cloud, and the modules that all clouds share.

`gpuinfra/registry.py` lists the clouds. `profile.py` defines the protocol that each cloud's profile implements.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinfra.registry import CLOUDS, has_module, module_of

if TYPE_CHECKING:
    from gpuinfra.clouds.profile import CloudProfile


def profile_of(cloud: str) -> CloudProfile:
    """Return the profile of a cloud without importing an SDK. Raises `UsageError` if gpuinfra does not support the cloud."""
    profile: CloudProfile = module_of(cloud, "profile").PROFILE
    return profile


def why_not_built(cloud: str) -> str | None:
    """Return an error message if the cloud has no components, or None if it has components."""
    if has_module(cloud, "components"):
        return None
    built = [name for name in CLOUDS if has_module(name, "components")]
    return (
        f"where.cloud is {cloud}, which has no components yet: `gpuinfra plan` works, but `pulumi up` does not; "
        f"allowed for deployments and rehearsals: {', '.join(built)}"
    )


def why_not_here(cloud: str) -> str | None:
    """Return an error message with the install command if packages of the cloud's extra are missing, or None if all are installed."""
    import importlib.metadata  # This import is slow and is not needed for a plan.

    try:
        required = importlib.metadata.requires("gpuinfra") or []
    except importlib.metadata.PackageNotFoundError:
        return None  # In a checkout, importing a missing package fails.
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
