"""`gpuinfra.stack.declared` without credentials."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pulumi
import pytest

from gpuinfra import stack
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.preflight import missing_credentials

CLOUDS = {
    "aws": ("us-east-1", "AWS: no credentials: boto3 finds none in environment variables, profiles or the metadata service", "aws sso login"),
    "azure": ("eastus", "Azure: no credentials: DefaultAzureCredential failed", "az login"),
    "gcp": ("us-central1", "Google Cloud: no credentials: Your default credentials were not found", "gcloud auth application-default login"),
}  # fmt: skip
"""Cloud -> region, start of the message, command that gets credentials."""


class Unavailable:
    """azure-identity on a machine without a login."""

    def get_token(self, *_: str) -> None:
        from azure.identity import CredentialUnavailableError

        raise CredentialUnavailableError(message="DefaultAzureCredential failed to retrieve a token.")


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without credentials and without a metadata service."""
    import os

    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "ARM_", "GOOGLE_", "GCLOUD_", "CLOUDSDK_", "IDENTITY_", "MSI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", Unavailable)


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_program_without_credentials_ends_with_one_message(cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the cloud, the command that logs in, and the rehearsal. The engine shows no traceback for this exception."""
    region, start, login = CLOUDS[cloud]
    machine = {"aws": "p4d.24xlarge", "azure": "Standard_ND96asr_v4", "gcp": "a3-megagpu-8g"}[cloud]
    pool = {"name": "gpu", "machine": machine, "capacity": [{"kind": "spot", "count": 1}]}
    declared = {"name": "train", "where": {"cloud": cloud, "region": region}, "pools": [pool]}
    monkeypatch.setattr(stack, "_stack_folder", Path)
    monkeypatch.setattr(pulumi, "Config", config(declared))
    with pytest.raises(pulumi.RunError) as caught:
        stack.declared()
    message = str(caught.value)
    assert message.startswith(start)
    assert login in message
    assert "gpuinfra rehearse up" in message
    assert "\n" not in message


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize("cloud", CLOUDS)
def test_credentials_of_the_provider_are_not_judged(cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable or a provider setting that selects credentials ends the check, because the provider reports problems with them."""
    module = cloud_of(cloud).preflight
    assert module is not None
    assert missing_credentials(module, "", lambda _: None)
    for name, selects in module.SETTINGS.items():
        found = missing_credentials(module, "", lambda one, name=name: "x" if one == name else None)
        assert (found is None) is selects, name
    for name in module.CREDENTIALS:
        with monkeypatch.context() as changed:
            changed.setenv(name, "x")
            assert missing_credentials(module, "", lambda _: None) is None, name


def config(declared: dict[str, Any]) -> type:
    """`pulumi.Config` with this declaration and no provider settings."""

    class Config:
        def __init__(self, package: str) -> None:
            self.package = package

        def get_object(self, key: str) -> Any:
            return json.loads(json.dumps(declared)) if (self.package, key) == ("gpuinfra", "cluster") else None

        def get(self, _: str) -> None:
            return None

    return Config


@pytest.mark.parametrize(
    ("cloud", "sdk"), [("aws", "pulumi_aws"), ("azure", "pulumi_azure_native"), ("gcp", "pulumi_gcp")]
)
def test_login_settings_are_settings_of_the_provider(cloud: str, sdk: str) -> None:
    """Each provider setting about the login is a setting that the provider's SDK reads."""
    text = (Path(importlib.util.find_spec(sdk).submodule_search_locations[0]) / "config/vars.py").read_text()  # pyright: ignore[reportOptionalMemberAccess, reportOptionalSubscript]
    for name in importlib.import_module(f"gpuinfra.clouds.{cloud}.preflight").SETTINGS:
        assert re.search(rf"__config__\.get(_bool)?\('{name.partition(':')[2]}'\)", text), name
