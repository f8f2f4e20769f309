"""Which changes replace a resource, and which are made in place. Everything not named here is changed in place.

| source | what it covers |
| --- | --- |
| `aws/replacements.json` | AWS: `createOnlyProperties` of CloudFormation's schemas, derived by `aws/derive.py` |
| the SDK's own sentences | "Changing this forces a new resource" in an input's documentation, without a condition |
| identity | the inputs that an id or a path is made of: name, region, location, zone, project, resource group |
| the tables below | where CloudFormation and the provider differ, or CloudFormation says nothing |
"""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from pathlib import Path

from gpuinfra.rehearsal.cloud.core import ids
from gpuinfra.rehearsal.cloud.core.sdk import sdk

_TABLE = Path(__file__).parent.parent / "aws" / "replacements.json"

# Inputs that replace although CloudFormation's schema does not say so, because CloudFormation names them differently
# or has no such type. Read from the documentation of the AWS provider 7.x in the installed SDK, and from the API
# reference where an update call has no such member. Read 2026-11-21.
_FORCED: dict[str, tuple[str, ...]] = {
    "aws:ec2/vpc:Vpc": ("ipv6NetmaskLength",),
    "aws:ec2/eip:Eip": ("domain", "publicIpv4Pool"),
    "aws:ec2/securityGroup:SecurityGroup": ("description", "namePrefix"),
    "aws:ec2/launchTemplate:LaunchTemplate": ("namePrefix",),
    "aws:ec2/placementGroup:PlacementGroup": ("name",),
    "aws:ec2/flowLog:FlowLog": ("vpcId", "subnetId", "eniId", "iamRoleArn", "transitGatewayId"),
    "aws:autoscaling/group:Group": ("namePrefix",),
    "aws:autoscaling/schedule:Schedule": ("scheduledActionName", "autoscalingGroupName"),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": ("securityGroupId",),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": ("securityGroupId",),
    "aws:iam/role:Role": ("namePrefix",),
    "aws:iam/instanceProfile:InstanceProfile": ("namePrefix",),
    "aws:iam/rolePolicy:RolePolicy": ("name", "namePrefix", "role"),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": ("role", "policyArn"),
    "aws:iam/policy:Policy": ("name", "namePrefix", "path", "description"),
    "aws:s3/bucket:Bucket": ("bucket", "bucketPrefix", "objectLockEnabled"),
    "aws:s3/bucketObject:BucketObject": ("bucket", "key"),
    "aws:s3/bucketObjectv2:BucketObjectv2": ("bucket", "key"),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": ("bucket", "expectedBucketOwner"),
    "aws:kms/key:Key": ("customKeyStoreId", "customerMasterKeySpec", "keyUsage", "multiRegion", "xksKeyId"),
    "aws:kms/alias:Alias": ("namePrefix",),
    "aws:ssm/parameter:Parameter": ("name",),
    "aws:cloudwatch/logGroup:LogGroup": ("namePrefix", "logGroupClass"),
    "aws:budgets/budget:Budget": ("namePrefix", "budgetType"),
    "aws:fsx/lustreFileSystem:LustreFileSystem": (
        "deploymentType", "storageType", "driveCacheType", "efaEnabled", "exportPath", "importPath", "importedFileChunkSize",
        "fileSystemTypeVersion", "copyTagsToBackups",
    ),
}  # fmt: skip

# Inputs that CloudFormation replaces and the provider changes in place.
_IN_PLACE: dict[str, tuple[str, ...]] = {
    "aws:ec2/routeTableAssociation:RouteTableAssociation": ("routeTableId",),  # ReplaceRouteTableAssociation
    "aws:ec2/placementGroup:PlacementGroup": ("tags",),  # CreateTags
    "aws:ec2/flowLog:FlowLog": ("tags",),
    "aws:sns/topic:Topic": ("tags",),
}

_ALWAYS = {
    "aws": ("region",),
    "azure-native": ("resourceGroupName", "location", "subscriptionId", "scope"),
    "gcp": ("name", "project", "region", "zone", "location", "network", "subnetwork"),
}

# Google's networks and instance templates are immutable but for what is named here. Compute API discovery document
# (methods without a patch), read 2026-11-21.
_GCP_IMMUTABLE = frozenset(
    {"gcp:compute/instanceTemplate:InstanceTemplate", "gcp:compute/regionInstanceTemplate:RegionInstanceTemplate"}
)

_GCP_FORCED: dict[str, tuple[str, ...]] = {
    "gcp:compute/network:Network": ("autoCreateSubnetworks", "description", "networkProfile"),
    "gcp:compute/disk:Disk": ("type", "image", "snapshot"),
    "gcp:compute/instance:Instance": ("bootDisk.initializeParams",),
    "gcp:storage/bucket:Bucket": ("location", "customPlacementConfig"),
    "gcp:filestore/instance:Instance": ("tier", "networks", "protocol"),
    "gcp:lustre/instance:Instance": ("instanceId", "filesystem", "perUnitStorageThroughput", "kmsKey", "gkeSupportEnabled", "placementPolicy"),
    "gcp:serviceaccount/account:Account": ("accountId",),
    "gcp:kms/cryptoKey:CryptoKey": ("keyRing", "purpose", "destroyScheduledDuration", "importOnly"),
    "gcp:projects/service:Service": ("service",),
    "gcp:projects/iAMAuditConfig:IAMAuditConfig": ("service",),
    "gcp:logging/projectBucketConfig:ProjectBucketConfig": ("bucketId",),
    "gcp:logging/projectSink:ProjectSink": ("uniqueWriterIdentity",),
    "gcp:compute/instanceGroupManager:InstanceGroupManager": ("baseInstanceName", "targetSizePolicies"),
    "gcp:compute/routerNat:RouterNat": ("router",),
    "gcp:servicenetworking/connection:Connection": ("service",),
    "gcp:storage/bucketObject:BucketObject": ("bucket", "kmsKeyName"),
    "gcp:artifactregistry/repository:Repository": ("repositoryId", "format", "kmsKeyName", "mode"),
}  # fmt: skip
_GCP_WHOLE = re.compile(
    r"(?i)iam(member|binding)$|:(ResizeRequest|GlobalAddress|ServiceIdentity|ResourcePolicy|FutureReservation)$"
)
"""Types of which nothing is changed in place: grants, and what the Compute API has no patch for."""

# Azure says "cannot be changed" in prose only. ARM reference, read 2026-11-21.
_AZURE_FORCED: dict[str, tuple[str, ...]] = {
    "azure-native:compute:VirtualMachineScaleSet": (
        "orchestrationMode",
        "platformFaultDomainCount",
        "proximityPlacementGroup",
    ),
    "azure-native:storage:StorageAccount": ("kind", "isHnsEnabled", "isNfsV3Enabled"),
    "azure-native:storagecache:AmlFilesystem": (
        "sku",
        "storageCapacityTiB",
        "zones",
        "filesystemSubnet",
        "hsm",
        "identity",
    ),
    "azure-native:compute:Disk": ("creationData", "zones", "osType"),
    "azure-native:network:PublicIPAddress": ("sku", "zones", "publicIPAddressVersion"),
    "azure-native:network:NatGateway": ("zones",),
}

_SENTENCE = re.compile(
    r"(forces?|will force|force) (the )?(creation of )?(a )?(new resource|replacement|recreation)|forces a new \w+ to be created"
    r"|cannot be (changed|updated|modified) (after|once)|changing this (creates|will create) a new|^\W*immutable\b|property is immutable",
    re.I,
)
_CONDITION = re.compile(r"\b(when|if|from|between|unless|decreas|removing|only)\b", re.I)


def replaces(token: str, path: str) -> bool:
    """Whether a change at `path` (`subnetIds[0]`, `dnsOptions.privateDnsPreference`) makes a new resource."""
    names = re.sub(r"\[[^\]]*\]", "", path).split(".")
    forced, kept = _table(token)
    prefixes = {".".join(names[: index + 1]) for index in range(len(names))}
    if prefixes & kept:
        return False
    return bool(prefixes & forced)


@cache
def _table(token: str) -> tuple[frozenset[str], frozenset[str]]:
    package = token.split(":", 1)[0]
    inputs = sdk(package).resource(token).inputs
    forced = {name for name in _ALWAYS.get(package, ()) if name in inputs}
    if package == "aws":
        forced |= set(_derived().get(token, ())) | set(_FORCED.get(token, ()))
        forced |= {ids.AWS_NAMED[token]} if token in ids.AWS_NAMED else set()
        forced |= set(re.findall(r"\{(\w+)\}", ids.AWS_PARTS.get(token, "")))
        if ids.module(token) == "s3" and "bucket" in inputs:
            forced.add("bucket")
    elif package == "gcp":
        forced |= set(_GCP_FORCED.get(token, ()))
        forced |= set(inputs) if token in _GCP_IMMUTABLE or _GCP_WHOLE.search(token) else set()
        forced -= {"deletionPolicy"}
    else:
        forced |= set(_AZURE_FORCED.get(token, ()))
        parents, own = ids.azure_path(token)
        forced |= {*parents, own} & set(inputs)
    forced |= {name for name, prop in inputs.items() if _says_so(prop.doc)}
    return frozenset(forced - {"tags", "labels"}), frozenset(_IN_PLACE.get(token, ()))


@lru_cache(maxsize=1)
def _derived() -> dict[str, list[str]]:
    return json.loads(_TABLE.read_text())["types"]


def _says_so(doc: str) -> bool:
    for sentence in re.split(r"(?<=[.;])\s+|\n", doc):
        if _SENTENCE.search(sentence) and not _CONDITION.search(sentence):
            return True
    return False
