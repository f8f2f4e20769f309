"""Lists the inputs that force replacement of a Google Cloud resource, in addition to the SDK's documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpuinfra_rehearsal.cloud.core.sdk import Property

# Types without a method that patches them. Compute API discovery document, retrieved 2026-11-21.
# Other inputs: `immutable` and `ForceNew` in GoogleCloudPlatform/magic-modules at d577844, retrieved 2026-11-22,
# and the recorded responses in tests/providers/recordings/gcp.
_IMMUTABLE = "gcp:compute/instanceTemplate:InstanceTemplate"

_FORCED: dict[str, tuple[str, ...]] = {
    "gcp:compute/network:Network": ("autoCreateSubnetworks", "description", "internalIpv6Range", "networkProfile"),
    "gcp:compute/firewall:Firewall": ("direction",),
    "gcp:dns/managedZone:ManagedZone": ("dnsName", "reverseLookup", "serviceDirectoryConfig", "visibility"),
    "gcp:dns/recordSet:RecordSet": ("managedZone",),
    "gcp:storage/bucket:Bucket": ("location", "customPlacementConfig"),
    "gcp:filestore/instance:Instance": ("tier", "networks", "protocol"),
    "gcp:lustre/instance:Instance": ("instanceId", "filesystem", "perUnitStorageThroughput", "kmsKey", "gkeSupportEnabled", "placementPolicy"),
    "gcp:serviceaccount/account:Account": ("accountId",),
    "gcp:kms/cryptoKey:CryptoKey": ("keyRing", "purpose", "destroyScheduledDuration", "importOnly"),
    "gcp:projects/service:Service": ("service",),
    "gcp:projects/iAMAuditConfig:IAMAuditConfig": ("service",),
    "gcp:logging/projectBucketConfig:ProjectBucketConfig": ("bucketId",),
    "gcp:compute/instanceGroupManager:InstanceGroupManager": ("baseInstanceName", "targetSizePolicies"),
    "gcp:compute/routerNat:RouterNat": ("router",),
    "gcp:servicenetworking/connection:Connection": ("service",),
    "gcp:storage/bucketObject:BucketObject": (
        "bucket", "kmsKeyName", "source", "cacheControl", "contentDisposition", "contentEncoding", "contentLanguage", "contentType",
        "storageClass", "metadata",
    ),
    "gcp:projects/iAMCustomRole:IAMCustomRole": ("roleId",),
    "gcp:storage/transferJob:TransferJob": ("project",),
    "gcp:cloudscheduler/job:Job": ("name", "region", "project"),
}  # fmt: skip
_WHOLE = re.compile(
    r"(?i)iam(member|binding)$|:(ResizeRequest|GlobalAddress|ServiceIdentity|ResourcePolicy|FutureReservation)$"
)
"""Other types without in-place updates: grants, and types that the Compute API cannot patch."""


def forced(token: str, inputs: Mapping[str, Property]) -> set[str]:
    """Return the inputs of a type whose change replaces the resource."""
    whole = token == _IMMUTABLE or _WHOLE.search(token)
    return {*_FORCED.get(token, ()), *(inputs if whole else ())} - {"deletionPolicy"}
