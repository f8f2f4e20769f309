"""Formats the answer of `gpuinfra size` as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from gpuinfra.base.words import counted
from gpuinfra.report import tables
from gpuinfra.report.tables import Cell, Column, Table
from gpuinfra.sizing.advice import SizingAnswer
from gpuinfra.sizing.candidates import SizedCandidate
from gpuinfra.sizing.energy import energy
from gpuinfra.sizing.measured import SizingGoal
from gpuinfra.sizing.memory import RECIPES
from gpuinfra.sizing.throughput import NOTHING_NEAR, SizeRange

SCHEMA = "gpuinfra.size/1"
GB = 1e9


def text(answer: SizingAnswer, rows: int) -> str:
    """Return the answer as text, with at most `rows` candidates."""
    return "\n".join(_lines(answer, rows))


def _lines(answer: SizingAnswer, rows: int) -> Iterator[str]:
    yield job(answer)
    yield ""
    yield from tables.text(
        candidate_table(answer.candidates[:rows], serving=answer.request.goal is SizingGoal.INFERENCE), indent=2
    )
    if len(answer.candidates) > rows:
        yield f"  {len(answer.candidates) - rows} more candidates are more expensive; use --rows to show them"
    yield ""
    yield from tables.fields(list(advice(answer)), label=Column(width=10))


def job(answer: SizingAnswer) -> str:
    """Return the job on one line."""
    request = answer.request
    model = request.model
    active = f", {model.active / 1e9:.3g}B active" if model.is_moe else ""
    what = f"{model.name}: {model.parameters / 1e9:.4g}B parameters{active}, {request.goal.value}"
    if request.goal is SizingGoal.INFERENCE:
        return f"{what}, {request.weight_bits}-bit weights, {counted(request.concurrency, 'request')} of {request.context:,} tokens at the same time"
    limits = [f"in {request.days:g} days" if request.days else "", f"for {request.usd:,.0f} USD" if request.usd else ""]
    limit = (
        " and ".join(filter(None, limits)) or f"in {request.deadline:g} days, because neither --days nor --usd is set"
    )
    return f"{what}, {tokens_text(request.tokens)} tokens {limit}, sequence {request.sequence:,}"


def tokens_text(tokens: float) -> str:
    """Return a number of tokens with its unit: `2T`, `500B`."""
    for value, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if tokens >= value:
            return f"{tokens / value:.3g}{unit}"
    return f"{tokens:.0f}"


def span(value: SizeRange, digits: int = 0) -> str:
    """Return a range: `65 (42-101)`."""
    middle, low, high = (_number(one, digits) for one in (value.middle, value.low, value.high))
    return middle if low == high else f"{middle} ({low}-{high})"


def _number(value: float, digits: int) -> str:
    if 0 < value < 10 and digits == 0:
        return f"{value:.2g}"
    return f"{value:,.{digits}f}"


def compact(value: float) -> str:
    """Return a large number with three digits: `445k`, `1.2M`."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def candidate_table(candidates: Sequence[SizedCandidate], *, serving: bool) -> Table:
    """Return the table of candidates for a terminal. The first column is the number for `--row`. The last columns are omitted first."""
    columns: list[str | Column] = [
        Column("row", right=True),
        "machine",
        Column("nodes", right=True),
        "capacity",
        Column("days" if serving else "days by wall time", right=True, wrap=True),
        Column("USD", right=True, wrap=True),
        Column("region", optional=True),
        Column("GPUs", optional=True),
        Column(_rate_title(serving), right=True, wrap=True, optional=True),
        Column("GB per GPU", right=True, optional=True),
        Column("limited by", wrap=True, optional=True),
        Column("layout", wrap=True, optional=True),
    ]
    rows = [
        (
            str(number),
            one.machine.name,
            f"{one.nodes:,}",
            one.way.replace("_", "-"),
            span(one.days),
            _usd(one),
            one.region,
            _gpus(one),
            _rate(one),
            _memory(one),
            one.limited_by.value,
            _layout(one, serving),
        )
        for number, one in enumerate(candidates, 1)
    ]
    return Table(columns, rows)


def candidate_page_table(candidates: Sequence[SizedCandidate], *, serving: bool) -> Table:
    """Return the table of candidates for a page: the same values in fewer columns, with second lines."""
    columns: list[str | Column] = [
        Column("row", right=True),
        "machine",
        "GPUs",
        "capacity",
        _rate_title(serving),
        "days" if serving else "days by wall time",
        Column("USD", right=True),
    ]
    rows = [
        (
            str(number),
            Cell(f"{one.nodes:,} x {one.machine.name}", note=_layout(one, serving)),
            Cell(_gpus(one), note=f"{_memory(one)} GB each"),
            Cell(one.way.replace("_", "-"), note=f"{one.cloud} {one.region}"),
            _rate(one),
            Cell(span(one.days), note=f"limited by {one.limited_by.value}"),
            _usd(one),
        )
        for number, one in enumerate(candidates, 1)
    ]
    return Table(columns, rows)


def _gpus(candidate: SizedCandidate) -> str:
    assert candidate.machine.gpu is not None
    return f"{candidate.gpus:,} x {candidate.machine.gpu.key}"


def _memory(candidate: SizedCandidate) -> str:
    return f"{candidate.fitted.need.total / GB:.0f} of {candidate.fitted.memory / GB:.0f}"


def _layout(candidate: SizedCandidate, serving: bool) -> str:
    layout = candidate.fitted.layout
    shown = f"{counted(layout.data, 'replica')} of {counted(layout.tensor, 'GPU')}" if serving else str(layout)
    return f"{shown}, {candidate.precision.value.upper()}"


def _rate_title(serving: bool) -> str:
    return "tokens/s generated" if serving else "tokens/s while training"


def _rate(candidate: SizedCandidate) -> Cell:
    rate = candidate.throughput.tokens_per_s
    text = f"{compact(rate.middle)} ({compact(rate.low)}-{compact(rate.high)})"
    return Cell(text, doubt="" if candidate.throughput.near else NOTHING_NEAR)


def _usd(candidate: SizedCandidate) -> Cell:
    return Cell(f"{candidate.usd.middle:,.0f}", doubt="" if candidate.price.certain else "estimate")


def advice(answer: SizingAnswer) -> Iterator[tuple[str, str]]:
    """Yield the advice as labels and sentences."""
    cheap, fast, request = answer.cheapest, answer.fastest, answer.request
    serving = request.goal is SizingGoal.INFERENCE
    yield "cheapest", f"{named(cheap)}: {cheap.usd.middle:,.0f} USD, {span(cheap.days)} days{_limit(answer)}"
    if not serving:
        yield (
            "fastest",
            f"{named(fast)}: {span(fast.days)} days, {fast.usd.middle:,.0f} USD"
            + (f" of {request.usd:,.0f}" if request.usd else ""),
        )
    if answer.mix:
        mix = answer.mix
        base = f"{mix.base_nodes} {mix.base.way.replace('_', '-')} and {mix.spot_nodes} spot nodes of {mix.base.machine.name}"
        yield (
            "mix",
            f"{base}: {mix.usd:,.0f} USD in {mix.days:,.1f} days if all spot nodes run, {mix.days_without_spot:,.1f} days if none does",
        )
    if storage := cheap.storage:
        yield (
            "storage",
            (
                f"Lustre, {storage.capacity_gib:,} GiB at {storage.throughput_mb_s_per_tib} MB/s per TiB: {storage.why}; "
                f"a checkpoint in one minute needs {storage.write_gb_s:,.1f} GB/s, in the background {storage.background_gb_s:,.2f}"
            ),
        )
    if plan := cheap.checkpoints:
        every = (
            f"{plan.interval_s / 60:,.0f} minutes"
            if plan.interval_s < 86400
            else f"{plan.interval_s / 86400:,.1f} days"
        )
        yield (
            "checkpoint",
            f"{plan.size_bytes / GB:,.1f} GB every {every} (Daly; Young {plan.young_s / 60:,.0f}), stall {plan.stall_s:,.0f} s",
        )
        yield (
            "failures",
            f"one in {plan.between_failures_h:,.0f} hours, {plan.failures:,.1f} expected, goodput {plan.goodput:.1%}; included in the days",
        )
    spot = next((one for one in answer.candidates if one.extra_days > 0), None)
    if spot:
        usd = spot.extra_days * 24 * spot.usd_per_hour
        yield (
            "spot",
            f"interruptions add {spot.extra_days:,.2f} days and {usd:,.0f} USD to {named(spot)}, without waiting for capacity, which no figure predicts",
        )
    for row in answer.commitments[:3]:
        yield (
            "commit",
            f"{row.way.replace('_', '-')} of {row.machine} in {row.region}: {'pays' if row.pays else 'does not pay'}; {row.text}",
        )
    if not serving:
        assert cheap.machine.gpu is not None
        used = energy(cheap.machine.gpu.key, cheap.gpus * cheap.days.middle * 24, cheap.cloud, cheap.region)
        co2 = (
            f"; {span(used.co2_kg.scaled(1e-3))} t of CO2"
            if used.co2_kg
            else f"; no published CO2 factor for {cheap.region}"
        )
        yield "energy", f"{span(used.kwh.scaled(1e-3))} MWh for the cheapest{co2}"
    if not cheap.throughput.near:
        yield "range", f"{NOTHING_NEAR} the cheapest candidate, so its range is wide"
    elif nearest := cheap.throughput.nearest:
        yield "nearest", str(nearest)


def named(candidate: SizedCandidate) -> str:
    """Return a candidate in words."""
    return f"{candidate.nodes} x {candidate.machine.name} {candidate.way.replace('_', '-')} in {candidate.region}"


def _limit(answer: SizingAnswer) -> str:
    days = answer.request.days
    if days and answer.cheapest.days.high > days and answer.request.goal is not SizingGoal.INFERENCE:
        return f"; the end of the range is after {days:g} days"
    return ""


def why(answer: SizingAnswer, candidate: SizedCandidate) -> tuple[tuple[str, str], ...]:
    """Return the source of each number of a candidate."""
    request, need, layout = answer.request, candidate.fitted.need, candidate.fitted.layout
    assert candidate.machine.gpu is not None
    rows = [("model", request.model.source + (" (assumed proportions)" if request.model.assumed else ""))]
    parts = ", ".join(
        f"{name} {getattr(need, name) / GB:.1f}"
        for name in ("weights", "gradients", "optimizer", "activations", "logits", "cache", "gathered", "overhead")
        if getattr(need, name)
    )
    rows.append(
        (
            "memory",
            f"{need.total / GB:.1f} GB = {parts}; limit 92% of {candidate.fitted.memory / GB:.1f} GB: {candidate.machine.gpu.source.page}",
        )
    )
    if request.goal is SizingGoal.INFERENCE:
        rows.append(("formula", "weights W/t and cache 2 L k tokens: arXiv 2309.06180"))
    else:
        recipe = RECIPES[request.recipe]
        detail = (
            f"{recipe.total:g} bytes per parameter, {recipe.meaning}: {recipe.source}"
            if not request.goal.is_adapter
            else "frozen weights and 16 bytes per adapter parameter: arXiv 2106.09685, 2305.14314"
        )
        rows.append(("recipe", detail))
        rows.append(("formula", "sharded states: arXiv 1910.02054; activations: arXiv 2205.05198"))
    rows.append(("layout", f"{layout}: the simplest that fits; tensor parallelism stays within a node"))
    rows += [("throughput", line) for line in candidate.throughput.why]
    rows.append(
        (
            "price",
            f"{candidate.price.usd_per_hour:,.2f} USD per node-hour, {candidate.way}, {candidate.region}, {candidate.price.read}: {candidate.price.source}"
            + (f"; {candidate.price.note}" if candidate.price.note else ""),
        )
    )
    if candidate.checkpoints and candidate.storage:
        rows.append(
            (
                "checkpoint",
                f"{candidate.checkpoints.size_bytes / GB:,.1f} GB of weights and optimizer states; Young 1974, Daly 2006 equation 37",
            )
        )
        rows.append(("failures", candidate.checkpoints.source))
        rows.append(("storage", f"{candidate.storage.why}; stas00/ml-engineering:storage at 744d01e1"))
        used = energy(
            candidate.machine.gpu.key, candidate.gpus * candidate.days.middle * 24, candidate.cloud, candidate.region
        )
        rows.append(("energy", used.source))
    if candidate.extra_days:
        rows.append(
            (
                "spot",
                (
                    "interruptions -ln(1 - q) / 730 per node-hour, q of the band of AWS's Spot advisor "
                    "(thundercompute.com/blog, 2026-02-24); 20% where no band is published"
                ),
            )
        )
    return tuple(rows)


def as_dict(answer: SizingAnswer) -> dict[str, Any]:
    """Return the document for `--json`."""
    request, model = answer.request, answer.request.model
    return {
        "schema": SCHEMA,
        "job": {
            "model": model.name,
            "parameters": model.parameters,
            "active_parameters": model.active,
            "goal": request.goal.value,
            "tokens": request.tokens or None,
            "days": request.days,
            "usd": request.usd,
            "sequence": request.sequence,
            "recipe": request.recipe.value,
        },
        "candidates": [_candidate(answer, number, one) for number, one in enumerate(answer.candidates, 1)],
        "advice": [{"label": label, "text": line} for label, line in advice(answer)],
        "cheapest": answer.candidates.index(answer.cheapest) + 1,
        "fastest": answer.candidates.index(answer.fastest) + 1,
        "commitments": [
            {
                "way": row.way,
                "machine": row.machine,
                "region": row.region,
                "break_even_share": round(row.share, 4),
                "pays": row.pays,
            }
            for row in answer.commitments
        ],
    }


def _span(value: SizeRange) -> dict[str, float]:
    return {"low": _digits(value.low), "middle": _digits(value.middle), "high": _digits(value.high)}


def _digits(value: float) -> float:
    return value if not value or math.isinf(value) else round(value, 5 - math.floor(math.log10(abs(value))))


def _candidate(answer: SizingAnswer, number: int, candidate: SizedCandidate) -> dict[str, Any]:
    assert candidate.machine.gpu is not None
    need, plan, storage = candidate.fitted.need, candidate.checkpoints, candidate.storage
    return {
        "row": number,
        "cloud": candidate.cloud,
        "region": candidate.region,
        "machine": candidate.machine.name,
        "gpu": candidate.machine.gpu.key,
        "nodes": candidate.nodes,
        "gpus": candidate.gpus,
        "capacity": candidate.kind.value,
        "term": candidate.term,
        "precision": candidate.precision.value,
        "layout": str(candidate.fitted.layout),
        "memory_gb": {"need": round(need.total / GB, 2), "of": round(candidate.fitted.memory / GB, 2), "largest": need.largest},
        "tokens_per_s": _span(candidate.throughput.tokens_per_s),
        "wall_tokens_per_s": _span(candidate.throughput.wall_tokens_per_s),
        "measured_near": candidate.throughput.near,
        "nearest": str(candidate.throughput.nearest) if candidate.throughput.nearest else None,
        "days": _span(candidate.days),
        "usd": _span(candidate.usd),
        "usd_per_hour": round(candidate.usd_per_hour, 2),
        "price_read": candidate.price.read.isoformat(),
        "price_certain": candidate.price.certain,
        "limited_by": candidate.limited_by.value,
        "extra_days_spot": round(candidate.extra_days, 3),
        "checkpoint": None if plan is None else {
            "gb": round(plan.size_bytes / GB, 2), "interval_s": round(plan.interval_s), "young_s": round(plan.young_s), "stall_s": round(plan.stall_s, 1),
            "hours_between_failures": round(plan.between_failures_h, 1), "failures": round(plan.failures, 2), "goodput": round(plan.goodput, 4)},
        "storage": None if storage is None else {
            "capacity_gib": storage.capacity_gib, "throughput_mb_s_per_tib": storage.throughput_mb_s_per_tib, "write_gb_s": round(storage.write_gb_s, 3),
        },
        "why": [{"number": label, "source": line} for label, line in why(answer, candidate)],
    }  # fmt: skip
