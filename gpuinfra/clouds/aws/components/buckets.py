"""A private S3 bucket with all of its settings.

`destroy` retains the settings with the bucket, because a bucket without its policy is not protected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from gpuinfra.clouds.aws import resources as rows
from gpuinfra.clouds.aws.components import policies
from gpuinfra.clouds.aws.components.scope import Scope, child
from gpuinfra.clouds.aws.region.recovery import OLD_VERSIONS_DAYS
from gpuinfra.clouds.ready_after import ready_after


@dataclass(frozen=True, kw_only=True)
class ObjectLock:
    """S3 Object Lock: objects cannot be overwritten or deleted before their retention period ends."""

    days: int
    mode: str = "GOVERNANCE"
    """`GOVERNANCE` (principals with s3:BypassGovernanceRetention can override it) or `COMPLIANCE` (no one can override it,
    including the root user of the account)."""


@dataclass(frozen=True, kw_only=True)
class PrivateBucketArgs:
    """Arguments for a private bucket."""

    scope: Scope
    purpose: str
    """Part of the name, such as `audit` or `evidence`."""
    key_arn: pulumi.Input[str] | None = None
    """KMS key of the objects. If unset, S3 uses its own key, which a bucket for access logs requires."""
    lock: ObjectLock | None = None
    """Object Lock settings. If unset, objects can be overwritten, and noncurrent versions are deleted after `old_versions_days`."""
    expire_days: int | None = None
    """Number of days after which objects are deleted. If unset, objects do not expire."""
    old_versions_days: int = OLD_VERSIONS_DAYS
    """Number of days for which a replaced or deleted object can be restored."""
    log_to: pulumi.Input[str] | None = None
    """Bucket that receives the access log of this bucket. If unset, access is not logged."""
    statements: Callable[[pulumi.Output[str]], Sequence[policies.Statement]] = lambda arn: ()
    """Returns additional statements for the bucket policy, given the ARN of the bucket."""


class PrivateBucket(pulumi.ComponentResource):
    """A bucket with encryption and versioning that blocks public access and denies requests without TLS."""

    bucket: pulumi.Output[str]
    """Name of the bucket. Resolves after its settings are applied."""
    arn: pulumi.Output[str]
    """ARN of the bucket."""

    def __init__(self, name: str, args: PrivateBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuinfra:aws:PrivateBucket", name, None, args.scope.options(opts))

        self.resource = bucket = aws.s3.Bucket(
            rows.BUCKET.logical(name),
            bucket=args.scope.bucket_name(args.purpose),
            object_lock_enabled=True if args.lock else None,
            opts=child(self, rows.BUCKET),
        )
        """The bucket resource. Use it in `depends_on` for resources that must not be created if the bucket name is taken."""
        public = aws.s3.BucketPublicAccessBlock(
            rows.BUCKET_PUBLIC_ACCESS.logical(name),
            bucket=bucket.bucket,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=child(self, rows.BUCKET_PUBLIC_ACCESS),
        )
        ownership = aws.s3.BucketOwnershipControls(
            rows.BUCKET_OWNERSHIP.logical(name),
            bucket=bucket.bucket,
            rule=aws.s3.BucketOwnershipControlsRuleArgs(object_ownership="BucketOwnerEnforced"),
            opts=child(self, rows.BUCKET_OWNERSHIP),
        )
        versioning = aws.s3.BucketVersioning(
            rows.BUCKET_VERSIONING.logical(name),
            bucket=bucket.bucket,
            versioning_configuration=aws.s3.BucketVersioningVersioningConfigurationArgs(status="Enabled"),
            opts=child(self, rows.BUCKET_VERSIONING),
        )
        encryption = aws.s3.BucketServerSideEncryptionConfiguration(
            rows.BUCKET_ENCRYPTION.logical(name),
            bucket=bucket.bucket,
            rules=[_encryption(args.key_arn)],
            opts=child(self, rows.BUCKET_ENCRYPTION),
        )
        lifecycle = aws.s3.BucketLifecycleConfiguration(
            rows.BUCKET_LIFECYCLE.logical(name),
            bucket=bucket.bucket,
            rules=_lifecycle(args),
            opts=child(self, rows.BUCKET_LIFECYCLE, depends_on=[versioning]),
        )
        settings: list[pulumi.Resource] = [public, ownership, versioning, encryption, lifecycle]
        if args.lock:
            settings.append(
                aws.s3.BucketObjectLockConfiguration(
                    rows.BUCKET_OBJECT_LOCK.logical(name),
                    bucket=bucket.bucket,
                    rule=aws.s3.BucketObjectLockConfigurationRuleArgs(
                        default_retention=aws.s3.BucketObjectLockConfigurationRuleDefaultRetentionArgs(
                            days=args.lock.days, mode=args.lock.mode
                        )
                    ),
                    opts=child(self, rows.BUCKET_OBJECT_LOCK, depends_on=[versioning]),
                )
            )
        if args.log_to is not None:
            settings.append(
                aws.s3.BucketLogging(
                    rows.BUCKET_LOGGING.logical(name),
                    bucket=bucket.bucket,
                    target_bucket=args.log_to,
                    target_prefix=f"{args.purpose}/",
                    opts=child(self, rows.BUCKET_LOGGING),
                )
            )
        policy = aws.s3.BucketPolicy(
            rows.BUCKET_POLICY.logical(name),
            bucket=bucket.bucket,
            policy=policies.document([policies.only_over_tls(bucket.arn), *args.statements(bucket.arn)]),
            # S3 rejects a policy while the public access block is being written. The policy is created last, so dependents can wait for it alone.
            opts=child(self, rows.BUCKET_POLICY, depends_on=settings),
        )
        self.bucket = ready_after(bucket.bucket, [policy])
        self.arn = bucket.arn
        self.register_outputs({"bucket": self.bucket, "arn": self.arn})


def _encryption(key_arn: pulumi.Input[str] | None) -> aws.s3.BucketServerSideEncryptionConfigurationRuleArgs:
    default = aws.s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs(
        sse_algorithm="AES256" if key_arn is None else "aws:kms", kms_master_key_id=key_arn
    )
    return aws.s3.BucketServerSideEncryptionConfigurationRuleArgs(
        apply_server_side_encryption_by_default=default, bucket_key_enabled=key_arn is not None
    )


def _lifecycle(args: PrivateBucketArgs) -> list[aws.s3.BucketLifecycleConfigurationRuleArgs]:
    everything = aws.s3.BucketLifecycleConfigurationRuleFilterArgs(prefix="")
    rules = [
        aws.s3.BucketLifecycleConfigurationRuleArgs(
            id="old-versions",
            status="Enabled",
            filter=everything,
            noncurrent_version_expiration=aws.s3.BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs(
                noncurrent_days=args.old_versions_days
            ),
            abort_incomplete_multipart_upload=aws.s3.BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(
                days_after_initiation=7
            ),
        )
    ]
    if args.expire_days is not None:
        rules.append(
            aws.s3.BucketLifecycleConfigurationRuleArgs(
                id="expire",
                status="Enabled",
                filter=everything,
                expiration=aws.s3.BucketLifecycleConfigurationRuleExpirationArgs(days=args.expire_days),
            )
        )
    return rules
