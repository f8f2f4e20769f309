"""The account, project, subscription and credentials that a stack selects, against those of the environment."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import pulumi
import pytest

from gpuinfra.base.errors import EnvironmentMissing, SpecError
from gpuinfra.base.findings import Level
from gpuinfra.clouds.aws import adopt as aws_adopt
from gpuinfra.clouds.aws import credentials, instance_connect
from gpuinfra.clouds.aws import pending as aws_pending
from gpuinfra.clouds.aws.preflight import Preflight as AwsPreflight
from gpuinfra.clouds.aws.region import failover as aws_failover
from gpuinfra.clouds.azure import adopt as azure_adopt
from gpuinfra.clouds.azure.preflight import Preflight as AzurePreflight
from gpuinfra.clouds.gcp import adopt as gcp_adopt
from gpuinfra.clouds.gcp import credentials as gcp_credentials
from gpuinfra.clouds.gcp.preflight import Preflight as GcpPreflight
from gpuinfra.clouds.pending import StackIdentity
from gpuinfra.handover.connect import connect
from gpuinfra.inventory import Node
from gpuinfra.plan.make import build_plan
from gpuinfra.remote.tunnels import hosts_of
from gpuinfra.rules import load_stack
from gpuinfra.search import outcome
from tests.clouds.stacks import TODAY, recording_of_spec, spec_of
from tests.servers import Answering, serve

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
    monkeypatch.setattr(aws_adopt, "Account", lambda *_: None)
    monkeypatch.setattr(aws_adopt, "retained_in", lambda account, plan: ())
    stack = _stack(tmp_path, "aws-p4d", f"  aws:profile: {DECLARED}\n")
    AwsPreflight("us-east-1", stack.settings).find_credentials()
    aws_adopt.look(build_plan(stack.spec, TODAY), "0a1b2c3d", stack.settings, option)
    assert profiles == [DECLARED, used]


FIRST, SECOND = "arn:aws:iam::111111111111:role/hub", "arn:aws:iam::222222222222:role/deploy"
ROLES = [{"roleArn": FIRST}, {"roleArn": SECOND, "externalId": "e-1", "sessionName": "ci", "duration": "1h30m"}]
ROLES_LINE = f"  aws:assumeRoles: {json.dumps(ROLES)}\n"


def _answer(action: str, result: str) -> bytes:
    text = f"<{action}Result>{result}</{action}Result>"
    return f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">{text}</{action}Response>'.encode()


@dataclass
class Sts:
    """A security token service: each assumed role gets its own key."""

    assumed: list[dict[str, str]] = field(default_factory=list)
    """Parameters of each `AssumeRole`, with the key that signed it as `signed`."""
    callers: list[str] = field(default_factory=list)
    """The keys that signed other requests."""


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Sts]:
    """AWS on a local port, with the key `AKIAENV` in the environment."""
    service = Sts()

    class Handler(Answering):
        def do_POST(self) -> None:
            body = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            key = self.headers["Authorization"].partition("Credential=")[2].partition("/")[0]
            if body.get("Action") != "AssumeRole":
                service.callers.append(key)
                identity = (
                    "<Account>222222222222</Account><Arn>arn:aws:iam::222222222222:user/a</Arn><UserId>u</UserId>"
                )
                self.answer(200, _answer("GetCallerIdentity", identity))
                return
            service.assumed.append({**body, "signed": key})
            name = body["RoleArn"].rpartition("/")[2]
            keys = (
                f"<AccessKeyId>{name}</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
            )
            keys += "<Expiration>2100-01-01T00:00:00Z</Expiration>"
            self.answer(200, _answer("AssumeRole", f"<Credentials>{keys}</Credentials>"))

    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_STS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    with serve(Handler) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        yield service


def _as_deployed(value: object) -> list[dict[str, Any]]:
    """The provider in the state of a stack, whose inputs contain lists as JSON."""
    return [{"type": "pulumi:providers:aws", "inputs": {"region": "us-east-1", "assumeRoles": json.dumps(value)}}]


def _caller_of(path: str, settings: Any) -> Any:
    """The requests of one path through the product: they must be signed with the key of the last role."""
    if path == "live checks":
        cloud = AwsPreflight("us-east-1", settings)
        assert list(cloud.identity())
    elif path == "failover":
        aws_failover.client_of(settings)("sts", "us-east-1").get_caller_identity()
    elif path == "handover":
        inputs = {"cloud": "aws", "region": "us-east-1", "evidenceBucket": "b", "evidencePrefix": "p"}
        ports = connect({**inputs, "assumeRoles": json.dumps(settings["aws:assumeRoles"])})
        ports.identity._sts.get_caller_identity()  # pyright: ignore[reportAttributeAccessIssue]
    elif path == "continued run":
        account = aws_pending.lookup(StackIdentity(tokens=frozenset(), ids=frozenset()), settings)
        account._session.client("sts", region_name="us-east-1").get_caller_identity()
    elif path == "adopt":
        credentials.session(settings, "us-east-1").client("sts").get_caller_identity()
    return None


@pytest.mark.parametrize("path", ["live checks", "failover", "handover", "continued run", "adopt"])
def test_requests_on_aws_assume_the_declared_roles(path: str, sts: Sts, tmp_path: Path) -> None:
    """With `aws:assumeRoles`, each request is signed with the key of the last role, and each role is assumed with the key of the one before it."""
    _caller_of(path, _stack(tmp_path, "aws-p4d", ROLES_LINE).settings)
    assert [one["signed"] for one in sts.assumed] == ["AKIAENV", "hub"]
    assert [one["RoleArn"] for one in sts.assumed] == [FIRST, SECOND]
    last = sts.assumed[-1]
    assert (last["ExternalId"], last["RoleSessionName"], last["DurationSeconds"]) == ("e-1", "ci", "5400")
    assert set(sts.callers) == {"deploy"}


def test_a_session_with_roles_sends_no_request_before_its_first(sts: Sts, tmp_path: Path) -> None:
    """The search for credentials of a preview assumes no role."""
    AwsPreflight("us-east-1", _stack(tmp_path, "aws-p4d", ROLES_LINE).settings).find_credentials()
    assert sts.assumed == []


def test_ssh_on_aws_assumes_the_roles_of_the_provider(
    sts: Sts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instance Connect and Session Manager run with the keys of the last role of the provider in the state."""
    node = Node(name="gpu-1", id="i-1", pool="gpu", address="10.0.0.9")
    (host,) = hosts_of(
        [node], cloud="aws", region="us-east-1", direct=False, folder=tmp_path, resources=_as_deployed(ROLES)
    ).hosts
    seen: list[str | None] = []
    keys = "aws_access_key_id=AKIAENV\naws_secret_access_key=s"
    (tmp_path / "none").write_text(f"[profile of-the-environment]\n{keys}\n")
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.setenv(name, "of-the-environment")

    def started(*_: Any, env: dict[str, str], **__: Any) -> Any:
        assert not {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"} & set(env)
        seen.append(env["AWS_ACCESS_KEY_ID"])
        return SimpleNamespace(returncode=0)

    def replaced(*words: Any) -> None:
        started(env=words[-1])
        raise SystemExit

    monkeypatch.setattr(instance_connect.subprocess, "run", started)
    monkeypatch.setattr(instance_connect.os, "execvpe", replaced)
    with pytest.raises(SystemExit):
        instance_connect.main(host.proxy_words()[3:])
    assert seen == ["deploy", "deploy"]


def test_the_search_reads_the_groups_with_the_credentials_of_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for capacity asks the account of the provider in the state which groups have nodes."""
    given: list[dict[str, str]] = []

    def members(*_: Any, **access: str) -> Any:
        given.append(access)
        return SimpleNamespace(membership=SimpleNamespace(members=lambda groups: []))

    monkeypatch.setattr(outcome, "ports_of", members)
    group = {
        "urn": "urn:pulumi:s::p::aws:autoscaling/group:Group::gpu",
        "id": "g",
        "type": "aws:autoscaling/group:Group",
    }
    outcome.running_groups("aws", "us-east-1", [*_as_deployed(ROLES), group])
    assert json.loads(given[0]["assume_roles"]) == ROLES


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("{}", "it is not a list"),
        ('[{"sessionName": "x"}]', "a role has no roleArn"),
        ('[{"roleArn": "a", "duration": "90"}]', "has no unit"),
        ('[{"roleArn": "a", "role": "b"}]', "unknown key role"),
        ([{"roleArn": {"secure": "v1:x"}}], "only by the provider"),
        ("[", "cannot be used"),
    ],
)
def test_roles_that_cannot_be_read_are_an_error(value: object, reason: str) -> None:
    """A setting with another form is reported and never ignored."""
    with pytest.raises(EnvironmentMissing, match=reason):
        credentials.roles_of(value)


@pytest.mark.parametrize(
    ("shipped", "line", "path"),
    [
        ("aws-p4d", "  aws:accessKey: AKIA\n  aws:secretKey: {secure: v1:x}\n", "aws:accessKey"),
        ("aws-p4d", "  aws:endpoints: [{ec2: http://x}]\n", "aws:endpoints"),
        (
            "azure-ndv5",
            "  azure-native:clientId: c\n  azure-native:clientSecret: {secure: v1:x}\n",
            "azure-native:clientId",
        ),
        ("azure-ndv5", "  azure-native:tenantId: t\n", "azure-native:tenantId"),
        ("gcp-a3mega", "  gcp:impersonateServiceAccount: a@b\n", "gcp:impersonateServiceAccount"),
        ("gcp-a3mega", "  gcp:credentials: {secure: v1:x}\n", "gcp:credentials"),
        ("gcp-a3mega", "  gcp:computeCustomEndpoint: http://x\n", "gcp:computeCustomEndpoint"),
    ],
)
def test_settings_of_the_provider_alone_are_one_finding(shipped: str, line: str, path: str, tmp_path: Path) -> None:
    """A setting that selects credentials or endpoints and that gpuinfra's own requests cannot use is one warning with the line and the replacement."""
    findings = [one for one in _stack(tmp_path, shipped, line).findings if "only to the provider" in one.message]
    at = [
        number for number, text in enumerate((tmp_path / "Pulumi.lab.yaml").read_text().splitlines(), 1) if path in text
    ]
    assert [(one.path, one.level, one.line) for one in findings] == [(path, Level.WARN, at[0])]


def test_secret_roles_are_an_error(tmp_path: Path) -> None:
    """Commands cannot read a secret setting, so the roles have to be plain."""
    line = "  aws:assumeRoles: [{roleArn: {secure: v1:x}}]\n"
    with pytest.raises(SpecError, match=r"aws:assumeRoles.*is a secret"):
        _stack(tmp_path, "aws-p4d", line)


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


def test_one_module_creates_the_sessions_of_aws() -> None:
    """Only `clouds/aws/credentials.py` creates sessions and clients of boto3 without a session, so all requests use the declared credentials."""
    creators = {
        str(path.relative_to(ROOT / "gpuinfra"))
        for path in (ROOT / "gpuinfra").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("boto3.Session", "boto3.session.Session", "boto3.client", "boto3.resource")
    }
    assert creators == {"clouds/aws/credentials.py"}


@pytest.mark.parametrize("profile", [DECLARED, None])
def test_the_handover_uses_the_profile_of_the_resources(profile: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for verified nodes reads AWS with `aws:profile`, as the provider does, and so do `verify`, `nodes` and `refresh`, which read its inputs."""
    given = {"profile": profile, "assumeRoles": profile and json.dumps(ROLES)}
    monkeypatch.setattr(pulumi.Config, "get", lambda config, key, default=None: given.get(key, default))
    ready = recording_of_spec(spec_of("aws-p4d"), stack="aws-p4d").one("gpuinfra:index:NodesReady")
    assert (ready.inputs.get("profile"), ready.inputs.get("assumeRoles")) == (profile, given["assumeRoles"])


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

    def replace_process(_: str, given: list[str], __: dict[str, str]) -> None:
        calls.append(given)
        raise SystemExit

    monkeypatch.setattr(
        instance_connect.subprocess, "run", lambda given, **_: calls.append(given) or SimpleNamespace(returncode=0)
    )
    monkeypatch.setattr(instance_connect.os, "execvpe", replace_process)
    with pytest.raises(SystemExit):
        instance_connect.main(host.proxy_words()[3:])
    assert [call[call.index("--region") + 2 :] for call in calls] == [expected, expected]
