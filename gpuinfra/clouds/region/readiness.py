"""Whether the resources in the second region of a stack are ready, as lines of `gpuinfra ready`.

Each cloud that supports `recovery` reads the replication, the replicas, the keys and
the roles that the stack's state lists. The `preflight` questions about the second region's stack are also lines. All requests
are read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gpuinfra.clouds.preflight import PreflightRow, RowState
from gpuinfra.plan.recovery_model import RecoveryPlan

if TYPE_CHECKING:
    from gpuinfra.handover.judge import FleetVerdict

OK, WARN, FAIL, UNREAD, SKIPPED = "ok", "warn", "fail", "unread", "not checked"
STATES = (FAIL, UNREAD, WARN, SKIPPED, OK)
"""States of a line, the most severe first. `unread` is a question that the cloud did not answer."""
TOPICS = (
    "replication", "replica", "lag", "failures", "key", "role", "bundle", "quota", "machine", "reservation", "image", "stack file", "difference",
    "addresses", "data", "state", "names", "resource names", "checkpoint", "homes",
)  # fmt: skip
"""Topics of lines that can have the state `fail`."""
PREFLIGHT = ("quota", "machine", "reservation", "image", "names")
"""Topics of `preflight` that are lines."""
RENAMED = {"names": "resource names"}
"""Topics of `preflight` with another name, because the topic `names` is about DNS names."""
Resource = Mapping[str, Any]


class Unread(Exception):
    """The cloud did not answer a question. The message contains the reason."""


@dataclass(frozen=True, kw_only=True)
class ReadinessLine:
    """One property that the second region must have."""

    topic: str
    """What is checked, such as `replication`, `replica`, `lag`, `key`, `role` or `bundle`."""
    name: str
    """Bucket, key, role or field."""
    state: str
    reason: str = ""
    """What was found."""
    fix: str = ""
    """Command that fixes the problem. Empty on a line that is not `ok` if redeploying the stack fixes the problem."""


def passes(topic: str, name: str, reason: str) -> ReadinessLine:
    """Return a line without a problem."""
    return ReadinessLine(topic=topic, name=name, state=OK, reason=reason)


def fails(topic: str, name: str, reason: str, fix: str = "") -> ReadinessLine:
    """Return a line with a problem that prevents a failover."""
    return ReadinessLine(topic=topic, name=name, state=FAIL, reason=reason, fix=fix)


def warns(topic: str, name: str, reason: str, fix: str = "") -> ReadinessLine:
    """Return a line with a risk."""
    return ReadinessLine(topic=topic, name=name, state=WARN, reason=reason, fix=fix)


def skips(topic: str, name: str, reason: str, fix: str = "") -> ReadinessLine:
    """Return a line for what is not checked."""
    return ReadinessLine(topic=topic, name=name, state=SKIPPED, reason=reason, fix=fix)


def unread(topic: str, name: str, reason: str, fix: str = "") -> ReadinessLine:
    """Return a line for a question that the cloud did not answer."""
    return ReadinessLine(topic=topic, name=name, state=UNREAD, reason=reason, fix=fix)


@dataclass(frozen=True, kw_only=True)
class ReadinessQuestion:
    """The second region of a deployed stack."""

    region: str
    """Region of the stack."""
    recovery: RecoveryPlan
    rpo_minutes: int
    resources: Sequence[Resource]
    """The resources in the state."""
    config: Mapping[str, object]
    """Provider settings of the stack file, which can select the credentials."""
    images: tuple[str, ...] = ()
    """IDs of the images that the nodes in the second region use."""
    backend: tuple[str, str] = ("", "")
    """The setting that selects the state backend, and its URL if the URL does not specify a region."""
    secrets: tuple[tuple[str, str], ...] = ()
    """Settings that select the secrets providers of the stacks in both regions, and their URLs if the URLs do not specify a region."""
    verdicts: Callable[[], Sequence[FleetVerdict]] = tuple
    """Reads which nodes of the stack are verified now. Raises `DeploymentError`."""

    def of_type(self, token: str) -> list[Resource]:
        """Return the resources of one type in the state."""
        return [one for one in self.resources if one.get("type") == token]


def of_preflight(rows: Iterable[PreflightRow]) -> Iterator[ReadinessLine]:
    """Return the lines for rows of `preflight`. Without an identity, the only line is the reason why the cloud cannot be read."""
    for row in rows:
        reason = f"{row.found}; needed: {row.needed}" if row.needed else row.found
        if row.topic == "identity" and row.state is not RowState.OK:
            yield unread("login", row.where, reason, row.fix)
        elif row.topic in PREFLIGHT:
            # The names are unknown with Pulumi Cloud, whose organization is part of them.
            read = row.answered or (row.topic in RENAMED and row.state is RowState.SKIPPED)
            state = _STATES[row.state] if read else UNREAD
            topic = RENAMED.get(row.topic, row.topic)
            yield ReadinessLine(topic=topic, name=row.where, state=state, reason=reason, fix=row.fix)


_STATES = {RowState.OK: OK, RowState.WARN: WARN, RowState.ERROR: FAIL, RowState.SKIPPED: SKIPPED}


def asked(topic: str, name: str, answers: Callable[[], Iterable[ReadinessLine]]) -> Iterator[ReadinessLine]:
    """Return the lines for a question, or one line with the reason if the cloud does not respond."""
    try:
        yield from list(answers())
    except Unread as problem:
        yield unread(topic, name, str(problem), "log in to the cloud, and run the command again")


def exports_run(name: str, state: str | None, enabled: str, fix: str) -> ReadinessLine:
    """Return the line about a schedule of exports in this state, or None if it does not exist. A failover does not require the schedule."""
    if state == enabled:
        return passes("export", name, "scheduled exports run")
    condition = "does not exist" if state is None else f"is {state}"
    reason = f"the schedule {condition}, so files that were written since the last export are lost if the region fails"
    return warns("export", name, reason, fix)


class ReplicatedStore(Protocol):
    """A bucket or container and its replica. Each method returns lines, or raises `Unread`."""

    def replication(self) -> Iterable[ReadinessLine]: ...

    def exists(self) -> Iterable[ReadinessLine]: ...

    def lag(self) -> Iterable[ReadinessLine]: ...


def of_pair(source: str, replica: str, pair: ReplicatedStore) -> Iterator[ReadinessLine]:
    """Return the lines for a replication, its replica and its lag."""
    yield from asked("replication", source, pair.replication)
    yield from asked("replica", replica, pair.exists)
    yield from asked("lag", source, pair.lag)


def lag(question: ReadinessQuestion, name: str, seconds: float | None, fix: str, shown: str = "") -> ReadinessLine:
    """Evaluate the replication lag. Clouds publish no lag while there are no objects to replicate. `shown` is the lag in the cloud's terms."""
    if seconds is None:
        return passes("lag", name, "no objects were waiting in the last hour")
    shown = shown or (f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} s")
    if seconds > question.rpo_minutes * 60:
        reason = f"the replica is {shown} behind, but recovery.rpo_minutes is {question.rpo_minutes}"
        return fails("lag", name, reason, fix)
    if seconds > question.recovery.alert_after_s:
        reason = f"the replica is {shown} behind, more than the {question.recovery.alert_after_s / 60:.0f} minutes in the plan"
        return warns("lag", name, reason, fix)
    return passes("lag", name, f"the replica is {shown} behind")


def state(question: ReadinessQuestion, location: str | None) -> ReadinessLine:
    """Evaluate the location of the bucket that contains the Pulumi state. The location is None if the bucket does not exist."""
    name, url = question.backend
    if location is None:
        raise Unread(f"the bucket of the state backend {url} was not found")
    if location == question.region:
        reason = f"is in {location}, so a failover cannot read the state when this region fails"
        return fails("state", name, reason, MOVE)
    return passes("state", name, f"is in {location}")


def secrets(question: ReadinessQuestion, name: str, location: str) -> ReadinessLine:
    """Evaluate the location of a key that encrypts the secrets of a stack. `name` ends with the name of the stack: `secretsprovider of train`."""
    if location == question.region:
        reason = f"is in {location}, so a failover cannot decrypt the secrets when this region fails"
        return fails("state", name, reason, CHANGE.replace("STACK", name.rpartition(" of ")[2]))
    return passes("state", name, f"is in {location}")


CHANGE = "with a key in another region as URL: pulumi stack change-secrets-provider --stack STACK URL"
"""Encrypts the secrets of the stack `STACK` with another key
(https://www.pulumi.com/docs/iac/cli/commands/pulumi_stack_change-secrets-provider/, retrieved 2026-11-27)."""
MOVE = (
    "with a backend in another region as URL: pulumi stack export --stack STACK --file state.json && pulumi login URL && pulumi stack "
    "init STACK && pulumi stack import --stack STACK --file state.json"
)
"""Moves the state to a backend in another region. `gpuinfra ready` replaces `STACK`
(https://www.pulumi.com/docs/iac/concepts/state-and-backends/, retrieved 2026-11-22)."""


def deployed(question: ReadinessQuestion, replicated: int, keys: int) -> Iterator[ReadinessLine]:
    """Compare the numbers of replicated buckets and second-region keys in the state with the plan."""
    wanted, second = len(question.recovery.replicas), question.recovery.region
    if replicated < wanted:
        reason = f"the state contains replication to {second} for {replicated} of {wanted} buckets"
        yield fails("replication", "stack", reason)
    if not keys:
        yield fails("key", "stack", f"the state contains no key in {second}")


def located(name: str, location: str | None, second: str, missing: str = "the replica does not exist") -> ReadinessLine:
    """Evaluate the location of a replica. The location is None if the replica does not exist."""
    if location is None:
        return fails("replica", name, missing)
    if location != second:
        return fails("replica", name, f"the replica is in {location}, not in {second}")
    return passes("replica", name, f"exists in {second}")


def bundle(key: str, bucket: str, replica: str, fix: str, *, exists: bool) -> ReadinessLine:
    """Evaluate whether the replica contains a bundle."""
    if exists:
        return passes("bundle", key, f"is in {replica}")
    reason = f"the bundle is in {bucket}, but not in the replica {replica}, because replication covers only new objects"
    return fails("bundle", key, reason, fix)


def role(name: str, reason: str, *, exists: bool) -> ReadinessLine:
    """Evaluate whether a role exists. `reason` describes the consequence if it does not."""
    return ReadinessLine(topic="role", name=name, state=OK if exists else FAIL, reason="exists" if exists else reason)


def key(name: str, state: str | None, fix: str) -> ReadinessLine:
    """Evaluate the state of a key, given in the cloud's terms. The state is None if the key does not exist."""
    if state is None:
        return fails("key", name, "the key does not exist")
    if state.upper() == "ENABLED":
        return passes("key", name, "is enabled")
    return fails("key", name, f"the key is {state}, so the replicas cannot be read", fix)
