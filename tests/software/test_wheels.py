"""The versions of the lock and the wheels of PyTorch, whose requirements are recorded from PyPI in `wheels.json`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gpuinfra.clouds.aws.catalog import MACHINES
from gpuinfra.clouds.aws.software import SOFTWARE
from gpuinfra.software import LockRequest, lock
from gpuinfra.software.tables import CUDA, DEFAULT_CUDA, NCCL_PACKAGES, TORCH, Wheel
from gpuinfra.software.version import key
from gpuinfra.spec.policy import Framework

WHEELS = {version: wheel for version, wheel in TORCH.items() if wheel.nccl}
RECORDED: dict[str, list[str]] = json.loads(Path(__file__).with_name("wheels.json").read_text())["requires_dist"]
EXAMPLES = [str(example) for example in Framework.model_fields["torch"].examples or ()]


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


@pytest.mark.parametrize("version", RECORDED)
def test_the_table_of_wheels_is_what_pypi_says(version: str) -> None:
    """CUDA and NCCL of each wheel in the table are those that the metadata on PyPI require, and each wheel with a NCCL is recorded."""
    required = dict(
        match.groups()
        for line in RECORDED[version]
        if (match := re.match(r"(cuda-toolkit|nvidia-cuda-runtime|nvidia-nccl)[^=;]*==([0-9.]+)", line))
    )
    cuda = required.get("cuda-toolkit") or required["nvidia-cuda-runtime"]
    assert (TORCH[version].cuda, TORCH[version].nccl) == (cuda, required["nvidia-nccl"])
    assert set(RECORDED) == set(WHEELS)


@pytest.mark.parametrize("version", WHEELS)
def test_the_pins_of_the_lock_run_each_wheel(version: str) -> None:
    """The pinned driver with the CUDA version of the wheel has no conflict with the wheel."""
    chosen = lock(
        MACHINES["p4d.24xlarge"],
        LockRequest(
            cloud=SOFTWARE,
            os="ubuntu-22.04",
            prebuilt=False,
            lustre=False,
            cuda=minor(WHEELS[version].cuda),
            torch=version,
        ),
    )
    assert chosen.conflicts == ()


@pytest.mark.parametrize("version", EXAMPLES)
def test_the_wheel_of_an_example_has_the_nccl_of_the_default_lock(version: str) -> None:
    """The PyTorch that the reference gives as an example brings the CUDA version and exactly the NCCL of the default lock."""
    wheel = WHEELS[version]
    assert minor(wheel.cuda) == DEFAULT_CUDA
    assert CUDA[DEFAULT_CUDA].nccl.partition("-")[0] == wheel.nccl


def test_the_default_cuda_is_that_of_a_wheel() -> None:
    """A program with the current PyTorch runs on the default driver and CUDA version."""
    assert DEFAULT_CUDA in {minor(wheel.cuda) for wheel in WHEELS.values()}
