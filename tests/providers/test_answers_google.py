"""Answers of Compute Engine (`answers/gcp.json`): our code reads them.
`rehearsal/tests/cloud/test_gcp_handover_ports.py` compares the answers of the stand-in with Google's discovery documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpuinfra.clouds.gcp.handover import ports as gcp
from gpuinfra.handover.ports import GroupExpected
from tests.clouds.gcp import discovery

ANSWERS = json.loads((Path(__file__).parent / "answers" / "gcp.json").read_text(encoding="utf-8"))["answers"]
GROUP = "projects/project1/zones/us-central1-b/instanceGroupManagers/gke-cluster-1-default-pool"


class Answers(gcp.Client):
    """Compute Engine with the recorded answers."""

    def json(self, method: str, url: str, parameters: Any = None) -> dict[str, Any]:
        return next((one["answer"] for one in ANSWERS if one["operation"].endswith(url.rpartition("/")[2])), {})


def test_recorded_members_are_read() -> None:
    """Each running instance of the group is a member with its number and path. An instance without a template has no version."""
    membership = gcp.ManagedInstances(Answers(), gcp.COMPUTE)
    found = membership.members([GroupExpected(group=GROUP, name="gpu-0", count=4)])
    assert [one.instance_id for one in found] == [
        "1974815549671473983",
        "197481554967143333",
        "4462422841867240255",
        "6309299611401323327",
    ]
    assert {(one.zone, one.leaving, one.template_version, one.launched) for one in found} == {
        ("us-central1-b", False, "", None)
    }
    path = "projects/project1/zones/us-central1-b/instances/gke-cluster-1-default-pool-f7607aac-9j4g"
    assert found[0].resource == path
    assert membership.path_of("1974815549671473983") == gcp.COMPUTE + path


def test_recorded_answers_are_valid() -> None:
    """The recorded answers have the names and types of Google's discovery document."""
    for one in ANSWERS:
        assert discovery.answer_findings("compute.v1", one["operation"], one["answer"]) == []
    wrong = {"managedInstances": [{"id": 1974815549671473983, "status": "RUNNING"}]}
    assert len(discovery.answer_findings("compute.v1", ANSWERS[0]["operation"], wrong)) == 2
