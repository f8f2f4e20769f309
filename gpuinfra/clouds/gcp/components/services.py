"""The APIs that a plan's layers call. A project has none of them until somebody turns them on; nothing turns them off again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pulumi
import pulumi_gcp as gcp

from gpuinfra import naming
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.clouds.resource_group import Part


@dataclass(frozen=True, kw_only=True)
class ServicesArgs:
    """What is to be callable."""

    scope: Scope
    apis: Sequence[str]
    """`compute`, `storage`, ...: the part before `.googleapis.com`."""


class Services(Part):
    """APIs of a project, turned on. A destroy leaves them on, because other people's things may call them by then."""

    scope: Scope
    """The same scope; what is made in it comes after the APIs."""

    def __init__(self, name: str, args: ServicesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        scope = args.scope

        apis = [
            gcp.projects.Service(
                naming.logical(name, api),
                project=scope.project,
                service=f"{api}.googleapis.com",
                disable_on_destroy=False,
                opts=child(self),
            )
            for api in args.apis
        ]
        self.scope = replace(scope, project=ready_after(scope.project, apis))
