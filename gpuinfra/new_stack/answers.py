"""Converts a user's answers to a declaration. Each answer is checked with the rules of `gpuinfra plan`."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, get_args

from pydantic import BaseModel

from gpuinfra.base.errors import SpecError, UsageError
from gpuinfra.base.findings import Finding, Level, error
from gpuinfra.base.registry import CLOUDS
from gpuinfra.catalog.records import MachineType
from gpuinfra.plan.profile import profile_of
from gpuinfra.reference.fields import FieldHelp, all_fields
from gpuinfra.region.clone.draft import put, route_of, value_at
from gpuinfra.rules import check
from gpuinfra.spec.capacity import Capacity
from gpuinfra.spec.document import Route, parse
from gpuinfra.spec.load import parse_spec
from gpuinfra.spec.messages import listed, nearest
from gpuinfra.spec.shown import shown

POOL: Route = ("pools", 0)
ENTRY: Route = (*POOL, "capacity", 0)
NO_STORAGE = "none"
NOT_SET = "none"
"""Answer that leaves out an optional field."""


@dataclass
class StackAnswers:
    """The declaration while it is being created."""

    today: date
    declaration: dict[str, Any] = field(default_factory=dict)

    @property
    def cloud(self) -> str:
        """The cloud, or an empty string before it is known."""
        return str(self.get(("where", "cloud")) or "")

    @property
    def region(self) -> str:
        """The region, or an empty string before it is known."""
        return str(self.get(("where", "region")) or "")

    @property
    def machine(self) -> MachineType | None:
        """The record of the machine type, or None before it is known."""
        return profile_of(self.cloud).machines.get(str(self.get((*POOL, "machine")))) if self.cloud else None

    def get(self, route: Route) -> Any:
        """Return the value at a path, or None."""
        return value_at(self.declaration, route)

    def copy(self) -> StackAnswers:
        """Return an independent copy, to try an answer."""
        return StackAnswers(today=self.today, declaration=copy.deepcopy(self.declaration))

    def findings(self) -> tuple[Finding, ...]:
        """Return all findings about the declaration as it is now."""
        try:
            return check(parse_spec(self.declaration), self.today)
        except SpecError as problem:
            return problem.findings

    def errors(self) -> tuple[Finding, ...]:
        """Return the findings of level error."""
        return tuple(one for one in self.findings() if one.level is Level.ERROR)

    def set(self, text: str, value: object) -> None:
        """Set the value at a path such as `access.evidence_from`. A single value of a list becomes a list with one value.

        Raises `UsageError` if the path does not fit the declaration.
        """
        fields = all_fields().get(_without_indices(text), ())
        if fields and all(field.many for field in fields) and isinstance(value, str | int | float):
            value = [value]
        try:
            put(self.declaration, route_of(text, self.declaration), value)
        except (TypeError, IndexError):
            raise UsageError(
                f"--set {text} does not match a value in the declaration; use --set with the complete value of the parent field"
            ) from None


@dataclass(frozen=True, kw_only=True)
class WizardQuestion:
    """One question, which an option can answer."""

    option: str
    title: str
    """The noun of the question for a prompt."""
    apply: Callable[[StackAnswers, str], None]
    """Adds an answer to the declaration. Raises `UsageError` or `SpecError` if the answer cannot be read."""
    owns: Callable[[str], bool]
    """Whether a finding about a path concerns this answer."""
    prefix: str
    """Path of the answer in the declaration. Messages show the option instead."""

    @property
    def fields(self) -> tuple[FieldHelp, ...]:
        """The documentation of the field that the answer sets, one entry per kind of its section."""
        return all_fields().get(_without_indices(self.prefix), ())

    def applies(self, answers: StackAnswers) -> bool:
        """Return whether the declaration of the selected cloud has the field."""
        if not answers.cloud or not self.fields:
            return True
        return any(entry.tag != "cloud" or answers.cloud in entry.kinds for entry in self.fields)

    def problems(self, answers: StackAnswers) -> tuple[Finding, ...]:
        """Return the errors about this answer, with the option instead of the path of the field."""
        return tuple(self._named(one, answers) for one in answers.errors() if self.owns(one.path))

    def _named(self, finding: Finding, answers: StackAnswers) -> Finding:
        """Return a finding with the option instead of the path of the field. If the option is repeated, it has its number, from 1."""
        # A finding can also be about a parent of the field.
        rest = finding.path.removeprefix(self.prefix) if finding.path.startswith(self.prefix) else ""
        index, _, name = rest.removeprefix("[").partition("]") if rest.startswith("[") else ("", "", rest)
        number = f"(number {int(index) + 1})" if index and len(answers.get((self.prefix,))) > 1 else ""
        words = [f"--{self.option}", number, name.lstrip(".")]
        return replace(finding, path=" ".join(filter(None, words)), file="", line=None)


def _cloud(answers: StackAnswers, text: str) -> None:
    clouds = list(CLOUDS)
    text = _as_listed(text, {**{name: name for name in clouds}, **{profile_of(name).title: name for name in clouds}})
    if text not in clouds:
        near = nearest(text, clouds)
        hint = f"did you mean {near}?" if near else "use one of these"
        raise SpecError(
            [error("--cloud", f"is {shown(text)}; allowed: {listed(clouds)}", hint, rule="value_is_allowed")]
        )
    answers.declaration["where"] = {"cloud": text}


def _region(answers: StackAnswers, text: str) -> None:
    answers.declaration["where"]["region"] = _as_listed(text, profile_of(answers.cloud).regions)


def _zone(answers: StackAnswers, text: str) -> None:
    answers.declaration["where"]["zone"] = text


def _machine(answers: StackAnswers, text: str) -> None:
    text = _as_listed(text, profile_of(answers.cloud).machines) if answers.cloud else text
    answers.declaration["pools"] = [{"name": "gpu", "machine": text, "capacity": [{"kind": "on_demand", "count": 1}]}]


def _capacity(answers: StackAnswers, text: str) -> None:
    count = answers.get((*ENTRY, "count")) or 1
    put(answers.declaration, ENTRY, {**entry_of("--capacity", text), "count": count})


def _count(answers: StackAnswers, text: str) -> None:
    value = _value("--count", text)
    if value == 0:
        hint = "specify the number of nodes to start with; to stop all nodes later, set count to 0 in the stack file"
        raise SpecError([error("--count", "is 0; allowed: 1 or more", hint, rule="value_is_allowed")])
    put(answers.declaration, (*ENTRY, "count"), value)


def _project(answers: StackAnswers, text: str) -> None:
    if text != NOT_SET:
        answers.declaration["where"]["project"] = text


def _recipients(answers: StackAnswers, text: str) -> None:
    if text != NOT_SET:
        answers.declaration["budget"] = {"recipients": [part.strip() for part in text.split(",")]}


def _without_indices(path: str) -> str:
    return re.sub(r"\[\d+\]", "", path)


def _as_listed(text: str, listed: Mapping[str, object] | Iterable[str]) -> str:
    """Return a listed name that differs from the text only in upper and lower case, or the text. A mapping gives the value for the name."""
    values = listed if isinstance(listed, Mapping) else {}
    for name in listed:
        if name.lower() == text.lower():
            value = values.get(name)
            return value if isinstance(value, str) else name
    return text


def _storage(answers: StackAnswers, text: str) -> None:
    if text == NO_STORAGE:
        return
    answers.declaration.setdefault("storage", []).append(entry_of("--storage", text))


def _name(answers: StackAnswers, text: str) -> None:
    answers.declaration["name"] = text


def entry_of(option: str, text: str) -> dict[str, object]:
    """Parse `KIND[,FIELD=VALUE]...`, such as `reserved,id=cr-0123456789abcdef0`. Raises `UsageError` if it has a different format."""
    kind, *rest = text.split(",")
    entry: dict[str, object] = {"kind": kind.strip().lower()}
    for part in rest:
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or name.strip() in entry:
            raise UsageError(
                f"{option} is {shown(text)}; allowed: KIND[,FIELD=VALUE]..., such as {EXAMPLES[option]}, with each field once"
            )
        entry[name.strip()] = _value(option, value.strip())
    return entry


EXAMPLES = {"--capacity": "reserved,id=cr-0123456789abcdef0", "--storage": "lustre,capacity_gib=4800"}


def _value(option: str, text: str) -> object:
    try:
        return parse(text, option).value
    except SpecError as problem:
        raise SpecError([replace(one, path=option, file="", line=None) for one in problem.findings]) from None


def model_of(kind: str, annotation: Any) -> type[BaseModel] | None:
    """Return the model of a kind of `Capacity` or `Storage`, or None for an unknown kind."""
    models: tuple[type[BaseModel], ...] = get_args(get_args(annotation)[0])
    return next((one for one in models if one.model_fields["kind"].default == kind), None)


def needed_fields(kind: str) -> tuple[str, ...]:
    """Return the fields that an entry of a kind of capacity requires in addition to its count, in the order of the model."""
    model = model_of(kind, Capacity)
    fields = model.model_fields if model else {}
    needed = tuple(name for name, info in fields.items() if info.is_required() and name != "count")
    # Reserved capacity has either `id` or `group_arn`, so that neither is required.
    return needed or (("id",) if "id" in fields else ())


def kind_needs(kind: str) -> str:
    """Return the `--capacity` syntax for a kind, such as `reserved,id=ID`."""
    return ",".join([kind, *(f"{name}={name.upper()}" for name in needed_fields(kind))])


QUESTIONS = {
    one.option: one
    for one in (
        WizardQuestion(option="name", title="Name of the stack and of the cluster", apply=_name, prefix="name",
                 owns=lambda path: path == "name"),
        WizardQuestion(option="cloud", title="Cloud", apply=_cloud, prefix="where.cloud",
                 owns=lambda path: path in ("where", "where.cloud")),
        WizardQuestion(option="project", title="Google Cloud project", apply=_project, prefix="where.project",
                 owns=lambda path: path == "where.project"),
        WizardQuestion(option="region", title="Region", apply=_region, prefix="where.region",
                 owns=lambda path: path == "where.region"),
        WizardQuestion(option="zone", title="Zone", apply=_zone, prefix="where.zone",
                 owns=lambda path: path == "where.zone"),
        WizardQuestion(option="machine", title="Machine type", apply=_machine, prefix="pools[0].machine",
                 owns=lambda path: path == "pools[0].machine"),
        WizardQuestion(option="capacity", title="Capacity", apply=_capacity, prefix="pools[0].capacity[0]",
                 owns=lambda path: path.startswith("pools[0].capacity") and not path.endswith(".count")),
        WizardQuestion(option="count", title="Number of nodes", apply=_count, prefix="pools[0].capacity[0].count",
                 owns=lambda path: path == "pools[0].capacity[0].count"),
        WizardQuestion(option="storage", title="Storage", apply=_storage, prefix="storage",
                 owns=lambda path: path.startswith("storage")),
        WizardQuestion(option="recipients", title="Recipients of budget alerts", apply=_recipients, prefix="budget.recipients",
                 owns=lambda path: path.startswith("budget")),
    )
}  # fmt: skip
"""The questions in the order in which they are asked."""
