"""Finds the AWS resources that a killed run created, for `gpuinfra.search.interrupted`. This module makes only read requests.

The IDs of provider resources are those in the "Import" section of each page of the AWS provider 7.x, retrieved 2026-11-28. Types whose provider
resource is read by other inputs than its ID are marked with *read by its inputs*; their ID has the form of the import ID.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra.clouds.aws import credentials
from gpuinfra.clouds.pending import NAME_TAG, SEARCH, STACK_TAG, StackIdentity, from_inputs
from gpuinfra.engine.pending import PendingCreate

if TYPE_CHECKING:
    import boto3

REPEATABLE = frozenset(
    {
        "aws:amp/workspaceConfiguration:WorkspaceConfiguration",  # UpdateWorkspaceConfiguration replaces the settings.
        "aws:cloudwatch/eventTarget:EventTarget",  # PutTargets replaces the target with this ID.
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",  # The VPC creates it; the provider only changes its rules.
        "aws:s3/bucketObjectv2:BucketObjectv2",  # An upload of the same content; the provider deletes all versions of a key.
        "aws:sns/topicPolicy:TopicPolicy",  # SetTopicAttributes replaces the policy.
        "aws:sns/topicSubscription:TopicSubscription",  # Subscribe returns an existing subscription (API reference of SNS).
    }
)
"""Types whose creation can be repeated without a second resource."""

SHAPES = {
    "aws:amp/alertManagerDefinition:AlertManagerDefinition": "{workspaceId}",
    "aws:amp/ruleGroupNamespace:RuleGroupNamespace": "arn:{partition}:aps:{region}:{account}:rulegroupsnamespace/{workspaceId}/{name}",
    "aws:autoscaling/group:Group": "{name}",
    # Read by its inputs.
    "aws:autoscaling/schedule:Schedule": "{autoscalingGroupName}/{scheduledActionName}",
    "aws:budgets/budget:Budget": "{account}:{name}",
    "aws:cloudtrail/trail:Trail": "arn:{partition}:cloudtrail:{region}:{account}:trail/{name}",
    "aws:cloudwatch/eventRule:EventRule": "{name}",
    "aws:cloudwatch/logGroup:LogGroup": "{name}",
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": "{logGroupName}:{name}",
    "aws:cloudwatch/metricAlarm:MetricAlarm": "{name}",
    "aws:ec2/placementGroup:PlacementGroup": "{name}",
    "aws:efs/fileSystemPolicy:FileSystemPolicy": "{fileSystemId}",
    "aws:efs/replicationConfiguration:ReplicationConfiguration": "{sourceFileSystemId}",
    "aws:iam/instanceProfile:InstanceProfile": "{name}",
    "aws:iam/role:Role": "{name}",
    "aws:iam/rolePolicy:RolePolicy": "{role}:{name}",
    # Read by its inputs.
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "{role}/{policyArn}",
    "aws:kms/alias:Alias": "{name}",
    "aws:s3/bucket:Bucket": "{bucket}",
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": "{bucket}",
    "aws:s3/bucketLogging:BucketLogging": "{bucket}",
    "aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration": "{bucket}",
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": "{bucket}",
    "aws:s3/bucketPolicy:BucketPolicy": "{bucket}",
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": "{bucket}",
    "aws:s3/bucketReplicationConfig:BucketReplicationConfig": "{bucket}",
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": "{bucket}",
    "aws:s3/bucketVersioning:BucketVersioning": "{bucket}",
    "aws:sns/topic:Topic": "arn:{partition}:sns:{region}:{account}:{name}",
    "aws:ssm/parameter:Parameter": "{name}",
}
"""IDs that consist of inputs."""

EC2_TYPES = {
    "aws:ec2/amiCopy:AmiCopy": "image",
    "aws:ec2/eip:Eip": "elastic-ip",
    "aws:ec2/flowLog:FlowLog": "vpc-flow-log",
    "aws:ec2/internetGateway:InternetGateway": "internet-gateway",
    "aws:ec2/launchTemplate:LaunchTemplate": "launch-template",
    "aws:ec2/natGateway:NatGateway": "natgateway",
    "aws:ec2/routeTable:RouteTable": "route-table",
    "aws:ec2/securityGroup:SecurityGroup": "security-group",
    "aws:ec2/subnet:Subnet": "subnet",
    "aws:ec2/vpc:Vpc": "vpc",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "vpc-endpoint",
    "aws:ebs/volume:Volume": "volume",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": "security-group-rule",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "security-group-rule",
}
"""Types whose ID EC2 generates, and the resource type in `DescribeTags` (API reference of EC2, TagSpecification, retrieved 2026-11-28)."""


class PendingAccount:
    """Lookups in an account. The region is an input of each creation."""

    def __init__(self, session: boto3.Session, stack: StackIdentity, region: str) -> None:
        self._session, self._stack, self._region = session, stack, region
        self._account = ""

    def ids(self, create: PendingCreate) -> Sequence[str] | None:
        """See `PendingLookup.ids`."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            if lookup := LOOKUPS.get(create.type):
                return tuple(lookup(self, create))
            region = create.text("region") or self._region
            needs_account = "{account}" in SHAPES.get(create.type, "")
            more = {
                "account": self._account_id() if needs_account else "",
                "region": region,
                "partition": self._session.get_partition_for_region(region),
            }
            return from_inputs(create, self._stack, SHAPES, repeatable=REPEATABLE, more=more)
        except (BotoCoreError, ClientError) as problem:
            raise EnvironmentMissing(
                f"what a killed run created cannot be read: the request for {create.name} ({create.type}) failed: {problem}"
            ) from None

    def _client(self, service: str, create: PendingCreate) -> Any:
        return self._session.client(service, region_name=create.text("region") or self._region)  # pyright: ignore[reportCallIssue, reportArgumentType]

    def _account_id(self) -> str:
        if not self._account:
            self._account = str(self._session.client("sts", region_name=self._region).get_caller_identity()["Account"])
        return self._account

    def _is_ours(
        self, create: PendingCreate, tags: Sequence[Mapping[str, str]], key: str = "Key", value: str = "Value"
    ) -> bool:
        tags_of = {one[key]: one[value] for one in tags}
        return (
            tags_of.get(NAME_TAG) == create.texts("tags").get(NAME_TAG) and tags_of.get(STACK_TAG) in self._stack.tokens
        )

    def tagged_in_ec2(self, create: PendingCreate) -> Iterator[str]:
        """Yield the IDs with both tags. `DescribeTags` needs one filter for each tag, because it returns tags and not resources."""
        ec2, wanted = self._client("ec2", create), create.texts("tags")
        kind = {"Name": "resource-type", "Values": [EC2_TYPES[create.type]]}
        ids = set[str]()
        for number, (tag, values) in enumerate(
            ((STACK_TAG, sorted(self._stack.tokens)), (NAME_TAG, [wanted.get(NAME_TAG, create.name)]))
        ):
            pages = ec2.get_paginator("describe_tags").paginate(
                Filters=[kind, {"Name": "key", "Values": [tag]}, {"Name": "value", "Values": values}]
            )
            tagged = {str(one["ResourceId"]) for page in pages for one in page["Tags"]}
            ids = tagged if number == 0 else ids & tagged
        yield from sorted(ids)

    def route(self, create: PendingCreate) -> Iterator[str]:
        """Yield the ID that the provider computes (internal/service/ec2/vpc_route.go of terraform-provider-aws 6). The route table is in the state."""
        to = next(
            filter(
                None, map(create.text, ("destinationCidrBlock", "destinationIpv6CidrBlock", "destinationPrefixListId"))
            ),
            "",
        )
        yield f"r-{create.text('routeTableId')}{zlib.crc32(to.encode())}"

    def association(self, create: PendingCreate) -> Iterator[str]:
        """Yield the association of the subnet with the route table. Both are in the state."""
        subnet = create.text("subnetId")
        tables = self._client("ec2", create).describe_route_tables(
            Filters=[{"Name": "association.subnet-id", "Values": [subnet]}]
        )
        for table in tables["RouteTables"]:
            if table["RouteTableId"] == create.text("routeTableId"):
                yield from (
                    str(one["RouteTableAssociationId"])
                    for one in table["Associations"]
                    if one.get("SubnetId") == subnet
                )

    def workspace(self, create: PendingCreate) -> Iterator[str]:
        """Yield the workspaces for metrics with the alias and both tags."""
        for page in self._client("amp", create).get_paginator("list_workspaces").paginate(alias=create.text("alias")):
            for workspace in page["workspaces"]:
                tags = [{"Key": key, "Value": value} for key, value in workspace.get("tags", {}).items()]
                if workspace["status"]["statusCode"] != "DELETING" and self._is_ours(create, tags):
                    yield str(workspace["workspaceId"])

    def home(self, create: PendingCreate) -> Iterator[str]:
        """Yield the file system with the creation token, which contains the token of the stack."""
        efs = self._client("efs", create)
        for system in efs.describe_file_systems(CreationToken=create.text("creationToken"))["FileSystems"]:
            if system["LifeCycleState"] not in ("deleting", "deleted") and self._is_ours(create, system["Tags"]):
                yield str(system["FileSystemId"])

    def mount_target(self, create: PendingCreate) -> Iterator[str]:
        """Yield the mount target in the subnet. A file system has at most one in each zone."""
        efs = self._client("efs", create)
        for target in efs.describe_mount_targets(FileSystemId=create.text("fileSystemId"))["MountTargets"]:
            if target["SubnetId"] == create.text("subnetId") and target["LifeCycleState"] not in (
                "deleting",
                "deleted",
            ):
                yield str(target["MountTargetId"])

    def file_system(self, create: PendingCreate) -> Iterator[str]:
        """Yield the file systems of FSx with both tags."""
        for page in self._client("fsx", create).get_paginator("describe_file_systems").paginate():
            for system in page["FileSystems"]:
                if system["Lifecycle"] != "DELETING" and self._is_ours(create, system.get("Tags") or ()):
                    yield str(system["FileSystemId"])

    def link(self, create: PendingCreate) -> Iterator[str]:
        """Yield the data repository associations of the file system with both tags."""
        links = self._client("fsx", create).describe_data_repository_associations(
            Filters=[{"Name": "file-system-id", "Values": [create.text("fileSystemId")]}]
        )
        for link_record in links["Associations"]:
            if link_record["Lifecycle"] != "DELETING" and self._is_ours(create, link_record.get("Tags") or ()):
                yield str(link_record["AssociationId"])

    def key(self, create: PendingCreate) -> Iterator[str]:
        """Yield the keys with both tags. KMS has no filter for tags. A key that is scheduled for deletion is not ours anymore."""
        from botocore.exceptions import ClientError

        kms = self._client("kms", create)
        for page in kms.get_paginator("list_keys").paginate():
            for key in page["Keys"]:
                try:
                    tags = kms.list_resource_tags(KeyId=key["KeyId"])["Tags"]
                except (
                    ClientError
                ) as problem:  # A key of another stack or service, whose policy does not name the caller.
                    if problem.response["Error"]["Code"] == "AccessDeniedException":
                        continue
                    raise
                if self._is_ours(create, tags, "TagKey", "TagValue"):
                    state = kms.describe_key(KeyId=key["KeyId"])["KeyMetadata"]["KeyState"]
                    if state != "PendingDeletion":
                        yield str(key["KeyId"])


LOOKUPS: Mapping[str, Callable[[PendingAccount, PendingCreate], Iterator[str]]] = {
    **dict.fromkeys(EC2_TYPES, PendingAccount.tagged_in_ec2),
    "aws:amp/workspace:Workspace": PendingAccount.workspace,
    "aws:ec2/route:Route": PendingAccount.route,
    "aws:ec2/routeTableAssociation:RouteTableAssociation": PendingAccount.association,
    "aws:efs/fileSystem:FileSystem": PendingAccount.home,
    "aws:efs/mountTarget:MountTarget": PendingAccount.mount_target,
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": PendingAccount.link,
    "aws:fsx/lustreFileSystem:LustreFileSystem": PendingAccount.file_system,
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem": PendingAccount.file_system,
    "aws:kms/key:Key": PendingAccount.key,
}
"""Types whose ID the cloud generates, or that have no name."""

_ACTIONS: Mapping[Callable[[PendingAccount, PendingCreate], Iterator[str]], tuple[str, ...]] = {
    PendingAccount.tagged_in_ec2: ("ec2:DescribeTags",),
    PendingAccount.workspace: ("aps:ListWorkspaces",),
    PendingAccount.route: (),
    PendingAccount.association: ("ec2:DescribeRouteTables",),
    PendingAccount.home: ("elasticfilesystem:DescribeFileSystems",),
    PendingAccount.mount_target: ("elasticfilesystem:DescribeMountTargets",),
    PendingAccount.file_system: ("fsx:DescribeFileSystems",),
    PendingAccount.link: ("fsx:DescribeDataRepositoryAssociations",),
    PendingAccount.key: ("kms:ListKeys", "kms:ListResourceTags", "kms:DescribeKey"),
}


def requests(types: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the requests of the search for resources of these types, by purpose."""
    actions = (action for type_ in types if type_ in LOOKUPS for action in _ACTIONS[LOOKUPS[type_]])
    actions_of_types = tuple(sorted(set(actions)))
    return {SEARCH: actions_of_types} if actions_of_types else {}


def lookup(stack: StackIdentity, settings: Mapping[str, object]) -> PendingAccount:
    """Return the lookups in the account of the credentials, with the credentials and the Region of the provider."""
    try:
        import boto3  # noqa: F401
    except ImportError:
        raise EnvironmentMissing(
            "to find what a killed run created, boto3 is required; run: pip install 'gpuinfra[aws]'"
        ) from None
    region = str(settings.get("aws:region") or "")
    session = credentials.session(settings)
    return PendingAccount(session, stack, region or session.region_name or "us-east-1")
