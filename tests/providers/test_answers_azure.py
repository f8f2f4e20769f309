"""Examples of the answers of Azure's own services (`answers/azure.json`): our code reads them.

The examples are those that Azure publishes with its APIs, for the API versions that our code requests.
`rehearsal/tests/cloud/test_azure_http.py` compares the answers of the stand-in with them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuinfra.clouds.azure.handover.ports import API_COMPUTE, BootDiagnostics, ScaleSets
from gpuinfra.handover.ports import GroupExpected
from gpuinfra.node.azure import API_INSTANCE

FILE = Path(__file__).parent / "answers" / "azure.json"
ANSWERS = json.loads(FILE.read_text(encoding="utf-8"))["answers"]
EXAMPLES: dict[str, Any] = {one["operation"]: one["answer"] for one in ANSWERS}
MACHINE = EXAMPLES["VirtualMachineScaleSetVMs_List"]["value"][0]
SET = MACHINE["id"].rpartition("/virtualMachines/")[0]
GROUPS = [GroupExpected(group=SET, name="gpu-0", count=1)]


class Answers:
    """Azure Resource Manager with the examples as its answers."""

    def __init__(self, **changed: Any) -> None:
        self._answers = copy.deepcopy(EXAMPLES) | changed

    def arm(self, path: str, api: str, query: Any = None, *, post: bool = False) -> dict[str, Any]:
        if post:
            return self._answers["VirtualMachineScaleSetVMs_RetrieveBootDiagnosticsData"]
        return self._answers["VirtualMachineScaleSets_GetInstanceView"] if path.endswith("/instanceView") else {}

    def pages(self, path: str, api: str, query: Any = None) -> Iterator[dict[str, Any]]:
        known = {"virtualMachines": "VirtualMachineScaleSetVMs_List", "values": "ActivityLogs_List"}
        yield from self._answers.get(known.get(path.rpartition("/")[2], ""), {}).get("value", [])

    def signed(self, url: str, limit: int) -> bytes:
        assert url == EXAMPLES["VirtualMachineScaleSetVMs_RetrieveBootDiagnosticsData"]["serialConsoleLogBlobUri"]
        return b"one\r\ntwo\r\nthree\r\n"


def test_the_examples_are_of_the_versions_that_are_requested() -> None:
    """A new API version needs its own examples."""
    for one in ANSWERS:
        wanted = API_INSTANCE if one["operation"] == "instance/compute" else API_COMPUTE
        assert f"/{wanted}/" in one["source"] or "Insights/stable/2015-04-01" in one["source"], one["operation"]


def test_the_machine_of_the_example_is_a_member() -> None:
    """A member has the ID, creation time (with seven decimals) and zone of the example's machine, and is not leaving."""
    sets = ScaleSets(Answers())  # pyright: ignore[reportArgumentType]
    (member,) = sets.members(GROUPS)
    assert (member.instance_id, member.resource) == ("42af9fdf-b906-4ad7-9905-8316209ff619", MACHINE["id"])
    assert member.launched == datetime(2021, 6, 27, 1, 2, 38, 313846, tzinfo=UTC)
    assert (member.zone, member.leaving) == ("a", False)
    assert sets.arm_id(member.instance_id) == MACHINE["id"]


def test_the_examples_have_no_problem() -> None:
    """Statuses of level `Info` and an event that succeeded are no problems; as an error and a failure they are."""
    assert ScaleSets(Answers()).problems(GROUPS) == []  # pyright: ignore[reportArgumentType]
    machine = copy.deepcopy(MACHINE)
    machine["properties"]["instanceView"]["statuses"][0] |= {
        "code": "ProvisioningState/failed/AllocationFailed",
        "level": "Error",
        "message": "no capacity",
    }
    (problem,) = ScaleSets(Answers(VirtualMachineScaleSetVMs_List={"value": [machine]})).problems(GROUPS)  # pyright: ignore[reportArgumentType]
    assert (problem.kind, problem.message) == ("stock-out", "AllocationFailed: no capacity")
    event = copy.deepcopy(EXAMPLES["ActivityLogs_List"]["value"][0])
    event["status"]["value"] = "Failed"
    event["properties"]["statusMessage"] = (
        '{"error": {"code": "OperationNotAllowed", "message": "Operation results in exceeding quota limits of Core."}}'
    )
    (problem,) = ScaleSets(Answers(ActivityLogs_List={"value": [event]})).problems(GROUPS)  # pyright: ignore[reportArgumentType]
    assert (problem.kind, problem.message) == (
        "quota",
        "OperationNotAllowed: Operation results in exceeding quota limits of Core.",
    )
    assert problem.at == datetime(2015, 1, 21, 22, 14, 26, 979277, tzinfo=UTC)


def test_the_console_is_downloaded_from_the_address_in_the_example() -> None:
    """The log is read from `serialConsoleLogBlobUri`."""
    console = BootDiagnostics(Answers(), {MACHINE["properties"]["vmId"]: MACHINE["id"]}.get)  # pyright: ignore[reportArgumentType]
    assert console.tail(MACHINE["properties"]["vmId"], 2) == ["two", "three"]
