"""Deployment of a stack without questions, with a stand-in for `pulumi` and with the real engine."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.engine.find import Engine
from gpuinfra.engine.locked import StateLocked
from gpuinfra.engine.up import EngineFailure, OtherRun, UpFailed, check_last, destroy, import_resources, remove, up

if TYPE_CHECKING:
    from .conftest import Stack


def deploy(
    folder: Path, script: str, *, again: bool = False, secrets: str | None = None, exclude: Sequence[str] = ()
) -> list[str]:
    """Deploy with a program that records its words and runs this script. Returns the words of each call."""
    program, log = folder / "pulumi", folder / "log"
    program.write_text(f'#!/bin/sh\necho "$*" >> {log}\n{script}\n')
    program.chmod(0o755)
    engine = Engine(path=program, version="3.259.0", host_dir=folder, source="path")
    with (folder / "output").open("w") as output:
        up(engine, "one", folder, output=output, again=again, secrets=secrets, exclude=exclude)
    return [re.sub(r" --event-log \S+", "", line) for line in log.read_text().splitlines()]


UP = "up --yes --skip-preview --stack one --non-interactive"
EXPORT = "stack export --stack one --non-interactive"
MISSING = 'if [ "$2" = export ]; then echo "error: no stack named \'one\' found" >&2; exit 255; fi'


def test_existing_stack_is_deployed(tmp_path: Path) -> None:
    """A stack that exists is not created, and nothing is cancelled."""
    assert deploy(tmp_path, "echo done") == [EXPORT, UP]
    assert (tmp_path / "output").read_text() == "done\n"


def test_resources_can_be_excluded(tmp_path: Path) -> None:
    """Each pattern is excluded together with the resources that depend on it."""
    words = UP.replace(" --non-", " --exclude **::a --exclude **::b --exclude-dependents --non-")
    assert deploy(tmp_path, "", exclude=["**::a", "**::b"])[1] == words


def test_missing_stack_is_created_with_its_secrets_provider(tmp_path: Path) -> None:
    """The stack is created without being selected, with the secrets provider of its file."""
    assert deploy(tmp_path, MISSING) == [EXPORT, "stack init one --no-select --non-interactive", UP]
    (tmp_path / "log").unlink()
    assert deploy(tmp_path, MISSING, secrets="awskms://alias/a")[1] == (
        "stack init one --no-select --secrets-provider=awskms://alias/a --non-interactive"
    )


CANCEL = "cancel --yes --stack one --non-interactive"
ME = f"{getpass.getuser()}@{socket.gethostname()}"


@pytest.fixture
def ended() -> int:
    """The ID of a process that no longer exists."""
    with subprocess.Popen(["true"]) as process:
        return process.pid


def locked(folder: Path, *holders: str) -> str:
    """Script of a stack with these locks, which `pulumi cancel` removes. The text is that of pkg/backend/diy/lock.go in Pulumi v3.259.0."""
    lines = [
        (
            f"error: the stack is currently locked by {len(holders)} lock(s). Either wait for the other process(es) to end or delete "
            "the lock file with `pulumi cancel`."
        ),
        *(f"  s3://state/.pulumi/locks/a.json: created by {one} at 2026-11-27T19:55:56Z" for one in holders),
    ]
    (folder / "lock").write_text("\n".join(lines) + "\n")
    return (
        f'cd {folder}\n[ "$1" != cancel ] || rm lock\nif [ "$1" = up ] && [ -e lock ]; then cat lock >&2; exit 255; fi'
    )


def test_lock_of_a_killed_deployment_is_removed(tmp_path: Path, ended: int) -> None:
    """If the process that holds the lock was a process of this user on this machine and no longer exists,
    a repeated deployment removes the lock and continues."""
    script = locked(tmp_path, f"{ME} (pid {ended})")
    assert deploy(tmp_path, script, again=True) == [EXPORT, UP, CANCEL, UP]
    assert f"removing the lock of a killed run: {ME} (pid {ended})" in (tmp_path / "output").read_text()


def test_a_deployment_without_a_lock_cancels_nothing(tmp_path: Path) -> None:
    """A repeated deployment of a stack that is not locked runs once."""
    assert deploy(tmp_path, "", again=True) == [EXPORT, UP]


def test_a_killed_process_that_its_parent_did_not_read_does_not_hold_the_lock(tmp_path: Path) -> None:
    """In a container without an init process, a killed engine remains as a zombie."""
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert deploy(tmp_path, locked(tmp_path, f"{ME} (pid {process.pid})"), again=True)[2:] == [CANCEL, UP]
    process.wait()


@pytest.mark.parametrize(
    "holders",
    [
        ["{me} (pid {running})"],
        ["ci@{host} (pid {ended})"],
        ["{user}@runner-7 (pid {ended})"],
        ["{me} (pid {ended})", "ci@runner-7 (pid {ended})"],
        ["{me} (pid {ended}{ended}{ended}{ended})"],
    ],
)
def test_the_lock_of_another_run_is_never_removed(tmp_path: Path, ended: int, holders: list[str]) -> None:
    """The lock of a process that exists, of another user and of another machine ends a repeated deployment. The error names the holder and what to do."""
    user, _, host = ME.rpartition("@")
    names = [one.format(me=ME, user=user, host=host, running=os.getpid(), ended=ended) for one in holders]
    waits = r"wait until the run ends.*if the run no longer exists, run `pulumi cancel --stack one` first"
    with pytest.raises(StateLocked, match=waits) as caught:
        deploy(tmp_path, locked(tmp_path, *names), again=True)
    assert names[-1] in str(caught.value) or "another run" in str(caught.value)
    assert "cancel" not in (tmp_path / "log").read_text()
    assert "the stack is currently locked" in (tmp_path / "output").read_text()


def test_a_host_name_that_many_machines_have_does_not_identify_this_machine(
    tmp_path: Path, ended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with the name `localhost`, no lock is removed."""
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    with pytest.raises(StateLocked, match=f"locked by {getpass.getuser()}@localhost"):
        deploy(tmp_path, locked(tmp_path, f"{getpass.getuser()}@localhost (pid {ended})"), again=True)


def test_a_new_deployment_removes_no_lock(tmp_path: Path, ended: int) -> None:
    """Only a repeated deployment removes a lock. Otherwise, the error says that the process no longer exists."""
    with pytest.raises(StateLocked, match="the process no longer exists; run `pulumi cancel --stack one`"):
        deploy(tmp_path, locked(tmp_path, f"{ME} (pid {ended})"))
    assert (tmp_path / "lock").exists()


def test_an_update_on_pulumi_cloud_is_never_cancelled(tmp_path: Path) -> None:
    """Pulumi Cloud does not name the holder, so the error says what to do. The text is that of sdk/go/auto/errors.go in Pulumi v3.259.0."""
    text = "error: [409] Conflict: Another update is currently in progress."
    with pytest.raises(StateLocked, match="one is locked by another run; wait until the run ends"):
        deploy(tmp_path, f'if [ "$1" = up ]; then echo "{text}" >&2; exit 255; fi', again=True)
    assert "cancel" not in (tmp_path / "log").read_text()


def test_errors_are_forwarded_while_the_engine_runs(tmp_path: Path) -> None:
    """Text on both outputs of the engine is visible immediately, and each text once."""
    seen = f"for i in $(seq 600); do grep -q second {tmp_path}/output && break; sleep 0.1; done; grep -q second {tmp_path}/output || exit 7"
    deploy(tmp_path, f'[ "$1" = up ] || exit 0\necho first; echo second >&2\n{seen}\necho third >&2; printf last >&2')
    assert (tmp_path / "output").read_text() == "first\nsecond\nthird\nlast"


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo 'error: not logged in' >&2; exit 255", "the state of one cannot be read: error: not logged in"),
        ('[ "$1" != up ] || exit 3', "exited with code 3"),
    ],
)
def test_engine_that_fails_is_one_error(tmp_path: Path, script: str, text: str) -> None:
    """An unreadable state and a failed deployment each give the reason."""
    with pytest.raises(DeploymentError, match=text):
        deploy(tmp_path, script)


EVENTS = r"""if [ "$1" = up ]; then
  cat >"$7" <<'EOF'
{"diagnosticEvent": {"urn": "urn:pulumi:one::p::a:b:C$aws:autoscaling/group:Group::train-gpu", "severity": "error", "message": "<{%reset%}>no capacity<{%reset%}>\n"}}
{"resOpFailedEvent": {"metadata": {"urn": "urn:ready", "op": "create"}, "status": 1, "steps": 2}}
{"resOpFailedEvent": {"metadata": {"urn": "urn:pulumi:one::p::a:b:C$aws:autoscaling/group:Group::train-gpu"}, "status": 0}}
{"resOpFailedEvent": {"metadata": null, "status": 1}}
{"diagnosticEvent": {"urn": "urn:ready", "severity": "error", "message": "0 of 4 nodes"}}
{"diagnosticEvent": {"urn": "", "severity": "error", "message": "update failed"}}
{"diagnosticEvent": {"urn": "", "severity": "warning", "message": "old"}}
not JSON
EOF
  exit 255
fi"""  # noqa: E501, because an event is one line


def test_errors_of_the_engine_are_read_from_its_events(tmp_path: Path) -> None:
    """The exception contains each error with the type and name of its resource, without markup and warnings, and whether the resource is in the state."""
    with pytest.raises(UpFailed) as caught:
        deploy(tmp_path, EVENTS)
    first, ready, second = caught.value.failures
    assert (first.saved, ready.saved) == (False, True)
    assert (first.type, first.name, first.message) == ("aws:autoscaling/group:Group", "train-gpu", "no capacity")
    assert second == EngineFailure(urn="", message="update failed")
    assert (second.type, second.name) == ("", "")


def test_resources_are_imported_without_the_program(tmp_path: Path) -> None:
    """A stack that does not exist is created first. The file contains the document, and a failed import is one error."""
    program, log = tmp_path / "pulumi", tmp_path / "log"
    copy = f'[ "$1" = import ] && cp "$3" {tmp_path}/copy.json'
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {log}\n{MISSING}\n{copy}\n[ "$1" != import ] || [ ! -e {tmp_path}/broken ]\n'
    )
    program.chmod(0o755)
    engine = Engine(path=program, version="3.259.0", host_dir=tmp_path, source="path")
    with (tmp_path / "output").open("w") as output:
        import_resources(engine, "one", tmp_path, {"resources": [{"id": "a"}]}, output=output)
        lines = [re.sub(r"--file \S+", "--file F", line) for line in log.read_text().splitlines()]
        assert lines == [
            EXPORT,
            "stack init one --no-select --non-interactive",
            "import --file F --generate-code=false --yes --skip-preview --stack one --non-interactive",
        ]
        assert json.loads((tmp_path / "copy.json").read_text()) == {"resources": [{"id": "a"}]}
        (tmp_path / "broken").touch()
        with pytest.raises(DeploymentError, match="`pulumi import --stack one` exited with code 1"):
            import_resources(engine, "one", tmp_path, {}, output=output)


def test_single_resources_are_removed_with_their_dependents(tmp_path: Path) -> None:
    """Each URN is a target, only a whole stack has no target, and a failure is one error."""
    program, log = tmp_path / "pulumi", tmp_path / "log"
    program.write_text(f'#!/bin/sh\necho "$*" >> {log}\n[ "$5" != bad ]\n')
    program.chmod(0o755)
    engine = Engine(path=program, version="3.259.0", host_dir=tmp_path, source="path")
    with (tmp_path / "output").open("w") as output:
        remove(engine, "one", tmp_path, ["urn:a", "urn:b"], output=output, again=True)
        destroy(engine, "two", tmp_path, output=output)
        with pytest.raises(DeploymentError, match="`pulumi destroy --stack bad` exited with code 1"):
            remove(engine, "bad", tmp_path, ["urn:a"], output=output)
    assert log.read_text().splitlines()[:2] == [
        "destroy --yes --skip-preview --stack one --target-dependents --target urn:a --target urn:b --non-interactive",
        "destroy --yes --skip-preview --stack two --non-interactive",
    ]


INTERRUPTED = """
import sys
from pathlib import Path
from gpuinfra.engine.find import Engine
from gpuinfra.engine.up import up
folder = Path(sys.argv[1])
try:
    up(Engine(path=folder / "pulumi", version="3.259.0", host_dir=folder, source="path"), "one", folder, output=sys.stderr)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_engine_ends_in_order_after_an_interrupt(tmp_path: Path) -> None:
    """An interrupt of the terminal reaches the engine, which saves its state before the command ends."""
    program, saved = tmp_path / "pulumi", tmp_path / "saved"
    body = f"trap 'sleep 1; touch {saved}; exit 255' INT\ntouch {tmp_path}/runs\nwhile :; do sleep 0.1; done"
    program.write_text(f'#!/bin/bash\n[ "$1" = up ] || exit 0\n{body}\n')
    program.chmod(0o755)
    words = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    until = time.monotonic() + 60
    while not (tmp_path / "runs").exists() and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "interrupted\n"
    assert saved.exists()


def test_engine_continues_if_the_command_is_killed(tmp_path: Path) -> None:
    """The engine can write errors and save its state after the command was killed."""
    program, saved = tmp_path / "pulumi", tmp_path / "saved"
    body = f"touch {tmp_path}/runs\nwhile [ ! -e {tmp_path}/killed ]; do sleep 0.1; done\necho late >&2\ntouch {saved}"
    program.write_text(f'#!/bin/bash\n[ "$1" = up ] || exit 0\n{body}\n')
    program.chmod(0o755)
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(tmp_path)], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (tmp_path / "runs").exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.kill()
    process.wait()
    (tmp_path / "killed").touch()
    while not saved.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert saved.exists()


def test_real_engine_records_whose_update_was_the_last(
    stack: Stack, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an update of another operator, also one that failed, nothing may be deleted."""
    for name, value in stack.environment.items():
        monkeypatch.setenv(name, value)
    folder = stack.folder

    def check(agent: str) -> None:
        check_last(engine, "dev", folder, agent)

    with pytest.raises(OtherRun, match="the updates of dev are not of this command"):
        check("gpuinfra-up/1")
    with (folder / "output").open("w") as output:
        up(engine, "dev", folder, output=output, agent="gpuinfra-up/1")
        check("gpuinfra-up/1")
        stack.program("raise SystemExit('broken')")
        with pytest.raises(UpFailed):
            up(engine, "dev", folder, output=output, agent="gpuinfra-up/1")
        check("gpuinfra-up/1")
        assert stack.up()[0] != 0
        with pytest.raises(OtherRun, match=r"the last update of dev, which ended at \d{4}-\S+, is not of this command"):
            check("gpuinfra-up/1")
        remove(engine, "dev", folder, ["**"], output=output, agent="gpuinfra-up/1")
        check("gpuinfra-up/1")


@pytest.mark.long
def test_real_engine_creates_a_stack_and_continues_after_a_kill(
    stack: Stack, engine: Engine, monkeypatch: pytest.MonkeyPatch, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    """The engine creates a stack that does not exist. A killed engine leaves its lock,
    which only a repeated deployment of the same user on the same machine removes."""
    for name, value in stack.environment.items():
        monkeypatch.setenv(name, value)
    folder = stack.folder
    started, wait = folder / "started", folder / "wait"
    stack.program(
        f"import pathlib, time\npathlib.Path({str(started)!r}).touch()\n"
        f"end = time.monotonic() + 240\nwhile pathlib.Path({str(wait)!r}).exists() and time.monotonic() < end:\n    time.sleep(0.02)\n"
    )

    def deploy(*, again: bool = False) -> str:
        with (folder / "output").open("w") as output:
            up(engine, "second", folder, output=output, again=again)
        return (folder / "output").read_text()

    assert "Resources" in deploy()
    started.unlink()
    wait.touch()
    killed = stack.start("up", "--yes", "--skip-preview", "--stack", "second")
    eventually(started.exists)
    (lock,) = (folder / "state" / ".pulumi" / "locks").rglob("*.json")
    with pytest.raises(StateLocked, match=rf"locked by .*@.* \(pid {killed.pid}\) since .*wait until the run ends"):
        deploy(again=True)
    killed.kill()
    wait.unlink()
    killed.communicate()
    with pytest.raises(StateLocked, match="the process no longer exists"):
        deploy()
    content = lock.read_text()
    lock.write_text(json.dumps({**json.loads(content), "hostname": "runner-7"}))
    with pytest.raises(StateLocked, match="@runner-7"):
        deploy(again=True)
    lock.write_text(content)
    assert "Resources" in deploy(again=True)
    assert not lock.exists()
