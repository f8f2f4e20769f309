"""Random command lines and stack files end with a documented exit code and a message."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.fuzz_stacks import mutant
from tests.cli.fuzzed import ROOT, problem_of, stack_texts

ALONE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
COUNT = 250


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_random_command_lines_end_with_a_documented_exit_code(tmp_path: Path, seed: int) -> None:
    """No command line has a traceback, an internal error, control characters in its output, or an exit code without a message.

    The commands run without credentials and without a network. Half of them have no programs on the PATH, and half have programs that fail or
    print something unexpected. The folder is writable, full, read-only or forbidden. Each command line has a randomly changed stack file.
    """
    if shutil.which("unshare") is None or subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not allow namespaces: user, network and mount")
    words = [sys.executable, "-m", "tests.cli.fuzzed", str(seed), str(COUNT), str(tmp_path)]
    done = subprocess.run([*ALONE, *words], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert sum(found["codes"].values()) == COUNT
    assert {"0", "1", "2", "3"} <= set(found["codes"])
    assert len(found["where"]) == 8, (
        "each of the four places has command lines without programs and with failing programs"
    )


@pytest.mark.parametrize(
    ("code", "output", "problem"),
    [
        (0, "fine", None),
        (2, "Usage: ...", None),
        (1, "", "no message"),
        (7, "x", "exit code 7"),
        (1, "gpuinfra: error: internal error: KeyError", "a traceback or an internal error"),
        (0, "\x1b[31mred", "control characters in the output"),
        (3, "x cannot be written: [Errno 28] No space left on device", "an error number"),
    ],
)
def test_an_unexpected_result_is_found(code: int, output: str, problem: str | None) -> None:
    """Each property of a result is checked."""
    assert problem_of(code, output) == problem


def test_changed_stack_files_are_different_and_repeatable() -> None:
    """A seed gives the same stack files again, and most of them are YAML documents that differ from the shipped ones."""
    texts = stack_texts()
    made = [mutant(random.Random(seed), texts) for seed in range(60)]
    assert made == [mutant(random.Random(seed), texts) for seed in range(60)]
    assert len(set(made)) > 55
    assert not {one.encode() for one in texts} & set(made)
