"""What a failed handover says: which node, which instance, what was found, what to do.

The same lines end `pulumi up`, `gpuinfra rehearse` and the report, so they are written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuinfra.handover.judge import Check, NodeVerdict, describe
from gpuinfra.handover.ports import Trouble
from gpuinfra.handover.watch import Outcome, never_reported

MOST_FINDINGS = 5
"""Findings told of one node; the report has them all."""

TROUBLE_HINTS = {
    "capacity": "the cloud has none of these machines here now; try another zone, another capacity kind, or wait and run `pulumi up` again",
    "quota": "raise the account's limit for this machine type, then run `pulumi up` again",
    "permission": "the group may not launch: read the text above, mend the role or key policy, then run `pulumi up` again",
    "image": "the image cannot be used here: read the text above, choose another image, then run `pulumi up` again",
    "other": "read the cloud's text above, then run `pulumi up` again",
}


def reasons(outcome: Outcome) -> list[str]:
    """One text for each thing that is wrong, the summary first."""
    verdict = outcome.verdict
    head = f"{verdict.verified} of {verdict.expected} nodes verified after {outcome.seconds:.0f} s ({_why(outcome)})"
    texts = [head]
    texts += [node_reason(node, outcome) for node in verdict.nodes if node.outcome != "verified"]
    for group, count in verdict.missing.items():
        # Each group by its own trouble: one has no capacity while another has no permission.
        own = [trouble for trouble in outcome.troubles if trouble.name == group]
        texts.append(f"{group}: {count} node{'s' if count > 1 else ''} never launched{_trouble_text(own)}")
    for trouble in outcome.troubles:
        if trouble.name and trouble.name not in verdict.missing:
            texts.append(f"{trouble.name}: its nodes are not renewed{_trouble_text([trouble])}")
    return texts


def _why(outcome: Outcome) -> str:
    return {
        "deadline": "the deadline passed",
        "settled": "every node has given its answer",
        "stock-out": "the cloud does not give the missing nodes",
        "stale": "its groups leave outdated nodes alone",
        "cancelled": "cancelled",
    }.get(outcome.ended, outcome.ended)


def _trouble_text(troubles: Sequence[Trouble]) -> str:
    if not troubles:
        return "; look at the group's scaling activities"
    first = troubles[0]
    return f": {first.message}\n  what to do: {TROUBLE_HINTS[first.kind]}"


def node_reason(node: NodeVerdict, outcome: Outcome | None = None) -> str:
    """Everything about one node that is not verified."""
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
        return "\n".join([f"{head}: failed {_count(len(node.blocking), 'check')}", *_findings(node.blocking)])
    return f"{head}: {node.outcome}: {node.reason}\n  what to do: {hint(node)}"


def _findings(blocking: Sequence[Check]) -> list[str]:
    """The failed checks, causes first. Checks that fail for one reason are one finding: a lost driver fails twenty."""
    lines: list[str] = []
    for checks in list(_by_reason(blocking).values())[:MOST_FINDINGS]:
        first, others = checks[0], checks[1:]
        lines.append(f"  {describe(first)}")
        if first.get("reason") and str(first["reason"]) not in lines[-1]:
            lines.append(f"    {first['reason']}")
        if others:
            lines.append(f"    the same holds for {', '.join(str(c.get('id')) for c in others)}")
        if first.get("hint"):
            lines.append(f"    what to do: {first['hint']}")
    more = len(_by_reason(blocking)) - MOST_FINDINGS
    return [*lines, *([f"  and {_count(more, 'finding')} more, in the report"] if more > 0 else [])]


def _by_reason(blocking: Sequence[Check]) -> dict[str, list[Check]]:
    """Checks by what they say, in order."""
    groups: dict[str, list[Check]] = {}
    for check in blocking:
        reason = str(check.get("reason") or "") or describe(check)
        groups.setdefault(reason, []).append(check)
    return groups


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def hint(node: NodeVerdict, console: Iterable[str] = ()) -> str:
    """What a person does about a node, `console` being the end of its console log; empty for a verified one."""
    if node.outcome == "verified":
        return ""
    if never_reported(node):
        if not any(line.strip() for line in console):
            return "it may not have booted yet: give a longer deadline; if it stays silent, terminate the instance, its group makes it anew"
        return "read the end of its console log; if it ends in a step, mend that, then terminate the instance"
    if node.blocking:
        return str(node.blocking[0].get("hint") or "")
    if "launch template" in node.reason:
        return "start an instance refresh of its group, or terminate the instance: the group makes it anew"
    if "yet to renew it" in node.reason:
        return (
            "run `pulumi up` again when its group has renewed it; if nothing moves, look at the group's rolling upgrade"
        )
    if node.outcome == "waiting":
        return "wait for the node's next proof and run `pulumi up` again"
    return "terminate the instance; its group makes it anew"
