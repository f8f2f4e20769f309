"""The steps in a bundle: their list, their hashes, and the environment that they read."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Sequence

SCHEMA = "gpuinfra.steps/1"


class Unusable(Exception):
    """This machine or bundle cannot run steps. The message gives the reason and the action to take."""


@dataclass(frozen=True)
class BundleStep:
    """One step in the bundle."""

    id: str
    file: Path
    timeout_s: float
    retries: int
    hash: str
    own: Dict[str, str] = field(default_factory=dict)
    """Variables of a declared step for `own-step.sh`. Empty for a bootstrap step."""


def step_hash(file: Path, shared: Sequence[Path], versions: Path) -> str:
    """Return the hash of a step's content: its file, the shared files (lib*.sh) and versions.env."""
    return hashlib.sha256(b"\0".join(part.read_bytes() for part in (file, *shared, versions))).hexdigest()


def read_steps(bundle: Path) -> List[BundleStep]:
    """Return the bundle's steps in order."""
    source = bundle / "steps.json"
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise Unusable(f"{source} has the schema {content['schema']}, expected {SCHEMA}; fetch the bundle again")
        shared, versions = sorted((bundle / "bootstrap").glob("lib*.sh")), bundle / "versions.env"
        return [
            BundleStep(
                str(s["id"]),
                bundle / s["file"],
                float(s["timeout_s"]),
                int(s["retries"]),
                # A declared step depends only on its script, so that it does not run again after an upgrade of gpuinfra.
                str(s["own"]["sha256"]) if "own" in s else step_hash(bundle / s["file"], shared, versions),
                _own(bundle, s["own"]) if "own" in s else {},
            )
            for s in content["steps"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unusable(f"{source} is not a valid list of steps ({error}); fetch the bundle again") from None


def _own(bundle: Path, own: Dict[str, Any]) -> Dict[str, str]:
    return {
        "OWN_SCRIPT": str(bundle / own["script"]) if "script" in own else "",
        "OWN_URL": str(own.get("url", "")),
        "OWN_SHA256": str(own["sha256"]),
        "OWN_REBOOT": "1" if own["reboot"] else "",
    }


def node_environment(config: Path, bundle: Path) -> Dict[str, str]:
    """Return the environment of the steps: values from node.json and the environment of this process."""
    try:
        node = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unusable(f"cannot read {config} ({error}); user data writes this file") from None
    systems = [
        " ".join(
            [
                *(str(s.get(k) or "-") for k in ("kind", "mount", "dns_name", "mount_name")),
                *([str(s["setting"])] if s.get("setting") else []),
            ]
        )
        for s in node.get("file_systems", [])
    ]
    identity = node.get("identity")
    return {
        **os.environ,
        "PATH": os.environ.get("PATH") or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": os.environ.get("HOME") or "/root",
        "GPUINFRA_CLOUD": str(node.get("cloud", "")),
        "GPUINFRA_CLUSTER": str(node.get("cluster", "")),
        "GPUINFRA_POOL": str(node.get("pool", "")),
        "GPUINFRA_REGION": str(node.get("region", "")),
        "GPUINFRA_FILE_SYSTEMS": "\n".join(systems),
        "GPUINFRA_CLIENT_ID": str(identity.get("client_id") or "") if isinstance(identity, dict) else "",
        "GPUINFRA_LOG_GROUP": str(node.get("log_group") or ""),
        "GPUINFRA_VERSIONS": str(bundle / "versions.env"),
    }
