"""Azure extensions of the stand-in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra.clouds.azure.regions import PAIRS, UNPAIRED
from gpuinfra_rehearsal.cloud.azure import (
    filled,
    identity,
    ids,
    operator,
    places,
    replacements,
    replication,
    stores,
    texts,
)
from gpuinfra_rehearsal.cloud.azure.errors import AzureError
from gpuinfra_rehearsal.cloud.azure.groups import KIND
from gpuinfra_rehearsal.cloud.core import outage
from gpuinfra_rehearsal.cloud.core.ids import Count, last
from gpuinfra_rehearsal.cloud.core.interfaces import Subject
from gpuinfra_rehearsal.cloud.core.rights import grant
from gpuinfra_rehearsal.cloud.core.stand_in import Action, StandIn

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.http import Service
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.sdk import Property
    from gpuinfra_rehearsal.cloud.core.store import Store


class AzureStandIn(StandIn):
    """Azure."""

    typed = True
    package = "azure-native"
    default_region = "eastus"
    looks_up_first = True
    adds_location = True
    identity_inputs = ("resourceGroupName", "location", "subscriptionId", "scope")
    group_kinds = (KIND,)
    already_exists = AzureError("Conflict", "cannot create already existing resource '{id}'", status=409)
    unavailable = AzureError(
        "ServiceUnavailable",
        "The server is temporarily unable to handle the request. (injected by --fault)",
        status=503,
    )
    permissions = operator
    texts = texts.TEXTS

    def identify(self, token: str, name: str, inputs: Mapping[str, Any], region: str, count: Count) -> str:
        return ids.new_id(token, name, inputs)

    def own_names(self, token: str) -> list[str]:
        """Return the last segment of the path if it is a name."""
        own = ids.path_inputs(token)[1]
        return [own] if own.lower().endswith("name") else []

    def generated_name(self, token: str, name: str, digest: str) -> str:
        """Return the generated name: a copy of the logical name if the resource is inside another resource, otherwise
        the logical name and eight digits (`getDefaultName` in pulumi-azure-native, `provider/pkg/provider`)."""
        return name if ids.path_inputs(token)[0] else f"{name}{digest[:8]}"

    def replacing(self, token: str, inputs: Mapping[str, Property]) -> set[str]:
        return replacements.forced(token, inputs)

    def text(self, name: str, about: Subject, path: tuple[str, ...]) -> str | None:
        """Return the type and the fields that all resources share."""
        if name == "type" and len(path) == 1:
            provider, _, rest = about.id.partition("/providers/")[2].partition("/")
            return "/".join([provider, *rest.split("/")[::2]]) if rest else "Microsoft.Resources/resourceGroups"
        if name in ("tenantId", "subscriptionId"):
            return ids.SUBSCRIPTION
        return {"azureApiVersion": "2026-01-01", "provisioningState": "Succeeded"}.get(name)

    def filled(self, token: str) -> Mapping[str, Any]:
        return filled.OUTPUTS.get(token, {})

    def output_name(self, about: Subject) -> str | None:
        """Return the last segment of the path."""
        return last(about.id)

    def services(self, cloud: Cloud) -> Mapping[str, Service]:
        from gpuinfra_rehearsal.cloud.azure.http import services

        return services(cloud)

    def regions_of(
        self, store: Store, token: str, region: str, id: str, inputs: Mapping[str, Any], *, change: bool
    ) -> tuple[str, ...]:
        return places.regions(store, token, id, inputs, change=change) if outage.active(store) else ()

    def regions(self) -> Iterable[str]:
        return (*PAIRS, *UNPAIRED)

    def replicate(self, store: Store) -> None:
        replication.run(store)

    def control_actions(self, cloud: Cloud) -> Mapping[str, Action]:
        """Handle POST `private_network` `{"operator"}`: whether the operator's machine reaches accounts through private endpoints."""

        def private(asked: dict[str, Any]) -> dict[str, Any]:
            stores.set_private(cloud.store, operator=bool(asked["operator"]))
            return {"operator": bool(asked["operator"])}

        return {"private_network": private}

    def operator_credentials(self, cloud: Cloud) -> dict[str, str]:
        """Return the secret part of the operator's metadata address, and the certificates that sign attested documents."""
        from gpuinfra_rehearsal.cloud.azure.signer import Signer

        return {"secret": identity.operator_secret(cloud.store), "certificates": str(Signer(cloud.folder).prepare())}

    def logins(self, cloud: Cloud, instance: dict[str, Any]) -> Mapping[str, list[str]]:
        """Return the administrator of the scale set with its keys."""
        logins: dict[str, list[str]] = instance.get("logins") or {}
        return logins

    def node_rights(self, store: Store, nodes: list[dict[str, Any]]) -> Iterator[str]:
        """Return the role assignments of the nodes' identities."""
        principals = {str(held.outputs.get("principalId")).lower() for one in nodes for held in identity.identities_of(store, one)}  # fmt: skip
        for resource in store.list(identity.ASSIGNMENT):
            if str(resource.plain.get("principalId")).lower() in principals:
                yield grant(resource.urn)


STAND_IN = AzureStandIn
