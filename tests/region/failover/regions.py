"""What a failover changes on each cloud, for the tests that kill it: its steps, the requests that change something, and the state at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuinfra_rehearsal.cloud.azure import stores
from gpuinfra_rehearsal.cloud.core.http import Request
from tests.region.clone.deployed import Deployed

CONFIGURATION = "aws:s3/bucketReplicationConfig:BucketReplicationConfig"
JOB = "gcp:storage/transferJob:TransferJob"
UP = "/up"
"""Path of the request that reports a deployment of the second region."""


@dataclass(frozen=True, kw_only=True)
class Regions:
    """A shipped stack with a second region, and what its failover changes."""

    stack: str
    first: str
    second: str
    effect: Callable[[Request], str]
    """Returns the step of a request that changes something, without the name of the stack, or an empty text."""
    replicating: Callable[[Deployed], int]
    """Counts the buckets of the first region that are replicated."""
    stops: tuple[str, ...] = ("replication", "replicas")
    """Steps that stop the replication, in order."""
    skipped: frozenset[str] = frozenset({"jobs", "fence", "export", "drain", "replication"})
    """Steps that a failover records in an outage of the first region, given the options `outage`."""
    global_endpoints: bool = True
    """Whether the services respond with errors in an outage, so that the user ignores the steps instead of confirming an unreachable region."""

    @property
    def outage(self) -> list[str]:
        """Options of a failover without the first region."""
        return (
            [word for step in sorted(self.skipped) for word in ("--ignore", step)]
            if self.global_endpoints
            else ["--unreachable", self.first]
        )

    @property
    def target(self) -> str:
        """The stack of the second region."""
        return f"{self.stack}-{self.second}"

    @property
    def steps(self) -> list[str]:
        """The steps in mode `hot`."""
        up, verify, load = (f"{name} {self.target}" for name in ("up", "verify", "import"))
        return ["check", up, verify, "jobs", "fence", "export", "drain", *self.stops, load]

    def step(self, request: Request) -> str:
        """Return the step of a request that changes something, or an empty text."""
        if request.method == "GET" and request.raw_path != UP:
            return ""
        found = "up" if request.raw_path == UP else self.effect(request)
        return f"{found} {self.target}" if found in ("up", "import") else found

    def in_first(self, instance: dict[str, Any]) -> bool:
        """Whether an instance is in the first region."""
        return bool(instance["region"] == self.first)


def _aws(request: Request) -> str:
    if b"Action=SuspendProcesses" in request.body or b"Action=UpdateAutoScalingGroup" in request.body:
        return "fence"
    target = request.headers.get("x-amz-target", "")
    if target.endswith(".CreateDataRepositoryTask"):
        return "import"
    if target.endswith(".PutKeyPolicy") or (request.method == "PUT" and "policy" in request.query):
        return "replicas"
    return "replication" if request.method == "PUT" and "replication" in request.query else ""


def _azure(request: Request) -> str:
    place = request.path.lower()
    if request.method == "PATCH":
        return "fence" if "/virtualmachinescalesets/" in place else "replicas" if "/storageaccounts/" in place else ""
    if request.method == "PUT" and "/importjobs/" in place:
        return "import"
    # The accounts of the replicas are in a resource group of the second region.
    return ("replicas" if "eastus2" in place else "replication") if request.method == "DELETE" else ""


def _gcp(request: Request) -> str:
    parts = {"/resize": "fence", "/v1/transferJobs/": "replication", "/iam": "replicas", ":importData": "import"}
    return next((step for part, step in parts.items() if part in request.raw_path), "")


def _rules(one: Deployed) -> int:
    held = one.cloud.store.list(CONFIGURATION)
    return sum(rule.get("status") == "Enabled" for each in held for rule in each.plain.get("rules") or [])


REGIONS = {
    "aws": Regions(stack="aws-recovery", first="us-east-2", second="us-west-2", effect=_aws, replicating=_rules, global_endpoints=False),
    "azure": Regions(
        stack="azure-recovery", first="southcentralus", second="eastus2", effect=_azure,
        replicating=lambda one: len(one.cloud.store.list(stores.POLICY)),
    ),
    "gcp": Regions(
        stack="gcp-recovery", first="us-central1", second="us-east4", effect=_gcp, skipped=frozenset({"jobs", "fence", "export", "drain"}),
        replicating=lambda one: sum(each.plain["status"] == "ENABLED" for each in one.cloud.store.list(JOB)),
    ),
}  # fmt: skip
