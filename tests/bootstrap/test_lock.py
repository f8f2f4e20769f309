"""The note in the runner's lock, which others read while it changes."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

from gpuinfra.node.journal import Lock


def test_who_reads_the_note_while_it_changes_finds_a_whole_one(tmp_path: Path) -> None:
    """Between two steps the note changes; an operator who looks in that moment must not think that nobody runs."""
    lock = Lock(tmp_path / "lock")
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
