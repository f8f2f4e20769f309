"""Stops a Pulumi program in a region from which the stack has failed over, before it registers a resource of the cloud.

The program asks the engine for the outputs of its own last deployment, which contain the replica of the evidence bucket, and reads the record of the active
region there. `pulumi up` runs the program in its preview first, so nothing has changed when it fails. `pulumi destroy` does not run the program.
"""

from __future__ import annotations

import os

import pulumi

from gpuinfra.base.errors import GpuinfraError
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region.active import CONFIRM_VARIABLE, SharedRecord, elsewhere, place_of, unreadable
from gpuinfra.clouds.region.failover import Unreachable
from gpuinfra.clouds.saved import saved_resources
from gpuinfra.plan.model import Plan


def check_active(name: str, plan: Plan) -> bool:
    """Raise `RunError` if the cluster with this logical name runs in its second region, or if that is unknown, in which case a preview warns.

    Returns whether a failback, or the undoing of a failover, deploys the cluster and is not finished."""
    if plan.recovery is None:
        return False
    stack, cloud, region = pulumi.get_stack(), cloud_of(plan.cloud), plan.region
    confirmed = os.environ.get(CONFIRM_VARIABLE) == region
    try:
        place = place_of(saved_resources(), name)
        store = cloud.record(place, plan.recovery.region, _settings(plan.cloud)) if place else None
        record = SharedRecord(store, stack, region) if store else None
    except (Unreachable, GpuinfraError, pulumi.RunError) as problem:
        confirm = f"set {CONFIRM_VARIABLE}={region}, or run `gpuinfra up` with --confirm-active {region}"
        text = f"{unreadable(stack, problem)}; if {region} is the active region, {confirm}"
        if not confirmed and not pulumi.runtime.is_dry_run():
            raise pulumi.RunError(text) from None
        pulumi.log.warn(text)
        return False
    if record and record.active and record.region != region:
        back = f"gpuinfra failback {stack}"
        abort = f"gpuinfra failover {stack} --to {plan.recovery.region} --abort"
        raise pulumi.RunError(elsewhere(stack, record.active, region, failback=back, abort=abort))
    return record is not None and record.returns


def _settings(cloud: str) -> dict[str, object]:
    """Return the provider settings of the running stack that select credentials and contain none, such as `aws:profile`."""
    preflight = cloud_of(cloud).preflight
    settings: dict[str, object] = {}
    for name, is_credential in preflight.SETTINGS.items() if preflight else ():
        package, _, key = name.partition(":")
        if not is_credential and (value := pulumi.Config(package).get(key)):
            settings[name] = value
    return settings
