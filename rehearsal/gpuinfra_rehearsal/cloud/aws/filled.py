"""Values that the AWS provider fills in: defaults of inputs (`DEFAULTS`) and outputs without an input (`OUTPUTS`).

The values are from recorded deployments (`tests/providers/recordings/aws`), which a test replays. For types without a
recording, they are from the provider's public source (terraform-provider-aws, `internal/service/`, retrieved 2026-11-22).
"""

from __future__ import annotations

from typing import Any

DEFAULTS: dict[str, dict[str, Any]] = {
    "aws:autoscaling/group:Group": {
        "forceDelete": False, "forceDeleteWarmPool": False, "healthCheckGracePeriod": 300,
        "ignoreFailedScalingActivities": False, "metricsGranularity": "1Minute", "protectFromScaleIn": False,
        "waitForCapacityTimeout": "10m", "instanceRefresh.preferences.maxHealthyPercentage": 100,
        "instanceRefresh.preferences.minHealthyPercentage": 90,
        "instanceRefresh.preferences.scaleInProtectedInstances": "Ignore",
        "instanceRefresh.preferences.skipMatching": False, "instanceRefresh.preferences.standbyInstances": "Ignore",
    },
    "aws:cloudtrail/trail:Trail": {
        "enableLogFileValidation": False, "enableLogging": True, "includeGlobalServiceEvents": True,
        "isMultiRegionTrail": False, "isOrganizationTrail": False,
    },
    "aws:cloudwatch/eventRule:EventRule": {"eventBusName": "default", "forceDestroy": False},
    "aws:cloudwatch/eventTarget:EventTarget": {"eventBusName": "default", "forceDestroy": False},
    "aws:cloudwatch/logGroup:LogGroup": {"retentionInDays": 0, "skipDestroy": False},
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": {"metricTransformation.unit": "None"},
    "aws:cloudwatch/metricAlarm:MetricAlarm": {"actionsEnabled": True},
    "aws:ec2/natGateway:NatGateway": {"connectivityType": "public"},
    "aws:ec2/securityGroup:SecurityGroup": {
        "description": "Managed by Pulumi", "revokeRulesOnDelete": False, "ingress.self": False, "egress.self": False,
    },
    "aws:ec2/subnet:Subnet": {
        "assignIpv6AddressOnCreation": False, "enableDns64": False, "enableResourceNameDnsARecordOnLaunch": False,
        "enableResourceNameDnsAaaaRecordOnLaunch": False, "ipv6Native": False, "mapPublicIpOnLaunch": False,
    },
    "aws:ec2/vpc:Vpc": {"enableDnsSupport": True},
    "aws:ec2/vpcEndpoint:VpcEndpoint": {"privateDnsEnabled": False, "vpcEndpointType": "Gateway"},
    "aws:efs/fileSystem:FileSystem": {"throughputMode": "bursting"},
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem": {
        "automaticBackupRetentionDays": 0, "copyTagsToBackups": False, "copyTagsToVolumes": False, "storageType": "SSD",
        "rootVolumeConfiguration.recordSizeKib": 128,
    },
    "aws:iam/instanceProfile:InstanceProfile": {"path": "/"},
    "aws:iam/role:Role": {"forceDetachPolicies": False, "maxSessionDuration": 3600, "path": "/"},
    "aws:kms/key:Key": {
        "bypassPolicyLockoutSafetyCheck": False, "customerMasterKeySpec": "SYMMETRIC_DEFAULT", "enableKeyRotation": False,
        "isEnabled": True, "keyUsage": "ENCRYPT_DECRYPT",
    },
    "aws:s3/bucket:Bucket": {"forceDestroy": False},
    "aws:sns/topic:Topic": {"contentBasedDeduplication": False, "fifoTopic": False},
    "aws:sns/topicSubscription:TopicSubscription": {
        "confirmationTimeoutInMinutes": 1, "endpointAutoConfirms": False, "rawMessageDelivery": False,
    },
}  # fmt: skip
"""Inputs that the provider adds during its check if the program does not set them. A path with dots is a
field of each given object."""

_NO_PREFIX = (
    "aws:autoscaling/group:Group", "aws:cloudwatch/logGroup:LogGroup", "aws:ec2/launchTemplate:LaunchTemplate",
    "aws:ec2/securityGroup:SecurityGroup", "aws:iam/instanceProfile:InstanceProfile", "aws:iam/role:Role",
    "aws:iam/rolePolicy:RolePolicy", "aws:kms/alias:Alias",
)  # fmt: skip
OUTPUTS: dict[str, dict[str, Any]] = {
    **{token: {"namePrefix": None} for token in _NO_PREFIX},
    "aws:autoscaling/group:Group": {
        "namePrefix": None, "availabilityZoneDistribution": None, "capacityRebalance": False,
        "capacityReservationSpecification": None, "defaultCooldown": 300, "defaultInstanceWarmup": 0,
        "instanceRefresh.preferences.autoRollback": False, "instanceLifecyclePolicy": None, "maxInstanceLifetime": 0, "mixedInstancesPolicy": None,
    },
    "aws:cloudtrail/trail:Trail": {"snsTopicArn": None},
    "aws:cloudwatch/logGroup:LogGroup": {"namePrefix": None, "logGroupClass": "STANDARD"},
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": {"applyOnTransformedLogs": False},
    "aws:ec2/eip:Eip": dict.fromkeys((
        "associationId", "carrierIp", "customerOwnedIp", "instance", "ipamPoolId", "networkInterface", "privateDns",
        "privateIp", "ptrRecord",
    )),
    "aws:ec2/internetGateway:InternetGateway": {"vpcId": None},
    "aws:ec2/launchTemplate:LaunchTemplate": {
        "namePrefix": None, "disableApiStop": False, "disableApiTermination": False, "instanceMarketOptions": None,
        "metadataOptions": None, "monitoring": None, "blockDeviceMappings.ebs.iops": 0,
        "blockDeviceMappings.ebs.throughput": 0,
        **dict.fromkeys((
            "networkInterfaces.deviceIndex", "networkInterfaces.ipv4AddressCount", "networkInterfaces.ipv4PrefixCount",
            "networkInterfaces.ipv6AddressCount", "networkInterfaces.ipv6PrefixCount", "networkInterfaces.networkCardIndex",
        ), 0),
    },
    "aws:ec2/natGateway:NatGateway": {
        "autoProvisionZones": None, "autoScalingIps": None, "regionalNatGatewayAddresses": None,
        "regionalNatGatewayAutoMode": None, "routeTableId": None, "secondaryPrivateIpAddressCount": 0,
        "availabilityMode": "zonal",
    },
    "aws:ec2/route:Route": dict.fromkeys(("instanceId", "instanceOwnerId", "networkInterfaceId")),
    "aws:ec2/subnet:Subnet": {
        "enableLniAtDeviceIndex": 0, "ipv6CidrBlock": None, "ipv6CidrBlockAssociationId": None,
        "mapCustomerOwnedIpOnLaunch": False,
    },
    "aws:ssm/parameter:Parameter": {"dataType": "text", "tier": "Standard", "keyId": None},
    "aws:ec2/vpc:Vpc": {
        "assignGeneratedIpv6CidrBlock": False, "ipv6AssociationId": None, "ipv6CidrBlock": None,
        "ipv6CidrBlockNetworkBorderGroup": None, "ipv6NetmaskLength": 0,
    },
    "aws:s3/bucket:Bucket": dict.fromkeys((
        "accelerationStatus", "logging", "objectLockConfiguration", "policy", "replicationConfiguration", "website",
        "websiteDomain", "websiteEndpoint",
    )) | {
        "objectLockEnabled": False, "requestPayer": "BucketOwner",
        "serverSideEncryptionConfiguration.rule.bucketKeyEnabled": False,
        "serverSideEncryptionConfiguration.rule.applyServerSideEncryptionByDefault.kmsMasterKeyId": None,
    },
}  # fmt: skip
"""Outputs whose input is not set. None for an output that the provider leaves empty."""
