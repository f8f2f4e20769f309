"""One package per cloud, and the modules that all clouds share.

`gpuinfra/base/registry.py` lists the clouds. `cloud.py` defines what gpuinfra can do on a cloud.
"""

from __future__ import annotations

import re

from gpuinfra.base.registry import CLOUDS


def why_not_built(cloud: str) -> str | None:
    """Return an error message if the cloud has no components, or None if it has components."""
    from gpuinfra.clouds.cloud import (  # it imports pydantic, which a completion of the catalog does not need
        BuiltCloud,
        cloud_of,
    )

    built = [name for name in CLOUDS if isinstance(cloud_of(name), BuiltCloud)]
    if cloud in built:
        return None
    return (
        f"where.cloud is {cloud}, which has no components yet: `gpuinfra plan` works, but `pulumi up` does not; "
        f"allowed for deployments and rehearsals: {', '.join(built)}"
    )


def why_not_here(cloud: str) -> str | None:
    """Return an error message with the install command if packages of the cloud's extra are missing, or None if all are installed."""
    absent = [name for name, _ in requirements_of(cloud) if installed_version(name) is None]
    if not absent:
        return None
    return f"where.cloud is {cloud}, but these packages are not installed: {', '.join(absent)}; {install_hint(cloud)}"


def install_hint(cloud: str) -> str:
    """Return the commands that install the packages of a cloud."""
    return f"run `pip install 'gpuinfra[{cloud}]'`, or in a checkout, `python3 tools/environment.py {cloud}`"


def requirements_of(cloud: str) -> list[tuple[str, str]]:
    """Return the packages of the cloud's extra with their allowed versions, such as (`pulumi-aws`, `<8,>=7.51`).

    Empty in a checkout that is not installed, where importing a missing package fails.
    """
    import importlib.metadata  # This import is slow and is not needed for a plan.

    try:
        required = importlib.metadata.requires("gpuinfra") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    extra = re.compile(rf"""extra\s*==\s*["']{cloud}["']""")
    parts = [
        re.fullmatch(r"([\w.-]++)(?:\[[^]]*\])?\s*+\(?([^;)]*+)\)?\s*+;.*", line)
        for line in required
        if extra.search(line)
    ]
    return [(part[1], part[2].strip()) for part in parts if part]


def installed_version(name: str) -> str | None:
    """Return the version of an installed package, or None."""
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
