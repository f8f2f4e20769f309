"""Protocols between the modules of the stand-in: the cloud's contents, its fleet, groups and permission models.

The classes are `cloud.Cloud`, `fleet.Fleet`, `operator.Operator` and `rights.Rights`. Modules refer to these protocols
to avoid circular imports.
"""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.faults import Faults
from gpuinfra_rehearsal.cloud.core.store import Resource, Store
from gpuinfra_rehearsal.nodes.state import AttachedDisk


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
    """With an update: the resource as it exists in the cloud."""
    state: dict[str, Any] = field(default_factory=dict)
    """With an update: the outputs in the state of the engine, with which a provider compares the inputs."""
    tags: dict[str, str] = field(default_factory=dict)
    """Default tags of the calling provider."""

    @property
    def plain(self) -> dict[str, Any]:
        """The inputs, with secrets unwrapped."""
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
        """Return the known fields of a resource that exists in the account but was not created by this rehearsal, or
        None."""
        ...

    def delete(self, resource: Resource, urn: str = "") -> None:
        """Delete a resource, unless the cloud refuses the deletion."""
        ...

    def change(self, resource: Resource, **values: Any) -> None:
        """Change a resource as a user does, outside of the deployment."""
        ...

    def wake(self) -> None:
        """Notify the fleet that something might have changed."""
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
    def ssh_port(self, id: str) -> int | None: ...
    def holder(self, disk: str) -> str | None: ...
    def attach_disk(self, id: str, disk: AttachedDisk) -> None: ...
    def reimage(self, id: str) -> None: ...
    def redeploy(self, id: str) -> None: ...
    def abandon(self, group: Resource) -> None: ...


class Operator(Protocol):
    """The user who deploys."""

    def check(self, model: PermissionModel, requests: Iterable[AccessRequest]) -> None:
        """Check calls made with the operator's credentials. Raises CloudError for the first call that is not
        allowed."""
        ...


class Rights(Protocol):
    """The rights that nodes used and the actions that they were denied."""

    def used(self, right: str) -> None: ...
    def denied(self, who: str, action: str, resource: str) -> None: ...


Instance = dict[str, Any]
"""An instance, as stored."""


@dataclass(frozen=True, kw_only=True)
class View:
    """The desired state of a group."""

    cluster: str
    pool: str
    kind: str
    """`reserved`, `block`, `flex`, `on_demand` or `spot`."""
    wanted: int
    may_launch: bool = True
    surge: int = 0
    """The number of instances above `wanted` that can exist while outdated instances are replaced."""
    unavailable: int = 1
    """The number of outdated instances that can be terminated at the same time without a surge."""


class GroupKind(ABC):
    """The groups of one cloud. Reads the cloud, and changes only its own entries in the store."""

    cloud = ""
    """The cloud's name in a spec."""
    tokens: tuple[str, ...] = ()
    """The resource types of the groups."""
    launched = failed = ended = ""
    """Activity texts, with fields of the instance. `failed` contains the shortage's code and message."""
    cause = ""
    """Why the group launches instances, with the number `wanted`."""
    lost = ""
    """The cause of an activity after an instance failure."""
    reclaimed = ""
    """The cause of an activity after a spot interruption."""
    notice_s = 0.0
    """Seconds from the notice to the end of a spot instance."""

    @abstractmethod
    def view(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> View:
        """Return the desired state of the group."""

    @abstractmethod
    def targets(self, cloud: Cloud, group: Resource) -> tuple[str, ...]:
        """Return the words that select the group in a fault: its pool, its name in the plan and in the cloud, its capacity kind and its zones."""

    @abstractmethod
    def shortage(self, cloud: Cloud, group: Resource, have: int, wanted: int) -> ApiRejected | None:
        """Return the cloud's error if the group has `have` instances and cannot get `wanted`."""

    @abstractmethod
    def make(self, cloud: Cloud, group: Resource, name: str, have: Sequence[Instance]) -> Instance:
        """Build a new instance. `name` follows the launch order. The fleet stores the instance."""

    def outdated(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> list[Instance]:
        """Return the instances to replace now because the group uses another template. Called in a transaction once all
        instances exist."""
        return []

    @abstractmethod
    def first_to_go(self, have: Sequence[Instance]) -> list[Instance]:
        """Return the instances in the order in which they are removed when the group shrinks."""

    def tend(self, cloud: Cloud, group: Resource, have: Sequence[Instance]) -> None:  # noqa: B027 - optional hook
        """Update the instances that remain in the group. Called in every round, outside a transaction."""


@dataclass(frozen=True)
class AccessRequest:
    """One call as a cloud's access control evaluates it: principal, action, resource and context keys."""

    principal: str
    action: str
    resource: str
    context: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """Maps a key to its value, or to a tuple if the key has several values."""


class PermissionModel(Protocol):
    """Authorizes calls as one cloud does. Implemented by a module in the cloud's folder."""

    def required(
        self, store: Store, operation: str, token: str, inputs: Mapping[str, Any], region: str, old: Resource | None
    ) -> Iterable[AccessRequest]:
        """Return the calls of one operation on a resource. `old` is the resource before the operation."""
        ...

    def required_by_function(self, token: str, args: Mapping[str, Any], region: str) -> Iterable[AccessRequest]:
        """Return the calls of an SDK function."""
        ...

    def tolerated(self, operation: str, token: str) -> Iterable[AccessRequest]:
        """Return the calls whose denial the provider ignores. `operation` is `configure`, with the package and a colon as `token`, or `import`."""
        ...

    def allows(self, documents: tuple[str, ...], request: AccessRequest) -> tuple[bool, str]:
        """Return (allowed, reason for a denial) according to JSON policy documents."""
        ...

    def denial(self, request: AccessRequest, reason: str) -> ApiRejected:
        """Return the cloud's own error."""
        ...


@dataclass(frozen=True)
class Subject:
    """The resource or function call that values are generated for."""

    token: str
    id: str
    region: str
    inputs: Mapping[str, Any]

    def digest(self, path: tuple[str, ...]) -> str:
        """Return a stable hash for one value of one resource."""
        return hashlib.sha256("\0".join([self.token, self.region, self.id, *path]).encode()).hexdigest()
