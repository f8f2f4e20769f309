"""Opens a rehearsed stack for commands that read evidence or log in to nodes.

The commands run as they do for a deployed stack. Only their environment differs: the endpoints and credentials of the stand-in
cloud, and the stand-in programs `aws`, `az` and `gcloud` on PATH. The commands use the same SSH keys as for a deployed stack.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra_rehearsal import programs
from gpuinfra_rehearsal.applied_environment import applied
from gpuinfra_rehearsal.session import Options, Session, open_session

RESUME_LIMIT_S = 120.0
_KEYS = ("HOME", "SSH_AUTH_SOCK")
"""Environment variables that locate your SSH keys."""


@contextmanager
def rehearsed(name: str, folder: Path, *, nodes: bool = True) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Open a rehearsed stack and return the resources in its state. Its cloud and, with `nodes`, its nodes run until the `with` block ends."""
    from gpuinfra_rehearsal.progress import view_for

    options = Options(stack=name, folder=folder, without_nodes=not nodes, reads=not nodes)
    with open_session(options, view_for(sys.stderr)) as session:
        resources = session.pulumi.resources()
        if nodes and session.cloud.nodes():
            _wait_for_resumed(session)
        tools = session.folder.root / "programs"
        programs.install(tools, sys.executable)
        env = {**session.pulumi.env, **{name: os.environ[name] for name in _KEYS if name in os.environ}}
        env["PATH"] = f"{tools}{os.pathsep}{env['PATH']}"
        with applied(env):
            yield resources


def _wait_for_resumed(session: Session) -> None:
    """Wait until the nodes resume. Nodes are suspended between commands, and only a few resume at the same time."""
    answer = session.cloud.ask("ssh")
    if not answer.get("available"):
        raise EnvironmentMissing(f"the stand-in nodes have no SSH server: {answer.get('reason')}")
    until = time.monotonic() + RESUME_LIMIT_S
    while time.monotonic() < until:
        stages = {node.get("stage") for node in session.cloud.nodes() if node.get("state") == "running"}
        if not stages & {"pending", "suspended", "booting"}:
            return
        time.sleep(0.2)
