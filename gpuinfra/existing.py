"""What is there already: given by a program as inputs, or made by another stack and read from its outputs.

These are the ids that are born elsewhere, so they never pass through the spec.
The names are those of a stack's outputs; a layer made by one stack is used by another under the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import pulumi

FOUNDATION = ("data_key_arn", "log_key_arn", "evidence_bucket", "evidence_bucket_arn")
SITE = ("vpc_id", "subnet_ids", "nodes_group_id", "file_systems")
_NOT_ALWAYS = frozenset({"log_key_arn"})
"""Outputs that a foundation without an audit trail does not have."""


@dataclass(frozen=True, kw_only=True)
class Existing:
    """Things that a cluster uses and does not make."""

    data_key_arn: pulumi.Input[str] | None = None
    """Key of disks, evidence and file systems."""
    log_key_arn: pulumi.Input[str] | None = None
    """Key of log groups."""
    access_log_bucket: pulumi.Input[str] | None = None
    """Bucket that takes access logs. Never taken from another stack: whether there is one decides what is made, so it has to be known before."""
    evidence_bucket: pulumi.Input[str] | None = None
    """Bucket of bundles and evidence."""
    evidence_bucket_arn: pulumi.Input[str] | None = None
    """ARN of that bucket."""
    vpc_id: pulumi.Input[str] | None = None
    """Network of the nodes; given together with `subnet_ids`."""
    subnet_ids: pulumi.Output[Mapping[str, str]] | Mapping[str, pulumi.Input[str]] | None = None
    """Subnet ids by the plan's names, `private-0`."""
    nodes_group_id: pulumi.Input[str] | None = None
    """Security group of nodes; it has to let all protocols through from itself and to itself, by its own id."""
    file_systems: Any = None
    """What nodes mount: a list of `kind`, `mount`, `dns_name`, `mount_name`."""

    def get(self, name: str) -> Any:
        """A thing that may be missing."""
        return getattr(self, name)

    def wanted(self, name: str) -> Any:
        """A thing that this stack needs. Raises `ValueError` saying who has to give it."""
        value = getattr(self, name)
        if value is None:
            layer = "foundation" if name in FOUNDATION else "site"
            raise ValueError(
                f"this stack makes no {layer}, so it needs {name}; name the stack that made it under use.{layer}, "
                f"or give Existing({name}=...) to GpuCluster"
            )
        return value

    def joined(
        self, *, foundation: str | None, site: str | None, opts: pulumi.ResourceOptions | None = None
    ) -> Existing:
        """These things, and what the named stacks made; what a program gave itself goes first."""
        given: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for stack, names in ((foundation, FOUNDATION), (site, SITE)):
            if stack is None:
                continue
            reference = pulumi.StackReference(stack, opts=opts)
            for name in names:
                if given[name] is None:
                    given[name] = reference.get_output(name) if name in _NOT_ALWAYS else reference.require_output(name)
        return Existing(**given)
