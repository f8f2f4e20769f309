"""Calls of storage, identity, audit and budget services."""

from __future__ import annotations

from collections.abc import Iterator

from tests.clouds.aws.requests import ACCOUNT_ID, Call, Inputs, mapper, pascal


@mapper("s3/bucket:Bucket")
def _bucket(inputs: Inputs) -> Iterator[Call]:
    locked = {"ObjectLockEnabledForBucket": True} if inputs.take("objectLockEnabled") else {}
    name = inputs.take("bucket")
    yield Call("s3", "CreateBucket", {"Bucket": name, **locked})
    yield Call("s3", "PutBucketTagging", {"Bucket": name, "Tagging": {"TagSet": inputs.tags()}})


@mapper("s3/bucketPublicAccessBlock:BucketPublicAccessBlock")
def _public(inputs: Inputs) -> Iterator[Call]:
    settings = inputs.some(
        BlockPublicAcls="blockPublicAcls",
        BlockPublicPolicy="blockPublicPolicy",
        IgnorePublicAcls="ignorePublicAcls",
        RestrictPublicBuckets="restrictPublicBuckets",
    )
    yield Call(
        "s3", "PutPublicAccessBlock", {"Bucket": inputs.take("bucket"), "PublicAccessBlockConfiguration": settings}
    )


@mapper("s3/bucketOwnershipControls:BucketOwnershipControls")
def _ownership(inputs: Inputs) -> Iterator[Call]:
    rules = {"Rules": [pascal(inputs.take("rule"))]}
    yield Call("s3", "PutBucketOwnershipControls", {"Bucket": inputs.take("bucket"), "OwnershipControls": rules})


@mapper("s3/bucketVersioning:BucketVersioning")
def _versioning(inputs: Inputs) -> Iterator[Call]:
    settings = inputs.some(Bucket="bucket", VersioningConfiguration="versioningConfiguration")
    yield Call("s3", "PutBucketVersioning", settings)


@mapper("s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration")
def _encryption(inputs: Inputs) -> Iterator[Call]:
    rules = pascal(inputs.take("rules"))
    for rule in rules:
        default = rule["ApplyServerSideEncryptionByDefault"]
        default["SSEAlgorithm"] = default.pop("SseAlgorithm")
        if "KmsMasterKeyId" in default:
            default["KMSMasterKeyID"] = default.pop("KmsMasterKeyId")
    settings = {"Bucket": inputs.take("bucket"), "ServerSideEncryptionConfiguration": {"Rules": rules}}
    yield Call("s3", "PutBucketEncryption", settings)


@mapper("s3/bucketPolicy:BucketPolicy")
def _policy(inputs: Inputs) -> Iterator[Call]:
    yield Call("s3", "PutBucketPolicy", inputs.some(Bucket="bucket", Policy="policy"))


@mapper("s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration")
def _lifecycle(inputs: Inputs) -> Iterator[Call]:
    rules = pascal(inputs.take("rules"))
    for rule in rules:
        rule["ID"] = rule.pop("Id")
    settings = {"Bucket": inputs.take("bucket"), "LifecycleConfiguration": {"Rules": rules}}
    yield Call("s3", "PutBucketLifecycleConfiguration", settings)


@mapper("s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration")
def _lock(inputs: Inputs) -> Iterator[Call]:
    settings = {"ObjectLockEnabled": "Enabled", "Rule": pascal(inputs.take("rule"))}
    yield Call(
        "s3", "PutObjectLockConfiguration", {"Bucket": inputs.take("bucket"), "ObjectLockConfiguration": settings}
    )


@mapper("s3/bucketLogging:BucketLogging")
def _logging(inputs: Inputs) -> Iterator[Call]:
    to = {"LoggingEnabled": inputs.some(TargetBucket="targetBucket", TargetPrefix="targetPrefix")}
    yield Call("s3", "PutBucketLogging", {"Bucket": inputs.take("bucket"), "BucketLoggingStatus": to})


@mapper("s3/bucketObjectv2:BucketObjectv2")
def _object(inputs: Inputs) -> Iterator[Call]:
    inputs.take("source")  # the file itself
    inputs.take("tags")
    yield Call("s3", "PutObject", inputs.some(Bucket="bucket", Key="key", ContentType="contentType") | {"Body": b""})


@mapper("fsx/lustreFileSystem:LustreFileSystem")
def _lustre(inputs: Inputs) -> Iterator[Call]:
    lustre = inputs.some(
        DeploymentType="deploymentType",
        PerUnitStorageThroughput="perUnitStorageThroughput",
        DataCompressionType="dataCompressionType",
        MetadataConfiguration="metadataConfiguration",
        LogConfiguration="logConfiguration",
        EfaEnabled="efaEnabled",
        AutomaticBackupRetentionDays="automaticBackupRetentionDays",
    )
    if not lustre.get("AutomaticBackupRetentionDays"):
        # The provider does not send 0 when it creates a file system (`GetOk` in `lustre_file_system.go`).
        lustre.pop("AutomaticBackupRetentionDays", None)
    lustre["LogConfiguration"]["Level"] = lustre["LogConfiguration"].get("Level")
    params = inputs.some(
        StorageCapacity="storageCapacity",
        SecurityGroupIds="securityGroupIds",
        KmsKeyId="kmsKeyId",
        FileSystemTypeVersion="fileSystemTypeVersion",
    )
    params |= {"SubnetIds": [inputs.take("subnetIds")], "Tags": inputs.tags()}
    if backup := inputs.some(BackupId="backupId"):
        # The provider does not send the capacity (terraform-provider-aws `internal/service/fsx/lustre_file_system.go`, retrieved 2026-11-27).
        del params["StorageCapacity"]
        yield Call("fsx", "CreateFileSystemFromBackup", params | backup | {"LustreConfiguration": lustre})
        return
    yield Call("fsx", "CreateFileSystem", params | {"FileSystemType": "LUSTRE", "LustreConfiguration": lustre})


@mapper("fsx/openZfsFileSystem:OpenZfsFileSystem")
def _openzfs(inputs: Inputs) -> Iterator[Call]:
    openzfs = inputs.some(
        DeploymentType="deploymentType",
        ThroughputCapacity="throughputCapacity",
        AutomaticBackupRetentionDays="automaticBackupRetentionDays",
        CopyTagsToBackups="copyTagsToBackups",
        CopyTagsToVolumes="copyTagsToVolumes",
    )
    root = inputs.take("rootVolumeConfiguration")
    clients = [
        {"Clients": one["clients"], "Options": one["options"]} for one in root["nfsExports"]["clientConfigurations"]
    ]
    openzfs["RootVolumeConfiguration"] = {
        "DataCompressionType": root["dataCompressionType"],
        "NfsExports": [{"ClientConfigurations": clients}],
    }
    params = inputs.some(
        StorageCapacity="storageCapacity",
        StorageType="storageType",
        SubnetIds="subnetIds",
        SecurityGroupIds="securityGroupIds",
        KmsKeyId="kmsKeyId",
    )
    params |= {"Tags": inputs.tags()}
    if backup := inputs.some(BackupId="backupId"):
        # The provider does not send the capacity (terraform-provider-aws `internal/service/fsx/openzfs_file_system.go`, retrieved 2026-11-27).
        del params["StorageCapacity"]
        yield Call("fsx", "CreateFileSystemFromBackup", params | backup | {"OpenZFSConfiguration": openzfs})
        return
    yield Call("fsx", "CreateFileSystem", params | {"FileSystemType": "OPENZFS", "OpenZFSConfiguration": openzfs})


@mapper("fsx/dataRepositoryAssociation:DataRepositoryAssociation")
def _link(inputs: Inputs) -> Iterator[Call]:
    inputs.take("deleteDataInFilesystem")  # used at deletion
    params = inputs.some(
        FileSystemId="fileSystemId",
        FileSystemPath="fileSystemPath",
        DataRepositoryPath="dataRepositoryPath",
        BatchImportMetaDataOnCreate="batchImportMetaDataOnCreate",
        S3="s3",
    )
    yield Call("fsx", "CreateDataRepositoryAssociation", params | {"Tags": inputs.tags()})


@mapper("efs/fileSystem:FileSystem")
def _home(inputs: Inputs) -> Iterator[Call]:
    params = inputs.some(
        CreationToken="creationToken",
        Encrypted="encrypted",
        KmsKeyId="kmsKeyId",
        PerformanceMode="performanceMode",
        ThroughputMode="throughputMode",
    )
    yield Call("efs", "CreateFileSystem", params | {"Tags": inputs.tags()})


@mapper("efs/fileSystemPolicy:FileSystemPolicy")
def _home_policy(inputs: Inputs) -> Iterator[Call]:
    yield Call("efs", "PutFileSystemPolicy", inputs.some(FileSystemId="fileSystemId", Policy="policy"))


@mapper("efs/mountTarget:MountTarget")
def _mount_target(inputs: Inputs) -> Iterator[Call]:
    params = inputs.some(FileSystemId="fileSystemId", SubnetId="subnetId", SecurityGroups="securityGroups")
    yield Call("efs", "CreateMountTarget", params)


@mapper("iam/role:Role")
def _role(inputs: Inputs) -> Iterator[Call]:
    params = {
        "RoleName": inputs.name,
        **inputs.some(
            AssumeRolePolicyDocument="assumeRolePolicy",
            Description="description",
            PermissionsBoundary="permissionsBoundary",
        ),
    }
    yield Call("iam", "CreateRole", params | {"Tags": inputs.tags()})


@mapper("iam/rolePolicy:RolePolicy")
def _role_policy(inputs: Inputs) -> Iterator[Call]:
    yield Call(
        "iam", "PutRolePolicy", {"PolicyName": inputs.name, **inputs.some(RoleName="role", PolicyDocument="policy")}
    )


@mapper("iam/rolePolicyAttachment:RolePolicyAttachment")
def _attachment(inputs: Inputs) -> Iterator[Call]:
    yield Call("iam", "AttachRolePolicy", inputs.some(RoleName="role", PolicyArn="policyArn"))


@mapper("iam/instanceProfile:InstanceProfile")
def _profile(inputs: Inputs) -> Iterator[Call]:
    yield Call("iam", "CreateInstanceProfile", {"InstanceProfileName": inputs.name, "Tags": inputs.tags()})
    yield Call("iam", "AddRoleToInstanceProfile", {"InstanceProfileName": inputs.name, **inputs.some(RoleName="role")})


@mapper("kms/key:Key")
def _key(inputs: Inputs) -> Iterator[Call]:
    inputs.take("deletionWindowInDays")  # used at deletion
    assert inputs.take("enableKeyRotation") is True
    tags = [{"TagKey": tag["Key"], "TagValue": tag["Value"]} for tag in inputs.tags()]
    yield Call("kms", "CreateKey", inputs.some(Description="description", Policy="policy") | {"Tags": tags})
    yield Call("kms", "EnableKeyRotation", {"KeyId": "00000000-0000-0000-0000-000000000001"})


@mapper("kms/alias:Alias")
def _alias(inputs: Inputs) -> Iterator[Call]:
    yield Call("kms", "CreateAlias", inputs.some(AliasName="name", TargetKeyId="targetKeyId"))


@mapper("cloudtrail/trail:Trail")
def _trail(inputs: Inputs) -> Iterator[Call]:
    params = inputs.some(
        Name="name",
        S3BucketName="s3BucketName",
        IncludeGlobalServiceEvents="includeGlobalServiceEvents",
        IsMultiRegionTrail="isMultiRegionTrail",
        EnableLogFileValidation="enableLogFileValidation",
        CloudWatchLogsLogGroupArn="cloudWatchLogsGroupArn",
        CloudWatchLogsRoleArn="cloudWatchLogsRoleArn",
        KmsKeyId="kmsKeyId",
    )
    selectors = pascal(inputs.take("advancedEventSelectors"))
    for selector in selectors:
        for field in selector["FieldSelectors"]:
            for name in ("StartsWith", "NotStartsWith"):
                if f"{name}s" in field:
                    field[name] = field.pop(f"{name}s")
    yield Call("cloudtrail", "CreateTrail", params | {"TagsList": inputs.tags()})
    yield Call("cloudtrail", "PutEventSelectors", {"TrailName": params["Name"], "AdvancedEventSelectors": selectors})


@mapper("cloudwatch/logGroup:LogGroup")
def _log_group(inputs: Inputs) -> Iterator[Call]:
    name = inputs.take("name")
    days = inputs.take("retentionInDays")
    key = {"kmsKeyId": inputs.take("kmsKeyId")} if "kmsKeyId" in inputs.left else {}
    yield Call("logs", "CreateLogGroup", {"logGroupName": name, "tags": inputs.take("tags"), **key})
    yield Call("logs", "PutRetentionPolicy", {"logGroupName": name, "retentionInDays": days})


@mapper("cloudwatch/logMetricFilter:LogMetricFilter")
def _metric_filter(inputs: Inputs) -> Iterator[Call]:
    metric = inputs.take("metricTransformation")
    transformation = {
        "metricNamespace": metric["namespace"],
        "metricName": metric["name"],
        "metricValue": metric["value"],
    }
    params = inputs.some(logGroupName="logGroupName", filterPattern="pattern")
    yield Call(
        "logs", "PutMetricFilter", {"filterName": inputs.name, **params, "metricTransformations": [transformation]}
    )


@mapper("ssm/parameter:Parameter")
def _parameter(inputs: Inputs) -> Iterator[Call]:
    params = inputs.some(Name="name", Type="type", Value="insecureValue", Description="description")
    yield Call("ssm", "PutParameter", params | {"Tags": inputs.tags()})


@mapper("budgets/budget:Budget")
def _budget(inputs: Inputs) -> Iterator[Call]:
    budget = inputs.some(BudgetName="name", BudgetType="budgetType", TimeUnit="timeUnit")
    budget["BudgetLimit"] = {"Amount": inputs.take("limitAmount"), "Unit": inputs.take("limitUnit")}
    budget["CostFilters"] = {one["name"]: one["values"] for one in inputs.take("costFilters")}
    notifications = []
    for one in inputs.take("notifications"):
        told = [{"SubscriptionType": "EMAIL", "Address": address} for address in one.pop("subscriberEmailAddresses")]
        notifications.append({"Notification": pascal(one), "Subscribers": told})
    params = {"AccountId": ACCOUNT_ID, "Budget": budget, "NotificationsWithSubscribers": notifications}
    yield Call("budgets", "CreateBudget", params | {"ResourceTags": inputs.tags()})


@mapper("s3/bucketReplicationConfig:BucketReplicationConfig")
def _replication(inputs: Inputs) -> Iterator[Call]:
    rules = pascal(inputs.take("rules"))
    for rule in rules:
        rule["ID"] = rule.pop("Id")
        encryption = rule["Destination"]["EncryptionConfiguration"]
        encryption["ReplicaKmsKeyID"] = encryption.pop("ReplicaKmsKeyId")
    settings = {"Role": inputs.take("role"), "Rules": rules}
    yield Call("s3", "PutBucketReplication", {"Bucket": inputs.take("bucket"), "ReplicationConfiguration": settings})


@mapper("sns/topic:Topic")
def _topic(inputs: Inputs) -> Iterator[Call]:
    yield Call("sns", "CreateTopic", {"Name": inputs.name, "Tags": inputs.tags()})


@mapper("sns/topicSubscription:TopicSubscription")
def _subscription(inputs: Inputs) -> Iterator[Call]:
    params = inputs.some(TopicArn="topic", Protocol="protocol", Endpoint="endpoint")
    yield Call("sns", "Subscribe", params | {"ReturnSubscriptionArn": True})


@mapper("amp/workspace:Workspace")
def _workspace(inputs: Inputs) -> Iterator[Call]:
    yield Call(
        "amp", "CreateWorkspace", inputs.some(alias="alias", kmsKeyArn="kmsKeyArn") | {"tags": inputs.take("tags")}
    )


@mapper("amp/workspaceConfiguration:WorkspaceConfiguration")
def _workspace_settings(inputs: Inputs) -> Iterator[Call]:
    params = inputs.some(workspaceId="workspaceId", retentionPeriodInDays="retentionPeriodInDays")
    yield Call("amp", "UpdateWorkspaceConfiguration", params)


@mapper("amp/ruleGroupNamespace:RuleGroupNamespace")
def _rules(inputs: Inputs) -> Iterator[Call]:
    params = inputs.some(workspaceId="workspaceId", name="name") | {"data": inputs.take("data").encode()}
    yield Call("amp", "CreateRuleGroupsNamespace", params | {"tags": inputs.take("tags")})


@mapper("amp/alertManagerDefinition:AlertManagerDefinition")
def _alert_manager(inputs: Inputs) -> Iterator[Call]:
    params = inputs.some(workspaceId="workspaceId") | {"data": inputs.take("definition").encode()}
    yield Call("amp", "CreateAlertManagerDefinition", params)


@mapper("sns/topicPolicy:TopicPolicy")
def _topic_policy(inputs: Inputs) -> Iterator[Call]:
    value = {"AttributeName": "Policy", "AttributeValue": inputs.take("policy")}
    yield Call("sns", "SetTopicAttributes", {"TopicArn": inputs.take("arn"), **value})


@mapper("cloudwatch/eventRule:EventRule")
def _event_rule(inputs: Inputs) -> Iterator[Call]:
    params = inputs.some(Description="description", EventPattern="eventPattern")
    yield Call("events", "PutRule", {"Name": inputs.name, **params, "Tags": inputs.tags()})


@mapper("cloudwatch/eventTarget:EventTarget")
def _event_target(inputs: Inputs) -> Iterator[Call]:
    shown = inputs.take("inputTransformer")
    message = {"InputPathsMap": shown["inputPaths"], "InputTemplate": shown["inputTemplate"]}
    target = {**inputs.some(Id="targetId", Arn="arn"), "InputTransformer": message}
    yield Call("events", "PutTargets", {"Rule": inputs.take("rule"), "Targets": [target]})


@mapper("cloudwatch/metricAlarm:MetricAlarm")
def _alarm(inputs: Inputs) -> Iterator[Call]:
    params = inputs.some(
        AlarmDescription="alarmDescription",
        Namespace="namespace",
        MetricName="metricName",
        Statistic="statistic",
        Period="period",
        EvaluationPeriods="evaluationPeriods",
        ComparisonOperator="comparisonOperator",
        Threshold="threshold",
        TreatMissingData="treatMissingData",
        AlarmActions="alarmActions",
        OKActions="okActions",
    )
    given = inputs.take("dimensions") if "dimensions" in inputs.left else {}
    dimensions = [{"Name": name, "Value": value} for name, value in given.items()]
    yield Call("cloudwatch", "PutMetricAlarm", {"AlarmName": inputs.name, "Dimensions": dimensions, **params, "Tags": inputs.tags()})  # fmt: skip
