"""Judges a fleet based on group membership, instance IDs, boot IDs, template versions and evidence.

This module is pure: it does not access a clock, the network or a cloud. `gather` collects the inputs, and `examine` judges the raw output of each node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuinfra.base.words import counted
from gpuinfra.handover.causes import NodeCause
from gpuinfra.handover.connect import terms_of
from gpuinfra.handover.examine import Content
from gpuinfra.handover.names import NodeNames
from gpuinfra.handover.ports import EvidenceRef, Identity, Member, PoolExpected
from gpuinfra.handover.uniform import compared, differences
from gpuinfra.node.judge import causes_of
from gpuinfra.node.outcome import CheckResult

MAX_EVIDENCE_AGE = timedelta(hours=24)
"""Age at which evidence no longer proves the state of a node. Nodes repeat their checks every hour and upload unchanged evidence after six hours
(`node/verify.py`), so an outage of the store for a few hours has no effect, and a node that no longer runs its checks is detected within a day."""

MOST_IN_A_LINE = 3
"""Number of failed checks that the reason of a node describes. `pulumi up` and the report describe all of them."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """The newest evidence that one instance signed, or the reason why there is none."""

    ref: EvidenceRef
    sha256: str
    content: Content | None = None
    """What the evidence proves. None if the instance did not sign it."""
    identity: Identity | None = None
    """The identity that the cloud confirmed, or None while there is no valid proof."""
    identity_problem: str = ""
    """The reason why the identity is not confirmed."""
    identity_final: bool = False
    """True if a newer proof cannot change the result."""
    unsigned: int = 0
    """Number of newer documents in the folder that the instance did not sign. They are ignored."""


@dataclass(frozen=True, kw_only=True)
class NodeVerdict:
    """The verdict on one node."""

    label: str
    """`gpu-1`: numbered by launch order within the pool. Labels are never reused during the lifetime of the stack."""
    cloud: str
    pool: str
    group: str
    instance_id: str
    outcome: str
    """`verified`, `failed`, `refused` or `waiting`."""
    cause: NodeCause | None
    """Why the node is not verified. None for a verified node."""
    reason: str
    """The cause in words, with the values that were found."""
    settled: bool
    """False while the outcome may still change."""
    boot_id: str = ""
    machine: str = ""
    zone: str = ""
    private_ip: str = ""
    resource: str = ""
    evidence_key: str = ""
    evidence_sha256: str = ""
    checks: tuple[CheckResult, ...] = ()
    blocking: tuple[CheckResult, ...] = ()
    """The checks that block the handover of this node, root causes first."""
    gpus: tuple[dict[str, str], ...] = ()
    gpus_expected: int = 0
    ssh_host_keys: tuple[str, ...] = ()
    unsigned: int = 0
    """Number of newer documents in the node's folder that the node did not sign. They are ignored."""

    undecided: bool = False
    """True if the node passes all of its own checks, and only its fabric test failed without a good pair. A later test with another node can pass."""
    waits_for: tuple[str, ...] = ()
    """The nodes and groups of the pool without which an untested node has no partner for the fabric test. Empty while another node can be the partner."""

    @property
    def stale(self) -> bool:
        """True if the node runs an outdated template."""
        return self.cause is NodeCause.OUTDATED

    @property
    def untested(self) -> bool:
        """True if only the result of the fabric test with another node is missing."""
        return self.cause is NodeCause.UNTESTED

    @property
    def never_reported(self) -> bool:
        """True for a node that has not reported since its launch."""
        return self.cause is not None and self.cause.is_silence

    @property
    def differs(self) -> str:
        """How the versions on the node differ from those of most nodes of the pool. Empty if they do not."""
        return "; ".join(f"{check['name']}: {check['reason']}" for check in differences(self.checks))

    @property
    def needs_partner(self) -> bool:
        """True if only a fabric test with another node can change the outcome."""
        return self.untested or self.undecided

    @property
    def gpus_verified(self) -> int:
        """The number of GPUs in a verified node, or 0 for any other node."""
        return self.gpus_expected if self.outcome == "verified" else 0


@dataclass(frozen=True, kw_only=True)
class FleetVerdict:
    """The verdict on all nodes in the fleet."""

    nodes: tuple[NodeVerdict, ...]
    missing: dict[str, int] = field(default_factory=dict)
    """Number of nodes that each group has not launched, keyed by the group's name in the plan."""
    names: NodeNames = field(default_factory=NodeNames)
    """Labels of all instances seen so far, for the next poll."""

    @property
    def verified(self) -> int:
        """Number of verified nodes."""
        return sum(1 for node in self.nodes if node.outcome == "verified")

    @property
    def expected(self) -> int:
        """Number of expected nodes, including nodes that are not launched yet."""
        return len(self.nodes) + sum(self.missing.values())

    @property
    def settled(self) -> bool:
        """True if the verdict is final."""
        return not self.missing and all(node.settled for node in self.nodes)

    @property
    def complete(self) -> bool:
        """True if all expected nodes are verified."""
        return not self.missing and all(node.outcome == "verified" for node in self.nodes)


def is_outdated(member: Member, template_version: str) -> bool:
    """Return True if a node runs an outdated template, so that its evidence cannot verify it."""
    return bool(template_version and member.template_version and member.template_version != template_version)


def judge_fleet(
    pools: Sequence[PoolExpected],
    members: Sequence[Member],
    submissions: Mapping[str, Submission],
    *,
    now: datetime,
    names: NodeNames | None = None,
) -> FleetVerdict:
    """Judge all pools at the time `now`. With the `names` of an earlier verdict, nodes keep their labels and new nodes get the next number."""
    nodes: list[NodeVerdict] = []
    missing: dict[str, int] = {}
    names = names or NodeNames()
    for pool in pools:
        present: list[tuple[str, Member, str]] = []
        for group in pool.groups:
            held = [m for m in members if m.group == group.group and not m.leaving]
            held.sort(key=_launch)
            present += [(group.name, m, group.template_version) for m in held]
            if len(held) < group.count:
                missing[group.name] = group.count - len(held)
        by_launch = sorted((m for _, m, _ in present), key=_launch)
        names = names.assign(pool.name, [m.instance_id for m in by_launch])
        verdicts = [
            _judge_one(
                pool,
                group_name,
                member,
                version,
                names.labels[member.instance_id],
                submissions.get(member.instance_id),
                now,
            )
            for group_name, member, version in present
        ]
        nodes += _with_partners(
            _with_differences(verdicts), [group.name for group in pool.groups if group.name in missing]
        )
    return FleetVerdict(nodes=tuple(nodes), missing=missing, names=names)


def _with_differences(nodes: Sequence[NodeVerdict]) -> list[NodeVerdict]:
    """Add the warnings about versions that differ between the nodes of a pool."""
    checks = compared([(node.label, node.pool, node.checks) for node in nodes])
    return [replace(node, checks=own) if own != node.checks else node for node, own in zip(nodes, checks, strict=True)]


def _with_partners(nodes: Sequence[NodeVerdict], missing: Sequence[str]) -> list[NodeVerdict]:
    """Decide which nodes of a pool that need a partner for the fabric test are settled: those that no other node of the pool can measure with.

    `missing` contains the groups of the pool that have not launched all of their nodes."""
    partners = sum(map(_can_be_partner, nodes))
    tested = any(one.outcome == "verified" or one.untested for one in nodes)
    # The nodes that do not pass their own checks.
    unfit = [one.label for one in nodes if one.outcome != "verified" and not one.needs_partner]
    alone = len(nodes) - len(unfit) == 1
    nodes_settled: list[NodeVerdict] = []
    for node in nodes:
        settled = node.settled
        if node.untested:
            if alone:
                node = replace(node, waits_for=(*unfit, *(f"a missing node of {name}" for name in missing)))
            # The node itself is one of them.
            settled = not missing and partners == 1
        elif node.undecided:
            settled = settled and not tested
        nodes_settled.append(replace(node, settled=settled) if settled != node.settled else node)
    return nodes_settled


def _can_be_partner(node: NodeVerdict) -> bool:
    """Return whether another node can still measure with this node."""
    return not node.settled or node.outcome == "verified" or node.needs_partner


def _launch(member: Member) -> tuple[float, str]:
    """Sort key: launch time, then instance ID for instances launched in the same second."""
    return (member.launched.timestamp() if member.launched else 0.0, member.instance_id)


def _judge_one(
    pool: PoolExpected,
    group: str,
    member: Member,
    template_version: str,
    label: str,
    submission: Submission | None,
    now: datetime,
) -> NodeVerdict:
    """Judge one node. The first problem that is found determines the verdict."""
    gpus_expected = pool.expectation.get("gpus", 0)
    common: dict[str, object] = {
        "label": label,
        "cloud": pool.cloud,
        "pool": pool.name,
        "group": group,
        "instance_id": member.instance_id,
        "machine": pool.machine,
        "zone": member.zone,
        "private_ip": member.private_ip,
        "resource": member.resource,
        "gpus_expected": gpus_expected if isinstance(gpus_expected, int) else 0,
    }

    def verdict(outcome: str, cause: NodeCause | None, reason: str, *, settled: bool, **more: object) -> NodeVerdict:
        return NodeVerdict(outcome=outcome, cause=cause, reason=reason, settled=settled, **{**common, **more})  # pyright: ignore[reportArgumentType]

    if is_outdated(member, template_version):
        terms = terms_of(pool.cloud)
        reason = (
            f"runs {terms.template} {member.template_version}, but the current one of the {terms.group} is {template_version}; "
            "the group must replace the node"
        )
        return verdict("refused", NodeCause.OUTDATED, reason, settled=False)
    if submission is None:
        return verdict("waiting", NodeCause.NO_EVIDENCE, "no evidence yet", settled=False)
    ref = submission.ref
    if member.launched is not None and ref.modified < member.launched.replace(microsecond=0):
        reason = "the node's evidence is older than its launch and is ignored"
        return verdict("waiting", NodeCause.OLD_EVIDENCE, reason, settled=False)
    content = submission.content
    if content is None or submission.identity is None:
        reason = submission.identity_problem or "the node's evidence has no identity proof yet"
        if submission.unsigned:
            reason += f"; unsigned and ignored: {counted(submission.unsigned, 'document')}, the newest is {ref.key}"
        if submission.identity_final:
            return verdict("refused", NodeCause.IDENTITY, reason, settled=True)
        return verdict("waiting", NodeCause.UNPROVEN, reason, settled=False)
    seen: dict[str, object] = {
        "boot_id": ref.boot_id,
        "evidence_key": ref.key,
        "evidence_sha256": submission.sha256,
        "unsigned": submission.unsigned,
    }
    if content.unreadable:
        return verdict("refused", NodeCause.UNREADABLE, content.unreadable, settled=True, **seen)
    if pool.bundle_sha256 and content.bundle_sha256 != pool.bundle_sha256:
        reason = f"the node was set up by bundle {content.bundle_sha256[:12] or 'without checksum'}, expected {pool.bundle_sha256[:12]}"
        if member.renewed:
            reason += "; its group has not upgraded it yet"
            return verdict("refused", NodeCause.AWAITS_UPGRADE, reason, settled=False, **seen)
        return verdict("refused", NodeCause.OTHER_BUNDLE, reason, settled=True, **seen)
    if pool.node_role and submission.identity.role != pool.node_role:
        reason = f"the node's evidence was signed with role {submission.identity.role}, but the role of its pool is {pool.node_role}"
        return verdict("refused", NodeCause.IDENTITY, reason, settled=True, **seen)
    if content.unjudged:
        return verdict("refused", NodeCause.UNJUDGED, f"the node's evidence {content.unjudged}", settled=True, **seen)
    seen["checks"], seen["blocking"] = content.checks, content.blocking
    seen["gpus"], seen["ssh_host_keys"] = content.gpus, content.ssh_host_keys
    if content.missing:
        reason = f"required checks did not run: {', '.join(content.missing)}"
        return verdict("failed", NodeCause.CHECKS_MISSING, reason, settled=True, **seen)
    if not content.verified:
        seen["undecided"] = content.undecided
        reason = short_reason(content.blocking)
        return verdict("failed", NodeCause.CHECKS_FAILED, reason, settled=not content.working, **seen)
    # The store's timestamp counts, not the node's clock. A node that is alive can still upload newer evidence.
    if now - ref.modified > MAX_EVIDENCE_AGE:
        hours = int((now - ref.modified).total_seconds() // 3600)
        reason = f"the node's newest evidence was uploaded {hours} hours ago, so its GPUs are no longer verified"
        return verdict("waiting", NodeCause.EXPIRED, reason, settled=False, **seen)
    # A pool of one node has no partner.
    if content.untested and sum(one.count for one in pool.groups) > 1:
        reason = f"the node has no result of the fabric test yet: {content.untested}"
        return verdict("waiting", NodeCause.UNTESTED, reason, settled=False, **seen)
    return verdict("verified", None, "", settled=True, **seen)


def short_reason(blocking: Sequence[CheckResult]) -> str:
    """Describe the failed checks of a node in one line: those that can be the cause, and the number of the others."""
    causes = (causes_of(blocking) or tuple(blocking))[:MOST_IN_A_LINE]
    parts = [describe(check) for check in causes]
    if others := len(blocking) - len(causes):
        parts.append(f"{counted(others, 'other check')} did not pass")
    return "; ".join(parts)


def describe(check: CheckResult) -> str:
    """Describe a check in one line: the found and expected values, or the reason if the values do not show the problem."""
    unit = f" {check['unit']}" if check.get("unit") else ""
    value, expected = check.get("found"), check.get("expected")
    text = f"{check.get('id')} {check.get('name')}"
    if check.get("outcome") == "error" or value is None or value == expected:
        return f"{text}: {check.get('reason') or 'the probe output could not be judged'}"
    return f"{text}: found {_plain(value)}, expected {_plain(expected)}{unit}"


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(str(v) for v in value) or "none"
    return str(value)
