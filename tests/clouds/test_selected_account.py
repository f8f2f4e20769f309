"""The account, project, subscription and credentials that a stack selects, against those of the environment."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest

from gpuinfra.cli import COMMANDS
from gpuinfra.clouds.aws import adopt as aws_adopt
from gpuinfra.clouds.aws import instance_connect
from gpuinfra.clouds.aws.preflight import Preflight as AwsPreflight
from gpuinfra.clouds.azure import adopt as azure_adopt
from gpuinfra.clouds.azure.preflight import Preflight as AzurePreflight
from gpuinfra.clouds.gcp import adopt as gcp_adopt
from gpuinfra.clouds.gcp import credentials as gcp_credentials
from gpuinfra.clouds.gcp.preflight import Preflight as GcpPreflight
from gpuinfra.inventory import Node
from gpuinfra.plan.make import build_plan
from gpuinfra.remote.tunnels import hosts_of
from gpuinfra.rules import load_stack
from tests.clouds.stacks import TODAY, recording_of_spec, spec_of

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

SETTINGS = "LoadedStack.settings: the capabilities of `Cloud`"
STATE = "the state: IDs and paths of resources, and on AWS the profile of the provider and of the handover"
NOWHERE = "asks no account: files, public prices, or the page of permissions"
ACCOUNT_OF = {
    **dict.fromkeys(("adopt", "calendar", "doctor", "failback", "failover", "images", "names", "plan", "ready", "up"), SETTINGS),
    **dict.fromkeys(
        ("bootstrap", "check", "cp", "drift", "env", "nodes", "pairs", "replace", "run", "ssh", "verify"), STATE
    ),
    **dict.fromkeys(
        ("alerts", "cache", "catalog", "clone", "completion", "explain", "init", "permissions", "prices", "rehearse", "schema", "size"),
        NOWHERE,
    ),
}  # fmt: skip
"""Where each command takes the account, the project, the subscription and the credentials from."""


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


def test_the_account_of_each_command_is_decided() -> None:
    """Each command of the parser takes its account from the settings or from the state, or asks none. A new command has to be added here."""
    assert set(ACCOUNT_OF) == set(COMMANDS)


def test_each_session_on_aws_has_a_profile() -> None:
    """No code creates a session of boto3 without the declared profile, except with the keys of an assumed role."""
    sessions = {
        f"{path.relative_to(ROOT / 'gpuinfra')}:{node.lineno}": {keyword.arg for keyword in node.keywords}
        for path in (ROOT / "gpuinfra").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("boto3.Session", "boto3.session.Session")
    }
    assert len(sessions) > 5
    assert [where for where, given in sessions.items() if not given & {"profile_name", "aws_access_key_id"}] == []


@pytest.mark.parametrize("profile", [DECLARED, None])
def test_the_handover_uses_the_profile_of_the_resources(profile: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for verified nodes reads AWS with `aws:profile`, as the provider does, and so do `verify`, `nodes` and `refresh`, which read its inputs."""
    monkeypatch.setattr(pulumi.Config, "get", lambda config, key, default=None: {"profile": profile}.get(key, default))
    ready = recording_of_spec(spec_of("aws-p4d"), stack="aws-p4d").one("gpuinfra:index:NodesReady")
    assert ready.inputs.get("profile") == profile


@pytest.mark.parametrize(("inputs", "expected"), [({"profile": DECLARED}, ["--profile", DECLARED]), ({}, [])])
def test_ssh_on_aws_uses_the_profile_of_the_provider(
    inputs: dict[str, str], expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instance Connect and Session Manager get the profile of the provider in the state, whatever the environment selects."""
    monkeypatch.setenv("AWS_PROFILE", "of-the-environment")
    resources = [{"type": "pulumi:providers:aws", "inputs": {"region": "us-east-1", **inputs}}]
    node = Node(name="gpu-1", id="i-1", pool="gpu", address="10.0.0.9")
    (host,) = hosts_of(
        [node], cloud="aws", region="us-east-1", direct=False, folder=tmp_path, resources=resources
    ).hosts
    calls: list[list[str]] = []

    def replace_process(_: str, given: list[str]) -> None:
        calls.append(given)
        raise SystemExit

    monkeypatch.setattr(
        instance_connect.subprocess, "run", lambda given, **_: calls.append(given) or SimpleNamespace(returncode=0)
    )
    monkeypatch.setattr(instance_connect.os, "execvp", replace_process)
    with pytest.raises(SystemExit):
        instance_connect.main(host.proxy_words()[3:])
    assert [call[call.index("--region") + 2 :] for call in calls] == [expected, expected]
