"""Scenarios of failover and failback for each cloud, and the tables in `docs/reference/failover-scenarios.md`.

The scenarios of a cloud run in their order in one account: each one starts from what the earlier ones left, as for an operator.
`test_failover_scenarios.py` runs them with the real engine, and compares the results with `failover_scenarios.json`. With the variable
`RECORD_SCENARIOS`, it writes them. The tables are written with `python -m rehearsal.tests.failover_scenarios`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .scenarios import TITLES, page

RESULTS = Path(__file__).with_name("failover_scenarios.json")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "failover-scenarios.md"
REGIONS = {
    "aws": ("us-east-2", "us-west-2"),
    "gcp": ("us-central1", "us-east4"),
    "azure": ("southcentralus", "eastus2"),
}
"""The first and the second region."""
WITHOUT_FIRST = {
    "aws": "--unreachable us-east-2",
    "gcp": "--ignore fence --ignore export --ignore drain",
    "azure": "--ignore fence --ignore export --ignore drain --ignore replication",
}
"""Options for an outage of the first region. The endpoints of Google Cloud and Azure are global, so their regions cannot be proven unreachable."""
PATIENT = "1200s"
"""Deadline for nodes that start. It is long enough for a busy machine."""
NO_CAPACITY = ("cloud:no-capacity:gpu",)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One command, and what it must show."""

    cloud: str
    title: str
    case: str
    command: str = ""
    """The command. Empty if the scenario runs a printed one."""
    printed: str = ""
    """Part of a command that the last or an earlier scenario printed, and that this scenario runs."""
    more: str = ""
    """Options that are added to a printed command."""
    code: int = 0
    message: str
    nodes: tuple[int, int]
    """Nodes in the first and the second region at the end."""
    active: int = 0
    """Index of the active region in the record at the end."""
    stops: bool = False
    """Whether no node runs for a time, as documented: with `--stop-first`, and until a failover with this option is undone."""
    idle: bool = False
    """Whether no job writes before the command, because the region that is active in the record has no imported data."""
    operator: str = "a"
    """Each operator has a home folder."""
    faults: tuple[str, ...] = ()
    deadline: str = PATIENT
    before: str = ""
    """What happens before the command: a method of the account."""
    kill: str = ""
    """The step during which the command is killed."""
    meanwhile: str = ""
    """A command of operator `b` while the `up` step of this one runs. It must have the exit code 2, and change nothing."""

    @property
    def name(self) -> str:
        """Cloud and title."""
        return f"{self.cloud}: {self.title}"


def scenarios_of(cloud: str) -> Iterator[Scenario]:
    """The scenarios of a cloud, in order."""
    first, second = REGIONS[cloud]
    over, back = f"gpuinfra failover recovery --to {second}", "gpuinfra failback recovery"
    ran, moved, both, none = (1, 0), (0, 1), (1, 1), (0, 0)

    def one(title: str, case: str, message: str, nodes: tuple[int, int], command: str = "", **more: Any) -> Scenario:
        return Scenario(cloud=cloud, title=title, case=case, message=message, nodes=nodes, command=command, **more)

    yield one(
        "wrong region", "`--to` is not the declared second region", f"--to is nowhere; allowed: {second}", ran,
        "gpuinfra failover recovery --to nowhere", code=2,
    )  # fmt: skip
    yield one(
        "abort without a failover", "no failover was started", "so there is nothing to undo; omit --abort", ran, f"{over} --abort", code=2,
    )  # fmt: skip
    yield one(
        "failback without a failover", "the stack runs in its first region", "so there is nothing to fail back", ran, back, code=2,
    )  # fmt: skip
    yield one(
        "price above the limit", "the second region costs more than `--max-usd-per-hour`", "raise the limit", ran,
        f"{over} --max-usd-per-hour 0.01", code=1,
    )  # fmt: skip
    yield one("abort before any change", "after the price limit", f"runs in {first}", ran, printed="--abort")
    yield one(
        "no capacity in the second region", "the first region is healthy", f"nothing in {first} was changed, and its nodes continue to run", ran,
        over, code=1, faults=NO_CAPACITY, deadline="60s",
    )  # fmt: skip
    yield one(
        "abort after missing capacity", "on another machine, which has no journal", f"the failover is undone, and recovery runs in {first}", ran,
        printed="--abort", operator="b",
    )  # fmt: skip
    yield one(
        "partial capacity", "two nodes are declared in the second region, which has capacity for one", "stock-out: ", both if cloud != "azure" else ran, over,
        code=1, faults=("cloud:limited:gpu:1",), deadline="60s", before="declare_two",
    )  # fmt: skip
    yield one(
        "resume with another capacity", "another operator declares one node and resumes, and the API throttles requests",
        f"recovery runs in {second}", moved, printed="--resume", operator="b", faults=("cloud:throttled:4",), before="declare_one", active=1,
    )  # fmt: skip
    yield one("failover after the failover", "the stack runs in its second region", "add --resume to continue the failover", moved, over, code=2, active=1)  # fmt: skip
    yield one(
        "`pulumi up` in the fenced region", "the stack runs in its second region", f"recovery does not run in {first}: {second} is active since",
        moved, "pulumi up --stack recovery --skip-preview", code=1, active=1,
    )  # fmt: skip
    yield one(
        "`gpuinfra up` in the fenced region", "the stack runs in its second region", f"recovery does not run in {first}: {second} is active since",
        moved, "gpuinfra up recovery", code=1, active=1,
    )  # fmt: skip
    yield one(
        "newer data in the first region", "an object was written in the first region, and its replica has the older version", "must not be replaced", moved,
        printed="failback", code=1, active=1, before="write_in_first",
    )  # fmt: skip
    yield one(
        "failback without capacity", "the first region has no capacity for its nodes; the newer object is kept", "capacity", moved,
        printed="failback", more="--ignore conflicts", code=1, faults=NO_CAPACITY, deadline="60s", active=1,
    )  # fmt: skip
    yield one(
        "failback undone", "on another machine", f"the failback is undone, and recovery runs in {second}", moved, printed="failback recovery --abort",
        operator="b", active=1,
    )  # fmt: skip
    yield one(
        "failback", "the first region has capacity again", f"recovery runs in {first}", ran, f"{back} --ignore conflicts", operator="b",
    )  # fmt: skip
    yield one("destroy of the second region", "the stack that the failback does not need", "Resources:", ran, printed="pulumi destroy", more="--skip-preview", before="keep_retained")  # fmt: skip
    yield one(
        "killed during the fence", "after the second region was destroyed; the failover imports what was retained", "", moved, over, code=-9,
        kill="fence", active=1,
    )  # fmt: skip
    yield one(
        "abort after the fence", "on another machine", f"the failover is undone, and recovery runs in {first}", ran,
        f"{over} --abort", operator="b", idle=True,
    )  # fmt: skip
    yield one(
        "two operators", "a second operator starts a failover while the first one's runs", f"recovery runs in {second}", moved, over,
        meanwhile=over, active=1,
    )  # fmt: skip
    yield one(
        "failback killed", "while the nodes of the first region start", "", both, printed="failback", code=-9, kill="nodes", active=1,
    )  # fmt: skip
    yield one(
        "failback resumed", "on another machine; nothing is newer in the first region", f"recovery runs in {first}", ran, f"{back} --resume",
        operator="b",
    )  # fmt: skip
    yield one(
        "killed during the import", "a failover after a failback, without a destroy", "", moved, over, code=-9, kill="import", active=1,
    )  # fmt: skip
    yield one(
        "abort after the import", "on another machine; the second region has written objects", f"the failover is undone, and recovery runs in {first}",
        ran, f"{over} --abort", operator="b",
    )  # fmt: skip
    yield one(
        "first region unreachable", "its APIs do not respond, and its nodes still run", f"recovery runs in {second}", both,
        f"{over} {WITHOUT_FIRST[cloud]}", active=1, before="begin_outage",
    )  # fmt: skip
    yield one(
        "failback before the first region is fenced", "the first region responds again, and its nodes still run", "steps of the failover did not run", both,
        back, code=2, active=1, before="end_outage",
    )  # fmt: skip
    # Where a replica does not keep the version of the first region, `drain` lists the objects that the second region has replaced.
    replaced = "" if cloud == "aws" else "--ignore drain"
    yield one(
        "first region returns", "the steps that did not run are repeated", f"recovery runs in {second}", moved,
        printed="--resume", more=replaced, active=1,
    )  # fmt: skip
    yield one("failback after the outage", "the first region is fenced", f"recovery runs in {first}", ran, printed="failback")  # fmt: skip
    yield one(
        "stop first without capacity", "`--stop-first`, and the second region has no capacity", "to return to", none, f"{over} --stop-first",
        code=1, faults=NO_CAPACITY, deadline="60s", active=1, stops=True,
    )  # fmt: skip
    yield one("abort after stop first", "the second region still has no capacity", f"the failover is undone, and recovery runs in {first}", ran, printed="--abort", stops=True, idle=True)  # fmt: skip


SCENARIOS = {one.name: one for cloud in REGIONS for one in scenarios_of(cloud)}


def recorded() -> dict[str, Any]:
    """The results of the last recorded run, keyed by scenario."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def shown(command: str, second: str) -> str:
    """A command without what the commands of gpuinfra have in common."""
    if not command.startswith("gpuinfra "):
        return command
    return command.removeprefix("gpuinfra ").replace(" recovery", "", 1).replace(f" --to {second}", "", 1)


def _neutral(text: str, cloud: str) -> str:
    """A text without the names of the regions, which differ between the clouds."""
    for region, word in zip(REGIONS[cloud], ("FIRST", "SECOND"), strict=True):
        text = text.replace(region, word)
    return text


def table() -> str:
    """The tables of the page. The first one has what is equal on the clouds, and the second one the nodes."""
    results, lines = recorded(), list[str]()
    lines += ["## Commands", ""]
    lines += [
        "| scenario | command | exit code and message | record | next command |",
        "| --- | --- | --- | --- | --- |",
    ]
    every: dict[str, dict[str, tuple[Scenario, dict[str, Any]]]] = {}
    for one in SCENARIOS.values():
        if one.name in results:
            every.setdefault(one.title, {})[one.cloud] = one, results[one.name]
    for number, rows in enumerate(every.values(), 1):
        by_row: dict[str, list[str]] = {}
        for cloud, (one, found) in rows.items():
            done = ": ".join([str(found["code"]), *([one.message.strip(": ")] if one.message else [])])
            following = "<br>".join(f"`{shown(each, REGIONS[cloud][1])}`" for each in found["next"]) or "none"
            row = f"`{shown(found['ran'], REGIONS[cloud][1])}` | {done} | {found['active']}, {found['journal']} | {following} |"
            by_row.setdefault(_neutral(row, cloud), []).append(TITLES[cloud])
        for row, titles in by_row.items():
            where = "" if len(by_row) == 1 else f" ({', '.join(titles)})"
            one, _ = next(iter(rows.values()))
            lines.append(f"| {number}. {one.title}: {one.case}{where} | {row}")
    lines += [
        "",
        "## Nodes",
        "",
        f"| scenario | {' | '.join(TITLES[cloud] for cloud in REGIONS)} |",
        f"| --- |{' --- |' * len(REGIONS)}",
    ]
    for number, (title, rows) in enumerate(every.items(), 1):
        cells = [_nodes(rows[cloud][1]) if cloud in rows else "not recorded" for cloud in REGIONS]
        lines.append(f"| {number}. {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _nodes(found: dict[str, Any]) -> str:
    return f"{found['before']}→{found['after']}, {found['fewest']}".replace(" / ", "/")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), table()), encoding="utf-8")
