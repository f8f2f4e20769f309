"""The answer to a request: candidates, refusals, advice and the declaration of a candidate."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from gpuinfra.base.errors import UsageError
from gpuinfra.base.findings import Level
from gpuinfra.base.registry import CLOUDS
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.plan.profile import profile_of
from gpuinfra.rules import check
from gpuinfra.sizing.advice import SizingAnswer, size
from gpuinfra.sizing.candidates import BLOCK_NODES, FLEX_DAYS, has_fabric
from gpuinfra.sizing.declare import declaration
from gpuinfra.sizing.devices import ARCHITECTURE, DEVICES, Precision
from gpuinfra.sizing.measured import MeasuredKind, SizingGoal, measured_rows
from gpuinfra.sizing.memory import Recipe
from gpuinfra.sizing.request import SizingRequest, quantity
from gpuinfra.sizing.scale import change_per_doubling, scaling_pairs
from gpuinfra.sizing.shape import model_of
from gpuinfra.sizing.throughput import NOTHING_NEAR, TrainingQuestion, predict
from gpuinfra.spec.load import parse_spec

TODAY = date(2026, 11, 28)
LLAMA13 = SizingRequest(model=model_of("llama-2-13b"), tokens=2e12, days=90)
LLAMA70 = SizingRequest(model=model_of("llama-3-70b"), tokens=15e12, days=12, gpu="A100-80GB", gpus=2)


@pytest.fixture(scope="module")
def answer() -> SizingAnswer:
    """The answer for Llama 2 13B on 2T tokens in 90 days."""
    return size(LLAMA13, TODAY)


def test_each_cloud_has_candidates(answer: SizingAnswer) -> None:
    """The table compares all clouds."""
    assert {one.cloud for one in answer.candidates} == set(CLOUDS)


def test_each_kind_of_capacity_has_candidates() -> None:
    """Also kinds that are sold for days only, if the deadline is short enough."""
    found = size(SizingRequest(model=model_of("1B"), tokens=1e10, days=5), TODAY)
    assert {one.kind for one in found.candidates} == set(CapacityKind)


def test_candidates_meet_the_deadline(answer: SizingAnswer) -> None:
    """The middle of the range of the days is at most the deadline."""
    assert all(one.days.middle <= 90 for one in answer.candidates)


def test_the_cheapest_comes_first(answer: SizingAnswer) -> None:
    """The candidates are in the order of their price."""
    prices = [one.usd.middle for one in answer.candidates]
    assert prices == sorted(prices)


def test_each_candidate_fits_in_memory(answer: SizingAnswer) -> None:
    """No candidate needs more memory than its GPUs have."""
    assert all(one.fitted.fits for one in answer.candidates)


def test_no_candidate_exceeds_what_a_kind_of_capacity_offers(answer: SizingAnswer) -> None:
    """Flex-start nodes run at most a week, and a Capacity Block has at most 64 instances."""
    assert all(one.days.middle <= FLEX_DAYS for one in answer.candidates if one.kind is CapacityKind.FLEX)
    assert all(one.nodes <= BLOCK_NODES for one in answer.candidates if one.kind is CapacityKind.BLOCK)


def test_a_budget_buys_the_fastest_candidates() -> None:
    """With a budget, no candidate costs more, and a larger budget is not slower."""
    small, large = (size(replace(LLAMA13, days=None, usd=usd), TODAY) for usd in (3e5, 3e6))
    assert all(one.usd.middle <= 3e5 for one in small.candidates)
    assert large.fastest.days.middle < small.fastest.days.middle


def test_spot_nodes_take_longer(answer: SizingAnswer) -> None:
    """The days of spot rows contain the interruptions, which rows of the same nodes without interruptions do not."""
    spot = next(one for one in answer.candidates if one.kind is CapacityKind.SPOT)
    assert spot.extra_days > 0
    same = [
        one
        for one in answer.candidates
        if one.machine is spot.machine and one.nodes == spot.nodes and one.kind is CapacityKind.ON_DEMAND
    ]
    assert all(one.days.middle < spot.days.middle for one in same)


def test_a_job_of_thousands_of_nodes_does_not_run_on_spot() -> None:
    """2,048 spot nodes are interrupted more often than checkpoints can follow."""
    found = size(
        SizingRequest(model=model_of("llama-3.1-405b"), tokens=15.6e12, gpu="H100", gpus=16384, sequence=8192), TODAY
    )
    assert CapacityKind.SPOT not in {one.kind for one in found.candidates}


def test_a_commitment_is_billed_for_its_term(answer: SizingAnswer) -> None:
    """A commitment of a year costs a year, even if the job needs 90 days."""
    row = next(one for one in answer.candidates if one.term == "1y")
    assert row.usd.middle == pytest.approx(row.usd_per_hour * 8760)


def test_the_mix_is_between_its_parts(answer: SizingAnswer) -> None:
    """Half of the nodes on spot take longer without spot, and cost less than the base alone."""
    assert answer.mix
    assert answer.mix.days_without_spot > answer.mix.days
    assert answer.mix.usd < answer.mix.base.usd.middle


def test_a_commitment_does_not_pay_for_a_short_job(answer: SizingAnswer) -> None:
    """Three months never earn a commitment of a year or more back."""
    terms = [row for row in answer.commitments if row.way.endswith("y")]
    assert terms
    assert not any(row.pays for row in terms)


def test_seventy_billion_parameters_do_not_train_on_two_gpus() -> None:
    """The refusal names the memory and the smallest layout that works."""
    words = r"--gpus is 2: llama-3-70b \(pretrain\) needs .* GB on each of 2 GPUs .*; the smallest layout that works: \d+ x A100-80GB"
    with pytest.raises(UsageError, match=words):
        size(LLAMA70, TODAY)


def test_the_smallest_layout_of_a_refusal_works() -> None:
    """The number of GPUs in the refusal is accepted."""
    with pytest.raises(UsageError) as refused:
        size(LLAMA70, TODAY)
    gpus = int(str(refused.value).partition("that works: ")[2].split(" x ")[0])
    assert size(replace(LLAMA70, gpus=gpus), TODAY).candidates


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokens": 0.0}, "--tokens is 0; allowed: more than 0"),
        ({"tokens": -1.0}, "--tokens is -1"),
        ({"tokens": 1e18}, "at most 1000T"),
        ({"days": 0.0}, "--days is 0"),
        ({"days": -3.0}, "--days is -3"),
        ({"days": 1e6}, "--days is 1e"),
        ({"usd": 0.0}, "--usd is 0"),
        ({"sequence": 0}, "--sequence is 0"),
        ({"gpus": 0}, "--gpus is 0"),
        ({"gpus": 7, "gpu": "H200"}, "multiples of the GPUs of a machine"),
        ({"gpu": "H1000"}, "did you mean H100"),
        ({"gpu": "A100-80GB", "precision": Precision.FP8}, "which A100-80GB does not support"),
        ({"goal": SizingGoal.LORA, "recipe": Recipe.SGD}, "omit --recipe"),
        ({"goal": SizingGoal.INFERENCE, "concurrency": 8}, "--tokens applies to training"),
        ({"goal": SizingGoal.INFERENCE, "tokens": 0.0}, "--concurrency is missing"),
        ({"machine": "p99.48xlarge"}, "is or has p99.48xlarge"),
        ({"batch_tokens": 10.0}, "at least one sequence"),
        ({"days": 0.02}, "the fastest machines need"),
        ({"usd": 100.0}, "costs [0-9,]+ USD in"),
        ({"region": "us-esat-1"}, "did you mean us-east-1"),
        ({"region": "us-west-2", "gpu": "B300", "kinds": (CapacityKind.BLOCK,)}, "remove --region or --capacity"),
        ({"sequence": 4_000_000}, "--sequence is 4000000"),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)  # fmt: skip
def test_an_impossible_request_gives_one_error(change: dict[str, object], words: str) -> None:
    """The error names the option, the value, what is allowed or what would work."""
    with pytest.raises(UsageError, match=words) as refused:
        size(replace(LLAMA13, **change), TODAY)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("2T", 2e12), ("500B", 5e11), ("1.5M", 1.5e6), ("52000", 52000), ("2e12", 2e12), ("1,000", 1000)],
)
def test_a_quantity_has_a_unit(text: str, value: float) -> None:
    """Numbers with K, M, B and T."""
    assert quantity("--tokens", text) == value


@pytest.mark.parametrize("text", ["", "two", "-5B", "5X", "1e999"])
def test_a_wrong_quantity_is_refused(text: str) -> None:
    """The error names the option and the form."""
    with pytest.raises(UsageError, match="--tokens is"):
        quantity("--tokens", text)


def test_more_nodes_lower_the_utilization() -> None:
    """Tokens per second grow more slowly than the GPUs."""
    rates = [predict(_question(gpus)).wall_tokens_per_s.middle / gpus for gpus in (64, 512, 4096)]
    assert rates == sorted(rates, reverse=True)


def _question(gpus: int, gpu: str = "H100") -> TrainingQuestion:
    return TrainingQuestion(
        model=model_of("llama-3.1-70b"),
        goal=SizingGoal.PRETRAIN,
        sequence=8192,
        gpu=gpu,
        gpus=gpus,
        precision=Precision.BF16,
    )


def test_the_loss_per_doubling_follows_from_published_pairs() -> None:
    """The median of the pairs is between 0 and 5 percent."""
    assert len(scaling_pairs(measured_rows())) > 20
    assert -0.05 < change_per_doubling(measured_rows()) < 0


@pytest.mark.parametrize("gpu", ["T4", "L4", "A10G"])
def test_a_gpu_without_measurements_says_so(gpu: str) -> None:
    """Outside of the families of the table, the range is wide, and the words say that nothing is near."""
    found = predict(_question(8, gpu))
    assert not found.near
    assert found.wall_tokens_per_s.high / found.wall_tokens_per_s.low > 5
    assert any(NOTHING_NEAR in line for line in found.why)


@pytest.mark.parametrize(
    "change",
    [{"model": model_of("20M")}, {"gpus": 131_072}, {"fabric": False}],
    ids=["tiny model", "many GPUs", "no fabric"],
)
def test_a_job_far_from_the_table_says_so(change: dict[str, object]) -> None:
    """Far from published sizes and numbers of GPUs, nothing is near."""
    assert not predict(replace(_question(1024), **change)).near  # type: ignore[arg-type]


def test_several_nodes_have_a_fabric(answer: SizingAnswer) -> None:
    """Machine types without RDMA are candidates only as a single node."""
    assert all(has_fabric(one.machine) for one in answer.candidates if one.nodes > 1)


def test_a_machine_type_that_you_name_needs_no_fabric() -> None:
    """`--machine` accepts several nodes without RDMA, with half of the throughput and a wide range."""
    found = size(SizingRequest(model=model_of("7B"), tokens=1e10, days=60, machine="a2-ultragpu-8g", gpus=16), TODAY)
    assert not found.cheapest.throughput.near


def test_nodes_without_fabric_have_half_of_the_throughput() -> None:
    """Training on several nodes without RDMA is slower."""
    fast, slow = (predict(replace(_question(64), fabric=fabric)).tokens_per_s.middle for fabric in (True, False))
    assert slow < 0.6 * fast


def test_days_take_longer_than_steps() -> None:
    """Tokens per second over the whole run are at most those while training, for every whole run of the table."""
    for row in measured_rows():
        if row.kind is MeasuredKind.RUN:
            found = predict(_question(row.gpus or 1024, row.gpu))
            assert found.wall_share <= 1


def test_each_measured_row_has_its_source() -> None:
    """Source, convention, date, precision and a plausible utilization."""
    for row in measured_rows():
        assert row.source.source
        assert row.source.convention
        assert row.source.read <= TODAY
        assert 0.02 < row.utilization < 1.7, row


def test_each_repository_row_has_its_commit() -> None:
    """A source in a repository is pinned."""
    pinned = ("NVIDIA-NeMo/", "mosaicml/", "pytorch/", "mlcommons/", "meta-llama/")
    rows = [row for row in measured_rows() if row.source.source.startswith(pinned)]
    assert not [str(row.source) for row in rows if not row.source.commit]


def test_devices_are_those_of_the_catalog() -> None:
    """Each GPU of the catalog has rates and a family, and no other has."""
    keys = {machine.gpu.key for cloud in CLOUDS for machine in profile_of(cloud).machines.values() if machine.gpu}
    assert keys <= set(DEVICES)
    assert set(DEVICES) == set(ARCHITECTURE)


@pytest.mark.parametrize("goal", [SizingGoal.FULL, SizingGoal.LORA, SizingGoal.QLORA])
def test_fine_tuning_has_candidates(goal: SizingGoal) -> None:
    """50,000 examples of an 8B model run on one node within a day."""
    found = size(SizingRequest(model=model_of("llama-3.1-8b"), goal=goal, tokens=5e7, days=1, sequence=1024), TODAY)
    assert found.cheapest.nodes == 1


def test_inference_needs_memory_for_the_cache() -> None:
    """More concurrent requests need more memory."""
    few, many = (
        size(
            SizingRequest(
                model=model_of("llama-3.1-70b"),
                goal=SizingGoal.INFERENCE,
                concurrency=count,
                context=32_768,
                machine="p5.48xlarge",
            ),
            TODAY,
        )
        for count in (1, 32)
    )
    assert many.cheapest.fitted.need.cache > few.cheapest.fitted.need.cache


def test_the_declaration_of_a_candidate_has_no_errors(answer: SizingAnswer) -> None:
    """The stack of each on-demand or spot candidate on AWS passes the rules, with the workload and the file system."""
    for one in answer.candidates[:40]:
        if one.kind in (CapacityKind.ON_DEMAND, CapacityKind.SPOT) and not one.term and one.cloud == "aws":
            found = check(parse_spec(declaration(LLAMA13, one, "train")), TODAY)
            assert not [str(finding) for finding in found if finding.level is Level.ERROR], one.machine.name
