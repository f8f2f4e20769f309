"""Calls of KMS, CloudWatch Logs, FSx, EFS, EC2 and IAM that `gpuinfra adopt`, `gpuinfra ready` and `gpuinfra failover` use.

KMS, CloudWatch Logs and FSx use AWS's JSON protocol: the `X-Amz-Target` header contains the action, and requests and
responses are JSON.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.aws import home_replication, operator, replication
from gpuinfra_rehearsal.cloud.aws.behaviors.network import MOUNT_TARGET, OPENZFS
from gpuinfra_rehearsal.cloud.aws.http.pending import in_region, tags_of
from gpuinfra_rehearsal.cloud.aws.ids import ACCOUNT, hexa
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource

Filters = Mapping[str, Sequence[str]]
LINK = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
METRIC = "custom-metric"
"""Kind of the newest value of a metric, by Region, namespace, name and dimensions."""
_TASK = "data-repository-task"


def describe_key(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Describe a key by its ID or alias."""
    name = str(asked.get("KeyId"))
    alias = cloud.store.find("aws:kms/alias:Alias", name, region)
    if alias is not None:
        name = str(alias.plain.get("targetKeyId"))
    key = cloud.store.find("aws:kms/key:Key", name, region)
    if key is None:
        raise ApiRejected("NotFoundException", f"Key '{name}' does not exist")
    asks = operator.required(cloud.store, "read", key.type, {}, region, key)
    cloud.operator.check(operator, [one for one in asks if one.action == "kms:DescribeKey"])
    enabled = key.plain.get("isEnabled") is not False
    state = "Enabled" if enabled else "Disabled"
    return {"KeyMetadata": {"KeyId": key.id, "Arn": key.outputs["arn"], "KeyState": state, "Enabled": enabled}}


def describe_log_groups(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Describe log groups by name prefix."""
    cloud.operator.check(operator, operator.http("logs:DescribeLogGroups", "*", region))
    prefix = str(asked.get("logGroupNamePrefix") or "")
    groups = [one for one in in_region(cloud, "aws:cloudwatch/logGroup:LogGroup", region) if one.id.startswith(prefix)]
    return {"logGroups": [{"logGroupName": one.id, "arn": one.outputs["arn"]} for one in groups]}


def describe_file_systems(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Describe all file systems of FSx for Lustre and FSx for OpenZFS with their tags."""
    cloud.operator.check(operator, operator.http("fsx:DescribeFileSystems", "*", region))
    systems = []
    for system_record in in_region(cloud, "aws:fsx/lustreFileSystem:LustreFileSystem", region):
        lustre = {
            "DeploymentType": str(system_record.plain.get("deploymentType") or "SCRATCH_1"),
            "MountName": str(system_record.outputs["mountName"]),
            "LogConfiguration": _log_of(system_record),
        }
        systems.append({**_file_system(system_record, "LUSTRE"), "LustreConfiguration": lustre})
    for system_record in in_region(cloud, OPENZFS, region):
        openzfs = {
            "DeploymentType": system_record.plain["deploymentType"],
            "ThroughputCapacity": system_record.plain["throughputCapacity"],
        }
        systems.append({**_file_system(system_record, "OPENZFS"), "OpenZFSConfiguration": openzfs})
    return {"FileSystems": systems}


def _file_system(resource: Resource, kind: str) -> dict[str, Any]:
    return {
        "FileSystemId": resource.id,
        "FileSystemType": kind,
        "Lifecycle": "AVAILABLE",
        "StorageCapacity": int(resource.plain.get("storageCapacity") or 0),
        "Tags": [{"Key": key, "Value": value} for key, value in tags_of(resource).items()],
    }


def describe_backups(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Describe backups by their IDs, with the fields of the file system that are known."""
    cloud.operator.check(operator, operator.http("fsx:DescribeBackups", "*", region))
    backups = []
    for id in asked.get("BackupIds") or []:
        backup = cloud.external(str(id))
        if backup is None:
            raise ApiRejected("BackupNotFound", f"Backup '{id}' does not exist.")
        system = {"FileSystemType": "LUSTRE", **{name: value for name, value in backup.items() if name != "Lifecycle"}}
        shown = {"BackupId": id, "Lifecycle": backup.get("Lifecycle", "AVAILABLE"), "Type": "USER_INITIATED"}
        backups.append({**shown, "FileSystem": system})
    return {"Backups": backups}


def describe_homes(cloud: Cloud, asked: Mapping[str, str], region: str) -> dict[str, Any]:
    """Describe all EFS file systems, or those with a creation token or an ID."""
    cloud.operator.check(operator, operator.http("elasticfilesystem:DescribeFileSystems", "*", region))
    token = asked.get("CreationToken")
    systems = in_region(cloud, "aws:efs/fileSystem:FileSystem", region)
    return {
        "FileSystems": [
            {
                "FileSystemId": one.id,
                "CreationToken": one.plain["creationToken"],
                "LifeCycleState": "available",
                "SizeInBytes": {"Value": home_replication.size(cloud.store, one.id)},
                "FileSystemProtection": {
                    "ReplicationOverwriteProtection": home_replication.protection(cloud.store, one.id)
                },
                "NumberOfMountTargets": len(cloud.store.where(MOUNT_TARGET, fileSystemId=one.id)),
                "Tags": [{"Key": key, "Value": value} for key, value in tags_of(one).items()],
            }
            for one in systems
            if token in (None, one.plain.get("creationToken")) and asked.get("FileSystemId") in (None, one.id)
        ]
    }


def get_metric_statistics(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Return the age of the oldest object that is waiting for replication, or of the oldest change that a file system has not exported.

    S3 publishes no replication metrics while no objects are waiting. The file systems of a rehearsal contain no files, so their age is 0.
    """
    cloud.operator.check(operator, operator.http("cloudwatch:GetMetricStatistics", "*", region))
    given = {one["Name"]: one["Value"] for one in asked.get("Dimensions") or []}
    if asked.get("MetricName") == "AgeOfOldestQueuedMessage":
        exports = cloud.store.find("aws:fsx/lustreFileSystem:LustreFileSystem", str(given.get("FileSystemId")), region)
        age = {"Timestamp": int(time.time()), "Maximum": 0.0, "Unit": "Seconds"}
        published = exports is not None and given.get("Publisher") == "AutoExport"
        return {"Label": "AgeOfOldestQueuedMessage", "Datapoints": [age] if published else []}
    pair = str(given.get("SourceBucket")), str(given.get("DestinationBucket"))
    latency = replication.latency(cloud.store, *pair) if asked.get("MetricName") == "ReplicationLatency" else None
    point = {"Timestamp": int(time.time()), "Maximum": latency, "Unit": "Seconds"}
    return {"Label": str(asked.get("MetricName")), "Datapoints": [] if latency is None else [point]}


def put_metric_data(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Store the values of metrics (API reference of CloudWatch, PutMetricData, retrieved 2026-11-29)."""
    namespace = str(asked.get("Namespace") or "")
    context = {"cloudwatch:namespace": namespace}
    cloud.operator.check(operator, operator.http("cloudwatch:PutMetricData", "*", region, context))
    if not namespace or namespace.startswith("AWS/"):
        raise ApiRejected("InvalidParameterValue", "The value AWS/ for parameter Namespace is invalid.", status=400)
    for value in asked.get("MetricData") or ():
        dimensions = ",".join(f"{one['Name']}={one['Value']}" for one in value.get("Dimensions") or ())
        key = f"{region}/{namespace}/{value['MetricName']}/{dimensions}"
        cloud.store.put(METRIC, key, {"at": time.time(), "value": value.get("Value")})
    return {}


def create_data_repository_task(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Import the metadata of the objects in the buckets that are linked to a file system. The task ends when it is created."""
    id = str(asked.get("FileSystemId"))
    cloud.operator.check(operator, operator.http("fsx:CreateDataRepositoryTask", "*", region))
    if cloud.store.find("aws:fsx/lustreFileSystem:LustreFileSystem", id, region) is None:
        raise ApiRejected("FileSystemNotFound", f"File system '{id}' does not exist.")
    if asked.get("Type") != "IMPORT_METADATA_FROM_REPOSITORY":
        raise ApiRejected("BadRequest", f"tasks of the type {asked.get('Type')} are not supported in a rehearsal")
    paths = [
        str(one.plain["dataRepositoryPath"])
        for one in cloud.store.list(LINK)
        if one.region == region and one.plain.get("fileSystemId") == id
    ]
    if not paths:
        raise ApiRejected("BadRequest", f"File system '{id}' has no data repository association.")
    count = 0
    for path in paths:
        bucket, _, prefix = path.removeprefix("s3://").partition("/")
        count += len(cloud.store.objects(bucket, prefix))
    task = {
        "TaskId": f"task-{hexa(cloud.store.next('task'), 17)}", "Lifecycle": "SUCCEEDED", "Type": asked["Type"],
        "CreationTime": int(time.time()), "StartTime": int(time.time()), "EndTime": int(time.time()), "FileSystemId": id,
        "Status": {"TotalCount": count, "SucceededCount": count, "FailedCount": 0},
    }  # fmt: skip
    cloud.store.put(_TASK, task["TaskId"], {**task, "region": region})
    return {"DataRepositoryTask": {**task, "Lifecycle": "PENDING"}}


def describe_data_repository_tasks(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Describe tasks by ID, or by the filters `file-system-id` and `task-lifecycle`."""
    cloud.operator.check(operator, operator.http("fsx:DescribeDataRepositoryTasks", "*", region))
    held = {id: one for id, one in cloud.store.all(_TASK).items() if one["region"] == region}
    wanted = [str(one) for one in asked.get("TaskIds") or []]
    if missing := [one for one in wanted if one not in held]:
        raise ApiRejected("DataRepositoryTaskNotFound", f"Data repository task '{missing[0]}' does not exist.")
    filters = {str(one["Name"]): one["Values"] for one in asked.get("Filters") or []}
    tasks = [
        {key: value for key, value in one.items() if key != "region"}
        for id, one in held.items()
        if (not wanted or id in wanted)
        and _passes(filters, {"file-system-id": one["FileSystemId"], "task-lifecycle": one["Lifecycle"]})
    ]
    return {"DataRepositoryTasks": tasks}


def _log_of(resource: Resource) -> dict[str, str]:
    log = resource.plain.get("logConfiguration") or {}
    level = {"Level": log.get("level") or "DISABLED"}
    if not log.get("destination"):
        return level
    return level | {"Destination": f"{log['destination']}:log-stream:datarepo_{resource.id}"}


JSON_ACTIONS: dict[str, Callable[[Cloud, Mapping[str, Any], str], dict[str, Any]]] = {
    "TrentService.DescribeKey": describe_key,
    "GraniteServiceVersion20100801.GetMetricStatistics": get_metric_statistics,
    "GraniteServiceVersion20100801.PutMetricData": put_metric_data,
    "Logs_20140328.DescribeLogGroups": describe_log_groups,
    "AWSSimbaAPIService_v20180301.DescribeFileSystems": describe_file_systems,
    "AWSSimbaAPIService_v20180301.DescribeBackups": describe_backups,
    "AWSSimbaAPIService_v20180301.CreateDataRepositoryTask": create_data_repository_task,
    "AWSSimbaAPIService_v20180301.DescribeDataRepositoryTasks": describe_data_repository_tasks,
}


def describe_security_groups(cloud: Cloud, filters: Filters, region: str) -> dict[str, Any]:
    """Describe security groups by `group-name`."""
    groups = []
    for group in in_region(cloud, "aws:ec2/securityGroup:SecurityGroup", region):
        inputs = group.plain
        shown = {"groupId": group.id, "groupName": inputs.get("name"), "vpcId": inputs.get("vpcId")}
        if _passes(filters, {"group-name": shown["groupName"]}):
            groups.append(shown)
    return {"securityGroupInfo": groups}


def describe_subnets(cloud: Cloud, filters: Filters, region: str) -> dict[str, Any]:
    """Describe subnets by `vpc-id` and tags."""
    subnets = []
    for subnet in in_region(cloud, "aws:ec2/subnet:Subnet", region):
        shown = {"subnetId": subnet.id, "vpcId": subnet.plain.get("vpcId")}
        tags = {f"tag:{key}": value for key, value in tags_of(subnet).items()}
        if _passes(filters, {"vpc-id": shown["vpcId"], **tags}):
            subnets.append(shown)
    return {"subnetSet": subnets}


def describe_network_interfaces(cloud: Cloud, wanted: Sequence[str], region: str) -> dict[str, Any]:
    """Describe the network interfaces of FSx file systems by ID. The stand-in does not know the interfaces of other resources."""
    interfaces: dict[str, dict[str, Any]] = {}
    for system_record in (*in_region(cloud, "aws:fsx/lustreFileSystem:LustreFileSystem", region), *in_region(cloud, OPENZFS, region)):  # fmt: skip
        ids = system_record.plain.get("subnetIds") or ""
        subnet = cloud.store.find("aws:ec2/subnet:Subnet", str(ids[0] if isinstance(ids, list) else ids))
        block = ip_network(str(subnet.plain["cidrBlock"] if subnet else "192.0.2.0/24"))
        for id in system_record.outputs.get("networkInterfaceIds") or ():
            # AWS reserves the first four addresses of a subnet.
            address = block[4 + int(id.removeprefix("eni-"), 16) % (block.num_addresses - 5)]
            interfaces[id] = {"networkInterfaceId": id, "subnetId": subnet.id if subnet else None, "privateIpAddress": str(address)}  # fmt: skip
    if missing := [one for one in wanted if one not in interfaces]:
        text = f"The networkInterface ID '{missing[0]}' does not exist"
        raise ApiRejected("InvalidNetworkInterfaceID.NotFound", text)
    return {"networkInterfaceSet": [interfaces[one] for one in wanted or interfaces]}


def get_role(cloud: Cloud, name: str) -> dict[str, Any]:
    """Return a role, as IAM does in every Region."""
    cloud.operator.check(operator, operator.http("iam:GetRole", f"arn:aws:iam::{ACCOUNT}:role/{name}", "us-east-1"))
    role = next((one for one in cloud.store.list("aws:iam/role:Role") if one.id == name), None)
    if role is None:
        raise ApiRejected("NoSuchEntity", f"The role with name {name} cannot be found.", status=404)
    return {
        "Role": {
            "Path": str(role.plain.get("path") or "/"),
            "RoleName": name,
            "RoleId": str(role.outputs.get("uniqueId")),
            "Arn": str(role.outputs["arn"]),
            "CreateDate": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(role.created)),
        }
    }


def _passes(filters: Filters, values: Mapping[str, Any]) -> bool:
    return all(values.get(name) in wanted for name, wanted in filters.items())
