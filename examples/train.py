"""Trains a small model with PyTorch DistributedDataParallel, and resumes from a checkpoint.

Rank 0 writes the checkpoint and reads it, so the path does not have to be on a shared file system.
On a shared file system, another node can be rank 0 after a restart.
The data is synthetic and depends only on the step and the rank, so a resumed job computes the same losses as a job without interruption.
Launch commands: docs/guides/jobs.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from all_reduce import join
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 256
BATCH = 64


def batch(step: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inputs and the targets of this rank for one step."""
    generator = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    inputs = torch.randn(BATCH, WIDTH, generator=generator)
    return inputs.to(device), inputs.sin().sum(1, keepdim=True).to(device)


def load(path: Path) -> dict[str, Any] | None:
    """Read the checkpoint on rank 0 and send it to all ranks. Returns None if there is no checkpoint."""
    found: list[Any] = [None]
    if dist.get_rank() == 0 and path.exists():
        found[0] = torch.load(path, map_location="cpu")
    dist.broadcast_object_list(found, src=0)
    return found[0]


def save(path: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write the checkpoint on rank 0. The previous checkpoint stays valid until the new one is complete."""
    if dist.get_rank() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(path.name + ".new")
        with new.open("wb") as file:
            torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)


def mean(value: torch.Tensor) -> float:
    """Return the mean of a value over all ranks."""
    value = value.detach().clone()
    dist.all_reduce(value)
    return float(value) / dist.get_world_size()


def main() -> int:
    """Train up to `--steps`. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Train a small model.")
    parser.add_argument("--backend", default="nccl", choices=("nccl", "gloo"))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--steps", type=int, default=200, help="last step")
    parser.add_argument("--every", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--checkpoint", type=Path, required=True, help="path of the checkpoint, to save and to resume")
    options = parser.parse_args()
    device = join(options.backend, options.device)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = 0
    if state := load(options.checkpoint):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    parallel = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    leader = dist.get_rank() == 0
    if leader:
        print(f"{dist.get_world_size()} ranks, {options.backend}, {options.device}, start at step {first}", flush=True)
    for step in range(first + 1, options.steps + 1):
        inputs, targets = batch(step, device)
        loss = nn.functional.mse_loss(parallel(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % options.every == 0 or step == options.steps:
            shown = mean(loss)
            save(options.checkpoint, step, model, optimizer)
            if leader:
                print(f"step {step} loss {shown:.6f}", flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
