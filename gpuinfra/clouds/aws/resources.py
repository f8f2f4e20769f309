"""The AWS resource table. For each resource kind, it defines the behavior on `destroy`, the price and the required permissions.

The module is pure, so that `gpuinfra plan` and `gpuinfra permissions` work without an engine or an SDK. `instances.py` lists the instances of each row for a plan.

`Actions` lists the IAM actions that each operation requires. The calls of the provider are taken from its source (terraform-provider-aws 6, the base of pulumi-aws 7), and the action
of each call from the AWS service authorization reference; both retrieved 2026-11-21. A test compares them with the permissions in the CloudFormation schemas
and contains the reason for each difference.
"""

from __future__ import annotations

from gpuinfra.clouds.aws import instances
from gpuinfra.clouds.aws.instances import Lookup, by_purpose
from gpuinfra.clouds.instances import AUDIT, alerting_stores, budgets, data_disks, stores, watching_stores
from gpuinfra.plan import planned
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import (
    BY_REQUEST,
    FREE,
    LOGS,
    NODE_LOGS,
    OBJECTS,
    REMOVED,
    Actions,
    PlannedResource,
    PriceRule,
    ResourceKind,
    by_usage,
    priced,
    priced_each,
    retained,
)

KEY_REASON = "data that a key encrypts is lost without the key"
SETTINGS = "a bucket without its settings is not protected"
CONTAINS = "a retained file system is in it"
WRITES = "a retained file system writes to it"
IMAGE_REASON = "the nodes of the second Region start from it"
HOME_SETTING = "without its policy, a file system accepts connections without TLS"


def _setting(get: str, put: str, delete: str = "") -> Actions:
    """Return the actions for a bucket setting. A setting is read and written as a whole. Most settings are removed by writing an empty value."""
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
    "ec2:DescribeVpcEndpoints ec2:DescribePrefixLists ec2:DescribeNetworkInterfaces",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags ec2:ModifyVpcEndpoint",
    "ec2:DeleteVpcEndpoints",
)
_SECURITY_GROUP_ACTIONS = Actions(
    "ec2:CreateSecurityGroup ec2:CreateTags?tags ec2:RevokeSecurityGroupEgress",
    "ec2:DescribeSecurityGroups",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags",
    "ec2:DeleteSecurityGroup ec2:DescribeNetworkInterfaces ec2:DescribeSecurityGroupRules?revokeRulesOnDelete ec2:RevokeSecurityGroupIngress?revokeRulesOnDelete "
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
    "iam:GetRole iam:ListRolePolicies iam:GetRolePolicy iam:ListAttachedRolePolicies",
    "iam:UpdateAssumeRolePolicy?assumeRolePolicy iam:UpdateRoleDescription?description iam:TagRole?tags "
    "iam:UntagRole?-tags iam:PutRolePermissionsBoundary?permissionsBoundary",
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

_TOPIC_ACTIONS = Actions(
    # The provider sends five sample rates with a request of their own, because integers without a value are zero.
    "sns:CreateTopic sns:SetTopicAttributes sns:TagResource?tags",
    "sns:GetTopicAttributes sns:ListTagsForResource",
    "sns:TagResource?tags sns:UntagResource?-tags",
    "sns:DeleteTopic",
)
_SUBSCRIPTION_ACTIONS = Actions("sns:Subscribe", "sns:GetSubscriptionAttributes", "", "sns:Unsubscribe")
# A deletion restores the default policy.
_TOPIC_POLICY_ACTIONS = Actions(
    "sns:SetTopicAttributes", "sns:GetTopicAttributes", "sns:SetTopicAttributes", "sns:SetTopicAttributes"
)
_ALARM_PRICE = priced_each("alarm_month", "alarm")
_ALARM_ACTIONS = Actions(
    "cloudwatch:PutMetricAlarm cloudwatch:TagResource?tags",
    "cloudwatch:DescribeAlarms cloudwatch:ListTagsForResource",
    "cloudwatch:PutMetricAlarm cloudwatch:TagResource?tags cloudwatch:UntagResource?-tags",
    "cloudwatch:DeleteAlarms",
)

# fmt: off
# Logs of the nodes.
NODE_LOG_GROUP = ResourceKind("aws:cloudwatch/logGroup:LogGroup", "{component}-group", instances.node_logs, REMOVED, NODE_LOGS, _LOG_GROUP_ACTIONS)
XID_FILTER = ResourceKind("aws:cloudwatch/logMetricFilter:LogMetricFilter", "{component}-xids", instances.node_logs, REMOVED,
    PriceRule(item=None, reason="its metric is billed only while lines match"), Actions(
        "logs:PutMetricFilter", "logs:DescribeMetricFilters", "logs:PutMetricFilter", "logs:DeleteMetricFilter"))
XID_TOPIC = ResourceKind("aws:sns/topic:Topic", "{component}-alerts", instances.node_logs, REMOVED, BY_REQUEST, _TOPIC_ACTIONS)
XID_RECIPIENT = ResourceKind("aws:sns/topicSubscription:TopicSubscription", "{component}-alerts-{index}", instances.log_recipients, REMOVED, BY_REQUEST,
    _SUBSCRIPTION_ACTIONS)
XID_ALARM = ResourceKind("aws:cloudwatch/metricAlarm:MetricAlarm", "{component}-xids", instances.node_logs, REMOVED, _ALARM_PRICE, _ALARM_ACTIONS)
# Audit.
TRAIL = ResourceKind("aws:cloudtrail/trail:Trail", "{component}-trail", instances.trails, REMOVED, by_usage("data_event_100k"), Actions(
    "cloudtrail:CreateTrail cloudtrail:AddTags?tags cloudtrail:StartLogging "
    "cloudtrail:PutEventSelectors?advancedEventSelectors iam:PassRole?cloudWatchLogsRoleArn "
    "iam:GetRole?cloudWatchLogsRoleArn",
    "cloudtrail:DescribeTrails cloudtrail:GetTrailStatus cloudtrail:GetEventSelectors "
    "cloudtrail:GetInsightSelectors cloudtrail:ListTags",
    "cloudtrail:UpdateTrail iam:PassRole?cloudWatchLogsRoleArn cloudtrail:PutEventSelectors?advancedEventSelectors "
    "cloudtrail:AddTags?tags cloudtrail:RemoveTags?-tags",
    "cloudtrail:DeleteTrail",
))
TRAIL_LOG_GROUP = ResourceKind("aws:cloudwatch/logGroup:LogGroup", "{component}-log-group", instances.trails, retained(AUDIT), LOGS,
    _LOG_GROUP_ACTIONS, by_purpose("log-group"))
TRAIL_LOG_ROLE = ResourceKind("aws:iam/role:Role", "{component}-log-role", instances.trails, REMOVED, FREE, _ROLE_ACTIONS)
TRAIL_LOG_POLICY = ResourceKind("aws:iam/rolePolicy:RolePolicy", "{component}-log-policy", instances.trails, REMOVED, FREE, _ROLE_POLICY_ACTIONS)
BUDGET = ResourceKind("aws:budgets/budget:Budget", "{component}-month", budgets, REMOVED, PriceRule(item=None, reason="billed per day beyond the account's free budgets"), Actions(
    # One action covers all changes to a budget. Tags have separate actions.
    "budgets:ModifyBudget budgets:TagResource?tags",
    "budgets:ViewBudget budgets:ListTagsForResource",
    "budgets:ModifyBudget budgets:TagResource?tags budgets:UntagResource?-tags",
    "budgets:ModifyBudget",
))
# Keys.
KEY = ResourceKind("aws:kms/key:Key", "{component}-key", instances.keys, retained(KEY_REASON), priced_each("key_month", "encryption key"), Actions(
    "kms:CreateKey kms:TagResource?tags kms:PutKeyPolicy?policy kms:EnableKeyRotation?enableKeyRotation",
    "kms:DescribeKey kms:GetKeyPolicy kms:GetKeyRotationStatus kms:ListResourceTags",
    "kms:PutKeyPolicy?policy kms:UpdateKeyDescription?description kms:TagResource?tags kms:UntagResource?-tags",
    "kms:ScheduleKeyDeletion",
), by_purpose("key"))
KEY_ALIAS = ResourceKind("aws:kms/alias:Alias", "{component}-alias", instances.keys, retained(KEY_REASON), FREE,
    Actions("kms:CreateAlias", "kms:ListAliases", "kms:UpdateAlias?targetKeyId", "kms:DeleteAlias"), by_purpose("alias"))
# Buckets. The ID of a setting is the bucket name.
# `{why}` is the reason that `instances.buckets` gives for each bucket: audit records, evidence, or data of a file system.
BUCKET = ResourceKind("aws:s3/bucket:Bucket", "{component}-bucket", instances.buckets, retained("{why}"), OBJECTS, Actions(
    "s3:CreateBucket s3:PutBucketTagging?tags s3:TagResource?tags s3:PutBucketVersioning?objectLockEnabled "
    "s3:PutBucketObjectLockConfiguration?objectLockEnabled",
    "s3:ListBucket s3:GetBucketAcl s3:GetBucketCORS s3:GetBucketLogging "
    "s3:GetBucketObjectLockConfiguration s3:GetBucketPolicy s3:GetBucketRequestPayment s3:GetBucketTagging "
    "s3:ListTagsForResource s3:GetBucketVersioning s3:GetBucketWebsite s3:GetAccelerateConfiguration "
    "s3:GetEncryptionConfiguration s3:GetLifecycleConfiguration s3:GetReplicationConfiguration",
    "s3:PutBucketTagging?tags s3:TagResource?tags s3:UntagResource?-tags",
    "s3:DeleteBucket",
), by_purpose("bucket"))
BUCKET_PUBLIC_ACCESS = ResourceKind("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", "{component}-public-access-block", instances.buckets, retained(SETTINGS), FREE,
    _setting("GetBucketPublicAccessBlock", "PutBucketPublicAccessBlock"), by_purpose("bucket"))
BUCKET_OWNERSHIP = ResourceKind("aws:s3/bucketOwnershipControls:BucketOwnershipControls", "{component}-ownership", instances.buckets, retained(SETTINGS), FREE,
    _setting("GetBucketOwnershipControls", "PutBucketOwnershipControls"), by_purpose("bucket"))
BUCKET_VERSIONING = ResourceKind("aws:s3/bucketVersioning:BucketVersioning", "{component}-versioning", instances.buckets, retained(SETTINGS), FREE,
    _setting("GetBucketVersioning", "PutBucketVersioning"), by_purpose("bucket"))
BUCKET_ENCRYPTION = ResourceKind("aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration", "{component}-encryption", instances.buckets, retained(SETTINGS), FREE,
    _setting("GetEncryptionConfiguration", "PutEncryptionConfiguration"), by_purpose("bucket"))
BUCKET_LIFECYCLE = ResourceKind("aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration", "{component}-lifecycle", instances.buckets, retained(SETTINGS), FREE,
    _setting("GetLifecycleConfiguration", "PutLifecycleConfiguration"), by_purpose("bucket"))
BUCKET_OBJECT_LOCK = ResourceKind("aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration", "{component}-object-lock", instances.locked_buckets, retained(SETTINGS), FREE,
    _setting("GetBucketObjectLockConfiguration", "PutBucketObjectLockConfiguration"), by_purpose("bucket"))
BUCKET_LOGGING = ResourceKind("aws:s3/bucketLogging:BucketLogging", "{component}-access-logging", instances.logged_buckets, retained(SETTINGS), OBJECTS,
    _setting("GetBucketLogging", "PutBucketLogging"), by_purpose("bucket"))
BUCKET_POLICY = ResourceKind("aws:s3/bucketPolicy:BucketPolicy", "{component}-policy", instances.buckets, retained(SETTINGS), FREE,
    _setting("GetBucketPolicy", "PutBucketPolicy", "DeleteBucketPolicy"), by_purpose("bucket"))
# The second Region. If both Regions have a resource of this kind, the logical name contains the Region.
REPLICATION_ROLE = ResourceKind("aws:iam/role:Role", "{component}-replication-role", instances.second_regions, REMOVED, FREE, _ROLE_ACTIONS)
REPLICATION_POLICY = ResourceKind("aws:iam/rolePolicy:RolePolicy", "{component}-replication-policy", instances.second_regions, REMOVED, FREE, _ROLE_POLICY_ACTIONS)
REPLICATION = ResourceKind("aws:s3/bucketReplicationConfig:BucketReplicationConfig", "{component}-{purpose}-replication", instances.replicas, REMOVED, priced("replication_gb"), Actions(
    "s3:PutReplicationConfiguration iam:PassRole",
    "s3:GetReplicationConfiguration",
    "s3:PutReplicationConfiguration iam:PassRole",
    "s3:PutReplicationConfiguration",
))
IMAGE_COPY = ResourceKind("aws:ec2/amiCopy:AmiCopy", "{component}-{image}", instances.image_copies, retained(IMAGE_REASON), priced("snapshot_gb_month"), Actions(
    # EC2 uses the key with the permissions of the caller (https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html, retrieved 2026-11-27).
    "ec2:CopyImage ec2:CreateTags?tags kms:CreateGrant kms:Decrypt kms:DescribeKey kms:GenerateDataKeyWithoutPlaintext kms:ReEncryptFrom kms:ReEncryptTo",
    "ec2:DescribeImages",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags ec2:ModifyImageAttribute?description",
    "ec2:DeregisterImage ec2:DeleteSnapshot",
))
ALERTS = ResourceKind("aws:sns/topic:Topic", "{component}-{region}-alerts", instances.alerts, REMOVED, BY_REQUEST, _TOPIC_ACTIONS)
ALERTS_RECIPIENT = ResourceKind("aws:sns/topicSubscription:TopicSubscription", "{component}-{region}-alerts-{index}", instances.alert_recipients, REMOVED, BY_REQUEST,
    _SUBSCRIPTION_ACTIONS)
LAG_ALARM = ResourceKind("aws:cloudwatch/metricAlarm:MetricAlarm", "{component}-{region}-{purpose}-late", instances.lag_alarms, REMOVED, _ALARM_PRICE, _ALARM_ACTIONS)
FAILURE_ALARM = ResourceKind("aws:cloudwatch/metricAlarm:MetricAlarm", "{component}-{region}-{purpose}-failed", instances.failure_alarms, REMOVED, _ALARM_PRICE, _ALARM_ACTIONS)
RESULT_ALARM = ResourceKind("aws:cloudwatch/metricAlarm:MetricAlarm", "{component}-{region}-unready", instances.second_regions, REMOVED, _ALARM_PRICE, _ALARM_ACTIONS)
CHANGE_RULE = ResourceKind("aws:cloudwatch/eventRule:EventRule", "{component}-changed", instances.change_alerts, REMOVED, FREE, Actions(
    "events:PutRule events:TagResource?tags",
    "events:DescribeRule events:ListTagsForResource",
    "events:PutRule events:TagResource?tags events:UntagResource?-tags",
    "events:DeleteRule",
))
CHANGE_TARGET = ResourceKind("aws:cloudwatch/eventTarget:EventTarget", "{component}-changed-alerts", instances.change_alerts, REMOVED, FREE, Actions(
    "events:PutTargets",
    "events:ListTargetsByRule",
    "events:PutTargets",
    "events:RemoveTargets",
))
ALERTS_POLICY = ResourceKind("aws:sns/topicPolicy:TopicPolicy", "{component}-{region}-alerts-policy", instances.change_alerts, REMOVED, FREE,
    _TOPIC_POLICY_ACTIONS)
# Network.
VPC = ResourceKind("aws:ec2/vpc:Vpc", "{component}-vpc", instances.networks, retained(CONTAINS, with_data=True), FREE, Actions(
    "ec2:CreateVpc ec2:CreateTags?tags ec2:ModifyVpcAttribute",
    "ec2:DescribeVpcs ec2:DescribeVpcAttribute ec2:DescribeNetworkAcls ec2:DescribeRouteTables "
    "ec2:DescribeSecurityGroups",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags ec2:ModifyVpcAttribute?enableDnsHostnames "
    "ec2:ModifyVpcAttribute?enableDnsSupport",
    "ec2:DeleteVpc",
), by_purpose("vpc"))
DEFAULT_SECURITY_GROUP = ResourceKind("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", "{component}-default-security-group", instances.networks, REMOVED, FREE, Actions(
    "ec2:DescribeSecurityGroupRules ec2:RevokeSecurityGroupIngress ec2:RevokeSecurityGroupEgress",
    "ec2:DescribeSecurityGroups",
    "",
))
SUBNET = ResourceKind("aws:ec2/subnet:Subnet", "{component}-{subnet}", instances.subnets, retained(CONTAINS, with_data=True), FREE, Actions(
    "ec2:CreateSubnet ec2:CreateTags?tags ec2:ModifySubnetAttribute?enableResourceNameDnsARecordOnLaunch",
    "ec2:DescribeSubnets",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags ec2:ModifySubnetAttribute?mapPublicIpOnLaunch "
    "ec2:ModifySubnetAttribute?enableResourceNameDnsARecordOnLaunch",
    "ec2:DeleteSubnet ec2:DescribeNetworkInterfaces",
), by_purpose("subnet"))
SUBNET_ROUTES = ResourceKind("aws:ec2/routeTableAssociation:RouteTableAssociation", "{component}-{subnet}-route-table", instances.subnets, REMOVED, FREE, Actions(
    "ec2:AssociateRouteTable",
    "ec2:DescribeRouteTables",
    "ec2:ReplaceRouteTableAssociation",
    "ec2:DisassociateRouteTable",
))
INTERNET_GATEWAY = ResourceKind("aws:ec2/internetGateway:InternetGateway", "{component}-internet-gateway", instances.nat_networks, REMOVED, FREE, Actions(
    "ec2:CreateInternetGateway ec2:CreateTags?tags ec2:AttachInternetGateway?vpcId",
    "ec2:DescribeInternetGateways",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags ec2:AttachInternetGateway?vpcId ec2:DetachInternetGateway?vpcId",
    "ec2:DetachInternetGateway ec2:DeleteInternetGateway",
))
NAT_ADDRESS = ResourceKind("aws:ec2/eip:Eip", "{component}-{subnet}-address", instances.nat_subnets, REMOVED, priced("address_hour"), Actions(
    "ec2:AllocateAddress ec2:CreateTags?tags",
    "ec2:DescribeAddresses ec2:DescribeAddressesAttribute",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags",
    # After a refresh, the state contains the association of the address with the NAT gateway. The provider then disassociates
    # the address before it releases it, even if the gateway no longer exists.
    "ec2:DisassociateAddress ec2:ReleaseAddress",
))
NAT_GATEWAY = ResourceKind("aws:ec2/natGateway:NatGateway", "{component}-{subnet}-gateway", instances.nat_subnets, REMOVED, priced("nat_hour"), Actions(
    "ec2:CreateNatGateway ec2:CreateTags?tags",
    "ec2:DescribeNatGateways",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags",
    "ec2:DeleteNatGateway",
))
NAT_ROUTE_TABLE = ResourceKind("aws:ec2/routeTable:RouteTable", "{component}-nat-route-table", instances.nat_networks, REMOVED, FREE,
    _ROUTE_TABLE_ACTIONS)
NAT_ROUTE = ResourceKind("aws:ec2/route:Route", "{component}-nat-default-route", instances.nat_networks, REMOVED, FREE, _ROUTE_ACTIONS)
PRIVATE_ROUTE_TABLE = ResourceKind("aws:ec2/routeTable:RouteTable", "{component}-private-route-table-{index}", instances.zones, REMOVED, FREE,
    _ROUTE_TABLE_ACTIONS)
PRIVATE_ROUTE = ResourceKind("aws:ec2/route:Route", "{component}-private-default-route-{index}", instances.nat_zones, REMOVED, FREE, _ROUTE_ACTIONS)
GATEWAY_ENDPOINT = ResourceKind("aws:ec2/vpcEndpoint:VpcEndpoint", "{component}-endpoint-{service}", instances.gateway_endpoints, REMOVED, FREE,
    _VPC_ENDPOINT_ACTIONS)
INTERFACE_ENDPOINT = ResourceKind("aws:ec2/vpcEndpoint:VpcEndpoint", "{component}-endpoint-{service}", instances.interface_endpoints, REMOVED, priced("endpoint_hour"),
    _VPC_ENDPOINT_ACTIONS)
ENDPOINTS_GROUP = ResourceKind("aws:ec2/securityGroup:SecurityGroup", "{component}-endpoints", instances.endpoint_networks, REMOVED, FREE,
    _SECURITY_GROUP_ACTIONS)
ENDPOINTS_RULE = ResourceKind("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "{component}-endpoints-allow-https", instances.endpoint_networks, REMOVED, FREE,
    _SECURITY_GROUP_INGRESS_RULE_ACTIONS)
FLOW_LOG = ResourceKind("aws:ec2/flowLog:FlowLog", "{component}-flow-log", instances.networks, REMOVED, LOGS, Actions(
    "ec2:CreateFlowLogs ec2:CreateTags?tags iam:PassRole?iamRoleArn",
    "ec2:DescribeFlowLogs",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags",
    "ec2:DeleteFlowLogs",
))
FLOW_LOG_GROUP = ResourceKind("aws:cloudwatch/logGroup:LogGroup", "{component}-flow-log-group", instances.networks, retained(AUDIT), LOGS,
    _LOG_GROUP_ACTIONS, by_purpose("log-group"))
FLOW_LOG_ROLE = ResourceKind("aws:iam/role:Role", "{component}-flow-log-role", instances.networks, REMOVED, FREE, _ROLE_ACTIONS)
FLOW_LOG_POLICY = ResourceKind("aws:iam/rolePolicy:RolePolicy", "{component}-flow-log-policy", instances.networks, REMOVED, FREE,
    _ROLE_POLICY_ACTIONS)
# Security groups.
NODES_GROUP = ResourceKind("aws:ec2/securityGroup:SecurityGroup", "{component}-nodes", instances.security_groups, REMOVED, FREE,
    _SECURITY_GROUP_ACTIONS)
STORAGE_GROUP = ResourceKind("aws:ec2/securityGroup:SecurityGroup", "{component}-storage", instances.storage_groups, retained(CONTAINS, with_data=True), FREE,
    _SECURITY_GROUP_ACTIONS, by_purpose("security-group"))
PEER_INGRESS = ResourceKind("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "{component}-{rule}-ingress", instances.peer_rules, REMOVED, FREE,
    _SECURITY_GROUP_INGRESS_RULE_ACTIONS)
PEER_EGRESS = ResourceKind("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "{component}-{rule}-egress", instances.peer_rules, REMOVED, FREE,
    _SECURITY_GROUP_EGRESS_RULE_ACTIONS)
DECLARED_INGRESS = ResourceKind("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "{component}-allow-{rule}", instances.declared_ingress, REMOVED, FREE,
    _SECURITY_GROUP_INGRESS_RULE_ACTIONS)
EXISTING_INGRESS = ResourceKind("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "{component}-allow-{rule}-ingress", instances.existing_ingress, REMOVED, FREE,
    _SECURITY_GROUP_INGRESS_RULE_ACTIONS)
EXISTING_EGRESS = ResourceKind("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "{component}-allow-{rule}-egress", instances.existing_egress, REMOVED, FREE,
    _SECURITY_GROUP_EGRESS_RULE_ACTIONS)
HOMES_GROUP = ResourceKind("aws:ec2/securityGroup:SecurityGroup", "{component}-homes", instances.home_groups, REMOVED, FREE,
    _SECURITY_GROUP_ACTIONS)
HOMES_INGRESS = ResourceKind("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "{component}-allow-homes-ingress", instances.home_groups, REMOVED, FREE,
    _SECURITY_GROUP_INGRESS_RULE_ACTIONS)
HOMES_EGRESS = ResourceKind("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "{component}-allow-homes-egress", instances.home_groups, REMOVED, FREE,
    _SECURITY_GROUP_EGRESS_RULE_ACTIONS)
OPENZFS_INGRESS = ResourceKind("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "{component}-allow-openzfs-{port}-ingress", instances.openzfs_rules, REMOVED, FREE,
    _SECURITY_GROUP_INGRESS_RULE_ACTIONS)
OPENZFS_EGRESS = ResourceKind("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "{component}-allow-openzfs-{port}-egress", instances.openzfs_rules, REMOVED, FREE,
    _SECURITY_GROUP_EGRESS_RULE_ACTIONS)
WEB_EGRESS = ResourceKind("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "{component}-allow-web-{port}-egress", instances.web_ports, REMOVED, FREE,
    _SECURITY_GROUP_EGRESS_RULE_ACTIONS)
# File systems.
LUSTRE_LOG_GROUP = ResourceKind("aws:cloudwatch/logGroup:LogGroup", "{component}-log-group", instances.file_systems, retained(WRITES, with_data=True), LOGS,
    _LOG_GROUP_ACTIONS, by_purpose("file-system-log-group"))
LUSTRE = ResourceKind("aws:fsx/lustreFileSystem:LustreFileSystem", "{component}-lustre", instances.file_systems, retained("{why}", with_data=True), priced("lustre_gib_month"), Actions(
    "fsx:CreateFileSystem fsx:CreateFileSystemFromBackup?backupId fsx:TagResource?tags iam:CreateServiceLinkedRole kms:DescribeKey?kmsKeyId "
    "kms:CreateGrant?kmsKeyId ec2:DescribeSubnets ec2:DescribeSecurityGroups ec2:DescribeVpcs ec2:GetSecurityGroupsForVpc",
    "fsx:DescribeFileSystems",
    "fsx:UpdateFileSystem fsx:TagResource?tags fsx:UntagResource?-tags",
    "fsx:DeleteFileSystem",
), by_purpose("file-system"))
DATA_REPOSITORY = ResourceKind("aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation", "{component}-data-repository", instances.linked_file_systems, REMOVED, FREE, Actions(
    # FSx uses the caller's permissions to create a service-linked role for the bucket
    # (Amazon FSx for Lustre guide, "Adding permissions to use data repositories").
    "fsx:CreateDataRepositoryAssociation fsx:TagResource?tags iam:CreateServiceLinkedRole iam:AttachRolePolicy "
    "iam:PutRolePolicy s3:ListBucket",
    "fsx:DescribeDataRepositoryAssociations",
    "fsx:UpdateDataRepositoryAssociation fsx:TagResource?tags fsx:UntagResource?-tags",
    "fsx:DeleteDataRepositoryAssociation",
))
# Home directories.
_HOME_ACTIONS = Actions(
    "elasticfilesystem:CreateFileSystem elasticfilesystem:TagResource?tags iam:CreateServiceLinkedRole kms:DescribeKey?kmsKeyId "
    "kms:CreateGrant?kmsKeyId kms:GenerateDataKeyWithoutPlaintext?kmsKeyId",
    "elasticfilesystem:DescribeFileSystems elasticfilesystem:DescribeLifecycleConfiguration",
    "elasticfilesystem:UpdateFileSystem?throughputMode elasticfilesystem:TagResource?tags elasticfilesystem:UntagResource?-tags",
    "elasticfilesystem:DeleteFileSystem",
)
_HOME_POLICY_ACTIONS = Actions(
    "elasticfilesystem:PutFileSystemPolicy",
    "elasticfilesystem:DescribeFileSystemPolicy",
    "elasticfilesystem:PutFileSystemPolicy",
    "elasticfilesystem:DeleteFileSystemPolicy",
)
HOME = ResourceKind("aws:efs/fileSystem:FileSystem", "{component}-efs", instances.homes, retained("{why}"), priced("home_gib_month", "home_gb"), _HOME_ACTIONS, by_purpose("home"))
HOME_POLICY = ResourceKind("aws:efs/fileSystemPolicy:FileSystemPolicy", "{component}-policy", instances.homes, retained(HOME_SETTING), FREE, _HOME_POLICY_ACTIONS, by_purpose("home"))
HOME_REPLICA = ResourceKind("aws:efs/fileSystem:FileSystem", "{component}-{purpose}-efs", instances.home_replicas, retained("{why}"), priced("home_gib_month", "home_gb"), _HOME_ACTIONS,
    by_purpose("home"))
HOME_REPLICA_POLICY = ResourceKind("aws:efs/fileSystemPolicy:FileSystemPolicy", "{component}-{purpose}-efs-policy", instances.home_replicas, retained(HOME_SETTING), FREE,
    _HOME_POLICY_ACTIONS, by_purpose("home"))
HOME_REPLICATION = ResourceKind("aws:efs/replicationConfiguration:ReplicationConfiguration", "{component}-{purpose}-efs-replication", instances.home_replications, REMOVED,
    PriceRule(item=None, reason="the transfer of changed files is billed, whose amount a plan cannot predict"), Actions(
    # A hook of the component disables the protection of an empty replica.
    "elasticfilesystem:CreateReplicationConfiguration elasticfilesystem:UpdateFileSystemProtection elasticfilesystem:DescribeFileSystems",
    "elasticfilesystem:DescribeReplicationConfigurations",
    "",
    "elasticfilesystem:DeleteReplicationConfiguration",
))
# A file system keeps its files without mount targets, so `destroy` deletes the mount targets and their network.
MOUNT_TARGET = ResourceKind("aws:efs/mountTarget:MountTarget", "{component}-{subnet}-mount-target", instances.mount_targets, REMOVED, FREE, Actions(
    # EFS creates and deletes the network interfaces with the permissions of the caller (API reference, CreateMountTarget).
    "elasticfilesystem:CreateMountTarget ec2:DescribeSubnets ec2:DescribeNetworkInterfaces ec2:CreateNetworkInterface",
    "elasticfilesystem:DescribeMountTargets elasticfilesystem:DescribeMountTargetSecurityGroups",
    "elasticfilesystem:ModifyMountTargetSecurityGroups?securityGroups ec2:ModifyNetworkInterfaceAttribute?securityGroups",
    "elasticfilesystem:DeleteMountTarget ec2:DeleteNetworkInterface",
))
OPENZFS = ResourceKind("aws:fsx/openZfsFileSystem:OpenZfsFileSystem", "{component}-openzfs", instances.openzfs, retained("{why}", with_data=True), priced("home_gib_month"), Actions(
    "fsx:CreateFileSystem fsx:CreateFileSystemFromBackup?backupId fsx:TagResource?tags iam:CreateServiceLinkedRole kms:DescribeKey?kmsKeyId "
    "kms:CreateGrant?kmsKeyId ec2:DescribeSubnets ec2:DescribeSecurityGroups ec2:DescribeVpcs ec2:GetSecurityGroupsForVpc",
    # The provider also reads and updates the root volume.
    "fsx:DescribeFileSystems fsx:DescribeVolumes",
    "fsx:UpdateFileSystem fsx:UpdateVolume?rootVolumeConfiguration fsx:TagResource?tags fsx:UntagResource?-tags",
    # The provider takes a final backup by default.
    "fsx:DeleteFileSystem fsx:CreateBackup",
), by_purpose("openzfs"))
# Nodes.
NODE_ROLE = ResourceKind("aws:iam/role:Role", "{component}-role", instances.node_roles, REMOVED, FREE, _ROLE_ACTIONS)
NODE_POLICY = ResourceKind("aws:iam/rolePolicy:RolePolicy", "{component}-policy", instances.node_roles, REMOVED, FREE, _ROLE_POLICY_ACTIONS)
NODE_ATTACHED = ResourceKind("aws:iam/rolePolicyAttachment:RolePolicyAttachment", "{component}-attached-{token}", instances.node_policies, REMOVED, FREE,
    Actions("iam:AttachRolePolicy", "iam:ListAttachedRolePolicies", "", "iam:DetachRolePolicy"))
NODE_PROFILE = ResourceKind("aws:iam/instanceProfile:InstanceProfile", "{component}-profile", instances.node_roles, REMOVED, FREE, Actions(
    "iam:CreateInstanceProfile iam:TagInstanceProfile?tags iam:AddRoleToInstanceProfile?role iam:PassRole?role",
    "iam:GetInstanceProfile iam:GetRole",
    "iam:TagInstanceProfile?tags iam:UntagInstanceProfile?-tags iam:RemoveRoleFromInstanceProfile?role "
    "iam:AddRoleToInstanceProfile?role iam:PassRole?role",
    "iam:RemoveRoleFromInstanceProfile iam:DeleteInstanceProfile",
))
# The managed store for metrics. AWS requires the grant of the key from the caller
# (https://docs.aws.amazon.com/prometheus/latest/userguide/encryption-at-rest-Amazon-Service-Prometheus.html, retrieved 2026-11-30).
WORKSPACE = ResourceKind("aws:amp/workspace:Workspace", "{component}-workspace", stores, REMOVED, priced("metric_samples_10m", "metric_gb_month"), Actions(
    "aps:CreateWorkspace aps:TagResource?tags kms:DescribeKey?kmsKeyArn kms:CreateGrant?kmsKeyArn kms:GenerateDataKey?kmsKeyArn kms:Decrypt?kmsKeyArn",
    "aps:DescribeWorkspace aps:DescribeLoggingConfiguration aps:ListTagsForResource",
    "aps:UpdateWorkspaceAlias?alias aps:TagResource?tags aps:UntagResource?-tags",
    "aps:DeleteWorkspace",
))
# A deletion of the settings changes nothing.
WORKSPACE_SETTINGS = ResourceKind("aws:amp/workspaceConfiguration:WorkspaceConfiguration", "{component}-settings", instances.set_stores, REMOVED, FREE, Actions(
    "aps:UpdateWorkspaceConfiguration",
    "aps:DescribeWorkspaceConfiguration",
    "aps:UpdateWorkspaceConfiguration",
))
STORE_RULES = ResourceKind("aws:amp/ruleGroupNamespace:RuleGroupNamespace", "{component}-rules", watching_stores, REMOVED, by_usage("metric_query_1b"), Actions(
    "aps:CreateRuleGroupsNamespace aps:TagResource?tags",
    "aps:DescribeRuleGroupsNamespace aps:ListTagsForResource",
    "aps:PutRuleGroupsNamespace?data aps:TagResource?tags aps:UntagResource?-tags",
    "aps:DeleteRuleGroupsNamespace",
))
STORE_ALERTS = ResourceKind("aws:amp/alertManagerDefinition:AlertManagerDefinition", "{component}-alerts", alerting_stores, REMOVED, FREE, Actions(
    "aps:CreateAlertManagerDefinition",
    "aps:DescribeAlertManagerDefinition",
    "aps:PutAlertManagerDefinition",
    "aps:DeleteAlertManagerDefinition",
))
STORE_TOPIC = ResourceKind("aws:sns/topic:Topic", "{component}-recipients", alerting_stores, REMOVED, BY_REQUEST, _TOPIC_ACTIONS)
STORE_TOPIC_POLICY = ResourceKind("aws:sns/topicPolicy:TopicPolicy", "{component}-recipients-policy", alerting_stores, REMOVED, FREE, _TOPIC_POLICY_ACTIONS)
STORE_RECIPIENT = ResourceKind("aws:sns/topicSubscription:TopicSubscription", "{component}-recipients-{index}", instances.store_recipients, REMOVED, BY_REQUEST,
    _SUBSCRIPTION_ACTIONS)
# Alerts of the control node by email.
EMAIL_TOPIC = ResourceKind("aws:sns/topic:Topic", "{component}-recipients", instances.alert_emails, REMOVED, BY_REQUEST, _TOPIC_ACTIONS)
EMAIL_RECIPIENT = ResourceKind("aws:sns/topicSubscription:TopicSubscription", "{component}-recipients-{index}", instances.email_recipients, REMOVED, BY_REQUEST,
    _SUBSCRIPTION_ACTIONS)
BUNDLE = ResourceKind("aws:s3/bucketObjectv2:BucketObjectv2", "{component}-bundle", planned.pools, REMOVED, OBJECTS, Actions(
    "s3:PutObject s3:PutObjectTagging?tags kms:GenerateDataKey kms:Decrypt",
    # Versions of the provider before 5.73 compare the key of an object with the default key of S3 (hashicorp/terraform-provider-aws, pull request 39782).
    "s3:GetObject s3:GetObjectTagging kms:DescribeKey",
    "s3:PutObject s3:PutObjectTagging?tags kms:GenerateDataKey kms:Decrypt",
    # Buckets are versioned, and the provider deletes all versions of an object.
    "s3:DeleteObject s3:DeleteObjectVersion s3:ListBucketVersions",
))
IMAGE = ResourceKind("aws:ssm/parameter:Parameter", "{component}-image-{token}", instances.pinned_pools, REMOVED, FREE, Actions(
    "ssm:PutParameter ssm:AddTagsToResource?tags",
    "ssm:GetParameter ssm:DescribeParameters ssm:ListTagsForResource",
    "ssm:PutParameter ssm:AddTagsToResource?tags ssm:RemoveTagsFromResource?-tags",
    "ssm:DeleteParameter",
))
PLACEMENT_GROUP = ResourceKind("aws:ec2/placementGroup:PlacementGroup", "{component}-placement-group-{index}", instances.placement_groups, REMOVED, FREE, Actions(
    "ec2:CreatePlacementGroup ec2:CreateTags?tags",
    "ec2:DescribePlacementGroups",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags",
    "ec2:DeletePlacementGroup",
))
DATA_DISK = ResourceKind("aws:ebs/volume:Volume", "{component}-data", data_disks, REMOVED, priced("disk_gib_month"), Actions(
    "ec2:CreateVolume ec2:CreateTags?tags kms:GenerateDataKeyWithoutPlaintext?kmsKeyId kms:CreateGrant?kmsKeyId",
    "ec2:DescribeVolumes",
    "ec2:ModifyVolume ec2:CreateTags?tags ec2:DeleteTags?-tags",
    "ec2:DeleteVolume",
))
LAUNCH_TEMPLATE = ResourceKind("aws:ec2/launchTemplate:LaunchTemplate", "{component}-template", planned.groups, REMOVED, priced("disk_gib_month"), Actions(
    "ec2:CreateLaunchTemplate ec2:CreateTags?tags",
    "ec2:DescribeLaunchTemplates ec2:DescribeLaunchTemplateVersions",
    "ec2:CreateTags?tags ec2:DeleteTags?-tags ec2:CreateLaunchTemplateVersion ec2:ModifyLaunchTemplate",
    "ec2:DeleteLaunchTemplate",
))
GROUP = ResourceKind("aws:autoscaling/group:Group", "{component}", planned.groups, REMOVED, priced("node"), Actions(
    # With a launch template, Auto Scaling launches instances with the caller's permissions.
    "autoscaling:CreateAutoScalingGroup autoscaling:CreateOrUpdateTags?tags ec2:RunInstances ec2:CreateTags "
    "iam:PassRole iam:CreateServiceLinkedRole",
    "autoscaling:DescribeAutoScalingGroups autoscaling:DescribeScalingActivities "
    "autoscaling:DescribeInstanceRefreshes",
    "autoscaling:UpdateAutoScalingGroup ec2:RunInstances iam:PassRole "
    "autoscaling:StartInstanceRefresh?launchTemplate autoscaling:StartInstanceRefresh?mixedInstancesPolicy "
    "autoscaling:CancelInstanceRefresh?launchTemplate autoscaling:CancelInstanceRefresh?mixedInstancesPolicy "
    "autoscaling:CreateOrUpdateTags?tags autoscaling:DeleteTags?-tags",
    "autoscaling:UpdateAutoScalingGroup autoscaling:DeleteAutoScalingGroup",
))
SCHEDULE = ResourceKind("aws:autoscaling/schedule:Schedule", "{component}-{action}", instances.schedules, REMOVED, FREE, Actions(
    "autoscaling:PutScheduledUpdateGroupAction",
    "autoscaling:DescribeScheduledActions",
    "autoscaling:PutScheduledUpdateGroupAction",
    "autoscaling:DeleteScheduledAction",
))

NODES_READY = ResourceKind[Lookup]("gpuinfra:index:NodesReady", "{component}", planned.nodes_ready, REMOVED, PriceRule(item=None, reason="it only waits and does not create anything in the account"),
    Actions("", ""))

# fmt: on
RESOURCES = planned.rows(globals())
"""The table."""


def resources(plan: Plan) -> tuple[PlannedResource[Lookup], ...]:
    """All resources that a plan creates."""
    return tuple(planned.planned(RESOURCES, plan))
