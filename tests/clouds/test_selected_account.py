"""The account, project, subscription and credentials that a stack selects, against those of the environment."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinfra.clouds.aws import adopt as aws_adopt
from gpuinfra.clouds.aws.preflight import Preflight as AwsPreflight
from gpuinfra.clouds.azure import adopt as azure_adopt
from gpuinfra.clouds.azure.preflight import Preflight as AzurePreflight
from gpuinfra.clouds.gcp import adopt as gcp_adopt
from gpuinfra.clouds.gcp import credentials as gcp_credentials
from gpuinfra.clouds.gcp.preflight import Preflight as GcpPreflight
from gpuinfra.plan.make import build_plan
from gpuinfra.rules import load_stack
from tests.clouds.stacks import TODAY

ROOT = Path(__file__).parents[2]
DECLARED = "declared-0001"
SUBSCRIPTION = "00000000-0000-4000-8000-00000000000d"
RAW = {
    "rules/stack.py": "reports settings that differ from the declaration",
    "region/clone": "writes the settings of another file",
    "region/readiness.py": "reads the setting of clones",
    "cli/failover.py": "computes the checksum of the file",
    "spec/load.py": "defines both",
}
"""Modules that read the settings of a file without the declaration, and why."""


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that selects another project, subscription and profile than each stack."""
    for name in (*gcp_credentials.PROJECTS, "ARM_SUBSCRIPTION_ID", "AZURE_SUBSCRIPTION_ID", "AWS_PROFILE"):
        monkeypatch.setenv(name, "of-the-environment")
    credentials = SimpleNamespace(valid=True)
    monkeypatch.setattr(gcp_credentials, "find", lambda scopes: (credentials, "of-the-environment"))


def _stack(tmp_path: Path, shipped: str, line: str = "", where: str = "") -> Any:
    path = tmp_path / "Pulumi.lab.yaml"
    text = (ROOT / f"stacks/Pulumi.{shipped}.yaml").read_text()
    path.write_text(text.replace("config:\n", f"config:\n{line}", 1).replace("where: {", "where: {" + where, 1))
    return load_stack(path, date(2026, 11, 21))


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(("line", "where"), [("", f"project: {DECLARED}, "), (f"  gcp:project: {DECLARED}\n", "")])
def test_google_commands_ask_the_declared_project(
    line: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live checks and `adopt` ask the project in `where.project` or `gcp:project`, whatever the credentials and the environment select."""
    stack = _stack(tmp_path, "gcp-a3mega", line, where)
    cloud = GcpPreflight("us-central1", stack.settings)
    cloud.login()
    assert cloud.project == DECLARED

    urls: list[str] = []
    monkeypatch.setattr("google.auth.transport.requests.AuthorizedSession", lambda credentials: None)
    monkeypatch.setattr(gcp_adopt, "_get", lambda session, url: urls.append(url))
    gcp_adopt.look(build_plan(stack.spec, TODAY), "0a1b2c3d", stack.settings, None)
    assert any(f"projects/{DECLARED}/" in url for url in urls)
    assert not [url for url in urls if "of-the-environment" in url]


@pytest.mark.usefixtures("environment")
def test_azure_commands_ask_the_declared_subscription(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The live checks and `adopt` ask the subscription in `azure-native:subscriptionId`, whatever the environment selects."""
    stack = _stack(tmp_path, "azure-ndv5", f"  azure-native:subscriptionId: {SUBSCRIPTION}\n")
    assert AzurePreflight("eastus", stack.settings).subscription == SUBSCRIPTION

    paths: list[str] = []

    class Empty:
        def arm(self, path: str, api: str) -> None:
            paths.append(path)

    monkeypatch.setattr("gpuinfra.clouds.azure.rest.Rest", Empty)
    azure_adopt.look(build_plan(stack.spec, TODAY), "0a1b2c3d", stack.settings, None)
    assert paths
    assert all(path.startswith(f"/subscriptions/{SUBSCRIPTION}/") for path in paths)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(("option", "used"), [(None, DECLARED), ("team", "team")])
def test_aws_commands_use_the_declared_profile(
    option: str | None, used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live checks and `adopt` use the credentials of `aws:profile`. The option `--profile` of `adopt` replaces it."""
    profiles: list[str | None] = []

    def session(**values: Any) -> Any:
        profiles.append(values["profile_name"])
        return SimpleNamespace(get_credentials=lambda: object())

    monkeypatch.setattr("boto3.session.Session", session)
    monkeypatch.setattr("boto3.Session", session)
    monkeypatch.setattr(aws_adopt, "Account", lambda *_: None)
    monkeypatch.setattr(aws_adopt, "retained_in", lambda account, plan: ())
    stack = _stack(tmp_path, "aws-p4d", f"  aws:profile: {DECLARED}\n")
    AwsPreflight("us-east-1", stack.settings).find_credentials()
    aws_adopt.look(build_plan(stack.spec, TODAY), "0a1b2c3d", stack.settings, option)
    assert profiles == [DECLARED, used]


def _raw_reads(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Attribute)
            and node.attr == "config"
            and ast.unparse(node.value).endswith(("loaded", "stack"))
        ):
            yield f"{path.relative_to(ROOT / 'gpuinfra')}:{node.lineno}"


def test_requests_use_the_settings_with_the_declaration() -> None:
    """Outside the modules in the list, no code reads the settings of a stack file without what the declaration selects."""
    reads = [read for path in (ROOT / "gpuinfra").rglob("*.py") for read in _raw_reads(path)]
    assert [read for read in reads if not read.startswith(tuple(RAW))] == []
