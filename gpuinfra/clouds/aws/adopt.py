"""Find the AWS resources that `destroy` retained, for `gpuinfra adopt`.

Names are derived from the account, region and stack (`gpuinfra.base.naming`), so no saved state is needed.
This module makes only read requests; Pulumi imports the resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuinfra.base import naming
from gpuinfra.clouds.aws import credentials, file_systems
from gpuinfra.clouds.aws.instances import Lookup
from gpuinfra.clouds.aws.resources import resources
from gpuinfra.plan.model import Plan
from gpuinfra.plan.planned import RetainedResource, bucket_names, find_retained

if TYPE_CHECKING:
    import boto3

_GONE = frozenset({"404", "NoSuchBucket", "NotFoundException", "ResourceNotFoundException"})
"""Error codes for a resource that does not exist. Any other code, such as access denied, is raised as an error."""
_DELETED = ("deleting", "deleted")
"""States in which the files of an EFS file system are lost."""


class Account:
    """Cached lookups in one account and region."""

    def __init__(self, session: boto3.Session, plan: Plan, token: str) -> None:
        self._session, self._plan, self._token = session, plan, token
        self._known: dict[tuple[str, str, str], str | None] = {}
        self._region = plan.region
        self.id: str = self._client("sts").get_caller_identity()["Account"]

    def find(self, lookup: Lookup) -> str | None:
        """Return the import ID of a resource, or `None` if the resource does not exist."""
        kind = "key" if lookup.kind == "alias" else lookup.kind
        self._region = lookup.region or self._plan.region
        if (kind, lookup.purpose, self._region) not in self._known:
            search = {
                "bucket": self._bucket,
                "key": self._key,
                "log-group": self._log_group,
                "vpc": self._vpc,
                "subnet": self._subnet,
                "security-group": self._security_group,
                "file-system": self._file_system,
                "file-system-log-group": self._file_system_logs,
                "home": self._home,
                "openzfs": self._openzfs,
            }
            self._known[kind, lookup.purpose, self._region] = search[kind](lookup.purpose)
        id_ = self._known[kind, lookup.purpose, self._region]
        if id_ and lookup.kind == "alias":
            id_ = self._alias(lookup.purpose)
        # Without a Region in the ID, the provider imports from its own Region (pulumi-aws guide "Enhanced Region Support", retrieved 2026-11-22).
        return f"{id_}@{lookup.region}" if id_ and lookup.region else id_

    def _client(self, service: str) -> Any:
        return self._session.client(service, region_name=self._region)  # pyright: ignore[reportCallIssue, reportArgumentType]

    def _bucket(self, purpose: str) -> str | None:
        name = naming.bucket_name(self._plan.name, purpose, self.id, self._region, self._token)
        return name if _answer(self._client("s3").head_bucket, Bucket=name, ExpectedBucketOwner=self.id) else None

    def _alias(self, purpose: str) -> str:
        return f"alias/gpuinfra/{naming.unique_name(self._plan.name, purpose, self._token)}"

    def _key(self, purpose: str) -> str | None:
        answer = _answer(self._client("kms").describe_key, KeyId=self._alias(purpose))
        return answer["KeyMetadata"]["KeyId"] if answer else None

    def _log_group(self, purpose: str) -> str | None:
        return self._log_group_called(f"/gpuinfra/{naming.unique_name(self._plan.name, purpose, self._token)}")

    def _file_system_logs(self, purpose: str) -> str | None:
        return self._log_group_called(file_systems.log_group(self._plan.name, purpose, self._token))

    def _log_group_called(self, name: str) -> str | None:
        groups = self._client("logs").describe_log_groups(logGroupNamePrefix=name)["logGroups"]
        return name if any(group["logGroupName"] == name for group in groups) else None

    def _storage_group(self, purpose: str = "storage") -> dict[str, Any] | None:
        named = {"Name": "group-name", "Values": [naming.unique_name(self._plan.name, purpose, self._token)]}
        groups = self._client("ec2").describe_security_groups(Filters=[named])["SecurityGroups"]
        return groups[0] if groups else None

    def _security_group(self, purpose: str) -> str | None:
        group = self._storage_group(purpose)
        return group["GroupId"] if group else None

    def _vpc(self, purpose: str) -> str | None:
        """Return the VPC of the storage security group. The group name is unique, whereas another stack can have the same tags."""
        group = self._storage_group()
        return group["VpcId"] if group else None

    def _subnet(self, purpose: str) -> str | None:
        vpc = self._vpc(purpose)
        if vpc is None:
            return None
        wanted = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "tag:Name", "Values": [purpose]}]
        subnets = self._client("ec2").describe_subnets(Filters=wanted)["Subnets"]
        return subnets[0]["SubnetId"] if subnets else None

    def _file_system(self, purpose: str) -> str | None:
        return file_systems.find(self._client("fsx"), file_systems.log_group(self._plan.name, purpose, self._token))

    def _openzfs(self, purpose: str) -> str | None:
        return file_systems.find(self._client("fsx"), naming.unique_name(self._plan.name, purpose, self._token))

    def _home(self, purpose: str) -> str | None:
        token = naming.unique_name(self._plan.name, purpose, self._token)
        systems = self._client("efs").describe_file_systems(CreationToken=token)["FileSystems"]
        return next((str(one["FileSystemId"]) for one in systems if one["LifeCycleState"] not in _DELETED), None)


def buckets(plan: Plan, account: str, token: str) -> list[str]:
    """Return the names of the buckets of a plan. `destroy` retains all of them."""
    return bucket_names(
        resources(plan),
        lambda one: naming.bucket_name(plan.name, one.purpose, account, one.region or plan.region, token),
    )


def look(
    plan: Plan, token: str, settings: Mapping[str, object], profile: str | None
) -> Sequence[RetainedResource[Lookup]]:
    """Find the retained resources of a plan's stack, using the credentials from the named profile, those of the provider or the environment."""
    from gpuinfra.base.errors import EnvironmentMissing

    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise EnvironmentMissing("`gpuinfra adopt` requires boto3; run: pip install 'gpuinfra[aws]'") from None
    try:
        return retained_in(
            Account(credentials.session({credentials.PROFILE: profile} if profile else settings), plan, token),
            plan,
        )
    except (BotoCoreError, ClientError) as problem:
        raise EnvironmentMissing(
            f"the request to AWS failed: {problem}; check the credentials with: aws sts get-caller-identity"
        ) from None


def retained_in(account: Account, plan: Plan) -> Sequence[RetainedResource[Lookup]]:
    """Return the retained resources of a plan that exist in the account."""
    return find_retained(resources(plan), account.find)


def _answer(call: Any, **arguments: str) -> dict[str, Any] | None:
    from botocore.exceptions import ClientError

    try:
        return call(**arguments)
    except ClientError as problem:
        if problem.response["Error"]["Code"] in _GONE:
            return None
        raise
