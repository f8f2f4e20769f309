"""The faults that `--fault` injects.

    cloud:no-capacity:<pool, group, capacity kind or zone>    groups launch no nodes; the error uses the cloud's wording
    cloud:no-quota:<pool, group, capacity kind or zone>       groups launch no nodes; the error is the cloud's quota error
    cloud:limited:<pool, group, capacity kind or zone>:<n>    a group launches at most n nodes; then the cloud has no capacity
    cloud:refused:<kind or code>:<pool, ... or zone>[:<n>]    groups launch no nodes (n: in the first n attempts); the error is a recorded one
    cloud:slow:<pool, group, capacity kind or zone>:<s>       a group launches its first node s seconds after its creation
    cloud:throttled:<n>                                       the first n requests of the operator about groups and nodes are throttled
    cloud:error:<resource type>:<n>                     the first n creations of that type fail, later ones succeed
    cloud:partial:<resource type>:<n>                   ... create the resource, but the call fails
    cloud:lost:<resource type>:<n>                      ... create the resource, but the response never arrives
    node:<pool>-<number>:<fault>                        passed on to that node

A resource type is a token (`aws:fsx/lustreFileSystem:LustreFileSystem`) or its suffix (`LustreFileSystem`). Counts
persist in the store, so they survive if a rehearsal is killed. Faults change the cloud's responses, never a node's
verification result.

The errors of `refused` are the messages in `gpuinfra/clouds/<cloud>/handover/refusals.json`, which has the source of each one. A kind selects
its first message. A code, such as `UnauthorizedOperation`, selects the first message that starts with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpuinfra.base.errors import UsageError
from gpuinfra.handover.connect import handover_of
from gpuinfra_rehearsal.cloud.core.store import Store

_CALLS = ("error", "partial", "lost")
_SHAPE = (
    "node:<pool>-<number>:<fault>, cloud:no-capacity|no-quota:<pool, kind or zone>, cloud:limited|slow:<pool, kind or zone>:<n>, "
    "cloud:refused:<kind or code>:<pool, kind or zone>[:<n>], cloud:throttled:<n>, cloud:error:<resource type>:<n>, "
    "cloud:partial:<resource type>:<n> or cloud:lost:<resource type>:<n>"
)
_GROUP = {
    "no-capacity": re.compile(r"(?P<target>[^:]+)"),
    "no-quota": re.compile(r"(?P<target>[^:]+)"),
    "limited": re.compile(r"(?P<target>[^:]+):(?P<n>[1-9]\d*)"),
    "slow": re.compile(r"(?P<target>[^:]+):(?P<n>[1-9]\d*)"),
    "refused": re.compile(r"(?P<which>[^:]+):(?P<target>[^:]+)(:(?P<n>[1-9]\d*))?"),
}
"""Faults of groups: the shape of what follows the name."""
_THROTTLED = "fault cloud:throttled"
"""Counter of the requests."""


@dataclass(frozen=True, slots=True)
class _CallFault:
    text: str
    kind: str
    target: str
    times: int


@dataclass(frozen=True, slots=True)
class _GroupFault:
    text: str
    kind: str
    target: str
    which: str
    n: int | None

    def concerns(self, words: Iterable[str]) -> bool:
        return self.target in {word.replace("-", "_") for word in words if word}


class Faults:
    """The faults of one rehearsal."""

    def __init__(self, ordered: Sequence[str], store: Store) -> None:
        self._store = store
        self._calls: list[_CallFault] = []
        self._groups: list[_GroupFault] = []
        self._nodes: dict[str, list[str]] = {}
        self._throttled = 0
        self.ordered = tuple(ordered)
        self._effective: set[str] = set()
        for text in ordered:
            self._take(text)

    def _take(self, text: str) -> None:
        where, _, rest = text.partition(":")
        kind, _, target = rest.partition(":")
        if where == "node" and target and re.fullmatch(r".+-\d+", kind):
            self._nodes.setdefault(kind, []).append(target)
        elif where == "cloud" and kind in _GROUP and (match := _GROUP[kind].fullmatch(target)):
            part = match.groupdict()
            n = part.get("n")
            self._groups.append(_GroupFault(text, kind, part["target"].replace("-", "_"), part.get("which") or "", int(n) if n else None))  # fmt: skip
        elif where == "cloud" and kind == "throttled" and re.fullmatch(r"[1-9]\d*", target):
            self._throttled += int(target)
        elif where == "cloud" and kind in _CALLS and (match := re.fullmatch(r"(.+):(\d+)", target)):
            self._calls.append(_CallFault(text, kind, match.group(1), int(match.group(2))))
        else:
            raise UsageError(f"--fault {text}: unknown fault; allowed: {_SHAPE}")

    def forget(self) -> None:
        """Start the counts of these faults again."""
        for text in self.ordered:
            self._store.reset(f"fault {text}")
        self._store.reset(_THROTTLED)

    def without_effect(self) -> list[str]:
        """Return the faults that have not changed an answer or a node yet, in this run or an earlier one."""
        return [text for text in self.ordered if text not in self._effective]

    def of_node(self, name: str) -> tuple[str, ...]:
        """Return the faults of a node, such as `gpu-1`."""
        return tuple(self._nodes.get(name, ()))

    def launched(self, name: str) -> None:
        """Record that a node was launched with its faults, or received a notice."""
        self._effective |= {f"node:{name}:{fault}" for fault in self.of_node(name)}

    def without_capacity(self, wanted: int, *words: str) -> bool:
        """Return whether the pool, the group, the capacity kind or the zone has no capacity for this number of nodes."""
        return self._applied(
            one for one in self._of("no-capacity", "limited", words=words) if one.n is None or wanted > one.n
        )

    def without_quota(self, *words: str) -> bool:
        """Return whether the account has no quota for the pool, the group, the capacity kind or the zone."""
        return self._applied(self._of("no-quota", words=words))

    def refusal(self, cloud: str, *words: str) -> tuple[str, str] | None:
        """Return code and message if the cloud refuses to launch a node, or None. Counts the attempt. The code is empty if the recorded message has none."""
        for fault in self._of("refused", words=words):
            if fault.n is None or self._store.next(f"fault {fault.text}") <= fault.n:
                refusal = handover_of(cloud).REFUSALS.recorded(fault.which)
                if refusal is not None:
                    self._effective.add(fault.text)
                    return refusal
            else:
                self._effective.add(fault.text)
        return None

    def delay(self, *words: str) -> float:
        """Return how many seconds after its creation a group launches its first node."""
        slow = list(self._of("slow", words=words))
        self._applied(slow)
        return max((float(one.n or 0) for one in slow), default=0.0)

    def throttles(self) -> bool:
        """Return whether this request of the operator is throttled. Counts the request."""
        if not self._throttled:
            return False
        self._effective |= {text for text in self.ordered if text.startswith("cloud:throttled:")}
        return self._store.next(_THROTTLED) <= self._throttled

    def _applied(self, faults: Iterable[_GroupFault]) -> bool:
        """Record that these faults have an effect, and return whether there are any."""
        texts = {one.text for one in faults}
        self._effective |= texts
        return bool(texts)

    def _of(self, *kinds: str, words: Sequence[str]) -> Iterator[_GroupFault]:
        return (one for one in self._groups if one.kind in kinds and one.concerns(words))

    def of_call(self, token: str) -> str | None:
        """Return the fault for this creation (error, partial or lost), or None. Counts the call."""
        for fault in self._calls:
            meant = token == fault.target or token.endswith((f":{fault.target}", f"/{fault.target}"))
            if meant:
                # Also after its last time, which can be in an earlier run.
                self._effective.add(fault.text)
                if self._store.next(f"fault {fault.text}") <= fault.times:
                    return fault.kind
        return None
