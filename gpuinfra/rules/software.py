"""Rules about versions: what is known not to work together, before anything is bought."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date

from gpuinfra.catalog import mig
from gpuinfra.clouds import profile_of
from gpuinfra.clouds.machines import machines_of
from gpuinfra.clouds.profile import Rule
from gpuinfra.findings import Finding, error
from gpuinfra.node.dcgm import LEVELS
from gpuinfra.node.heat import LIMIT_S as HEAT_S
from gpuinfra.software.pool import pool_lock
from gpuinfra.spec.model import ClusterSpec

_PATHS = {
    "torch": "software.framework.torch",
    "tensorflow": "software.framework.tensorflow",
    "jax": "software.framework.jax_cuda",
    "lustre_client": "software.kernel",
}


_STEPS_S = 20 * 60
_NEEDED_MINUTES = {
    1: 0,
    2: math.ceil((_STEPS_S + LEVELS[2][1]) / 60),
    3: math.ceil((_STEPS_S + LEVELS[3][1] + HEAT_S) / 60),
    4: math.ceil((_STEPS_S + LEVELS[4][1] + HEAT_S) / 60),
}
"""Level of burn-in -> minutes from a node's first boot to its evidence, at most; the quick level is part of every wait."""


def mig_layout_fits(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A MIG layout can be made on each GPU of its pool's machine."""
    machines = machines_of(spec)
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        if pool.mig and machine is not None:
            wrong = mig.problem(machine.gpu, pool.mig)
            if wrong:
                yield error(
                    mig_layout_fits,
                    f"pools[{i}].mig",
                    f"is {', '.join(pool.mig)}: {wrong.partition('; ')[0]}",
                    wrong.partition("; ")[2] or "choose other profiles, or leave mig out for whole GPUs",
                )


def burn_in_has_time(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The deadline of the handover leaves time for the burn-in that it asks for."""
    level, needed = LEVELS[spec.handover.burn_in][0], _NEEDED_MINUTES[spec.handover.burn_in]
    if spec.handover.deadline_minutes < needed and spec.handover.wait != "none" and spec.pools:
        yield error(
            burn_in_has_time,
            "handover.deadline_minutes",
            f"is {spec.handover.deadline_minutes}, but burn-in level {spec.handover.burn_in} ({level}) may take {needed} minutes with the steps before it",
            f"set it to {needed} or more, or lower handover.burn_in",
        )


def software_goes_together(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Driver, fabric manager, CUDA, NCCL, frameworks, fabric and Lustre client go with each other and with the machine."""
    machines = machines_of(spec)
    cloud = profile_of(spec.cloud)
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        if machine is None:
            continue
        image, _ = cloud.image(spec, pool, machine)
        for conflict in pool_lock(spec, pool, machine, cloud.software, os=image.os, prebuilt=image.prebuilt).conflicts:
            path = _PATHS.get(conflict.name, f"software.{conflict.name}")
            if conflict.name in ("tcpx", "tcpxo", "gib", "doca_ofed"):
                path = f"pools[{i}].image"
            yield error(
                software_goes_together, path, f"does not go with {machine.name}: {conflict.message}", conflict.hint
            )


RULES: tuple[Rule, ...] = (software_goes_together, mig_layout_fits, burn_in_has_time)
