"""`gpuinfra rehearse up` on the p4d cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuinfra_rehearsal.document import report_schema
from tests.oracle.claims import oracle, problems
from tests.report.validate import violations

from .commands import assert_commands_work
from .conftest import Finished, Rehearse, cloud_resources

pytestmark = pytest.mark.usefixtures("needs_nodes")


SESSIONS = ("ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel")  # fmt: skip


@pytest.fixture
def up(rehearse: Rehearse) -> Finished:
    """A cluster that is up, created under the minimum permissions."""
    result = rehearse("up", "aws-p4d", "--under-least-permissions")
    assert result.code == 0, result.out + result.err
    return result


def journals(root: Path) -> dict[str, str]:
    """Instance id -> journal with the boot id."""
    return {p.parts[-6]: p.read_text() for p in root.glob("nodes/*/root/var/lib/gpuinfra/state.json")}


def test_up_then_up_again(up: Finished, rehearse: Rehearse) -> None:
    """All nodes and GPUs are verified, the report is complete, the state matches the oracle, and a second up changes nothing."""
    report = up.report
    assert report["rehearsal"] is True
    assert report["totals"]["nodes"] == report["totals"]["nodes_verified"] == 4
    assert report["totals"]["gpus"] == report["totals"]["gpus_verified"] == 32
    assert report["engine"]["operations"]["create"] > 60
    assert report["cost"]["usd_per_hour"] > 0
    under = report["permissions"]
    assert (under["refused"], under["unused"]) == ([], [])
    assert len(under["used"]) > 100
    assert {action for action in under["not_exercised"] if action.startswith("ec2:Create")} == {
        "ec2:CreateLaunchTemplateVersion"
    }
    rights = report["rights"]
    assert (rights["unused"], rights["refused"]) == ([], [])
    assert [one.partition(": ")[2] for one in rights["used"]] == [
        "FetchBundle: s3:GetObject", "UseKeyThroughS3: kms:Decrypt", "UseKeyThroughS3: kms:GenerateDataKey", "WriteOwnEvidence: s3:PutObject",
    ]  # fmt: skip
    assert [one.partition(": ")[2] for one in rights["not_exercised"]] == [
        *(f"AcceptSessions: {action}" for action in SESSIONS), "MeetOtherNodes: s3:GetObject", "RegisterForSessions: ssm:UpdateInstanceInformation",
    ]  # fmt: skip
    assert violations(report, report_schema()) == []
    for node in report["nodes"]:
        assert {"P1", "D1", "G1", "F3", "X1", "N1", "S2", "B8"} <= {
            c["id"] for c in node["checks"] if c["outcome"] == "pass"
        }
    assert_summary_is_complete(up, report)

    state = [r for r in up.state if not r["type"].startswith("pulumi:")]
    assert problems(state, oracle("aws-p4d")) == []
    in_state = {(r["type"], r["id"]) for r in state if r.get("custom") and not r["type"].startswith("gpuinfra:")}
    assert {(kind, identity) for kind, identity, _ in cloud_resources(up.root)} == in_state

    before = journals(up.root)
    again = rehearse("up", "aws-p4d")
    assert again.code == 0, again.out + again.err
    counts = again.report["engine"]["operations"]
    assert set(counts) == {"same"}, counts
    assert journals(up.root) == before
    assert len(before) == 4
    assert again.report["totals"]["nodes_verified"] == 4
    assert_commands_work(up)


def assert_summary_is_complete(up: Finished, report: dict[str, Any]) -> None:
    """The last lines have nodes, price, page, what a rehearsal cannot show, and the command of a deployment."""
    lines = up.out.splitlines()
    assert all(line.startswith("rehearsal: ") for line in lines)
    tail = "\n".join(lines[-20:])
    for node in report["nodes"]:
        assert node["instance_id"] in tail
    for words in ("32 of 32 GPUs verified", "USD an hour", "report.html", "cannot show", "gpuinfra up aws-p4d"):
        assert words in tail, words
    page = (up.root / "report.html").read_text(encoding="utf-8")
    assert "This is a rehearsal" in page
    assert "http://" not in page
    assert "<script" not in page


@pytest.mark.long
def test_plain_image_installs_everything(rehearse: Rehearse, tmp_path: Path) -> None:
    """On plain Ubuntu every step installs, nodes reboot where required, and all GPUs are verified."""
    text = (Path(__file__).parents[2] / "stacks" / "Pulumi.aws-p4d.yaml").read_text(encoding="utf-8")
    stack = tmp_path / "Pulumi.plain.yaml"
    indent = next(line for line in text.splitlines() if line.strip().startswith("name:")).split("name:")[0]
    stack.write_text(text.rstrip() + f"\n{indent}software: {{image: plain}}\n", encoding="utf-8")
    result = rehearse("up", str(stack), "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    assert report["totals"]["gpus_verified"] == 32
    assert all(line.startswith("rehearsal: ") for line in result.err.splitlines())
    driver = [s for j in journals(result.root).values() for s in json.loads(j)["steps"] if s["id"] == "30-driver"]
    assert len(driver) == 4
    assert all(step["changed"] for step in driver)
