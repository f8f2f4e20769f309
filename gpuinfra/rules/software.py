"""Rules about versions: what is known not to work together, before anything is bought."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from gpuinfra.clouds import profile_of
from gpuinfra.clouds.profile import Rule
from gpuinfra.rules.finding import Finding
from gpuinfra.rules.say import error
from gpuinfra.spec.machines import machines_of
from gpuinfra.spec.model import ClusterSpec

_PATHS = {
    "torch": "software.framework.torch",
    "tensorflow": "software.framework.tensorflow",
    "jax": "software.framework.jax_cuda",
    "lustre_client": "software.kernel",
}


def software_goes_together(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Driver, fabric manager, CUDA, NCCL, frameworks, fabric and Lustre client go with each other and with the machine."""
    from gpuinfra.plan.make import pool_lock

    machines = machines_of(spec)
    cloud = profile_of(spec.cloud)
    for i, pool in enumerate(spec.pools):
        machine = machines.get(pool.machine)
        if machine is None:
            continue
        image, _ = cloud.image(spec, pool, machine)
        for conflict in pool_lock(spec, pool, machine, image).conflicts:
            path = _PATHS.get(conflict.piece, f"software.{conflict.piece}")
            if conflict.piece in ("tcpx", "tcpxo", "gib", "doca_ofed"):
                path = f"pools[{i}].image"
            yield error(
                software_goes_together, path, f"does not go with {machine.name}: {conflict.message}", conflict.hint
            )


RULES: tuple[Rule, ...] = (software_goes_together,)
