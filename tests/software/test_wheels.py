"""The lock's NCCL and the wheels of PyTorch."""

from __future__ import annotations

import pytest

from gpuinfra.software.tables import CUDA, DEFAULT_CUDA, NCCL_PACKAGES, TORCH, Wheel
from gpuinfra.software.version import key

WHEELS = {version: wheel for version, wheel in TORCH.items() if wheel.nccl}


def minor(cuda: str) -> str:
    """`13.0` of `13.0.2`."""
    return ".".join(cuda.split(".")[:2])


@pytest.mark.parametrize(("version", "wheel"), WHEELS.items(), ids=list(WHEELS))
def test_the_nccl_of_the_lock_is_that_of_the_wheel_or_the_newest_package(version: str, wheel: Wheel) -> None:
    """For the CUDA version of a wheel, the lock has the wheel's NCCL or a newer one, or the newest published package for that CUDA version."""
    cuda = CUDA[minor(wheel.cuda)]
    pin, _, built_for = cuda.nccl.partition("+cuda")
    newest = max((key(one.partition("-")[0]) for one in NCCL_PACKAGES if one.endswith(f"+cuda{built_for}")), default=())
    locked = key(pin.partition("-")[0])
    assert locked >= min(key(wheel.nccl), newest)
    assert locked[0] == key(wheel.nccl)[0]
    for_this_cuda = [one for one in NCCL_PACKAGES if one.endswith(f"+cuda{minor(wheel.cuda)}")]
    assert not for_this_cuda or built_for == minor(wheel.cuda), (
        f"NCCL packages for CUDA {wheel.cuda} exist: {for_this_cuda}"
    )


def test_the_default_cuda_is_that_of_a_wheel() -> None:
    """A program with the current PyTorch runs on the default driver and CUDA version."""
    assert DEFAULT_CUDA in {minor(wheel.cuda) for wheel in WHEELS.values()}
