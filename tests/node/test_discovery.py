"""`node.pyz discovery`, and the secrets of the control node on Azure and Google Cloud."""

from __future__ import annotations

import argparse
import base64
import io
import json
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node import azure, cloud, discovery, gcp, secrets
from gpuinfra.node.cloud import CloudError
from gpuinfra.node.console import OK, MissingPrerequisite

SECRET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/gpu-alerts/secrets/slack"
URL = "https://hooks.example.com/x"


class Account:
    """A cloud with names of an account."""

    def __init__(self, **names: str) -> None:
        self._names = names

    def account(self) -> dict[str, str]:
        if not self._names:
            raise CloudError("the metadata service did not respond")
        return self._names


def written(folder: Path, text: str, node: object, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> str:
    """Run the command with a cloud and fields of `node.json`, and return the file that it writes."""
    (folder / "run").mkdir(exist_ok=True)
    (folder / "prometheus.yml").write_text(text)
    monkeypatch.setattr(cloud, "of", lambda _: node)
    (folder / "names.json").write_text(json.dumps({"remote-write": "token"} if hasattr(node, "secret") else {}))
    for module in (discovery, secrets):
        monkeypatch.setattr(module, "load", lambda path, *_: json.loads(path.read_text()) if path.name == "names.json" else settings)  # fmt: skip
    files = (folder / "prometheus.yml", folder / "run", folder / "names.json")
    assert discovery.discovery(argparse.Namespace(), *files) == OK
    return (folder / "run" / "prometheus.yml").read_text()


def test_names_of_the_account_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `${name}` becomes the name, and only the user of Prometheus can read the file."""
    text = json.dumps({"project": "${project}", "filter": 'status = "x"'})
    assert json.loads(written(tmp_path, text, Account(project="my-project"), monkeypatch))["project"] == "my-project"
    assert (tmp_path / "run" / "prometheus.yml").stat().st_mode & 0o777 == 0o400


def test_a_file_without_names_needs_no_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On AWS, the file contains no names, so it is copied without a request."""
    assert written(tmp_path, '{"region": "us-east-1"}', None, monkeypatch) == '{"region": "us-east-1"}'


@pytest.mark.parametrize(
    ("url", "valid"),
    [
        ("https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-0f1e/api/v1/remote_write", True),
        ("", False),
        ('https://example.com/write", "sigv4": "', False),
    ],
    ids=["valid", "missing", "another structure"],
)
def test_the_address_of_the_managed_store_is_that_of_the_node_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, valid: bool
) -> None:
    """`${metrics_url}` becomes the address in `node.json`, without a request, and no other text changes the structure of the file."""
    text = json.dumps({"url": "${metrics_url}"})
    if valid:
        assert json.loads(written(tmp_path, text, None, monkeypatch, metrics_url=url)) == {"url": url}
    else:
        with pytest.raises(MissingPrerequisite, match=r"node.json contains .* as the metrics_url of this machine"):
            written(tmp_path, text, None, monkeypatch, metrics_url=url)


@pytest.mark.parametrize(
    ("topics", "valid"),
    [
        ({"email_0": "arn:aws:sns:us-east-1:000000000000:watched-email-0-recipients-0a1b2c3"}, True),
        ({}, False),
        ({"email_0": 'arn", "sigv4": "'}, False),
    ],
    ids=["valid", "missing", "another structure"],
)
def test_the_topics_of_receivers_are_those_of_the_node_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: dict[str, str], valid: bool
) -> None:
    """`${email_0}` becomes the address in `node.json`, without a request, and no other text changes the structure of the file."""
    text = json.dumps({"topic_arn": "${email_0}"})
    if valid:
        changed = written(tmp_path, text, None, monkeypatch, alert_topics=topics)
        assert json.loads(changed) == {"topic_arn": topics["email_0"]}
    else:
        with pytest.raises(MissingPrerequisite, match=r"node.json contains .* as the email_0 of this machine"):
            written(tmp_path, text, None, monkeypatch, alert_topics=topics)


def test_the_secret_of_the_remote_endpoint_is_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the user of Prometheus can read the secret, which is not part of the configuration."""

    class Store(Account):
        def secret(self, name: str) -> str:
            return f"value of {name}\n"

    assert "value" not in written(tmp_path, "{}", Store(project="p"), monkeypatch)
    file = tmp_path / "run" / "remote-write"
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("value of token", 0o400)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (Account(), "the names of the account: the metadata service did not respond"),
        (Account(other="x"), "returned '' as the project"),
        (Account(project='x", "zone": "y'), "as the project of this machine"),
        (object(), "nodes of this cloud cannot read the names"),
    ],
    ids=["no answer", "no such name", "not a name", "another cloud"],
)
def test_a_name_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: object, reason: str
) -> None:
    """Prometheus does not start with a name that is missing, or that would change the structure of the file."""
    with pytest.raises(MissingPrerequisite, match=reason):
        written(tmp_path, '{"project": "${project}"}', node, monkeypatch)
    assert not (tmp_path / "run" / "prometheus.yml").exists()


class Answers:
    """Answers requests by the end of their path."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers
        self.requests: list[urllib.request.Request] = []

    def open(self, request: urllib.request.Request, timeout: float) -> io.BytesIO:
        self.requests.append(request)
        path = request.full_url.partition("?")[0]
        answer = next(value for end, value in self._answers.items() if path.endswith(end))
        if isinstance(answer, int):
            body = json.dumps({"error": {"code": "Forbidden", "message": "Permission denied", "innererror": {"code": "ForbiddenByRbac"}}})  # fmt: skip
            raise urllib.error.HTTPError(request.full_url, answer, "", Message(), io.BytesIO(body.encode()))
        return _Reply(answer if isinstance(answer, bytes) else json.dumps(answer).encode())


class _Reply(io.BytesIO):
    headers = {"Metadata-Flavor": "Google"}


GOOGLE = {"project/project-id": b"my-project", "default/token": {"access_token": "t"}}
AZURE = {"oauth2/token": {"access_token": "t"}}


def asked(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]) -> Answers:
    """Answer the requests of the node."""
    opener = Answers(answers)
    for module in (cloud, azure):
        monkeypatch.setattr(module, "OPENER", opener)
    return opener


def test_google_returns_the_newest_version_of_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name belongs to the project of the node, and the value is decoded."""
    payload = {"payload": {"data": base64.b64encode(URL.encode()).decode()}}
    opener = asked(monkeypatch, {**GOOGLE, "latest:access": payload})
    assert gcp.GcpNode({}).secret("alerts-slack") == URL
    address, _, path = opener.requests[-1].full_url.partition("/v1/")
    assert address == "https://secretmanager.googleapis.com"
    assert path == "projects/my-project/secrets/alerts-slack/versions/latest:access"


def test_google_states_why_a_secret_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the secret, the status and Google's reason."""
    asked(monkeypatch, {**GOOGLE, "latest:access": 403})
    with pytest.raises(CloudError, match="secret alerts-slack could not be read: 403 Permission denied"):
        gcp.GcpNode({}).secret("alerts-slack")


def test_azure_reads_a_secret_at_its_vault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resource ID leads to the URL of the vault, and the token is for Key Vault and for the identity of the control node."""
    opener = asked(monkeypatch, {**AZURE, "secrets/slack": {"value": URL}})
    assert azure.AzureNode("client", {}).secret(SECRET) == URL
    token, read = (one.full_url for one in opener.requests)
    assert "resource=https%3A%2F%2Fvault.azure.net&client_id=client" in token
    assert read == "https://gpu-alerts.vault.azure.net/secrets/slack?api-version=7.4"


def test_azure_states_why_a_secret_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the URL of the secret, the status and the codes of Key Vault."""
    asked(monkeypatch, {**AZURE, "secrets/slack": 403})
    with pytest.raises(
        CloudError,
        match=r"gpu-alerts\.vault\.azure\.net/secrets/slack could not be read: 403 Forbidden ForbiddenByRbac",
    ):
        azure.AzureNode("client", {}).secret(SECRET)


def test_an_id_of_another_resource_is_refused() -> None:
    """A name that is not the ID of a secret never becomes a URL."""
    with pytest.raises(CloudError, match="is not the resource ID of a Key Vault secret"):
        azure.AzureNode("client", {}).secret("https://evil.example.com/secrets/slack")
