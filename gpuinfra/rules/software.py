"""Rules about software versions. They report incompatible versions before you pay for nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error
from gpuinfra.catalog import mig
from gpuinfra.clouds import images
from gpuinfra.plan.fabric_test import obstacle, one_node_is_enough
from gpuinfra.plan.machines import pools_of
from gpuinfra.plan.profile import profile_of
from gpuinfra.software.pool import pool_lock
from gpuinfra.spec.image import CustomImage
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.rule import rules_in

_PATHS = {
    "torch": "software.framework.torch",
    "tensorflow": "software.framework.tensorflow",
    "jax": "software.framework.jax_cuda",
    "lustre_client": "software.kernel",
    "enroot": "software.containers",
}


_STEPS_S = 20 * 60
"""Maximum duration of the bootstrap steps in seconds."""


def software_is_compatible(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Driver, fabric manager, CUDA, NCCL, frameworks, fabric, and Lustre client are compatible with each other and with the machine type."""
    cloud = profile_of(spec.cloud)
    software = spec.model_dump(include={"software"}, exclude_defaults=True).get("software", {})
    declared = {f"software.{name}" for name, value in software.items() if value}
    declared |= {f"software.framework.{name}" for name in software.get("framework", {})}
    for path, pool, machine in pools_of(spec):
        image, _ = cloud.image(spec, pool, machine)
        conflicts = pool_lock(spec, pool, machine, cloud.software, image).conflicts
        fields = [
            images.where(pool, path)
            if conflict.of_image
            else f"{path}.image"
            if conflict.name in ("tcpx", "tcpxo", "gib", "doca_ofed")
            else _PATHS.get(conflict.name, f"software.{conflict.name}")
            for conflict in conflicts
        ]
        # The lock derives the versions that the declaration omits, so their conflicts follow from the declared ones.
        # A package that requires a specific driver conflicts with each rejected driver.
        cause = declared.intersection(fields)
        cause = cause & {"software.driver"} or cause
        for field, conflict in zip(fields, conflicts, strict=True):
            if not cause or field in cause:
                yield error(field, f"is not compatible with {machine.name}: {conflict.message}", conflict.hint)


def image_release_exists(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The release date of an image is a valid date, is not in the future, and is used only for machine types for which the cloud publishes GPU images."""
    cloud = profile_of(spec.cloud)
    for path, pool, machine in pools_of(spec):
        wanted = images.wanted(spec, pool)
        if not isinstance(wanted, str) or wanted in images.WORDS:
            continue
        where, day = images.where(pool, path), images.day(wanted)
        if day is None:
            yield error(where, f"is {wanted}, which is not a date", "use the date in the name of a release")
        elif day > today:
            yield error(where, f"is {wanted}, which is in the future", "use the date in the name of a release")
        elif pool.image and not cloud.image(spec, pool, machine)[0].prebuilt:
            what = f"is a release date, but {cloud.title} publishes no GPU image for {machine.name}"
            yield error(where, what, "set it to default or plain, or declare an image by its ID")


def image_os_is_declared_once(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """If a pool selects an image by ID, `image.os` is required. A release from the catalog must match the declared operating system and architecture."""
    cloud = profile_of(spec.cloud)
    for path, pool, machine in pools_of(spec):
        wanted = images.wanted(spec, pool)
        if not isinstance(wanted, CustomImage):
            continue
        where = images.where(pool, path)
        if pool.os and pool.os != wanted.os:
            what = f"is {pool.os}, but the image of this pool has os: {wanted.os}"
            yield error(f"{path}.os", what, f"remove it, and set {where}.os")
        image, _ = cloud.image(spec, pool, machine)
        family = next((one for one in cloud.image_families if one.name == image.family), None)
        if family and family.os != wanted.os:
            yield error(f"{where}.os", f"is {wanted.os}, but {wanted.ref} is {family.os}", f"set it to {family.os}")


def nvlink_domain_has_its_service(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The pool has no GPUs that share an NVLink domain with other nodes, because no step installs `nvidia-imex`, which they require."""
    for path, pool, machine in pools_of(spec):
        if machine.gpu and machine.gpu.needs_imex:
            what = f"is {pool.machine}, whose {machine.gpu.key} GPUs share an NVLink domain with other nodes; no step installs nvidia-imex, which they require"
            yield error(f"{path}.machine", what, "use a machine type with B200 or B300 GPUs")


def container_runtimes_are_supported(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """Each container runtime is listed once and can be installed. Pyxis is a Slurm plugin, and gpuinfra does not support Slurm."""
    listed = spec.software.containers
    for name in sorted({name for name in listed if listed.count(name) > 1}):
        yield error("software.containers", f"lists {name} {listed.count(name)} times", "list each runtime once")
    if "pyxis" in listed:
        what = (
            "lists pyxis, a Slurm plugin that is compiled for one Slurm release; gpuinfra does not support schedulers"
        )
        yield error("software.containers", what, "remove pyxis, and use enroot to run containers on the nodes")


def gpu_metrics_have_gpus(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """An exporter of GPU metrics is requested only for clusters with GPUs."""
    machines = [machine for _, _, machine in pools_of(spec)]
    if spec.software.gpu_metrics != "none" and machines and not any(machine.gpu for machine in machines):
        what = f"is {spec.software.gpu_metrics}, but no pool has GPUs"
        yield error("software.gpu_metrics", what, "set it to none, or add a pool with GPUs")


def mig_layout_fits(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The MIG layout of a pool fits each GPU of its machine type."""
    for path, pool, machine in pools_of(spec):
        if pool.mig and (wrong := mig.problem(machine.gpu, pool.mig)):
            what, _, hint = wrong.partition("; ")
            hint = hint or "use different profiles, or remove mig to use whole GPUs"
            yield error(f"{path}.mig", f"is {', '.join(pool.mig)}: {what}", hint)


def deadline_covers_burn_in(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """The handover deadline is long enough for the burn-in level."""
    if spec.handover.burn_in == 1 or spec.handover.wait == "none" or not spec.pools:
        return  # Every deadline covers level 1.
    from gpuinfra.node.dcgm import LEVELS
    from gpuinfra.node.heat import LIMIT_S

    level, limit_s = LEVELS[spec.handover.burn_in]
    heat_s = LIMIT_S if spec.handover.burn_in > 2 else 0
    needed = math.ceil((_STEPS_S + limit_s + heat_s) / 60)
    if spec.handover.deadline_minutes < needed:
        yield error(
            "handover.deadline_minutes",
            f"is {spec.handover.deadline_minutes}, but the steps and burn-in level {spec.handover.burn_in} ({level}) take up to {needed} minutes",
            f"set it to {needed} or more, or reduce handover.burn_in",
        )


def fabric_test_is_possible(spec: ClusterSpec, today: date) -> Iterator[Finding]:
    """A required fabric test is possible in each pool with GPUs, at least one pool has GPUs,
    and a pool of several nodes does not have a floor of one node. By default, only the pools that can be tested have the test."""
    pools = list(pools_of(spec))
    if spec.handover.fabric_test != "required" or not pools or len(pools) < len(spec.pools):
        return  # Another rule reports an unknown machine type.
    with_gpus = [(pool, machine) for _, pool, machine in pools if machine.gpu] or [one[1:] for one in pools]
    reasons = [f"{pool.name} ({reason})" for pool, machine in with_gpus if (reason := obstacle(pool, machine))]
    if reasons:
        what = f"is required, but not possible in {'this pool' if len(reasons) == 1 else 'these pools'}: {', '.join(reasons)}"
        yield error("handover.fabric_test", what, "set it to auto to test only the pools that can be tested")
    elif one_node_is_enough(spec) and any(pool.nodes > 1 for pool, _ in with_gpus):
        what = "is required, but handover.floor is 1: if one node launches, it has no partner for the test"
        yield error("handover.fabric_test", what, "set handover.floor to 2 or more, or set fabric_test to auto or off")


RULES = rules_in(vars())
