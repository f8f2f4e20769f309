"""Evidence of hosts that are asked over SSH, now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuinfra.verification.read import Absent, Evidence, Found, parse

if TYPE_CHECKING:
    from gpuinfra.remote.fleet import Outcome
    from gpuinfra.remote.hosts import Host

ABOUT = "Checked over SSH, on hosts whose keys were verified, and judged here from the raw output."


def found_of(
    outcomes: Sequence[Outcome[bytes]], expected: Callable[[Host], Mapping[str, Any]], pool_of: Callable[[Host], str]
) -> Found:
    """What hosts answered, and of those that did not, why. A machine is called by its name in the hosts file."""
    newest: list[Evidence] = []
    absent: list[Absent] = []
    for outcome in outcomes:
        host, problem = outcome.host, outcome.problem
        kind, reason, hint = (problem.kind.value, problem.reason, problem.hint) if problem else ("", "", "")
        if problem is None:
            one = parse(outcome.value or b"", f"{host.name} over SSH", host.name)
            if isinstance(one, Evidence):
                newest.append(one)
                continue
            kind, reason, hint = "no evidence", one or f"{host.name} sent a document of another kind", "log in and look"
        should = expected(host)
        absent.append(
            Absent(
                name=host.name, outcome=kind, reason=reason, hint=hint, pool=pool_of(host),
                machine=str(should.get("machine") or ""), gpus=int(should.get("gpus") or 0),
            )
        )  # fmt: skip
    return Found(newest=tuple(newest), absent=tuple(absent), about=ABOUT)
