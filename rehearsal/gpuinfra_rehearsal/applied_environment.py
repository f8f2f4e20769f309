"""The environment of every process that a rehearsal starts. It is built from scratch, not filtered from the user's
environment.

A rehearsal reads only the given stack file. It does not read the user's Pulumi state, tokens, cloud credentials, or
settings under HOME. Only TMPDIR and the variables in `PASSED_ON` are inherited.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import gpuinfra
from gpuinfra_rehearsal import endpoints
from gpuinfra_rehearsal.folder import Folder

MARKER = "GPUINFRA_REHEARSAL"
"""The environment variable that holds the rehearsal folder in every process of a rehearsal. The next run uses it to
find leftover processes."""

PASSED_ON = (
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TERM",
    "NO_COLOR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "LD_LIBRARY_PATH",
    "GPUINFRA_DEBUG",
)
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment(folder: Folder, python: Path | None = None) -> dict[str, str]:
    """Return the base environment of this rehearsal. The engine adds its own folder to PATH."""
    interpreter = str(python or sys.executable)
    env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    env |= {
        MARKER: str(folder.base),
        "HOME": str(folder.empty_home),
        "PATH": f"{Path(interpreter).parent}:{SYSTEM_PATH}",
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
        "PYTHONDONTWRITEBYTECODE": "1" if not os.access(Path(__file__).parents[1], os.W_OK) else "",
        "PULUMI_HOME": str(folder.pulumi_home),
        "PULUMI_BACKEND_URL": f"file://{folder.state}",
        "PULUMI_CONFIG_PASSPHRASE": folder.passphrase(),
        "PULUMI_SKIP_UPDATE_CHECK": "1",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",
        "PULUMI_PYTHON_CMD": interpreter,
        "PULUMI_DEBUG_COMMANDS": "true",
        "AWS_CONFIG_FILE": str(folder.empty_home / "no-aws-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder.empty_home / "no-aws-credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    roots = dict.fromkeys(Path(one).resolve().parents[1] for one in (str(gpuinfra.__file__), __file__))
    checkout = [str(root) for root in roots if root.name not in ("site-packages", "dist-packages")]
    env["PYTHONPATH"] = os.pathsep.join(checkout)
    return {name: value for name, value in env.items() if value}


def with_stand_in_cloud(env: Mapping[str, str], ready: Mapping[str, object], cloud: str, region: str) -> dict[str, str]:
    """Return the environment to use once the stand-in cloud is ready. It adds the provider plugins and the endpoint variables for
    the SDKs."""
    providers, operator = ready["providers"], ready["operator"]
    assert isinstance(providers, dict)
    assert isinstance(operator, dict)
    return {
        **env,
        "PULUMI_DEBUG_PROVIDERS": ",".join(f"{name}:{port}" for name, port in sorted(providers.items())),
        **endpoints.of_operator(f"http://127.0.0.1:{ready['http']}", operator, cloud, region),
    }


def with_profile(env: Mapping[str, str], folder: Folder, profile: object) -> dict[str, str]:
    """Return the environment with the named AWS profile that a stack declares (`aws:profile`), which has the keys of the stand-in cloud's operator."""
    keys = {name.lower(): env[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if name in env}
    if not profile or not keys:
        return dict(env)
    file = folder.empty_home / "aws-config"
    lines = [f"[profile {profile}]", *(f"{name} = {value}" for name, value in keys.items())]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    file.chmod(0o600)
    return {**env, "AWS_CONFIG_FILE": str(file)}


@contextmanager
def applied(env: Mapping[str, str]) -> Iterator[None]:
    """Replace the environment of this process within a `with` block, because the SDKs read it."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
