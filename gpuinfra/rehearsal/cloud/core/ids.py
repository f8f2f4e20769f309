"""Ids, ARNs and paths that have the shape of the cloud's own and are visibly synthetic.

Counters give the digits, so an id is never used twice: `vpc-00000000000000001`, `i-00000000000000002`.
Where a cloud names a resource by what its owner called it (buckets, roles, log groups), so does this one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

ACCOUNT = "000000000000"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
PROJECT = "standin-project"
PROJECT_NUMBER = "000000000000"

Count = Callable[[str], int]
"""Gives the next number of a series."""

# EC2-style ids: prefix by type. From the "ID" examples of the EC2, FSx and VPC API references, read 2026-11-21.
AWS_PREFIXES = {
    "aws:ec2/vpc:Vpc": "vpc",
    "aws:ec2/subnet:Subnet": "subnet",
    "aws:ec2/routeTable:RouteTable": "rtb",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "rtbassoc",
    "aws:ec2/internetGateway:InternetGateway": "igw",
    "aws:ec2/egressOnlyInternetGateway:EgressOnlyInternetGateway": "eigw",
    "aws:ec2/natGateway:NatGateway": "nat",
    "aws:ec2/eip:Eip": "eipalloc",
    "aws:ec2/securityGroup:SecurityGroup": "sg",
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": "sg",
    "aws:ec2/securityGroupRule:SecurityGroupRule": "sgrule",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "sgr",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": "sgr",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "vpce",
    "aws:ec2/flowLog:FlowLog": "fl",
    "aws:ec2/networkInterface:NetworkInterface": "eni",
    "aws:ec2/networkAcl:NetworkAcl": "acl",
    "aws:ec2/vpcDhcpOptions:VpcDhcpOptions": "dopt",
    "aws:ec2/vpcPeeringConnection:VpcPeeringConnection": "pcx",
    "aws:ec2/managedPrefixList:ManagedPrefixList": "pl",
    "aws:ec2/launchTemplate:LaunchTemplate": "lt",
    "aws:ec2/instance:Instance": "i",
    "aws:ec2/spotInstanceRequest:SpotInstanceRequest": "sir",
    "aws:ec2/capacityReservation:CapacityReservation": "cr",
    "aws:ec2/capacityBlockReservation:CapacityBlockReservation": "cr",
    "aws:ec2/ami:Ami": "ami",
    "aws:ec2/amiCopy:AmiCopy": "ami",
    "aws:ec2/amiFromInstance:AmiFromInstance": "ami",
    "aws:ebs/volume:Volume": "vol",
    "aws:ebs/snapshot:Snapshot": "snap",
    "aws:ec2/fleet:Fleet": "fleet",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "fs",
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem": "fs",
    "aws:fsx/backup:Backup": "backup",
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": "dra",
    "aws:efs/fileSystem:FileSystem": "fs",
    "aws:efs/mountTarget:MountTarget": "fsmt",
    "aws:efs/accessPoint:AccessPoint": "fsap",
    "aws:ec2transitgateway/transitGateway:TransitGateway": "tgw",
}

# Types whose id in pulumi_aws is one of their inputs: the bucket's name, the role's name ... From the "Import"
# section of each resource's documentation (registry of the AWS provider 7.x), read 2026-11-21.
AWS_NAMED = {
    "aws:autoscaling/group:Group": "name",
    "aws:ec2/placementGroup:PlacementGroup": "name",
    "aws:ec2/keyPair:KeyPair": "keyName",
    "aws:iam/role:Role": "name",
    "aws:iam/user:User": "name",
    "aws:iam/group:Group": "name",
    "aws:iam/instanceProfile:InstanceProfile": "name",
    "aws:cloudwatch/logGroup:LogGroup": "name",
    "aws:cloudwatch/metricAlarm:MetricAlarm": "name",
    "aws:kms/alias:Alias": "name",
    "aws:s3/bucket:Bucket": "bucket",
    "aws:s3/bucketV2:BucketV2": "bucket",
    "aws:ssm/parameter:Parameter": "name",
    "aws:resourcegroups/group:Group": "name",
    "aws:cfg/recorder:Recorder": "name",
    "aws:cfg/deliveryChannel:DeliveryChannel": "name",
    "aws:cfg/rule:Rule": "name",
    "aws:backup/vault:Vault": "name",
    "aws:eks/cluster:Cluster": "name",
    "aws:ecs/cluster:Cluster": "name",
    "aws:lambda/function:Function": "name",
    "aws:dynamodb/table:Table": "name",
}

# Parts of another resource: their id is that of the whole, or a join of inputs ({} = an input). Same source.
AWS_PARTS = {
    "aws:iam/rolePolicy:RolePolicy": "{role}:{name}",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "{role}/{policyArn}",
    "aws:iam/userPolicyAttachment:UserPolicyAttachment": "{user}/{policyArn}",
    "aws:ec2/route:Route": "r-{routeTableId}{destinationCidrBlock}{destinationIpv6CidrBlock}{destinationPrefixListId}",
    "aws:ec2/mainRouteTableAssociation:MainRouteTableAssociation": "rtbassoc-{vpcId}",
    "aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation": "a-{vpcEndpointId}{routeTableId}",
    "aws:ec2/vpcEndpointPolicy:VpcEndpointPolicy": "{vpcEndpointId}",
    "aws:kms/keyPolicy:KeyPolicy": "{keyId}",
    "aws:budgets/budget:Budget": ACCOUNT + ":{name}",
    # Their names are unique in their group only; this is the form in which people import them.
    "aws:autoscaling/schedule:Schedule": "{autoscalingGroupName}/{scheduledActionName}",
    "aws:autoscaling/lifecycleHook:LifecycleHook": "{autoscalingGroupName}/{name}",
    "aws:cfg/recorderStatus:RecorderStatus": "{name}",
    "aws:s3/accountPublicAccessBlock:AccountPublicAccessBlock": ACCOUNT,
    "aws:ebs/encryptionByDefault:EncryptionByDefault": ACCOUNT,
}

# ARN by type: service and resource part; {id} is the id, {name} an input, region and account come in by themselves.
# `g` drops the region (IAM), `b` region and account (S3). AWS service authorization reference, read 2026-11-21.
AWS_ARNS = {
    "aws:s3/bucket:Bucket": ("s3", "{id}", "b"),
    "aws:s3/bucketV2:BucketV2": ("s3", "{id}", "b"),
    "aws:s3/bucketObject:BucketObject": ("s3", "{bucket}/{key}", "b"),
    "aws:s3/bucketObjectv2:BucketObjectv2": ("s3", "{bucket}/{key}", "b"),
    "aws:iam/role:Role": ("iam", "role{path}{id}", "g"),
    "aws:iam/policy:Policy": ("iam", "policy{path}{name}", "g"),
    "aws:iam/user:User": ("iam", "user{path}{id}", "g"),
    "aws:iam/instanceProfile:InstanceProfile": ("iam", "instance-profile{path}{id}", "g"),
    "aws:cloudwatch/logGroup:LogGroup": ("logs", "log-group:{id}", ""),
    "aws:cloudwatch/metricAlarm:MetricAlarm": ("cloudwatch", "alarm:{id}", ""),
    "aws:cloudtrail/trail:Trail": ("cloudtrail", "trail/{name}", ""),
    "aws:kms/key:Key": ("kms", "key/{id}", ""),
    "aws:kms/alias:Alias": ("kms", "{id}", ""),
    "aws:kms/replicaKey:ReplicaKey": ("kms", "key/{id}", ""),
    "aws:sns/topic:Topic": ("sns", "{name}", ""),
    "aws:sqs/queue:Queue": ("sqs", "{name}", ""),
    "aws:ssm/parameter:Parameter": ("ssm", "parameter{id}", ""),
    "aws:budgets/budget:Budget": ("budgets", "budget/{name}", "g"),
    "aws:fsx/lustreFileSystem:LustreFileSystem": ("fsx", "file-system/{id}", ""),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": ("fsx", "association/{fileSystemId}/{id}", ""),
    "aws:efs/fileSystem:FileSystem": ("elasticfilesystem", "file-system/{id}", ""),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": ("ec2", "security-group-rule/{id}", ""),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": ("ec2", "security-group-rule/{id}", ""),
    "aws:ec2/flowLog:FlowLog": ("ec2", "vpc-flow-log/{id}", ""),
    "aws:ec2/natGateway:NatGateway": ("ec2", "natgateway/{id}", ""),
    "aws:ec2/eip:Eip": ("ec2", "elastic-ip/{id}", ""),
    "aws:lambda/function:Function": ("lambda", "function:{id}", ""),
}

AWS_ARN_IDS = frozenset({
    "aws:cloudtrail/trail:Trail", "aws:sns/topic:Topic", "aws:iam/policy:Policy", "aws:cfg/organizationManagedRule:OrganizationManagedRule",
    "aws:autoscaling/notification:Notification", "aws:secretsmanager/secret:Secret", "aws:iam/openIdConnectProvider:OpenIdConnectProvider",
    "aws:lb/loadBalancer:LoadBalancer", "aws:lb/targetGroup:TargetGroup", "aws:lb/listener:Listener", "aws:sns/topicSubscription:TopicSubscription",
})  # fmt: skip
"""Types whose id is their ARN."""

AWS_UUIDS = frozenset({"aws:kms/key:Key", "aws:kms/replicaKey:ReplicaKey"})


def hexa(number: int, digits: int) -> str:
    return f"{number:0{digits}x}"


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


def module(token: str) -> str:
    """`ec2` of `aws:ec2/vpc:Vpc`."""
    return token.split(":")[1].split("/")[0]


def class_name(token: str) -> str:
    return token.rsplit(":", 1)[1]


def aws_id(token: str, name: str, inputs: Mapping[str, Any], region: str, count: Count) -> str:
    """The id of a new AWS resource."""
    if prefix := AWS_PREFIXES.get(token):
        return f"{prefix}-{hexa(count(prefix), 17)}"
    if (key := AWS_NAMED.get(token)) and isinstance(inputs.get(key), str):
        return inputs[key]
    if token in AWS_UUIDS:
        number = count("uuid")
        return f"mrk-{number:032x}" if inputs.get("multiRegion") or "replica" in token else uuid(number)
    if shape := AWS_PARTS.get(token):
        return _fill(shape, inputs)
    if module(token) == "s3" and isinstance(inputs.get("bucket"), str):
        return f"{inputs['bucket']}/{inputs['key']}" if isinstance(inputs.get("key"), str) else inputs["bucket"]
    if token in AWS_ARN_IDS:
        return aws_arn(token, str(inputs.get("name", name)), inputs, region)
    series = kebab(class_name(token))
    return f"{series}-{hexa(count(series), 17)}"


def aws_arn(token: str, id: str, inputs: Mapping[str, Any], region: str) -> str:
    """The ARN of an AWS resource."""
    if id.startswith("arn:"):
        return id
    service, shape, scope = AWS_ARNS.get(token, (module(token), kebab(class_name(token)) + "/{id}", ""))
    path = inputs.get("path") if isinstance(inputs.get("path"), str) else "/"
    resource = _fill(shape, {"name": id, **inputs, "id": id, "path": path})
    where = {"": f"{region}:{ACCOUNT}", "g": f":{ACCOUNT}", "b": ":"}[scope]
    return f"arn:aws:{service}:{where}:{resource}"


# ARM namespaces and collections whose spelling does not follow from the SDK's names. ARM template reference, read 2026-11-21.
_AZURE_NAMESPACES = {
    "monitor": "Insights",
    "keyvault": "KeyVault",
    "storagecache": "StorageCache",
    "managedidentity": "ManagedIdentity",
    "operationalinsights": "OperationalInsights",
    "containerservice": "ContainerService",
    "recoveryservices": "RecoveryServices",
    "privatedns": "Network",
}
_AZURE_COLLECTIONS = {
    ("storage", "account"): "storageAccounts",
    ("storage", "BlobContainer"): "blobServices/default/containers",
    ("storage", "container"): "blobServices/default/containers",
    ("storage", "BlobContainerImmutabilityPolicy"): "immutabilityPolicies",
    ("storage", "BlobServiceProperties"): "blobServices",
    ("monitor", "SubscriptionDiagnosticSetting"): "diagnosticSettings",
    ("privatedns", "PrivateZone"): "privateDnsZones",
    ("privatedns", "privateZone"): "privateDnsZones",
}


def azure_id(token: str, name: str, inputs: Mapping[str, Any]) -> str:
    """The path of a new Azure resource, as ARM writes it."""
    service, kind = module(token), class_name(token)
    parents, own_key = azure_path(token)
    own = str(inputs.get(own_key) or name)
    base = f"/subscriptions/{inputs.get('subscriptionId') or SUBSCRIPTION}"
    if token == "azure-native:resources:ResourceGroup":
        return f"{base}/resourceGroups/{own}"
    scope = next((str(inputs[key]) for key in _AZURE_SCOPES if inputs.get(key)), None)
    if scope is not None:
        base = "/" + scope.strip("/")
    elif group := inputs.get("resourceGroupName"):
        base += f"/resourceGroups/{group}"
    segments = [f"Microsoft.{_AZURE_NAMESPACES.get(service, service[0].upper() + service[1:])}"]
    for key in parents:
        what = key.removesuffix("Name")
        segments += [_AZURE_COLLECTIONS.get((service, what)) or plural(what), str(inputs.get(key) or "default")]
    segments += [_AZURE_COLLECTIONS.get((service, kind)) or plural(kind[0].lower() + kind[1:]), own]
    return f"{base}/providers/{'/'.join(segments)}"


_AZURE_SCOPES = ("scope", "resourceUri", "resourceScope", "resourceId")


@cache
def azure_path(token: str) -> tuple[tuple[str, ...], str]:
    """The inputs that are segments of the path: those of the parents, and the one that names the resource itself.

    A resource's `get` function takes exactly the segments; the resource's own is the one that Pulumi can make up.
    """
    from gpuinfra.rehearsal.cloud.core.sdk import NotDeclared, sdk

    azure, kind = sdk("azure-native"), class_name(token)
    inputs = azure.resource(token).inputs
    try:
        taken = azure.function(token.replace(f":{kind}", f":get{kind}")).inputs
        names = [key for key, prop in taken.items() if prop.required and key in inputs and key not in _AZURE_SCOPES]
    except NotDeclared:
        names = [key for key in inputs if key.endswith("Name") and inputs[key].type.kind == "str"]
    own = [key for key in names if not inputs[key].required and inputs[key].type.kind == "str"]
    parents = tuple(
        key for key in names if key not in own and key != "resourceGroupName" and inputs[key].type.kind == "str"
    )
    return parents, own[-1] if own else ""


def plural(word: str) -> str:
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch")) else "s")


def gcp_id(token: str, name: str, inputs: Mapping[str, Any], project: str) -> str:
    """The path of a new Google Cloud resource."""
    kind = class_name(token)
    if shape := _GCP_SHAPES.get(token):
        title = (inputs.get("condition") or {}).get("title") if isinstance(inputs.get("condition"), Mapping) else None
        filled = _fill(shape, {"project": project, "name": name, **{k: _tail(k, v) for k, v in inputs.items()}})
        return f"{filled}/{title}" if title else filled
    own = str(
        inputs.get("name")
        or next((inputs[k] for k in inputs if k.endswith("Id") and kind.lower().startswith(k[:-2].lower())), name)
    )
    if kind.startswith("IAM") and inputs.get("role"):
        held = next(
            (
                str(inputs[key])
                for key in ("project", "bucket", "serviceAccountId", "name", "folder", "organization")
                if inputs.get(key)
            ),
            project,
        )
        return "/".join(part for part in (held, str(inputs["role"]), str(inputs.get("member") or "")) if part)
    if token == "gcp:serviceaccount/account:Account":
        own = f"{own}@{inputs.get('project') or project}.iam.gserviceaccount.com"
    where = f"projects/{inputs.get('project') or project}"
    if zone := inputs.get("zone"):
        where += f"/zones/{str(zone).rsplit('/', 1)[-1]}"
    elif region := inputs.get("region"):
        where += f"/regions/{str(region).rsplit('/', 1)[-1]}"
    elif location := inputs.get("location"):
        where += f"/locations/{location}"
    elif module(token) == "compute":
        where += "/global"
    if token == "gcp:storage/bucket:Bucket":
        return own
    collection = plural(kind[0].lower() + kind[1:])
    return f"{where}/{_GCP_COLLECTIONS.get(token, collection)}/{own}"


# Ids that are not "place, collection, name": the "Import" section of each resource's documentation (pulumi_gcp 10.2),
# read 2026-11-21. A grant under a condition is told from others by the condition's title.
_GCP_SHAPES = {
    "gcp:compute/instanceTemplate:InstanceTemplate": "projects/{project}/global/instanceTemplates/{name}",
    "gcp:compute/routerNat:RouterNat": "{project}/{region}/{router}/{name}",
    "gcp:compute/globalAddress:GlobalAddress": "projects/{project}/global/addresses/{name}",
    "gcp:compute/resizeRequest:ResizeRequest": "projects/{project}/zones/{zone}/instanceGroupManagers/{instanceGroupManager}/resizeRequests/{name}",
    "gcp:storage/bucketObject:BucketObject": "{bucket}-{name}",
    "gcp:storage/bucketIAMMember:BucketIAMMember": "b/{bucket}/{role}/{member}",
    "gcp:projects/iAMMember:IAMMember": "{project}/{role}/{member}",
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": "projects/{project}/locations/{location}/repositories/{repository}/{role}/{member}",
    "gcp:projects/iAMAuditConfig:IAMAuditConfig": "projects/{project}/audit_config/{service}",
    "gcp:projects/service:Service": "{project}/{service}",
    "gcp:projects/serviceIdentity:ServiceIdentity": "projects/{project}/services/{service}",
    "gcp:projects/iAMCustomRole:IAMCustomRole": "projects/{project}/roles/{roleId}",
    "gcp:kms/cryptoKey:CryptoKey": "{keyRing}/cryptoKeys/{name}",
    "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember": "{cryptoKeyId}/{role}/{member}",
    "gcp:serviceaccount/iAMMember:IAMMember": "{serviceAccountId}/{role}/{member}",
    "gcp:logging/projectSink:ProjectSink": "projects/{project}/sinks/{name}",
    "gcp:logging/projectBucketConfig:ProjectBucketConfig": "projects/{project}/locations/{location}/buckets/{bucketId}",
}
_GCP_SHORT = ("router", "instanceGroupManager", "region", "zone")
"""Inputs that may be links where the id has a name."""


def _tail(key: str, value: Any) -> Any:
    return value.rsplit("/", 1)[-1] if key in _GCP_SHORT and isinstance(value, str) else value


_GCP_COLLECTIONS = {
    "gcp:compute/subnetwork:Subnetwork": "subnetworks",
    "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager": "instanceGroupManagers",
    "gcp:serviceaccount/account:Account": "serviceAccounts",
    "gcp:compute/regionInstanceTemplate:RegionInstanceTemplate": "instanceTemplates",
    "gcp:compute/regionNetworkFirewallPolicy:RegionNetworkFirewallPolicy": "firewallPolicies",
    "gcp:compute/networkFirewallPolicy:NetworkFirewallPolicy": "firewallPolicies",
}


def _fill(shape: str, inputs: Mapping[str, Any]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: _text(inputs.get(found.group(1))), shape)


def _text(value: Any) -> str:
    return "" if value is None else str(value)
