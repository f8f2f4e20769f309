"""Explains a failed handover: the node and instance, the findings, and the action to take.

`pulumi up`, `gpuinfra rehearse` and the report all end with this text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuinfra.base.words import counted
from gpuinfra.handover.judge import AWAITS_UPGRADE, TOO_OLD, UNTESTED, Check, NodeVerdict, describe
from gpuinfra.handover.ports import GroupProblem
from gpuinfra.handover.refusals import HINTS, summary
from gpuinfra.handover.watch import DEADLINE_TEXT, Outcome, never_reported

MOST_FINDINGS = 5
"""Maximum number of findings shown per node. The report lists all findings."""


def reasons(outcome: Outcome) -> list[str]:
    """Return one text per problem. The first text is the summary."""
    verdict = outcome.verdict
    head = f"{verdict.verified} of {verdict.expected} nodes verified after {outcome.seconds:.0f} s ({_why(outcome)})"
    texts = [head]
    texts += [node_reason(node, outcome) for node in verdict.nodes if node.outcome != "verified"]
    for group, count in verdict.missing.items():
        # Each group can have its own problem, such as missing capacity or a missing permission.
        own = [problem for problem in outcome.problems if problem.name == group]
        texts.append(f"{group}: {count} node{'s' if count > 1 else ''} never launched{_problem_text(own)}")
    for problem in outcome.problems:
        if problem.name and problem.name not in verdict.missing:
            texts.append(f"{problem.name}: its outdated nodes are not being replaced{_problem_text([problem])}")
    return texts


def _why(outcome: Outcome) -> str:
    return {
        "deadline": DEADLINE_TEXT,
        "settled": "every node has reported",
        "canary": "the first node of a replacement failed, so the other nodes keep the previous template",
        "stock-out": summary(problem.kind for problem in outcome.problems),
        "stale": "outdated nodes are not being replaced",
        "cancelled": "cancelled",
    }.get(outcome.ended, outcome.ended)


def _problem_text(problems: Sequence[GroupProblem]) -> str:
    if not problems:
        return "; read the group's scaling activities"
    first = problems[0]
    return f": {first.message}\n  what to do: {first.hint or HINTS[first.kind]}"


def node_reason(node: NodeVerdict, outcome: Outcome | None = None) -> str:
    """Return the full explanation for one unverified node."""
    head = f"{node.label} ({node.instance_id})"
    if never_reported(node):
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
        return "\n".join([f"{head}: failed {counted(len(node.blocking), 'check')}", *_findings(node.blocking)])
    return f"{head}: {node.outcome}: {node.reason}\n  what to do: {hint(node)}"


def _findings(blocking: Sequence[Check]) -> list[str]:
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


def _by_reason(blocking: Sequence[Check]) -> dict[str, list[Check]]:
    """Group checks by reason, in order."""
    groups: dict[str, list[Check]] = {}
    for check in blocking:
        reason = str(check.get("reason") or "") or describe(check)
        groups.setdefault(reason, []).append(check)
    return groups


def hint(node: NodeVerdict, console: Iterable[str] = ()) -> str:
    """Return the action to take for a node, given the end of its console log. The result is empty for a verified node."""
    if node.outcome == "verified":
        return ""
    if never_reported(node):
        if not any(line.strip() for line in console):
            return (
                "the node may not have booted yet; set a longer deadline, and if the node still does not report, "
                "terminate the instance so that its group replaces it"
            )
        return "read the end of the node's console log; if the log stops at a bootstrap step, fix the cause, then terminate the instance"
    if node.blocking:
        return str(node.blocking[0].get("hint") or "")
    if "launch template" in node.reason:
        return "start an instance refresh for the Auto Scaling group, or terminate the instance so that the group replaces it"
    if AWAITS_UPGRADE in node.reason:
        return "run `pulumi up` again after the group upgrades the node; if the node remains outdated, check the group's rolling upgrade"
    if TOO_OLD in node.reason:
        return "run `systemctl status gpuinfra-recheck.timer gpuinfra-recheck.service` on the node, or terminate the instance so that its group replaces it"
    if UNTESTED in node.reason and node.waits_for:
        return (
            f"the test needs a second node of the pool with the same bundle; {_one_of(node.waits_for)} must pass its checks first, so repair or "
            "replace it if it failed or does not report"
        )
    if UNTESTED in node.reason:
        return (
            "the test needs a second node of the pool with the same bundle that passes its checks and whose GPUs no process uses; stop the jobs on one "
            "node, or set handover.fabric_test to off"
        )
    if node.outcome == "waiting":
        return "wait for the node's next identity proof, then run `pulumi up` again"
    return "terminate the instance so that its group replaces it"


def _one_of(names: Sequence[str]) -> str:
    """Return names as a choice: `gpu-1`, or `one of gpu-1, gpu-2`."""
    more = [f"{len(names) - MOST_FINDINGS:,} more"] if len(names) > MOST_FINDINGS else []
    listed = ", ".join([*names[:MOST_FINDINGS], *more])
    return listed if len(names) == 1 else f"one of {listed}"
