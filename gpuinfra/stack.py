"""Reads the declaration from the configuration of the running stack, for Pulumi programs.

`gpuinfra plan` reads the stack file instead (`gpuinfra.rules.load_stack`).
"""

from __future__ import annotations

import gc
from pathlib import Path

import pulumi

from gpuinfra.base.errors import GpuinfraError
from gpuinfra.clouds import why_not_here
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.preflight import missing_credentials
from gpuinfra.plan.profile import profile_of
from gpuinfra.spec import ClusterSpec, parse_spec
from gpuinfra.spec.document import read


def declared() -> ClusterSpec:
    """Return the declaration of the running stack. If the declaration is invalid or there are no credentials for its cloud,
    the program exits with error messages and without a traceback."""
    # The SDK of a cloud creates many objects that live until the program ends. Searching them for garbage takes about a fifth of its CPU time.
    gc.set_threshold(200_000)
    config = pulumi.Config("gpuinfra")
    value = config.get_object("cluster")
    if value is None:
        raise pulumi.RunError(
            f"the stack {pulumi.get_stack()} has no declaration; add gpuinfra:cluster under config in its stack file"
        )
    return parsed(value)


def parsed(value: object) -> ClusterSpec:
    """Return a declaration from plain values. Raises `RunError` as `declared` does. File paths are relative to the folder of the stack files."""
    try:
        spec = parse_spec(value, folder=_stack_folder())
    except GpuinfraError as problem:
        raise pulumi.RunError(str(problem)) from None
    # Without credentials, the first request of the program fails with a traceback, after an error for each provider.
    preflight = cloud_of(spec.cloud).preflight if why_not_here(spec.cloud) is None else None
    if preflight and (reason := missing_credentials(preflight, spec.where.region, _setting)):
        title = profile_of(spec.cloud).title
        raise pulumi.RunError(
            f"{title}: {reason}; to try the stack without an account, run `gpuinfra rehearse up {pulumi.get_stack()}`"
        )
    return spec


def _setting(name: str) -> str | None:
    """Return a provider setting of the running stack, such as `aws:profile`."""
    package, _, key = name.partition(":")
    return pulumi.Config(package).get(key)


def _stack_folder() -> Path:
    """Return the folder of the stack files: the folder of the project file, or the folder in its `stackConfigDir`."""
    here = Path.cwd()
    # For a program in another language, the engine does not send the folder of the project. It starts the plugin in the folder of the program.
    given = pulumi.get_root_directory()
    for root in [Path(given)] if given else [here, *here.parents]:
        for name in ("Pulumi.yaml", "Pulumi.yml", "Pulumi.json"):
            if (root / name).is_file():
                value = read(root / name).value
                return root / str((isinstance(value, dict) and value.get("stackConfigDir")) or "")
    return Path(given or "")
