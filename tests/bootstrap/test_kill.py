"""kill -9 at any time, then the same run again: the result equals that of an undisturbed run."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node.journal import group_lives

from .conftest import KILL_AT_WRITE, Node, alive
from .test_runner import MADE

UNSTEADY = {"started", "seconds", "attempts", "boot_id"}


def settled(node: Node) -> dict[str, Any]:
    """The journal without fields that differ between runs."""
    state = node.state
    steps = [{key: value for key, value in entry.items() if key not in UNSTEADY} for entry in state["steps"]]
    return {**state, "steps": steps}


def finish(node: Node) -> None:
    """Run until done; one undisturbed run must suffice."""
    code, output = node.run()
    assert code == 0, output
    assert node.world == MADE
    assert not [p for p in (node.root / "var/lib/gpuinfra").iterdir() if p.suffix == ".broken"]


WRITES = 7  # the list, then running and done of three steps


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(1, WRITES + 1))
def test_kill_at_each_boundary(three: Node, number: int, moment: str) -> None:
    """The runner dies right before or after each write of its journal; the next run completes."""
    code, _ = three.run(program=KILL_AT_WRITE, before=(str(number), moment))
    assert code == -signal.SIGKILL
    finish(three)
    assert settled(three)["recorded"] == {"one": "42", "two": "42", "three": "42"}
    assert {entry["status"] for entry in settled(three)["steps"]} == {"done"}


def test_all_boundaries_are_tested(three: Node) -> None:
    """The journal is not written more often than the tested boundaries."""
    assert three.run(program=KILL_AT_WRITE, before=(str(WRITES + 1), "before"))[0] == 0


INSTALLS = """
if [[ ! -e $WORLD/installed ]] || interrupted; then
  [[ -e $WORLD/installed ]] || { begin_installing; touch "$WORLD/installed"; }
  record boot "$(installed_in_boot)"
fi
proved "it is installed"
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_interrupted_step_records_its_installation_again(node: Node, number: int, moment: str) -> None:
    """Killed after a step's proof but before the journal has it, the step still counts as interrupted and records its values again."""
    node.step("10-installs", INSTALLS)
    code, _ = node.run(program=KILL_AT_WRITE, before=(str(number), moment))
    assert code == -signal.SIGKILL
    assert node.run()[0] == 0
    assert node.state["recorded"] == {"boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip()}
    assert not list((node.root / "var/lib/gpuinfra").glob("unfinished-*"))


def test_finished_step_leaves_no_mark(node: Node) -> None:
    """The mark is deleted once the journal records the step as done, and stays after a proof that a failure followed."""
    node.step("10-installs", INSTALLS)
    node.step("20-fails", 'begin_installing\nproved "early"\ndie "the disk fell out"\n')
    assert node.run()[0] == 1
    assert [one.name for one in (node.root / "var/lib/gpuinfra").glob("unfinished-*")] == ["unfinished-20-fails"]


def kill_at_random(node: Node, seed: int) -> None:
    """Start, kill at a random time up to three times, then finish."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 3)):
        process = node.start()
        time.sleep(chance.uniform(0.05, 0.5))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=300)
    finish(node)
    assert {entry["status"] for entry in node.state["steps"]} == {"done"}


@pytest.mark.parametrize("seed", range(6))
def test_kill_at_random_times(three: Node, seed: int) -> None:
    """After repeated kills at random times, the next run completes with the same files."""
    kill_at_random(three, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_kill_at_more_random_times(three: Node, seed: int) -> None:
    """The same at more random times."""
    kill_at_random(three, seed)


def test_processes_of_a_killed_run_are_ended_first(node: Node) -> None:
    """A step that outlived its runner never runs beside the next run."""
    node.step("10-slow", 'echo $$ >>"$WORLD/pids"\nwhile [[ ! -e $WORLD/go ]]; do sleep 0.02; done\nproved "yes"\n')
    process = node.start()
    pids = node.root / "world/pids"
    while not pids.exists() or "\n" not in pids.read_text(encoding="utf-8"):
        assert process.poll() is None
        time.sleep(0.01)
    left = int(pids.read_text(encoding="utf-8"))
    process.kill()
    process.communicate(timeout=300)
    assert alive(left)
    second = node.start()
    while pids.read_text(encoding="utf-8").count("\n") < 2:
        assert second.poll() is None
        time.sleep(0.01)
    assert not alive(left)
    (node.root / "world/go").touch()
    second.communicate(timeout=300)
    assert second.returncode == 0


KILL_BEFORE_NOTE = """
import os, signal, sys
from gpuinfra.node import journal, steps
def started(self, group):
    print(group, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
journal.RunLock.started = started
sys.exit(steps.main(sys.argv[1:]))
"""


def test_a_step_that_no_note_names_never_runs(node: Node) -> None:
    """Killed after it started a step's process and before the lock names it, the runner leaves no step beside the next run."""
    node.step("10-writes", 'echo ran >>"$WORLD/ran"\nproved "yes"\n')
    process = node.start(program=KILL_BEFORE_NOTE)
    output, _ = process.communicate(timeout=300)
    group = int(output.split()[-1])
    until = time.monotonic() + 300
    while group_lives(group):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert not (node.root / "world/ran").exists()
    assert node.run()[0] == 0
    assert node.world["ran"] == "ran\n"


@pytest.mark.parametrize("number", [2, 7])
def test_checks_run_again_after_a_kill(three: Node, number: int) -> None:
    """Under systemd, a run that continues after a kill in the same boot restarts the checks; an undisturbed one does not."""
    tools = three.root / "bin"
    tools.mkdir()
    (tools / "systemctl").write_text('#!/bin/sh\necho "$*" >>"$WORLD/../systemctl"\n', encoding="utf-8")
    (tools / "systemctl").chmod(0o755)
    three.environment |= {"PATH": f"{tools}:{os.environ['PATH']}", "INVOCATION_ID": "1"}
    three.run(program=KILL_AT_WRITE, before=(str(number), "before" if number == 7 else "after"))
    finish(three)
    assert (three.root / "systemctl").read_text(encoding="utf-8") == "--no-block restart gpuinfra-verify.service\n"
    assert three.run("--again")[0] == 0
    assert (three.root / "systemctl").read_text(encoding="utf-8").count("restart") == 1


def test_power_loss_leaves_the_old_or_the_new_journal(three: Node) -> None:
    """A partly written draft is never read."""
    three.run()
    path = three.root / "var/lib/gpuinfra/state.json"
    path.with_name("state.json.new").write_text('{"half', encoding="utf-8")
    assert json.loads(path.read_text(encoding="utf-8"))["schema"] == "gpuinfra.state/1"
    assert three.run()[0] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_full_disk_is_reported(three: Node, tmp_path: Path) -> None:
    """On a full disk the run exits with 3 or 1 and the reason; with free space it completes."""
    folder = three.root / "var"
    folder.mkdir(exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this system does not allow mounting a tmpfs")
    try:
        filler = folder / "filler"
        with filler.open("wb", buffering=0) as handle, contextlib.suppress(OSError):
            while True:
                handle.write(b"x" * 4096)
        code, output = three.run()
        assert code in (1, 3), output
        assert "full" in output
        assert "Traceback" not in output
        filler.unlink()
        finish(three)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
