"""Opens a rehearsed stack for commands that read evidence or log in to nodes, and runs any other command in a rehearsal.

The commands run as they do for a deployed stack. Only their environment differs: the endpoints and credentials of the stand-in
cloud, and the stand-in programs `aws`, `az` and `gcloud` on PATH. The commands use the same SSH keys as for a deployed stack.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra_rehearsal import programs
from gpuinfra_rehearsal.applied_environment import applied
from gpuinfra_rehearsal.object_stores import admit
from gpuinfra_rehearsal.retry_hints import ineffective_faults
from gpuinfra_rehearsal.session import Options, Session, open_session

RESUME_LIMIT_S = 120.0
_KEYS = ("HOME", "SSH_AUTH_SOCK")
"""Environment variables that locate your SSH keys."""


@contextmanager
def rehearsed(name: str, folder: Path, *, nodes: bool = True) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Open a rehearsed stack and return the resources in its state. Its cloud and, with `nodes`, its nodes run until the `with` block ends."""
    with _opened(Options(stack=name, folder=folder, without_nodes=not nodes, reads=not nodes)) as session:
        if nodes and session.cloud.nodes():
            require_ssh(session)
            _wait_for_resumed(session)
        yield session.pulumi.resources()


def run_command(options: Options, words: Sequence[str]) -> int:
    """Run one command of gpuinfra or of Pulumi in a rehearsal of a stack, with the terminal of this process, and return its exit code.

    The rehearsal keeps the stack files that the command writes, its journals and its results.
    """
    with _opened(options) as session:
        _wait_for_resumed(session)
        _admit(session)
        name, *rest = [session.folder.stack if word == options.stack else word for word in words]
        program = [str(session.pulumi.path)] if name == "pulumi" else [str(session.python), "-m", "gpuinfra", name]
        env = {**os.environ, "XDG_STATE_HOME": str(session.journals)}
        typed = shlex.join([name, *rest]) if name == "pulumi" else shlex.join(["gpuinfra", name, *rest])
        session.view.line(
            f"in the rehearsal of {session.folder.stack}, with stand-ins for the cloud and the nodes: {typed}"
        )
        process = subprocess.Popen([*program, *rest], env=env, cwd=session.folder.project)
        code = wait_for(process)
        session.view.line("this was a rehearsal, and nothing was deployed or changed in a cloud")
        if code == 0 and options.faults:
            missed = session.cloud.ask("faults")["without_effect"]
            problems = ineffective_faults(session.folder, options.folder, missed)
            for line in problems:
                session.view.line(line)
            return 1 if problems else 0
        return code


def _admit(session: Session) -> None:
    """Let the operator reach the replicated containers of a stack on Azure, as in a drill. Operators of a deployed stack must allow this."""
    plan = session.plan()
    if plan is None or plan.recovery is None:
        return
    cloud = cloud_of(plan.cloud).failover(plan.region, plan.recovery.region, {})
    pairs = cloud.pairs(session.pulumi.resources()) if cloud else ()
    if pairs and admit(plan.cloud, session.cloud.ask, [name for pair in pairs for name in (pair.source, pair.replica)]):
        session.view.line(
            "a private endpoint and a role let this machine read the replicated containers; a deployed stack requires both (docs/guides/failover.md)"
        )


def wait_for(process: subprocess.Popen[bytes]) -> int:
    """Wait for a command. The terminal also sends Ctrl-C to the command, which then ends in order; SIGTERM is forwarded as such an interrupt."""
    handlers = {signal.SIGINT: lambda *_: None, signal.SIGTERM: lambda *_: process.send_signal(signal.SIGINT)}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


@contextmanager
def _opened(options: Options) -> Iterator[Session]:
    """Open a session, and apply its environment to this process."""
    from gpuinfra_rehearsal.progress import view_for

    with open_session(options, view_for(sys.stderr)) as session:
        tools = session.folder.root / "programs"
        programs.install(tools, sys.executable)
        env = {**session.pulumi.env, **{name: os.environ[name] for name in _KEYS if name in os.environ}}
        env["PATH"] = f"{tools}{os.pathsep}{env['PATH']}"
        with applied(env):
            yield session


def require_ssh(session: Session) -> None:
    """Raise `EnvironmentMissing` if the stand-in nodes have no SSH server."""
    answer = session.cloud.ask("ssh")
    if not answer.get("available"):
        raise EnvironmentMissing(f"the stand-in nodes have no SSH server: {answer.get('reason')}")


def _wait_for_resumed(session: Session) -> None:
    """Wait until the nodes resume. Nodes are suspended between commands, and only a few resume at the same time."""
    until = time.monotonic() + RESUME_LIMIT_S
    while time.monotonic() < until:
        stages = {node.get("stage") for node in session.cloud.nodes() if node.get("state") == "running"}
        if not stages & {"pending", "suspended", "booting"}:
            return
        time.sleep(0.2)
