"""A bucket that nobody outside reaches."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gpuinfra import naming
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.resource_group import Part

DAY_S = 86_400


@dataclass(frozen=True, kw_only=True)
class Lock:
    """Retention: nobody changes or removes an object before its days are over."""

    days: int
    forever: bool = False
    """True: the retention itself can never be shortened or lifted again, not by the project's owner either. False: an owner may lift it."""


@dataclass(frozen=True, kw_only=True)
class PrivateBucketArgs:
    """What a private bucket is for."""

    scope: Scope
    purpose: str
    """Part of its name: `audit`, `evidence`."""
    keep: bool
    """True: the bucket and its content outlive a destroy of the stack."""
    key_id: pulumi.Input[str] | None = None
    """KMS key of its objects; left out, Google's own key is used."""
    lock: Lock | None = None
    """Left out, objects can be replaced; their old versions stay until `old_versions_days` are over. A locked bucket keeps no versions: Google has one or the other."""
    old_versions_days: int = 90
    """Days that a replaced or removed object can still be brought back."""


class PrivateBucket(Part):
    """One bucket: private by enforcement, access by role alone, encrypted, versioned or locked."""

    bucket: pulumi.Output[str]
    """Name of the bucket."""

    def __init__(self, name: str, args: PrivateBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        scope, lock = args.scope, args.lock
        made = gcp.storage.Bucket(
            naming.logical(name, "bucket"),
            name=scope.bucket_name(args.purpose),
            project=scope.project,
            # The API answers in capitals.
            location=scope.region.upper(),
            storage_class="STANDARD",
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            force_destroy=False,
            versioning=None if lock else gcp.storage.BucketVersioningArgs(enabled=True),
            retention_policy=gcp.storage.BucketRetentionPolicyArgs(
                retention_period=str(lock.days * DAY_S), is_locked=lock.forever
            )
            if lock
            else None,
            lifecycle_rules=None if lock else [_old_versions(args.old_versions_days)],
            soft_delete_policy=gcp.storage.BucketSoftDeletePolicyArgs(retention_duration_seconds=7 * DAY_S),
            encryption=gcp.storage.BucketEncryptionArgs(default_kms_key_name=args.key_id) if args.key_id else None,
            labels=scope.labelled(),
            opts=child(self, keep=args.keep),
        )
        self.bucket = made.name


def _old_versions(days: int) -> gcp.storage.BucketLifecycleRuleArgs:
    return gcp.storage.BucketLifecycleRuleArgs(
        action=gcp.storage.BucketLifecycleRuleActionArgs(type="Delete"),
        condition=gcp.storage.BucketLifecycleRuleConditionArgs(days_since_noncurrent_time=days, with_state="ARCHIVED"),
    )
