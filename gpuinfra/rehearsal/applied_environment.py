"""The environment of everything that a rehearsal starts: made from nothing, not from a person's with parts removed.

A rehearsal reads the named stack file and nothing else of a person's: no Pulumi state, no token, no cloud credentials,
no settings under HOME. What is passed on is a short list, and everything else is ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gpuinfra.rehearsal import endpoints
from gpuinfra.rehearsal.folder import Folder

MARK = "GPUINFRA_REHEARSAL"
"""In the environment of every process of a rehearsal, with its folder, so that a next run finds what a kill left."""

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
    """What every process of this rehearsal gets; the engine's folder is put on PATH by the engine."""
    interpreter = str(python or sys.executable)
    env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    env |= {
        MARK: str(folder.ground),
        "HOME": str(folder.person),
        "PATH": f"{Path(interpreter).parent}:{SYSTEM_PATH}",
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
        "PYTHONDONTWRITEBYTECODE": "1" if not os.access(Path(__file__).parents[1], os.W_OK) else "",
        "PULUMI_HOME": str(folder.home),
        "PULUMI_BACKEND_URL": f"file://{folder.state}",
        "PULUMI_CONFIG_PASSPHRASE": folder.passphrase(),
        "PULUMI_SKIP_UPDATE_CHECK": "1",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",
        "PULUMI_PYTHON_CMD": interpreter,
        "PULUMI_DEBUG_COMMANDS": "true",
        "AWS_CONFIG_FILE": str(folder.person / "no-aws-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder.person / "no-aws-credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    root = Path(__file__).resolve().parents[2]
    if root.name not in ("site-packages", "dist-packages"):
        env["PYTHONPATH"] = str(root)
    return {name: value for name, value in env.items() if value}


def with_cloud(env: Mapping[str, str], ready: Mapping[str, object], cloud: str, region: str) -> dict[str, str]:
    """The environment once the stand-in cloud answers: engine plugins attached, the SDKs' own endpoint variables set."""
    providers, operator = ready["providers"], ready["operator"]
    assert isinstance(providers, dict)
    assert isinstance(operator, dict)
    return {
        **env,
        "PULUMI_DEBUG_PROVIDERS": ",".join(f"{name}:{port}" for name, port in sorted(providers.items())),
        **endpoints.of_operator(f"http://127.0.0.1:{ready['http']}", operator, cloud, region),
    }


@contextmanager
def worn(env: Mapping[str, str]) -> Iterator[None]:
    """Wear this environment in our own process, for SDKs that read it; the person's comes back afterwards."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
