"""The store is consistent after any kill, and names are unique."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuinfra_rehearsal.cloud.core.store import Resource, Store, Taken

WRITER = """
import sys
from pathlib import Path
from gpuinfra_rehearsal.cloud.core.store import Resource, Store

store = Store(Path(sys.argv[1]))
while True:
    with store.change():
        n = store.next("r")
        made = Resource("t", "", f"id-{n}", {"n": n}, {})
        store.insert(made)
        store.claim("names", f"name-{n}", made)
        store.put("instance", f"i-{n}", {"of": n})
        store.log("create", "t", made.id, "urn")
    print(n, flush=True)
"""


def test_a_kill_leaves_complete_changes_only(tmp_path: Path) -> None:
    """After a kill at any moment, each resource has its name, its instance and its line in the log, and the store works."""
    path = tmp_path / "cloud.sqlite"
    for pause in (0.05, 0.013, 0.031):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        acknowledged = int(writer.stdout.readline())
        time.sleep(pause)
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged = max([acknowledged, *(int(line) for line in writer.stdout.read().split())])
        writer.wait()
        writer.stdout.close()
        store = Store(path)
        held = {one.id for one in store.list()}
        assert len(held) >= acknowledged
        assert {f"id-{key.removeprefix('i-')}" for key in store.all("instance")} == held
        assert {call["id"] for call in store.calls()} == held
        with pytest.raises(Taken):
            store.claim("names", f"name-{acknowledged}", Resource("t", "", "other", {}, {}))
        store.close()


def test_an_error_undoes_the_whole_change(tmp_path: Path) -> None:
    """A change that fails is rolled back."""
    store = Store(tmp_path / "cloud.sqlite")

    def fail_in_the_middle() -> None:
        with store.change():
            store.insert(Resource("t", "", "a", {}, {}))
            with store.change():
                store.put("instance", "i", {})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_in_the_middle()
    assert store.list() == []
    assert store.all("instance") == {}
    store.close()


def test_the_same_id_can_exist_in_two_regions(tmp_path: Path) -> None:
    """Ids are unique within a region."""
    store = Store(tmp_path / "cloud.sqlite")
    for region in ("us-east-1", "us-west-2"):
        store.insert(Resource("t", region, "same", {"where": region}, {}))
    with pytest.raises(Taken):
        store.insert(Resource("t", "us-east-1", "same", {}, {}))
    found = store.find("t", "same", "us-west-2")
    assert found is not None
    assert found.inputs == {"where": "us-west-2"}
    store.close()


def test_only_its_owner_reads_the_file(tmp_path: Path) -> None:
    """The store holds secrets in plain text, so other users cannot read it."""
    Store(tmp_path / "cloud.sqlite").close()
    assert (tmp_path / "cloud.sqlite").stat().st_mode & 0o077 == 0
