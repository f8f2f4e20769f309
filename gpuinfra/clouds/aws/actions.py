"""What an operator's credentials are asked for: IAM actions by resource type and operation.

`service:Action?input` is asked only where that input is given, and on an update only where it changes; `?-tags` where a tag goes away.
Which calls the provider makes is its own code's word (terraform-provider-aws 6, on which pulumi-aws 7 stands), which action a call needs is AWS's
service authorization reference; both read 2026-11-21. CloudFormation's schemas list permissions for the same types and are written by the services' own
teams: a test holds this table against them and names each difference.
"""

from __future__ import annotations

from gpuinfra.clouds.permissions import Row


def _bucket_part(get: str, put: str, delete: str = "") -> Row:
    """A setting of a bucket: read and written whole. Most are removed by writing them empty."""
    return Row(f"s3:{put}", f"s3:{get}", f"s3:{put}", f"s3:{delete or put}")


_TAGS = "ec2:CreateTags?tags ec2:DeleteTags?-tags"

ACTIONS: dict[str, Row] = {
    # A network
    "ec2/vpc:Vpc": Row(
        "ec2:CreateVpc ec2:CreateTags?tags ec2:ModifyVpcAttribute",
        "ec2:DescribeVpcs ec2:DescribeVpcAttribute ec2:DescribeNetworkAcls ec2:DescribeRouteTables ec2:DescribeSecurityGroups",
        f"{_TAGS} ec2:ModifyVpcAttribute?enableDnsHostnames ec2:ModifyVpcAttribute?enableDnsSupport",
        "ec2:DeleteVpc",
    ),
    "ec2/defaultSecurityGroup:DefaultSecurityGroup": Row(
        "ec2:CreateTags?tags ec2:RevokeSecurityGroupIngress ec2:RevokeSecurityGroupEgress",
        "ec2:DescribeSecurityGroups",
        _TAGS,
    ),
    "ec2/subnet:Subnet": Row(
        "ec2:CreateSubnet ec2:CreateTags?tags",
        "ec2:DescribeSubnets",
        f"{_TAGS} ec2:ModifySubnetAttribute?mapPublicIpOnLaunch",
        "ec2:DeleteSubnet ec2:DescribeNetworkInterfaces",
    ),
    "ec2/internetGateway:InternetGateway": Row(
        "ec2:CreateInternetGateway ec2:CreateTags?tags ec2:AttachInternetGateway?vpcId",
        "ec2:DescribeInternetGateways",
        f"{_TAGS} ec2:AttachInternetGateway?vpcId ec2:DetachInternetGateway?vpcId",
        "ec2:DetachInternetGateway ec2:DeleteInternetGateway",
    ),
    "ec2/eip:Eip": Row(
        "ec2:AllocateAddress ec2:CreateTags?tags",
        "ec2:DescribeAddresses ec2:DescribeAddressesAttribute",
        _TAGS,
        "ec2:ReleaseAddress",
    ),
    "ec2/natGateway:NatGateway": Row(
        "ec2:CreateNatGateway ec2:CreateTags?tags", "ec2:DescribeNatGateways", _TAGS, "ec2:DeleteNatGateway"
    ),
    "ec2/routeTable:RouteTable": Row(
        "ec2:CreateRouteTable ec2:CreateTags?tags", "ec2:DescribeRouteTables", _TAGS, "ec2:DeleteRouteTable"
    ),
    "ec2/route:Route": Row("ec2:CreateRoute", "ec2:DescribeRouteTables", "ec2:ReplaceRoute", "ec2:DeleteRoute"),
    "ec2/routeTableAssociation:RouteTableAssociation": Row(
        "ec2:AssociateRouteTable",
        "ec2:DescribeRouteTables",
        "ec2:ReplaceRouteTableAssociation",
        "ec2:DisassociateRouteTable",
    ),
    "ec2/vpcEndpoint:VpcEndpoint": Row(
        "ec2:CreateVpcEndpoint ec2:CreateTags?tags route53:AssociateVPCWithHostedZone?privateDnsEnabled",
        "ec2:DescribeVpcEndpoints ec2:DescribePrefixLists",
        f"{_TAGS} ec2:ModifyVpcEndpoint",
        "ec2:DeleteVpcEndpoints",
    ),
    "ec2/flowLog:FlowLog": Row(
        "ec2:CreateFlowLogs ec2:CreateTags?tags iam:PassRole?iamRoleArn",
        "ec2:DescribeFlowLogs",
        _TAGS,
        "ec2:DeleteFlowLogs",
    ),
    "ec2/securityGroup:SecurityGroup": Row(
        "ec2:CreateSecurityGroup ec2:CreateTags?tags ec2:RevokeSecurityGroupEgress",
        "ec2:DescribeSecurityGroups",
        _TAGS,
        "ec2:DeleteSecurityGroup ec2:DescribeNetworkInterfaces"
        " ec2:RevokeSecurityGroupIngress?revokeRulesOnDelete ec2:RevokeSecurityGroupEgress?revokeRulesOnDelete",
    ),
    "vpc/securityGroupIngressRule:SecurityGroupIngressRule": Row(
        "ec2:AuthorizeSecurityGroupIngress ec2:CreateTags?tags",
        "ec2:DescribeSecurityGroupRules",
        f"{_TAGS} ec2:ModifySecurityGroupRules",
        "ec2:RevokeSecurityGroupIngress",
    ),
    "vpc/securityGroupEgressRule:SecurityGroupEgressRule": Row(
        "ec2:AuthorizeSecurityGroupEgress ec2:CreateTags?tags",
        "ec2:DescribeSecurityGroupRules",
        f"{_TAGS} ec2:ModifySecurityGroupRules",
        "ec2:RevokeSecurityGroupEgress",
    ),
    # Nodes
    "ec2/placementGroup:PlacementGroup": Row(
        "ec2:CreatePlacementGroup ec2:CreateTags?tags", "ec2:DescribePlacementGroups", _TAGS, "ec2:DeletePlacementGroup"
    ),
    "ec2/launchTemplate:LaunchTemplate": Row(
        "ec2:CreateLaunchTemplate ec2:CreateTags?tags",
        "ec2:DescribeLaunchTemplates ec2:DescribeLaunchTemplateVersions",
        f"{_TAGS} ec2:CreateLaunchTemplateVersion ec2:ModifyLaunchTemplate",
        "ec2:DeleteLaunchTemplate",
    ),
    "autoscaling/group:Group": Row(
        # With a launch template Auto Scaling starts instances in the caller's right, so the caller has to have it.
        "autoscaling:CreateAutoScalingGroup autoscaling:CreateOrUpdateTags?tags ec2:RunInstances ec2:CreateTags iam:PassRole"
        " iam:CreateServiceLinkedRole",
        "autoscaling:DescribeAutoScalingGroups autoscaling:DescribeScalingActivities autoscaling:DescribeInstanceRefreshes",
        "autoscaling:UpdateAutoScalingGroup ec2:RunInstances iam:PassRole autoscaling:StartInstanceRefresh?launchTemplate autoscaling:StartInstanceRefresh?mixedInstancesPolicy autoscaling:CancelInstanceRefresh?launchTemplate autoscaling:CancelInstanceRefresh?mixedInstancesPolicy"
        " autoscaling:CreateOrUpdateTags?tags autoscaling:DeleteTags?-tags",
        "autoscaling:UpdateAutoScalingGroup autoscaling:DeleteAutoScalingGroup",
    ),
    "autoscaling/schedule:Schedule": Row(
        "autoscaling:PutScheduledUpdateGroupAction",
        "autoscaling:DescribeScheduledActions",
        "autoscaling:PutScheduledUpdateGroupAction",
        "autoscaling:DeleteScheduledAction",
    ),
    "ssm/parameter:Parameter": Row(
        "ssm:PutParameter ssm:AddTagsToResource?tags",
        "ssm:GetParameter ssm:DescribeParameters ssm:ListTagsForResource",
        "ssm:PutParameter ssm:AddTagsToResource?tags ssm:RemoveTagsFromResource?-tags",
        "ssm:DeleteParameter",
    ),
    "s3/bucketObjectv2:BucketObjectv2": Row(
        "s3:PutObject s3:PutObjectTagging?tags kms:GenerateDataKey kms:Decrypt",
        "s3:GetObject s3:GetObjectTagging",
        "s3:PutObject s3:PutObjectTagging?tags kms:GenerateDataKey kms:Decrypt",
        # The buckets keep versions, and the provider removes all of an object.
        "s3:DeleteObject s3:DeleteObjectVersion s3:ListBucketVersions",
    ),
    # Storage
    "s3/bucket:Bucket": Row(
        "s3:CreateBucket s3:PutBucketTagging?tags s3:TagResource?tags s3:PutBucketVersioning?objectLockEnabled"
        " s3:PutBucketObjectLockConfiguration?objectLockEnabled",
        "s3:ListBucket s3:GetBucketLocation s3:GetBucketAcl s3:GetBucketCORS s3:GetBucketLogging s3:GetBucketObjectLockConfiguration s3:GetBucketPolicy"
        " s3:GetBucketRequestPayment s3:GetBucketTagging s3:ListTagsForResource s3:GetBucketVersioning s3:GetBucketWebsite s3:GetAccelerateConfiguration"
        " s3:GetEncryptionConfiguration s3:GetLifecycleConfiguration s3:GetReplicationConfiguration",
        "s3:PutBucketTagging?tags s3:TagResource?tags s3:UntagResource?-tags",
        "s3:DeleteBucket",
    ),
    "s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _bucket_part(
        "GetBucketPublicAccessBlock", "PutBucketPublicAccessBlock"
    ),
    "s3/bucketOwnershipControls:BucketOwnershipControls": _bucket_part(
        "GetBucketOwnershipControls", "PutBucketOwnershipControls"
    ),
    "s3/bucketVersioning:BucketVersioning": _bucket_part("GetBucketVersioning", "PutBucketVersioning"),
    "s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _bucket_part(
        "GetEncryptionConfiguration", "PutEncryptionConfiguration"
    ),
    "s3/bucketPolicy:BucketPolicy": _bucket_part("GetBucketPolicy", "PutBucketPolicy", "DeleteBucketPolicy"),
    "s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _bucket_part(
        "GetLifecycleConfiguration", "PutLifecycleConfiguration"
    ),
    "s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration": _bucket_part(
        "GetBucketObjectLockConfiguration", "PutBucketObjectLockConfiguration"
    ),
    "s3/bucketLogging:BucketLogging": _bucket_part("GetBucketLogging", "PutBucketLogging"),
    "fsx/lustreFileSystem:LustreFileSystem": Row(
        "fsx:CreateFileSystem fsx:TagResource?tags iam:CreateServiceLinkedRole kms:DescribeKey?kmsKeyId kms:CreateGrant?kmsKeyId"
        " ec2:DescribeSubnets ec2:DescribeSecurityGroups ec2:DescribeVpcs",
        "fsx:DescribeFileSystems",
        "fsx:UpdateFileSystem fsx:TagResource?tags fsx:UntagResource?-tags",
        "fsx:DeleteFileSystem",
    ),
    "fsx/dataRepositoryAssociation:DataRepositoryAssociation": Row(
        # FSx makes a service-linked role for the bucket in the caller's right. Amazon FSx for Lustre guide, "Adding permissions to use data repositories".
        "fsx:CreateDataRepositoryAssociation fsx:TagResource?tags iam:CreateServiceLinkedRole iam:AttachRolePolicy iam:PutRolePolicy s3:ListBucket",
        "fsx:DescribeDataRepositoryAssociations fsx:ListTagsForResource",
        "fsx:UpdateDataRepositoryAssociation fsx:TagResource?tags fsx:UntagResource?-tags",
        "fsx:DeleteDataRepositoryAssociation",
    ),
    # Identity and keys
    "iam/role:Role": Row(
        "iam:CreateRole iam:TagRole?tags",
        "iam:GetRole iam:ListRolePolicies iam:ListAttachedRolePolicies iam:ListRoleTags",
        "iam:UpdateAssumeRolePolicy?assumeRolePolicy iam:UpdateRoleDescription?description iam:TagRole?tags iam:UntagRole?-tags",
        "iam:DeleteRole iam:ListInstanceProfilesForRole",
    ),
    "iam/rolePolicy:RolePolicy": Row(
        "iam:PutRolePolicy", "iam:GetRolePolicy", "iam:PutRolePolicy", "iam:DeleteRolePolicy"
    ),
    "iam/rolePolicyAttachment:RolePolicyAttachment": Row(
        "iam:AttachRolePolicy", "iam:ListAttachedRolePolicies", "", "iam:DetachRolePolicy"
    ),
    "iam/instanceProfile:InstanceProfile": Row(
        "iam:CreateInstanceProfile iam:TagInstanceProfile?tags iam:AddRoleToInstanceProfile?role iam:PassRole?role",
        "iam:GetInstanceProfile iam:ListInstanceProfileTags",
        "iam:TagInstanceProfile?tags iam:UntagInstanceProfile?-tags",
        "iam:RemoveRoleFromInstanceProfile iam:DeleteInstanceProfile",
    ),
    "kms/key:Key": Row(
        "kms:CreateKey kms:TagResource?tags kms:PutKeyPolicy?policy kms:EnableKeyRotation?enableKeyRotation",
        "kms:DescribeKey kms:GetKeyPolicy kms:GetKeyRotationStatus kms:ListResourceTags",
        "kms:PutKeyPolicy?policy kms:UpdateKeyDescription?description kms:TagResource?tags kms:UntagResource?-tags",
        "kms:ScheduleKeyDeletion",
    ),
    "kms/alias:Alias": Row("kms:CreateAlias", "kms:ListAliases", "kms:UpdateAlias?targetKeyId", "kms:DeleteAlias"),
    # Audit and money
    "cloudtrail/trail:Trail": Row(
        "cloudtrail:CreateTrail cloudtrail:AddTags?tags cloudtrail:StartLogging cloudtrail:PutEventSelectors?advancedEventSelectors"
        " iam:PassRole?cloudWatchLogsRoleArn iam:GetRole?cloudWatchLogsRoleArn",
        "cloudtrail:DescribeTrails cloudtrail:GetTrailStatus cloudtrail:GetEventSelectors cloudtrail:GetInsightSelectors cloudtrail:ListTags",
        "cloudtrail:UpdateTrail iam:PassRole?cloudWatchLogsRoleArn cloudtrail:PutEventSelectors?advancedEventSelectors cloudtrail:AddTags?tags"
        " cloudtrail:RemoveTags?-tags",
        "cloudtrail:DeleteTrail",
    ),
    "cloudwatch/logGroup:LogGroup": Row(
        "logs:CreateLogGroup logs:TagResource?tags logs:PutRetentionPolicy?retentionInDays logs:AssociateKmsKey?kmsKeyId",
        "logs:DescribeLogGroups logs:ListTagsForResource",
        "logs:PutRetentionPolicy?retentionInDays logs:AssociateKmsKey?kmsKeyId logs:TagResource?tags logs:UntagResource?-tags",
        "logs:DeleteLogGroup",
    ),
    "budgets/budget:Budget": Row(
        # All of a budget but reading is one action, and tags are a budget's own.
        "budgets:ModifyBudget budgets:TagResource?tags",
        "budgets:ViewBudget budgets:ListTagsForResource",
        "budgets:ModifyBudget budgets:TagResource?tags budgets:UntagResource?-tags",
        "budgets:ModifyBudget",
    ),
}
"""Type (without `aws:`) -> actions."""

ASKED: dict[str, tuple[str, ...]] = {
    "reading an image's parameter": ("ssm:GetParameter",),
    "the handover: who should be there": (
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeScalingActivities",
        "ec2:DescribeInstances",
    ),
    "the handover: what nodes reported": ("s3:ListBucket", "s3:GetObject", "kms:Decrypt"),
    "the handover: why a node is silent": ("ec2:GetConsoleOutput",),
}
"""What the program itself asks, beside resources. Who one is (`sts:GetCallerIdentity`) needs no permission."""
