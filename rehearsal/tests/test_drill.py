"""`gpuinfra rehearse drill`: the first region fails, and the stack fails over to the second one."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra.cli import main
from gpuinfra_rehearsal.actions import RehearsalResult, perform
from gpuinfra_rehearsal.document import report_schema
from gpuinfra_rehearsal.drill import run_drill
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, Session, open_session
from tests.report.validate import violations

from .conftest import Finished, Rehearse

FILE, GOOGLE = (shipped("stacks") / f"Pulumi.{name}-recovery.yaml" for name in ("aws", "gcp"))


def stack(folder: Path, *, first: str, mode: str) -> Path:
    """`aws-recovery` with one on-demand node, and with this first region and this mode."""
    text = FILE.read_text()
    if first == "us-west-2":
        text = text.replace("us-west-2", "us-east-1").replace("us-east-2", "us-west-2").replace("use2-az1", "usw2-az2")
    else:
        text = text.replace("us-east-2", "us-east-1").replace("use2-az1", "use1-az4")
    return written(folder, text, "on_demand", mode)


def google_stack(folder: Path, *, mode: str) -> Path:
    """`gcp-recovery` with one spot node and this mode."""
    return written(folder, GOOGLE.read_text(), "spot", mode)


def written(folder: Path, text: str, kind: str, mode: str) -> Path:
    """A stack file with one node of this kind and this mode."""
    text = re.sub(r"kind: reserved.*count: 2", f"kind: {kind}, count: 1", text).replace("mode: cold", f"mode: {mode}")
    if mode != "cold":
        text = re.sub(r"\n *site_minutes: \d+", "", text)
    path = folder / "Pulumi.recovery.yaml"
    path.write_text(text)
    return path


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize(("first", "mode"), [("us-west-2", "cold"), ("us-east-1", "pilot-light"), ("us-east-1", "hot")])
def test_a_stack_fails_over_within_its_targets(first: str, mode: str, rehearse: Rehearse, tmp_path: Path) -> None:
    """The nodes in the second region are verified, the newest replicated checkpoint is complete, both targets are met,
    and the DNS names move unless their control plane fails."""
    second = {"us-west-2": "us-east-1", "us-east-1": "us-west-2"}[first]
    path = stack(tmp_path, first=first, mode=mode)
    path.write_text(path.read_text() + "      names: {zone: Z0123456789ABCDEFGHIJ, domain: train.example.internal}\n")
    done = rehearse("drill", str(path), "--to", second, "--json")
    meets_targets(done)
    (found,) = [one["found"] for one in done.report["drill"]["steps"] if one["step"] == "failover: names"]
    wanted = "did not respond" if first == "us-east-1" else "login.train.example.internal A 10."
    assert wanted in found


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("mode", ["hot", "pilot-light", "cold"])
def test_a_stack_on_google_cloud_fails_over_within_its_targets(mode: str, rehearse: Rehearse, tmp_path: Path) -> None:
    """The nodes in the second region are verified with the imported replica, and the DNS names move, in each mode."""
    path = google_stack(tmp_path, mode=mode)
    path.write_text(
        path.read_text()
        + "      names: {zone: projects/standin-project/managedZones/train, domain: train.example.internal}\n"
    )
    done = rehearse("drill", str(path), "--to", "us-east4", "--json")
    meets_targets(done)
    (found,) = [one["found"] for one in done.report["drill"]["steps"] if one["step"] == "failover: names"]
    assert "login.train.example.internal A 10." in found
    assert "source.scratch.train.example.internal TXT" in found
    site = "recovery-us-east4-base" if mode == "pilot-light" else "recovery-us-east4"
    imported = next(one["found"] for one in done.report["drill"]["steps"] if one["step"] == f"failover: import {site}")
    assert "imported into projects/standin-project/locations/us-east4-" in imported


def meets_targets(done: Finished) -> None:
    """Check the report of a drill."""
    assert done.code == 0, done.out + done.err
    report = done.report
    assert violations(report, report_schema()) == []
    drill = report["drill"]
    assert drill["rpo"]["met"]
    assert drill["rto"]["met"]
    states = {one["step"]: one["found"] for one in drill["steps"]}
    # The endpoints of Google Cloud are global, so that the drill ignores the steps in the first region.
    assert "did not respond" in states["failover: fence"] or "--ignore fence" in states["failover: fence"]
    assert "checkpoint 2 of 3" in states["data"]
    assert {one["outcome"] for one in report["nodes"]} == {"verified"}


def drilled(
    path: Path, root: Path, broken: Callable[[Session], list[str]] = lambda _: []
) -> tuple[RehearsalResult, list[str]]:
    """Deploy the stack without its nodes, break protections, and run the drill. Returns its result and what `broken` returns."""
    options = Options(stack=str(path), folder=root, without_nodes=True)
    with open_session(options, view_for(io.StringIO())) as session:
        assert perform(session, "up").ok
        names = broken(session)
        return run_drill(session), names


@pytest.mark.long
def test_a_cold_failover_from_us_east_1_needs_iam(tmp_path: Path) -> None:
    """Without us-east-1, the roles of the second region cannot be created. The drill names them, and neither target is reached."""
    result, _ = drilled(stack(tmp_path, first="us-east-1", mode="cold"), tmp_path / "rehearsal")
    (problem,) = result.problems
    assert "up recovery-us-west-2" in problem
    assert "create aws:iam/role:Role requires us-east-1, which does not respond" in problem
    drill = result.report["drill"]
    assert (drill["rpo"]["met"], drill["rto"]["met"]) == (False, False)


@pytest.mark.long
def test_broken_protections_fail_the_drill(tmp_path: Path) -> None:
    """If replication is off, a role and a key are missing, and the quota is zero, the drill fails and names each of them."""

    def broken(session: Session) -> list[str]:
        state, ask = session.pulumi.resources(), session.cloud.ask
        rule = next(one for one in state if one["type"] == "aws:s3/bucketReplicationConfig:BucketReplicationConfig")
        changed = {"rules": [{**rule["outputs"]["rules"][0], "status": "Disabled"}]}
        ask("drift", {"type": rule["type"], "id": rule["id"], "set": changed})
        ask("external", {"id": "quota:L-417A185B:us-east-1", "count": 0})
        role = rule["outputs"]["role"].rpartition("/")[2]
        ask("vanish", {"type": "aws:iam/role:Role", "id": role})
        key = next(one for one in state if one["type"] == "aws:kms/key:Key" and one["inputs"].get("region") == "us-east-1")  # fmt: skip
        ask("vanish", {"type": key["type"], "id": key["id"]})
        return [f"replication {rule['id']}: ", "quota ", f"role {role}: ", f"key {key['id']}: "]

    result, names = drilled(stack(tmp_path, first="us-west-2", mode="cold"), tmp_path / "rehearsal", broken)
    (problem,) = result.problems
    assert [name for name in names if f"\n{name}" not in problem] == []


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize(
    ("fault", "deadline", "problem"),
    [("cloud:no-capacity:gpu", "60s", "capacity"), ("cloud:throttled:4", "1200s", "")],
)
def test_a_fault_of_the_cloud_begins_with_the_failover(
    fault: str, deadline: str, problem: str, rehearse: Rehearse, tmp_path: Path
) -> None:
    """The first region gets its nodes, the fault decides whether the failover meets its targets, and the drill is not recorded as a proof."""
    path = stack(tmp_path, first="us-west-2", mode="cold")
    done = rehearse("drill", str(path), "--to", "us-east-1", "--fault", fault, "--deadline", deadline, "--json")
    assert done.report["drill"]["faults"] == [fault]
    assert done.code == (1 if problem else 0), done.report["problems"]
    steps = {one["step"]: one for one in done.report["drill"]["steps"]}
    assert steps["up"]["found"].startswith("1 of 1 nodes")
    assert problem in "".join(done.report["problems"])
    assert not list(Path(os.environ["XDG_STATE_HOME"]).glob("**/drill/*"))


@pytest.mark.parametrize(
    ("name", "words", "text"),
    [
        ("aws-p4d", ["--to", "us-west-2"], "has no `recovery`"),
        ("aws-recovery", [], "--to is missing; allowed: us-west-2"),
        ("aws-recovery", ["--to", "us-west-1"], "--to is us-west-1; allowed: us-west-2"),
        ("azure-recovery", ["--to", "westus"], "--to is westus; allowed: eastus2"),
        ("gcp-recovery", ["--to", "us-east1"], "--to is us-east1; allowed: us-east4"),
        (
            "aws-recovery",
            ["--to", "us-west-2", "--fault", "node:gpu-1:gpu-missing"],
            "allowed in a drill: faults of the cloud",
        ),
        ("aws-recovery", ["--to", "us-west-2", "--fault", "cloud:no-capacity:cpu"], "cpu"),
        ("aws-recovery", ["--to", "us-west-2", "--without-nodes"], "--without-nodes is not supported in a drill"),
    ],
)
def test_a_drill_that_is_not_possible_is_rejected(
    name: str, words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stack without a second region, another region, a cloud without failover, and options that a drill does not support have one clear error."""
    assert main(["rehearse", "drill", name, "--folder", str(tmp_path), *words]) == 2
    assert text in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_options_of_a_drill_belong_to_a_drill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`up` rejects `--to`."""
    assert main(["rehearse", "up", "aws-recovery", "--folder", str(tmp_path), "--to", "us-west-2"]) == 2
    assert "--to is an option of `gpuinfra rehearse drill`" in capsys.readouterr().err
