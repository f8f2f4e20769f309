"""Replaces nodes: collects the evidence for the provider, requests the replacement, and waits until the replacement is verified.

A replacement with a GPU of the replaced node runs on the same host. `gpuinfra.clouds.vendor` describes the report for each cloud.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import UsageError
from gpuinfra.base.private_files import private_folder, write_private
from gpuinfra.base.words import titled
from gpuinfra.clouds.vendor import Faulty, Vendor
from gpuinfra.handover import wire
from gpuinfra.handover.connect import terms_of
from gpuinfra.handover.evidence import evidence_of
from gpuinfra.handover.explain import node_reason
from gpuinfra.handover.judge import NodeVerdict
from gpuinfra.handover.ports import PortUnavailable
from gpuinfra.handover.watch import RELAY_POLL_S
from gpuinfra.inventory import handovers_of
from gpuinfra.node.xids import Bucket, xid_of
from gpuinfra.verification.store import Poll

POLL_S = 15.0
XID_CHECK = "X1"


@dataclass(frozen=True, kw_only=True)
class ReplacementTarget:
    """One node to replace, with the handover that it belongs to."""

    poll: Poll
    node: NodeVerdict

    @property
    def title(self) -> str:
        """Name of the node with its ID."""
        return titled(self.node.label, self.node.instance_id)


@dataclass
class Replaced:
    """One replaced node."""

    target: ReplacementTarget
    drain: str = ""
    """Result of the request to stop its jobs."""
    new: NodeVerdict | None = None
    """The newest verdict on the replacement. None before the replacement exists."""

    @property
    def uuids(self) -> frozenset[str]:
        """UUIDs of GPUs that both the replaced node and the replacement have."""
        return uuids(self.target.node) & uuids(self.new) if self.new else frozenset()

    @property
    def same_host(self) -> bool | None:
        """Whether the replacement runs on the same host. None if the UUIDs of the GPUs of one of the nodes are unknown."""
        if self.new is None or not uuids(self.target.node) or not uuids(self.new):
            return None
        return bool(self.uuids)

    @property
    def ended(self) -> bool:
        """Whether the verdict on the replacement is final."""
        return self.new is not None and self.new.settled and self.new.outcome != "waiting"

    @property
    def ok(self) -> bool:
        """Whether the replacement is verified and has no GPU of the replaced node."""
        return self.new is not None and self.new.outcome == "verified" and not self.uuids


@dataclass
class Replacement:
    """The nodes that are being replaced."""

    nodes: list[Replaced] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Why groups cannot launch nodes, by the cloud."""

    @property
    def ended(self) -> bool:
        """Whether the verdict on each replacement is final."""
        return all(one.ended for one in self.nodes)


def targets(polls: Sequence[Poll], names: Iterable[str]) -> tuple[ReplacementTarget, ...]:
    """Find nodes by their labels or instance IDs. Raises `UsageError` for an unknown or ambiguous name."""
    every = [ReplacementTarget(poll=poll, node=node) for poll in polls for node in poll.verdict.nodes]
    by_instance: dict[str, ReplacementTarget] = {}
    for name in names:
        matching = [one for one in every if name in (one.node.label, one.node.instance_id)]
        if not matching:
            names_allowed = ", ".join(one.node.label for one in every) or "none"
            raise UsageError(
                f"NODE is {name}; allowed: a label or an instance ID of a node in the groups ({names_allowed})"
            )
        if len(matching) > 1:
            ids = ", ".join(one.node.instance_id for one in matching)
            raise UsageError(f"NODE is {name}, which matches several nodes; specify an instance ID: {ids}")
        by_instance[matching[0].node.instance_id] = matching[0]
    return tuple(by_instance.values())


def uuids(node: NodeVerdict) -> frozenset[str]:
    """Return the UUIDs of the GPUs that a node listed."""
    return frozenset(gpu["uuid"] for gpu in node.gpus)


def faulty(stack: str, region: str, target: ReplacementTarget) -> Faulty:
    """Return the description of a node for the provider."""
    node, data = target.node, target.poll.gatherer.data_of(target.node)
    xids = next((check.get("found") for check in node.checks if check.get("id") == XID_CHECK), None)
    numbers = [one for one in xids if isinstance(one, int)] if isinstance(xids, list | tuple) else []
    groups = {group.name: group.group for group in target.poll.gatherer.groups}
    return Faulty(
        stack=stack,
        label=node.label,
        instance_id=node.instance_id,
        resource=node.resource,
        group=groups.get(node.group, node.group),
        region=region,
        zone=node.zone,
        machine=node.machine,
        outcome=node.outcome,
        reason=node.reason,
        observed=(evidence_of(data).finished if data else "") or f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        boot_id=node.boot_id,
        gpus=node.gpus,
        gpus_expected=node.gpus_expected,
        failed=node.blocking,
        xids=tuple(
            number
            for number in numbers
            if xid_of(number).severity == "drain" or xid_of(number).bucket is Bucket.WORKFLOW_NVLINK5
        ),
    )


def write_report(folder: Path, stack: str, region: str, target: ReplacementTarget, vendor: Vendor) -> list[Path]:
    """Write the evidence about a node, and the report for the provider. Returns the files."""
    node = target.node
    files = dict(vendor.files(faulty(stack, region, target)))
    if data := target.poll.gatherer.data_of(node):
        files["evidence.json"] = data.decode("utf-8", "replace")
    console = target.poll.gatherer.console(node.instance_id)
    files["console.log"] = "".join(f"{line}\n" for line in console) or "The cloud has no console output.\n"
    checks = [one for one in node.checks if one.get("outcome") in ("warn", "fail", "error")]
    files["checks.json"] = json.dumps(checks, indent=2) + "\n"
    private_folder(folder / node.label)
    for name, text in files.items():
        write_private(folder / node.label / name, text)
    return [folder / node.label / name for name in sorted(files)]


def wait(replacement: Replacement, limit_s: float, progress: Callable[[str], None], sleep: Callable[[float], None] = time.sleep) -> None:  # fmt: skip
    """Poll until the verdict on each replacement is final, or the time limit expires, and run the fabric tests meanwhile. A failed poll is repeated."""
    polls = list({id(one.target.poll): one.target.poll for one in replacement.nodes}.values())
    try:
        _wait(replacement, polls, limit_s, progress, sleep)
    finally:
        for poll in polls:
            if poll.relay is not None:
                poll.relay.close()


def _wait(
    replacement: Replacement,
    polls: Sequence[Poll],
    limit_s: float,
    progress: Callable[[str], None],
    sleep: Callable[[float], None],
) -> None:
    until, shown = time.monotonic() + limit_s, ""
    while True:
        replacement.problems, pause = [], POLL_S
        for poll in polls:
            try:
                verdict = poll.gatherer.poll(poll.verdict.names)
                if poll.relay is not None and poll.relay.turn(poll.gatherer, verdict):
                    pause = RELAY_POLL_S
                if poll.relay is not None and poll.relay.problem:
                    replacement.problems.append(f"the fabric test does not continue: {poll.relay.problem}")
                _match([one for one in replacement.nodes if one.target.poll is poll], poll.verdict.nodes, verdict.nodes)
                problems = poll.gatherer.problems(verdict.missing) if verdict.missing else []
                replacement.problems += dict.fromkeys(f"{one.name or one.group}: {one.message}" for one in problems)
            except PortUnavailable as problem:
                replacement.problems.append(f"the nodes cannot be read: {problem}")
        text = "; ".join([*map(_state, replacement.nodes), *replacement.problems])
        if text != shown:
            progress(shown := text)
        if replacement.ended or time.monotonic() >= until:
            return
        sleep(pause)


def _match(own: Sequence[Replaced], before: Sequence[NodeVerdict], now: Sequence[NodeVerdict]) -> None:
    """Find the replacement of each node: the same instance after a new boot, or the next new instance of the same group."""
    here, before_ids = {one.instance_id: one for one in now}, {one.instance_id for one in before}
    new = [one for one in now if one.instance_id not in before_ids]
    for replaced in own:
        old = replaced.target.node
        same = here.get(old.instance_id)
        if same is not None:
            replaced.new = same if same.boot_id and same.boot_id != old.boot_id else None
            continue
        replaced.new = next((other for other in new if other.group == old.group), None)
        new = [other for other in new if other is not replaced.new]


def _state(replaced: Replaced) -> str:
    if replaced.new is None:
        return f"{replaced.target.node.label}: waiting for the replacement"
    return f"{replaced.target.node.label}: replacement {titled(replaced.new.label, replaced.new.instance_id)} is {replaced.new.outcome}"


def findings(replacement: Replacement, vendor: Vendor, region: str) -> Iterator[str]:
    """Yield the reason for each replacement that is not verified or that runs on the same host."""
    for node in replacement.nodes:
        old, new = node.target.node, node.new
        if new is None:
            why = "; ".join(replacement.problems) or terms_of(old.cloud).activities
            yield f"{node.target.title} has no replacement yet: {why}"
        elif node.uuids:
            groups = {group.name: group.group for group in node.target.poll.gatherer.groups}
            advice = vendor.SAME_HOST.format(instance=new.instance_id, group=groups[new.group], region=region)
            yield (
                f"{titled(new.label, new.instance_id)} runs on the same host as {old.label}: {len(node.uuids)} of {len(new.gpus)} GPUs have the same UUID "
                f"({', '.join(sorted(node.uuids)[:2])}{', ...' if len(node.uuids) > 2 else ''}); {advice}"
            )
        elif new.outcome != "verified":
            yield node_reason(new)


def limit_of(resources: Sequence[Mapping[str, Any]]) -> float:
    """Return the longest handover deadline of a stack, in seconds."""
    return max(wire.wait_of(wire.inputs_of(one.get("outputs") or {}), None).deadline_s for one in handovers_of(resources))  # fmt: skip
