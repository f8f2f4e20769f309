"""The table of measured throughput: each row has its source, commit, convention, precision and number of GPUs."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path

from gpuinfra.sizing.devices import ARCHITECTURE, DEVICES, Precision

_FILE = Path(__file__).with_name("measured.json")


class MeasuredKind(StrEnum):
    """What a row measures."""

    STEP = "step"
    """Steps in a steady state, tuned by the publisher."""
    BENCHMARK = "benchmark"
    """A MLPerf result: training from the start to the quality target, with evaluations."""
    RUN = "run"
    """A whole run by wall time: with restarts, evaluations, checkpoints and idle GPUs."""


class SizingGoal(StrEnum):
    """What a job does."""

    PRETRAIN = "pretrain"
    FULL = "full"
    LORA = "lora"
    QLORA = "qlora"
    INFERENCE = "inference"

    @property
    def is_adapter(self) -> bool:
        """Whether only an adapter is trained."""
        return self in (SizingGoal.LORA, SizingGoal.QLORA)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredSource:
    """Where a row was read."""

    source: str
    commit: str
    group: str
    """Rows of one group share an author, and are left out together."""
    convention: str
    read: date
    note: str = ""
    other_device: bool = False
    """Whether the GPUs of the source differ from those that clouds offer, as `note` describes."""

    def __str__(self) -> str:
        commit = f" at {self.commit[:8]}" if self.commit else ""
        return f"{self.source}{commit}"


@dataclass(frozen=True, kw_only=True)
class MeasuredRow:
    """A measured throughput."""

    source: MeasuredSource
    model: str
    setup: str
    """What the source states about the run besides the other fields: format, container, or the submission. Empty if nothing."""
    kind: MeasuredKind
    goal: SizingGoal
    parameters: float
    active: float
    layers: int
    hidden: int
    sequence: int
    gpu: str
    gpus: int | None
    """None if the source does not print the number."""
    precision: Precision
    tokens_per_s: float
    """Tokens per second and GPU."""

    @property
    def what(self) -> str:
        """Model and setup."""
        return ", ".join(filter(None, (self.model, self.setup)))

    @property
    def is_moe(self) -> bool:
        """Whether the model is a mixture of experts."""
        return self.active < 0.98 * self.parameters

    @property
    def flops_per_token(self) -> float:
        """FLOPs per token as in `ModelShape.flops_per_token`. LoRA needs no weight gradients: 4 N instead of 6 N."""
        factor = 4 if self.goal.is_adapter else 6
        return factor * self.active + factor * self.layers * self.hidden * self.sequence

    @cached_property
    def utilization(self) -> float:
        """Model FLOPs per second relative to the dense BF16 peak of the GPU."""
        return self.tokens_per_s * self.flops_per_token / (DEVICES[self.gpu].bf16_tflops * 1e12)

    @cached_property
    def family(self) -> str:
        """The GPUs within which rows are interpolated."""
        return ARCHITECTURE[self.gpu]

    def __str__(self) -> str:
        count = f"{self.gpus:,} x " if self.gpus else ""
        kind = {MeasuredKind.STEP: "step time", MeasuredKind.BENCHMARK: "MLPerf", MeasuredKind.RUN: "whole run"}[
            self.kind
        ]
        return f"{self.what}, {count}{self.gpu}, {self.precision.value.upper()}, {self.tokens_per_s:,.0f} tokens/s per GPU ({kind}; {self.source})"


@cache
def measured_rows(without: frozenset[str] = frozenset()) -> tuple[MeasuredRow, ...]:
    """Return all rows. Rows whose group is in `without` are left out."""
    content = json.loads(_FILE.read_text(encoding="utf-8"))
    sources = {
        key: MeasuredSource(
            source=row["source"],
            commit=row["commit"],
            group=row["group"],
            convention=row["convention"],
            read=date.fromisoformat(row["read"]),
            note=row.get("note", ""),
            other_device=row.get("other_device", False),
        )
        for key, row in content["sources"].items()
    }  # fmt: skip
    rows = []
    for values in content["rows"]:
        row = dict(zip(content["columns"], values, strict=True))
        if sources[row["source"]].group in without:
            continue
        rows.append(
            MeasuredRow(
                source=sources[row["source"]],
                model=row["model"],
                setup=row["setup"],
                kind=MeasuredKind(row["kind"]),
                goal=SizingGoal(row["goal"]),
                parameters=row["total_b"] * 1e9,
                active=row["active_b"] * 1e9,
                layers=row["layers"],
                hidden=row["hidden"],
                sequence=row["sequence"],
                gpu=row["gpu"],
                gpus=row["gpus"],
                precision=Precision(row["precision"]),
                tokens_per_s=row["tokens_per_s_per_gpu"],
            )
        )
    return tuple(rows)


def source_groups() -> Collection[str]:
    """Return the groups of the table, which `without` accepts."""
    return dict.fromkeys(row.source.group for row in measured_rows())
