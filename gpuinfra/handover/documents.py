"""Reads documents from the evidence store. The memory is bounded: only the documents that were read last are kept."""

from __future__ import annotations

import threading
from collections import OrderedDict

from gpuinfra.handover.ports import EvidenceRef, EvidenceStore

KEPT_BYTES = 64 * 1024 * 1024
"""Total size of the documents that are kept, enough for about 300 nodes."""


class Documents:
    """The documents of one store."""

    def __init__(self, store: EvidenceStore, kept_bytes: int = KEPT_BYTES) -> None:
        self._store = store
        self._most = kept_bytes
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def read(self, ref: EvidenceRef) -> bytes:
        """Return a document. Raises `PortUnavailable`."""
        place = ref.place
        with self._lock:
            if place in self._kept:
                self._kept.move_to_end(place)
                return self._kept[place]
        data = self._store.read(ref)
        with self._lock:
            if place not in self._kept:
                self._kept[place] = data
                self._size += len(data)
            while self._size > self._most:
                self._size -= len(self._kept.popitem(last=False)[1])
        return data
