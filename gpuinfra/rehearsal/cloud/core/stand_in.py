"""What the stand-in plays differently for each cloud, and the generic behavior of a cloud without code of its own.

`core` calls these methods and names no cloud. A cloud's folder beside `core` supplies a subclass as `STAND_IN` in its
module `stand_in`, and behaviors in the modules of its package `behaviors`. A cloud without such a folder gets this class:

- its resources are created, read, changed and deleted, with generic ids and outputs (any type that its Pulumi SDK declares; without an SDK,
  any type with any inputs, whose outputs are its inputs);
- it has no HTTP services, so its nodes and its operator cannot reach it; `services` is the hook that adds them;
- its groups start no nodes; `group_kinds` is the hook that adds them;
- a rehearsal with least privilege is refused; `permissions` is the hook that adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra.rehearsal.cloud.core import ids
from gpuinfra.rehearsal.cloud.core.errors import CloudError

if TYPE_CHECKING:
    from gpuinfra.rehearsal.cloud.core.behavior import Behavior
    from gpuinfra.rehearsal.cloud.core.http import Service
    from gpuinfra.rehearsal.cloud.core.interfaces import Cloud, GroupKind, PermissionModel, Subject
    from gpuinfra.rehearsal.cloud.core.sdk import Property
    from gpuinfra.rehearsal.cloud.core.store import Store

Action = Callable[[dict[str, Any]], Any]
"""A request to the control interface: its JSON body -> its JSON answer."""


class StandIn:
    """One cloud."""

    package = ""
    """Name of its Pulumi package; empty where that is the cloud's own name."""
    default_region = "region-1"
    """Where a program's resources go if neither it nor the provider names a region."""
    regional_ids = False
    """Whether an id is unique within its region only. Elsewhere an id carries its place."""
    moving_settings: tuple[str, ...] = ("region", "project", "subscriptionId")
    """Provider settings whose change replaces the provider and with it all of its resources."""
    looks_up_first = False
    """Whether the provider looks up the id before a creation, so that a taken id is reported before any other error."""
    identity_inputs: tuple[str, ...] = ("name", "project", "region", "zone", "location")
    """Inputs that identify a resource on this cloud, so that a change of one replaces the resource."""
    group_kinds: tuple[GroupKind, ...] = ()
    """What starts nodes here: the types of groups, and how they behave."""
    already_exists = CloudError("ResourceAlreadyExistsException", "{kind} already exists: {id}", status=409)
    """The error of a second creation under a taken name or id."""
    unavailable = CloudError(
        "ServiceUnavailable", "The service is temporarily unavailable. (injected by --fault)", status=503
    )
    """A plausible temporary failure, for `--fault cloud:error:...`: `{service}` and `{kind}` are those of the resource type."""
    permissions: PermissionModel | None = None
    """Which calls an operation makes, and whether a policy allows them."""

    def __init__(self, name: str) -> None:
        self.name = name
        """The cloud's name in a spec."""
        self.package = self.package or name

    # Resources

    def identify(self, token: str, name: str, inputs: Mapping[str, Any], region: str, count: ids.Count) -> str:
        """The id of a new resource; `name` is its logical name."""
        return ids.counted(token, count)

    def own_names(self, token: str) -> list[str]:
        """The inputs that name the resource itself. Pulumi's providers generate the last one if it is absent."""
        return ["name"]

    def generated_name(self, token: str, name: str, digest: str) -> str:
        """The name that the real provider generates from a logical name."""
        return f"{name}-{digest[:7]}"

    def replacing(self, token: str, inputs: Mapping[str, Property]) -> set[str]:
        """Further inputs (or paths below them) whose change replaces the resource."""
        return set()

    def default_behavior(self, token: str) -> Behavior | None:
        """The behavior of a type that no behavior names; None for the generic one."""
        return None

    def split_import_id(self, id: str) -> tuple[str, str]:
        """(id, region) of an id as people write it; the region is empty where the id does not name one."""
        return id, ""

    def is_real_id(self, id: str) -> bool:
        """Whether an id cannot be one that the stand-in made, so that the account is believed to hold it."""
        return False

    # Outputs

    def text(self, name: str, about: Subject, path: tuple[str, ...]) -> str | None:
        """The value of an output that is a string; None where the generic rules give it."""
        return None

    def output_name(self, about: Subject) -> str | None:
        """The output `name`, where the cloud derives it from the id."""
        return None

    # What surrounds the resources

    def services(self, cloud: Cloud) -> Mapping[str, Service]:
        """HTTP services, by the path that their requests begin with. The longest matching path wins."""
        return {}

    def operator_credentials(self, cloud: Cloud) -> dict[str, str]:
        """The credentials of the operator, who deploys; part of the line that the process prints at its start."""
        return {}

    def node_rights(self, store: Store, nodes: list[dict[str, Any]]) -> Iterable[str]:
        """Every right of the identities that these nodes run with."""
        return ()

    def tick(self, cloud: Cloud) -> None:
        """Called about twice a second: what happens by itself as time passes."""

    def control_actions(self, cloud: Cloud) -> Mapping[str, Action]:
        """Requests to the control interface that only this cloud has."""
        return {}
