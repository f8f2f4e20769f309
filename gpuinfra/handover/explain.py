"""Explains a failed handover: the node and instance, the findings, and the action to take.

`pulumi up`, `gpuinfra rehearse` and the report all end with this text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from gpuinfra.base.words import counted
from gpuinfra.handover.causes import NodeCause, WaitEnd
from gpuinfra.handover.connect import terms_of
from gpuinfra.handover.judge import NodeVerdict, describe
from gpuinfra.handover.ports import CloudTerms, GroupProblem
from gpuinfra.handover.refusals import HINTS, summary
from gpuinfra.handover.uniform import difference_notes
from gpuinfra.handover.watch import WaitOutcome
from gpuinfra.node.advice import advise
from gpuinfra.node.cause import Action
from gpuinfra.node.judge import causes_of
from gpuinfra.node.outcome import CheckResult

MOST_FINDINGS = 5
"""Maximum number of findings shown per node. The report lists all findings."""


def reasons(outcome: WaitOutcome, cloud: str) -> list[str]:
    """Return one text per problem. The first text is the summary."""
    verdict, terms = outcome.verdict, terms_of(cloud)
    head = f"{verdict.verified} of {verdict.expected} nodes verified after {outcome.seconds:.0f} s ({_why(outcome)})"
    texts = [head]
    texts += [node_reason(node, outcome) for node in verdict.nodes if node.outcome != "verified"]
    for group, count in verdict.missing.items():
        # Each group can have its own problem, such as missing capacity or a missing permission.
        own = [problem for problem in outcome.problems if problem.name == group]
        texts.append(f"{group}: {count} node{'s' if count > 1 else ''} never launched{_problem_text(own, terms)}")
    for problem in outcome.problems:
        if problem.name and problem.name not in verdict.missing:
            texts.append(f"{problem.name}: its outdated nodes are not being replaced{_problem_text([problem], terms)}")
    texts += difference_notes((node.label, node.pool, node.checks) for node in verdict.nodes)
    if outcome.relay_problem and any(node.needs_partner for node in verdict.nodes):
        texts.append(f"{outcome.relay_problem}\n  what to do: {_RELAY_HINT}")
    return texts


_RELAY_HINT = (
    "allow the credentials of this command to write below bootstrap/ in the evidence bucket, as `gpuinfra permissions` prints, or set "
    "handover.fabric_test to off"
)


def _why(outcome: WaitOutcome) -> str:
    if outcome.ended is WaitEnd.STOCK_OUT:
        return summary(problem.cause for problem in outcome.problems)
    return _ENDED.get(outcome.ended, outcome.ended)


_ENDED = {
    WaitEnd.DEADLINE: "the deadline passed",
    WaitEnd.SETTLED: "every node has reported",
    WaitEnd.CANARY: "the first node of a replacement failed, so the other nodes keep the previous template",
    WaitEnd.STALE: "outdated nodes are not being replaced",
}


def _problem_text(problems: Sequence[GroupProblem], terms: CloudTerms) -> str:
    if not problems:
        return f"; {terms.activities}"
    first = problems[0]
    return f": {first.message}\n  what to do: {first.hint or HINTS[first.cause]}"


def node_reason(node: NodeVerdict, outcome: WaitOutcome | None = None) -> str:
    """Return the full explanation for one unverified node."""
    head = f"{node.label} ({node.instance_id})"
    if node.never_reported:
        lines = [f"{head}: never reported: {node.reason}"]
        console = (outcome.consoles if outcome else {}).get(node.instance_id, [])
        if console:
            lines.append("  end of its console log:")
            lines += [f"    | {line}" for line in console]
        else:
            lines.append("  its console log is empty")
        lines.append(f"  what to do: {hint(node, console)}")
        return "\n".join(lines)
    if node.outcome == "failed" and node.blocking:
        causes = causes_of(node.blocking) or node.blocking
        lines = [f"{head}: failed {counted(len(causes), 'check')}", *_findings(causes)]
        if others := [str(check.get("id")) for check in node.blocking if check not in causes]:
            checks = counted(len(others), "other check")
            lines.append(f"  {checks} did not pass, which can be a consequence: {', '.join(others)}")
        if advise(node.blocking).action.strength >= Action.REBOOT.strength:
            lines.append(f"  to replace the node, {terms_of(node.cloud).replace}")
        return "\n".join(lines)
    return f"{head}: {node.outcome}: {node.reason}\n  what to do: {hint(node)}"


def _findings(blocking: Sequence[CheckResult]) -> list[str]:
    """Return the failed checks with root causes first. Checks with the same reason form one finding."""
    lines: list[str] = []
    findings = list(_by_reason(blocking).values())
    for checks in findings[:MOST_FINDINGS]:
        first, others = checks[0], checks[1:]
        lines.append(f"  {describe(first)}")
        if first.get("reason") and str(first["reason"]) not in lines[-1]:
            lines.append(f"    {first['reason']}")
        if others:
            lines.append(f"    same reason: {', '.join(str(c.get('id')) for c in others)}")
        if first.get("hint"):
            lines.append(f"    what to do: {first['hint']}")
    if more := findings[MOST_FINDINGS:]:
        count = counted(sum(map(len, more)), "check")
        lines.append(f"  and {counted(len(more), 'more finding')} from {count}; see the report")
    return lines


def _by_reason(blocking: Sequence[CheckResult]) -> dict[str, list[CheckResult]]:
    """Group checks by reason, in order."""
    groups: dict[str, list[CheckResult]] = {}
    for check in blocking:
        reason = str(check.get("reason") or "") or describe(check)
        groups.setdefault(reason, []).append(check)
    return groups


def hint(node: NodeVerdict, console: Iterable[str] = ()) -> str:
    """Return the action for a node, which depends on the cause and the cloud, given the end of its console log. The result is empty for a verified node."""
    if node.cause is None:
        return ""
    terms = terms_of(node.cloud)
    match node.cause:
        case NodeCause.NO_EVIDENCE | NodeCause.OLD_EVIDENCE:
            if any(line.strip() for line in console):
                return f"read the end of the node's console log; if the log stops at a bootstrap step, fix the cause, then {terms.replace}"
            return f"the node may not have booted yet; set a longer deadline, and if the node still does not report, {terms.replace}"
        case NodeCause.OUTDATED:
            return terms.update
        case NodeCause.AWAITS_UPGRADE:
            return f"run `pulumi up` again after the {terms.group} upgrades the node; if the node remains outdated, {terms.update}"
        case NodeCause.EXPIRED:
            return f"run `systemctl status gpuinfra-recheck.timer gpuinfra-recheck.service` on the node, or {terms.replace}"
        case NodeCause.UNTESTED:
            return _partner_hint(node)
        case NodeCause.UNPROVEN:
            return "wait for the node's next identity proof, then run `pulumi up` again"
        case NodeCause.CHECKS_FAILED | NodeCause.CHECKS_MISSING:
            return str(node.blocking[0].get("hint") or "") if node.blocking else terms.replace
        case NodeCause.UNREADABLE | NodeCause.OTHER_BUNDLE | NodeCause.IDENTITY | NodeCause.UNJUDGED:
            return terms.replace
        case _:
            assert_never(node.cause)


def _partner_hint(node: NodeVerdict) -> str:
    if node.waits_for:
        return (
            f"the test needs a second node of the pool with the same bundle; {_one_of(node.waits_for)} must pass its checks first, so repair or "
            "replace it if it failed or does not report"
        )
    return (
        "the test needs a second node of the pool with the same bundle that passes its checks and whose GPUs no process uses, and runs while `pulumi up` "
        "waits for the nodes; run `pulumi up` again, stop the jobs on one node, or set handover.fabric_test to off"
    )


def _one_of(names: Sequence[str]) -> str:
    """Return names as a choice: `gpu-1`, or `one of gpu-1, gpu-2`."""
    more = [f"{len(names) - MOST_FINDINGS:,} more"] if len(names) > MOST_FINDINGS else []
    listed = ", ".join([*names[:MOST_FINDINGS], *more])
    return listed if len(names) == 1 else f"one of {listed}"
