"""The programs in `examples/`, with PyTorch and CPU tensors, started by `gpuinfra run -N` over real OpenSSH.

PyTorch is no test dependency, because its packages contain gigabytes of CUDA. Set GPUINFRA_TORCH_PYTHON to a Python that has it.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from .remote.conftest import lab
from .remote.servers import Lab, needed
from .remote.test_run import fleet, gpuinfra, hosts_file
from .servers import free_port

__all__ = ["fleet", "lab"]
PYTHON = os.environ.get("GPUINFRA_TORCH_PYTHON", "")
EXAMPLES = Path(__file__).parents[1] / "examples"
pytestmark = [
    needed(),
    pytest.mark.long,
    pytest.mark.skipif(not PYTHON, reason="GPUINFRA_TORCH_PYTHON is not set to a Python with PyTorch"),
]
CPU = "--backend gloo --device cpu"
TORCHRUN = (
    "-m torch.distributed.run --nnodes $NNODES --node-rank $NODE_RANK --nproc-per-node 2"
    " --master-addr $MASTER_ADDR --master-port $MASTER_PORT"
)
MPI = (
    "export OMPI_COMM_WORLD_RANK=$NODE_RANK OMPI_COMM_WORLD_SIZE=$NNODES OMPI_COMM_WORLD_LOCAL_RANK=0; unset NODE_RANK;"
)


@pytest.fixture
def example(lab: Lab, fleet: dict[str, Any], tmp_path: Path) -> Any:
    """Run an example on two hosts, and return its output without the names of the hosts."""
    calls = iter(range(100))

    def run(line: str) -> list[str]:
        port = str(free_port())
        logs = str(tmp_path / f"logs-{next(calls)}")
        words = ("run", "-N", "2", "--port", port, "--logs", logs, "--hosts", hosts_file(lab, fleet))
        done = gpuinfra(*words, "--", f"export OMP_NUM_THREADS=1; {line}")
        assert done.returncode == 0, done.stdout + done.stderr
        return [one.partition(" | ")[2] for one in done.stdout.splitlines()]

    return run


@pytest.mark.parametrize(
    ("before", "launcher", "ranks"), [("", "", 2), ("", TORCHRUN, 4), (MPI, "", 2)], ids=["nodes", "torchrun", "mpirun"]
)
def test_all_reduce(example: Any, before: str, launcher: str, ranks: int) -> None:
    """The all-reduce finds its ranks, is correct, and reports one line for each size with the bus bandwidth of nccl-tests."""
    lines = example(
        f"{before} {shlex.quote(PYTHON)} {launcher} {EXAMPLES}/all_reduce.py {CPU} --mib 0.5 2 --iterations 3"
    )
    assert any(one.startswith(f"# {ranks} ranks, gloo, cpu") for one in lines)
    rows = [one.split() for one in lines if one.lstrip()[:1].isdigit()]
    assert [(row[0], row[4]) for row in rows] == [("524288", "0"), ("2097152", "0")]
    for size, time_us, algorithm, bus, _ in rows:
        assert float(algorithm) == pytest.approx(int(size) / float(time_us) / 1e3, abs=0.01)
        assert float(bus) == pytest.approx(float(algorithm) * 2 * (ranks - 1) / ranks, abs=0.02)


def test_training_resumes_from_its_checkpoint(example: Any, tmp_path: Path) -> None:
    """A job that resumes computes the same losses as a job without interruption."""
    line = f"{shlex.quote(PYTHON)} {EXAMPLES}/train.py {CPU} --every 5"
    first = example(f"{line} --steps 10 --checkpoint {tmp_path}/a/checkpoint")
    second = example(f"{line} --steps 20 --checkpoint {tmp_path}/a/checkpoint")
    whole = example(f"{line} --steps 20 --checkpoint {tmp_path}/b")
    assert any("start at step 10" in one for one in second)
    losses = [[one for one in lines if one.startswith("step ")] for lines in (first, second, whole)]
    assert [one.split()[1] for one in losses[2]] == ["5", "10", "15", "20"]
    assert losses[0] + losses[1] == losses[2]
