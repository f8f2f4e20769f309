"""`gpuinfra size`: finds machines, time and price for a model, and writes the stack of a candidate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.base.errors import UsageError
from gpuinfra.base.registry import CLOUDS
from gpuinfra.cli.options import FILE, set_value

if TYPE_CHECKING:
    from gpuinfra.sizing.advice import SizingAnswer
    from gpuinfra.sizing.candidates import SizedCandidate
    from gpuinfra.sizing.request import SizingRequest

ROWS = 12
GOALS = ("pretrain", "full", "lora", "qlora", "inference")
PRECISIONS = ("bf16", "fp8", "fp4")
RECIPES = ("adamw", "adamw-fp32-gradients", "adamw-bf16", "adamw-8bit", "adamw-8bit-fused", "adamw-offload", "sgd")
KINDS = ("on_demand", "spot", "reserved", "block", "flex")


@click.command("size")
@click.option(
    "--model",
    metavar="NAME|FILE|N",
    help="Known model, config.json of Hugging Face, or parameters such as 13B or 30B-A3B.",
)
@click.option("--goal", type=click.Choice(GOALS), default="pretrain", show_default=True, help="What the job does.")
@click.option("--tokens", metavar="N", help="Training tokens, such as 2T or 500B.")
@click.option("--examples", metavar="N", help="Training examples of --sequence tokens, instead of --tokens.")
@click.option(
    "--epochs", type=click.FloatRange(0.01, 1000), default=1.0, show_default=True, help="Passes over --examples."
)
@click.option("--days", type=float, metavar="DAYS", help="Deadline in days. Default: 30 without --usd.")
@click.option("--usd", type=float, metavar="USD", help="Budget for the machines.")
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="Precision of the matrix multiplications. Default: fp8 on Blackwell, otherwise bf16.",
)
@click.option(
    "--sequence", type=int, default=4096, show_default=True, metavar="TOKENS", help="Length of a training sequence."
)
@click.option(
    "--recipe",
    type=click.Choice(RECIPES),
    default="adamw",
    show_default=True,
    help="What is stored per trained parameter.",
)
@click.option("--rank", type=int, default=16, show_default=True, help="Rank of LoRA and QLoRA.")
@click.option("--micro-batch", type=int, default=1, show_default=True, metavar="N", help="Sequences per GPU and step.")
@click.option(
    "--recompute",
    type=click.Choice(("none", "full")),
    help="Activations that are calculated again. Default: none if it fits, otherwise full.",
)
@click.option(
    "--batch-tokens", default="4M", show_default=True, metavar="N", help="Tokens per step, which limit the GPUs."
)
@click.option(
    "--context",
    type=int,
    default=8192,
    show_default=True,
    metavar="TOKENS",
    help="Inference: tokens of a request and its answer.",
)
@click.option("--concurrency", type=int, default=0, metavar="N", help="Inference: requests at the same time.")
@click.option(
    "--weight-bits",
    type=click.Choice(("16", "8", "4")),
    default="16",
    show_default=True,
    help="Inference: bits per weight.",
)
@click.option("--gpu", metavar="GPU", help="Only machines with this GPU, such as H100.")
@click.option("--gpus", type=int, metavar="N", help="Exactly this number of GPUs.")
@click.option("--machine", metavar="TYPE", help="Only this machine type.")
@click.option("--cloud", "clouds", type=click.Choice(tuple(CLOUDS)), multiple=True, help="Only this cloud. Repeatable.")
@click.option("--region", help="Only prices of this region. Default: the cheapest region of each machine type.")
@click.option(
    "--capacity", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this kind of capacity. Repeatable."
)
@click.option("--prices", "own", type=FILE, help="File with your own prices, which override the prices in the catalog.")
@click.option(
    "--without",
    multiple=True,
    metavar="SOURCE",
    help="Leave out the measurements of this source, to see the effect. Repeatable.",
)
@click.option(
    "--usage",
    type=FILE,
    metavar="FILE",
    help="Forecast the GPU-hours in this CSV file (date,gpu_hours) and compare commitments.",
)
@click.option(
    "--rows", type=click.IntRange(1, 1000), default=ROWS, show_default=True, help="Number of candidates to show."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object (docs/reference/sizing.md).")
@click.option("--html", "page", type=FILE, metavar="FILE", help="Write a self-contained HTML page with a plot.")
@click.option("--why", is_flag=True, help="Show the source of each number of the chosen row.")
@click.option("--row", type=click.IntRange(1), default=1, show_default=True, help="Candidate for --why and --init.")
@click.option("--init", "initialize", is_flag=True, help="Write the stack file of the chosen row.")
@click.option("--name", default="train", show_default=True, help="With --init: name of the stack.")
@click.option(
    "--set",
    "values",
    multiple=True,
    metavar="PATH=VALUE",
    help="With --init: set another field, such as where.project=my-project. Repeatable.",
)
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="With --init: stack file to write.")
@click.option("--force", is_flag=True, help="With --init: replace the stack file if it exists.")
@click.option("--list-models", is_flag=True, help="List the known models and exit.")
def command(
    as_json: bool,
    page: Path | None,
    why: bool,
    row: int,
    rows: int,
    initialize: bool,
    usage: Path | None,
    list_models: bool,
    **given: Any,
) -> int:
    """Find the machines for a model: memory, tokens per second, days, price and what limits each candidate.

    This command needs no cloud account or network access, and creates nothing. Memory follows published formulas, and
    throughput is interpolated between published measurements, with a range. --why shows the source of each number.

    The exit code is 2 if no machine does the job. The message then contains the smallest layout, time or budget that does.
    """
    if list_models:
        return _list_models(as_json)
    if usage:
        from gpuinfra.cli.usage_forecast import show

        return show(usage, given["machine"], _gpu(given["gpu"]), as_json)
    request = _request(given)
    answer = _answer(request, given["own"])
    if row > len(answer.candidates):
        raise UsageError(f"--row is {row}; allowed: 1 to {len(answer.candidates)}, the number of candidates")
    chosen = answer.candidates[row - 1]
    from gpuinfra.report import size_text

    if as_json:
        click.echo(json.dumps(size_text.as_dict(answer), indent=2))
    else:
        click.echo(size_text.text(answer, max(rows, row)))
        if why:
            from gpuinfra.report import tables

            click.echo(f"\nsources of row {row}, {size_text.named(chosen)}")
            click.echo("\n".join(tables.fields(size_text.why(answer, chosen), indent=2)))
    if page:
        from gpuinfra.cli.judgement import write_file
        from gpuinfra.report.size_page import page as render

        write_file(page, render(answer, max(rows, 40)), "--html")
        click.echo(f"page: {page}", err=True)
    return _initialize(request, chosen, given) if initialize else 0


def _answer(request: SizingRequest, own: Path | None) -> SizingAnswer:
    from gpuinfra.base.day import today
    from gpuinfra.sizing.advice import size

    prices = None
    if own:
        from gpuinfra.cost.file import load

        prices = load(own)
    return size(request, today(), prices)


def _request(given: dict[str, Any]) -> SizingRequest:
    from gpuinfra.catalog.records import CapacityKind
    from gpuinfra.sizing.devices import Precision
    from gpuinfra.sizing.measured import SizingGoal, source_groups
    from gpuinfra.sizing.memory import Recipe, Recompute
    from gpuinfra.sizing.request import SizingRequest, quantity
    from gpuinfra.sizing.shape import model_of

    if given["model"] is None:
        raise UsageError(
            "--model is missing; allowed: a known model, a config.json, or parameters; specify --model llama-2-13b, or see --list-models"
        )
    if given["tokens"] and given["examples"]:
        raise UsageError("--tokens and --examples are both set; allowed: one of them; remove one")
    for group in given["without"]:
        if group not in source_groups():
            raise UsageError(f"--without is {group[:40]!r}; allowed: {', '.join(source_groups())}")
    goal = SizingGoal(given["goal"])
    _refuse_foreign(goal is SizingGoal.INFERENCE, goal.is_adapter)
    tokens = quantity("--tokens", given["tokens"]) if given["tokens"] else 0.0
    if given["examples"]:
        tokens = quantity("--examples", given["examples"]) * given["sequence"] * given["epochs"]
    return SizingRequest(
        model=model_of(given["model"]),
        goal=goal,
        tokens=tokens,
        days=given["days"],
        usd=given["usd"],
        precision=Precision(given["precision"]) if given["precision"] else None,
        sequence=given["sequence"],
        recipe=Recipe(given["recipe"]),
        rank=given["rank"],
        micro_batch=given["micro_batch"],
        recompute=Recompute(given["recompute"]) if given["recompute"] else None,
        batch_tokens=quantity("--batch-tokens", given["batch_tokens"]),
        gpu=_gpu(given["gpu"]),
        gpus=given["gpus"],
        machine=given["machine"],
        clouds=given["clouds"],
        region=given["region"],
        kinds=tuple(CapacityKind(kind) for kind in given["kinds"]),
        context=given["context"],
        concurrency=given["concurrency"],
        weight_bits=int(given["weight_bits"]),
        without=frozenset(given["without"]),
    )


def _gpu(text: str | None) -> str | None:
    """Return the key of a GPU regardless of case."""
    from gpuinfra.sizing.devices import DEVICES

    return {key.lower(): key for key in DEVICES}.get(text.lower(), text) if text else None


def _refuse_foreign(serving: bool, adapter: bool) -> None:
    """Refuse options that have no effect with this goal."""
    from click.core import ParameterSource

    context = click.get_current_context()
    training = {
        "tokens": "--tokens",
        "examples": "--examples",
        "recipe": "--recipe",
        "rank": "--rank",
        "micro_batch": "--micro-batch",
        "recompute": "--recompute",
        "batch_tokens": "--batch-tokens",
        "sequence": "--sequence",
    }
    unused = (
        training
        if serving
        else {"context": "--context", "concurrency": "--concurrency", "weight_bits": "--weight-bits"}
    )
    if not serving and not adapter:
        unused = {**unused, "rank": "--rank"}
    for name, option in unused.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{option} has no effect with --goal {context.params['goal']}; omit {option}")
    if not context.params.get("examples") and context.get_parameter_source("epochs") is ParameterSource.COMMANDLINE:
        raise UsageError("--epochs has no effect without --examples; omit --epochs")


def _initialize(request: SizingRequest, chosen: SizedCandidate, given: dict[str, Any]) -> int:
    """Write the stack file of a candidate, with its storage and workload."""
    from gpuinfra.base.day import today
    from gpuinfra.cli.init import check_complete, write_stack
    from gpuinfra.new_stack.answers import StackAnswers
    from gpuinfra.new_stack.files import check_project, find_project, stack_path
    from gpuinfra.region.clone.write import target
    from gpuinfra.sizing.declare import declaration

    answers = StackAnswers(today=today(), declaration=declaration(request, chosen, given["name"]))
    for text in given["values"]:
        answers.set(*set_value(text))
    check_complete(answers)
    path = given["output"] or stack_path(str(answers.declaration["name"]), find_project(Path.cwd()))
    if not given["force"] and given["output"] is None and path.exists():
        raise UsageError(f"{path} exists; use a different --name or --output, or add --force to replace the file")
    check_project(find_project(path.parent))
    return write_stack(answers, path, target(path, force=given["force"]))


def _list_models(as_json: bool) -> int:
    from gpuinfra.sizing.shape import known_models

    models = known_models().values()
    if as_json:
        click.echo(
            json.dumps(
                {
                    "schema": "gpuinfra.models/1",
                    "models": [
                        {"name": one.name, "parameters": one.parameters, "active": one.active} for one in models
                    ],
                },
                indent=2,
            )
        )
        return 0
    from gpuinfra.report.tables import Column, Table, text

    rows = [
        (
            one.name,
            f"{one.parameters / 1e9:.4g}B",
            f"{one.active / 1e9:.3g}B" if one.is_moe else "",
            one.layers,
            one.hidden,
            one.source,
        )
        for one in models
    ]
    columns = [
        "model",
        Column("parameters", right=True),
        Column("active", right=True),
        Column("layers", right=True),
        Column("width", right=True),
        Column("source", wrap=True),
    ]
    click.echo("\n".join(text(Table(columns, rows))))
    return 0
