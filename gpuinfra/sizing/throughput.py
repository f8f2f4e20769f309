"""Predicts the throughput of a training job by interpolation in the table of measured rows.

Rows are compared by their utilization, the model FLOPs per second relative to the BF16 peak. A prediction is the weighted mean of the logarithms
of the utilization of rows of the same family of GPUs. The weights fall with the distance in parameters, GPUs and sequence length, and rows of one
publisher together weigh as much as the square root of their number. Two predictions are made:

- from step times and MLPerf results: the tokens per second while training,
- from whole runs by wall time: the days. Runs take longer than their steps, because they restart, evaluate, save checkpoints and idle.

`docs/reference/sizing.md` lists the errors of both when each publisher is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from gpuinfra.sizing.devices import ARCHITECTURE, DEVICES, Precision
from gpuinfra.sizing.measured import MeasuredKind, MeasuredRow, SizingGoal, measured_rows
from gpuinfra.sizing.scale import change_per_doubling
from gpuinfra.sizing.shape import ModelShape

NOTHING_NEAR = "no published measurement near"
NEAR, FAR, STEP_NEAR = math.log(1.55), math.log(2.6), math.log(1.4)
"""Half of the width of a range, as a logarithm: near published runs, far from them, and for step times near published ones."""
GAIN = {Precision.BF16: 0.0, Precision.FP8: math.log(1.29), Precision.FP4: math.log(1.29 * 1.36)}
"""Gain of a precision over BF16, as a logarithm: FP8 1.29 (pytorch/torchtitan:benchmarks/llama3_h100_202412_torchtitan.md tables 1 and 3),
FP4 over FP8 1.36 (NVIDIA-NeMo/Megatron-Bridge:docs/performance-summary-archive.md, Llama 3.1 405B on GB200 and GB300)."""
SPARSE = math.log(0.65)
"""Utilization of a mixture of experts relative to a dense model, where the family has no rows of its own kind: 253 of 731 model TFLOPS for Qwen3 235B and
Llama 3 70B on H100, and 864 of 1,892 for DeepSeek V3 and Llama 3 70B on Blackwell in Megatron-Bridge; 0.86 in whole runs, see `_run_offset`."""
SPARSE_RUN = math.log(0.86)
"""The same in whole runs: DeepSeek V2 and V3, JetMoE and phi-3.5-MoE relative to dense runs on the same GPU."""
QUANTIZED = math.log(0.62)
"""QLoRA relative to LoRA: 0.49 and 0.62 (Lightning-AI/litgpt:tutorials/resource-tables.md at 26857050), 0.78 (meta-pytorch/torchtune:README.md at bd2a0fc7)."""
UNKNOWN = 0.30
"""Utilization on GPUs without any published row in the table."""
NO_FABRIC = math.log(0.5)
"""Several nodes without RDMA: half of the throughput."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeRange:
    """A number with its range."""

    low: float
    middle: float
    high: float

    def scaled(self, factor: float) -> SizeRange:
        """Return the range multiplied by a positive factor."""
        return SizeRange(low=self.low * factor, middle=self.middle * factor, high=self.high * factor)

    def inverted(self, numerator: float) -> SizeRange:
        """Return `numerator` divided by the range."""
        return SizeRange(low=numerator / self.high, middle=numerator / self.middle, high=numerator / self.low)


def range_of(middle: float, half_width: float) -> SizeRange:
    """Return a range that is symmetric on a logarithmic scale."""
    return SizeRange(low=middle * math.exp(-half_width), middle=middle, high=middle * math.exp(half_width))


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingQuestion:
    """A training job on a number of GPUs."""

    model: ModelShape
    goal: SizingGoal
    sequence: int
    gpu: str
    gpus: int
    precision: Precision
    fabric: bool = True
    """Whether the nodes are connected by RDMA, or the job has one node."""

    @property
    def flops_per_token(self) -> float:
        """FLOPs per token, as in `MeasuredRow.flops_per_token`."""
        return self.model.flops_per_token(self.sequence) * (4 / 6 if self.goal.is_adapter else 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictedThroughput:
    """The throughput of all GPUs of a job."""

    tokens_per_s: SizeRange
    """While training."""
    wall_tokens_per_s: SizeRange
    """Over the whole run by wall time, from which the days follow."""
    nearest: MeasuredRow | None
    """The nearest row by model, machine and number of GPUs."""
    near: bool
    """False if no published measurement is near. The ranges are then wide."""
    runs: int
    """Whole runs in the table from which the wall time is interpolated. 0 if it is derived from step times."""
    why: tuple[str, ...]

    @property
    def wall_share(self) -> float:
        """Tokens per second over the whole run relative to those while training."""
        return self.wall_tokens_per_s.middle / self.tokens_per_s.middle


@dataclass(frozen=True, slots=True)
class _Bandwidth:
    """Distances at which the weight of a row falls to 61 percent, in natural logarithms, and the smallest weight."""

    parameters: float
    gpus: float
    sequence: float
    floor: float


_STEPS = _Bandwidth(0.7, 1.2, 1.5, 0.003)
_RUNS = _Bandwidth(1.5, 6.0, 2.0, 0.3)


@dataclass(frozen=True, slots=True)
class _Mean:
    value: float
    nearest: MeasuredRow
    distance: float


@lru_cache(maxsize=4096)
def predict(question: TrainingQuestion, without: frozenset[str] = frozenset()) -> PredictedThroughput:
    """Return the throughput of a training job. Rows of the source groups in `without` are left out."""
    device = DEVICES[question.gpu]
    slope, family = _slope(without), ARCHITECTURE[question.gpu]
    measured, runs_in_family = _family_rows(family, without)
    steps = _mean(measured, question, _STEPS, slope, SPARSE)
    runs = _mean(runs_in_family, question, _RUNS, slope / 2, SPARSE_RUN)
    extra = (QUANTIZED if question.goal is SizingGoal.QLORA else 0.0) + (0.0 if question.fabric else NO_FABRIC)
    why = [
        f"FLOPs per token: {question.flops_per_token:.3g} (6 N + 6 L h s; 4 instead of 6 for an adapter), peak {device.bf16_tflops:g} TFLOPS: {device.source}"
    ]
    share = _share(without)
    if steps is None and runs is None:
        step = math.log(UNKNOWN) + GAIN[question.precision] + (SPARSE if question.model.is_moe else 0.0)
        why.append(f"utilization {UNKNOWN:.0%}: {NOTHING_NEAR} for {question.gpu}")
    else:
        step = steps.value if steps else (runs.value if runs else 0.0) - share
    wall = runs.value if runs and not question.goal.is_adapter else step + share
    wall, step = wall + extra, max(step, wall) + extra
    near = _near(question, steps, runs, runs_in_family)
    per_gpu = device.bf16_tflops * 1e12 / question.flops_per_token * question.gpus
    nearest = (
        runs.nearest if runs and (steps is None or runs.distance < steps.distance) else steps.nearest if steps else None
    )
    if steps:
        why.append(f"while training: utilization {math.exp(step):.1%}, interpolated; nearest: {steps.nearest}")
    if runs and not question.goal.is_adapter:
        why.append(
            f"by wall time: utilization {math.exp(wall):.1%}, interpolated between {len(runs_in_family)} whole runs on {family} GPUs; nearest: {runs.nearest}"
        )
    else:
        why.append(
            f"by wall time: {math.exp(share):.0%} of the throughput while training, the median of whole runs relative to step times on older GPUs"
        )
    if question.goal is SizingGoal.QLORA:
        why.append(
            "QLoRA: 62% of LoRA (Lightning-AI/litgpt:tutorials/resource-tables.md, meta-pytorch/torchtune:README.md)"
        )
    if not question.fabric:
        why.append("nodes without RDMA: half of the throughput (estimate)")
    why.append(
        f"range: {'80% of the published runs are inside when their source is left out' if near else NOTHING_NEAR}"
    )
    return PredictedThroughput(
        tokens_per_s=range_of(math.exp(step) * per_gpu, STEP_NEAR if near else FAR),
        wall_tokens_per_s=range_of(math.exp(wall) * per_gpu, NEAR if near else FAR),
        nearest=nearest,
        near=near,
        runs=len(runs_in_family) if runs else 0,
        why=tuple(why),
    )


@cache
def _family_rows(family: str, without: frozenset[str]) -> tuple[tuple[MeasuredRow, ...], tuple[MeasuredRow, ...]]:
    """Return the step times with benchmarks, and the whole runs of a family."""
    rows = [row for row in measured_rows(without) if row.family == family]
    runs = tuple(row for row in rows if row.kind is MeasuredKind.RUN)
    return tuple(row for row in rows if row.kind is not MeasuredKind.RUN), runs


def _mean(
    rows: Sequence[MeasuredRow], question: TrainingQuestion, width: _Bandwidth, slope: float, sparse: float
) -> _Mean | None:
    """Return the weighted mean of the logarithm of the utilization, corrected for precision, sparsity and the number of GPUs."""
    adapter = question.goal.is_adapter
    same = [row for row in rows if row.goal.is_adapter == adapter] or list(rows)
    groups: dict[str, list[tuple[float, float]]] = {}
    best: tuple[float, MeasuredRow] | None = None
    for row in same:
        distance = _distance(row, question, width)
        value = math.log(row.utilization) + GAIN[question.precision] - GAIN[row.precision]
        value += sparse * (int(question.model.is_moe) - int(row.is_moe))
        if row.gpus:
            value += slope * math.log2(question.gpus / row.gpus)
        groups.setdefault(row.source.group, []).append((width.floor + math.exp(-distance / 2), value))
        if best is None or distance < best[0]:
            best = (distance, row)
    if best is None:
        return None
    total = weight = 0.0
    for members in groups.values():
        scale = 1 / math.sqrt(len(members))
        total += scale * sum(w * value for w, value in members)
        weight += scale * sum(w for w, _ in members)
    return _Mean(total / weight, best[1], best[0])


def _distance(row: MeasuredRow, question: TrainingQuestion, width: _Bandwidth) -> float:
    """Return the squared distance of a row from a question."""
    squares = (math.log(row.active / question.model.active) / width.parameters) ** 2
    squares += (math.log(row.sequence / question.sequence) / width.sequence) ** 2
    if row.gpus:
        squares += (math.log(row.gpus / question.gpus) / width.gpus) ** 2
    if row.is_moe != question.model.is_moe:
        squares += 6.0
    if row.precision is not question.precision:
        squares += 4.0
    if row.source.other_device:
        squares += 4.0
    if row.gpu != question.gpu:
        squares += 0.3
    return squares


def _near(question: TrainingQuestion, steps: _Mean | None, runs: _Mean | None, family: Sequence[MeasuredRow]) -> bool:
    """Return whether published rows surround the question: a model at most three times smaller or larger, on at most four times more GPUs."""
    if runs:
        sizes = [row.active for row in family]
        counts = [row.gpus for row in family if row.gpus]
        if min(sizes) / 3 <= question.model.active <= max(sizes) * 3 and question.gpus <= 4 * max(counts, default=0):
            return question.fabric
    return (
        steps is not None
        and question.fabric
        and abs(math.log(steps.nearest.active / question.model.active)) <= math.log(4)
        and question.gpus <= 8192
    )


@cache
def _slope(without: frozenset[str]) -> float:
    return change_per_doubling(measured_rows(without))


@cache
def _share(without: frozenset[str]) -> float:
    """Return the logarithm of the share of the tokens per second while training that whole runs reach: the median over the runs."""
    rows = measured_rows(without)
    slope, steps = _slope(without), [row for row in rows if row.kind is not MeasuredKind.RUN]
    shares = []
    for row in rows:
        if row.kind is MeasuredKind.RUN:
            mean = _mean([one for one in steps if one.family == row.family], _question_of(row), _STEPS, slope, SPARSE)
            if mean:
                shares.append(math.log(row.utilization) - mean.value)
    shares.sort()
    return min(0.0, shares[len(shares) // 2]) if shares else math.log(0.7)


def _question_of(row: MeasuredRow) -> TrainingQuestion:
    """Return the question that a row answers. Unknown numbers of GPUs count as 1,024."""
    model = ModelShape(
        name=row.what, parameters=row.parameters, active=row.active, layers=row.layers, hidden=row.hidden, ffn=4 * row.hidden, gated=False, heads=1,
        kv_heads=1, head_dim=row.hidden, vocabulary=1)  # fmt: skip
    return TrainingQuestion(
        model=model, goal=row.goal, sequence=row.sequence, gpu=row.gpu, gpus=row.gpus or 1024, precision=row.precision
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """A row of the table, predicted without the rows of its source."""

    row: MeasuredRow
    predicted: PredictedThroughput

    @property
    def ratio(self) -> float:
        """Predicted days relative to the days of the row: of a whole run by wall time, and otherwise while training."""
        wall = self.row.kind is MeasuredKind.RUN
        rate = self.predicted.wall_tokens_per_s if wall else self.predicted.tokens_per_s
        return self.row.tokens_per_s * (self.row.gpus or 1024) / rate.middle


def leave_out(rows: Iterable[MeasuredRow]) -> tuple[LeftOut, ...]:
    """Return the prediction of each row without its source, which shows the error of a prediction for a new publisher."""
    return tuple(LeftOut(row=row, predicted=predict(_question_of(row), frozenset({row.source.group}))) for row in rows)
