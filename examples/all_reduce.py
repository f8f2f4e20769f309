"""Measures and verifies an all-reduce over the GPUs of several nodes with torch.distributed.

Each line has the columns of nccl-tests: size, time, algorithm bandwidth, bus bandwidth, and number of wrong elements.
Bus bandwidth is size / time * 2 * (n - 1) / n for n ranks (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
The time is that of the slowest rank. The exit code is 1 if an element is wrong. Launch commands: docs/guides/jobs.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist

WARMUP = 5


def join(backend: str, device: str) -> torch.device:
    """Join the process group and return the device of this process.

    The ranks come from torchrun or `gpuinfra run --per-gpu`, from mpirun, or from `gpuinfra run -N` with one process for each node.
    """
    for name, others in {
        "RANK": ("OMPI_COMM_WORLD_RANK", "NODE_RANK"),
        "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "NNODES"),
        "LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_RANK",),
    }.items():
        found = [os.environ[one] for one in (name, *others) if one in os.environ]
        os.environ[name] = found[0] if found else "0" if name == "LOCAL_RANK" else ""
    if missing := [one for one in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(one)]:
        sys.exit(f"{', '.join(missing)} not set; start this program with `gpuinfra run -N`, torchrun or mpirun")
    local = int(os.environ["LOCAL_RANK"])
    if device == "cuda":
        if local >= torch.cuda.device_count():
            sys.exit(f"LOCAL_RANK is {local}, but this node has {torch.cuda.device_count()} GPUs; start one process for each GPU")  # fmt: skip
        torch.cuda.set_device(local)
    dist.init_process_group(backend)
    return torch.device(device, local) if device == "cuda" else torch.device(device)


def wrong_elements(count: int, device: torch.device) -> int:
    """Return the number of wrong elements on all ranks after one all-reduce of known values."""
    ranks = dist.get_world_size()
    base = torch.arange(count, device=device) % 1000
    values = (base + dist.get_rank()).float()
    dist.all_reduce(values)
    # The sums are exact in float32 for up to 10,000 ranks.
    wrong = (values != (base * ranks + ranks * (ranks - 1) // 2).float()).sum()
    dist.all_reduce(wrong)
    return int(wrong)


def seconds(count: int, iterations: int, device: torch.device) -> float:
    """Return the time of one all-reduce on the slowest rank."""
    values = torch.zeros(count, device=device)
    start = 0.0
    for number in range(-WARMUP, iterations):
        if number == 0:
            wait(device)
            start = time.perf_counter()
        dist.all_reduce(values)
    wait(device)
    slowest = torch.tensor((time.perf_counter() - start) / iterations, dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


def wait(device: torch.device) -> None:
    """Wait until the device has no work left."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> int:
    """Measure each size. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Measure and verify an all-reduce.")
    parser.add_argument("--backend", default="nccl", choices=("nccl", "gloo"))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--mib", type=float, nargs="+", default=[1, 8, 64, 256, 1024], help="sizes in MiB")
    parser.add_argument("--iterations", type=int, default=20, help="measured iterations for each size")
    options = parser.parse_args()
    device = join(options.backend, options.device)
    ranks, total = dist.get_world_size(), 0
    if dist.get_rank() == 0:
        print(f"# {ranks} ranks, {options.backend}, {options.device}, PyTorch {torch.__version__}")
        print(
            f"#{'size (B)':>13} {'time (us)':>12} {'algbw (GB/s)':>13} {'busbw (GB/s)':>13} {'#wrong':>8}", flush=True
        )
    for mib in options.mib:
        count = max(1, int(mib * 2**20) // 4)
        wrong, time_s = wrong_elements(count, device), seconds(count, options.iterations, device)
        algorithm = count * 4 / time_s / 1e9
        total += wrong
        if dist.get_rank() == 0:
            print(f"{count * 4:14} {time_s * 1e6:12.1f} {algorithm:13.2f} {algorithm * 2 * (ranks - 1) / ranks:13.2f} {wrong:8}", flush=True)  # fmt: skip
    dist.destroy_process_group()
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
