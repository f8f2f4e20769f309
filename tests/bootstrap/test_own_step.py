"""Declared steps on a node: one run for each checksum, logs, exit codes, reboots and downloads."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from gpuinfra.base.shipped import shipped

from .conftest import Node

ID = "own-tuning"


def own(node: Node, script: str, *, reboot: bool = False, retries: int = 0, **fields: str) -> None:
    """Add one declared step after the other steps, as `bundle.build` does."""
    folder = node.bundle / "bootstrap/own"
    folder.mkdir(exist_ok=True)
    path = folder / ID
    path.write_text(script, encoding="utf-8")
    path.chmod(0o755)
    shutil.copy(shipped("bootstrap") / "own-step.sh", node.bundle / "bootstrap/own-step.sh")
    digest = hashlib.sha256(script.encode()).hexdigest()
    entry = {"sha256": digest, "reboot": reboot, **(fields or {"script": f"bootstrap/own/{ID}"})}
    node.steps = [step for step in node.steps if step["id"] != ID]
    node.steps.append({"id": ID, "file": "bootstrap/own-step.sh", "timeout_s": 300, "retries": retries, "own": entry})
    content = {"schema": "gpuinfra.steps/1", "steps": node.steps}
    (node.bundle / "steps.json").write_text(json.dumps(content), encoding="utf-8")


def runs(node: Node) -> int:
    """The number of runs that the script recorded."""
    path = node.root / "world/runs"
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


COUNT = "#!/bin/bash\necho run >>$WORLD/runs\n"


@pytest.fixture(autouse=True)
def root(node: Node, tmp_path: Path) -> None:
    """The step sees the user ID of root, also if an unprivileged user runs the tests."""
    tools = tmp_path / "tools"
    tools.mkdir()
    lib = node.bundle / "bootstrap/lib.sh"
    lib.write_text(lib.read_text(encoding="utf-8").replace("((EUID == 0))", "true"), encoding="utf-8")


def test_script_runs_once_for_each_checksum(node: Node) -> None:
    """A second run and a change of the lock do not repeat it; a changed script runs again, and the journal has its checksum."""
    node.step("10-first", 'proved "yes"\n')
    own(node, COUNT)
    code, said = node.run()
    assert (code, runs(node)) == (0, 1), said
    assert said.index("10-first done") < said.index(f"{ID} done")
    assert node.status(ID)["hash"] == hashlib.sha256(COUNT.encode()).hexdigest()
    node.run()
    (node.bundle / "versions.env").write_text("ANSWER=43\n", encoding="utf-8")
    _, said = node.run()
    assert "10-first done" in said
    assert runs(node) == 1
    own(node, COUNT + "true\n")
    code, said = node.run()
    assert (code, runs(node)) == (0, 2), said
    node.run("--again")
    assert runs(node) == 3


def test_output_is_in_the_log_and_the_environment_describes_the_node(node: Node) -> None:
    """The script writes to the log of the bootstrap and knows its pool, but not the variables with which steps report."""
    own(
        node,
        '#!/usr/bin/env python3\nimport os\nprint("pool", os.environ["GPUINFRA_POOL"], os.environ["GPUINFRA_FILE_SYSTEMS"])\n'
        'print(sorted(name for name in os.environ if name.startswith("OWN_") or name == "GPUINFRA_REPORT"))\n',
    )
    code, said = node.run()
    log = (node.root / "var/log/gpuinfra/bootstrap.log").read_text(encoding="utf-8")
    assert code == 0, said
    assert "pool gpu lustre /scratch fs-1.example abc\n" in log
    assert "\n[]\n" in log


def test_failure_states_exit_code_and_last_lines(node: Node) -> None:
    """The reason has the exit code and the last three lines, the retries are used, and later steps do not run."""
    own(node, COUNT + 'printf "one\\ntwo\\n\\nthree\\nfour\\n"\nexit 7\n', retries=1)
    node.step("99-later", 'touch "$WORLD/later"\nproved "yes"\n')
    code, said = node.run()
    assert (code, runs(node)) == (1, 2)
    reason = "the script exited with code 7; last output: two / three / four"
    assert node.status(ID)["reason"] == reason
    assert f"step 1 of 2 {ID} failed: {reason}" in said
    assert "later" not in node.world


def test_exit_codes_of_bootstrap_steps_have_no_meaning(node: Node) -> None:
    """A script cannot end its step by exiting with the codes of bootstrap steps."""
    for status in (65, 194):
        own(node, f"#!/bin/bash\nexit {status}\n")
        code, _ = node.run()
        assert code == 1
        assert node.status(ID)["status"] == "failed"
        assert node.status(ID)["reason"] == f"the script exited with code {status}; last output: none"


def test_wrong_checksum_is_refused_without_a_retry(node: Node) -> None:
    """A script that is not the declared one does not run."""
    own(node, COUNT, retries=3)
    (node.bundle / f"bootstrap/own/{ID}").write_text(COUNT + "# changed\n", encoding="utf-8")
    code, said = node.run()
    assert (code, runs(node)) == (1, 0)
    assert "but the declaration requires" in str(node.status(ID)["reason"])
    assert node.status(ID)["attempts"] == 1, said


def test_reboot_follows_the_script_once(node: Node) -> None:
    """The step ends after the next boot without a second run, and a run before the reboot requests it again."""
    own(node, COUNT, reboot=True)
    assert node.run("--no-reboot")[0] == 194
    assert (node.status(ID)["status"], runs(node)) == ("reboot", 1)
    assert node.run("--no-reboot")[0] == 194
    mark = node.root / f"var/lib/gpuinfra/finished-{ID}"
    digest, _ = mark.read_text(encoding="utf-8").split()
    mark.write_text(f"{digest} another-boot\n", encoding="utf-8")
    state = node.root / "var/lib/gpuinfra/state.json"
    state.write_text(
        state.read_text(encoding="utf-8").replace(str(node.status(ID)["boot_id"]), "another-boot"), encoding="utf-8"
    )
    code, said = node.run("--no-reboot")
    assert (code, runs(node)) == (0, 1), said
    assert not mark.exists()
    assert node.run("--no-reboot", "--again")[0] == 194
    assert runs(node) == 2


def test_run_that_was_killed_before_the_reboot_requests_it_again(node: Node) -> None:
    """If the runner dies after the script and before the journal records the reboot, the script does not run again and the node still reboots."""
    own(node, COUNT, reboot=True)
    mark = node.root / f"var/lib/gpuinfra/finished-{ID}"
    mark.parent.mkdir(parents=True)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    mark.write_text(f"{hashlib.sha256(COUNT.encode()).hexdigest()} {boot}\n", encoding="utf-8")
    code, said = node.run("--no-reboot")
    assert (code, runs(node)) == (194, 0), said
    assert mark.exists()


def test_changed_script_before_the_reboot_runs(node: Node) -> None:
    """A mark of an earlier script does not count for the changed one."""
    own(node, COUNT, reboot=True)
    node.run("--no-reboot")
    own(node, COUNT + "true\n", reboot=True)
    assert node.run("--no-reboot")[0] == 194
    assert runs(node) == 2


def test_dry_run_does_not_run_the_script(node: Node) -> None:
    """A dry run names the checksum."""
    own(node, COUNT)
    code, said = node.run("--dry-run")
    assert (code, runs(node)) == (0, 0)
    assert f"{ID}: would run the script with the SHA-256" in said
    node.run()
    _, said = node.run("--dry-run")
    assert f"{ID}: would change nothing" in said, "a script that completed does not run again"


@pytest.mark.parametrize(
    ("script", "boot", "would"),
    [
        (COUNT, "this-boot", "reboot, because the declaration contains reboot: true"),
        (COUNT, "another-boot", "change nothing"),
        (COUNT + "true\n", "another-boot", "run the script with the SHA-256"),
    ],
)
def test_dry_run_keeps_the_mark_of_a_finished_script(node: Node, script: str, boot: str, would: str) -> None:
    """A dry run between script and reboot changes nothing, so that the next run does not repeat the script."""
    own(node, script, reboot=True)
    mark = node.root / f"var/lib/gpuinfra/finished-{ID}"
    mark.parent.mkdir(parents=True)
    now = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    text = f"{hashlib.sha256(COUNT.encode()).hexdigest()} {now if boot == 'this-boot' else boot}\n"
    mark.write_text(text, encoding="utf-8")
    code, said = node.run("--dry-run")
    assert (code, runs(node)) == (0, 0)
    assert f"{ID}: would {would}" in said
    assert mark.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("served", [COUNT, COUNT + "# replaced\n", None])
def test_download_is_verified(node: Node, tmp_path: Path, served: str | None) -> None:
    """A script of a URL runs if its checksum matches, through the mirror if there is one; another file is refused."""
    store = tmp_path / "store"
    store.mkdir()
    if served is not None:
        (store / "served").write_text(served, encoding="utf-8")
    curl = tmp_path / "tools/curl"
    curl.write_text(
        f'#!/bin/bash\necho "${{@: -1}}" >>{store}/asked\nwhile [[ $1 != -o ]]; do shift; done\ncp {store}/served "$2"\n',
        encoding="utf-8",
    )
    curl.chmod(0o755)
    own(node, COUNT, url="https://example.com/tuning.sh")
    step = node.bundle / "bootstrap/own-step.sh"
    text = step.read_text(encoding="utf-8").replace("/var/lib/gpuinfra/scripts", str(tmp_path / "scripts"))
    step.write_text(text, encoding="utf-8")
    (node.bundle / "versions.env").write_text("MIRROR_URL=https://mirror.example.org\n", encoding="utf-8")
    node.environment |= {"PATH": f"{tmp_path / 'tools'}:{os.environ['PATH']}", "GPUINFRA_RETRY_PAUSE_S": "0"}
    code, said = node.run()
    assert (store / "asked").read_text(encoding="utf-8").splitlines()[0] == (
        "https://mirror.example.org/example.com/tuning.sh"
    )
    reason = str(node.status(ID)["reason"])
    if served == COUNT:
        assert (code, runs(node)) == (0, 1), said
    elif served is None:
        assert (code, runs(node)) == (1, 0)
        assert "downloading https://mirror.example.org/example.com/tuning.sh failed 4 times" in reason
    else:
        assert (code, runs(node)) == (1, 0)
        assert reason.startswith("the script of https://example.com/tuning.sh has the SHA-256 ")
