"""What the modules of the stand-in use of each other: the cloud's contents, its fleet, groups and permission models.

The classes are `cloud.Cloud`, `fleet.Fleet`, `operator.Operator` and `rights.Rights`. Modules refer to these protocols instead, so that no two
modules import each other.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gpuinfra.rehearsal.cloud.core import wire
from gpuinfra.rehearsal.cloud.core.errors import CloudError
from gpuinfra.rehearsal.cloud.core.faults import Faults
from gpuinfra.rehearsal.cloud.core.store import Resource, Store


@dataclass
class Call:
    """One request about one resource, with its result."""

    token: str
    urn: str
    name: str
    inputs: dict[str, Any]
    region: str
    id: str = ""
    outputs: dict[str, Any] = field(default_factory=dict)
    old: Resource | None = None
    tags: dict[str, str] = field(default_factory=dict)
    """Default tags of the calling provider."""

    @property
    def plain(self) -> dict[str, Any]:
        """The inputs without the envelopes of secrets."""
        return wire.plain(self.inputs)

    def resource(self) -> Resource:
        return Resource(self.token, self.region, self.id, self.inputs, self.outputs, urn=self.urn)


class Cloud(Protocol):
    """The contents of all clouds."""

    @property
    def folder(self) -> Path: ...
    @property
    def store(self) -> Store: ...
    @property
    def faults(self) -> Faults: ...
    @property
    def endpoint(self) -> str: ...
    @property
    def changed(self) -> threading.Event: ...
    @property
    def fleet(self) -> Fleet: ...
    @property
    def operator(self) -> Operator: ...
    @property
    def rights(self) -> Rights: ...

    def external(self, id: str) -> dict[str, Any] | None:
        """What is known of a resource that the account holds and this rehearsal did not create; None where there is none."""
        ...

    def wake(self) -> None:
        """Tell the fleet that something may have changed."""
        ...


class Fleet(Protocol):
    """The instances of all groups."""

    host: Any

    def instances(self) -> dict[str, Instance]: ...
    def running(self) -> list[Instance]: ...
    def of_group(self, group: Resource) -> list[Instance]: ...
    def activities(self, region: str, group: str) -> list[dict[str, Any]]: ...
    def console(self, id: str) -> str: ...
    def has_capacity(self, group: Resource, wanted: int) -> bool: ...
    def terminate(self, id: str, why: str) -> bool: ...
    def reimage(self, id: str) -> None: ...
    def abandon(self, group: Resource) -> None: ...


class Operator(Protocol):
    """The person who deploys."""

    def check(self, model: PermissionModel, requests: Iterable[AccessRequest]) -> None:
        """Calls with the operator's credentials. Raises CloudError at the first one that is not allowed."""
        ...


class Rights(Protocol):
    """What nodes were allowed and denied."""

    def used(self, right: str) -> None: ...
    def denied(self, who: str, action: str, resource: str) -> None: ...


Instance = dict[str, Any]
"""An instance, as the store keeps it."""


@dataclass(frozen=True, kw_only=True)
class View:
    """What a group wants now."""

    cluster: str
    pool: str
    kind: str
    """`reserved`, `block`, `flex`, `on_demand` or `spot`."""
    wanted: int
    may_launch: bool = True
    surge: int = 0
    """How many instances may exist above `wanted` while outdated ones are replaced."""
    unavailable: int = 1
    """How many outdated instances may be ended at once where there is no surge."""


class GroupKind:
    """One cloud's groups. Reads the cloud, and changes only its own marks in the store."""

    cloud = ""
    """The cloud's name in a spec."""
    tokens: tuple[str, ...] = ()
    """The types of the groups."""
    launched = failed = ended = ""
    """Texts of activities, with fields of the instance; `failed` with the code and the message of the shortage."""
    cause = ""
    """Why the group launches, with the number `wanted`."""
    lost = ""
    """The cause of an activity after an instance failed."""

    def view(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> View:
        """What the group wants."""
        raise NotImplementedError

    def shortage(self, cloud: Cloud, group: Resource, have: int, wanted: int) -> CloudError | None:
        """Why there cannot be `wanted` instances where there are `have`, in the cloud's own words."""
        raise NotImplementedError

    def make(self, cloud: Cloud, group: Resource, name: str, have: Sequence[Instance]) -> Instance:
        """A new instance, `name` in launch order. The fleet stores it."""
        raise NotImplementedError

    def outdated(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> list[Instance]:
        """Instances to replace now because the group wants another template; called in a transaction, when all instances exist."""
        return []

    def first_to_go(self, have: Sequence[Instance]) -> list[Instance]:
        """The order in which instances leave when the group shrinks."""
        raise NotImplementedError

    def tend(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> None:
        """Change the instances that the group keeps; called in every round, outside of a transaction."""


@dataclass(frozen=True)
class AccessRequest:
    """One call as a cloud's access control sees it: who, what, on which resource, with which context keys."""

    principal: str
    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict)


class PermissionModel(Protocol):
    """How one cloud decides about calls (a module of its folder)."""

    def required(
        self, store: Store, operation: str, token: str, inputs: Mapping[str, Any], region: str, old: Resource | None
    ) -> Iterable[AccessRequest]:
        """The calls of one operation on a resource; `old` is the resource before it."""
        ...

    def required_by_function(self, token: str, args: Mapping[str, Any], region: str) -> Iterable[AccessRequest]:
        """The calls of a function of the SDK."""
        ...

    def allows(self, documents: tuple[str, ...], request: AccessRequest) -> tuple[bool, str]:
        """(allowed, reason for a denial), by policy documents in JSON."""
        ...

    def denial(self, request: AccessRequest, reason: str) -> CloudError:
        """The cloud's own error."""
        ...


@dataclass(frozen=True)
class Subject:
    """What the values are made for."""

    token: str
    id: str
    region: str
    inputs: Mapping[str, Any]

    def digest(self, path: tuple[str, ...]) -> str:
        """A hash that is the same every time for one value of one resource."""
        return hashlib.sha256("\0".join([self.token, self.region, self.id, *path]).encode()).hexdigest()
