"""The table of resources on AWS: what the components create, what `destroy` does with it, what it costs, and who may create it.

Pure, so that `gpuinfra plan` and `gpuinfra permissions` work without an engine or an SDK. `instances.py` lists for each row where a plan has it.

Actions are IAM actions by operation. The calls that the provider makes are from its source (terraform-provider-aws 6, the base of pulumi-aws 7), the action
of each call from AWS's service authorization reference; both read 2026-11-21. A test compares them with the permissions in CloudFormation's schemas
and states the reason of each difference.
"""

from __future__ import annotations

from gpuinfra.clouds import planned
from gpuinfra.clouds.aws import instances
from gpuinfra.clouds.aws.instances import Lookup, find
from gpuinfra.clouds.planned import (
    BY_USAGE,
    FREE,
    REMOVED,
    Actions,
    PlannedResource,
    Price,
    ResourceKind,
    priced,
    retained,
)
from gpuinfra.plan.model import Plan

AUDIT = "audit records must be readable after the cluster is gone"
KEY_REASON = "data that a key encrypts is lost without it"
SETTINGS = "a bucket without its settings is not protected"
CONTAINS = "a retained file system is in it"
WRITES = "a retained file system writes to it"


def _setting(get: str, put: str, delete: str = "") -> Actions:
    """A setting of a bucket is read and written as a whole; most settings are removed by writing an empty one."""
    return Actions(f"s3:{put}", f"s3:{get}", f"s3:{put}", f"s3:{delete or put}")


_ROUTE_TABLE_ACTIONS = Actions(
    "ec2:CreateRouteTable ec2:CreateTags?tags",
    "ec2:DescribeRouteTables",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags",
    "ec2:DeleteRouteTable",
)
_ROUTE_ACTIONS = Actions(
    "ec2:CreateRoute",
    "ec2:DescribeRouteTables",
    "ec2:ReplaceRoute",
    "ec2:DeleteRoute",
)
_VPC_ENDPOINT_ACTIONS = Actions(
    "ec2:CreateVpcEndpoint ec2:CreateTags?tags route53:AssociateVPCWithHostedZone?privateDnsEnabled",
    "ec2:DescribeVpcEndpoints ec2:DescribePrefixLists",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags ec2:ModifyVpcEndpoint",
    "ec2:DeleteVpcEndpoints",
)
_SECURITY_GROUP_ACTIONS = Actions(
    "ec2:CreateSecurityGroup ec2:CreateTags?tags ec2:RevokeSecurityGroupEgress",
    "ec2:DescribeSecurityGroups",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags",
    "ec2:DeleteSecurityGroup ec2:DescribeNetworkInterfaces ec2:RevokeSecurityGroupIngress?revokeRulesOnDelete "
    "ec2:RevokeSecurityGroupEgress?revokeRulesOnDelete",
)
_SECURITY_GROUP_INGRESS_RULE_ACTIONS = Actions(
    "ec2:AuthorizeSecurityGroupIngress ec2:CreateTags?tags",
    "ec2:DescribeSecurityGroupRules",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags ec2:ModifySecurityGroupRules",
    "ec2:RevokeSecurityGroupIngress",
)
_SECURITY_GROUP_EGRESS_RULE_ACTIONS = Actions(
    "ec2:AuthorizeSecurityGroupEgress ec2:CreateTags?tags",
    "ec2:DescribeSecurityGroupRules",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags ec2:ModifySecurityGroupRules",
    "ec2:RevokeSecurityGroupEgress",
)
_ROLE_ACTIONS = Actions(
    "iam:CreateRole iam:TagRole?tags",
    "iam:GetRole iam:ListRolePolicies iam:ListAttachedRolePolicies iam:ListRoleTags",
    "iam:UpdateAssumeRolePolicy?assumeRolePolicy iam:UpdateRoleDescription?description iam:TagRole?tags "
    "iam:UntagRole?-tags",
    "iam:DeleteRole iam:ListInstanceProfilesForRole",
)
_ROLE_POLICY_ACTIONS = Actions(
    "iam:PutRolePolicy",
    "iam:GetRolePolicy",
    "iam:PutRolePolicy",
    "iam:DeleteRolePolicy",
)
_LOG_GROUP_ACTIONS = Actions(
    "logs:CreateLogGroup logs:TagResource?tags logs:PutRetentionPolicy?retentionInDays logs:AssociateKmsKey?kmsKeyId",
    "logs:DescribeLogGroups logs:ListTagsForResource",
    "logs:PutRetentionPolicy?retentionInDays logs:AssociateKmsKey?kmsKeyId logs:TagResource?tags "
    "logs:UntagResource?-tags",
    "logs:DeleteLogGroup",
)

# Audit.
TRAIL = ResourceKind(
    type="aws:cloudtrail/trail:Trail",
    name="{component}-trail",
    each=instances.trails,
    lifetime=REMOVED,
    price=BY_USAGE,
    actions=Actions(
        "cloudtrail:CreateTrail cloudtrail:AddTags?tags cloudtrail:StartLogging "
        "cloudtrail:PutEventSelectors?advancedEventSelectors iam:PassRole?cloudWatchLogsRoleArn "
        "iam:GetRole?cloudWatchLogsRoleArn",
        "cloudtrail:DescribeTrails cloudtrail:GetTrailStatus cloudtrail:GetEventSelectors "
        "cloudtrail:GetInsightSelectors cloudtrail:ListTags",
        "cloudtrail:UpdateTrail iam:PassRole?cloudWatchLogsRoleArn cloudtrail:PutEventSelectors?advancedEventSelectors "
        "cloudtrail:AddTags?tags cloudtrail:RemoveTags?-tags",
        "cloudtrail:DeleteTrail",
    ),
)
TRAIL_LOG_GROUP = ResourceKind(
    type="aws:cloudwatch/logGroup:LogGroup",
    name="{component}-log-group",
    each=instances.trails,
    lifetime=retained(AUDIT),
    price=BY_USAGE,
    actions=_LOG_GROUP_ACTIONS,
    lookup=find("log-group"),
)
TRAIL_LOG_ROLE = ResourceKind(
    type="aws:iam/role:Role",
    name="{component}-log-role",
    each=instances.trails,
    lifetime=REMOVED,
    price=FREE,
    actions=_ROLE_ACTIONS,
)
TRAIL_LOG_POLICY = ResourceKind(
    type="aws:iam/rolePolicy:RolePolicy",
    name="{component}-log-policy",
    each=instances.trails,
    lifetime=REMOVED,
    price=FREE,
    actions=_ROLE_POLICY_ACTIONS,
)
BUDGET = ResourceKind(
    type="aws:budgets/budget:Budget",
    name="{component}-month",
    each=instances.budgets,
    lifetime=REMOVED,
    price=Price(item=None, reason="billed by the day beyond the free budgets of an account"),
    actions=Actions(
        # One action covers every change of a budget; tags have actions of their own.
        "budgets:ModifyBudget budgets:TagResource?tags",
        "budgets:ViewBudget budgets:ListTagsForResource",
        "budgets:ModifyBudget budgets:TagResource?tags budgets:UntagResource?-tags",
        "budgets:ModifyBudget",
    ),
)
# Keys.
KEY = ResourceKind(
    type="aws:kms/key:Key",
    name="{component}-key",
    each=instances.keys,
    lifetime=retained(KEY_REASON),
    price=Price(item=None, reason="billed by the month and by use; no price is in the catalog"),
    actions=Actions(
        "kms:CreateKey kms:TagResource?tags kms:PutKeyPolicy?policy kms:EnableKeyRotation?enableKeyRotation",
        "kms:DescribeKey kms:GetKeyPolicy kms:GetKeyRotationStatus kms:ListResourceTags",
        "kms:PutKeyPolicy?policy kms:UpdateKeyDescription?description kms:TagResource?tags kms:UntagResource?-tags",
        "kms:ScheduleKeyDeletion",
    ),
    lookup=find("key"),
)
KEY_ALIAS = ResourceKind(
    type="aws:kms/alias:Alias",
    name="{component}-alias",
    each=instances.keys,
    lifetime=retained(KEY_REASON),
    price=FREE,
    actions=Actions(
        "kms:CreateAlias",
        "kms:ListAliases",
        "kms:UpdateAlias?targetKeyId",
        "kms:DeleteAlias",
    ),
    lookup=find("alias"),
)
# Buckets; the id of a setting is the name of its bucket.
BUCKET = ResourceKind(
    type="aws:s3/bucket:Bucket",
    name="{component}-bucket",
    each=instances.buckets,
    lifetime=retained("{why}"),
    price=BY_USAGE,
    actions=Actions(
        "s3:CreateBucket s3:PutBucketTagging?tags s3:TagResource?tags s3:PutBucketVersioning?objectLockEnabled "
        "s3:PutBucketObjectLockConfiguration?objectLockEnabled",
        "s3:ListBucket s3:GetBucketLocation s3:GetBucketAcl s3:GetBucketCORS s3:GetBucketLogging "
        "s3:GetBucketObjectLockConfiguration s3:GetBucketPolicy s3:GetBucketRequestPayment s3:GetBucketTagging "
        "s3:ListTagsForResource s3:GetBucketVersioning s3:GetBucketWebsite s3:GetAccelerateConfiguration "
        "s3:GetEncryptionConfiguration s3:GetLifecycleConfiguration s3:GetReplicationConfiguration",
        "s3:PutBucketTagging?tags s3:TagResource?tags s3:UntagResource?-tags",
        "s3:DeleteBucket",
    ),
    lookup=find("bucket"),
)
BUCKET_PUBLIC_ACCESS = ResourceKind(
    type="aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
    name="{component}-public-access-block",
    each=instances.buckets,
    lifetime=retained(SETTINGS),
    price=FREE,
    actions=_setting("GetBucketPublicAccessBlock", "PutBucketPublicAccessBlock"),
    lookup=find("bucket"),
)
BUCKET_OWNERSHIP = ResourceKind(
    type="aws:s3/bucketOwnershipControls:BucketOwnershipControls",
    name="{component}-ownership",
    each=instances.buckets,
    lifetime=retained(SETTINGS),
    price=FREE,
    actions=_setting("GetBucketOwnershipControls", "PutBucketOwnershipControls"),
    lookup=find("bucket"),
)
BUCKET_VERSIONING = ResourceKind(
    type="aws:s3/bucketVersioning:BucketVersioning",
    name="{component}-versioning",
    each=instances.buckets,
    lifetime=retained(SETTINGS),
    price=FREE,
    actions=_setting("GetBucketVersioning", "PutBucketVersioning"),
    lookup=find("bucket"),
)
BUCKET_ENCRYPTION = ResourceKind(
    type="aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    name="{component}-encryption",
    each=instances.buckets,
    lifetime=retained(SETTINGS),
    price=FREE,
    actions=_setting("GetEncryptionConfiguration", "PutEncryptionConfiguration"),
    lookup=find("bucket"),
)
BUCKET_LIFECYCLE = ResourceKind(
    type="aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
    name="{component}-lifecycle",
    each=instances.buckets,
    lifetime=retained(SETTINGS),
    price=FREE,
    actions=_setting("GetLifecycleConfiguration", "PutLifecycleConfiguration"),
    lookup=find("bucket"),
)
BUCKET_OBJECT_LOCK = ResourceKind(
    type="aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration",
    name="{component}-object-lock",
    each=instances.locked_buckets,
    lifetime=retained(SETTINGS),
    price=FREE,
    actions=_setting("GetBucketObjectLockConfiguration", "PutBucketObjectLockConfiguration"),
    lookup=find("bucket"),
)
BUCKET_LOGGING = ResourceKind(
    type="aws:s3/bucketLogging:BucketLogging",
    name="{component}-access-logging",
    each=instances.logged_buckets,
    lifetime=retained(SETTINGS),
    price=BY_USAGE,
    actions=_setting("GetBucketLogging", "PutBucketLogging"),
    lookup=find("bucket"),
)
BUCKET_POLICY = ResourceKind(
    type="aws:s3/bucketPolicy:BucketPolicy",
    name="{component}-policy",
    each=instances.buckets,
    lifetime=retained(SETTINGS),
    price=FREE,
    actions=_setting("GetBucketPolicy", "PutBucketPolicy", "DeleteBucketPolicy"),
    lookup=find("bucket"),
)
# Network.
VPC = ResourceKind(
    type="aws:ec2/vpc:Vpc",
    name="{component}-vpc",
    each=instances.networks,
    lifetime=retained(CONTAINS, with_data=True),
    price=FREE,
    actions=Actions(
        "ec2:CreateVpc ec2:CreateTags?tags ec2:ModifyVpcAttribute",
        "ec2:DescribeVpcs ec2:DescribeVpcAttribute ec2:DescribeNetworkAcls ec2:DescribeRouteTables "
        "ec2:DescribeSecurityGroups",
        "ec2:CreateTags?tags ec2:DeleteTags?-tags ec2:ModifyVpcAttribute?enableDnsHostnames "
        "ec2:ModifyVpcAttribute?enableDnsSupport",
        "ec2:DeleteVpc",
    ),
    lookup=find("vpc"),
)
DEFAULT_SECURITY_GROUP = ResourceKind(
    type="aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
    name="{component}-default-security-group",
    each=instances.networks,
    lifetime=REMOVED,
    price=FREE,
    actions=Actions(
        "ec2:CreateTags?tags ec2:RevokeSecurityGroupIngress ec2:RevokeSecurityGroupEgress",
        "ec2:DescribeSecurityGroups",
        "ec2:CreateTags?tags ec2:DeleteTags?-tags",
    ),
)
SUBNET = ResourceKind(
    type="aws:ec2/subnet:Subnet",
    name="{component}-{subnet}",
    each=instances.subnets,
    lifetime=retained(CONTAINS, with_data=True),
    price=FREE,
    actions=Actions(
        "ec2:CreateSubnet ec2:CreateTags?tags",
        "ec2:DescribeSubnets",
        "ec2:CreateTags?tags ec2:DeleteTags?-tags ec2:ModifySubnetAttribute?mapPublicIpOnLaunch",
        "ec2:DeleteSubnet ec2:DescribeNetworkInterfaces",
    ),
    lookup=find("subnet"),
)
SUBNET_ROUTES = ResourceKind(
    type="aws:ec2/routeTableAssociation:RouteTableAssociation",
    name="{component}-{subnet}-route-table",
    each=instances.subnets,
    lifetime=REMOVED,
    price=FREE,
    actions=Actions(
        "ec2:AssociateRouteTable",
        "ec2:DescribeRouteTables",
        "ec2:ReplaceRouteTableAssociation",
        "ec2:DisassociateRouteTable",
    ),
)
INTERNET_GATEWAY = ResourceKind(
    type="aws:ec2/internetGateway:InternetGateway",
    name="{component}-internet-gateway",
    each=instances.nat_networks,
    lifetime=REMOVED,
    price=FREE,
    actions=Actions(
        "ec2:CreateInternetGateway ec2:CreateTags?tags ec2:AttachInternetGateway?vpcId",
        "ec2:DescribeInternetGateways",
        "ec2:CreateTags?tags ec2:DeleteTags?-tags ec2:AttachInternetGateway?vpcId ec2:DetachInternetGateway?vpcId",
        "ec2:DetachInternetGateway ec2:DeleteInternetGateway",
    ),
)
NAT_ADDRESS = ResourceKind(
    type="aws:ec2/eip:Eip",
    name="{component}-{subnet}-address",
    each=instances.nat_subnets,
    lifetime=REMOVED,
    price=priced("address_hour"),
    actions=Actions(
        "ec2:AllocateAddress ec2:CreateTags?tags",
        "ec2:DescribeAddresses ec2:DescribeAddressesAttribute",
        "ec2:CreateTags?tags ec2:DeleteTags?-tags",
        "ec2:ReleaseAddress",
    ),
)
NAT_GATEWAY = ResourceKind(
    type="aws:ec2/natGateway:NatGateway",
    name="{component}-{subnet}-gateway",
    each=instances.nat_subnets,
    lifetime=REMOVED,
    price=priced("nat_hour"),
    actions=Actions(
        "ec2:CreateNatGateway ec2:CreateTags?tags",
        "ec2:DescribeNatGateways",
        "ec2:CreateTags?tags ec2:DeleteTags?-tags",
        "ec2:DeleteNatGateway",
    ),
)
NAT_ROUTE_TABLE = ResourceKind(
    type="aws:ec2/routeTable:RouteTable",
    name="{component}-nat-route-table",
    each=instances.nat_networks,
    lifetime=REMOVED,
    price=FREE,
    actions=_ROUTE_TABLE_ACTIONS,
)
NAT_ROUTE = ResourceKind(
    type="aws:ec2/route:Route",
    name="{component}-nat-default-route",
    each=instances.nat_networks,
    lifetime=REMOVED,
    price=FREE,
    actions=_ROUTE_ACTIONS,
)
PRIVATE_ROUTE_TABLE = ResourceKind(
    type="aws:ec2/routeTable:RouteTable",
    name="{component}-private-route-table-{index}",
    each=instances.zones,
    lifetime=REMOVED,
    price=FREE,
    actions=_ROUTE_TABLE_ACTIONS,
)
PRIVATE_ROUTE = ResourceKind(
    type="aws:ec2/route:Route",
    name="{component}-private-default-route-{index}",
    each=instances.nat_zones,
    lifetime=REMOVED,
    price=FREE,
    actions=_ROUTE_ACTIONS,
)
GATEWAY_ENDPOINT = ResourceKind(
    type="aws:ec2/vpcEndpoint:VpcEndpoint",
    name="{component}-endpoint-{service}",
    each=instances.gateway_endpoints,
    lifetime=REMOVED,
    price=FREE,
    actions=_VPC_ENDPOINT_ACTIONS,
)
INTERFACE_ENDPOINT = ResourceKind(
    type="aws:ec2/vpcEndpoint:VpcEndpoint",
    name="{component}-endpoint-{service}",
    each=instances.interface_endpoints,
    lifetime=REMOVED,
    price=priced("endpoint_hour"),
    actions=_VPC_ENDPOINT_ACTIONS,
)
ENDPOINTS_GROUP = ResourceKind(
    type="aws:ec2/securityGroup:SecurityGroup",
    name="{component}-endpoints",
    each=instances.endpoint_networks,
    lifetime=REMOVED,
    price=FREE,
    actions=_SECURITY_GROUP_ACTIONS,
)
ENDPOINTS_RULE = ResourceKind(
    type="aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    name="{component}-endpoints-allow-https",
    each=instances.endpoint_networks,
    lifetime=REMOVED,
    price=FREE,
    actions=_SECURITY_GROUP_INGRESS_RULE_ACTIONS,
)
FLOW_LOG = ResourceKind(
    type="aws:ec2/flowLog:FlowLog",
    name="{component}-flow-log",
    each=instances.networks,
    lifetime=REMOVED,
    price=BY_USAGE,
    actions=Actions(
        "ec2:CreateFlowLogs ec2:CreateTags?tags iam:PassRole?iamRoleArn",
        "ec2:DescribeFlowLogs",
        "ec2:CreateTags?tags ec2:DeleteTags?-tags",
        "ec2:DeleteFlowLogs",
    ),
)
FLOW_LOG_GROUP = ResourceKind(
    type="aws:cloudwatch/logGroup:LogGroup",
    name="{component}-flow-log-group",
    each=instances.networks,
    lifetime=retained(AUDIT),
    price=BY_USAGE,
    actions=_LOG_GROUP_ACTIONS,
    lookup=find("log-group"),
)
FLOW_LOG_ROLE = ResourceKind(
    type="aws:iam/role:Role",
    name="{component}-flow-log-role",
    each=instances.networks,
    lifetime=REMOVED,
    price=FREE,
    actions=_ROLE_ACTIONS,
)
FLOW_LOG_POLICY = ResourceKind(
    type="aws:iam/rolePolicy:RolePolicy",
    name="{component}-flow-log-policy",
    each=instances.networks,
    lifetime=REMOVED,
    price=FREE,
    actions=_ROLE_POLICY_ACTIONS,
)
# Security groups.
NODES_GROUP = ResourceKind(
    type="aws:ec2/securityGroup:SecurityGroup",
    name="{component}-nodes",
    each=instances.security_groups,
    lifetime=REMOVED,
    price=FREE,
    actions=_SECURITY_GROUP_ACTIONS,
)
STORAGE_GROUP = ResourceKind(
    type="aws:ec2/securityGroup:SecurityGroup",
    name="{component}-storage",
    each=instances.storage_groups,
    lifetime=retained(CONTAINS, with_data=True),
    price=FREE,
    actions=_SECURITY_GROUP_ACTIONS,
    lookup=find("security-group"),
)
PEER_INGRESS = ResourceKind(
    type="aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    name="{component}-{rule}-ingress",
    each=instances.peer_rules,
    lifetime=REMOVED,
    price=FREE,
    actions=_SECURITY_GROUP_INGRESS_RULE_ACTIONS,
)
PEER_EGRESS = ResourceKind(
    type="aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
    name="{component}-{rule}-egress",
    each=instances.peer_rules,
    lifetime=REMOVED,
    price=FREE,
    actions=_SECURITY_GROUP_EGRESS_RULE_ACTIONS,
)
WEB_EGRESS = ResourceKind(
    type="aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
    name="{component}-allow-web-{port}-egress",
    each=instances.web_ports,
    lifetime=REMOVED,
    price=FREE,
    actions=_SECURITY_GROUP_EGRESS_RULE_ACTIONS,
)
# File systems.
LUSTRE_LOG_GROUP = ResourceKind(
    type="aws:cloudwatch/logGroup:LogGroup",
    name="{component}-log-group",
    each=instances.file_systems,
    lifetime=retained(WRITES, with_data=True),
    price=BY_USAGE,
    actions=_LOG_GROUP_ACTIONS,
    lookup=find("file-system-log-group"),
)
LUSTRE = ResourceKind(
    type="aws:fsx/lustreFileSystem:LustreFileSystem",
    name="{component}-lustre",
    each=instances.file_systems,
    lifetime=retained("{why}", with_data=True),
    price=priced("lustre_gib_month"),
    actions=Actions(
        "fsx:CreateFileSystem fsx:TagResource?tags iam:CreateServiceLinkedRole kms:DescribeKey?kmsKeyId "
        "kms:CreateGrant?kmsKeyId ec2:DescribeSubnets ec2:DescribeSecurityGroups ec2:DescribeVpcs",
        "fsx:DescribeFileSystems",
        "fsx:UpdateFileSystem fsx:TagResource?tags fsx:UntagResource?-tags",
        "fsx:DeleteFileSystem",
    ),
    lookup=find("file-system"),
)
DATA_REPOSITORY = ResourceKind(
    type="aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
    name="{component}-data-repository",
    each=instances.linked_file_systems,
    lifetime=REMOVED,
    price=FREE,
    actions=Actions(
        # FSx creates a service-linked role for the bucket with the permissions of the caller
        # (Amazon FSx for Lustre guide, "Adding permissions to use data repositories").
        "fsx:CreateDataRepositoryAssociation fsx:TagResource?tags iam:CreateServiceLinkedRole iam:AttachRolePolicy "
        "iam:PutRolePolicy s3:ListBucket",
        "fsx:DescribeDataRepositoryAssociations fsx:ListTagsForResource",
        "fsx:UpdateDataRepositoryAssociation fsx:TagResource?tags fsx:UntagResource?-tags",
        "fsx:DeleteDataRepositoryAssociation",
    ),
)
# Nodes.
NODE_ROLE = ResourceKind(
    type="aws:iam/role:Role",
    name="{component}-role",
    each=instances.node_roles,
    lifetime=REMOVED,
    price=FREE,
    actions=_ROLE_ACTIONS,
)
NODE_POLICY = ResourceKind(
    type="aws:iam/rolePolicy:RolePolicy",
    name="{component}-policy",
    each=instances.node_roles,
    lifetime=REMOVED,
    price=FREE,
    actions=_ROLE_POLICY_ACTIONS,
)
NODE_SESSIONS = ResourceKind(
    type="aws:iam/rolePolicyAttachment:RolePolicyAttachment",
    name="{component}-session-manager",
    each=instances.node_roles,
    lifetime=REMOVED,
    price=FREE,
    actions=Actions(
        "iam:AttachRolePolicy",
        "iam:ListAttachedRolePolicies",
        "",
        "iam:DetachRolePolicy",
    ),
)
NODE_PROFILE = ResourceKind(
    type="aws:iam/instanceProfile:InstanceProfile",
    name="{component}-profile",
    each=instances.node_roles,
    lifetime=REMOVED,
    price=FREE,
    actions=Actions(
        "iam:CreateInstanceProfile iam:TagInstanceProfile?tags iam:AddRoleToInstanceProfile?role iam:PassRole?role",
        "iam:GetInstanceProfile iam:ListInstanceProfileTags",
        "iam:TagInstanceProfile?tags iam:UntagInstanceProfile?-tags",
        "iam:RemoveRoleFromInstanceProfile iam:DeleteInstanceProfile",
    ),
)
BUNDLE = ResourceKind(
    type="aws:s3/bucketObjectv2:BucketObjectv2",
    name="{component}-bundle",
    each=planned.pools,
    lifetime=REMOVED,
    price=BY_USAGE,
    actions=Actions(
        "s3:PutObject s3:PutObjectTagging?tags kms:GenerateDataKey kms:Decrypt",
        "s3:GetObject s3:GetObjectTagging",
        "s3:PutObject s3:PutObjectTagging?tags kms:GenerateDataKey kms:Decrypt",
        # Buckets have versions, and the provider deletes all versions of an object.
        "s3:DeleteObject s3:DeleteObjectVersion s3:ListBucketVersions",
    ),
)
IMAGE = ResourceKind(
    type="aws:ssm/parameter:Parameter",
    name="{component}-image-{token}",
    each=instances.pinned_pools,
    lifetime=REMOVED,
    price=FREE,
    actions=Actions(
        "ssm:PutParameter ssm:AddTagsToResource?tags",
        "ssm:GetParameter ssm:DescribeParameters ssm:ListTagsForResource",
        "ssm:PutParameter ssm:AddTagsToResource?tags ssm:RemoveTagsFromResource?-tags",
        "ssm:DeleteParameter",
    ),
)
PLACEMENT_GROUP = ResourceKind(
    type="aws:ec2/placementGroup:PlacementGroup",
    name="{component}-placement-group-{index}",
    each=instances.placement_groups,
    lifetime=REMOVED,
    price=FREE,
    actions=Actions(
        "ec2:CreatePlacementGroup ec2:CreateTags?tags",
        "ec2:DescribePlacementGroups",
        "ec2:CreateTags?tags ec2:DeleteTags?-tags",
        "ec2:DeletePlacementGroup",
    ),
)
LAUNCH_TEMPLATE = ResourceKind(
    type="aws:ec2/launchTemplate:LaunchTemplate",
    name="{component}-template",
    each=planned.groups,
    lifetime=REMOVED,
    price=priced("disk_gib_month"),
    actions=Actions(
        "ec2:CreateLaunchTemplate ec2:CreateTags?tags",
        "ec2:DescribeLaunchTemplates ec2:DescribeLaunchTemplateVersions",
        "ec2:CreateTags?tags ec2:DeleteTags?-tags ec2:CreateLaunchTemplateVersion ec2:ModifyLaunchTemplate",
        "ec2:DeleteLaunchTemplate",
    ),
)
GROUP = ResourceKind(
    type="aws:autoscaling/group:Group",
    name="{component}",
    each=planned.groups,
    lifetime=REMOVED,
    price=priced("node"),
    actions=Actions(
        # With a launch template, Auto Scaling starts instances with the permissions of the caller.
        "autoscaling:CreateAutoScalingGroup autoscaling:CreateOrUpdateTags?tags ec2:RunInstances ec2:CreateTags "
        "iam:PassRole iam:CreateServiceLinkedRole",
        "autoscaling:DescribeAutoScalingGroups autoscaling:DescribeScalingActivities "
        "autoscaling:DescribeInstanceRefreshes",
        "autoscaling:UpdateAutoScalingGroup ec2:RunInstances iam:PassRole "
        "autoscaling:StartInstanceRefresh?launchTemplate autoscaling:StartInstanceRefresh?mixedInstancesPolicy "
        "autoscaling:CancelInstanceRefresh?launchTemplate autoscaling:CancelInstanceRefresh?mixedInstancesPolicy "
        "autoscaling:CreateOrUpdateTags?tags autoscaling:DeleteTags?-tags",
        "autoscaling:UpdateAutoScalingGroup autoscaling:DeleteAutoScalingGroup",
    ),
)
SCHEDULE = ResourceKind(
    type="aws:autoscaling/schedule:Schedule",
    name="{component}-{action}",
    each=instances.schedules,
    lifetime=REMOVED,
    price=FREE,
    actions=Actions(
        "autoscaling:PutScheduledUpdateGroupAction",
        "autoscaling:DescribeScheduledActions",
        "autoscaling:PutScheduledUpdateGroupAction",
        "autoscaling:DeleteScheduledAction",
    ),
)

NODES_READY = ResourceKind[Lookup](
    type="gpuinfra:index:NodesReady",
    name="{component}-ready",
    each=planned.nodes_ready,
    lifetime=REMOVED,
    price=Price(item=None, reason="it waits, and creates nothing in the account"),
    actions=Actions("", ""),
)

RESOURCES = planned.rows(globals())
"""The table."""


def resources(plan: Plan) -> tuple[PlannedResource[Lookup], ...]:
    """Every resource that a plan creates."""
    return tuple(planned.planned(RESOURCES, plan))
