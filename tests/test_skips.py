"""On CI, a skipped test fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = {
    "mark": "import pytest\n@pytest.mark.skipif(True, reason='no sshd')\ndef test_it(): ...\n",
    "call": "import pytest\ndef test_it(): pytest.skip('no sshd')\n",
    "fixture": "import pytest\n@pytest.fixture\ndef tool(): pytest.skip('no sshd')\ndef test_it(tool): ...\n",
    "module": "import pytest\npytest.skip('no sshd', allow_module_level=True)\n",
}


def run(tmp_path: Path, text: str, *, ci: bool) -> subprocess.CompletedProcess[str]:
    """Run pytest with the hooks on one file."""
    file = tmp_path / "test_case.py"
    file.write_text(text)
    root = Path(__file__).parents[1]
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.skips",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        str(file),
    ]
    environment = {**os.environ, "CI": "true" if ci else "", "PYTHONPATH": str(root)}
    return subprocess.run(
        words, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path, timeout=300
    )


@pytest.mark.parametrize("case", CASES)
def test_missing_tool_fails_on_ci_only(tmp_path: Path, case: str) -> None:
    """A skip for a missing tool is a failure on CI, with its reason, and a skip elsewhere."""
    on_ci = run(tmp_path, CASES[case], ci=True)
    assert on_ci.returncode not in (0, 5), on_ci.stdout
    assert "skipped on CI: no sshd" in on_ci.stdout
    elsewhere = run(tmp_path, CASES[case], ci=False)
    assert elsewhere.returncode in (0, 5), elsewhere.stdout
    assert "1 skipped" in elsewhere.stdout


def test_allowed_skips_and_expected_failures_pass_on_ci(tmp_path: Path) -> None:
    """Reasons in ALLOWED are not about missing tools that CI can install; xfail is not a skip."""
    text = (
        "import pytest\ndef test_gpu(): pytest.skip('this machine has NCCL and GPUs')\n"
        "@pytest.mark.xfail\ndef test_x(): assert False\n"
    )
    done = run(tmp_path, text, ci=True)
    assert done.returncode == 0, done.stdout
    assert "1 skipped, 1 xfailed" in done.stdout
