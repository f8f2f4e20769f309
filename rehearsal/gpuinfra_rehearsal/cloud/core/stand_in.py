"""Extension points for each cloud, with the generic behavior for clouds without their own code.

`core` calls these methods and contains no cloud-specific code. A cloud's folder next to `core` provides a subclass as
`STAND_IN` in its `stand_in` module, and behaviors in the modules of its `behaviors` package. A cloud without such a
folder uses this class:

- its resources are created, read, updated and deleted, with generic IDs and outputs (any type that its Pulumi SDK
  declares; without an SDK, any type with any inputs, whose outputs are its inputs);
- it has no HTTP services, so its nodes and its operator cannot reach it; override `services` to add them;
- its groups start no nodes; override `group_kinds` to add them;
- a rehearsal with least privilege is refused; override `permissions` to support it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.core import ids
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.texts import Text

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.behavior import Behavior
    from gpuinfra_rehearsal.cloud.core.http import Service
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud, GroupKind, PermissionModel, Subject
    from gpuinfra_rehearsal.cloud.core.sdk import Property
    from gpuinfra_rehearsal.cloud.core.store import Store

Action = Callable[[dict[str, Any]], Any]
"""Handles a request to the control interface: takes its JSON body, returns its JSON response."""


class StandIn:
    """One cloud."""

    package = ""
    """The name of its Pulumi package. Empty if it equals the cloud's name."""
    typed = False
    """Whether the cloud's Pulumi SDK is required. Without an SDK, any type with any inputs is accepted."""
    default_region = "region-1"
    """The region of resources if neither the program nor the provider sets one."""
    regional_ids = False
    """Whether an ID is unique only within its region. Otherwise the ID includes its location."""
    moving_settings: tuple[str, ...] = ("region", "project", "subscriptionId")
    """Provider settings whose change replaces the provider and all of its resources."""
    looks_up_first = False
    """Whether the provider looks up the ID before a creation, so that an existing ID is reported before any other
    error."""
    adds_location = False
    """Whether the provider adds its setting `location` to the inputs of a resource."""
    identity_inputs: tuple[str, ...] = ("name", "project", "region", "zone", "location")
    """Inputs that identify a resource on this cloud. Changing one replaces the resource."""
    group_kinds: tuple[GroupKind, ...] = ()
    """The group types that start nodes, and their behavior."""
    already_exists = ApiRejected("ResourceAlreadyExistsException", "{kind} already exists: {id}", status=409)
    """The error for creating a resource with a name or ID that already exists."""
    unavailable = ApiRejected(
        "ServiceUnavailable", "The service is temporarily unavailable. (injected by --fault)", status=503
    )
    """A realistic temporary failure for `--fault cloud:error:...`. `{service}` and `{kind}` come from the resource
    type."""
    texts: tuple[Text, ...] = ()
    """Allowed characters and lengths of text fields. The first row that matches an input applies."""
    permissions: PermissionModel | None = None
    """Determines the calls of an operation and whether a policy allows them."""

    def __init__(self, name: str) -> None:
        self.name = name
        """The cloud's name in a spec."""
        self.package = self.package or name

    # Resources

    def identify(self, token: str, name: str, inputs: Mapping[str, Any], region: str, count: ids.Count) -> str:
        """Return the ID of a new resource. `name` is its logical name."""
        return ids.counted(token, count)

    def own_names(self, token: str) -> list[str]:
        """Return the inputs that name the resource. Pulumi's providers generate the last one if it is missing."""
        return ["name"]

    def generated_name(self, token: str, name: str, digest: str) -> str:
        """Return the name that the real provider generates from a logical name."""
        return f"{name}-{digest[:7]}"

    def replacing(self, token: str, inputs: Mapping[str, Property]) -> set[str]:
        """Return additional inputs (or paths below them) whose change replaces the resource."""
        return set()

    def replaces_when(self, token: str, path: str, old: Any, new: Any) -> bool | None:
        """Return whether this change replaces the resource, or None if the values do not matter."""
        return None

    def default_behavior(self, token: str) -> Behavior | None:
        """Return the behavior of a type that has no registered behavior, or None for the generic one."""
        return None

    def split_import_id(self, id: str) -> tuple[str, str]:
        """Return (ID, region) for an ID that the user wrote. The region is empty if the ID does not include one."""
        return id, ""

    def is_real_id(self, id: str) -> bool:
        """Return whether an ID cannot come from the stand-in. The account is then assumed to contain the resource."""
        return False

    def defaults(self, token: str) -> Mapping[str, Any]:
        """Return the inputs that the provider adds to a program's inputs, keyed by path."""
        return {}

    # Outputs

    def filled(self, token: str) -> Mapping[str, Any]:
        """Return a type's outputs whose input is not set, keyed by path. None for an output that the provider leaves
        empty. A path with dots is a field of each given object."""
        return {}

    def text(self, name: str, about: Subject, path: tuple[str, ...]) -> str | None:
        """Return the value of a string output, or None to use the generic rules."""
        return None

    def output_name(self, about: Subject) -> str | None:
        """Return the output `name` if the cloud derives it from the resource ID."""
        return None

    # Services, credentials and hooks

    def required_regions(self, token: str, region: str) -> tuple[str, ...]:
        """Return the regions whose APIs a change of a resource of this type requires."""
        return (region,)

    def regions_of(
        self, store: Store, token: str, region: str, id: str, inputs: Mapping[str, Any], *, change: bool
    ) -> tuple[str, ...]:
        """Return the regions whose APIs a change or a read of this resource requires. The ID is empty for a new resource."""
        return self.required_regions(token, region or self.place_of(store, inputs))

    def place_of(self, store: Store, inputs: Mapping[str, Any]) -> str:
        """Return the region of a resource on a cloud whose IDs include it. Empty for a global resource."""
        return ""

    def regions(self) -> Iterable[str]:
        """Return the regions that can have an outage."""
        return ()

    def replicate(self, store: Store) -> None:
        """Copy the objects whose replication is due."""

    def services(self, cloud: Cloud) -> Mapping[str, Service]:
        """Return the HTTP services, keyed by path prefix. The longest matching prefix wins."""
        return {}

    def operator_credentials(self, cloud: Cloud) -> dict[str, str]:
        """Return the credentials of the operator, which are part of the line that the process prints at startup."""
        return {}

    def node_rights(self, store: Store, nodes: list[dict[str, Any]]) -> Iterable[str]:
        """Return all rights of the identities of these nodes."""
        return ()

    def logins(self, cloud: Cloud, instance: dict[str, Any]) -> Mapping[str, Iterable[str]]:
        """Return the users who can log in to an instance over SSH, with their public keys."""
        return {}

    def tick(self, cloud: Cloud) -> None:
        """Called about twice per second to simulate changes over time."""

    def control_actions(self, cloud: Cloud) -> Mapping[str, Action]:
        """Return requests to the control interface that only this cloud has."""
        return {}
