"""Published runs with the questions that they answer. Each is predicted without the rows of its source."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuinfra.sizing.devices import Precision
from gpuinfra.sizing.measured import SizingGoal
from gpuinfra.sizing.shape import ModelShape
from gpuinfra.sizing.throughput import PredictedThroughput, TrainingQuestion, predict

GPUS = {
    "A100-40": "A100-40GB", "A100-80": "A100-80GB", "A800-80": "A100-80GB", "H100-80": "H100", "H100-96-HBM2e": "H100", "H200-141": "H200",
    "B200-180": "B200", "B300-270": "B300",
}  # fmt: skip
"""GPU of the record -> GPU of the catalog."""
GROUPS = {
    "bloomberg": "bloomberg", "starcoder": "starcoder", "mpt": "mosaic", "skywork": "skywork", "amber": "amber", "chameleon": "chameleon", "openelm": "openelm",
    "phi": "phi", "olmo": "olmo", "granite": "granite", "mellum": "mellum", "llama4": "llama4", "torchtitan": "torchtitan",
}  # fmt: skip
"""Family of the record -> source group in the table."""
UNKNOWN_COUNT = 1024


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """A run and its prediction without the rows of its source."""

    name: str
    days: float
    tokens_per_s: float
    predicted: PredictedThroughput
    tokens: float

    @property
    def ratio(self) -> float:
        """Predicted days relative to the published ones."""
        return self.tokens / self.predicted.wall_tokens_per_s.middle / 86_400 / self.days

    @property
    def inside(self) -> bool:
        """Whether the published days are inside the predicted range."""
        rate = self.predicted.wall_tokens_per_s
        return self.tokens / rate.high / 86_400 <= self.days <= self.tokens / rate.low / 86_400

    @property
    def throughput_ratio(self) -> float:
        """Predicted tokens per second while training relative to the published ones."""
        return self.predicted.tokens_per_s.middle / self.tokens_per_s


@cache
def records() -> tuple[dict[str, Any], ...]:
    """Return all records."""
    return tuple(json.loads(Path(__file__).with_name("published_runs.json").read_text(encoding="utf-8")))


def of_kind(*kinds: str) -> tuple[dict[str, Any], ...]:
    """Return the records of some kinds."""
    return tuple(record for record in records() if record["kind"] in kinds)


def shape_of(record: dict[str, Any]) -> ModelShape:
    """Return the model of a record. Records without an architecture have usual proportions."""
    from gpuinfra.sizing.shape import model_with

    if "layers" not in record:
        return model_with(record["params_total"], record["params_active"])
    return ModelShape(
        name=record["name"],
        parameters=record["params_total"],
        active=record["params_active"],
        layers=record["layers"],
        hidden=record["hidden"],
        ffn=record["ffn_hidden"],
        gated=record["ffn_matrices"] == 3,
        heads=record["heads"],
        kv_heads=record["kv_heads"],
        head_dim=record["head_dim"],
        vocabulary=record["vocab"],
        tied=record["tied_embeddings"],
    )


def left_out(record: dict[str, Any]) -> frozenset[str]:
    """Return the source groups that a record belongs to. A MLPerf result leaves out its round."""
    if record["kind"].startswith("mlperf"):
        return frozenset({f"mlperf-{record['name'].split()[1].removeprefix('v')}"})
    return frozenset({GROUPS[record["family"]]})


def predicted(record: dict[str, Any], without: frozenset[str] | None = None) -> PublishedRun:
    """Return a run with its prediction."""
    count = record.get("gpu_count") or UNKNOWN_COUNT
    fp8 = record["precision"].startswith("FP8") or record["family"] == "llama4"
    question = TrainingQuestion(
        model=shape_of(record),
        goal=SizingGoal.LORA if record["kind"] == "mlperf_lora" else SizingGoal.PRETRAIN,
        sequence=record.get("seq_len_tokens") or 4096,
        gpu=GPUS[record["gpu"]],
        gpus=count,
        precision=Precision.FP8 if fp8 else Precision.BF16,
    )
    days = record.get("wall_days") or record["gpu_hours"] / count / 24
    return PublishedRun(
        name=record["name"],
        days=days,
        tokens_per_s=record["tokens_per_s_per_gpu"] * count,
        predicted=predict(question, left_out(record) if without is None else without),
        tokens=record["tokens"],
    )


def within(ratios: Sequence[float], factor: float) -> float:
    """Return the share of ratios that differ from 1 by at most a factor."""
    return statistics.fmean(max(ratio, 1 / ratio) <= factor for ratio in ratios)


def typical(ratios: Sequence[float]) -> float:
    """Return the median of the ratios or their inverses, whichever is above 1."""
    return statistics.median(max(ratio, 1 / ratio) for ratio in ratios)
