"""The software lock of a pool."""

from __future__ import annotations

from gpuinfra.catalog.records import MachineType
from gpuinfra.software.cloud import CloudSoftware
from gpuinfra.software.images import NodeImage
from gpuinfra.software.lock import LockRequest, SoftwareLock, lock
from gpuinfra.spec.image import CustomImage
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.monitoring import CONTROL_POOL
from gpuinfra.spec.pool import Pool


def pool_lock(
    spec: ClusterSpec, pool: Pool, machine: MachineType, cloud: CloudSoftware, image: NodeImage
) -> SoftwareLock:
    """Return the versions for a pool with an image."""
    software = spec.software
    return lock(
        machine,
        LockRequest(
            cloud=cloud,
            os=image.os,
            prebuilt=image.prebuilt,
            release=image.release,
            branch=image.branch,
            own_image=isinstance(pool.image or software.image, CustomImage),
            pinned=image.date is not None,
            lustre=any(entry.kind == "lustre" for entry in spec.storage),
            buckets=any(entry.kind == "object" for entry in spec.storage),
            driver=software.driver,
            fabric_manager=software.fabric_manager,
            cuda=software.cuda,
            nccl=software.nccl,
            kernel=software.kernel,
            torch=software.framework.torch,
            tensorflow=software.framework.tensorflow,
            jax_cuda=software.framework.jax_cuda,
            registry=software.registry,
            fabric=pool.fabric != "none",
            containers=software.containers,
            gpu_metrics="dcgm_exporter" if spec.monitoring else software.gpu_metrics,
            monitored=spec.monitoring is not None,
            logs=spec.logs is not None,
            control=spec.monitoring is not None and pool.name == CONTROL_POOL,
            kinds=frozenset(entry.kind for entry in pool.capacity),
        ),
    )
