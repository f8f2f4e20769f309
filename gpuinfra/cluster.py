"""`GpuCluster`: one declaration, one component, on whichever cloud the declaration names.

It checks the spec, makes the plan, and lets the cloud's folder translate it; a cloud's SDK is imported only when a spec names that cloud.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from typing import Any

import pulumi

from gpuinfra.clouds import why_not_built, why_not_here
from gpuinfra.day import today
from gpuinfra.errors import SpecError
from gpuinfra.existing import Existing
from gpuinfra.findings import Level
from gpuinfra.plan.model import Plan
from gpuinfra.planning import make_plan
from gpuinfra.registry import module_of
from gpuinfra.rules import check
from gpuinfra.spec import ClusterSpec, parse_spec


class GpuCluster(pulumi.ComponentResource):
    """A GPU cluster with what it stands on: audit and keys, network and file systems, nodes, and the proof that every GPU answers.

    Destroying it keeps what holds data, audit or keys, and `kept` lists those things with the reason.
    """

    outputs: Mapping[str, Any]
    """Everything that other stacks and people ask for: ids, names, groups, nodes."""
    kept: list[dict[str, str]]
    """What a destroy leaves in the account, and why."""

    def __init__(
        self,
        name: str,
        spec: ClusterSpec | Mapping[str, Any],
        opts: pulumi.ResourceOptions | None = None,
        *,
        existing: Existing | None = None,
    ) -> None:
        super().__init__("gpuinfra:index:GpuCluster", name, None, opts)
        spec = spec if isinstance(spec, ClusterSpec) else parse_spec(dict(spec))
        if reason := why_not_built(spec.cloud) or why_not_here(spec.cloud):
            raise pulumi.RunError(reason)
        day = today()
        self.plan = _planned(spec, day, self)
        """Every decision taken, before anything is made."""
        self.kept = [asdict(one) for one in self.plan.kept]
        cloud = module_of(spec.cloud, "components.cluster")
        stands_on = (existing or Existing()).joined(
            cloud.EXISTING,
            foundation=spec.use.foundation,
            site=spec.use.site,
            opts=pulumi.ResourceOptions(parent=self),
        )
        built = cloud.build(self, self.plan, stands_on)
        self.outputs = {**built, "kept": self.kept}
        self.register_outputs({**self.outputs, "spec": spec.model_dump(mode="json")})


def _planned(spec: ClusterSpec, day: date, component: pulumi.Resource) -> Plan:
    """The plan of a spec without findings of level error; the others are said where people read them."""
    findings = check(spec, day)
    if any(finding.level is Level.ERROR for finding in findings):
        raise SpecError(findings)
    for finding in findings:
        if finding.level is Level.WARN:
            pulumi.log.warn(str(finding), component)
    return make_plan(spec, day)
