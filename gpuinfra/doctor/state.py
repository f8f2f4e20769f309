"""Questions about Pulumi's state: whether the backend can be reached, and whether its secrets can be decrypted.

The Pulumi CLI opens the backend (`pulumi whoami`), so that logins, settings and storage drivers are the same as for `pulumi up`.
In an empty bucket or folder, the CLI writes its marker `.pulumi/meta.yaml`, as every Pulumi command does.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra.base.json_text import parsed
from gpuinfra.base.safe_text import one_line
from gpuinfra.clouds.preflight import PreflightQuestion, PreflightRow, ok, problem, skipped, warning
from gpuinfra.doctor.machine import as_run_here
from gpuinfra.engine import find_engine

TIMEOUT_S = 15.0
PHRASE, PHRASE_FILE = "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"
LOGIN = "pulumi login, or pulumi login --local, or pulumi login s3://BUCKET, azblob://CONTAINER or gs://BUCKET"
TOPIC = "state"
NO_LOGIN = "PULUMI_ACCESS_TOKEN must be set|not logged in"
"""Messages of the Pulumi CLI without a login."""

FIXES = (
    (rf"{NO_LOGIN}|401", "a login", LOGIN),
    (r"unable to open state directory|no such file or directory", "an existing folder", "create the folder, or run `pulumi login` with a different folder"),
    (r"permission denied|AccessDenied|403|not authorized", "read and write access to the backend", ("grant this identity access to the backend, "
        "or run `pulumi login` with a different backend")),
    (r"credentials", "credentials of the cloud that stores the state", "log in to that cloud, or run `pulumi login` with a different backend"),
    (r"connection refused|no such host|timeout|deadline exceeded", "a connection to the backend", "check the network and the proxy (HTTPS_PROXY)"),
)  # fmt: skip
"""Part of an error message of the Pulumi CLI -> what is needed and the fix. The first match applies. Messages of Pulumi 3.259."""


def questions(folder: Path, provider: str | None, *, required: bool) -> Iterator[PreflightQuestion]:
    """Yield the questions for a project folder. `provider` is the secrets provider of the stack, or None without a stack.

    If not `required`, a missing login is no problem.
    """
    yield PreflightQuestion(topic=TOPIC, where="backend", ask=lambda: backend(folder, provider, required=required))


def backend(folder: Path, provider: str | None, *, required: bool = True) -> Iterator[PreflightRow]:
    """The state backend can be reached, and its secrets can be decrypted."""
    try:
        engine = find_engine(may_build=False)
    except EnvironmentMissing:
        yield skipped(TOPIC, "backend", "not checked without an engine", "python -m gpuinfra.engine")
        return
    words = [str(engine.path), "whoami", "--json", "--non-interactive", "--color=never"]
    environment = {**engine.environ(), "PULUMI_SKIP_UPDATE_CHECK": "1"}
    try:
        done = subprocess.run(
            words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        fix = "check the network and the proxy (HTTPS_PROXY)"
        yield problem(TOPIC, "backend", f"no response within {TIMEOUT_S:g} s", "a connection to the backend", fix)
        return
    if done.returncode != 0:
        said = (done.stderr.strip() or "no error message").splitlines()[-1].removeprefix("error: ")
        needed, fix = next(
            ((needed, fix) for pattern, needed, fix in FIXES if re.search(pattern, said)), ("a login", LOGIN)
        )
        what = without_login(one_line(said))
        if required or not re.search(NO_LOGIN, said):
            yield problem(TOPIC, "backend", what, needed, as_run_here(fix))
        else:
            yield skipped(TOPIC, "backend", f"{what}; a rehearsal requires no login", as_run_here(fix))
        return
    try:
        url = str(parsed(done.stdout).get("url") or "")
    except (ValueError, AttributeError):
        yield problem(
            TOPIC,
            "backend",
            "`pulumi whoami --json` printed a document in an unknown format",
            "a JSON object",
            "update Pulumi",
        )
        return
    yield ok(TOPIC, "backend", without_login(one_line(url)))
    yield from secrets(url, provider)


def secrets(url: str, provider: str | None) -> Iterator[PreflightRow]:
    """The passphrase is available if the secrets provider is a passphrase. Its value is never shown."""
    if provider not in (None, "", "passphrase", "default"):
        yield ok(TOPIC, "secrets", f"secrets provider {without_login(one_line(provider))}")
    elif url.startswith(("https://", "http://")):
        yield ok(TOPIC, "secrets", "Pulumi Cloud encrypts the secrets")
    elif os.environ.get(PHRASE) is not None:
        yield ok(TOPIC, "secrets", f"{PHRASE} is set")
    elif file := os.environ.get(PHRASE_FILE):
        if os.access(file, os.R_OK) and Path(file).is_file():
            yield ok(TOPIC, "secrets", f"{PHRASE_FILE} is set")
        else:
            needed, fix = "a file with the passphrase", f"export {PHRASE_FILE}=FILE"
            yield problem(TOPIC, "secrets", f"{PHRASE_FILE} is {one_line(file)}, which cannot be read", needed, fix)
    else:
        what = f"neither {PHRASE} nor {PHRASE_FILE} is set, so Pulumi prompts for the passphrase"
        yield warning(
            TOPIC, "secrets", what, "a passphrase for commands without a terminal", f"export {PHRASE_FILE}=FILE"
        )


def without_login(text: str) -> str:
    """Return the text without user names and passwords in URLs, and without access keys in their queries."""
    text = re.sub(r"(://)[^/@\s]+@", r"\1", text)
    return re.sub(
        r"([?&][^=&\s]*(?:key|token|sig|secret|password)[^=&\s]*=)[^&\s\"']+", r"\1***", text, flags=re.IGNORECASE
    )
