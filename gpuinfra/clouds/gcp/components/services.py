"""The APIs that the layers of a plan call. Most APIs are disabled in a new project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pulumi
import pulumi_gcp as gcp

from gpuinfra.clouds.gcp import resources as rows
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.gcp.instances import apis
from gpuinfra.clouds.ready_after import ready_after

__all__ = ["Services", "ServicesArgs", "apis"]


@dataclass(frozen=True, kw_only=True)
class ServicesArgs:
    """Arguments for the enabled APIs."""

    scope: Scope
    apis: Sequence[str]
    """APIs to enable, by the part before `.googleapis.com`, such as `compute` or `storage`. `gcp.apis(plan)` returns those of a plan."""


class Services(pulumi.ComponentResource):
    """The enabled APIs of a project. `destroy` leaves them enabled, because other resources in the project may use them."""

    scope: Scope
    """The scope to use for other resources, which are then created after the APIs are enabled."""

    def __init__(self, name: str, args: ServicesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:Services", name, None, args.scope.options(opts))
        enabled = [
            gcp.projects.Service(
                rows.SERVICE.logical(name, api=api),
                service=f"{api}.googleapis.com",
                disable_on_destroy=False,
                opts=child(self, rows.SERVICE),
            )
            for api in args.apis
        ]
        services_scope = args.scope
        self.scope = replace(
            services_scope,
            project=ready_after(services_scope.project, enabled),
            number=ready_after(services_scope.number, enabled),
            billing_account=ready_after(services_scope.billing_account, enabled),
        )
        self.register_outputs({"project": self.scope.project})
