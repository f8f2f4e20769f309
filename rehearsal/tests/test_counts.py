"""The number of resources: one definition for the plan, the live view, the engine's line, the page and the state."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.plan.planned import is_counted
from gpuinfra_rehearsal.document import report_schema
from gpuinfra_rehearsal.events import RunProgress
from tests.clouds.stacks import plan_of
from tests.report.validate import violations
from tests.upgrade.states import EXPORTS, STACKS

from .conftest import Rehearse

ADDED = {"gcp-a3high": ["gcp:projects/service:Service"]}
"""Stack -> types of the resources that versions after the export add: the API of the registry. CHANGELOG.md announces them."""
REMOVED = {"gcp-a3high": ["gcp:storage/bucketIAMMember:BucketIAMMember"]}
"""Stack -> types of the resources that versions after the export remove: a grant on the evidence bucket. CHANGELOG.md announces them."""
VPC = "urn:pulumi:s::p::gpuinfra:aws:Network$aws:ec2/vpc:Vpc::net"


def event(op: str, type_: str = "aws:ec2/vpc:Vpc", *, custom: bool = True, logical: bool = True) -> dict[str, Any]:
    """A finished step as the engine writes it."""
    state = {"old" if op.startswith("delete") else "new": {"custom": custom}}
    return {"resOutputsEvent": {"metadata": {"urn": VPC, "op": op, "type": type_, "logical": logical, **state}}}


@pytest.mark.parametrize("export", EXPORTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_plan_counts_the_resources_of_the_state(export: Path) -> None:
    """The state of a rehearsal has as many resources as the plan states, by type, without components, providers, stored values and later changes."""
    rows = json.loads(export.read_text(encoding="utf-8"))
    counted = [row["type"] for row in rows if is_counted(row["type"], row.get("custom"))]
    for type_ in REMOVED.get(export.stem, []):
        counted.remove(type_)
    planned = dict(Counter(plan_of(export.stem).resources) - Counter(ADDED.get(export.stem, [])))
    assert {type_: counted.count(type_) for type_ in counted} == planned
    assert len(counted) < len(rows)


def test_progress_counts_resources_only() -> None:
    """Components, providers and stored values are not counted, and a replacement is counted once."""
    progress = RunProgress()
    progress.take(event("create"))
    progress.take(event("create", "gpuinfra:aws:Network", custom=False))
    progress.take(event("create", "pulumi:providers:aws"))
    progress.take(event("create", "pulumi:index:Stash"))
    for op, logical in (("create-replacement", False), ("replace", True), ("delete-replaced", False)):
        progress.take(event(op, logical=logical))
    progress.take(event("delete"))
    assert progress.done == {"create": 1, "replace": 1, "delete": 1}
    assert progress.counted == [("create", VPC), ("replace", VPC), ("delete", VPC)]


@pytest.mark.long
def test_a_preview_lists_as_many_resources_as_the_plan(rehearse: Rehearse) -> None:
    """The live view, the engine's line and the list of a preview have the number of the plan, and the list names each resource."""
    planned = plan_of("aws-p4d").resources
    number = sum(planned.values())
    preview = rehearse("preview", "aws-p4d")
    shown = preview.out + preview.err
    assert preview.code == 0, shown
    assert f"{number} of {number} resources" in shown
    assert f"preview {number} create" in shown
    listed = preview.report["engine"]["runs"][-1]["previewed"]
    assert Counter(one["type"] for one in listed) == planned
    assert violations(preview.report, report_schema()) == []
    page = (preview.root / "report.html").read_text(encoding="utf-8")
    for one in listed:
        assert one["name"] in shown
        assert one["name"] in page


@pytest.mark.long
@pytest.mark.parametrize("stack", STACKS)
def test_an_up_has_as_many_resources_as_the_plan(stack: str, rehearse: Rehearse) -> None:
    """The live view, the engine's line, the page and the state after an up have the number of the plan."""
    number = sum(plan_of(stack).resources.values())
    up = rehearse("up", stack, "--without-nodes")
    shown = up.out + up.err
    assert up.code == 0, shown
    assert f"up {number} create" in shown
    assert f"{number} of {number} resources" in shown
    assert up.report["engine"]["resources"] == number
    assert f"<b>{number}</b><span>resources in the state" in (up.root / "report.html").read_text(encoding="utf-8")
    destroy = rehearse("destroy", stack)
    shown = destroy.out + destroy.err
    assert destroy.code == 0, shown
    assert f"destroy {number} delete" in shown
    assert f"{number} of {number} resources" in shown
