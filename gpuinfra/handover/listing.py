"""Lists the folder of one instance in parts, because other nodes may be able to write any number of objects there."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from itertools import islice

from gpuinfra.handover.ports import EvidenceRef

MOST_KEPT = 20
"""Maximum number of pieces of evidence per instance to keep, unless none of them is signed by the instance."""


class FolderList:
    """The evidence in one folder, newest first by the store's time. The node's clock is not used."""

    def __init__(
        self, listed: Iterable[EvidenceRef], instance_id: str, owner: str, *, everything: Collection[bool]
    ) -> None:
        """Of each kind in `everything`, all documents are kept, otherwise the newest: False is evidence, and True are reports."""
        self._listed = iter(listed)
        self._of = instance_id, owner
        self._everything = everything
        self._kept: dict[bool, list[EvidenceRef]] = {False: [], True: []}
        """Evidence and reports. Each has its own limit, so that none displaces the other."""
        self.complete = False
        self.shortened: set[bool] = set()
        """Contains False if older evidence was dropped, and True if older reports were dropped."""

    def advance(self, most: int) -> bool:
        """List more of the folder, at most this number of documents. Return True if the list is complete."""
        taken = 0
        for ref in islice(self._listed, most):
            taken += 1
            kept = self._kept[ref.is_report]
            if (ref.instance_id, ref.owner) == self._of:
                kept.append(ref)
            if len(kept) > 50 * MOST_KEPT:
                self._drop(ref.is_report)
        self.complete = taken < most
        if self.complete:
            for is_report, kept in self._kept.items():
                kept.sort(key=_age, reverse=True)
                if len(kept) > MOST_KEPT:
                    self._drop(is_report)
        return self.complete

    def refs(self, *, is_report: bool = False) -> tuple[EvidenceRef, ...]:
        """Return the evidence or the reports in a complete list."""
        return tuple(self._kept[is_report])

    def _drop(self, is_report: bool) -> None:
        if is_report not in self._everything:
            self._kept[is_report][:] = heapq.nlargest(MOST_KEPT, self._kept[is_report], key=_age)
            self.shortened.add(is_report)


def _age(ref: EvidenceRef) -> tuple[float, int]:
    return ref.modified.timestamp(), ref.seq
