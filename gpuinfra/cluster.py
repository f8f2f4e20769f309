"""`GpuCluster` creates a cluster from a declaration on the cloud that the declaration specifies.

It checks the spec, creates the plan, and runs the builder of the cloud. It imports only the SDK of that cloud.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pulumi

from gpuinfra.base.registry import cloud_as
from gpuinfra.checked_plan import cluster_plan, parsed_spec
from gpuinfra.clouds import why_not_built, why_not_here
from gpuinfra.clouds.active_program import check_active
from gpuinfra.clouds.build import build
from gpuinfra.clouds.cloud import BuiltCloud
from gpuinfra.clouds.existing import ExistingBase
from gpuinfra.spec import ClusterSpec


class GpuCluster(pulumi.ComponentResource):
    """A GPU cluster: a foundation (audit trail, keys, evidence), a site (network, file systems), and verified nodes.

    `destroy` retains resources that hold data, audit records, or keys. `kept` lists them with the reasons.
    Use `existing` to pass in resources from a layer that this stack does not create, for example `gpuinfra.clouds.aws.Existing(vpc_id=...)`.
    """

    outputs: Mapping[str, Any]
    """The outputs: IDs, names, groups, and nodes."""
    kept: list[dict[str, str]]
    """The resources that `destroy` retains, with the reasons."""

    def __init__(
        self,
        name: str,
        spec: ClusterSpec | Mapping[str, Any],
        opts: pulumi.ResourceOptions | None = None,
        *,
        existing: ExistingBase | None = None,
    ) -> None:
        super().__init__("gpuinfra:index:GpuCluster", name, None, opts)
        spec = parsed_spec(spec)
        if reason := why_not_built(spec.cloud) or why_not_here(spec.cloud):
            raise pulumi.RunError(reason)
        self.plan = cluster_plan(spec, self)
        """The plan, which is created before any resource."""
        moving = check_active(name, self.plan)
        self.kept = [asdict(one) for one in self.plan.kept]
        built = build(
            cloud_as(spec.cloud, BuiltCloud).builder,
            self,
            self.plan,
            existing,
            foundation_stack=spec.use.foundation,
            site_stack=spec.use.site,
            moving=moving,
        )
        self.outputs = {**built, "kept": self.kept}
        self.register_outputs({**self.outputs, "spec": spec.model_dump(mode="json")})
