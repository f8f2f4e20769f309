"""The runner of steps: order, proof, retries, time limits, reboots, and what a second run does."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from .conftest import Node, alive

MADE = {"10-one": "42", "20-two": "42", "30-three": "42"}


def test_steps_run_in_order_and_are_recorded(three: Node) -> None:
    """Every step ends as done, and what it proved is in the journal."""
    code, said = three.run()
    assert code == 0, said
    assert [(s["id"], s["status"], s["changed"]) for s in three.state["steps"]] == [
        (name, "done", True) for name in MADE
    ]
    assert three.state["recorded"] == {"one": "42", "two": "42", "three": "42"}
    assert three.world == MADE
    assert said.index("10-one done") < said.index("20-two started")


def test_a_second_run_changes_nothing_and_says_so(three: Node) -> None:
    """Done steps are not run again, and the journal keeps its bytes."""
    three.run()
    before = (three.root / "var/lib/gpuinfra/state.json").read_bytes()
    code, said = three.run()
    assert code == 0
    assert "3 steps done, nothing to do" in said
    assert (three.root / "var/lib/gpuinfra/state.json").read_bytes() == before


def test_again_proves_every_step_anew(three: Node) -> None:
    """With --again each step runs, finds its work done, and reports that nothing changed."""
    three.run()
    code, said = three.run("--again")
    assert code == 0
    assert "3 ran, none made changes" in said
    assert [s["changed"] for s in three.state["steps"]] == [False] * 3


def test_new_content_is_a_new_step(three: Node) -> None:
    """A changed script runs again, the others do not; changed versions run all."""
    three.run()
    three.step("20-two", 'proved "the new way"\n')
    _, said = three.run()
    assert "20-two done" in said
    assert "10-one" not in said
    (three.bundle / "versions.env").write_text("ANSWER=42\nMORE=1\n", encoding="utf-8")
    _, said = three.run()
    assert "3 ran" in said


def test_success_without_a_proof_is_a_failure(node: Node) -> None:
    """Exit code 0 is not believed alone."""
    node.step("10-silent", "exit 0\n")
    code, said = node.run()
    assert code == 1
    assert node.status("10-silent")["status"] == "failed"
    assert "reported no proof" in said


def test_a_proof_before_a_failure_does_not_count(node: Node) -> None:
    """A step that proved something and then failed is failed, and records nothing."""
    node.step("10-late", 'record driver 1\nproved "early"\ndie "the disk fell out"\n')
    code, said = node.run()
    assert code == 1
    assert "the disk fell out" in said
    assert node.state["recorded"] == {}


def test_a_failed_step_stops_the_run(node: Node) -> None:
    """What comes after a failed step is left alone, and a later run takes up exactly there."""
    node.step("10-first", 'proved "yes"\n')
    node.step("20-broken", '[[ -e $WORLD/mended ]] || die "it is broken"\nproved "mended"\n')
    node.step("30-after", 'touch "$WORLD/after"\nproved "yes"\n')
    code, said = node.run()
    assert code == 1
    assert "20-broken failed: it is broken" in said
    assert "systemctl restart gpuinfra-bootstrap.service" in said
    assert "after" not in node.world
    assert node.status("20-broken")["reason"] == "it is broken"
    (node.root / "world/mended").touch()
    code, said = node.run()
    assert code == 0
    assert "10-first" not in said
    assert "after" in node.world
    assert node.status("20-broken")["reason"] is None


def test_a_step_is_retried_with_the_reason(node: Node) -> None:
    """A passing trouble is survived, and each try is said and counted."""
    node.step(
        "10-flaky",
        'echo x >>"$WORLD/tries"\n(($(wc -l <"$WORLD/tries") > 2)) || die "mirror answered 503"\nproved "yes"\n',
        retries=2,
    )
    code, said = node.run()
    assert code == 0
    assert said.count("mirror answered 503; retrying in") == 2
    assert node.status("10-flaky")["attempts"] == 3


def test_a_refusal_is_not_retried(node: Node) -> None:
    """Where trying again cannot help, it is not tried."""
    node.step("10-no", 'echo x >>"$WORLD/tries"\nrefuse "driver 470 is outside the range"\n', retries=5)
    code, _ = node.run()
    assert code == 1
    assert node.world["tries"] == "x\n"
    assert node.status("10-no")["reason"] == "driver 470 is outside the range"


def test_an_unexpected_error_names_line_and_command(node: Node) -> None:
    """A command that fails without a word is named with its line and exit code."""
    node.step("10-odd", "\nfalse\n")
    node.run()
    assert node.status("10-odd")["reason"] == "line 4: `false` failed with exit code 1"


def test_a_step_out_of_time_ends_with_all_its_children(node: Node) -> None:
    """The time limit ends the whole process group and names the last words."""
    node.step(
        "10-slow",
        'echo "waiting for a package server"\nsleep 300 &\necho $! >"$WORLD/child"\nwait\nproved "no"\n',
        timeout_s=0.5,
    )
    code, said = node.run()
    assert code == 1
    assert "timed out after 0.5 s" in said
    assert "waiting for a package server" in said
    assert not alive(int(node.world["child"]))


def test_a_killed_step_is_a_failure(node: Node) -> None:
    """A step that dies by a signal is failed, with the signal."""
    node.step("10-killed", "kill -9 $$\n")
    node.run()
    assert "signal 9" in str(node.status("10-killed")["reason"])


def _with_fake_reboot(node: Node) -> None:
    tools = node.root / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "systemctl").write_text('#!/bin/sh\necho "$*" >>"$WORLD/systemctl"\nkill -9 $PPID\n', encoding="utf-8")
    (tools / "systemctl").chmod(0o755)
    node.environment["PATH"] = f"{tools}:{os.environ['PATH']}"


def _pretend_other_boot(node: Node) -> None:
    path = node.root / "var/lib/gpuinfra/state.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    for entry in state["steps"]:
        entry["boot_id"] = "00000000-0000-0000-0000-000000000000" if entry["boot_id"] else None
    path.write_text(json.dumps(state), encoding="utf-8")


def test_a_reboot_is_journaled_before_it_is_asked_for(node: Node) -> None:
    """Exit code 194 becomes `reboot` on disk, then systemctl; the next boot runs the step again and goes on."""
    _with_fake_reboot(node)
    node.step(
        "10-driver",
        """
if ! [[ -e $WORLD/new ]]; then
  touch "$WORLD/new"
  changed "a driver"
  reboot_needed "the old module is loaded"
fi
proved "new"
""",
    )
    node.step("20-after", 'proved "yes"\n')
    code, said = node.run()
    assert code == -signal.SIGKILL
    assert node.world["systemctl"] == "reboot\n"
    assert node.status("10-driver")["status"] == "reboot"
    assert "continues after a reboot: the old module is loaded" in said
    _pretend_other_boot(node)
    code, said = node.run()
    assert code == 0
    assert node.status("10-driver")["status"] == "done"
    assert node.status("10-driver")["changed"] is True


def test_a_reboot_that_did_not_happen_is_asked_for_again(node: Node) -> None:
    """In the same boot the step is not run again; the reboot is asked for again."""
    _with_fake_reboot(node)
    node.step("10-driver", 'echo x >>"$WORLD/runs"\nreboot_needed "the old module is loaded"\n')
    node.run()
    node.run()
    assert node.world["runs"] == "x\n"
    assert node.world["systemctl"] == "reboot\nreboot\n"


def test_reboots_do_not_go_on_for_ever(node: Node) -> None:
    """A step that asks for a third reboot in a row is failed."""
    node.step("10-driver", 'reboot_needed "the old module is loaded"\n')
    codes = []
    for _ in range(3):
        codes.append(node.run("--no-reboot")[0])
        _pretend_other_boot(node)
    assert codes == [194, 194, 1]
    assert "reboot number 3" in str(node.status("10-driver")["reason"])


def test_a_second_run_is_kept_out(node: Node) -> None:
    """While one run works another ends at once, names it, and does no harm."""
    node.step("10-slow", 'touch "$WORLD/began"\nwhile [[ ! -e $WORLD/go ]]; do sleep 0.02; done\nproved "yes"\n')
    first = node.start()
    _wait_for(node.root / "world/began")
    code, said = node.run()
    assert code == 3
    assert f"process {first.pid}" in said
    (node.root / "world/go").touch()
    first.communicate(timeout=20)
    assert first.returncode == 0


def test_being_asked_to_end_ends_the_step_too(node: Node) -> None:
    """SIGTERM ends runner and step, and the next run takes the step up again."""
    node.step("10-slow", 'echo $$ >"$WORLD/pid"\nwhile [[ ! -e $WORLD/go ]]; do sleep 0.02; done\nproved "yes"\n')
    process = node.start()
    _wait_for(node.root / "world/pid")
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert not alive(int(node.world["pid"]))
    (node.root / "world/go").touch()
    assert node.run()[0] == 0


def test_dry_run_changes_nothing(node: Node) -> None:
    """A dry run says what it would do and leaves world and journal alone."""
    node.step("10-file", 'put_file "$WORLD/file" text || true\nend_dry_run\nproved "yes"\n')
    code, said = node.run("--dry-run")
    assert code == 0
    assert "10-file: would write" in said
    assert node.world == {}
    assert not (node.root / "var/lib/gpuinfra/state.json").exists()
    node.run()
    assert "10-file: would change nothing" in node.run("--dry-run")[1]


def test_steps_read_node_json_as_environment(node: Node) -> None:
    """Cluster, pool and file systems of node.json are variables of a step."""
    node.step("10-read", 'printf "%s|%s" "$GPUINFRA_POOL" "$GPUINFRA_FILE_SYSTEMS" >"$WORLD/read"\nproved "yes"\n')
    node.run()
    assert node.world["read"] == "gpu|lustre /scratch fs-1.example abc"


def test_a_broken_journal_is_put_aside(three: Node) -> None:
    """A journal that is no journal is kept beside, said, and every step proves itself anew."""
    three.run()
    path = three.root / "var/lib/gpuinfra/state.json"
    path.write_text("{ not json", encoding="utf-8")
    code, said = three.run()
    assert code == 0
    assert "cannot read the journal" in said
    assert "3 ran" in said
    assert path.with_name("state.json.broken").read_text(encoding="utf-8") == "{ not json"


def test_wrong_bundles_are_named(node: Node) -> None:
    """A missing, broken or newer steps.json ends with one message and exit code 3."""
    for content in (
        None,
        "{",
        '{"schema": "gpuinfra.steps/9", "steps": []}',
        '{"schema": "gpuinfra.steps/1", "steps": [{}]}',
    ):
        if content is not None:
            (node.bundle / "steps.json").write_text(content, encoding="utf-8")
        code, said = node.run()
        assert code == 3
        assert "steps.json" in said
        assert "fetch the bundle again" in said
        assert "Traceback" not in said


def test_control_characters_do_not_reach_the_console(node: Node) -> None:
    """What a tool printed cannot steer the terminal of who reads the console."""
    node.step("10-evil", "die $'\\e[2Jgone\\a'\n")
    _, said = node.run()
    assert "\x1b" not in said
    assert "\x07" not in said
    assert "gone" in said


def _wait_for(path: Path) -> None:
    until = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not appear"
        time.sleep(0.01)
