"""The faults that `--fault` injects.

    cloud:no-capacity:<pool, group, capacity kind or zone>    groups launch no nodes; the error uses the cloud's wording
    cloud:no-quota:<pool, group, capacity kind or zone>       groups launch no nodes; the error is the cloud's quota error
    cloud:error:<resource type>:<n>                     the first n creations of that type fail, later ones succeed
    cloud:partial:<resource type>:<n>                   ... create the resource, but the call fails
    cloud:lost:<resource type>:<n>                      ... create the resource, but the response never arrives
    node:<pool>-<number>:<fault>                        passed on to that node

A resource type is a token (`aws:fsx/lustreFileSystem:LustreFileSystem`) or its suffix (`LustreFileSystem`). Counts
persist in the store, so they survive if a rehearsal is killed. Faults change the cloud's responses, never a node's
verification result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpuinfra.errors import UsageError
from gpuinfra.rehearsal.cloud.core.store import Store

_CALLS = ("error", "partial", "lost")
_SHAPE = (
    "node:<pool>-<number>:<fault>, cloud:no-capacity|no-quota:<pool, kind or zone>, cloud:error:<resource type>:<n>, "
    "cloud:partial:<resource type>:<n> or cloud:lost:<resource type>:<n>"
)


@dataclass(frozen=True, slots=True)
class _CallFault:
    text: str
    kind: str
    target: str
    times: int


class Faults:
    """The faults of one rehearsal."""

    def __init__(self, ordered: Sequence[str], store: Store) -> None:
        self._store = store
        self._calls: list[_CallFault] = []
        self._without: dict[str, set[str]] = {"no-capacity": set(), "no-quota": set()}
        self._nodes: dict[str, list[str]] = {}
        self.ordered = tuple(ordered)
        for text in ordered:
            self._take(text)

    def _take(self, text: str) -> None:
        where, _, rest = text.partition(":")
        kind, _, target = rest.partition(":")
        if where == "node" and target and re.fullmatch(r".+-\d+", kind):
            self._nodes.setdefault(kind, []).append(target)
        elif where == "cloud" and kind in self._without and target:
            self._without[kind].add(target.replace("-", "_"))
        elif where == "cloud" and kind in _CALLS and (found := re.fullmatch(r"(.+):(\d+)", target)):
            self._calls.append(_CallFault(text, kind, found.group(1), int(found.group(2))))
        else:
            raise UsageError(f"--fault {text}: unknown fault; allowed: {_SHAPE}")

    def of_node(self, name: str) -> tuple[str, ...]:
        """Return the faults of a node, such as `gpu-1`."""
        return tuple(self._nodes.get(name, ()))

    def without_capacity(self, *words: str) -> bool:
        """Return whether the pool, the group, the capacity kind or the zone has no capacity."""
        return self._is_without("no-capacity", words)

    def without_quota(self, *words: str) -> bool:
        """Return whether the account has no quota for the pool, the group, the capacity kind or the zone."""
        return self._is_without("no-quota", words)

    def _is_without(self, what: str, words: Sequence[str]) -> bool:
        return any(word.replace("-", "_") in self._without[what] for word in words if word)

    def of_call(self, token: str) -> str | None:
        """Return the fault for this creation (error, partial or lost), or None. Counts the call."""
        for fault in self._calls:
            meant = token == fault.target or token.endswith((f":{fault.target}", f"/{fault.target}"))
            if meant and self._store.next(f"fault {fault.text}") <= fault.times:
                return fault.kind
        return None
