"""After a destroy, `adopt` finds the retained resources by the addresses of the resources of the program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from click.testing import CliRunner

from gpuinfra.base import naming
from gpuinfra.base.errors import EnvironmentMissing, UsageError
from gpuinfra.cli.adopt import command
from gpuinfra.clouds.gcp import adopt
from gpuinfra.clouds.gcp.adopt import Project, retained_in
from gpuinfra.clouds.gcp.resources import resources
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.spec import parse_spec
from gpuinfra_rehearsal.retained import is_imported
from tests.clouds.gcp.answers import PROJECT
from tests.clouds.gcp.variants import LUSTRE, variant
from tests.clouds.recorder import Recording
from tests.clouds.stacks import TODAY, recording_of_spec

STACK = "kept"
DECLARED: dict[str, Any] = {**variant("no storage"), "storage": [LUSTRE]}
SPEC = parse_spec(DECLARED)
"""A Lustre without a bucket is retained, together with its network."""

_SERVICES = {
    "gcp:storage/bucket:Bucket": "https://storage.googleapis.com/storage/v1/b/",
    "gcp:kms/keyRing:KeyRing": "https://cloudkms.googleapis.com/v1/",
    "gcp:kms/cryptoKey:CryptoKey": "https://cloudkms.googleapis.com/v1/",
    "gcp:compute/network:Network": "https://compute.googleapis.com/compute/v1/",
    "gcp:compute/globalAddress:GlobalAddress": "https://compute.googleapis.com/compute/v1/",
    "gcp:lustre/instance:Instance": "https://lustre.googleapis.com/v1/",
}
CONNECTION = "gcp:servicenetworking/connection:Connection"
GRANT = "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember"
LOG_BUCKET = "gcp:logging/projectBucketConfig:ProjectBucketConfig"
AUDIT_CONFIG = "gcp:projects/iAMAuditConfig:IAMAuditConfig"
CREATED_AGAIN = (GRANT, LOG_BUCKET, AUDIT_CONFIG)


@pytest.fixture(scope="module")
def program() -> Recording:
    """The resources of the program."""
    return recording_of_spec(SPEC, stack=STACK)


def _plan() -> Plan:
    return build_plan(SPEC, TODAY)


def _token() -> str:
    return naming.stack_token("organization", "gpuinfra", STACK, SPEC.name)


def _there(program: Recording) -> dict[str, dict[str, Any]]:
    """Address -> response for each retained resource of the program, as the project has them after a destroy."""
    known: dict[str, dict[str, Any]] = {}
    for one in program.custom:
        if one.retained and one.type in _SERVICES:
            known[_SERVICES[one.type] + one.id] = {"name": one.id}
    for address, answer in known.items():
        if "/global/networks/" in address:
            answer["peerings"] = [{"name": "servicenetworking-googleapis-com", "state": "ACTIVE"}]
    return known


def _look(known: Mapping[str, dict[str, Any]]) -> dict[tuple[str, str], str]:
    plan = _plan()
    found = retained_in(Project(known.get, PROJECT, plan, _token()), plan)
    return {(one.resource.type, one.resource.name): one.id for one in found}


def test_all_retained_resources_are_found_by_id(program: Recording) -> None:
    """Buckets, key rings, keys, network, addresses, peering and file system are found; grants and log buckets are created again."""
    found = _look(_there(program))
    kept = {(one.type, one.name) for one in resources(_plan()) if one.retained and one.type not in CREATED_AGAIN}
    assert set(found) == kept
    ids = {(one.type, one.name): one.id for one in program.custom}
    for key, id_ in found.items():
        if key[0] != CONNECTION:
            assert id_ == ids[key], key
    network = ids["gcp:compute/network:Network", "train-network-main"]
    assert found[CONNECTION, "train-network-services"] == f"{quote_plus(network)}:servicenetworking.googleapis.com"


def test_no_resource_is_found_in_an_empty_project(program: Recording) -> None:
    """Missing resources are not listed, and a network without a peering has no connection."""
    assert _look({}) == {}
    known = _there(program)
    for answer in known.values():
        answer.pop("peerings", None)
    assert (CONNECTION, "train-network-services") not in _look(known)


def test_grants_and_log_buckets_have_no_lookup() -> None:
    """Creating a grant again has no effect, and the create of a log bucket acquires it, while an imported one would be replaced."""
    again = [one for one in resources(_plan()) if one.type in CREATED_AGAIN and one.retained]
    assert {one.type for one in again} == set(CREATED_AGAIN)
    assert all(one.lookup is None for one in again)
    assert [is_imported(one) for one in (*CREATED_AGAIN, CONNECTION, "other:own/type:Type")] == [
        *(False for _ in CREATED_AGAIN),
        True,
        True,
    ]


class _Response:
    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status_code, self._body, self.text = status, body, json.dumps(body)

    def json(self) -> dict[str, Any]:
        return self._body


class _Session:
    def __init__(self, status: int) -> None:
        self._status = status

    def get(self, url: str, timeout: float, *, allow_redirects: bool) -> _Response:
        assert not allow_redirects
        assert url.startswith("https://")
        assert timeout > 0
        return _Response(self._status, {"error": {"message": "Permission denied on resource"}})


def test_a_refused_request_is_an_error() -> None:
    """403 raises with the message of Google and what to check; only 404 means that the resource does not exist."""
    assert adopt._get(_Session(404), "https://storage.googleapis.com/x") is None
    with pytest.raises(EnvironmentMissing, match=r"403 .*Permission denied.*application-default login"):
        adopt._get(_Session(403), "https://storage.googleapis.com/x")


def test_profile_is_refused() -> None:
    """The AWS option `--profile` is an error on Google Cloud."""
    with pytest.raises(UsageError, match="--profile applies to AWS only"):
        adopt.look(_plan(), _token(), {}, "somebody")


def test_the_command_writes_an_import_file(program: Recording, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`gpuinfra adopt` writes each resource with its parents and the version of the provider."""
    known = _there(program)
    stack = tmp_path / f"Pulumi.{STACK}.yaml"
    stack.write_text(json.dumps({"config": {"gpuinfra:cluster": DECLARED}}))
    monkeypatch.setattr(
        adopt,
        "look",
        lambda plan, token, settings, profile: retained_in(Project(known.get, PROJECT, plan, token), plan),
    )
    out = tmp_path / "adopt.json"
    result = CliRunner().invoke(command, [str(stack), "--out", str(out)])
    assert result.exit_code == 0, result.output
    rows = json.loads(out.read_text())["resources"]
    resources_ = [row for row in rows if "id" in row]
    assert len(resources_) == len(_look(known))
    assert all(row["version"] for row in resources_)
    above = {row["name"] for row in rows if row.get("component")}
    assert all(row["parent"] in above for row in resources_)
    assert "pulumi import" in result.output
