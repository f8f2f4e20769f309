"""Reads files of an earlier commit with the `git` command. The repository, its index and its working tree are not changed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpuinfra.base.errors import EnvironmentMissing, UsageError
from gpuinfra.base.safe_text import one_line

TIMEOUT_S = 120
"""Time limit of one git command. A filter of the repository, such as Git LFS, can use the network."""


@contextlib.contextmanager
def file_at(reference: str, path: Path) -> Iterator[Path]:
    """Provide a file, with the other files of its folder, as in a commit. They are in a temporary folder for the duration of a `with` block.

    `reference` is anything that `git rev-parse` resolves to a commit, such as `main`, `HEAD~1` or `v1.2`. Raises `UsageError` if the file
    is not in a repository, if the reference does not exist, and if the commit does not contain the file. Raises
    `EnvironmentMissing` if git is not installed.
    """
    place = path.resolve()
    top = _git(place.parent, "rev-parse", "--show-toplevel")
    if top.returncode:
        raise UsageError(
            f"{reference} is not a stack or a file, and {path} is not in a Git repository ({_reason(top)}); "
            "specify the name of a stack, the path of a file, or a Git reference in the repository of the stack file"
        )
    root = Path(top.stdout.removesuffix("\n"))
    resolved = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
    if resolved.returncode:
        raise UsageError(
            f"{reference} is not a stack, a file or a Git reference in {root}; `git branch --all` and `git tag` list references; "
            "in CI, fetch the base branch first"
        )
    commit = resolved.stdout.strip()
    name = place.relative_to(root).as_posix()
    if _git(root, "cat-file", "-e", f"{commit}:{name}").returncode:
        raise UsageError(
            f"{name} does not exist in {reference} ({commit[:12]}); specify a reference that contains the file, "
            "or omit --diff for a new stack"
        )
    with tempfile.TemporaryDirectory(prefix="gpuinfra-git-") as made:
        # A separate index, so that the user's index and hooks are not used.
        index = {"GIT_INDEX_FILE": str(Path(made, "index"))}
        folder = place.parent.relative_to(root).as_posix()
        below = commit if folder == "." else f"{commit}:{folder}"
        tree = Path(made, "tree", folder)
        tree.mkdir(parents=True)
        for words in (("read-tree", below), ("checkout-index", "--all", f"--prefix={tree}/")):
            done = _git(root, *words, environment=index)
            if done.returncode:
                raise UsageError(f"{reference} cannot be read with git: {_reason(done)}")
        yield Path(made, "tree", name)


def _git(folder: Path, *words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *words],
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise EnvironmentMissing("git is not installed; install git to compare with a Git reference") from None
    except subprocess.TimeoutExpired:
        raise EnvironmentMissing(
            f"`git {words[0]}` did not finish within {TIMEOUT_S} s; run the command manually"
        ) from None


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return one_line(lines[-1].removeprefix("fatal: ") if lines else f"exit code {done.returncode}")
