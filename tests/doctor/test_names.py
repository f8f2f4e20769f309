"""The names that must be free before a deployment, on each cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.base import naming
from gpuinfra.clouds.aws import adopt as aws_adopt
from gpuinfra.clouds.gcp import adopt as gcp_adopt
from gpuinfra.clouds.preflight import PreflightRow, RowState, ok, problem
from gpuinfra.doctor import cloud
from gpuinfra.doctor.cloud import live_rows
from gpuinfra.spec.load import read_stack
from tests.doctor import aws as account
from tests.doctor import test_aws_live as aws
from tests.doctor import test_azure_live as azure
from tests.doctor import test_gcp_live as gcp
from tests.doctor.arm import Arm

OWN, TAKEN = (
    "if the stack is not deployed, an earlier deployment retained them (`gpuinfra adopt`)",
    "in use by a resource that is not part of this stack",
)
ERROR = {"ok": RowState.OK, "error": RowState.ERROR}


def names(rows: list[PreflightRow]) -> PreflightRow:
    """The row about names."""
    (row,) = [row for row in rows if row.topic == "names"]
    return row


@pytest.mark.parametrize(
    ("status", "state", "said"), [(404, "ok", " names are free"), (200, "ok", OWN), (403, "error", TAKEN)]
)
def test_buckets_on_aws(monkeypatch: pytest.MonkeyPatch, status: int, state: str, said: str) -> None:
    """A bucket that does not exist is free, one in this account belongs to the stack, and one in a different account is an error."""
    wanted = aws_adopt.buckets(aws.P4D, "123456789012", aws.TOKEN)

    def head(asked: dict[str, str]) -> dict[str, str]:
        if asked["Bucket"] != wanted[0]:
            raise account.Refusal("404", "Not Found", 404)
        if status != 200:
            raise account.Refusal(str(status), "Forbidden", status)
        return {}

    rows, used = aws.ask(monkeypatch, aws.P4D, HeadBucket=head)
    row = names(rows)
    assert (row.state, said in row.found) == (ERROR[state], True)
    asked = [given for name, given in used.requests if name == "s3:HeadBucket"]
    assert sorted(one["Bucket"] for one in asked) == sorted(wanted)
    assert {one["ExpectedBucketOwner"] for one in asked} == {"123456789012"}
    assert naming.bucket_name("train", "evidence", "123456789012", "us-east-1", aws.TOKEN) in wanted


@pytest.mark.parametrize("key", ["accounts", "vaults"])
def test_names_on_azure(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """A name that is available is free, a resource of the stack in this subscription is no problem, and a name in use is an error."""
    arm: Arm = azure.healthy()
    row = names(azure.ask(arm, monkeypatch))
    assert (row.state, row.found) == (RowState.OK, f"all {len(arm.names)} names are free")
    kinds = {"accounts": "Microsoft.Storage/storageAccounts", "vaults": "Microsoft.KeyVault/vaults"}
    assert {one["type"] for one in arm.names} == set(kinds.values())
    mine = [one["name"] for one in arm.names if one["type"] == kinds[key]]
    # The response for a name in use: examples of Test-AzKeyVaultNameAvailability and Get-AzStorageAccountNameAvailability, retrieved 2026-11-27.
    arm.answers[azure.PATHS[key]] = (200, {"nameAvailable": False, "reason": "AlreadyExists", "message": "in use"})
    row = names(azure.ask(arm, monkeypatch))
    assert row.state is RowState.ERROR
    assert all(name in row.found for name in mine)
    assert TAKEN in row.found
    for path in [one for one in arm.requests if one.rpartition("/")[2] in mine]:
        arm.answers[path] = (200, {"id": path})
    row = names(azure.ask(arm, monkeypatch))
    assert (row.state, OWN in row.found) == (RowState.OK, True)


@pytest.mark.parametrize(
    ("status", "state", "said"), [(404, "ok", " names are free"), (200, "ok", OWN), (403, "error", TAKEN)]
)
def test_buckets_on_google_cloud(monkeypatch: pytest.MonkeyPatch, status: int, state: str, said: str) -> None:
    """A bucket that does not exist is free, one that the identity can read belongs to the stack, and one in a different project is an error."""
    google = gcp.healthy(monkeypatch)
    name = gcp_adopt.buckets(gcp.PLAN, gcp.PROJECT, gcp.TOKEN)[0]
    text = (
        "ana@example.com does not have storage.buckets.get access to the Google Cloud Storage bucket. "
        "Permission 'storage.buckets.get' denied on resource (or it may not exist)."
    )
    google.answers[f"/storage/storage/v1/b/{name}"] = {
        404: gcp.error(404, "The specified bucket does not exist.", "NOT_FOUND"),
        200: (200, {"name": name}),
        403: gcp.error(403, text, "PERMISSION_DENIED"),
    }[status]
    row = names(gcp.ask())
    assert (row.state, said in row.found) == (ERROR[state], True)


@pytest.mark.parametrize(
    ("backend", "found"),
    [
        (ok("state", "backend", "file:///state"), "all 4 names are free"),
        (ok("state", "backend", "https://api.pulumi.com"), "not checked, because the names depend on the organization"),
        (
            problem("state", "backend", "not logged in", "a login", "pulumi login"),
            "not checked without the state backend",
        ),
    ],
)
def test_names_depend_on_the_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: PreflightRow, found: str
) -> None:
    """The names contain the organization and the project. In Pulumi Cloud and without a backend, they are skipped with a fix."""
    monkeypatch.setattr("gpuinfra.doctor.state.backend", lambda *_, **__: iter([backend]))
    used = account.use(monkeypatch, aws.healthy())
    monkeypatch.setattr("gpuinfra.clouds.aws.preflight.statements", lambda plan: aws.FEW)
    (tmp_path / "Pulumi.yaml").write_text("name: mine\nruntime: python\n")
    path = tmp_path / "Pulumi.aws-p4d.yaml"
    path.write_text((Path(cloud.__file__).parents[2] / "stacks" / path.name).read_text())
    row = names(live_rows(read_stack(path)))
    assert row.found.startswith(found)
    if row.state is RowState.OK:
        token = naming.stack_token("organization", "mine", "aws-p4d", "train")
        assert all(one["Bucket"].endswith(token) for name, one in used.requests if name == "s3:HeadBucket")
    else:
        assert row.state is RowState.SKIPPED
        assert row.fix
