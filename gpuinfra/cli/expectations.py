"""Loads the expectation for a healthy node from a stack's plan or from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinfra.base.errors import UsageError, reason_of
from gpuinfra.base.json_text import parsed
from gpuinfra.cli.stack_context import plan_of, pool_of

if TYPE_CHECKING:
    from gpuinfra.cli.options import HostTarget
    from gpuinfra.remote.hosts import Hosts
    from gpuinfra.verification.read import EvidenceDocument

Expectation = Mapping[str, Any]
SOURCES = "specify STACK, set `stack` in the hosts file (stack: aws-p4d), or specify --expectation FILE"


def from_file(file: Path) -> Expectation:
    """Load one expectation for all nodes from a file."""
    try:
        document = parsed(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--expectation {file} cannot be read as JSON: {reason_of(error)}") from None
    if not isinstance(document, dict) or not document.get("required"):
        raise UsageError(f"--expectation {file} lists no required checks; specify the bundle's expectation.json")
    return document


def for_evidence(stack: str | None, file: Path | None) -> Callable[[EvidenceDocument], Expectation]:
    """Return the expectation for the pool of each document."""
    if (stack is None) == (file is None):
        raise UsageError("the expectation must have one source; specify either STACK or --expectation FILE")
    if file is not None:
        expected = from_file(file)
        return lambda _: expected
    assert stack is not None
    pools = {pool.name: pool.expectation for pool in plan_of(stack).pools}

    def of_pool(evidence: EvidenceDocument) -> Expectation:
        pool = evidence.document.get("pool")
        if pool not in pools:
            raise UsageError(
                f"the evidence of {evidence.instance_id} is from pool {pool!r}, but {stack} has {', '.join(pools)}; specify the stack that the node belongs to"
            )
        return pools[pool]

    return of_pool


def for_hosts(target: HostTarget, file: Path | None, hosts: Hosts) -> dict[str, tuple[str, Expectation]]:
    """Return the pool and the expectation for each host."""
    if file is not None:
        expected = from_file(file)
        return {host.name: (host.pool or hosts.pool or target.pool or "", expected) for host in hosts.hosts}
    name = target.stack or hosts.stack
    if name is None:
        raise UsageError(f"the expectation for the hosts is not known; {SOURCES}")
    plan = plan_of(name)
    by_pool = {one.name: one.expectation for one in plan.pools}

    pools = {host.name: pool_of(host, hosts, plan, target.pool) for host in hosts.hosts}
    return {name: (pool, by_pool[pool]) for name, pool in pools.items()}
