"""A recording as a CloudFormation template, so that cfn-lint, which others keep, can say what it thinks of each property.

Made from the API calls of each resource: CloudFormation has the API's words for nearly everything. What it has under another name, in another shape
or in another resource is in the function of that type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.clouds.aws import requests
from tests.clouds.recorder import ACCOUNT, Recording, Registered

Properties = dict[str, Any]
Resources = list[tuple[str, Properties]]
"""CloudFormation types with their properties."""

NO_TYPE = {
    "aws:efs/fileSystemPolicy:FileSystemPolicy": "a property of the file system there",
    "aws:s3/bucketObjectv2:BucketObjectv2": "CloudFormation puts no files into buckets",
    **requests.NO_CALL,
}
"""Types that are in no template, each with its reason."""

KEPT = {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}


def regions(recording: Recording) -> set[str | None]:
    """The second regions of a recording, and None for its own region and global resources."""
    own = {one.inputs.get("region") for one in recording.of("aws:ec2/vpc:Vpc")}
    return {None, *(one.inputs.get("region") for one in recording.custom if own)} - own


def template(recording: Recording, region: str | None = None) -> dict[str, Any]:
    """Everything of a recording in one region that CloudFormation has a type for. A template has one region."""
    found: dict[str, Any] = {}
    others = regions(recording) - {None}
    for resource in recording.custom:
        here = resource.inputs.get("region")
        if (here if here in others else None) != region:
            continue
        for index, (type_, properties) in enumerate(_resources(resource)):
            if (bucket := _bucket_of(found, properties)) is not None:
                bucket["Properties"] |= properties
                continue
            words = [*resource.name.split("-"), resource.type.rpartition(":")[2], str(index or "")]
            logical = "".join(word[:1].upper() + word[1:] for word in words)
            found[logical] = {"Type": type_, "Properties": properties, **(KEPT if resource.retained else {})}
    return {"AWSTemplateFormatVersion": "2010-09-09", "Resources": found}


def _bucket_of(found: dict[str, Any], properties: Properties) -> dict[str, Any] | None:
    """The bucket that a setting is a property of."""
    name = properties.get("BucketName")
    return next((one for one in found.values() if name and one["Properties"].get("BucketName") == name), None)


def _resources(resource: Registered) -> Resources:
    if resource.type in NO_TYPE:
        return []
    made = requests.calls(resource)
    kind = resource.type.removeprefix("aws:")
    if kind in SAME:
        return [(SAME[kind], _params(made))]
    return OTHERS[kind](made)


def _params(made: list[requests.Call]) -> Properties:
    """The first call's parameters; tags are a list of their own in CloudFormation."""
    params = dict(made[0].params)
    if tags := params.pop("TagSpecifications", None):
        params["Tags"] = tags[0]["Tags"]
    return params


SAME = {
    "ec2/eip:Eip": "AWS::EC2::EIP",
    "ec2/natGateway:NatGateway": "AWS::EC2::NatGateway",
    "ec2/routeTable:RouteTable": "AWS::EC2::RouteTable",
    "ec2/route:Route": "AWS::EC2::Route",
    "ec2/routeTableAssociation:RouteTableAssociation": "AWS::EC2::SubnetRouteTableAssociation",
    "ec2/vpcEndpoint:VpcEndpoint": "AWS::EC2::VPCEndpoint",
    "fsx/lustreFileSystem:LustreFileSystem": "AWS::FSx::FileSystem",
    "fsx/openZfsFileSystem:OpenZfsFileSystem": "AWS::FSx::FileSystem",
    "fsx/dataRepositoryAssociation:DataRepositoryAssociation": "AWS::FSx::DataRepositoryAssociation",
    "efs/mountTarget:MountTarget": "AWS::EFS::MountTarget",
    "kms/alias:Alias": "AWS::KMS::Alias",
    "cloudwatch/metricAlarm:MetricAlarm": "AWS::CloudWatch::Alarm",
    "autoscaling/schedule:Schedule": "AWS::AutoScaling::ScheduledAction",
}
"""Types whose properties are the parameters of their call."""


def _volume(made: list[requests.Call]) -> Resources:
    # The program looks the zone up, and cfn-lint warns about a literal name.
    zone = {"Fn::Select": [0, {"Fn::GetAZs": ""}]}
    return [("AWS::EC2::Volume", _params(made) | {"AvailabilityZone": zone})]


def _home(made: list[requests.Call]) -> Resources:
    params = _params(made)
    params.pop("CreationToken")  # CloudFormation sets it
    return [("AWS::EFS::FileSystem", params | {"FileSystemTags": params.pop("Tags")})]


def _vpc(made: list[requests.Call]) -> Resources:
    settings = {key: call.params[key]["Value"] for call in made[1:] for key in call.params if key != "VpcId"}
    return [("AWS::EC2::VPC", _params(made) | settings)]


def _subnet(made: list[requests.Call]) -> Resources:
    return [
        ("AWS::EC2::Subnet", _params(made) | {"MapPublicIpOnLaunch": made[1].params["MapPublicIpOnLaunch"]["Value"]})
    ]


def _internet(made: list[requests.Call]) -> Resources:
    attached = {"VpcId": made[1].params["VpcId"], "InternetGatewayId": "igw-0123456789abcdef0"}
    return [("AWS::EC2::InternetGateway", _params(made)), ("AWS::EC2::VPCGatewayAttachment", attached)]


def _flow_log(made: list[requests.Call]) -> Resources:
    params = _params(made)
    (of,) = params.pop("ResourceIds")
    return [("AWS::EC2::FlowLog", params | {"ResourceId": of})]


def _security_group(made: list[requests.Call]) -> Resources:
    params = _params(made)
    params["GroupDescription"] = params.pop("Description")
    return [("AWS::EC2::SecurityGroup", params)]


def _rule(type_: str, other: str) -> Callable[[list[requests.Call]], Resources]:
    def properties(made: list[requests.Call]) -> Resources:
        (permission,) = made[0].params["IpPermissions"]
        found = {key: permission[key] for key in ("IpProtocol", "FromPort", "ToPort") if key in permission}
        (peer,) = [*permission.get("UserIdGroupPairs", ()), *permission.get("IpRanges", ())]
        names = {"GroupId": other, "CidrIp": "CidrIp", "Description": "Description"}
        return [(type_, {"GroupId": made[0].params["GroupId"], **found, **{names[key]: peer[key] for key in peer}})]

    return properties


def _template(made: list[requests.Call]) -> Resources:
    params = _params(made)
    params["TagSpecifications"] = [{"ResourceType": "launch-template", "Tags": params.pop("Tags")}]
    return [("AWS::EC2::LaunchTemplate", params)]


def _placement(made: list[requests.Call]) -> Resources:
    params = _params(made)
    params.pop("GroupName")  # CloudFormation names it
    return [("AWS::EC2::PlacementGroup", params)]


def _group(made: list[requests.Call]) -> Resources:
    params = _params(made)
    params["VPCZoneIdentifier"] = params["VPCZoneIdentifier"].split(",")
    for size in ("MinSize", "MaxSize", "DesiredCapacity"):
        params[size] = str(params[size])
    tags = [{key: tag[key] for key in ("Key", "Value", "PropagateAtLaunch")} for tag in params["Tags"]]
    return [("AWS::AutoScaling::AutoScalingGroup", params | {"Tags": tags})]


def _bucket(key: str, ours: str = "") -> Callable[[list[requests.Call]], Resources]:
    """One setting of a bucket, which is a property of the bucket in CloudFormation."""

    def properties(made: list[requests.Call]) -> Resources:
        params = made[0].params
        return [("AWS::S3::Bucket", {"BucketName": params["Bucket"], key: params[ours or key]})]

    return properties


def _bucket_itself(made: list[requests.Call]) -> Resources:
    params = made[0].params
    locked = {"ObjectLockEnabled": True} if params.get("ObjectLockEnabledForBucket") else {}
    tags = made[1].params["Tagging"]["TagSet"]
    return [("AWS::S3::Bucket", {"BucketName": params["Bucket"], "Tags": tags, **locked})]


def _encryption(made: list[requests.Call]) -> Resources:
    rules = made[0].params["ServerSideEncryptionConfiguration"]["Rules"]
    settings = [
        {("ServerSideEncryptionByDefault" if key == "ApplyServerSideEncryptionByDefault" else key): value for key, value in rule.items()}
        for rule in rules
    ]  # fmt: skip
    named = {"BucketName": made[0].params["Bucket"]}
    return [("AWS::S3::Bucket", named | {"BucketEncryption": {"ServerSideEncryptionConfiguration": settings}})]


def _lifecycle(made: list[requests.Call]) -> Resources:
    rules = []
    for rule in made[0].params["LifecycleConfiguration"]["Rules"]:
        one = {"Id": rule["ID"], "Status": rule["Status"]}
        if "Expiration" in rule:
            one["ExpirationInDays"] = rule["Expiration"]["Days"]
        if "Transitions" in rule:
            one["Transitions"] = [{"StorageClass": t["StorageClass"], "TransitionInDays": t["Days"]} for t in rule["Transitions"]]  # fmt: skip
        for key in ("NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload"):
            if key in rule:
                one[key] = rule[key]
        if prefix := (rule.get("Filter") or {}).get("Prefix"):
            one["Prefix"] = prefix
        rules.append(one)
    return [("AWS::S3::Bucket", {"BucketName": made[0].params["Bucket"], "LifecycleConfiguration": {"Rules": rules}})]


def _logging(made: list[requests.Call]) -> Resources:
    to = made[0].params["BucketLoggingStatus"]["LoggingEnabled"]
    settings = {"DestinationBucketName": to["TargetBucket"], "LogFilePrefix": to["TargetPrefix"]}
    return [("AWS::S3::Bucket", {"BucketName": made[0].params["Bucket"], "LoggingConfiguration": settings})]


def _lock(made: list[requests.Call]) -> Resources:
    settings = made[0].params["ObjectLockConfiguration"]
    named = {"BucketName": made[0].params["Bucket"], "ObjectLockEnabled": True}
    return [("AWS::S3::Bucket", named | {"ObjectLockConfiguration": settings})]


def _bucket_policy(made: list[requests.Call]) -> Resources:
    params = made[0].params
    return [("AWS::S3::BucketPolicy", {"Bucket": params["Bucket"], "PolicyDocument": json.loads(params["Policy"])})]


def _replication(made: list[requests.Call]) -> Resources:
    settings = made[0].params["ReplicationConfiguration"]
    rules = []
    for rule in settings["Rules"]:
        whole = {"Id": rule["ID"], **{key: value for key, value in rule.items() if key not in ("ID", "Filter")}}
        rules.append({**whole, "Filter": {"Prefix": rule["Filter"]["Prefix"]}})
    found = {
        "BucketName": made[0].params["Bucket"],
        "ReplicationConfiguration": {"Role": settings["Role"], "Rules": rules},
    }
    return [("AWS::S3::Bucket", found)]


def _topic(made: list[requests.Call]) -> Resources:
    return [("AWS::SNS::Topic", {"TopicName": made[0].params["Name"], "Tags": made[0].params["Tags"]})]


def _subscription(made: list[requests.Call]) -> Resources:
    params = {key: value for key, value in made[0].params.items() if key != "ReturnSubscriptionArn"}
    return [("AWS::SNS::Subscription", params)]


def _topic_policy(made: list[requests.Call]) -> Resources:
    params = made[0].params
    return [("AWS::SNS::TopicPolicy", {"Topics": [params["TopicArn"]], "PolicyDocument": json.loads(params["AttributeValue"])})]  # fmt: skip


def _event_rule(made: list[requests.Call]) -> Resources:
    params = _params(made)
    return [("AWS::Events::Rule", params | {"EventPattern": json.loads(params["EventPattern"])})]


def _event_target(made: list[requests.Call]) -> Resources:
    """In CloudFormation, a target is a property of its rule."""
    params = made[0].params
    return [("AWS::Events::Rule", {"Name": params["Rule"], "EventPattern": {"source": ["aws.s3"]}, "Targets": params["Targets"]})]  # fmt: skip


def _role(made: list[requests.Call]) -> Resources:
    params = dict(made[0].params)
    params["AssumeRolePolicyDocument"] = json.loads(params["AssumeRolePolicyDocument"])
    return [("AWS::IAM::Role", params)]


def _role_policy(made: list[requests.Call]) -> Resources:
    params = dict(made[0].params)
    return [("AWS::IAM::RolePolicy", params | {"PolicyDocument": json.loads(params["PolicyDocument"])})]


def _attachment(made: list[requests.Call]) -> Resources:
    trust = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    }
    return [("AWS::IAM::Role", {"AssumeRolePolicyDocument": trust, "ManagedPolicyArns": [made[0].params["PolicyArn"]]})]


def _profile(made: list[requests.Call]) -> Resources:
    params = {key: value for key, value in made[0].params.items() if key != "Tags"}  # CloudFormation takes none there
    return [("AWS::IAM::InstanceProfile", params | {"Roles": [made[1].params["RoleName"]]})]


def _key(made: list[requests.Call]) -> Resources:
    params = dict(made[0].params)
    params["KeyPolicy"] = json.loads(params.pop("Policy"))
    params["Tags"] = [{"Key": tag["TagKey"], "Value": tag["TagValue"]} for tag in params["Tags"]]
    return [("AWS::KMS::Key", params | {"EnableKeyRotation": made[1].operation == "EnableKeyRotation"})]


def _trail(made: list[requests.Call]) -> Resources:
    params = dict(made[0].params)
    renamed = {"Name": "TrailName", "TagsList": "Tags", "KmsKeyId": "KMSKeyId"}
    found = {renamed.get(key, key): value for key, value in params.items()}
    return [("AWS::CloudTrail::Trail", found | {"IsLogging": True, "AdvancedEventSelectors": made[1].params["AdvancedEventSelectors"]})]  # fmt: skip


def _log_group(made: list[requests.Call]) -> Resources:
    params = made[0].params
    found = {"LogGroupName": params["logGroupName"], "RetentionInDays": made[1].params["retentionInDays"]}
    key = {"KmsKeyId": params["kmsKeyId"]} if "kmsKeyId" in params else {}
    tags = [{"Key": key, "Value": value} for key, value in params["tags"].items()]
    return [("AWS::Logs::LogGroup", found | key | {"Tags": tags})]


def _metric_filter(made: list[requests.Call]) -> Resources:
    def upper(fields: Mapping[str, Any]) -> Properties:
        return {key[0].upper() + key[1:]: value for key, value in fields.items()}

    (metric,) = made[0].params["metricTransformations"]
    return [("AWS::Logs::MetricFilter", upper(made[0].params) | {"MetricTransformations": [upper(metric)]})]


def _parameter(made: list[requests.Call]) -> Resources:
    params = made[0].params
    return [("AWS::SSM::Parameter", params | {"Tags": {tag["Key"]: tag["Value"] for tag in params["Tags"]}})]


def _budget(made: list[requests.Call]) -> Resources:
    params = {
        key: value for key, value in made[0].params.items() if key not in ("AccountId", "NotificationsWithSubscribers")
    }
    params["Budget"] = {
        **params["Budget"],
        "BudgetLimit": {**params["Budget"]["BudgetLimit"], "Amount": float(params["Budget"]["BudgetLimit"]["Amount"])},
    }
    told = [one for one in made[0].params["NotificationsWithSubscribers"] if one["Subscribers"]]
    return [("AWS::Budgets::Budget", params | ({"NotificationsWithSubscribers": told} if told else {}))]


def _workspace(made: list[requests.Call]) -> Resources:
    params = made[0].params
    tags = [{"Key": key, "Value": value} for key, value in params["tags"].items()]
    return [("AWS::APS::Workspace", {"Alias": params["alias"], "KmsKeyArn": params["kmsKeyArn"], "Tags": tags})]


def _workspace_settings(made: list[requests.Call]) -> Resources:
    settings = {"RetentionPeriodInDays": made[0].params["retentionPeriodInDays"]}
    return [("AWS::APS::Workspace", {"WorkspaceConfiguration": settings})]


def _metric_rules(made: list[requests.Call]) -> Resources:
    params = made[0].params
    tags = [{"Key": key, "Value": value} for key, value in params["tags"].items()]
    where = f"arn:aws:aps:us-east-1:{ACCOUNT}:workspace/{params['workspaceId']}"
    named = {"Workspace": where, "Name": params["name"], "Data": params["data"].decode()}
    return [("AWS::APS::RuleGroupsNamespace", {**named, "Tags": tags})]


def _alert_manager(made: list[requests.Call]) -> Resources:
    return [("AWS::APS::Workspace", {"AlertManagerDefinition": made[0].params["data"].decode()})]


OTHERS: dict[str, Callable[[list[requests.Call]], Resources]] = {
    "efs/fileSystem:FileSystem": _home,
    "ebs/volume:Volume": _volume,
    "ec2/vpc:Vpc": _vpc,
    "ec2/subnet:Subnet": _subnet,
    "ec2/internetGateway:InternetGateway": _internet,
    "ec2/flowLog:FlowLog": _flow_log,
    "ec2/securityGroup:SecurityGroup": _security_group,
    "vpc/securityGroupIngressRule:SecurityGroupIngressRule": _rule("AWS::EC2::SecurityGroupIngress", "SourceSecurityGroupId"),
    "vpc/securityGroupEgressRule:SecurityGroupEgressRule": _rule("AWS::EC2::SecurityGroupEgress", "DestinationSecurityGroupId"),
    "ec2/placementGroup:PlacementGroup": _placement,
    "ec2/launchTemplate:LaunchTemplate": _template,
    "autoscaling/group:Group": _group,
    "s3/bucket:Bucket": _bucket_itself,
    "s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _bucket("PublicAccessBlockConfiguration"),
    "s3/bucketOwnershipControls:BucketOwnershipControls": _bucket("OwnershipControls"),
    "s3/bucketVersioning:BucketVersioning": _bucket("VersioningConfiguration"),
    "s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _encryption,
    "s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _lifecycle,
    "s3/bucketLogging:BucketLogging": _logging,
    "s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration": _lock,
    "s3/bucketPolicy:BucketPolicy": _bucket_policy,
    "s3/bucketReplicationConfig:BucketReplicationConfig": _replication,
    "amp/workspace:Workspace": _workspace,
    "amp/workspaceConfiguration:WorkspaceConfiguration": _workspace_settings,
    "amp/ruleGroupNamespace:RuleGroupNamespace": _metric_rules,
    "amp/alertManagerDefinition:AlertManagerDefinition": _alert_manager,
    "sns/topic:Topic": _topic,
    "sns/topicSubscription:TopicSubscription": _subscription,
    "sns/topicPolicy:TopicPolicy": _topic_policy,
    "cloudwatch/eventRule:EventRule": _event_rule,
    "cloudwatch/eventTarget:EventTarget": _event_target,
    "iam/role:Role": _role,
    "iam/rolePolicy:RolePolicy": _role_policy,
    "iam/rolePolicyAttachment:RolePolicyAttachment": _attachment,
    "iam/instanceProfile:InstanceProfile": _profile,
    "kms/key:Key": _key,
    "cloudtrail/trail:Trail": _trail,
    "cloudwatch/logGroup:LogGroup": _log_group,
    "cloudwatch/logMetricFilter:LogMetricFilter": _metric_filter,
    "ssm/parameter:Parameter": _parameter,
    "budgets/budget:Budget": _budget,
}  # fmt: skip
