"""Questions for a cloud and for this machine before a deployment: the rows of an answer, and the code that asks questions in parallel.

Rules (`gpuinfra/rules`) require only a declaration. A preflight sends read-only requests with the operator's credentials. The
`preflight` module in each cloud's package defines the questions. `gpuinfra doctor` and `gpuinfra plan --live` show the same rows.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol, TypeVar

from gpuinfra.base.safe_text import one_line
from gpuinfra.base.words import counted
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.plan.model import Plan, PoolPlan
from gpuinfra.software.images import ImageFamily

T = TypeVar("T")

DEADLINE_S = 20.0
"""Time limit for all answers. Each request also has its own, shorter time limit."""


class RowState(StrEnum):
    """The result of one question."""

    OK = "ok"
    WARN = "warn"
    """A risk, or a question without an answer."""
    ERROR = "error"
    """The deployment fails, or cannot work as declared."""
    SKIPPED = "skipped"
    """The question was not asked. `found` contains the reason."""


@dataclass(frozen=True, kw_only=True)
class PreflightRow:
    """One question with its answer."""

    topic: str
    """`engine`, `identity`, `quota`, ... `docs/guides/doctor.md` lists all topics."""
    where: str
    """The subject: a program, a folder, an identity, a pool, a quota."""
    state: RowState
    found: str
    needed: str = ""
    """What is required instead. Empty if nothing must change."""
    fix: str = ""
    """The command or the change that resolves the problem."""
    answered: bool = True
    """False if the question was asked and has no answer, for example because the request is denied."""

    def as_dict(self) -> dict[str, str]:
        """Return the content for `--json`."""
        return {key: str(value) for key, value in asdict(self).items() if key != "answered"}


def ok(topic: str, where: str, found: str) -> PreflightRow:
    """Return a row without a problem."""
    return PreflightRow(topic=topic, where=where, state=RowState.OK, found=found)


def warning(topic: str, where: str, found: str, needed: str, fix: str) -> PreflightRow:
    """Return a row with a risk."""
    return PreflightRow(topic=topic, where=where, state=RowState.WARN, found=found, needed=needed, fix=fix)


def problem(topic: str, where: str, found: str, needed: str, fix: str) -> PreflightRow:
    """Return a row with a problem that prevents the deployment."""
    return PreflightRow(topic=topic, where=where, state=RowState.ERROR, found=found, needed=needed, fix=fix)


def skipped(topic: str, where: str, why: str, fix: str = "") -> PreflightRow:
    """Return a row for a question that was not asked."""
    return PreflightRow(topic=topic, where=where, state=RowState.SKIPPED, found=why, fix=fix)


class Unanswered(Exception):
    """A request without a usable answer. `needed` and `fix` describe how to get one."""

    def __init__(self, found: str, needed: str, fix: str, *, state: RowState = RowState.WARN) -> None:
        super().__init__(found)
        self.found, self.needed, self.fix, self.state = one_line(found), needed, fix, state

    def row(self, topic: str, where: str) -> PreflightRow:
        """Return the row that reports a question without an answer."""
        return PreflightRow(
            topic=topic,
            where=where,
            state=self.state,
            found=self.found,
            needed=self.needed,
            fix=self.fix,
            answered=False,
        )


_AGAIN = "run the command again"


def no_credentials(why: str, login: str) -> Unanswered:
    """Return the answer if there are no credentials. `login` is the command that gets them."""
    needed = "credentials of the identity that deploys"
    return Unanswered(f"no credentials: {why}", needed, login, state=RowState.ERROR)


def missing_credentials(cloud: CloudPreflight, region: str, setting: Callable[[str], str | None]) -> str | None:
    """Return the message if this machine has no credentials for a cloud, or None. Sends no request to the cloud's API.

    `setting` returns a provider setting of the stack, such as `aws:profile`. The result is None if a variable or a setting
    selects credentials: the provider reads them itself and reports if they are not accepted.
    """
    given = {name: value for name in cloud.SETTINGS if (value := setting(name))}
    if any(cloud.SETTINGS[name] for name in given) or any(os.environ.get(name) for name in cloud.CREDENTIALS):
        return None
    try:
        cloud.Preflight(region, given).find_credentials()
    except Unanswered as error:
        return f"{error.found}; to get them, {error.fix}"
    return None


def rejected(why: str, login: str) -> Unanswered:
    """Return the answer if the cloud does not accept the credentials, for example because they are expired."""
    return Unanswered(f"the credentials are not accepted: {why}", "valid credentials", login, state=RowState.ERROR)


class Denied(Unanswered):
    """The identity lacks the permission to ask."""


def denied(action: str, why: str) -> Denied:
    """Return the answer if the identity lacks the permission to ask."""
    fix = "grant the permission to this identity (docs/guides/doctor.md lists the permissions), or check this item yourself"
    return Denied(f"not checked, because the request is denied: {why}", f"the permission {action}", fix)


def throttled(action: str, why: str) -> Unanswered:
    """Return the answer if the cloud limits the rate of requests."""
    return Unanswered(f"not checked, because {action} is throttled: {why}", "an answer", _AGAIN)


def failed(action: str, why: str) -> Unanswered:
    """Return the answer if the service has an error."""
    return Unanswered(f"not checked, because {action} failed: {why}", "an answer", _AGAIN)


def unreachable(action: str, why: str) -> Unanswered:
    """Return the answer if the service cannot be reached in time."""
    fix = f"check the network and the proxy (HTTPS_PROXY), and {_AGAIN}"
    return Unanswered(f"not checked, because {action} did not respond: {why}", "a connection to the cloud", fix)


def quota_row(
    where: str,
    limit: float,
    used: float | None,
    total: int,
    request: Callable[[int], str],
    *,
    added: int | None = None,
    unit: str = "",
    of: str = "nodes",
    unread: str = "",
) -> PreflightRow:
    """Return the row that compares a quota with the need of a stack.

    `used` is None if the usage is unknown; `unread` is the reason. `added` is the part of `total` that the usage cannot contain yet; by default, all
    of it. `request` returns the command that requests a limit. A limit of infinity is no limit.
    """
    added = total if added is None else added
    suffix = f" {unit}" if unit else ""
    usage = f"usage unknown ({unread})" if unread else "usage unknown"
    have = f"{limit:.0f}{suffix}" if math.isfinite(limit) else "no limit"
    have += f", {used:.0f} in use" if used is not None else f", {usage}"
    if total > limit:
        return problem("quota", where, have, f"{total}{suffix} for all {of} of the stack", request(total))
    if used is not None and used + added > limit:
        need = f"{added} more{suffix}, unless {of} of this stack are part of the usage"
        return warning("quota", where, have, need, request(round(used) + added))
    return ok("quota", where, f"{have}, {total} needed")


class Owner(StrEnum):
    """Who uses a name that is unique across all accounts."""

    UNUSED = "unused"
    ACCOUNT = "account"
    """The account of the operator. The name contains the token of the stack, so the resource belongs to this stack."""
    OTHER = "other"
    """A resource that is not part of the stack or that this identity cannot read. Clouds return the same response for both."""


@dataclass(frozen=True, kw_only=True)
class PreflightQuestion:
    """A question. Each question runs on its own thread."""

    topic: str
    where: str
    ask: Callable[[], Iterable[PreflightRow]]
    """Returns the rows. Raises `Unanswered` if there is no answer."""


def answers(questions: Iterable[PreflightQuestion], deadline_s: float = DEADLINE_S) -> list[PreflightRow]:
    """Ask all questions at the same time and return their rows in the order of the questions. A late answer is a warning."""
    asked = list(questions)
    rows: list[PreflightRow] = []
    for question, rows_of_question in zip(asked, together([_rows_of(one) for one in asked], deadline_s), strict=True):
        if rows_of_question is None:
            late = f"no response within {deadline_s:g} s"
            rows.append(Unanswered(late, "an answer", _AGAIN).row(question.topic, question.where))
        else:
            rows.extend(rows_of_question)
    return rows


def _rows_of(question: PreflightQuestion) -> Callable[[], list[PreflightRow]]:
    def rows() -> list[PreflightRow]:
        try:
            return list(question.ask())
        except Unanswered as error:
            return [error.row(question.topic, question.where)]

    return rows


def together(calls: Sequence[Callable[[], T]], deadline_s: float = DEADLINE_S, *, at_once: int = 32) -> list[T | None]:
    """Call functions on threads and return their results in order, or None for a call that is late. Raises the first exception from a call.

    The threads do not keep the process alive, so a connection that does not respond cannot delay its exit.
    """
    results: list[T | None] = [None] * len(calls)
    failures: list[Exception] = []
    pending = iter(enumerate(calls))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                index, call = next(pending, (-1, None))
            if call is None:
                return
            try:
                results[index] = call()
            except Exception as error:  # Raised again in the caller's thread.
                failures.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(at_once, len(calls)))]
    for thread in threads:
        thread.start()
    until = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if failures:
        raise failures[0]
    return results


def names_rows(where: str, owners: Mapping[str, Callable[[], Owner]], fix: str) -> Iterator[PreflightRow]:
    """Find out who uses each name, and yield the row about these names. Without names, there is no row.

    `where` is what the names are for, and `fix` is what to do about a name in use. Raises `Unanswered` if a name has no answer.
    """
    if not owners:
        return
    owner_of = dict(zip(owners, together(list(owners.values())), strict=True))
    if None in owner_of.values():
        raise failed("a request about a name", "no response in time")
    taken, own = ([name for name, one in owner_of.items() if one is owner] for owner in (Owner.OTHER, Owner.ACCOUNT))
    if taken:
        what = f"{', '.join(taken)}: in use by a resource that is not part of this stack, or that this identity cannot read"
        yield problem("names", where, what, "names that are free", fix)
    elif own:
        what = f"{len(own)} of {len(owner_of)} exist already in this account: {', '.join(own)}"
        yield ok(
            "names",
            where,
            f"{what}; if the stack is not deployed, an earlier deployment retained them (`gpuinfra adopt`)",
        )
    else:
        yield ok("names", where, f"all {len(owner_of)} names are free")


def bucket_rows(buckets: Iterable[str], owner: Callable[[str], Owner]) -> Iterator[PreflightRow]:
    """Yield the row about the names of buckets. `owner` finds out who uses a name."""
    fix = "grant the permissions of `gpuinfra permissions STACK` to this identity, or change `name` in the stack file"
    return names_rows("buckets", {name: partial(owner, name) for name in buckets}, fix)


def not_asked(topics: Iterable[str], why: str) -> PreflightRow:
    """Return the row for topics that depend on a missing answer."""
    return skipped("account", ", ".join(topics), why)


def quota_needs(
    plan: Plan, of_node: Callable[[PoolPlan, CapacityKind], Iterable[tuple[str, int]]]
) -> dict[str, dict[str, int]]:
    """Return the amount that all nodes need, by quota and kind of capacity. `of_node` returns the quotas that one node uses and the amount of each."""
    needs: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for pool in plan.pools:
        for group in pool.groups:
            for quota, amount in of_node(pool, CapacityKind(group.kind)):
                needs[quota][group.kind] += group.max_count * amount
    return needs


class Requests(Protocol):
    """Read-only requests to a cloud in one region, with the operator's credentials. Raises `Unanswered`."""

    @property
    def region(self) -> str: ...

    def find_credentials(self) -> object:
        """Find the credentials on this machine. Sends no request to the cloud's API."""
        ...

    def identity(self) -> Iterable[PreflightRow]:
        """Return the row about the identity that deploys."""
        ...

    def questions(self, plan: Plan, token: Callable[[], str]) -> Iterable[PreflightQuestion]:
        """Return the questions about what a plan requires. `token` returns the token in the names of the stack's resources."""
        ...

    def newest_image(self, family: ImageFamily) -> str | None:
        """Return the newest image of a family, or None if the region has none."""
        ...


class CloudPreflight(Protocol):
    """The module `preflight` of a cloud."""

    @property
    def TOPICS(self) -> tuple[str, ...]:
        """The topics of the questions about a plan. Empty if there are none."""
        ...

    @property
    def CREDENTIALS(self) -> tuple[str, ...]:
        """Environment variables that select credentials."""
        ...

    @property
    def SETTINGS(self) -> Mapping[str, bool]:
        """Provider setting that `Preflight` reads -> whether it selects credentials that only the provider reads."""
        ...

    @property
    def READS(self) -> Mapping[str, tuple[str, ...]]:
        """Topic -> the permissions of its requests."""
        ...

    def Preflight(self, region: str, config: Mapping[str, object]) -> Requests:
        """Return the requests to a region. `config` contains the provider settings."""
        ...


@dataclass(frozen=True, kw_only=True)
class PreflightRows:
    """The rows of one run, for commands."""

    rows: tuple[PreflightRow, ...]

    @property
    def ok(self) -> bool:
        """True if no row is an error."""
        return not any(row.state is RowState.ERROR for row in self.rows)

    def as_dict(self) -> dict[str, object]:
        """Return the content for `--json`."""
        return {"ok": self.ok, "totals": self._totals(), "rows": [row.as_dict() for row in self.rows]}

    def lines(self) -> Iterator[str]:
        """Yield one line for each row, additional lines for what is needed and for the fix, and a final line with the totals."""
        width = max((len(row.topic) for row in self.rows), default=0)
        margin = " " * (width + 11)
        for row in self.rows:
            yield f"{row.state.value:7}  {row.topic:{width}}  {row.where}: {row.found}"
            if row.needed:
                yield f"{margin}needed: {row.needed}"
            if row.fix:
                yield f"{margin}fix: {row.fix}"
        count = self._totals()
        bad, risks = counted(count["error"], "problem"), counted(count["warn"], "warning")
        yield ""
        yield f"{bad}, {risks}, {count['skipped']} skipped, {count['ok']} ok"

    def _totals(self) -> dict[str, int]:
        counts = dict.fromkeys((state.value for state in RowState), 0)
        for row in self.rows:
            counts[row.state.value] += 1
        return counts
