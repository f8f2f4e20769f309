"""Deploys a stack with `pulumi up`, without prompts. The output of the engine is forwarded."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from gpuinfra.engine.find import Engine
from gpuinfra.errors import DeploymentError
from gpuinfra.safe_text import one_line

NO_STACK = "no stack named"
"""Part of the message of the CLI for a stack that does not exist (`IsSelectStack404Error` in sdk/go/auto/errors.go of Pulumi v3.259.0)."""


def up(
    engine: Engine,
    stack: str,
    project: Path,
    *,
    output: IO[str],
    secrets: str | None = None,
    keep: Sequence[int] = (),
    again: bool = False,
) -> None:
    """Create the stack if it does not exist, and deploy it. Raises `DeploymentError`.

    `project` is the folder of `Pulumi.yaml`. A new stack gets the secrets provider `secrets`, or the default one. The engine inherits the file descriptors `keep`. With `again`, an earlier operation of this
    program was killed: its lock in the state backend is removed first.
    """
    environment = engine.environ()

    def quick(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(engine.path), *words, "--non-interactive"], cwd=project, env=environment, capture_output=True, text=True,
            errors="replace", check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    found = quick("stack", "export", "--stack", stack)
    if found.returncode and NO_STACK in found.stderr:
        provider = [f"--secrets-provider={secrets}"] if secrets else []
        found = quick("stack", "init", stack, "--no-select", *provider)
    if found.returncode:
        raise DeploymentError(f"the state of {stack} cannot be read: {one_line(found.stderr.strip() or 'no error message')}; log in to the state backend (`pulumi login`)")  # fmt: skip
    if again:
        # The result is not checked: without a lock, or on Pulumi Cloud without a running update, there is nothing to cancel.
        quick("cancel", "--yes", "--stack", stack)
    words = [str(engine.path), "up", "--yes", "--skip-preview", "--non-interactive", "--stack", stack]
    done = subprocess.run(
        words, cwd=project, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL, check=False, pass_fds=tuple(keep)
    )  # fmt: skip
    if done.returncode:
        raise DeploymentError(
            f"`pulumi up --stack {stack}` ended with exit code {done.returncode}; its output is above"
        )
