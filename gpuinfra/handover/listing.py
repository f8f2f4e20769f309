"""Lists the folder of one instance in parts, because other nodes may be able to write any number of objects there."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import islice

from gpuinfra.handover.ports import EvidenceRef

MOST_KEPT = 20
"""Maximum number of pieces of evidence per instance to keep, unless none of them is signed by the instance."""


class FolderList:
    """The evidence in one folder, newest first by the store's time. The node's clock is not used."""

    def __init__(self, listed: Iterable[EvidenceRef], instance_id: str, owner: str, *, everything: bool) -> None:
        """With `everything`, all evidence is kept, otherwise the newest."""
        self._listed = iter(listed)
        self._of = instance_id, owner
        self._everything = everything
        self._refs: list[EvidenceRef] = []
        self.complete = False
        self.shortened = False
        """True if older evidence was dropped."""

    def advance(self, most: int) -> bool:
        """List more of the folder, at most this number of documents. Return True if the list is complete."""
        taken = 0
        for ref in islice(self._listed, most):
            taken += 1
            if (ref.instance_id, ref.owner) == self._of:
                self._refs.append(ref)
            if len(self._refs) > 50 * MOST_KEPT and not self._everything:
                self._drop()
        self.complete = taken < most
        if self.complete:
            self._refs.sort(key=_age, reverse=True)
            if len(self._refs) > MOST_KEPT and not self._everything:
                self._drop()
        return self.complete

    @property
    def refs(self) -> tuple[EvidenceRef, ...]:
        """The evidence in a complete list."""
        return tuple(self._refs)

    def _drop(self) -> None:
        self._refs = heapq.nlargest(MOST_KEPT, self._refs, key=_age)
        self.shortened = True


def _age(ref: EvidenceRef) -> tuple[float, int]:
    return ref.modified.timestamp(), ref.seq
