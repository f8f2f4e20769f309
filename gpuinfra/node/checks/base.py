"""The base class for checks: probes, a parser and a judgement. Transport, time limits, logging and exit codes belong to the
engine."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Iterable, Mapping

from ..answer import Answers
from ..cause import Action, Cause, FaultyPart
from ..expectation import Expectation, Machine
from ..outcome import CheckOutcome, Phase, Severity, Unreadable, failed, passed, shortened
from ..table import GpuRow, GpuTable, absent, failure
from .conditions import Condition

if TYPE_CHECKING:
    from typing import TypeGuard  # Python 3.10

LAST = 99
"""The rank of a check that is no root cause."""
KINDS: list[type[Check]] = []
"""All check classes in the imported modules."""


class Check:
    """One question about a node, and everything that the project knows about it. The docstring of the subclass states what the check proves."""

    id: str
    name: str
    phase: Phase
    severity: Severity
    when: tuple[Condition, ...] = ()
    """Nodes of a pool run the check if all conditions are true. Without conditions, it runs only on request."""
    skips: tuple[tuple[Condition, str], ...] = ()
    """Conditions under which the check cannot run although `when` is true, and the reasons. The nodes are verified without it."""
    action: Action = Action.CONFIGURE
    """What a failure requires, unless its cause requires an action (`cause.py`)."""
    fault: FaultyPart | None = None
    """What is faulty if the check fails. None: software, settings, or a defect that has no consequence yet."""
    burn_in: tuple[int, ...] = ()
    """The levels of `--burn-in` that add the check to a run."""
    may_warn = False
    """Whether the check can warn despite its severity. Such a warning does not block the node."""
    is_installation = False
    """Whether the check is about software and settings, which only a change of the node breaks after the handover. The others are about hardware and load."""
    rank = LAST
    """Position among the failed checks of a node: causes before consequences. A lost GPU fails ten checks, and its Xid gives the cause."""
    probes: tuple[str, ...] = ()
    hint: str = ""
    source: str = ""

    def __init_subclass__(cls) -> None:
        if "id" in vars(cls):
            KINDS.append(cls)

    @classmethod
    def applies(cls, pool: Expectation) -> bool:
        """Return True if the nodes of a pool run the check, or skip it for a listed reason."""
        return bool(cls.when) and all(condition(pool) for condition in cls.when)

    @classmethod
    def skipped(cls, pool: Expectation) -> str:
        """Return the reason why the nodes of a pool cannot run the check, or an empty string."""
        return next((reason for condition, reason in cls.skips if condition(pool)), "")

    def probes_for(self, expectation: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the probes whose output this check needs on a machine. Default: all of its probes."""
        return self.probes

    # No abstract methods: judging code must not import `abc` (tests/node/test_layers.py).
    def parse(self, answers: Answers, machine: Machine) -> Any:
        """Turn tool output into a value to judge. Raises `Unreadable` if the output cannot be parsed."""
        raise NotImplementedError

    def judge(self, found: Any, machine: Machine) -> CheckOutcome:
        """Compare the value with the values for a healthy machine."""
        raise NotImplementedError


def gpu_rows(answers: Answers) -> GpuTable:
    """Return the table of all GPUs. Raises `Unreadable` if it is empty."""
    table = answers.csv("nvidia-smi-csv")
    if not table.rows:
        raise Unreadable("the table from nvidia-smi contains no GPU")
    return table


def all_gpu_rows(answers: Answers, machine: Machine) -> GpuTable:
    """Return the table of all GPUs. Raises `Unreadable` if it does not list every GPU in the machine."""
    table = gpu_rows(answers)
    if len(table.rows) != machine.gpus:
        raise Unreadable("the table from nvidia-smi lists %d of %d GPUs, see G1" % (len(table.rows), machine.gpus))
    return table


class GpuTableCheck(Check):
    """A check of the table of all GPUs."""

    probes = ("nvidia-smi-csv",)

    def parse(self, answers: Answers, machine: Machine) -> GpuTable:
        return all_gpu_rows(answers, machine)


def result_of(answers: Answers, probe: str, schema: str, what: str, part: str = "") -> dict[str, Any]:
    """Return the JSON object that a `node.pyz` command printed. `part` names its list."""
    document = json_object(answers.text(probe), what)
    if document.get("schema") != schema or (part and not isinstance(document.get(part), list)):
        raise Unreadable("%s has an unknown format" % what)
    return document


def all_same(values: Iterable[Any]) -> Any:
    """Return a single value if all values are equal, otherwise the list. Keeps the outcomes of eight GPUs short."""
    listed = list(values)
    return listed[0] if listed and all(value == listed[0] for value in listed) else listed


def on_some(values: Iterable[Any], seen: int, gpus: int) -> str:
    """Return the values with the GPU count, such as `12 on 7 of 8 GPUs`, so a correct value does not hide missing GPUs."""
    return "%s on %d of %d GPUs" % (listed(sorted({str(value) for value in values})) or "nothing", seen, gpus)


def by_gpu(
    found: list[tuple[GpuRow, Any, str | None]],
    expected: Any,
    unit: str | None = None,
    hint: str | None = None,
    cause: Cause | None = None,
) -> CheckOutcome:
    """Return an outcome that names the GPUs with a problem, from (row, value, problem or None)."""
    if not found:
        raise Unreadable("no GPU answered")
    values = all_same(value for _, value, _ in found)
    return judged(values, expected, ["%s: %s" % (row.label, why) for row, _, why in found if why], unit, hint, cause)


def judged(
    found: Any,
    expected: Any,
    problems: list[str],
    unit: str | None = None,
    hint: str | None = None,
    cause: Cause | None = None,
) -> CheckOutcome:
    """Return a pass if there are no problems, otherwise a failure with the problems as the reason."""
    return failed(found, expected, listed(problems), unit, hint, cause) if problems else passed(found, expected, unit)


def strongest(causes: Iterable[Cause]) -> Cause | None:
    """Return the cause with the strongest action, or None without causes."""
    return max(causes, key=lambda cause: (cause.action or Action.NOTHING).strength, default=None)


def is_number(value: object) -> TypeGuard[float]:
    """Return True for an int or a float, but not for a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def json_object(text: str, what: str) -> dict[str, Any]:
    """Parse a JSON object that a tool printed."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("%s is not JSON" % what) from None
    if not isinstance(document, dict):
        raise Unreadable("%s is not a JSON object" % what)
    return document


def listed(items: list[str], most: int = 8, limit: int = 160) -> str:
    """Return the first items on one line, each with at most `limit` characters, followed by the number of remaining items."""
    text = "; ".join(shortened(item, limit) for item in items[:most])
    return text if len(items) <= most else "%s; and %d more" % (text, len(items) - most)


def needed(row: GpuRow, column: str) -> int:
    """Return an integer that the GPU must report."""
    value = row.number(column)
    if value is None:
        raise Unreadable("%s shows no %s" % (row.label, column))
    return int(value)


def word(row: GpuRow, column: str) -> str:
    """Return a cell, which can contain `[N/A]` but not an error token."""
    cell = row.get(column)
    if failure(cell):
        raise Unreadable("%s: %s is %s" % (row.label, column, cell))
    return cell


def mode(row: GpuRow, feature: str, wanted: str) -> tuple[tuple[str, str], bool]:
    """Return the current and the pending mode of `ecc` or `mig`, and whether both have the required value. A missing feature counts as disabled."""
    modes = (word(row, feature + ".mode.current"), word(row, feature + ".mode.pending"))
    return modes, modes == (wanted, wanted) or (wanted == "Disabled" and all(absent(one) for one in modes))


def clock_reasons(row: GpuRow) -> int:
    """Return the bitmask of clock event reasons. 0x1 means that the GPU is idle."""
    cell = row.get("clocks_event_reasons.active")
    if not re.match(r"^0x[0-9a-fA-F]{1,16}$", cell):
        raise Unreadable("%s shows clock event reasons %r" % (row.label, shortened(cell, 40)))
    return int(cell, 16)
