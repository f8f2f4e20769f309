"""What every Azure component is told: whose it is, where it is, and how its things are marked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pulumi
from pulumi_azure_native import authorization

from gpuinfra import naming
from gpuinfra.clouds.already_exists import explains_existing
from gpuinfra.clouds.azure import names
from gpuinfra.clouds.resource_group import Parent, inside


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Whose resources these are, and where."""

    cluster: str
    """The cluster's name; begins every readable name."""
    region: str
    """Region of every regional resource; changing it replaces them all."""
    token: str
    """Token of the stack, from `gpuinfra.naming.stack_token`."""
    subscription: pulumi.Input[str]
    """Subscription id; part of names that all of Azure shares."""
    tenant: pulumi.Input[str]
    """Tenant id, which key vaults are told."""
    operator: pulumi.Input[str]
    """Object id of whoever runs the program; reads and writes the evidence account with no key but this identity."""
    group: pulumi.Input[str] = ""
    """Resource group of what is made; each layer has one of its own."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of every resource that can carry them."""

    @staticmethod
    def here(
        cluster: str,
        region: str,
        tags: Mapping[str, str] | None = None,
        opts: pulumi.InvokeOptions | None = None,
        group: pulumi.Input[str] = "",
    ) -> Scope:
        """The scope of the stack that runs now, in the subscription of its credentials."""
        token = naming.stack_token(pulumi.get_organization(), pulumi.get_project(), pulumi.get_stack(), cluster)
        who = authorization.get_client_config_output(opts=opts)
        return Scope(
            cluster=cluster,
            region=region,
            token=token,
            subscription=who.subscription_id,
            tenant=who.tenant_id,
            operator=who.object_id,
            group=group,
            tags=dict(tags or {}),
        )

    def within(self, group: pulumi.Input[str]) -> Scope:
        """The same scope in a resource group."""
        return replace(self, group=group)

    def tagged(self, name: str, **more: str) -> dict[str, str]:
        """The scope's tags, the display name, and more; keyword `gpuinfra_pool` becomes the tag `gpuinfra:pool`."""
        return {**self.tags, "Name": name, **{key.replace("_", ":", 1): value for key, value in more.items()}}

    def unique_name(self, purpose: str, limit: int = 64) -> str:
        """The name of something of this stack that is unique in its subscription and region."""
        return naming.unique_name(self.cluster, purpose, self.token, limit)

    def account_name(self, purpose: str) -> pulumi.Output[str]:
        """The name of one of this stack's storage accounts."""
        return pulumi.Output.from_input(self.subscription).apply(
            lambda subscription: names.storage_account(self.cluster, purpose, subscription, self.token)
        )

    def vault_name(self) -> pulumi.Output[str]:
        """The name of this stack's key vault."""
        return pulumi.Output.from_input(self.subscription).apply(
            lambda subscription: names.vault(self.cluster, subscription, self.token)
        )

    def role_definition(self, role: str) -> pulumi.Output[str]:
        """The id of one of Azure's own roles."""
        return pulumi.Output.concat(
            "/subscriptions/", self.subscription, "/providers/Microsoft.Authorization/roleDefinitions/", role
        )


def child(
    parent: Parent,
    *,
    keep: bool = False,
    depends_on: Iterable[pulumi.Resource] = (),
    ignore_changes: Iterable[str] = (),
    fixed: Iterable[str] = (),
    old_first: bool | None = None,
) -> pulumi.ResourceOptions:
    """Options of a component's child; with `keep` the cloud's thing outlives a destroy of the stack.

    Kept things are not protected as well: the engine refuses to destroy a stack that holds protected resources,
    and a kept one is out of danger already.
    `fixed` are inputs that Azure cannot change (`fixed.py`): the provider knows few of them, and would show an update that fails half way.
    `old_first` says whether a replacement begins with the end of its predecessor; what is kept never does, so that its name, which is taken,
    stops the replacement before anything is lost.
    """
    old_first = False if keep else old_first
    own = pulumi.ResourceOptions(
        retain_on_delete=keep or None,
        delete_before_replace=old_first,
        depends_on=list(depends_on),
        ignore_changes=list(ignore_changes),
        replace_on_changes=list(fixed),
        hooks=explains_existing() if old_first is False else None,
    )
    return inside(parent, own)
