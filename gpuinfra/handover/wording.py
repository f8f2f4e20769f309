"""What a failed handover says: which node, which instance, what was found, what to do.

The same lines end `pulumi up`, `gpuinfra rehearse` and the report, so they are written once.
"""

from __future__ import annotations

from gpuinfra.handover.judge import NodeVerdict, describe
from gpuinfra.handover.ports import Trouble
from gpuinfra.handover.watch import Outcome, never_reported

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
        texts.append(f"{group}: {count} node{'s' if count > 1 else ''} never launched{_trouble_text(outcome.troubles)}")
    return texts


def _why(outcome: Outcome) -> str:
    return {
        "deadline": "the deadline passed",
        "settled": "every node has given its answer",
        "stock-out": "the cloud does not give the missing nodes",
        "cancelled": "cancelled",
    }.get(outcome.ended, outcome.ended)


def _trouble_text(troubles: tuple[Trouble, ...]) -> str:
    if not troubles:
        return "; look at the group's scaling activities"
    first = troubles[0]
    return f": {first.message}\n  what to do: {TROUBLE_HINTS[first.kind]}"


def node_reason(node: NodeVerdict, outcome: Outcome | None = None) -> str:
    """Everything about one node that is not verified."""
    head = f"{node.label} ({node.instance_id})"
    if never_reported(node):
        lines = [f"{head}: never reported: {node.reason}"]
        console = (outcome.consoles if outcome else {}).get(node.instance_id)
        if console:
            lines.append("  end of its console log:")
            lines += [f"    | {line}" for line in console]
        else:
            lines.append("  its console log is empty")
        lines.append(
            "  what to do: read the console log above; if it ends in a step, mend that and replace the node, else replace the node"
        )
        return "\n".join(lines)
    if node.outcome == "failed" and node.blocking:
        lines = [f"{head}: failed {len(node.blocking)} check{'s' if len(node.blocking) > 1 else ''}"]
        for check in node.blocking:
            lines.append(f"  {describe(check)}")
            if check.get("reason") and check.get("outcome") != "error":
                lines.append(f"    {check['reason']}")
            if check.get("hint"):
                lines.append(f"    what to do: {check['hint']}")
        return "\n".join(lines)
    return f"{head}: {node.outcome}: {node.reason}\n  what to do: {_refused_hint(node)}"


def _refused_hint(node: NodeVerdict) -> str:
    if "launch template" in node.reason:
        return "start an instance refresh of its group, or terminate the instance; the group makes it anew from the wanted version"
    if node.outcome == "waiting":
        return "wait for the node's next proof and run `pulumi up` again"
    return "terminate the instance; its group makes it anew"
