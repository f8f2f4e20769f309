"""`gpuinfra replace`: replaces faulty nodes, and collects the evidence for the provider."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinfra.base.errors import DeploymentError, GpuinfraError, UsageError
from gpuinfra.base.words import titled
from gpuinfra.cli.options import stack_options
from gpuinfra.cli.stack_context import active_stack, plan_of
from gpuinfra.cli.stacks import Stacks, as_argument, short_name

if TYPE_CHECKING:
    from gpuinfra.cli.stack_context import ActiveStack
    from gpuinfra.clouds.vendor import Vendor
    from gpuinfra.plan.model import Plan
    from gpuinfra.verification.replacement import Replaced, Replacement, ReplacementTarget

SCHEMA = "gpuinfra.replace/1"


@click.command("replace")
@click.argument("stack")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the evidence and the reports to this folder. Default: replace-STACK-TIME in the current folder.",
)
@click.option("--report-only", is_flag=True, help="Only write the evidence and the reports. Do not replace the nodes.")
@click.option("--dry-run", is_flag=True, help="Print the steps without performing them.")
@click.option("--no-wait", is_flag=True, help="Do not wait until the replacements are verified.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--direct", is_flag=True, help="Connect to private addresses instead of through the cloud's tunnel.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and progress on stderr.")
@stack_options
def command(
    stack: str,
    nodes: tuple[str, ...],
    save: Path | None,
    report_only: bool,
    dry_run: bool,
    no_wait: bool,
    yes: bool,
    direct: bool,
    as_json: bool,
    stacks: Stacks,
) -> int:
    """Replace each NODE of STACK with a node on a different host.

    NODE is a label (gpu-1) or an instance ID. The command writes the evidence and a report for the cloud provider to a folder, asks for
    confirmation, stops the jobs on the nodes, requests the replacement from the node group, and waits until the replacements
    are verified. Data on the local disks of the nodes is lost.

    The exit code is 0 if each replacement is verified. It is 1 if a replacement is not verified, or if it has the GPUs of
    the node that it replaces.
    """
    from gpuinfra.clouds.cloud import cloud_of
    from gpuinfra.handover.ports import PortUnavailable
    from gpuinfra.verification.replacement import Replaced, Replacement, limit_of, targets, write_report
    from gpuinfra.verification.store import polled

    _refuse_unused(report_only=report_only, dry_run=dry_run, no_wait=no_wait, yes=yes, direct=direct, save=save)
    plan = plan_of(stack)
    vendor = cloud_of(plan.cloud).vendor
    short = short_name(stack)
    folder = save or Path(f"replace-{short}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    with active_stack(stack, stacks) as active:
        if stacks.notice:
            click.echo(stacks.notice, err=as_json)
        try:
            chosen = targets(polled(active.resources), nodes)
        except PortUnavailable as problem:
            raise DeploymentError(f"the nodes of {stack} cannot be read: {problem}") from None
        replacement = Replacement(nodes=[Replaced(target=one) for one in chosen])
        if dry_run:
            return _show(short, folder, replacement, vendor, wait=not no_wait, as_json=as_json, stacks=stacks)
        for target in chosen:
            files = write_report(folder, f"{as_argument(stack)}{stacks.options}", plan.region, target, vendor)
            click.echo(
                f"{target.title}: evidence and report in {files[0].parent}; {files[0].parent / 'SEND.txt'} describes how to send the report",
                err=as_json,
            )
        if report_only:
            return _end(short, folder, replacement, "reported", as_json=as_json, stacks=stacks)
        if not yes:
            _confirm(chosen, vendor)
        _drain(active, plan, replacement, direct, err=as_json)
        _request(replacement, err=as_json)
        if no_wait:
            return _end(short, folder, replacement, "requested", as_json=as_json, stacks=stacks)
        return _wait(stack, folder, replacement, vendor, plan.region, limit_of(active.resources), as_json=as_json, stacks=stacks)  # fmt: skip


def _refuse_unused(*, report_only: bool, dry_run: bool, no_wait: bool, yes: bool, direct: bool, save: Path | None) -> None:  # fmt: skip
    """Refuse options that have no effect."""
    alone = "--report-only" if report_only else "--dry-run" if dry_run else ""
    unused = {
        "--dry-run": report_only and dry_run,
        "--no-wait": report_only and no_wait,
        "--yes": bool(alone) and yes,
        "--direct": bool(alone) and direct,
        "--save": dry_run and save is not None,
    }
    for option, given in unused.items():
        if given:
            raise UsageError(f"{option} has no effect with {alone}; omit {option}")


def _steps(folder: Path, target: ReplacementTarget, vendor: Vendor, *, wait: bool) -> list[str]:
    steps = [
        f"write the evidence and the report for the provider to {folder / target.node.label}",
        "stop the jobs on the node",
        vendor.ACTION,
    ]
    return [*steps, "wait until the replacement is verified, and compare its GPUs"] if wait else steps


def _show(short: str, folder: Path, replacement: Replacement, vendor: Vendor, *, wait: bool, as_json: bool, stacks: Stacks) -> int:  # fmt: skip
    if as_json:
        return _end(short, folder, replacement, "planned", as_json=True, stacks=stacks)
    for node in replacement.nodes:
        click.echo(_described(node.target))
        for number, step in enumerate(_steps(folder, node.target, vendor, wait=wait), 1):
            click.echo(f"  {number}. {step}")
    return 0


def _described(target: ReplacementTarget) -> str:
    node = target.node
    reason = f": {node.reason}" if node.reason else ""
    return f"{target.title}, {node.machine} in {node.zone or node.group}, {node.outcome}{reason}"


def _confirm(chosen: Sequence[ReplacementTarget], vendor: Vendor) -> None:
    if not sys.stdin.isatty():
        raise UsageError("a replacement requires confirmation, but stdin is not a terminal; add --yes")
    for target in chosen:
        click.echo(_described(target), err=True)
    click.echo(f"For each node: stop its jobs, then {vendor.ACTION}. Data on local disks is lost.", err=True)
    click.confirm("Replace these nodes?", abort=True, err=True)


def _drain(active: ActiveStack, plan: Plan, replacement: Replacement, direct: bool, *, err: bool) -> None:
    """Stop the jobs on each node. A node that cannot be reached is replaced anyway, because its replacement also ends its jobs."""
    results = active.stop_jobs(plan, direct, [one.target.node.instance_id for one in replacement.nodes])
    for node in replacement.nodes:
        result = results[node.target.node.instance_id]
        node.drain = result.text if result.done else f"{result.text}; they end when the node is replaced"
        click.echo(f"{node.target.title}: {node.drain}", err=err)


def _request(replacement: Replacement, *, err: bool) -> None:
    from gpuinfra.handover.ports import PortUnavailable

    done: list[str] = []
    for node in replacement.nodes:
        try:
            node.target.poll.gatherer.replace(node.target.node)
        except PortUnavailable as problem:
            before = f"; already requested: {', '.join(done)}" if done else ""
            raise DeploymentError(f"{node.target.title} cannot be replaced: {problem}{before}") from None
        done.append(node.target.title)
        click.echo(f"{node.target.title}: replacement requested", err=err)


def _wait(
    stack: str,
    folder: Path,
    replacement: Replacement,
    vendor: Vendor,
    region: str,
    limit_s: float,
    *,
    as_json: bool,
    stacks: Stacks,
) -> int:
    from gpuinfra.verification.replacement import findings, wait

    wait(replacement, limit_s, lambda line: click.echo(line, err=as_json))
    problems = list(findings(replacement, vendor, region))
    for node in replacement.nodes:
        if node.ok and node.new:
            click.echo(f"{node.target.title} is replaced by {titled(node.new.label, node.new.instance_id)}, which is verified", err=as_json)  # fmt: skip
            if node.same_host is None:
                click.echo(f"the GPU UUIDs of {node.target.title} are unknown, so the hosts were not compared", err=as_json)  # fmt: skip
    if any(one.new and one.new.instance_id != one.target.node.instance_id for one in replacement.nodes):
        click.echo(f"to use the replacements in `gpuinfra ssh` and `run`, run: {stacks.to_restore(stack)}", err=as_json)  # fmt: skip
    _end(short_name(stack), folder, replacement, "replaced", as_json=as_json, stacks=stacks)
    if problems:
        raise GpuinfraError("\n".join(problems))
    return 0


def _end(short: str, folder: Path, replacement: Replacement, status: str, *, as_json: bool, stacks: Stacks) -> int:
    if as_json:
        document = {
            "schema": SCHEMA,
            "stack": short,
            "status": status,
            "folder": None if status == "planned" else str(folder),
            "nodes": [_entry(one) for one in replacement.nodes],
            **stacks.marks,
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=True))
    return 0


def _entry(replaced: Replaced) -> dict[str, Any]:
    from gpuinfra.verification.replacement import uuids

    old, new = replaced.target.node, replaced.new
    return {
        "label": old.label,
        "instance_id": old.instance_id,
        "group": old.group,
        "zone": old.zone,
        "outcome": old.outcome,
        "reason": old.reason,
        "gpu_uuids": sorted(uuids(old)),
        "jobs": replaced.drain or None,
        "replacement": None
        if new is None
        else {
            "label": new.label,
            "instance_id": new.instance_id,
            "outcome": new.outcome,
            "reason": new.reason,
            "gpu_uuids": sorted(uuids(new)),
            "same_host": replaced.same_host,
        },
    }
