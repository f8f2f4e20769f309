"""The plugin finds Google credentials in each form that the Pulumi provider takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuinfra.clouds.gcp import credentials as gcp_credentials
from gpuinfra.clouds.gcp.handover import ports as gcp
from gpuinfra.handover.connect import handover_of
from gpuinfra.handover.ports import PortUnavailable

USER = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = (gcp_credentials.TOKEN, *gcp_credentials.KEYS, gcp_credentials.IMPERSONATED, *gcp_credentials.PROJECTS)
    for name in (*names, "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "no-gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


def test_an_access_token_is_used_before_a_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """GOOGLE_OAUTH_ACCESS_TOKEN holds a token or the path of a file with one, and has precedence."""
    monkeypatch.setenv("GOOGLE_CREDENTIALS", json.dumps(USER))
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "ya29.first")
    assert gcp_credentials.find(SCOPES)[0].token == "ya29.first"
    (tmp_path / "token").write_text("ya29.second\n", encoding="utf-8")
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", str(tmp_path / "token"))
    assert gcp_credentials.find(SCOPES)[0].token == "ya29.second"


@pytest.mark.parametrize("variable", gcp_credentials.KEYS)
@pytest.mark.parametrize("as_file", [True, False])
def test_a_key_is_a_path_or_its_content(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, as_file: bool
) -> None:
    """Each variable of the provider takes a key file or its content."""
    path = tmp_path / "key.json"
    path.write_text(json.dumps(USER), encoding="utf-8")
    monkeypatch.setenv(variable, str(path) if as_file else json.dumps(USER))
    assert gcp_credentials.find(SCOPES)[0].refresh_token == "r"


def test_a_service_account_is_impersonated(monkeypatch: pytest.MonkeyPatch) -> None:
    """GOOGLE_IMPERSONATE_SERVICE_ACCOUNT applies to every form."""
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "ya29.first")
    monkeypatch.setenv("GOOGLE_IMPERSONATE_SERVICE_ACCOUNT", "deploy@p.iam.gserviceaccount.com")
    assert gcp_credentials.find(SCOPES)[0].service_account_email == "deploy@p.iam.gserviceaccount.com"


def test_missing_credentials_name_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A preview fails before anything is created, and an unreadable key names its variable."""
    with pytest.raises(PortUnavailable, match="GOOGLE_OAUTH_ACCESS_TOKEN"):
        handover_of("gcp").check_credentials()
    monkeypatch.setenv("GOOGLE_CREDENTIALS", "/no/such/file.json")
    with pytest.raises(PortUnavailable, match="GOOGLE_CREDENTIALS contains neither"):
        gcp.check_credentials()
    handover_of("aws").check_credentials()
