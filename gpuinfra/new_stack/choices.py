"""What the catalog offers for the next answer, with prices and their dates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gpuinfra.base.errors import GpuinfraError
from gpuinfra.base.registry import CLOUDS
from gpuinfra.catalog.records import CapacityKind, MachineType, Price
from gpuinfra.cost import price
from gpuinfra.cost.price import node_price
from gpuinfra.new_stack.answers import NO_STORAGE, NOT_SET, QUESTIONS, StackAnswers, kind_needs, model_of
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.profile import profile_of
from gpuinfra.reference.fields import flow
from gpuinfra.spec.load import parse_spec
from gpuinfra.spec.storage import Lustre, Storage

FIRST_KINDS = (CapacityKind.ON_DEMAND, CapacityKind.SPOT)
"""Kinds of capacity that require no fields except the count, in the order in which they are proposed."""
UNKNOWN = "-"


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Answers to choose from."""

    columns: tuple[str, ...]
    """Titles of the columns. The first column contains the answers."""
    rows: tuple[tuple[str, ...], ...]
    default: str | None = None
    """Default answer. None if an answer is required."""
    note: str = ""
    """What to know before an answer if there are no rows."""
    wrapped: tuple[str, ...] = ()
    """Titles of the columns that wrap in a terminal."""
    optional: tuple[str, ...] = ()
    """Titles of the columns that a narrow terminal omits."""

    @property
    def values(self) -> tuple[str, ...]:
        """The answers."""
        return tuple(row[0] for row in self.rows)


def choices(option: str, answers: StackAnswers) -> Choices:
    """Return the proposals for a question. The declaration contains the earlier answers."""
    return _CHOICES[option](answers)


def _names(_: StackAnswers) -> Choices:
    return Choices(columns=("name",), rows=(), default="train")


def _clouds(_: StackAnswers) -> Choices:
    rows = []
    for name in CLOUDS:
        cloud = profile_of(name)
        gpus = [machine for machine in cloud.machines.values() if machine.gpu]
        rows.append((name, cloud.title, _gpu_names(gpus)))
    return Choices(columns=("cloud", "name", "GPUs"), rows=tuple(rows), wrapped=("GPUs",))


def _regions(answers: StackAnswers) -> Choices:
    """Regions in which the catalog lists a machine type with GPUs."""
    cloud = profile_of(answers.cloud)
    rows = []
    for region in cloud.regions:
        sold = [machine for machine in cloud.machines.values() if machine.gpu and region in machine.zones]
        if sold:
            rows.append((region, _gpu_names(sold)))
    return Choices(columns=("region", "GPUs"), rows=tuple(rows), wrapped=("GPUs",))


def _gpu_names(machines: list[MachineType]) -> str:
    return ", ".join(dict.fromkeys(machine.gpu.key for machine in machines if machine.gpu))


def _machines(answers: StackAnswers) -> Choices:
    """Machine types with GPUs that the region offers and the rules accept, from the least to the most expensive."""
    region, rows = answers.region, []
    for machine in profile_of(answers.cloud).machines.values():
        if machine.gpu is None or region not in machine.zones or not _accepted(answers, machine):
            continue
        (list_price, listed_on), (spot, spot_on) = (_usd(machine, kind, region) for kind in FIRST_KINDS)
        dates = [listed_on, f"spot {spot_on}" if listed_on and spot_on and spot_on != listed_on else spot_on]
        fabric = machine.fabric
        node_usd, _ = node_price(machine, CapacityKind.ON_DEMAND, region)
        row = (
            machine.name,
            f"{machine.gpus} x {machine.gpu.key}",
            f"{machine.gpu.memory_mib / 1024:.0f} GiB",
            f"{fabric.provider} {fabric.gbps:g} Gbit/s" if fabric else UNKNOWN,
            list_price,
            spot,
            ", ".join(dict.fromkeys(day for day in dates if day)) or UNKNOWN,
        )
        rows.append((node_usd.usd_per_hour if node_usd else float("inf"), row))
    columns = ("machine", "GPUs", "each", "fabric", "USD/h on demand", "spot", "price of")
    note = (
        f"the catalog lists no machine type in {region}; enter a machine type of which you know that the region offers it, "
        "or press Ctrl-C and start again with a different region"
    )
    return Choices(
        columns=columns,
        rows=tuple(row for _, row in sorted(rows)),
        note=note,
        wrapped=("GPUs", "fabric"),
        optional=("each", "price of"),
    )


def _accepted(answers: StackAnswers, machine: MachineType) -> bool:
    draft = answers.copy()
    QUESTIONS["machine"].apply(draft, machine.name)
    return not QUESTIONS["machine"].problems(draft)


def _usd(machine: MachineType, kind: CapacityKind, region: str) -> tuple[str, str]:
    """Return the price per hour of a node and its date. `-` and an empty date if the region has no price of this kind."""
    listed_price = machine.price(kind, region)
    return (_amount(listed_price), str(listed_price.read)) if listed_price else (UNKNOWN, "")


def _amount(price: Price) -> str:
    low = f"{price.usd_low:,.2f} to " if price.usd_low is not None else ""
    return f"{low}{price.usd_per_hour:,.2f}"


def _capacities(answers: StackAnswers) -> Choices:
    machine, rows = answers.machine, []
    if machine is None:
        return Choices(columns=("capacity",), rows=())
    kinds = sorted(machine.capacity, key=list(CapacityKind).index)
    for kind in kinds:
        node_usd, note = node_price(machine, kind, answers.region)
        rows.append(
            (
                kind.value,
                _amount(node_usd) if node_usd else UNKNOWN,
                str(node_usd.read) if node_usd else "",
                kind_needs(kind.value).partition(",")[2].replace(",", " "),
                note if node_usd else "price unknown",
            )
        )
    default = next((kind.value for kind in FIRST_KINDS if kind in machine.capacity), None)
    columns = ("capacity", "USD/h per node", "price of", "needs", "note")
    return Choices(columns=columns, rows=tuple(rows), default=default, wrapped=("note",), optional=("price of",))


def _counts(answers: StackAnswers) -> Choices:
    units = answers.machine.unit_nodes if answers.machine else ()
    return Choices(columns=("count",), rows=(), default=str(units[0] if units else 1))


def _storages(answers: StackAnswers) -> Choices:
    """No storage, and the smallest entry of each kind that the rules accept, with its price."""
    rows = [(NO_STORAGE, "", "nodes have only their local disks")]
    for kind in sorted(profile_of(answers.cloud).storage_kinds):
        for text in _proposals(answers, kind):
            draft = answers.copy()
            QUESTIONS["storage"].apply(draft, text)
            if not QUESTIONS["storage"].problems(draft):
                rows.append((text, _added_usd(answers, draft), about(kind, Storage)))
                break
    columns = ("storage", "USD/h", "effect")
    return Choices(columns=columns, rows=tuple(rows), default=NO_STORAGE, wrapped=("storage", "effect"))


def _proposals(answers: StackAnswers, kind: str) -> Iterator[str]:
    """Yield entries of a kind, the preferred one first."""
    if kind == Lustre.model_fields["kind"].default:
        least = profile_of(answers.cloud).lustre(Lustre(capacity_gib=1)).billed
        yield f"{kind},capacity_gib={least},bucket=auto"
        yield f"{kind},capacity_gib={least}"
        return
    model = model_of(kind, Storage)
    fields = model.model_fields if model else {}
    values = {
        name: "auto" if name == "bucket" else flow((info.examples or [""])[0])
        for name, info in fields.items()
        if info.is_required()
    }
    yield ",".join([kind, *(f"{name}={value}" for name, value in values.items())])


def about(kind: str, annotation: Any) -> str:
    """Return the first sentence about a kind of `Capacity` or `Storage`, without the note about other clouds. Empty for an unknown kind."""
    model = model_of(kind, annotation)
    return " ".join((model.__doc__ or "").split()).split(". ")[0].rstrip(".") if model else ""


def _added_usd(before: StackAnswers, after: StackAnswers) -> str:
    """Return what an answer adds to the price of the plan per hour."""
    totals = []
    for usd in (before, after):
        cost = _cost(usd)
        if cost is None:
            return UNKNOWN
        totals.append(cost)
    return f"{totals[1] - totals[0]:,.2f}" if totals[1] > totals[0] else UNKNOWN


def _cost(answers: StackAnswers) -> float | None:
    try:
        plan = build_plan(parse_spec(answers.declaration), answers.today)
    except GpuinfraError:
        return None
    return price(plan, answers.today).usd_per_hour


_CHOICES: dict[str, Callable[[StackAnswers], Choices]] = {
    "name": _names,
    "cloud": _clouds,
    "region": _regions,
    "project": lambda answers: Choices(
        columns=("project",),
        rows=(),
        default=NOT_SET,
        note=f"ID of the project. {NOT_SET}: the project of the Pulumi provider or of your credentials at the time of the deployment",
    ),
    "recipients": lambda answers: Choices(
        columns=("recipients",),
        rows=(),
        default=NOT_SET,
        note=f"email addresses, separated by commas. {NOT_SET}: no alert is sent when the budget is exceeded",
    ),
    "zone": lambda answers: Choices(columns=("zone",), rows=()),
    "machine": _machines,
    "capacity": _capacities,
    "count": _counts,
    "storage": _storages,
}
