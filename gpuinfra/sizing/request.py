"""What is asked of `gpuinfra size`, and the checks of it. A wrong request raises `UsageError` with the option, the value, what is allowed and the fix."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuinfra.base.errors import UsageError
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.sizing.devices import DEVICES, Precision
from gpuinfra.sizing.measured import SizingGoal
from gpuinfra.sizing.memory import Recipe, Recompute
from gpuinfra.sizing.shape import ModelShape

_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
MOST_TOKENS = 1e15
MOST_DAYS = 3650.0
ASSUMED_DAYS = 30.0
"""Deadline if neither a deadline nor a budget is given."""
BATCH_TOKENS = 4e6
"""Tokens of a training step: 4 million in most published runs (arXiv 2307.09288 section 2.2)."""


def quantity(option: str, text: str) -> float:
    """Return the number in `2T`, `500B`, `1.5M` or `52000`. Raises `UsageError`."""
    match = re.fullmatch(
        r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]{1,2})?)\s*([kmbt]?)", text.strip().lower().replace(",", "").replace("_", "")
    )
    if not match:
        raise UsageError(
            f"{option} is {text[:40]!r}; allowed: a number above 0 with an optional unit K, M, B or T; write it as 2T or 500B"
        )
    return float(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True, kw_only=True)
class SizingRequest:
    """A job to size. `check` raises `UsageError` for values that no job has."""

    model: ModelShape
    goal: SizingGoal = SizingGoal.PRETRAIN
    tokens: float = 0.0
    """Training tokens. Not used for inference."""
    days: float | None = None
    """Deadline in days."""
    usd: float | None = None
    """Budget for the machines in USD."""
    precision: Precision | None = None
    """None for the precision of published runs on each GPU."""
    sequence: int = 4096
    recipe: Recipe = Recipe.ADAMW
    rank: int = 16
    """Rank of LoRA."""
    micro_batch: int = 1
    recompute: Recompute | None = None
    """None for the first of both that fits, without recomputation first."""
    batch_tokens: float = BATCH_TOKENS
    gpu: str | None = None
    """Only machines with this GPU."""
    gpus: int | None = None
    """Exactly this number of GPUs."""
    machine: str | None = None
    clouds: tuple[str, ...] = ()
    region: str | None = None
    kinds: tuple[CapacityKind, ...] = ()
    context: int = 8192
    """Tokens of one request and its answer, for inference."""
    concurrency: int = 0
    """Requests at the same time, for inference."""
    weight_bits: int = 16
    """Bits of a weight for inference: 16, 8 or 4."""
    without: frozenset[str] = frozenset()
    """Source groups of measurements to leave out."""

    @property
    def deadline(self) -> float:
        """The deadline, or the assumed one if there is neither a deadline nor a budget."""
        return self.days or (MOST_DAYS if self.usd else ASSUMED_DAYS)

    def check(self) -> None:
        """Raise `UsageError` for the first impossible value."""
        training = self.goal is not SizingGoal.INFERENCE
        if training and not 0 < self.tokens <= MOST_TOKENS:
            raise UsageError(
                f"--tokens is {self.tokens:g}; allowed: more than 0 and at most 1000T; "
                "a job without tokens has nothing to train on: set --tokens 500B or --examples 50000"
            )
        if not training and self.tokens:
            raise UsageError(
                "--tokens applies to training; for --goal inference set --context and --concurrency instead"
            )
        if not training and self.concurrency < 1:
            raise UsageError(
                "--concurrency is missing; allowed: 1 to 1,000,000 requests at the same time; set --concurrency 64"
            )
        for option, value, low, high, unit in (
            ("--days", self.days, 0.01, MOST_DAYS, "days"),
            ("--usd", self.usd, 1, 1e12, "USD"),
            ("--sequence", self.sequence, 16, 4_000_000, "tokens"),
            ("--rank", self.rank, 1, 4096, ""),
            ("--micro-batch", self.micro_batch, 1, 4096, "sequences"),
            ("--gpus", self.gpus, 1, 200_000, "GPUs"),
            ("--context", self.context, 16, 10_000_000, "tokens"),
            ("--concurrency", self.concurrency or None, 1, 1_000_000, "requests"),
        ):
            if value is not None and not low <= value <= high:
                raise UsageError(
                    f"{option} is {value:g}; allowed: {low:,g} to {high:,g} {unit}".rstrip() + f"; change {option}"
                )
        if self.batch_tokens < self.sequence:
            raise UsageError(
                f"--batch-tokens is {self.batch_tokens:g}; allowed: at least one sequence, {self.sequence}; raise --batch-tokens or lower --sequence"
            )
        if self.gpu is not None and self.gpu not in DEVICES:
            from difflib import get_close_matches

            near = get_close_matches(self.gpu.upper(), DEVICES, n=1, cutoff=0.3)
            raise UsageError(
                f"--gpu is {self.gpu[:40]!r}; allowed: {', '.join(DEVICES)}; "
                + (f"did you mean {near[0]}?" if near else "use one of these")
            )
        if self.gpu and self.precision and not DEVICES[self.gpu].supports(self.precision):
            raise UsageError(
                f"--precision is {self.precision.value}, which {self.gpu} does not support; use --precision bf16, or a GPU such as H100"
            )
        if self.goal.is_adapter and self.recipe is not Recipe.ADAMW:
            raise UsageError(
                f"--recipe is {self.recipe.value}, but --goal {self.goal.value} trains only an adapter; omit --recipe"
            )
        if self.model.assumed is False and self.goal is SizingGoal.PRETRAIN and self.sequence > 1_000_000:
            raise UsageError(
                f"--sequence is {self.sequence}; allowed: at most 1,000,000 tokens for pre-training; lower --sequence"
            )
