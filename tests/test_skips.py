"""On CI, a skipped test fails. Elsewhere, a run ends with a list of what it left out."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.skips import ALLOWED, BROUGHT_BY

CASES = {
    "mark": "import pytest\n@pytest.mark.skipif(True, reason='no sshd')\ndef test_it(): ...\n",
    "call": "import pytest\ndef test_it(): pytest.skip('no sshd')\n",
    "fixture": "import pytest\n@pytest.fixture\ndef tool(): pytest.skip('no sshd')\ndef test_it(tool): ...\n",
    "module": "import pytest\npytest.skip('no sshd', allow_module_level=True)\n",
}


ROOT = Path(__file__).parents[1]


def run(tmp_path: Path, text: str, *options: str, ci: bool) -> subprocess.CompletedProcess[str]:
    """Run pytest with the hooks on one file."""
    file = tmp_path / "test_case.py"
    file.write_text(text)
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
        *options,
        str(file),
    ]
    environment = {**os.environ, "CI": "true" if ci else "", "PYTHONPATH": str(ROOT)}
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
    assert "= left out =" in elsewhere.stdout
    assert "\n1 test: no sshd\n" in elsewhere.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_the_list_counts_the_tests_and_names_the_package(tmp_path: Path, workers: tuple[str, ...]) -> None:
    """Tests with the same reason are one line, which names what brings the missing program. A complete run has no list."""
    mark = 'import pytest\n@pytest.mark.skipif({}, reason="OpenSSH\'s sshd is not installed")\n'
    text = mark + "@pytest.mark.parametrize('n', [1, 2])\ndef test_it(n): ...\n"
    left = run(tmp_path, text.format(True), *workers, ci=False).stdout
    assert "\n2 tests: OpenSSH's sshd is not installed; needs: apt-get install openssh-server\n" in left
    assert "left out" not in run(tmp_path, text.format(False), *workers, ci=False).stdout


def reasons() -> Iterator[tuple[str, str]]:
    """Where each skip of a test is, and its reason, with * for what is inserted."""
    for path in sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "rehearsal" / "tests").rglob("*.py")]):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and (name := ast.unparse(call.func)).startswith("pytest.") and "skip" in name:
                given = [one.value for one in call.keywords if one.arg == "reason"]
                reason = given[0] if given else call.args[0]
                parts = reason.values if isinstance(reason, ast.JoinedStr) else [reason]
                texts = [str(one.value) if isinstance(one, ast.Constant) else "*" for one in parts]
                yield f"{path.relative_to(ROOT)}:{call.lineno}", "".join(texts)


def test_each_reason_is_listed() -> None:
    """The start of each skip reason is in one of the tables, and each entry of the tables has a skip."""
    listed = {*ALLOWED, *BROUGHT_BY}
    used: set[str] = set()
    for where, reason in reasons():
        start = {one for one in listed if reason.startswith(one) or fnmatchcase(one, reason)}
        assert start, f"{where}: {reason}"
        used |= start
    assert used == listed


def test_allowed_skips_and_expected_failures_pass_on_ci(tmp_path: Path) -> None:
    """Reasons in ALLOWED are not about missing tools that CI can install; xfail is not a skip."""
    text = (
        "import pytest\ndef test_gpu(): pytest.skip('this machine has NCCL and GPUs')\n"
        "@pytest.mark.xfail\ndef test_x(): assert False\n"
    )
    done = run(tmp_path, text, ci=True)
    assert done.returncode == 0, done.stdout
    assert "1 skipped, 1 xfailed" in done.stdout
