"""Google Cloud extensions of the stand-in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra.clouds.gcp.regions import REGIONS
from gpuinfra_rehearsal.cloud.core.behavior import Behavior
from gpuinfra_rehearsal.cloud.core.ids import Count, last
from gpuinfra_rehearsal.cloud.core.interfaces import Subject
from gpuinfra_rehearsal.cloud.core.rights import grant
from gpuinfra_rehearsal.cloud.core.stand_in import Action, StandIn
from gpuinfra_rehearsal.cloud.gcp import ids, operator, outages, replacements, texts, tokens
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError
from gpuinfra_rehearsal.cloud.gcp.groups import ManagedGroups, preempt

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.http import Service
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.sdk import Property
    from gpuinfra_rehearsal.cloud.core.store import Store

_NODE_GRANTS = (
    "gcp:storage/bucketIAMMember:BucketIAMMember",
    "gcp:projects/iAMMember:IAMMember",
    "gcp:secretmanager/secretIamMember:SecretIamMember",
)


class RoleMember(Behavior):
    """One member of a role. Adding it again has no effect. Removing the member removes it for every program that added it."""

    joins = True


class GoogleCloud(StandIn):
    """Google Cloud."""

    typed = True
    default_region = "us-central1"
    identity_inputs = ("name", "project", "region", "zone", "location", "network", "subnetwork")
    group_kinds = (ManagedGroups(),)
    already_exists = GoogleError("alreadyExists", "The resource '{id}' already exists", status=409)
    unavailable = GoogleError("backendError", "The service is currently unavailable. (injected by --fault)", status=503)
    permissions = operator
    texts = texts.TEXTS

    def identify(self, token: str, name: str, inputs: Mapping[str, Any], region: str, count: Count) -> str:
        """Return a path, or an ID in the format that the provider documents."""
        return ids.new_id(token, name, inputs)

    def replacing(self, token: str, inputs: Mapping[str, Property]) -> set[str]:
        return replacements.forced(token, inputs)

    def default_behavior(self, token: str) -> Behavior | None:
        return _MEMBER if token.endswith(("IAMMember", "IamMember")) else None

    def text(self, name: str, about: Subject, path: tuple[str, ...]) -> str | None:
        """Return links, the project, accounts and locations."""
        if name == "selfLink":
            return f"https://www.googleapis.com/compute/v1/{about.id}"
        if name == "project":
            return ids.PROJECT
        if name == "email":
            own = last(about.id)
            return own if "@" in own else f"{own}@{ids.PROJECT}.iam.gserviceaccount.com"
        if name in ("region", "location") and len(path) == 1:
            return about.region or self.default_region
        if name == "zone" and len(path) == 1:
            return f"{about.region or self.default_region}-a"
        return None

    def place_of(self, store: Store, inputs: Mapping[str, Any]) -> str:
        return outages.of_resource(store, inputs)

    def regions(self) -> Iterable[str]:
        return sorted(REGIONS)

    def replicate(self, store: Store) -> None:
        from gpuinfra_rehearsal.cloud.gcp.behaviors import replication

        replication.replicate(store)

    def services(self, cloud: Cloud) -> Mapping[str, Service]:
        from gpuinfra_rehearsal.cloud.gcp.http import PREFIX, Google

        return {PREFIX: Google(cloud)}

    def operator_credentials(self, cloud: Cloud) -> dict[str, str]:
        """Return a key file and the project."""
        return {"credentials_file": tokens.operator_file(cloud), "project": ids.PROJECT}

    def node_rights(self, store: Store, nodes: list[dict[str, Any]]) -> Iterator[str]:
        """Return the grants of the nodes' service accounts."""
        members = {f"serviceAccount:{one['account']}" for one in nodes if one["account"]}
        for kind in _NODE_GRANTS:
            for resource in store.list(kind):
                if resource.plain.get("member") in members:
                    yield grant(resource.urn)

    def logins(self, cloud: Cloud, instance: dict[str, Any]) -> Mapping[str, list[str]]:
        """Return the users of OS Login."""
        from gpuinfra_rehearsal.cloud.gcp.http import logins

        return logins.logins(cloud, instance)

    def control_actions(self, cloud: Cloud) -> Mapping[str, Action]:
        """Handle POST `preempt` `{"instance_id"}`: send a preemption notice to a spot machine, which is terminated 30 s
        later."""

        def announce(asked: dict[str, Any]) -> dict[str, Any]:
            if not preempt(cloud.store, str(asked["instance_id"])):
                raise ValueError(f"{asked['instance_id']} is not a running spot machine on Google Cloud")
            return {"instance_id": asked["instance_id"]}

        return {"preempt": announce}


_MEMBER = RoleMember()
STAND_IN = GoogleCloud
