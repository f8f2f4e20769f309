"""The note in the runner's lock, which others read while it changes."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

from gpuinfra.node.journal import RunLock


def test_concurrent_reader_sees_a_complete_note(tmp_path: Path) -> None:
    """The note changes between two steps; a reader at that moment still sees that a run is active."""
    lock = RunLock(tmp_path / "lock")
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            lock.started(os.getpid())
            lock.ended()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        notes, end = [], time.monotonic() + 60
        while len(notes) < 4000 or ({"group" in note for note in notes} != {True, False} and time.monotonic() < end):
            notes.append(json.loads((tmp_path / "lock").read_text() or "nothing"))
    finally:
        stop.set()
        thread.join()
        lock.release()
    assert {note["pid"] for note in notes} == {os.getpid()}
    assert {"group" in note for note in notes} == {True, False}
