"""The scope of Azure components: the cluster, the subscription, and the settings that all resources share.

`Scope.options` sets the location and tags on all child resources of a component. A scale set also has the tags of its pool and group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import pulumi
from pulumi_azure_native import authorization

from gpuinfra.clouds import scope as shared
from gpuinfra.clouds.already_exists import already_exists_hook
from gpuinfra.clouds.azure import names
from gpuinfra.clouds.azure.components.propagation import propagation_hook
from gpuinfra.clouds.scope import BaseScope, of_stack, unset, with_defaults
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import ResourceKind

KEY = "azure-native:keyvault:Key"
"""A key has the location of its vault."""


@dataclass(frozen=True, kw_only=True)
class Scope(BaseScope):
    """The cluster, the subscription and the resource group that resources belong to."""

    subscription: pulumi.Input[str]
    """Subscription ID. Part of globally unique names on Azure."""
    tenant: pulumi.Input[str]
    """Tenant ID, which a key vault requires."""
    operator: pulumi.Input[str]
    """Object ID of the credentials that run the program. They access the evidence account through a role, not through a key."""
    group: pulumi.Input[str] = ""
    """Resource group for the resources. Each layer has its own."""

    @classmethod
    def of(cls, plan: Plan, opts: pulumi.InvokeOutputOptions | None = None, *, group: pulumi.Input[str] = "") -> Self:
        """Return the scope of a plan in the running stack, in the subscription of its credentials."""
        credentials = authorization.get_client_config_output(opts=opts)
        return cls(
            subscription=credentials.subscription_id,
            tenant=credentials.tenant_id,
            operator=credentials.object_id,
            group=group,
            **of_stack(plan),
        )

    def within(self, group: pulumi.Input[str]) -> Scope:
        """Return a copy of this scope in a resource group."""
        return replace(self, group=group)

    def options(self, opts: pulumi.ResourceOptions | None = None) -> pulumi.ResourceOptions:
        """Return `opts` of a component with a transform that sets the location, the tags, and the `Name` tag (the logical name) on its resources."""

        def fill(type_: str, name: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
            return unset(args, location=None if type_ == KEY else self.region, tags=self.owned(name))

        return with_defaults(opts, "azure-native", fill)

    def account_name(self, purpose: str) -> pulumi.Output[str]:
        """Return the name of a storage account of this stack."""
        return pulumi.Output.from_input(self.subscription).apply(
            lambda subscription: names.storage_account(self.cluster, purpose, subscription, self.token)
        )

    def vault_name(self, region: str = "") -> pulumi.Output[str]:
        """Return the name of the key vault of this stack. `region` is the region of a vault in the second region, or empty."""
        return pulumi.Output.from_input(self.subscription).apply(
            lambda subscription: names.vault(self.cluster, subscription, self.token, region)
        )


def child(
    parent: pulumi.Resource,
    row: ResourceKind[Any],
    *,
    data: bool | None = None,
    depends_on: Iterable[pulumi.Resource] = (),
    ignore_changes: Iterable[str] = (),
    replace_on_changes: Iterable[str] = (),
    delete_before_replace: bool | None = None,
) -> pulumi.ResourceOptions:
    """Return the options for a child resource of a component. Extends `gpuinfra.clouds.scope.child` with Azure-specific options.

    `replace_on_changes` lists inputs that Azure cannot update (`fixed.py`). For most of them, the provider plans an update that fails during `up`.
    With `delete_before_replace=False`, the replacement is created first. This always applies to retained resources: the name is still taken, so the replacement
    fails before data is lost. Operations that fail because a role has not taken effect yet are retried (`propagation.py`).
    """
    options = shared.child(parent, row, data=data, depends_on=depends_on, ignore_changes=ignore_changes)
    create_first = bool(options.retain_on_delete) or delete_before_replace is False
    options.delete_before_replace = False if create_first else delete_before_replace
    options.replace_on_changes = list(replace_on_changes)
    hooks = [hook for hook in (propagation_hook(), already_exists_hook()) if hook]
    options.hooks = pulumi.ResourceHookBinding(on_error=hooks) if hooks else None
    return options
