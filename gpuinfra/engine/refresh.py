"""Previews a refresh: which resources of a stack differ in the cloud from the state. The state is only read.

The engine computes each difference with the provider, against the inputs of the program. It therefore omits properties that only the
cloud sets, such as ETags and sizes, and properties in `ignore_changes` (`RefreshStep.Apply` in pulumi/pkg/resource/deploy/step.go, v3.259.0).
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra.base.json_text import parsed
from gpuinfra.base.safe_text import one_line
from gpuinfra.engine.find import Engine

MAX_VALUE = 200
"""Maximum length of a value in a report."""


@dataclass(frozen=True, kw_only=True)
class DriftedProperty:
    """A property whose value in the cloud differs from the value in the state."""

    path: str
    """Path in the resource, such as `tags.owner` or `ingress[0].cidrBlocks[0]`."""
    recorded: str | None
    """JSON of the value in the state. None if the state does not contain the property. The engine masks secrets."""
    found: str | None
    """JSON of the value in the cloud. None if the cloud does not contain the property."""


@dataclass(frozen=True, kw_only=True)
class CloudChange:
    """A resource that differs in the cloud from the state."""

    type: str
    name: str
    """Logical name."""
    id: str
    deleted: bool
    """True if the resource does not exist in the cloud."""
    properties: tuple[DriftedProperty, ...] = ()


def preview_refresh(engine: Engine, stack: str, project: Path) -> tuple[CloudChange, ...]:
    """Return the resources that differ in the cloud, sorted by name.

    `project` is the folder of `Pulumi.yaml`. The credentials come from the environment. Raises `EnvironmentMissing` if the
    engine cannot read the cloud or the state.
    """
    words = [str(engine.path), "refresh", "--preview-only", "--json", "--non-interactive", "--stack", stack]
    environment = engine.environ()
    environment.pop(
        "PULUMI_ENABLE_STREAMING_JSON_PREVIEW", None
    )  # The engine would print events instead of one document.
    done = subprocess.run(
        words, cwd=project, env=environment, capture_output=True, text=True, errors="replace", check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        document = parsed(done.stdout)
    except ValueError:
        document = {}
    if done.returncode == 0 and isinstance(document, dict) and "changeSummary" in document:
        return changes_in(document)
    raise EnvironmentMissing(
        f"the cloud resources of {stack} cannot be compared with the state: `pulumi refresh --preview-only` failed: "
        f"{_reason(document, done.stderr)}; log in to the state backend and to the cloud, then run the command again"
    )


def changes_in(document: Mapping[str, Any]) -> tuple[CloudChange, ...]:
    """Return the differences in the document that `pulumi refresh --preview-only --json` prints."""
    steps = [step for step in document.get("steps") or [] if step.get("op") in ("update", "delete")]
    changes = [_change(step, step["oldState"], step.get("newState") or {}) for step in steps]
    return tuple(sorted(changes, key=lambda one: (one.name, one.type)))


def _change(step: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any]) -> CloudChange:
    urn = str(step["urn"])
    deleted = step["op"] == "delete"
    paths = [] if deleted else sorted(step.get("detailedDiff") or step.get("diffReasons") or [])
    return CloudChange(
        type=str(old.get("type")),
        name=urn.split("::", 3)[-1],
        id=str(old.get("id") or ""),
        deleted=deleted,
        properties=tuple(
            DriftedProperty(path=path, recorded=_shown(old.get("inputs"), path), found=_shown(new.get("inputs"), path))
            for path in paths
        ),
    )


def value_at(value: Any, path: str) -> Any:
    """Return the value at a path that a provider reports, such as `ingress[0].cidrBlocks[0]` or `tags["a.b"]`, or None if there is no value."""
    for quoted, index, name in re.findall(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.\[\]]+)', path):
        try:
            value = value[int(index)] if index else value[json.loads(f'"{quoted}"') if quoted else name]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return value


def _shown(values: Any, path: str) -> str | None:
    """Return the JSON of the value at a path, or None if there is no value."""
    value = value_at(values, path)
    if value is None:
        return None
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."


def _reason(document: Any, stderr: str) -> str:
    """Return the first error message of the engine as one line."""
    notes = document.get("diagnostics") or [] if isinstance(document, dict) else []
    errors = [str(one.get("message")) for one in notes if isinstance(one, dict) and one.get("severity") == "error"]
    lines = [" ".join(text.split()) for text in (*errors, *stderr.splitlines()) if text.strip()]
    return one_line(lines[0] if lines else "it printed no error message")
