"""`gcloud` in a rehearsal: OS Login and Identity-Aware Proxy."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from gpuinfra_rehearsal.programs import parsed, relayed, run, variable

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_key(words: list[str]) -> int:
    """Add a key to the operator's OS Login profile, and print the profile."""
    words = [word for word in words if word != "--quiet"]
    given = parsed("gcloud compute os-login ssh-keys add", words, ("--key-file", "--format"), ("--ttl", "--project"))
    if given.format != "json":
        sys.exit("gcloud: a rehearsal prints only JSON; add --format=json")
    body = {"key": Path(given.key_file).read_text(encoding="utf-8")}
    if match := re.fullmatch(r"(\d+)([smhd])", given.ttl):
        body["expirationTimeUsec"] = str(int((time.time() + int(match[1]) * _SECONDS[match[2]]) * 1_000_000))
    session, email = _session()
    base = variable("CLOUDSDK_API_ENDPOINT_OVERRIDES_OSLOGIN")
    answer = session.post(f"{base}v1/users/{email}:importSshPublicKey", json=body)
    print(json.dumps(_checked(answer)))
    return 0


def start_tunnel(words: list[str]) -> int:
    """Connect standard input and output to a port of an instance."""
    if len(words) < 2 or "--listen-on-stdin" not in words:
        sys.exit("gcloud: a rehearsal requires INSTANCE PORT --listen-on-stdin")
    name, port, *rest = words
    rest = [word for word in rest if word != "--listen-on-stdin"]
    given = parsed("gcloud compute start-iap-tunnel", rest, ("--zone", "--project"), ("--verbosity",))
    session, _ = _session()
    base = variable("CLOUDSDK_API_ENDPOINT_OVERRIDES_OSLOGIN").replace("oslogin/", "tunnel/")
    asked = {"project": given.project, "zone": given.zone, "instance": name, "port": port}
    return relayed(int(_checked(session.get(f"{base}v4/connect", params=asked))["port"]))


def _session() -> tuple[Any, str]:
    from google.auth.transport.requests import AuthorizedSession
    from google.oauth2 import service_account

    scopes = ["https://www.googleapis.com/auth/cloud-platform"]
    file = variable("GOOGLE_APPLICATION_CREDENTIALS")
    credentials: Any = service_account.Credentials.from_service_account_file(file, scopes=scopes)  # pyright: ignore[reportUnknownMemberType]
    return AuthorizedSession(credentials), credentials.service_account_email


def _checked(answer: Any) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    if answer.status_code != 200:
        sys.exit(f"ERROR: (gcloud) {body['error']['message']}")
    return body


if __name__ == "__main__":
    run("gcloud", {("compute", "os-login", "ssh-keys", "add"): add_key, ("compute", "start-iap-tunnel"): start_tunnel})
