"""The parts of a node pool that all clouds share: the bundle, `node.json`, and the values that the handover expects.

A cloud's `NodePool` adds the upload, the image, and the groups. Each group of the plan becomes one group in the cloud.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pulumi

from gpuinfra import bundle
from gpuinfra.base import naming
from gpuinfra.clouds import homes
from gpuinfra.clouds.scope import BaseScope
from gpuinfra.handover import GroupReady, PoolReady
from gpuinfra.plan.model import Group, PoolPlan


@dataclass(frozen=True, kw_only=True)
class BaseNodePoolArgs:
    """Pool arguments that all clouds share."""

    plan: PoolPlan
    bucket: pulumi.Input[str]
    """Object store for the bundle and the evidence."""
    evidence_prefix: str = ""
    """Folder for evidence in this store. If unset, `evidence/<cluster>`."""
    file_systems: pulumi.Output[Sequence[Mapping[str, Any]]] | Sequence[Mapping[str, Any]] = ()
    """File systems that the nodes mount: `kind`, `mount`, `dns_name`, `mount_name`, and `service` for home directories. The `mounted` output of
    `SharedFilesystem` and of an existing file system in the plan is such an entry."""
    data_disk: pulumi.Input[str] | None = None
    """Disk that the only node of the pool attaches at boot: its ID, on Google Cloud its path."""
    metrics_url: pulumi.Input[str] | None = None
    """Control node: address of the managed store to which it writes metrics."""
    alert_topics: Mapping[str, pulumi.Input[str]] | None = None
    """Control node: addresses of the topics to which it publishes alerts."""


@dataclass(frozen=True, kw_only=True)
class RunningGroup:
    """A group in a pool, as input for the handover."""

    plan: Group
    group: pulumi.Output[str]
    """The cloud's name or ID of the group."""
    template_version: pulumi.Output[Any]
    """Template version that the group's nodes must run."""
    resources: tuple[pulumi.Resource, ...]
    """Resources that launch the group's nodes."""
    template_id: pulumi.Output[str] | None = None


A = TypeVar("A", bound=BaseNodePoolArgs)


class BaseNodePool(pulumi.ComponentResource, Generic[A]):
    """Nodes of one machine type."""

    group_names: dict[str, pulumi.Output[str]]
    """The cloud's group names, keyed by the group's name in the plan."""
    bundle_sha256: str
    """Checksum of the bundle that the nodes run at boot."""
    bucket: pulumi.Input[str]
    """Store of the bundle and the evidence."""
    evidence_prefix: str
    """Folder for evidence in this store."""

    def __init__(
        self,
        type_: str,
        name: str,
        args: A,
        scope: BaseScope,
        opts: pulumi.ResourceOptions | None,
        *,
        node_role: pulumi.Input[str] | None = None,
        evidence_owner: pulumi.Input[str] | None = None,
    ) -> None:
        """`node_role` is the identity that must sign the evidence, if the pool has one.

        `evidence_owner` is its unique ID, for stores whose access rules require the ID.
        """
        super().__init__(type_, name, None, scope.options(opts))
        self._node_role, self._evidence_owner = node_role, evidence_owner
        self._name, self._args = name, args
        self.bucket, self.evidence_prefix = args.bucket, args.evidence_prefix or naming.evidence_prefix(scope.cluster)
        self.plan = args.plan
        """The plan of the pool."""
        built = bundle.build(args.plan)
        self.bundle_sha256 = built.sha256
        self.groups = self._create(built)
        """The groups in plan order."""
        self.group_names = {one.plan.name: one.group for one in self.groups}
        self.register_outputs({"group_names": self.group_names, "bundle_sha256": self.bundle_sha256})

    @abstractmethod
    def _create(self, built: bundle.Bundle) -> tuple[RunningGroup, ...]:
        """Upload the bundle and create the groups."""

    def _user_data(self, cloud: str, scope: BaseScope, key: pulumi.Input[str], **more: Any) -> pulumi.Output[str]:
        """Return the user data of the nodes. It contains `node.json` (docs/reference/formats.md). `more` adds fields that are specific to this cloud."""
        evidence = {"bucket": self._args.bucket, "prefix": self.evidence_prefix, **more.pop("evidence", {})}
        config = {
            "schema": "gpuinfra.node/1",
            "cloud": cloud,
            "cluster": scope.cluster,
            "pool": self.plan.name,
            "region": scope.region,
            "evidence": evidence,
            "bundle": {"bucket": self._args.bucket, "key": key, "sha256": self.bundle_sha256},
            "file_systems": homes.for_nodes(cloud, self.plan, self._args.file_systems),
            **({} if self._args.data_disk is None else {"data_disk": self._args.data_disk}),
            **({} if self._args.metrics_url is None else {"metrics_url": self._args.metrics_url}),
            **({"alert_topics": self._args.alert_topics} if self._args.alert_topics else {}),
            **more,
        }
        return pulumi.Output.json_dumps(config, sort_keys=True).apply(lambda text: bundle.user_data(json.loads(text)))

    def ready(self) -> PoolReady:
        """Return the values that the handover expects from the pool."""
        return PoolReady(
            name=self.plan.name,
            machine=self.plan.machine,
            groups=[
                GroupReady(
                    name=one.plan.name,
                    group=one.group,
                    count=one.plan.count,
                    template_id=one.template_id,
                    template_version=one.template_version,
                    kind=one.plan.kind,
                    zone=one.plan.zone,
                )
                for one in self.groups
            ],
            expectation=self.plan.expectation,
            bundle_sha256=self.bundle_sha256,
            node_role=self._node_role,
            evidence_owner=self._evidence_owner,
        )
