"""A private Cloud Storage bucket."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gpuinfra.clouds.gcp import resources as rows
from gpuinfra.clouds.gcp.components.scope import Scope, child
from gpuinfra.clouds.gcp.region.recovery import OLD_VERSIONS_DAYS

DAY_S = 86_400


@dataclass(frozen=True, kw_only=True)
class RetentionLock:
    """Retention policy: objects cannot be replaced or deleted before the retention period ends."""

    days: int
    forever: bool = False
    """If true, the policy is locked: it can no longer be shortened or removed, even by a project owner."""


@dataclass(frozen=True, kw_only=True)
class PrivateBucketArgs:
    """Arguments for a bucket: its purpose and protection."""

    scope: Scope
    purpose: str
    """Part of the name, such as `audit` or `evidence`."""
    key_id: pulumi.Input[str] | None = None
    """KMS key that encrypts the objects. If unset, Google Cloud uses a Google-owned key."""
    lock: RetentionLock | None = None
    """Retention of the objects. If unset, objects can be replaced, and noncurrent versions are kept for `old_versions_days`.
    Google Cloud supports either a retention policy or versioning on a bucket."""
    old_versions_days: int = OLD_VERSIONS_DAYS
    """Number of days for which a replaced or deleted object can be restored."""


class PrivateBucket(pulumi.ComponentResource):
    """An encrypted bucket without public access, with access through IAM only, and with versioning or a retention policy. `destroy` retains it."""

    bucket: pulumi.Output[str]
    """Name of the bucket."""

    def __init__(self, name: str, args: PrivateBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:gcp:PrivateBucket", name, None, args.scope.options(opts))
        lock = args.lock
        bucket = gcp.storage.Bucket(
            rows.BUCKET.logical(name),
            name=args.scope.bucket_name(args.purpose),
            # The API returns the location in upper case.
            location=args.scope.region.upper(),
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
            lifecycle_rules=None if lock else [_delete_old_versions(args.old_versions_days)],
            soft_delete_policy=gcp.storage.BucketSoftDeletePolicyArgs(retention_duration_seconds=7 * DAY_S),
            encryption=gcp.storage.BucketEncryptionArgs(default_kms_key_name=args.key_id) if args.key_id else None,
            opts=child(self, rows.BUCKET),
        )
        self.bucket = bucket.name
        self.register_outputs({"bucket": self.bucket})


def _delete_old_versions(days: int) -> gcp.storage.BucketLifecycleRuleArgs:
    return gcp.storage.BucketLifecycleRuleArgs(
        action=gcp.storage.BucketLifecycleRuleActionArgs(type="Delete"),
        condition=gcp.storage.BucketLifecycleRuleConditionArgs(days_since_noncurrent_time=days, with_state="ARCHIVED"),
    )
