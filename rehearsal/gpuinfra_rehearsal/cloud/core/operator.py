"""Checks whether the operator (the user who deploys) is allowed to make the engine's calls.

Without policies, every call is allowed. With the documents that `gpuinfra permissions` prints, every call that the real
provider makes for an operation is first checked against them. Denials use the cloud's wording. The calls are
recorded, so that unused permissions can be reported. `StandIn.permissions` maps operations to calls.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinfra.plan.planned import Actions
from gpuinfra_rehearsal.cloud.core import registry
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest, PermissionModel

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Resource, Store


class Operator:
    """The user who deploys, with or without policies."""

    def __init__(self, documents: Sequence[Mapping[str, Any]] | None = None) -> None:
        self.documents = None if documents is None else tuple(json.dumps(one) for one in documents)
        """Policies in JSON. None allows everything."""
        self._lock = threading.Lock()
        self._used: set[str] = set()
        self._operations: set[tuple[str, str]] = set()
        self._denied: list[str] = []

    @classmethod
    def read(cls, path: Path | None) -> Operator:
        """Read a file with a list of policy documents."""
        return cls(None if path is None else json.loads(path.read_text(encoding="utf-8")))

    def check_resource(
        self, store: Store, operation: str, token: str, inputs: Mapping[str, Any], region: str, old: Resource | None = None
    ) -> None:  # fmt: skip
        """Check an engine operation. Raises CloudError if one of its calls is not allowed."""
        if self.documents is None:
            return
        model = _model(token)
        with self._lock:
            self._operations.add((token, operation))
        self.check(model, model.required(store, operation, token, inputs, region, old))

    def check_function(self, token: str, args: Mapping[str, Any], region: str) -> None:
        """Check an SDK function that the program calls. Raises CloudError if one of its calls is not allowed."""
        if self.documents is not None:
            model = _model(token)
            self.check(model, model.required_by_function(token, args, region))

    def look(self, operation: str, token: str) -> None:
        """Record the calls of the provider whose denial it ignores."""
        if self.documents is not None:
            model = _model(token)
            for request in model.tolerated(operation, token):
                self._decide(model, request)

    def check(self, model: PermissionModel, requests: Iterable[AccessRequest]) -> None:
        """Check calls made with the operator's credentials. Raises CloudError for the first call that is not
        allowed."""
        for request in requests if self.documents is not None else ():
            allowed, reason = self._decide(model, request)
            if not allowed:
                raise model.denial(request, reason)

    def _decide(self, model: PermissionModel, request: AccessRequest) -> tuple[bool, str]:
        allowed, reason = model.allows(self.documents or (), request)
        with self._lock:
            if allowed:
                self._used.add(request.action)
            elif request.action not in self._denied:
                self._denied.append(request.action)
        return allowed, reason

    def summary(self) -> dict[str, Any]:
        """Summarize the calls that were checked so far."""
        with self._lock:
            return {
                "restricted": self.documents is not None,
                "used": sorted(self._used),
                "refused": list(self._denied),
                "operations": sorted(list(one) for one in self._operations),
            }


def _model(token: str) -> PermissionModel:
    stand_in = registry.of_token(token)
    if stand_in.permissions is None:
        text = f"the stand-in for {stand_in.name} has no permission model; rehearse without --under-least-permissions, or add `permissions` to its `StandIn`"
        raise ApiRejected("NotImplemented", text, status=501)
    return stand_in.permissions


def actions_of(
    table: Mapping[str, Actions], token: str, operation: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[str]:
    """Return the actions that a table lists for an operation, without duplicates. Creations and updates also read the
    resource."""
    row = table.get(token)
    if row is None:
        yield f"{token} is not in any table"
        return
    words = [*row.of(operation), *(row.of("read") if operation in ("create", "update") else ())]
    seen = set()
    for action, _, key in (word.partition("?") for word in words):
        given = old if operation == "delete" else new
        holds = not key or (old.get(key) != new.get(key) if operation == "update" else bool(given.get(key)))
        if holds and action not in seen:
            seen.add(action)
            yield action


@lru_cache(maxsize=64)
def listed(document: str, *keys: str) -> frozenset[str]:
    """Return all values that a role document lists under these keys."""
    held = json.loads(document)
    return frozenset(action for key in keys for action in held.get(key) or ())
