"""Whether the person who rehearses may do what the engine does in his name.

Without orders he may do everything. With the documents that `gpuinfra permissions` prints, every call that the real provider would make for an operation
is asked of them first, and refused in the cloud's own words; what was asked is remembered, so that a permission that nobody used can be named.
Which calls an operation makes is in one module per cloud beside this one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gpuinfra.rehearsal.cloud.aws.policy import Ask
from gpuinfra.rehearsal.cloud.core.errors import CloudError

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.cloud import Cloud
    from gpuinfra.rehearsal.cloud.core.store import Resource

_MODULES = {"aws": "aws", "azure-native": "azure", "gcp": "gcp"}


class Judge(Protocol):
    """What a cloud's module answers."""

    def asks(
        self, cloud: Cloud, operation: str, token: str, inputs: Mapping[str, Any], region: str, old: Resource | None
    ) -> Iterable[Ask]:
        """The calls of one operation; `old` is what the cloud holds before it."""
        ...

    def invoked(self, cloud: Cloud, token: str, args: Mapping[str, Any], region: str) -> Iterable[Ask]:
        """The calls of a function of the SDK."""
        ...

    def allows(self, documents: tuple[str, ...], ask: Ask) -> tuple[bool, str]:
        """(allowed, why not), by documents as JSON."""
        ...

    def refusal(self, ask: Ask, why: str) -> CloudError:
        """The cloud's own words."""
        ...


class Operator:
    """The person, with or without a policy."""

    def __init__(self, documents: Sequence[Mapping[str, Any]] | None = None) -> None:
        self.documents = None if documents is None else tuple(json.dumps(one) for one in documents)
        """As JSON. None: he may do everything."""
        self._lock = threading.Lock()
        self._used: set[str] = set()
        self._done: set[tuple[str, str]] = set()
        self._refused: list[str] = []

    @classmethod
    def read(cls, path: Path | None) -> Operator:
        """From a file with a list of documents."""
        return cls(None if path is None else json.loads(path.read_text(encoding="utf-8")))

    def resource(
        self,
        cloud: Cloud,
        operation: str,
        token: str,
        inputs: Mapping[str, Any],
        region: str,
        old: Resource | None = None,
    ) -> None:
        """An operation of the engine. Raises CloudError where a call of it is not allowed."""
        if self.documents is None:
            return
        judge = _judge(token.split(":", 1)[0])
        with self._lock:
            self._done.add((token, operation))
        self.calls(judge, judge.asks(cloud, operation, token, inputs, region, old))

    def function(self, cloud: Cloud, token: str, args: Mapping[str, Any], region: str) -> None:
        """A function that the program asks. Raises CloudError where a call of it is not allowed."""
        if self.documents is not None:
            judge = _judge(token.split(":", 1)[0])
            self.calls(judge, judge.invoked(cloud, token, args, region))

    def calls(self, judge: Judge, asks: Iterable[Ask]) -> None:
        """Calls that somebody makes with the operator's credentials. Raises CloudError at the first that is not allowed."""
        for ask in asks if self.documents is not None else ():
            allowed, why = judge.allows(self.documents or (), ask)
            with self._lock:
                if allowed:
                    self._used.add(ask.action)
                elif ask.action not in self._refused:
                    self._refused.append(ask.action)
            if not allowed:
                raise judge.refusal(ask, why)

    def seen(self) -> dict[str, Any]:
        """What was asked so far."""
        with self._lock:
            return {
                "restricted": self.documents is not None,
                "used": sorted(self._used),
                "refused": list(self._refused),
                "operations": sorted(list(one) for one in self._done),
            }


def _judge(package: str) -> Judge:
    module: Any = import_module(f"gpuinfra.rehearsal.cloud.{_MODULES[package]}.operator")
    return module
