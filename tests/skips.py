"""What a test run leaves out: at its end, it lists the reasons and what brings the missing programs.

On CI (`CI=true`), a skipped test fails, unless its reason is in `ALLOWED`: CI installs every tool that tests need.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Generator

import pytest

ALLOWED = {
    "this machine has NCCL and GPUs": "the test is for machines without them",
    "this already runs as an ordinary user": "the other tests of the file cover this case",
    "this machine mounts no file system in user space": "containers have no /dev/fuse; tests on stand-in nodes restart a mounted bucket",
    "GPUINFRA_TORCH_PYTHON is not set": "the packages of PyTorch contain gigabytes of CUDA",
    "there is no Python 3.9 on this machine": "Debian 12 has no package of it; another test parses each file as Python 3.9",
}
"""Start of a skip reason, and why the skip is allowed on CI."""
ROOT, MIRROR = "run the tests as root", "access to a mirror of Debian"
SPACES = "user namespaces; in a container, the seccomp profile must allow unshare and mount"
BROUGHT_BY = {
    "OpenSSH's sshd is not installed": "apt-get install openssh-server",
    "OpenSSH's ssh is not installed": "apt-get install openssh-client",
    "systemd-analyze is not installed": "apt-get install systemd",
    "systemd-fstab-generator is not installed": "apt-get install systemd",
    "systemd-nspawn is not installed": "apt-get install systemd-container",
    "debootstrap is not installed": "apt-get install debootstrap",
    "the programs of ext4 are not installed": "apt-get install e2fsprogs util-linux",
    "dpkg is not installed": "apt-get install dpkg",
    "gpg is not installed": "apt-get install gpg",
    "unshare is not installed": "apt-get install util-linux",
    "a C compiler is not installed": "apt-get install gcc",
    "Chromium is not installed": "apt-get install chromium",
    "fish is not installed": "apt-get install fish",
    "promtool is not installed": "apt-get install prometheus",
    "prometheus is not installed": "apt-get install prometheus",
    "alertmanager is not installed": "apt-get install prometheus-alertmanager",
    "node exporter is not installed": "apt-get install prometheus-node-exporter",
    "npm is not installed": "apt-get install npm",
    "zsh is not installed": "apt-get install zsh",
    "this is not a git checkout": "git clone",
    "statsmodels is not installed": "pip install 'gpuinfra[forecast]'",
    "no package index can be reached": "access to a package index",
    "debootstrap reaches no mirror": MIRROR,
    "the table was derived from another version": "the provider in that version",
    "a private root needs root": ROOT,
    "only root can change owners": ROOT,
    "systemd-nspawn needs root": ROOT,
    "mounting a small file system needs root": ROOT,
    "this system does not allow mounting": ROOT,
    "this system does not allow namespaces": SPACES,
    "stand-in nodes cannot run here": SPACES,
    "no Python 3.11 or newer that user 65534 may run": "a Python outside the home directory of root",
}
"""Start of a skip reason, and what brings the missing thing."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Covers skips in fixtures, marks and tests."""
    report = yield
    return _checked(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Covers skips of whole modules."""
    report = yield
    return _checked(report)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """List what the run left out, with the number of tests for each reason, after all other parts of the summary."""
    yield
    skipped = [one for one in terminalreporter.stats.get("skipped", []) if not hasattr(one, "wasxfail")]
    if skipped:
        terminalreporter.section("left out")
    for reason, number in sorted(Counter(map(_reason, skipped)).items()):
        start = next((one for one in (*BROUGHT_BY, *ALLOWED) if reason.startswith(one)), "")
        brings = f"; needs: {BROUGHT_BY[start]}" if start in BROUGHT_BY else ""
        terminalreporter.write_line(f"{number} test{'s' if number > 1 else ''}: {reason}{brings}")


def _checked(report):
    """The report, turned into a failure if it is a skip that CI does not allow."""
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return report
    reason = _reason(report)
    if not reason.startswith(tuple(ALLOWED)):
        report.outcome = "failed"
        report.longrepr = f"skipped on CI: {reason}; install what is missing in .ci/run, or add the reason to ALLOWED in tests/skips.py"
    return report


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return re.sub(r"^Skipped: ", "", text)
