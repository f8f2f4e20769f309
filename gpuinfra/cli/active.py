"""How the commands read the record of the active region.

A command that starts nodes or replication stops if the record names a different region, and asks for `--confirm-active` if the record cannot be read.
Other commands print a warning. `pulumi destroy` does not read the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import WARN_PREFIX, DeploymentError, GpuinfraError, UsageError
from gpuinfra.cli.stacks import NoStack, Resources, as_argument, exported

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinfra.clouds.region.active import ActiveRegion, SharedRecord
    from gpuinfra.region.failover.journal import FailoverJournal
    from gpuinfra.spec.load import LoadedStack


def record_of(loaded: LoadedStack, resources: Resources) -> SharedRecord | None:
    """Read the record of a stack, given its state. Returns None if no second region is deployed. Raises `DeploymentError` if it cannot be read."""
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.clouds.region.active import SharedRecord, place_of, unreadable
    from gpuinfra.clouds.region.failover import Unreachable

    recovery, place = loaded.spec.recovery, place_of(resources)
    if recovery is None or place is None:
        return None
    store = cloud_of(loaded.spec.cloud).record(place, recovery.region, loaded.settings)
    if store is None:
        return None
    try:
        return SharedRecord(store, loaded.name, loaded.spec.where.region)
    except (Unreachable, GpuinfraError) as problem:
        raise DeploymentError(unreadable(loaded.name, problem)) from None


def share(
    loaded: LoadedStack, resources: Resources, journals: Sequence[FailoverJournal], confirmed: str | None = None
) -> Mapping[str, str]:
    """Let the journals of a move read and write the record, given the state of the stack.

    If the record cannot be read and `confirmed` is set, the journals of this machine count. Returns the variables for the engine.
    """
    from gpuinfra.clouds.region.active import CONFIRM_VARIABLE

    try:
        record = record_of(loaded, resources)
    except DeploymentError as problem:
        if not confirmed:
            raise
        click.echo(
            f"{WARN_PREFIX}{problem}; --confirm-active is {confirmed}, so the journal of this machine is used", err=True
        )
        return {CONFIRM_VARIABLE: confirmed}
    if record is None:
        second = loaded.spec.recovery.region if loaded.spec.recovery else "the second region"
        raise UsageError(
            f"the state of {loaded.name} contains no replica of the evidence bucket in {second}, so there is no place for the "
            f"record of the active region; deploy the stack first, and run `gpuinfra ready {as_argument(loaded.path)}`"
        )
    for journal in journals:
        journal.share(record)
    return {}


def check_start(declared: LoadedStack, project: Path, confirmed: str | None) -> None:
    """Raise `DeploymentError` if the stack runs in a different region, or if the record cannot be read and `--confirm-active` is not set."""
    from gpuinfra.clouds.region.active import elsewhere

    own, stack = declared.spec.where.region, as_argument(declared.path)
    if confirmed not in (None, own):
        raise UsageError(f"--confirm-active is {confirmed}; allowed: {own}, the region of {declared.name}")
    if declared.spec.recovery is None:
        return
    try:
        record = record_of(declared, exported(declared.name, project=project))
    except NoStack:
        return
    except DeploymentError as problem:
        if confirmed:
            click.echo(f"{WARN_PREFIX}{problem}; --confirm-active is {own}, so the deployment continues", err=True)
            return
        raise DeploymentError(f"{problem}; if {own} is the active region, add --confirm-active {own}") from None
    if record and record.active and record.region != own:
        back = f"gpuinfra failback {stack}"
        abort = f"gpuinfra failover {stack} --to {declared.spec.recovery.region} --abort"
        raise DeploymentError(elsewhere(declared.name, record.active, own, failback=back, abort=abort))


def active_elsewhere(loaded: LoadedStack, resources: Resources) -> ActiveRegion | None:
    """Return the record if the stack runs in its second region, for a command that changes nothing. If it cannot be read, a warning is printed."""
    try:
        record = record_of(loaded, resources)
    except DeploymentError as problem:
        click.echo(f"{WARN_PREFIX}{problem}", err=True)
        return None
    return record.active if record and record.active and record.region != loaded.spec.where.region else None
