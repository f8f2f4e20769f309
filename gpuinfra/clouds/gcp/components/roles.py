"""The service accounts of the nodes and of the control node. The account of the nodes can fetch the bundle, write evidence, exchange files for pair
measurements, pull images from one registry, and read or write the buckets that the nodes mount. It has no permissions on a project, except for declared
roles. The account of the control node can fetch the bundle, write evidence, list the instances of the project, attach its data disk, and read declared secrets.

A condition on the object name restricts each grant to one kind of object. Conditions cannot refer to the name of the calling instance, so
all nodes of a cluster share a folder. A node can create objects in it, but cannot read, change or delete the evidence of another node.
The identity token that each node sends with its evidence identifies the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gpuinfra.base import naming
from gpuinfra.clouds.gcp import names
from gpuinfra.clouds.gcp import resources as rows
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.gcp.instances import ATTACH, DISCOVERY, ORDERS_GRANT, REPAIR
from gpuinfra.clouds.instances import CONTROL_ROLE
from gpuinfra.clouds.ready_after import ready_after
from gpuinfra.plan.model import Group, MonitoringPlan, NodeRolePlan, Plan

DISCOVERS = ("compute.instances.list",)
"""The only request of `gce_sd_configs` (prometheus/prometheus: discovery/gce/gce.go at 3.13, retrieved 2026-11-29)."""

ATTACHES = ("compute.disks.use", "compute.instances.attachDisk")
"""The permissions of `instances.attachDisk` on the disk and on the instance (https://cloud.google.com/compute/docs/reference/rest/v1/instances/attachDisk,
retrieved 2026-11-30)."""

REPLACES = ("compute.instances.delete",)
"""The request with which the control node replaces a node (`GcpNode.replace_node`)."""

RENDEZVOUS = 'resource.name.extract("/rendezvous/{name}") != ""'
"""Objects of other nodes that a node can read, which are used for pair measurements (docs/internals/decisions/pairs.md)."""


@dataclass(frozen=True, kw_only=True)
class MountedBucket:
    """A bucket that the nodes mount."""

    name: str
    """Logical name of the mount, such as `data-0`."""
    bucket: pulumi.Input[str]
    read_only: bool = True
    """If true, nodes can read and list the objects. If false, they can also create, replace and delete them."""


@dataclass(frozen=True, kw_only=True)
class NodeRoleArgs:
    """Arguments for the node role."""

    scope: Scope
    plan: Plan
    """Plan of the nodes. It contains the registry of the container images, if that is an Artifact Registry repository, and additional roles."""
    bucket: pulumi.Input[str]
    """Evidence bucket, which also holds the bundles."""
    evidence_prefix: str = ""
    """Folder to which the nodes of the cluster write. If unset, `evidence/<cluster>`."""
    mounts: Sequence[MountedBucket] = ()
    """Buckets that the nodes mount. Without additional roles, the nodes have no access to other buckets."""
    monitoring: MonitoringPlan | None = None
    """Set for the account of the control node, which finds the nodes and reads the secrets of the receivers of alerts. It has no declared roles."""
    data_disk: pulumi.Input[str] = ""
    """Path of the disk that the control node attaches."""


class NodeRole(pulumi.ComponentResource):
    """The service account of the nodes, or of the control node."""

    email: pulumi.Output[str]
    """Email address of the service account. Resolves after its grants exist. Evidence must be signed by this account."""
    account: pulumi.Output[str]
    """The same address. Resolves when the account exists. Firewall rules use it, because they apply to the account, not to its permissions."""

    def __init__(self, name: str, args: NodeRoleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:NodeRole", name, None, args.scope.options(opts))
        scope = args.scope
        self._name, self._args = name, args
        control = args.monitoring
        account = gcp.serviceaccount.Account(
            rows.NODE_ACCOUNT.logical(name),
            account_id=names.account_id(scope.cluster, CONTROL_ROLE if control else "node", scope.token),
            display_name=f"{'Control node' if control else 'Nodes'} of {scope.cluster}",
            opts=child(self, rows.NODE_ACCOUNT),
        )
        self._member = account.email.apply(lambda email: f"serviceAccount:{email}")
        evidence = f"{args.evidence_prefix or naming.evidence_prefix(scope.cluster)}/"
        grants: list[pulumi.Resource] = [
            self._grant("bundle", "roles/storage.objectViewer", f"bootstrap/{scope.cluster}/"),
            self._grant("evidence", "roles/storage.objectCreator", evidence),
        ]
        grants += self._control(control) if control else self._shared(evidence)
        self.account = account.email
        self.email = ready_after(account.email, grants)
        self.register_outputs({"email": self.email})

    def _shared(self, evidence: str) -> list[pulumi.Resource]:
        """Return the grants that only the nodes of declared pools have."""
        args = self._args
        grants: list[pulumi.Resource] = [self._grant("rendezvous", "roles/storage.objectViewer", evidence, RENDEZVOUS)]
        grants += [self._mount(one) for one in args.mounts]
        grants += [self._role(one) for one in args.plan.roles.node_roles]
        if repository := names.repository(args.plan.registry or ""):
            grants.append(self._image_reader(*repository))
        return grants

    def _control(self, monitoring: MonitoringPlan) -> list[pulumi.Resource]:
        """Return the grants that only the control node has: it lists instances, and reads the secrets of the receivers of alerts."""
        scope = self._args.scope
        role = gcp.projects.IAMCustomRole(
            rows.DISCOVERY_ROLE.logical(self._name),
            role_id=names.role_id(scope.cluster, DISCOVERY, scope.token),
            title=f"gpuinfra {scope.cluster}: find the nodes",
            permissions=list(DISCOVERS),
            stage="GA",
            opts=child(self, rows.DISCOVERY_ROLE),
        )
        listed = gcp.projects.IAMMember(
            rows.DISCOVERY_GRANT.logical(self._name),
            project=scope.project,
            role=role.id,
            member=self._member,
            opts=child(self, rows.DISCOVERY_GRANT),
        )
        return [
            listed,
            self._attaches(monitoring),
            *(self._orders() if monitoring.repair else ()),
            *(self._replaces(monitoring) if monitoring.repair and monitoring.repair.replaces else ()),
            *(
                gcp.secretmanager.SecretIamMember(
                    rows.SECRET_GRANT.logical(self._name, secret=naming.text_token(secret)),
                    project=scope.project,
                    secret_id=secret,
                    role="roles/secretmanager.secretAccessor",
                    member=self._member,
                    opts=child(self, rows.SECRET_GRANT),
                )
                for secret in dict.fromkeys(monitoring.secrets)
            ),
        ]

    def _attaches(self, monitoring: MonitoringPlan) -> pulumi.Resource:
        """Allow the control node to attach the data disk, and no other, to the instances of its own group."""
        scope = self._args.scope
        role = gcp.projects.IAMCustomRole(
            rows.ATTACH_ROLE.logical(self._name),
            role_id=names.role_id(scope.cluster, ATTACH, scope.token),
            title=f"gpuinfra {scope.cluster}: attach the data disk",
            permissions=list(ATTACHES),
            stage="GA",
            opts=child(self, rows.ATTACH_ROLE),
        )
        ((group,),) = (pool.groups for pool in self._args.plan.pools if pool.name == monitoring.pool)
        return gcp.projects.IAMMember(
            rows.ATTACH_GRANT.logical(self._name),
            project=scope.project,
            role=role.id,
            member=self._member,
            condition=gcp.projects.IAMMemberConditionArgs(
                title="gpuinfra-attach",
                description="Only the data disk and the control node",
                expression=pulumi.Output.all(scope.project, self._args.data_disk).apply(
                    lambda known: attach_condition(scope.cluster, str(known[0]), group, str(known[1]))
                ),
            ),
            opts=child(self, rows.ATTACH_GRANT),
        )

    def _orders(self) -> list[pulumi.Resource]:
        """Allow the control node to write its orders. `objectCreator` cannot replace an object."""
        folder = f"{naming.repair_folder(self._args.scope.cluster)}/"
        return [self._grant(ORDERS_GRANT, "roles/storage.objectUser", folder)]

    def _replaces(self, monitoring: MonitoringPlan) -> list[pulumi.Resource]:
        """Allow the control node to delete the instances of the groups of the cluster, which the groups then create again. An instance has the base name
        of its group, and a condition can refer to the name."""
        scope = self._args.scope
        role = gcp.projects.IAMCustomRole(
            rows.REPAIR_ROLE.logical(self._name),
            role_id=names.role_id(scope.cluster, REPAIR, scope.token),
            title=f"gpuinfra {scope.cluster}: replace faulty nodes",
            permissions=list(REPLACES),
            stage="GA",
            opts=child(self, rows.REPAIR_ROLE),
        )
        groups = [group for pool in self._args.plan.pools if pool.name != monitoring.pool for group in pool.groups]
        return [
            gcp.projects.IAMMember(
                rows.REPAIR_GRANT.logical(self._name, group=group.name),
                project=scope.project,
                role=role.id,
                member=self._member,
                condition=gcp.projects.IAMMemberConditionArgs(
                    title=f"gpuinfra-repair-{group.name}",
                    description=f"Only the nodes of the group {group.name}",
                    expression=pulumi.Output.from_input(scope.project).apply(
                        lambda project, group=group: _instances_of(scope.cluster, project, group)
                    ),
                ),
                opts=child(self, rows.REPAIR_GRANT),
            )
            for group in groups
        ]

    def _grant(self, grant: str, role: str, folder: str, condition: str = "") -> gcp.storage.BucketIAMMember:
        objects = pulumi.Output.concat("projects/_/buckets/", self._args.bucket, "/objects/", folder)
        expression = objects.apply(lambda prefix: _expression(prefix, condition))
        return gcp.storage.BucketIAMMember(
            rows.NODE_GRANT.logical(self._name, grant=grant),
            bucket=self._args.bucket,
            role=role,
            member=self._member,
            condition=gcp.storage.BucketIAMMemberConditionArgs(
                title=f"gpuinfra-{grant}", description=f"Only objects under {folder}", expression=expression
            ),
            opts=child(self, rows.NODE_GRANT),
        )

    def _mount(self, mount: MountedBucket) -> gcp.storage.BucketIAMMember:
        """Cloud Storage FUSE requires storage.objects.list on the bucket, which both roles contain:
        https://cloud.google.com/storage/docs/gcsfuse-mount, retrieved 2026-11-22."""
        return gcp.storage.BucketIAMMember(
            rows.MOUNT_GRANT.logical(self._name, mount=mount.name),
            bucket=mount.bucket,
            role="roles/storage.objectViewer" if mount.read_only else "roles/storage.objectUser",
            member=self._member,
            opts=child(self, rows.MOUNT_GRANT),
        )

    def _role(self, role: NodeRolePlan) -> gcp.projects.IAMMember:
        return gcp.projects.IAMMember(
            rows.PROJECT_GRANT.logical(self._name, role=role.name),
            project=role.scope or self._args.scope.project,
            role=role.role,
            member=self._member,
            opts=child(self, rows.PROJECT_GRANT),
        )

    def _image_reader(self, location: str, project: str, repository: str) -> gcp.artifactregistry.RepositoryIamMember:
        return gcp.artifactregistry.RepositoryIamMember(
            rows.IMAGE_READER.logical(self._name),
            project=project,
            location=location,
            repository=repository,
            role="roles/artifactregistry.reader",
            member=self._member,
            opts=child(self, rows.IMAGE_READER),
        )


def attach_condition(cluster: str, project: str, group: Group, disk: str) -> str:
    """Return the condition for a disk, given its path, and the instances of a group."""
    return (
        f'(resource.type == "compute.googleapis.com/Disk" && resource.name == "{disk}") || '
        f"({_instances_of(cluster, project, group)})"
    )


def _instances_of(cluster: str, project: str, group: Group) -> str:
    """Return the condition for the instances of a group, whose names are the base name and four random characters."""
    base = names.fitted(naming.logical(cluster, group.name), names.GROUP_BASE_LIMIT)
    instances = f"projects/{project}/zones/{group.zone}/instances/{base}-"
    return f'resource.type == "compute.googleapis.com/Instance" && resource.name.startsWith("{instances}")'


def _expression(prefix: str, condition: str) -> str:
    under = f'resource.name.startsWith("{prefix}")'
    return f"{under} && {condition}" if condition else under
