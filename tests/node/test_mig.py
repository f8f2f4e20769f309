from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from typing import Any

import pytest

from gpuinfra.catalog import gpus
from gpuinfra.catalog.mig import PROFILES, problem
from gpuinfra.node import __main__ as main
from gpuinfra.node import mig
from gpuinfra.node.judge import judge
from gpuinfra.node.outcome import CheckResult, Unreadable
from tests.node.healthy import H100, JOURNAL, RECORDINGS, devices, probes, state
from tests.node.test_recordings import sections

LAYOUT = ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]
CUT: dict[str, Any] = {
    **H100,
    "mig": True,
    "mig_profiles": LAYOUT,
    "required": ["G1", "G6", "G12", "G13", "G15", "C2"],
    "skips": {"F3": "no NVLink is shown"},
}


class Node:
    """A stand-in node whose nvidia-smi changes its state."""

    def __init__(self, *faults: str) -> None:
        self.state = {**state(*faults, expectation=H100), "boot_id": "one"}
        self.calls: list[str] = []

    def run(self, words: Sequence[str]) -> tuple[int, str]:
        """Exit code and output of one command."""
        self.calls.append(" ".join(words))
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = devices.main(list(words), self.state)
        return code, output.getvalue()

    def changes(self) -> list[str]:
        """The commands that change something."""
        return [call for call in self.calls if " -L" not in call and "--query" not in call]

    def checks(self, **changes: Any) -> dict[str, CheckResult]:
        """The outcomes for this node."""
        wanted = {**CUT, **changes}
        answers = probes(expectation=wanted, device_state=self.state)
        return {check["id"]: check for check in judge(answers, wanted, journal=JOURNAL)}


def test_every_gpu_is_configured_as_declared() -> None:
    """Mode and instances are set on all GPUs, largest profile first, and all checks of a MIG node pass."""
    node = Node()
    assert node.checks()["G15"]["outcome"] == "fail"
    assert len(mig.apply(CUT, node.run)) == 16
    assert "nvidia-smi mig -i 7 -cgi 3g.40gb,2g.20gb,1g.10gb,1g.10gb -C" in node.calls
    checks = node.checks()
    assert {name: check["reason"] for name, check in checks.items() if check["outcome"] not in ("pass", "skip")} == {}
    assert checks["G15"]["found"] == "1g.10gb, 1g.10gb, 2g.20gb, 3g.40gb"


def test_a_second_run_changes_nothing() -> None:
    """Instances that match the declaration are not changed, so jobs on them continue."""
    node = Node()
    mig.apply(CUT, node.run)
    node.calls.clear()
    assert mig.apply(CUT, node.run) == []
    assert node.changes() == []


def test_instances_are_created_again_after_a_reboot() -> None:
    """The mode survives the reboot and only the instances are created."""
    node = Node()
    mig.apply(CUT, node.run)
    node.state["boot_id"] = "two"
    assert node.checks()["G15"]["outcome"] == "fail"
    assert len(mig.apply(CUT, node.run)) == 8


def test_earlier_layout_is_replaced() -> None:
    """Undeclared instances are destroyed first, because they would leave no space."""
    node = Node()
    mig.apply(CUT, node.run)
    mig.apply({**CUT, "mig_profiles": ["7g.80gb"]}, node.run)
    assert node.calls.index("nvidia-smi mig -i 0 -dgi") < node.calls.index("nvidia-smi mig -i 0 -cgi 7g.80gb -C")
    assert node.checks(mig_profiles=["7g.80gb"])["G15"]["outcome"] == "pass"


def test_pool_without_mig_is_not_changed() -> None:
    """Without a declared layout no command runs."""
    node = Node()
    assert mig.apply(H100, node.run) == []
    assert node.calls == []


def test_failing_layout_is_reported() -> None:
    """The message contains nvidia-smi's text about the GPU."""
    with pytest.raises(mig.MigError, match=r"-i 0 -cgi .* failed with exit code 19: .*Insufficient Resources"):
        mig.apply({**CUT, "mig_profiles": ["4g.40gb", "4g.40gb"]}, Node().run)


def test_mode_change_tries_a_reset_then_requests_a_reboot() -> None:
    """On A100 the mode needs a reset; if that fails, the exit code requests a reboot."""
    node, asked = Node(), []

    def run(words: Sequence[str]) -> tuple[int, str]:
        asked.append(" ".join(words))
        if "--query-gpu=index,mig.mode.current,mig.mode.pending" in words:
            return 0, "index, mig.mode.current, mig.mode.pending\n0, Disabled, Enabled\n"
        return (3, "in use by another client") if "--gpu-reset" in words else node.run(words)

    with pytest.raises(mig.RebootNeeded, match="GPU 0"):
        mig.apply(CUT, run)
    assert "nvidia-smi --gpu-reset -i 0" in asked


@pytest.mark.parametrize("modes", ["[N/A], [N/A]", "[Unknown Error], Disabled", "Half, Enabled"])
def test_gpu_without_mig_or_with_an_error_is_refused(modes: str) -> None:
    """A mode that is neither enabled nor disabled is refused."""
    with pytest.raises(mig.MigError, match="cannot configure MIG on GPU 0"):
        mig.apply(CUT, lambda words: (0, f"index, mig.mode.current, mig.mode.pending\n0, {modes}\n"))


def test_recording_of_a_mig_gpu_is_parsed() -> None:
    """The list of a real H100 with four instances yields their profiles and UUIDs."""
    text = sections(RECORDINGS / "nvidia-h100-mig__590.48.01.txt")["nvidia-smi -L"]
    found = mig.instances(text)
    assert [name for name, _ in found[0]] == LAYOUT
    assert len({uuid for _, uuid in found[0]}) == 4
    with pytest.raises(Unreadable, match="cannot parse a line of nvidia-smi -L"):
        mig.instances(text + "  MIG half of it\n")


def test_command_reports_changes_and_reboots(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0 with a line for each change, 194 for a reboot, 1 with the reason of a failure."""
    file = tmp_path / "expectation.json"
    file.write_text(json.dumps(CUT))
    words = ["mig", "--expectation", str(file)]
    node = Node()
    monkeypatch.setattr(mig, "_run", node.run)
    assert main.main(words) == 0
    assert "changed: GPU 0: MIG enabled\n" in capsys.readouterr().out
    monkeypatch.setattr(
        mig,
        "apply",
        lambda expectation: (_ for _ in ()).throw(mig.RebootNeeded("GPU 0 enables MIG at the next reboot")),
    )
    assert main.main(words) == 194
    monkeypatch.setattr(
        mig, "apply", lambda expectation: (_ for _ in ()).throw(mig.MigError("nvidia-smi failed with exit code 19"))
    )
    assert main.main(words) == 1
    assert "gpuinfra: nvidia-smi failed with exit code 19" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gpu", "layout", "reason"),
    [
        ("A100-40GB", ["3g.20gb", "3g.20gb"], ""),
        ("A100-40GB", ["7x1g.5gb"], "no profile 7x1g.5gb"),
        ("A100-80GB", ["3g.20gb"], "no profile 3g.20gb; allowed: 1g.10gb"),
        ("H100", ["1g.10gb"] * 7, ""),
        ("H100", ["1g.10gb"] * 8, "8 x 1g.10gb do not fit on one H100; allowed: at most 7"),
        ("H100", ["4g.40gb", "3g.40gb"], ""),
        ("H100", ["4g.40gb", "2g.20gb", "2g.20gb"], "8 of 7 compute slices"),
        ("H100", ["3g.40gb", "1g.20gb", "1g.20gb", "1g.20gb"], "10 of 8 memory slices"),
        ("H200", ["7g.141gb"], ""),
        ("T4", ["1g.10gb"], "does not support MIG"),
    ],
)
def test_layout_fits_or_has_a_reason(gpu: str, layout: list[str], reason: str) -> None:
    """Profiles belong to the product and fit on one GPU together."""
    found = problem(gpus.GPUS[gpu], layout)
    assert (found == "") == (reason == "")
    assert reason in found


def test_every_mig_product_has_its_profiles() -> None:
    """The catalog and the table match, and each profile alone fits as often as the table lists."""
    assert {key for key, gpu in gpus.GPUS.items() if gpu.mig} >= set(PROFILES)
    for key, profiles in PROFILES.items():
        assert profiles[-1].name.startswith("7g.")
        for profile in profiles:
            assert problem(gpus.GPUS[key], [profile.name] * profile.max_count) == ""
            assert problem(gpus.GPUS[key], [profile.name] * (profile.max_count + 1)) != ""
