"""Creations that a killed run left pending in the state of a stack, and the state in which the next deployment continues them.

The engine writes an operation to the state before it calls the provider, and removes it when the provider has answered. If all processes are
killed in between, a resource can exist that the state does not contain. `pulumi up` keeps such an operation, creates the resource again, and
fails or makes a second one (`SnapshotManager.snap` in pkg/backend/snapshot.go of Pulumi v3.259.0).

`resumed` puts what exists into the state with the inputs of the killed creation. The engine reads these resources from the cloud before the next
deployment, because of `refreshBeforeUpdate`: what does not exist is created then, and what is incomplete is updated. This works in any later
deployment, so a run that is killed before it needs no further help. This module makes no requests to clouds (`gpuinfra.search.interrupted`).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.json_text import parsed
from gpuinfra.engine.find import Engine
from gpuinfra.engine.up import operate, quick

Deployment = Mapping[str, Any]
"""The `deployment` of `pulumi stack export`."""

_GENERATED = "__defaults"
"""Inputs that the provider generates, such as a name with a random suffix."""
_SECRET = "4dabf18193072939515e22adb298388d"
"""Key of the object that the engine writes for a secret (sdk/go/common/resource/sig/sig.go of Pulumi v3.259.0)."""


@dataclass(frozen=True, kw_only=True)
class PendingCreate:
    """A creation of which the state does not contain the result."""

    urn: str
    type: str
    inputs: Mapping[str, Any]
    """Inputs that the provider received. Secret values are encrypted."""
    state: Mapping[str, Any]
    """The resource as the state contains it, without an ID."""

    @property
    def name(self) -> str:
        """Logical name of the resource."""
        return self.urn.split("::", 3)[-1]

    def text(self, key: str) -> str:
        """Return an input that is a text, or an empty string."""
        value = self.inputs.get(key)
        return value if isinstance(value, str) else ""

    def texts(self, key: str) -> Mapping[str, str]:
        """Return an input that maps texts to texts, such as tags, or an empty mapping."""
        value = self.inputs.get(key)
        return (
            {str(k): v for k, v in value.items() if isinstance(v, str)}
            if isinstance(value, Mapping) and _SECRET not in value
            else {}
        )


@dataclass(frozen=True, kw_only=True)
class FoundResource:
    """A resource that a killed creation made."""

    create: PendingCreate
    id: str


def pending_creates(deployment: Deployment) -> list[PendingCreate]:
    """Return the pending creations of a state, in their order."""
    return list(_pending(deployment))


def _pending(deployment: Deployment) -> Iterator[PendingCreate]:
    for operation in deployment.get("pending_operations") or ():
        resource = operation.get("resource") or {}
        if operation.get("type") == "creating" and resource.get("custom"):
            yield PendingCreate(
                urn=str(resource["urn"]),
                type=str(resource["type"]),
                inputs=resource.get("inputs") or {},
                state=resource,
            )


def known_ids(deployment: Deployment, type_: str) -> frozenset[str]:
    """Return the IDs of the resources of a type in a state."""
    return frozenset(
        str(one["id"]) for one in deployment.get("resources") or () if one.get("type") == type_ and one.get("id")
    )


def resumed(deployment: Deployment, created: Sequence[FoundResource]) -> dict[str, Any]:
    """Return the state with these resources, and without pending operations.

    If the state contains the resource already, then the interrupted creation was either repeated, and what it made is deleted by the next
    deployment, or it replaced the resource, and the old one is deleted.
    """
    resources = [dict(one) for one in deployment.get("resources") or ()]
    for resource in created:
        new = {
            **resource.create.state,
            "id": resource.id,
            "outputs": {
                **{key: value for key, value in resource.create.inputs.items() if key != _GENERATED},
                "id": resource.id,
            },
            "refreshBeforeUpdate": True,
        }
        place = next(
            (i for i, r in enumerate(resources) if r.get("urn") == resource.create.urn and not r.get("delete")), None
        )
        if place is None:
            resources.append(new)
        elif resources[place].get("pendingReplacement"):
            resources[place] = new
        elif _given(resources[place].get("inputs")) == _given(resource.create.inputs):
            resources.append({**new, "delete": True})
        else:
            old, resources[place] = resources[place], new
            resources.append({**old, "delete": True})
    return {**deployment, "resources": resources, "pending_operations": []}


def _given(inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the inputs of the program, without those that the provider generates."""
    generated: Collection[str] = (inputs or {}).get(_GENERATED) or ()
    return {key: value for key, value in (inputs or {}).items() if key != _GENERATED and key not in generated}


def read_deployment(engine: Engine, stack: str, project: Path) -> Deployment:
    """Return the state of a stack, which is empty if the stack does not exist or if it cannot be read. `up` reports both."""
    done = quick(engine, project, "stack", "export", "--stack", stack)
    try:
        document = parsed(done.stdout) if done.returncode == 0 else {}
    except ValueError:
        document = {}
    deployment = document.get("deployment") if isinstance(document, Mapping) else None
    return deployment if isinstance(deployment, Mapping) else {}


def write_deployment(
    engine: Engine, stack: str, project: Path, before: Deployment, after: Deployment, *, output: IO[str], keep: Sequence[int] = (), again: bool = False
) -> None:  # fmt: skip
    """Replace the state of a stack. Raises `StateLocked` if another run holds its lock, and `DeploymentError` if the state is not `before` anymore.

    The other arguments are those of `gpuinfra.engine.up.up`.
    """
    if read_deployment(engine, stack, project) != before:
        raise DeploymentError(
            f"another run updated {stack} in the meantime, so its state was not changed; run the command again"
        )
    with tempfile.TemporaryDirectory(prefix="gpuinfra-state-") as folder:
        file = Path(folder) / "state.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps({"version": 3, "deployment": after}), encoding="utf-8")
        words = ["stack", "import", "--file", str(file), "--stack", stack]
        if code := operate(engine, stack, project, words, output=output, keep=keep, again=again):
            raise DeploymentError(f"`pulumi stack import --stack {stack}` exited with code {code}; its output is above")
