"""Each command asks the account, the project, the subscription and the region that the stack declares, whatever the environment selects.

The commands run in this process. Requests end in the transport of the SDKs (botocore, requests, urllib), and programs are stand-ins on PATH.
"""

from __future__ import annotations

import io
import json
import os
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

import azure.identity
import pulumi
import pytest
import requests
from botocore.awsrequest import AWSResponse
from botocore.httpsession import URLLib3Session
from botocore.parsers import ResponseParser
from requests.adapters import HTTPAdapter

from gpuinfra.base.registry import CLOUDS
from gpuinfra.base.shipped import shipped
from gpuinfra.cli import COMMANDS, main
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region import reach
from gpuinfra.clouds.region.readiness import TOPICS
from gpuinfra.region.clone.make import clone
from gpuinfra.region.clone.model import CloneRequest
from gpuinfra.region.failover.back import IGNORABLE as IGNORABLE_BACK
from gpuinfra.region.failover.journal import FailoverJournal
from gpuinfra.region.failover.steps import IGNORABLE
from gpuinfra.spec.document import parse
from gpuinfra.spec.load import LoadedStack, stack_in
from tests.clouds.azure.answers import SUBSCRIPTION
from tests.clouds.gcp.answers import PROJECT
from tests.clouds.recorder import ACCOUNT, Recording, _Cloud
from tests.clouds.stacks import TODAY, recording_of_spec
from tests.region.failover.shared import MemoryRecord

OTHER = "of-the-environment"
"""The account that the environment selects."""
ELSEWHERE = {"aws": "eu-west-3", "gcp": "europe-west9", "azure": "francecentral"}
"""The region that the environment selects. No stack declares it."""
REGIONS = {
    "aws": ("us-east-2", "us-west-2"),
    "gcp": ("us-central1", "us-east4"),
    "azure": ("southcentralus", "eastus2"),
}
"""The region that the stack declares, and its second region."""
SETTINGS = {
    "aws": {"aws:profile": "declared"},
    "gcp": {"gcp:project": PROJECT},
    "azure": {"azure-native:subscriptionId": SUBSCRIPTION},
}
ZONES = {
    "aws": "Z0123456789ABCDEFGHIJ",
    "gcp": f"projects/{PROJECT}/managedZones/example",
    "azure": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/dns/providers/Microsoft.Network/privateDnsZones/example.com",
}
GRAFANA = {
    "aws": "https://g-0123456789.grafana-workspace.us-east-2.amazonaws.com",
    "azure": "https://lab-abcd.eus.grafana.azure.com",
}
VARIABLES = {
    "aws": {
        "AWS_ACCESS_KEY_ID": OTHER, "AWS_SECRET_ACCESS_KEY": "s", "AWS_PROFILE": OTHER, "AWS_DEFAULT_PROFILE": OTHER,
        "AWS_REGION": ELSEWHERE["aws"], "AWS_DEFAULT_REGION": ELSEWHERE["aws"],
    },
    "gcp": {
        **dict.fromkeys(("GOOGLE_PROJECT", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"), OTHER),
        **dict.fromkeys(("GOOGLE_REGION", "GCLOUD_REGION", "CLOUDSDK_COMPUTE_REGION"), ELSEWHERE["gcp"]),
        **dict.fromkeys(("GOOGLE_ZONE", "GCLOUD_ZONE", "CLOUDSDK_COMPUTE_ZONE"), f"{ELSEWHERE['gcp']}-a"),
        "GOOGLE_OAUTH_ACCESS_TOKEN": "token",
    },
    "azure": {
        **dict.fromkeys(("ARM_SUBSCRIPTION_ID", "AZURE_SUBSCRIPTION_ID"), OTHER),
        **dict.fromkeys(("ARM_LOCATION", "ARM_LOCATION_NAME", "AZURE_LOCATION", "AZURE_DEFAULTS_LOCATION"), ELSEWHERE["azure"]),
    },
}  # fmt: skip
"""The variables with which the SDKs, the command line tools and the Pulumi providers select an account and a region."""


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB alice@example.com"
NODES = {
    "aws": "i-00000000000000001",
    "gcp": f"projects/{PROJECT}/zones/us-central1-a/instances/gpu-1",
    "azure": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/lab/providers/Microsoft.Compute/virtualMachines/gpu-1",
}
"""The resource of the only node in the state."""

NETWORKS = ("aws:ec2/vpc:Vpc", "gcp:compute/network:Network", "azure-native:network:VirtualNetwork")

NOWHERE = {
    **dict.fromkeys(("catalog", "prices", "size"), "the public prices of a cloud, which require no account"),
    **dict.fromkeys(("alerts", "clone", "completion", "explain", "init", "permissions", "schema"), "files and text of this package"),
    "cache": "files of this machine",
    "env": "the state alone",
    "rehearse": "the stand-in cloud on this machine",
}  # fmt: skip
"""Commands that contact no account, and what they use instead."""
S = "Pulumi.lab.yaml"
CASES: dict[str, tuple[tuple[str, ...], ...]] = {
    "adopt": ((S,),),
    "bootstrap": ((S, "--timeout", "1"),),
    "calendar": ((S,), (S, "--offers")),
    "check": ((S, "--timeout", "1"),),
    "cp": ((S, "gpu-1:/a", "b"),),
    "dashboards": ((S, "--grafana", "GRAFANA"),),
    "doctor": ((S,),),
    "drift": ((S,),),
    "drill": ((S, "--live", "--dry-run"),),
    "failback": ((S, "--yes", "IGNORE_BACK"), (S, "--yes", "--abort")),
    "failover": ((S, "--to", "SECOND", "--yes", "IGNORE"), (S, "--to", "SECOND", "--abort", "--yes")),
    "images": ((S, "--live"),),
    "logs": ((S,),),
    "maintenance": ((S, "gpu-1", "--for", "1h"),),
    "metrics": ((S,),),
    "names": ((S,), (S, "--to", "SECOND", "--yes")),
    "nodes": ((S,),),
    "pairs": ((S, "--shared-folder", "/x"),),
    "plan": ((S, "--live"),),
    "ready": ((S,), (S, "--record")),
    "replace": ((S, "gpu-1", "--yes"),),
    "run": ((S, "--timeout", "1", "--", "true"),),
    "ssh": ((S, "gpu-1", "true"),),
    "up": ((S, "--yes"), (S, "--yes", "--resume")),
    "verify": ((S,),),
}
"""Command -> the runs of a case. GRAFANA and SECOND stand for values of the cloud."""


MOST = 300
"""Requests of a case, after which the command is interrupted."""


@dataclass
class Contacts:
    """The requests and the programs that a command started."""

    cloud: str
    folder: Path
    entries: list[tuple[str, str, str, Mapping[str, str]]] = field(default_factory=list)
    """Service, region of the signature (AWS), text of the request, and headers."""

    def add(self, service: str, region: str, text: str, headers: Mapping[str, str] | None = None) -> None:
        """Record a request."""
        if len(self.entries) == MOST:  # The command waits for a change that no answer reports.
            raise KeyboardInterrupt
        self.entries.append((service, region, unquote(text), dict(headers or {})))

    @property
    def programs(self) -> list[str]:
        """The command lines of the tools of the clouds."""
        log = self.folder / "programs.txt"
        return log.read_text().splitlines() if log.exists() else []


AWS_ANSWERS = {
    "GetServiceQuota": {"Quota": {"Value": 1000000.0}},
    "ListServiceQuotas": {"Quotas": []},
    "DescribeLogGroups": {"logGroups": []},
    "GetParameter": {"Parameter": {"Value": "ami-00000000000000001"}},
}


def _aws_answer(request: Any) -> tuple[int, bytes]:
    """Status and body: no object, and otherwise an empty result in the protocol of the request."""
    body = request.body.decode("latin-1") if isinstance(request.body, bytes) else str(request.body or "")
    kind, target = str(request.headers.get("Content-Type") or ""), request.headers.get("X-Amz-Target") or ""
    target = target.decode() if isinstance(target, bytes) else target
    if action := re.search(r"Action=(\w+)", body):
        identity = f"<Account>{ACCOUNT}</Account><Arn>arn:aws:iam::{ACCOUNT}:user/a</Arn><UserId>u</UserId>"
        inside = identity if action[1] == "GetCallerIdentity" else ""
        return 200, f"<R><{action[1]}Result>{inside}</{action[1]}Result></R>".encode()
    if ".s3." in request.url or "route53" in request.url:
        missing = "/gpuinfra/" in request.url
        return (404, b"<Error><Code>NoSuchKey</Code></Error>") if missing else (200, b"<R/>")
    if target.endswith("DescribeKey"):
        return 400, b'{"__type": "NotFoundException"}'
    return 200, b"\xa0" if "cbor" in kind else json.dumps(AWS_ANSWERS.get(target.rpartition(".")[2], {})).encode()


class _Answer(io.BytesIO):
    """A response as urllib returns it."""

    status = 200
    headers: Mapping[str, str] = {}


class _Raw(io.BytesIO):
    """A response body as botocore reads it."""

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        yield self.read()


PROGRAM = """#!/bin/sh
echo "${0##*/} $* AWS_PROFILE=$AWS_PROFILE AWS_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID" >> "%s"
case "$*" in *os-login*) echo '{"loginProfile": {"posixAccounts": [{"primary": true, "username": "me"}]}}';; *) exit 1;; esac
"""
PULUMI = """#!/bin/sh
case "$*" in
    version*) echo v9.0.0;;
    *"stack export"*) set -- $*; while [ "$1" != --stack ]; do shift; done; cat "$STATE/$2.json";;
    *whoami*) echo '{"url": "file:///elsewhere", "user": "me"}';;
    *) exit 0;;
esac
"""


@cache
def _stacks(cloud: str) -> tuple[tuple[str, str, Any], ...]:
    """The name, the file and the state of the declared stack and of the stack of its second region."""
    path = Path(S).absolute()
    document: Any = parse((shipped("stacks") / f"Pulumi.{cloud}-recovery.yaml").read_text(), S).value
    config: dict[str, Any] = {**document["config"], **SETTINGS[cloud]}
    cluster = config["gpuinfra:cluster"]
    cluster |= {"monitoring": {}, "software": {**cluster.get("software", {}), "gpu_metrics": "dcgm_exporter"}}
    if cloud == "aws":
        cluster["logs"] = {}
    if cloud == "azure":
        cluster["access"] |= {"ssh_keys": [KEY], "bastion": True}
    cluster["recovery"] |= {"names": {"zone": ZONES[cloud], "domain": "train.example.com"}}
    text = json.dumps({"config": config}, indent=1)
    first = stack_in(parse(text, S), path)
    state = _state(first, "lab")
    (replica,) = [
        one["outputs"]["buckets"]["scratch-0"]
        for one in state
        if "buckets" in (one["outputs"] or {}) and "scratch-0" in one["outputs"]["buckets"]
    ][:1]
    request = CloneRequest(region=REGIONS[cloud][1], values=(("storage[0].bucket", replica),))
    (file,) = clone(first, text, request, TODAY).files
    second = stack_in(parse(file.text, file.path.name), path.with_name(file.path.name))
    return (("lab", text, state), (file.stack, file.text, _state(second, file.stack)))


def _state(stack: LoadedStack, name: str) -> list[dict[str, Any]]:
    """The state after a deployment, with one node."""
    pulumi.runtime.set_all_config({key: str(value) for key, value in stack.settings.items()})
    try:
        recording = recording_of_spec(stack.spec, stack=name)
    finally:
        pulumi.runtime.set_all_config({})
    cloud, answers = stack.spec.cloud, _Cloud(Recording(), {})
    provider = {"aws": "aws", "gcp": "gcp", "azure": "azure-native"}[cloud]
    settings = {key.partition(":")[2]: value for key, value in stack.settings.items() if key.startswith(f"{provider}:")}
    state = [
        {
            "urn": "p",
            "type": f"pulumi:providers:{provider}",
            "id": "p",
            "custom": True,
            "inputs": settings,
            "outputs": settings,
        }
    ]
    for one in recording.resources:
        made = (
            answers.new_resource(SimpleNamespace(typ=one.type, name=one.name, inputs=one.inputs))[1]
            if one.custom
            else {}
        )
        outputs = {**made, **recording.outputs.get(one.urn, {})}
        if one.type == "gpuinfra:index:NodesReady":
            group = one.inputs["pools"][0]["groups"][0]["group"]
            node = {
                "label": "gpu-1",
                "instanceId": NODES[cloud].rpartition("/")[2],
                "pool": "gpu",
                "group": group,
                "privateIp": "10.0.0.9",
            }
            node |= {"zone": "us-central1-a", "resource": NODES[cloud], "outcome": "verified"}
            outputs |= {"nodes": [node, {**node, "label": "monitoring-1", "pool": "monitoring"}]}
        state.append(
            {
                "urn": one.urn,
                "type": one.type,
                "id": one.id,
                "custom": one.custom,
                "inputs": one.inputs,
                "outputs": outputs,
            }
        )
    return _plain(state)


def _plain(value: Any) -> Any:
    """A value as in an exported state: whole numbers without a fraction, and assets as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int | float | None) else str(value)


@pytest.fixture(params=CLOUDS)
def contacts(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Contacts:
    """A project with a deployed stack, in an environment that selects other accounts and regions. Nothing leaves this process."""
    cloud = request.param
    found = Contacts(cloud, tmp_path)
    for variables in VARIABLES.values():
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
    tools = tmp_path / "tools"
    tools.mkdir()
    programs = {
        **dict.fromkeys(("aws", "az", "gcloud", "session-manager-plugin"), PROGRAM % (tmp_path / "programs.txt")),
        "pulumi": PULUMI,
        "pulumi-language-python": PULUMI,
    }
    for name, text in programs.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    profiles = {"declared": "", OTHER: f"region={ELSEWHERE['aws']}\n"}
    (tmp_path / "aws").write_text(
        "".join(
            f"[profile {name}]\naws_access_key_id={name}\naws_secret_access_key=s\n{more}"
            for name, more in profiles.items()
        )
    )
    for name, value in {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "STATE": str(tmp_path),
        "AWS_CONFIG_FILE": str(tmp_path / "aws"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "GPUINFRA_CACHE": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GRAFANA_TOKEN", raising=False)
    (tmp_path / "Pulumi.yaml").write_text("name: gpuinfra\nruntime: python\n")
    monkeypatch.chdir(tmp_path)
    for name, text, state in _stacks(cloud):
        (tmp_path / f"Pulumi.{name}.yaml").write_text(text)
        (tmp_path / f"{name}.json").write_text(json.dumps({"version": 3, "deployment": {"resources": state}}))

    def to_aws(_: object, sent: Any) -> AWSResponse:
        signed = re.search(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/", str(sent.headers.get("Authorization") or ""))
        key, region, service = signed.groups() if signed else ("unsigned", "", sent.url)
        found.add(service, region, f"{key} {sent.method} {sent.url}")
        status, body = _aws_answer(sent)
        return AWSResponse(sent.url, status, {}, _Raw(body))

    parse_answer = ResponseParser.parse

    def lists(parser: Any, answer: Any, shape: Any) -> Any:
        """Set the lists that an empty result does not contain."""
        parsed = parse_answer(parser, answer, shape)
        members = shape.members.items() if shape is not None else ()
        return {**{key: [] for key, member in members if member.type_name == "list"}, **parsed}

    def to_google(_: object, sent: Any, **__: object) -> requests.Response:
        found.add("google", "", f"{sent.method} {sent.url} {sent.body}", sent.headers)
        answer = requests.Response()
        missing = "/o/" in sent.url or "/family/" in sent.url
        answer.status_code, answer.raw, answer.url, answer.request = (
            404 if missing else 200,
            io.BytesIO(b"{}"),
            sent.url,
            sent,
        )
        return answer

    def to_azure(_: object, sent: Any, *__: object, **___: object) -> Any:
        url = sent if isinstance(sent, str) else sent.full_url
        found.add("azure", "", f"{url} {'' if isinstance(sent, str) else sent.data}")
        path = urlsplit(url).path
        if ".blob." in url or "/vaults/" in path or "/userAssignedIdentities/" in path:
            raise urllib.error.HTTPError(url, 404, "missing", Message(), io.BytesIO(b"{}"))
        name = path.rpartition("/")[2]
        endpoints = {"blob": f"https://{name}.blob.core.windows.net/"}
        document = {
            "name": name,
            "state": "Enabled",
            "sku": {"capacity": 0},
            "properties": {"primaryEndpoints": endpoints},
        }
        return _Answer(json.dumps({**document, "value": []}).encode())

    def refused(*_: object) -> None:
        raise OSError("nothing leaves this process")

    monkeypatch.setattr(URLLib3Session, "send", to_aws)
    monkeypatch.setattr(ResponseParser, "parse", lists)
    monkeypatch.setattr(HTTPAdapter, "send", to_google)
    monkeypatch.setattr(urllib.request.OpenerDirector, "open", to_azure)
    monkeypatch.setattr(socket.socket, "connect", refused)
    wait = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: wait(min(seconds, 0.01)))
    token = SimpleNamespace(token="h.e30.s", expires_on=4e9)
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", lambda: SimpleNamespace(get_token=lambda *_: token))
    return found


WITHOUT = {
    ("dashboards", "gcp"): "Google Cloud has no managed Grafana",
    ("drill", "azure"): "a live drill exists on AWS only",
    ("drill", "gcp"): "a live drill exists on AWS only",
    ("logs", "azure"): "gpuinfra sends no logs there",
    ("logs", "gcp"): "gpuinfra sends no logs there",
}
"""Commands that contact nothing on one of the clouds."""
GLOBAL = ("iam", "route53", "budgets")
"""Services of AWS whose only endpoint is in another Region."""
PROGRAM_WORDS = {
    "aws": ("--region us-east-2", "--profile declared"),
    "gcp": (f"--project {PROJECT}",),
    "azure": (f"--subscription {SUBSCRIPTION}",),
}
"""Options of the tool of each cloud that select the declared account."""
IMAGES = {"ubuntu-os-accelerator-images", "ubuntu-os-cloud"}
"""Projects with public images of Google Cloud."""


def problems(found: Contacts) -> Iterator[str]:
    """The requests and the programs that do not name what the stack declares."""
    for service, region, text, headers in found.entries:
        other = OTHER in f"{text} {headers}" or ELSEWHERE[found.cloud] in f"{region} {text}"
        if found.cloud == "gcp":
            other |= bool(set(re.findall(r"\bprojects?[/=]([^/?&:\"]+)", text)) - {PROJECT} - IMAGES)
        elif found.cloud == "azure":
            other |= bool(set(re.findall(r"/subscriptions/([^/?]+)", text)) - {SUBSCRIPTION})
        elif service not in ("azure", "google"):
            other |= not text.startswith("declared ") or (region not in REGIONS["aws"] and service not in GLOBAL)
        if other:
            yield f"{service} {region}: {text}"
    yield from (line for line in found.programs if not all(word in line for word in PROGRAM_WORDS[found.cloud]))


def _interrupt(file: Path) -> None:
    """Change a state as a kill does while the network is created."""
    document = json.loads(file.read_text())
    resources = document["deployment"]["resources"]
    (network,) = [one for one in resources if one["type"] in NETWORKS][:1]
    resources.remove(network)
    document["deployment"]["pending_operations"] = [
        {"type": "creating", "resource": {**network, "id": "", "outputs": {}}}
    ]
    file.write_text(json.dumps(document))


@pytest.mark.parametrize("command", CASES)
def test_a_command_asks_what_the_stack_declares(
    command: str, contacts: Contacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All requests and programs of a command name the declared account and one of the declared regions."""
    values = {
        "SECOND": [REGIONS[contacts.cloud][1]],
        "GRAFANA": [GRAFANA.get(contacts.cloud, "https://grafana.example.com")],
        "IGNORE": [word for topic in (*TOPICS, *IGNORABLE) for word in ("--ignore", topic)],
        "IGNORE_BACK": [word for topic in IGNORABLE_BACK for word in ("--ignore", topic)],
    }
    monkeypatch.setattr("gpuinfra.region.failover.steps.POLL_S", 0.0)
    monkeypatch.setattr(reach, "PROOF_S", 0.0)
    # Its requests are those of `verify`.
    monkeypatch.setattr("gpuinfra.verification.store.await_nodes", lambda *_: "2 of 2 nodes verified")
    if command in ("failover", "failback"):
        # `names` and `drift` read the same record.
        record = MemoryRecord()
        monkeypatch.setattr(type(cloud_of(contacts.cloud)), "record", lambda *_: record)
    if command in ("up", "failover", "failback"):
        # `doctor` asks the same questions, and their answers would end these commands.
        monkeypatch.setattr("gpuinfra.doctor.run.live_rows", lambda *_: [])
        monkeypatch.setattr("gpuinfra.doctor.cloud.live_rows", lambda *_: [])
    if command == "failback":
        journal = FailoverJournal(Path(S))
        journal.begin("lab", REGIONS[contacts.cloud][1], {})
        journal.end()
        journal.close()
    for words in CASES[command]:
        if "--resume" in words:
            _interrupt(contacts.folder / "lab.json")
        main([command, *(word for given in words for word in values.get(given, [given]))])
    assert contacts.entries or contacts.programs or (command, contacts.cloud) in WITHOUT
    assert list(problems(contacts)) == []


def test_each_command_has_a_case() -> None:
    """Each command of the parser asks a declared account, or contacts none for a stated reason."""
    assert sorted([*CASES, *NOWHERE]) == sorted(COMMANDS)
