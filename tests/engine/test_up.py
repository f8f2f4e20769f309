"""Deployment of a stack without questions, with a stand-in for `pulumi` and with the real engine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpuinfra.engine.find import Engine
from gpuinfra.engine.up import Failure, UpFailed, destroy, remove, up
from gpuinfra.errors import DeploymentError

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


def test_lock_of_a_killed_deployment_is_removed(tmp_path: Path) -> None:
    """Only if this deployment was started before, its lock is removed; a stack without a lock is no error."""
    script = '[ "$1" != cancel ] || exit 1'
    assert deploy(tmp_path, script, again=True) == [EXPORT, "cancel --yes --stack one --non-interactive", UP]


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
{"diagnosticEvent": {"urn": "", "severity": "error", "message": "update failed"}}
{"diagnosticEvent": {"urn": "", "severity": "warning", "message": "old"}}
not JSON
EOF
  exit 255
fi"""


def test_errors_of_the_engine_are_read_from_its_events(tmp_path: Path) -> None:
    """The exception contains each error with the type and name of its resource, without markup and without warnings."""
    with pytest.raises(UpFailed) as caught:
        deploy(tmp_path, EVENTS)
    first, second = caught.value.failures
    assert (first.type, first.name, first.message) == ("aws:autoscaling/group:Group", "train-gpu", "no capacity")
    assert second == Failure(urn="", message="update failed")
    assert (second.type, second.name) == ("", "")


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
    assert log.read_text().splitlines()[:3] == [
        "cancel --yes --stack one --non-interactive",
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


@pytest.mark.long
def test_real_engine_creates_a_stack_and_continues_after_a_kill(
    stack: Stack, engine: Engine, monkeypatch: pytest.MonkeyPatch, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    """The engine creates a stack that does not exist. A killed engine leaves its lock, which ends a deployment unless it is a repeated one."""
    for name, value in stack.environment.items():
        monkeypatch.setenv(name, value)
    folder = stack.folder
    started, wait = folder / "started", folder / "wait"
    stack.program(
        f"import pathlib, time\npathlib.Path({str(started)!r}).touch()\n"
        f"while pathlib.Path({str(wait)!r}).exists():\n    time.sleep(0.02)\n"
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
    killed.kill()
    wait.unlink()
    killed.communicate()
    with pytest.raises(DeploymentError, match="exited with code"):
        deploy()
    assert "locked" in (folder / "output").read_text()
    assert "Resources" in deploy(again=True)
