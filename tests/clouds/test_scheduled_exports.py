"""Scheduled exports of Managed Lustre: the request, the identity that sends it, and when it is paused."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from gpuinfra.clouds.gcp.components.storage import cron
from gpuinfra.rules.shape import EXPORT_MINUTES
from tests.clouds.recorder import Recording
from tests.clouds.stacks import plan_of, recording_of, recording_of_spec, spec_of
from tests.permissions.needed import permissions_of

JOB, WORKFLOW = "gcp:cloudscheduler/job:Job", "azure-native:logic:Workflow"
STACKS = {"azure-recovery": WORKFLOW, "gcp-recovery": JOB}


def returning(stack: str, monkeypatch: pytest.MonkeyPatch) -> Recording:
    """The registrations while the stack returns to its first region."""
    monkeypatch.setattr("gpuinfra.cluster.check_active", lambda *_: True)
    return recording_of_spec(spec_of(stack), stack=stack)


def test_a_job_of_google_cloud_exports_to_the_bucket() -> None:
    """The job posts the request of the export command, as a service account that has only this permission in the project."""
    recording = recording_of("gcp-recovery")
    job = recording.one(JOB, "train-scratch-0-export-schedule").inputs
    (account,) = (
        one
        for one in recording.of("gcp:serviceaccount/account:Account")
        if one.name == "train-scratch-0-export-account"
    )
    (lustre,) = recording.of("gcp:lustre/instance:Instance")
    target = job["httpTarget"]
    instance = f"projects/my-project/locations/us-central1-a/instances/{lustre.inputs['instanceId']}"
    assert target["uri"] == f"https://lustre.googleapis.com/v1/{instance}:exportData"
    bucket = recording.one("gcp:storage/bucketIAMMember:BucketIAMMember", "train-scratch-0-data-objects").inputs[
        "bucket"
    ]
    assert json.loads(base64.b64decode(target["body"])) == {
        "gcsPath": {"uri": f"gs://{bucket}/"},
        "lustrePath": {"path": "/"},
    }
    assert target["httpMethod"] == "POST"
    email = target["oauthToken"]["serviceAccountEmail"]
    assert email.startswith(f"{account.inputs['accountId']}@")
    grants = [one.inputs for one in recording.of("gcp:projects/iAMMember:IAMMember") if one.inputs["member"] == f"serviceAccount:{email}"]  # fmt: skip
    role = recording.one("gcp:projects/iAMCustomRole:IAMCustomRole", "train-scratch-0-export-role").inputs
    assert [one["role"].rpartition("/")[2] for one in grants] == [role["roleId"]]
    assert role["permissions"] == ["lustre.instances.exportData"]
    assert (job["region"], job["schedule"]) == ("us-central1", "*/15 * * * *")


@pytest.mark.parametrize("minutes", EXPORT_MINUTES)
def test_an_interval_has_the_same_length_all_day(minutes: int) -> None:
    """The minutes and hours of the schedule repeat after exactly this time, also at midnight."""
    minute, hour = (part.replace("*/", "") for part in cron(minutes).split()[:2])
    every_minute, every_hour = ("/" in part for part in cron(minutes).split()[:2])
    times = [
        h * 60 + m
        for h in range(24)
        for m in range(60)
        if (m % int(minute) == 0 if every_minute else m == int(minute))
        and (hour == "*" or (h % int(hour) == 0 if every_hour else h == int(hour)))
    ]
    assert times == list(range(0, 24 * 60, minutes))


def test_a_workflow_of_azure_exports_to_the_container() -> None:
    """The workflow posts the `archive` action with its own identity, which has only this action, and only on the file system."""
    recording = recording_of("azure-recovery")
    workflow = recording.one(WORKFLOW, "train-scratch-0-export-schedule")
    definition = workflow.inputs["definition"]
    assert definition["triggers"]["interval"]["recurrence"] == {"frequency": "Minute", "interval": 15}
    request = definition["actions"]["export"]["inputs"]
    grant = recording.one("azure-native:authorization:RoleAssignment", "train-scratch-0-export").inputs
    assert request["uri"] == f"https://management.azure.com{grant['scope']}/archive?api-version=2024-03-01"
    assert "/amlFilesystems/" in grant["scope"]
    assert (request["method"], request["body"]) == ("POST", {"filesystemPath": "/"})
    role = recording.one("azure-native:authorization:RoleDefinition", "train-scratch-0-export-role").inputs
    assert grant["roleDefinitionId"].endswith(role["roleDefinitionId"])
    (rights,) = role["permissions"]
    assert rights["actions"] == ["Microsoft.StorageCache/amlFilesystems/archive/action"]
    assert workflow.inputs["identity"] == {"type": "SystemAssigned"}
    assert grant["principalId"] not in ("", "None")


def test_a_deployment_pauses_schedules_only_while_the_stack_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Google Cloud, the state of a job is otherwise left as it is. A workflow is enabled."""
    assert recording_of("azure-recovery").one(WORKFLOW).inputs["state"] == "Enabled"
    assert "paused" not in recording_of("gcp-recovery").one(JOB).inputs
    assert returning("azure-recovery", monkeypatch).one(WORKFLOW).inputs["state"] == "Disabled"
    assert returning("gcp-recovery", monkeypatch).one(JOB).inputs["paused"] is True


@pytest.mark.parametrize("stack", STACKS)
def test_a_paused_schedule_keeps_the_state_that_a_failover_gives_it(stack: str) -> None:
    """The schedule of a second region is created paused, and later deployments do not change its state."""
    spec = spec_of(stack)
    entry = spec.storage[0].model_copy(update={"export_paused": True})
    recording = recording_of_spec(spec.model_copy(update={"storage": (entry,)}), stack=stack)
    schedule = recording.one(STACKS[stack])
    name, value = ("paused", True) if stack == "gcp-recovery" else ("state", "Disabled")
    assert schedule.inputs[name] == value
    assert schedule.ignored == (name,)


@pytest.mark.parametrize("stack", STACKS)
def test_the_operator_can_create_pause_and_resume_schedules(stack: str) -> None:
    """A plan with a schedule requires these permissions, a role that only reads has none that changes, and a plan without a schedule has none."""
    prefix, changes = {
        "azure-recovery": ("Microsoft.Logic/", {f"Microsoft.Logic/workflows/{verb}" for verb in ("write", "delete", "enable/action", "disable/action")}),
        "gcp-recovery": ("cloudscheduler.", {f"cloudscheduler.jobs.{verb}" for verb in ("create", "update", "delete", "enable", "pause")}),
    }[stack]  # fmt: skip

    def listed(plan: Any, *, read_only: bool = False) -> set[str]:
        return {
            need.action for need in permissions_of(plan, read_only=read_only).needs if need.action.startswith(prefix)
        }

    plan = plan_of(stack)
    assert changes <= listed(plan)
    assert listed(plan, read_only=True)
    assert not listed(plan, read_only=True) & changes
    without = tuple(replace(one, export_minutes=None) for one in plan.file_systems)
    assert listed(replace(plan, file_systems=without)) == set()
