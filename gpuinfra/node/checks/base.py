"""What a check is: probes, a parser and a judgement. Transport, time limits, logging and exit codes are not its
business."""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping

from ..answer import Answers
from ..expectation import Machine
from ..table import Row, Table, failure
from ..words import Outcome, Phase, Severity, Unreadable, failed, passed, shortened


class Check:
    """One question about a node. The docstring of each check is what `explain` prints; `parse` and `judge` are every check's own."""

    id: str
    name: str
    phase: Phase
    severity: Severity
    probes: tuple[str, ...] = ()
    hint: str = ""
    source = "fact sheet on nodes, section 13"

    def asks(self, expectation: Mapping[str, Any]) -> tuple[str, ...]:
        """The probes that a node of this machine is asked; all of them, unless a check knows better."""
        return self.probes

    # Not abstract methods: `abc` is more than judging code may import (tests/node/test_layers.py). Every check brings both.
    def parse(self, answers: Answers, machine: Machine) -> Any:
        """Turn tool output into something to judge; raise `Unreadable` when it cannot be understood."""
        raise NotImplementedError

    def judge(self, found: Any, machine: Machine) -> Outcome:
        """Compare with what a healthy machine shows."""
        raise NotImplementedError


def gpu_rows(answers: Answers) -> Table:
    """The table of all GPUs; an empty one is no answer."""
    table = answers.csv("nvidia-smi-csv")
    if not table.rows:
        raise Unreadable("nvidia-smi listed no GPU in its table")
    return table


def all_same(values: Iterable[Any]) -> Any:
    """One value when all are the same, else the list: that is how outcomes show eight GPUs."""
    listed = list(values)
    return listed[0] if listed and all(value == listed[0] for value in listed) else listed


def on_some(values: Iterable[Any], seen: int, gpus: int) -> str:
    """What was seen when not every GPU was: `12 on 7 of 8 GPUs`, so that a right value does not hide the missing one."""
    return "%s on %d of %d GPUs" % (listed(sorted({str(value) for value in values})) or "nothing", seen, gpus)


def by_gpu(
    found: list[tuple[Row, Any, str | None]], expected: Any, unit: str | None = None, hint: str | None = None
) -> Outcome:
    """An outcome over (row, value, what is wrong with it or None), naming the GPUs that are wrong."""
    if not found:
        raise Unreadable("no GPU answered")
    values = all_same(value for _, value, _ in found)
    wrong = ["%s: %s" % (row.label, why) for row, _, why in found if why]
    if wrong:
        return failed(values, expected, listed(wrong), unit, hint)
    return passed(values, expected, unit)


def listed(items: list[str], most: int = 8) -> str:
    """Some items in one sentence, and how many more there are."""
    text = "; ".join(shortened(item, 160) for item in items[:most])
    return text if len(items) <= most else "%s; and %d more" % (text, len(items) - most)


def needed(row: Row, column: str) -> int:
    """A whole number that the device must show."""
    value = row.number(column)
    if value is None:
        raise Unreadable("%s shows no %s" % (row.label, column))
    return int(value)


def word(row: Row, column: str) -> str:
    """A cell that may say that the device has no such thing, and must not be an error token."""
    cell = row.get(column)
    if failure(cell):
        raise Unreadable("%s: %s is %s" % (row.label, column, cell))
    return cell


def clock_reasons(row: Row) -> int:
    """The bits that say why a GPU runs slower than it could; 0x1 is idle."""
    cell = row.get("clocks_event_reasons.active")
    if not re.match(r"^0x[0-9a-fA-F]{1,16}$", cell):
        raise Unreadable("%s shows clock event reasons %r" % (row.label, shortened(cell, 40)))
    return int(cell, 16)
