"""Amazon EFS file systems for home directories. `destroy` retains the file system and deletes its mount targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components import policies
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.aws.instances import Lookup
from gpuinfra.clouds.aws.profile import dns_name as assigned_name
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import FileSystemPlan
from gpuinfra.plan.planned import ResourceKind


@dataclass(frozen=True, kw_only=True)
class HomeDirectoriesArgs:
    """Arguments for the home directories."""

    scope: Scope
    plan: FileSystemPlan
    subnet_ids: Mapping[str, pulumi.Input[str]]
    """Subnets of the mount targets, keyed by the subnet's name in the plan, at most one in each zone."""
    security_group_id: pulumi.Input[str]
    """Security group for the mount targets (`SecurityGroups.homes_group_id`)."""
    key_arn: pulumi.Input[str] | None = None
    """KMS key for the files. If unset, EFS uses its own key."""


class HomeDirectories(pulumi.ComponentResource):
    """A file system, its policy, and a mount target in each node subnet. A replica of another stack gets only the mount targets."""

    file_system_id: pulumi.Output[str]
    """ID of the file system."""
    dns_name: pulumi.Output[str]
    """DNS name to mount. In each zone, it resolves to the mount target of the zone. Resolves after the mount targets and the policy exist."""

    def __init__(self, name: str, args: HomeDirectoriesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:HomeDirectories", name, None, args.scope.options(opts))
        if args.plan.replica:
            file_system_id, made = pulumi.Output.from_input(args.plan.replica), list[pulumi.Resource]()
            dns_name = pulumi.Output.from_input(assigned_name(args.plan.replica, args.scope.region, fsx=False))
        else:
            file_system, policy = home(
                self, args.scope, args.plan, args.key_arn, name=name, rows=(rows.HOME, rows.HOME_POLICY)
            )
            file_system_id, made, dns_name = file_system.id, [policy], file_system.dns_name
        targets = [
            aws.efs.MountTarget(
                rows.MOUNT_TARGET.logical(name, subnet=subnet),
                file_system_id=file_system_id,
                subnet_id=id_,
                security_groups=[args.security_group_id],
                opts=child(self, rows.MOUNT_TARGET),
            )
            for subnet, id_ in args.subnet_ids.items()
        ]
        self.file_system_id = file_system_id
        self.dns_name = ready_after(dns_name, [*made, *targets])
        self.register_outputs({"file_system_id": self.file_system_id, "dns_name": self.dns_name})


def home(
    parent: pulumi.Resource,
    scope: Scope,
    plan: FileSystemPlan,
    key_arn: pulumi.Input[str] | None,
    *,
    name: str,
    rows: tuple[ResourceKind[Lookup], ResourceKind[Lookup]],
    **values: str,
) -> tuple[aws.efs.FileSystem, aws.efs.FileSystemPolicy]:
    """Create a file system for home directories and its policy in the Region of the component. `values` fill in the names of the rows."""
    file_system = aws.efs.FileSystem(
        rows[0].logical(name, **values),
        # EFS rejects a second file system with this token, and `adopt` finds the file system by it.
        creation_token=scope.unique_name(plan.name),
        encrypted=True,
        kms_key_id=key_arn,
        performance_mode="generalPurpose",
        throughput_mode=plan.deployment,
        region=scope.region,
        opts=child(parent, rows[0]),
    )
    policy = aws.efs.FileSystemPolicy(
        rows[1].logical(name, **values),
        file_system_id=file_system.id,
        policy=policies.document(policies.home_clients(file_system.arn)),
        region=scope.region,
        opts=child(parent, rows[1]),
    )
    return file_system, policy
