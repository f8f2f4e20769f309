"""`pulumi up` on a machine without credentials, with the real engine and no stand-in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuinfra.engine import find_engine
from gpuinfra.spec.load import find_stack
from gpuinfra_rehearsal import applied_environment
from gpuinfra_rehearsal.engine import Pulumi
from gpuinfra_rehearsal.folder import Folder, find_program, write_project

pytestmark = pytest.mark.long
ENGINE = ("an unhandled error occurred: Program exited with non-zero exit code", "update failed")
"""Lines that the engine adds to every error of a program."""


@pytest.mark.parametrize(
    ("stack", "title", "login"),
    [
        ("aws-p4d", "AWS", "aws sso login"),
        ("azure-ndv4", "Azure", "az login"),
        ("gcp-a3mega", "Google Cloud", "gcloud auth application-default login"),
    ],
)
def test_up_without_credentials_ends_with_one_message(stack: str, title: str, login: str, tmp_path: Path) -> None:
    """The engine shows one error with the command that logs in, no traceback, and creates nothing."""
    path = find_stack(stack)
    folder = Folder(root=tmp_path / stack, stack=stack)
    folder.make()
    write_project(folder, find_program(path), path)
    engine = find_engine()
    env = engine.environ({**applied_environment.environment(folder), "NO_GCE_CHECK": "true"})
    pulumi = Pulumi(path=engine.path, version=engine.version, folder=folder, env=env)
    pulumi.ensure_stack()
    words = [str(engine.path), "up", "--yes", "--skip-preview", "--stack", stack, "--non-interactive"]
    done = subprocess.run(
        [*words, "--color", "never"], cwd=folder.project, env=env, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert done.returncode != 0
    shown = {line.rpartition("error: ")[2].strip() for line in output.splitlines() if "error: " in line}
    (error,) = (one for one in shown if not one.startswith(ENGINE))
    assert error.startswith(f"{title}: no credentials: ")
    assert login in error
    assert "Traceback" not in output
    assert [one for one in pulumi.resources() if one.get("custom")] == []
