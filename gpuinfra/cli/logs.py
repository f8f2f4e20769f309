"""`gpuinfra logs`: prints the lines that nodes sent to the log service of the cloud, also of nodes that no longer exist."""

from __future__ import annotations

import json
import re
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.base.safe_text import one_line, printable
from gpuinfra.cli.options import stack_options
from gpuinfra.cli.stack_context import readable_stack
from gpuinfra.cli.stacks import Stacks, short_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinfra.clouds.logs import LogLine

SCHEMA = "gpuinfra.logs/1"
MOST = 100_000


@click.command("logs")
@click.argument("stack")
@click.argument("node", required=False)
@click.option(
    "--since",
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="Age of the oldest line, such as 30m, 2h or 3d.",
)
@click.option("--grep", "expression", metavar="REGEX", help="Print only lines that contain this regular expression.")
@click.option(
    "--lines",
    type=click.IntRange(1, MOST),
    help="Print only the newest lines, at most this number, after the whole period was read.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@stack_options
def command(
    stack: str, node: str | None, since: str, expression: str | None, lines: int | None, as_json: bool, stacks: Stacks
) -> int:
    """Print the logs of the nodes of STACK from the log service of the cloud, in the order of their times. Lines are printed while they are read.

    NODE is a label (gpu-1) or an instance ID. The nodes do not have to exist: a line remains until the end of `logs.retention_days`. A line starts with its
    time, the node, and its source: `kernel`, a unit, or a file. A node without a label no longer exists. The command does not contact the nodes.

    The exit code is 0 if the logs could be read, and 1 if the log service refuses the request or has no line of NODE, and NODE is not in the state.
    """
    from gpuinfra.base.day import today
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.clouds.logs import LogLine, LogQuestion
    from gpuinfra.clouds.region.failover import Unreachable
    from gpuinfra.inventory import nodes_of
    from gpuinfra.rules import load_stack
    from gpuinfra.search.patience import duration

    begin = datetime.now(UTC) - timedelta(seconds=duration("--since", since))
    matches = _expression(expression)
    loaded = load_stack(stack, today())
    if loaded.spec.logs is None:
        raise UsageError(f"{short_name(stack)} declares no logs; add `logs: {{}}` to its declaration, and deploy it")
    with readable_stack(stack, stacks, nodes=False) as resources:
        labels = {one.id: one.name for one in nodes_of(resources)}
        chosen = next((id_ for id_, label in labels.items() if label == node), node or "")
        question = LogQuestion(
            region=loaded.spec.where.region,
            settings=loaded.settings,
            resources=resources,
            instance_id=chosen,
            since=begin,
        )
        if stacks.notice and not as_json:
            click.echo(stacks.notice, err=True)
        number, kept = 0, deque[LogLine](maxlen=lines)
        try:
            for line in cloud_of(loaded.spec.cloud).node_logs(question):
                if not matches.search(line.text):
                    continue
                number += 1
                if as_json or lines is not None:
                    kept.append(line)
                else:
                    click.echo(_shown(line, labels))
        except (DeploymentError, Unreachable) as problem:
            raise DeploymentError(f"the logs of {short_name(stack)} cannot be read: {problem}") from None
    cut = lines is not None and number > lines
    if chosen and not number and chosen not in labels:
        names = ", ".join(sorted(labels.values())) or "none"
        raise DeploymentError(
            f"{short_name(stack)} has no node {one_line(node)}, and the log service has no lines of an instance with this ID in the last {since}; "
            f"nodes: {names}"
        )
    if as_json:
        entries = [_entry(line, labels) for line in kept]
        document = {"schema": SCHEMA, "stack": short_name(stack), "cut": cut, "lines": entries, **stacks.marks}
        click.echo(json.dumps(document, indent=2, ensure_ascii=True))
        return 0
    for line in kept:
        click.echo(_shown(line, labels))
    if cut:
        oldest = kept[0].time.strftime("%Y-%m-%d %H:%M:%S UTC")
        click.echo(f"older lines than {oldest} are left out; use --lines, --grep or a shorter --since", err=True)
    elif not number:
        click.echo(f"no lines in the last {since}", err=True)
    return 0


def _expression(text: str | None) -> re.Pattern[str]:
    try:
        return re.compile(text or "")
    except re.error as problem:
        raise UsageError(f"--grep is {text!r}, which is not a regular expression: {problem}") from None


def _shown(line: LogLine, labels: Mapping[str, str]) -> str:
    label = labels.get(line.instance_id, "-")
    # One line of a log stays one line, so that no node can write lines of another one.
    words = (label, one_line(line.instance_id), one_line(line.source), " ".join(printable(line.text).splitlines()))
    return f"{line.time.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}"[:23] + f"Z {' '.join(words)}"


def _entry(line: LogLine, labels: Mapping[str, str]) -> dict[str, str | None]:
    return {
        "time": datetime.isoformat(line.time),
        "node": labels.get(line.instance_id),
        "instance_id": line.instance_id,
        "source": line.source,
        "text": line.text,
    }
