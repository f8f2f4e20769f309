"""The step runner: order, proof, retries, time limits, reboots, and second runs."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from .conftest import Node, alive

MADE = {"10-one": "42", "20-two": "42", "30-three": "42"}


def test_steps_run_in_order_and_are_recorded(three: Node) -> None:
    """Every step ends as done, and the values that it proved are in the journal."""
    code, output = three.run()
    assert code == 0, output
    assert [(s["id"], s["status"], s["changed"]) for s in three.state["steps"]] == [
        (name, "done", True) for name in MADE
    ]
    assert three.state["recorded"] == {"one": "42", "two": "42", "three": "42"}
    assert three.world == MADE
    assert output.index("10-one done") < output.index("20-two started")


def test_second_run_changes_nothing(three: Node) -> None:
    """Done steps do not run again, and the journal file is unchanged."""
    three.run()
    before = (three.root / "var/lib/gpuinfra/state.json").read_bytes()
    code, output = three.run()
    assert code == 0
    assert "3 steps done, nothing to do" in output
    assert (three.root / "var/lib/gpuinfra/state.json").read_bytes() == before


def test_again_runs_every_step(three: Node) -> None:
    """With --again each step runs, finds nothing to do, and reports no changes."""
    three.run()
    code, output = three.run("--again")
    assert code == 0
    assert "3 ran, none made changes" in output
    assert [s["changed"] for s in three.state["steps"]] == [False] * 3


def test_changed_content_runs_again(three: Node) -> None:
    """A changed script runs again, others do not; changed versions run all steps."""
    three.run()
    three.step("20-two", 'proved "the new way"\n')
    _, output = three.run()
    assert "20-two done" in output
    assert "10-one" not in output
    (three.bundle / "versions.env").write_text("ANSWER=42\nMORE=1\n", encoding="utf-8")
    _, output = three.run()
    assert "3 ran" in output


def test_success_without_a_proof_is_a_failure(node: Node) -> None:
    """Exit code 0 alone is not enough."""
    node.step("10-silent", "exit 0\n")
    code, output = node.run()
    assert code == 1
    assert node.status("10-silent")["status"] == "failed"
    assert "reported no proof" in output


def test_proof_before_a_failure_does_not_count(node: Node) -> None:
    """A step that proved something and then failed is failed, and records nothing."""
    node.step("10-late", 'record driver 1\nproved "early"\ndie "the disk fell out"\n')
    code, output = node.run()
    assert code == 1
    assert "the disk fell out" in output
    assert node.state["recorded"] == {}


def test_failed_step_stops_the_run(node: Node) -> None:
    """Later steps do not run, and the next run continues at the failed step."""
    node.step("10-first", 'proved "yes"\n')
    node.step("20-broken", '[[ -e $WORLD/mended ]] || die "it is broken"\nproved "mended"\n')
    node.step("30-after", 'touch "$WORLD/after"\nproved "yes"\n')
    code, output = node.run()
    assert code == 1
    assert "20-broken failed: it is broken" in output
    assert "systemctl restart gpuinfra-bootstrap.service" in output
    assert "after" not in node.world
    assert node.status("20-broken")["reason"] == "it is broken"
    (node.root / "world/mended").touch()
    code, output = node.run()
    assert code == 0
    assert "10-first" not in output
    assert "after" in node.world
    assert node.status("20-broken")["reason"] is None


def test_step_is_retried_with_the_reason(node: Node) -> None:
    """A temporary failure is retried, and each attempt is logged and counted."""
    node.step(
        "10-flaky",
        'echo x >>"$WORLD/tries"\n(($(wc -l <"$WORLD/tries") > 2)) || die "mirror answered 503"\nproved "yes"\n',
        retries=2,
    )
    code, output = node.run()
    assert code == 0
    assert output.count("mirror answered 503; retrying in") == 2
    assert node.status("10-flaky")["attempts"] == 3


def test_refusal_is_not_retried(node: Node) -> None:
    """A failure that a retry cannot fix is not retried."""
    node.step("10-no", 'echo x >>"$WORLD/tries"\nrefuse "driver 470 is outside the range"\n', retries=5)
    code, _ = node.run()
    assert code == 1
    assert node.world["tries"] == "x\n"
    assert node.status("10-no")["reason"] == "driver 470 is outside the range"


def test_unexpected_error_names_line_and_command(node: Node) -> None:
    """A command that fails without output is reported with its line and exit code."""
    node.step("10-odd", "\nfalse\n")
    node.run()
    assert node.status("10-odd")["reason"] == "line 4: `false` failed with exit code 1"


def test_step_timeout_ends_all_its_children(node: Node) -> None:
    """The time limit ends the whole process group and reports the last output."""
    body = 'echo "waiting for a package server"\nsleep 900 &\necho $! >"$WORLD/child"\nwait\nproved "no"\n'
    code, output, limit = 0, "", 0.5
    for limit in (0.5, 5, 60):  # on a busy machine, bash itself needs longer than the shortest limit
        node.step("10-slow", body, timeout_s=limit)
        code, output = node.run()
        if "child" in node.world:
            break
    assert code == 1
    assert f"timed out after {limit:g} s" in output
    assert "waiting for a package server" in output
    assert not alive(int(node.world["child"]))


def test_killed_step_is_a_failure(node: Node) -> None:
    """A step that a signal kills is failed, with the signal."""
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


def test_reboot_is_journaled_before_it_is_requested(node: Node) -> None:
    """Exit code 194 is written as `reboot` before systemctl runs; the next boot runs the step again and continues."""
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
    code, output = node.run()
    assert code == -signal.SIGKILL
    assert node.world["systemctl"] == "reboot\n"
    assert node.status("10-driver")["status"] == "reboot"
    assert "continues after a reboot: the old module is loaded" in output
    _pretend_other_boot(node)
    code, output = node.run()
    assert code == 0
    assert node.status("10-driver")["status"] == "done"
    assert node.status("10-driver")["changed"] is True


def test_missing_reboot_is_requested_again(node: Node) -> None:
    """In the same boot the step does not run again; the reboot is requested again."""
    _with_fake_reboot(node)
    node.step("10-driver", 'echo x >>"$WORLD/runs"\nreboot_needed "the old module is loaded"\n')
    node.run()
    node.run()
    assert node.world["runs"] == "x\n"
    assert node.world["systemctl"] == "reboot\nreboot\n"


def test_reboots_are_limited(node: Node) -> None:
    """A step that requests a third reboot in a row fails."""
    node.step("10-driver", 'reboot_needed "the old module is loaded"\n')
    codes = []
    for _ in range(3):
        codes.append(node.run("--no-reboot")[0])
        _pretend_other_boot(node)
    assert codes == [194, 194, 1]
    assert "reboot number 3" in str(node.status("10-driver")["reason"])


def test_concurrent_run_is_refused(node: Node) -> None:
    """While one run works, another one exits at once and names it."""
    node.step("10-slow", 'touch "$WORLD/began"\nwhile [[ ! -e $WORLD/go ]]; do sleep 0.02; done\nproved "yes"\n')
    first = node.start()
    _wait_for(node.root / "world/began")
    code, output = node.run()
    assert code == 3
    assert f"process {first.pid}" in output
    (node.root / "world/go").touch()
    first.communicate(timeout=300)
    assert first.returncode == 0


def test_termination_ends_the_step_too(node: Node) -> None:
    """SIGTERM ends runner and step, and the next run repeats the step."""
    node.step("10-slow", 'echo $$ >"$WORLD/pid"\nwhile [[ ! -e $WORLD/go ]]; do sleep 0.02; done\nproved "yes"\n')
    process = node.start()
    _wait_for(node.root / "world/pid")
    process.terminate()
    process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM
    assert not alive(int(node.world["pid"]))
    (node.root / "world/go").touch()
    assert node.run()[0] == 0


def test_dry_run_changes_nothing(node: Node) -> None:
    """A dry run reports the changes and modifies neither files nor journal."""
    node.step("10-file", 'put_file "$WORLD/file" text || true\nend_dry_run\nproved "yes"\n')
    code, output = node.run("--dry-run")
    assert code == 0
    assert "10-file: would write" in output
    assert node.world == {}
    assert not (node.root / "var/lib/gpuinfra/state.json").exists()
    node.run()
    assert "10-file: would change nothing" in node.run("--dry-run")[1]


def test_node_json_is_in_the_steps_environment(node: Node) -> None:
    """Cluster, pool and file systems of node.json are variables of a step."""
    node.step("10-read", 'printf "%s|%s" "$GPUINFRA_POOL" "$GPUINFRA_FILE_SYSTEMS" >"$WORLD/read"\nproved "yes"\n')
    node.run()
    assert node.world["read"] == "gpu|lustre /scratch fs-1.example abc"


def test_broken_journal_is_renamed(three: Node) -> None:
    """An unreadable journal is renamed and reported, and every step runs again."""
    three.run()
    path = three.root / "var/lib/gpuinfra/state.json"
    path.write_text("{ not json", encoding="utf-8")
    code, output = three.run()
    assert code == 0
    assert "cannot read the journal" in output
    assert "3 ran" in output
    assert path.with_name("state.json.broken").read_text(encoding="utf-8") == "{ not json"


def test_invalid_bundles_are_reported(node: Node) -> None:
    """A missing, broken or newer steps.json gives one message and exit code 3."""
    for content in (
        None,
        "{",
        '{"schema": "gpuinfra.steps/9", "steps": []}',
        '{"schema": "gpuinfra.steps/1", "steps": [{}]}',
    ):
        if content is not None:
            (node.bundle / "steps.json").write_text(content, encoding="utf-8")
        code, output = node.run()
        assert code == 3
        assert "steps.json" in output
        assert "fetch the bundle again" in output
        assert "Traceback" not in output


def test_control_characters_do_not_reach_the_console(node: Node) -> None:
    """Control characters in a tool's output do not affect the terminal of a console reader."""
    node.step("10-evil", "die $'\\e[2Jgone\\a'\n")
    _, output = node.run()
    assert "\x1b" not in output
    assert "\x07" not in output
    assert "gone" in output


def _wait_for(path: Path) -> None:
    until = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not appear"
        time.sleep(0.01)


OTHER_BOOT = "00000000-0000-0000-0000-000000000000"


def reboot(node: Node) -> None:
    """Let the journal be of an earlier boot."""
    state = node.state
    for entry in state["steps"]:
        entry["boot_id"] = OTHER_BOOT
    (node.root / "var/lib/gpuinfra/state.json").write_text(json.dumps(state), encoding="utf-8")


PROVEN = """
[[ -e $WORLD/headers ]] || would "install headers" || { touch "$WORLD/headers"; changed "installed headers"; }
end_dry_run
[[ -e $WORLD/module ]] || die "no module"
record module 1
proved "the module is loaded"
"""


def test_steps_are_proven_again_after_a_boot(node: Node) -> None:
    """A proof that holds changes nothing and runs once for each boot; declared steps do not run."""
    node.step("20-kernel", f"echo x >>$WORLD/runs\n{PROVEN}")
    (node.root / "world/module").touch()
    node.run()
    reboot(node)
    code, output = node.run()
    assert code == 0, output
    assert "1 steps done, nothing to do" in output
    assert node.status("20-kernel")["boot_id"] != OTHER_BOOT
    node.run()
    assert node.world["runs"] == "x\nx\n"


def test_a_step_whose_proof_fails_after_a_boot_runs_again(node: Node) -> None:
    """The change that it would make, or the proof that fails, is named, and the step repairs the machine."""
    node.step("20-kernel", PROVEN)
    (node.root / "world/module").touch()
    node.run()
    (node.root / "world/headers").unlink()
    reboot(node)
    code, output = node.run()
    assert code == 0, output
    assert "the proof fails after this boot, so the step runs again: it would install headers" in output
    assert "headers" in node.world
    (node.root / "world/module").unlink()
    reboot(node)
    code, output = node.run()
    assert code == 1
    assert "the proof fails after this boot, so the step runs again: no module" in output


def test_under_systemd_only_a_refusal_ends_the_retries(node: Node) -> None:
    """The unit starts a failed run again, except after a failure that a retry cannot fix."""
    node.environment["INVOCATION_ID"] = "1"
    node.step("10-no", 'refuse "another system"\n')
    assert node.run()[0] == 65
    node.step("10-no", 'die "the mirror does not answer"\n')
    assert node.run()[0] == 1


def test_a_failure_that_lasts_is_final(node: Node) -> None:
    """The journal counts failed runs in a row. From the third one on, the failure is final if it has lasted longer than faults that pass, and
    the checks report it."""
    node.environment["GPUINFRA_FAULT_PATIENCE_S"] = "1"
    tools = node.root / "bin"
    tools.mkdir()
    (tools / "systemctl").write_text('#!/bin/sh\necho "$*" >>"$WORLD/../systemctl"\n', encoding="utf-8")
    (tools / "systemctl").chmod(0o755)
    node.environment |= {"PATH": f"{tools}:{os.environ['PATH']}", "INVOCATION_ID": "1"}
    node.step("10-no", 'die "the mirror does not answer"\n')
    seen = []
    for pause in (0, 0, 1):
        time.sleep(pause)
        assert node.run()[0] == 1
        entry = node.state["steps"][0]
        seen.append((entry["failures"], entry["final"], (node.root / "systemctl").exists()))
    assert seen == [(1, False, False), (2, False, False), (3, True, True)]
    assert (node.root / "systemctl").read_text(encoding="utf-8") == "--no-block restart gpuinfra-verify.service\n"
    node.step("10-no", "proved it\n")
    assert node.run()[0] == 0
    entry = node.state["steps"][0]
    assert (entry["failures"], entry["failing_since"], entry["final"]) == (0, None, False)


def test_a_fault_that_passes_is_never_final(node: Node) -> None:
    """Three failed runs within a short time are not final, however fast they fail, and the next run completes the step."""
    node.step("10-no", 'die "Temporary failure in name resolution"\n')
    for failures in range(1, 5):
        assert node.run()[0] == 1
        entry = node.state["steps"][0]
        assert (entry["failures"], entry["final"]) == (failures, False)
        assert "name resolution" in entry["reason"]
    node.step("10-no", "proved it\n")
    assert node.run()[0] == 0


def test_the_time_of_a_failure_starts_again_after_a_boot(node: Node) -> None:
    """The clock of an earlier boot is not compared with the clock of this one."""
    node.environment["GPUINFRA_FAULT_PATIENCE_S"] = "0.5"
    node.step("10-no", 'die "the mirror does not answer"\n')
    for _ in range(2):
        assert node.run()[0] == 1
    path = node.root / "var/lib/gpuinfra/state.json"
    path.write_text(path.read_text(encoding="utf-8").replace(node.state["boot_id"], "boot-before"), encoding="utf-8")
    time.sleep(0.5)
    assert node.run()[0] == 1
    assert (node.status("10-no")["failures"], node.status("10-no")["final"]) == (3, False)
    time.sleep(0.5)
    assert node.run()[0] == 1
    assert node.status("10-no")["final"] is True
