"""Changes of Auto Scaling groups, replication rules and policies, and lists of versions, as `gpuinfra failover` and `gpuinfra failback` request them.

Requests and responses: the API references of EC2 Auto Scaling (SuspendProcesses, ResumeProcesses, UpdateAutoScalingGroup), S3 (ListObjectVersions,
PutBucketReplication, GetBucketPolicy, PutBucketPolicy) and KMS (GetKeyPolicy, PutKeyPolicy), retrieved 2026-11-29.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from gpuinfra_rehearsal.cloud.aws import access, operator
from gpuinfra_rehearsal.cloud.aws import versions as version_records
from gpuinfra_rehearsal.cloud.aws.groups import GROUP
from gpuinfra_rehearsal.cloud.aws.replication import CONFIGURATION, change_rules
from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource

_NS = "http://s3.amazonaws.com/doc/2006-03-01/"
_SIZES = {"MinSize": "minSize", "MaxSize": "maxSize", "DesiredCapacity": "desiredCapacity"}
_PROCESSES = "ScalingProcesses.member."


def suspend(cloud: Cloud, asked: Mapping[str, str], region: str) -> dict[str, Any]:
    """Suspend processes of a group."""
    group = _group(cloud, asked, region)
    held = [str(one) for one in group.plain.get("suspendedProcesses") or []]
    cloud.change(group, suspendedProcesses=[*held, *(one for one in _processes(asked) if one not in held)])
    return {}


def resume(cloud: Cloud, asked: Mapping[str, str], region: str) -> dict[str, Any]:
    """Resume processes of a group."""
    group, ended = _group(cloud, asked, region), _processes(asked)
    held = group.plain.get("suspendedProcesses") or []
    cloud.change(group, suspendedProcesses=[str(one) for one in held if one not in ended])
    return {}


def resize(cloud: Cloud, asked: Mapping[str, str], region: str) -> dict[str, Any]:
    """Change the sizes of a group."""
    group = _group(cloud, asked, region)
    if other := {*asked} - {*_SIZES, "AutoScalingGroupName", "Action", "Version"}:
        raise ApiRejected("ValidationError", f"changes of {', '.join(sorted(other))} are not supported in a rehearsal")
    cloud.change(group, **{ours: int(asked[name]) for name, ours in _SIZES.items() if name in asked})
    return {}


GROUP_CHANGES: dict[str, Callable[[Cloud, Mapping[str, str], str], dict[str, Any]]] = {
    "SuspendProcesses": suspend,
    "ResumeProcesses": resume,
    "UpdateAutoScalingGroup": resize,
}


def _processes(asked: Mapping[str, str]) -> list[str]:
    return [value for name, value in asked.items() if name.startswith(_PROCESSES)]


def _group(cloud: Cloud, asked: Mapping[str, str], region: str) -> Resource:
    name = asked.get("AutoScalingGroupName", "")
    group = cloud.store.find(GROUP, name, region)
    if group is None:
        text = f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found"
        raise ApiRejected("ValidationError", text)
    return group


def set_replication(cloud: Cloud, bucket: str, body: bytes) -> None:
    """Replace the rules of a bucket. Only the status of a rule can change."""
    from defusedxml.ElementTree import fromstring

    configuration = next((one for one in cloud.store.list(CONFIGURATION) if one.plain.get("bucket") == bucket), None)
    if configuration is None:
        raise ApiRejected("InvalidRequest", "new replication rules are not supported in a rehearsal", status=400)
    given = fromstring(body).findall(f"{{{_NS}}}Rule")
    status = {one.findtext(f"{{{_NS}}}ID"): one.findtext(f"{{{_NS}}}Status") for one in given}
    rules = wire.plain(configuration.inputs).get("rules") or []
    if {rule.get("id") for rule in rules} != set(status):
        raise ApiRejected("InvalidRequest", "only changes of the status are supported in a rehearsal", status=400)
    changed = [{**rule, "status": status[rule["id"]]} for rule in rules]
    change_rules(cloud.store, configuration, changed)
    cloud.change(configuration, rules=changed)


def bucket_policy(cloud: Cloud, bucket: str) -> str:
    """Return the response of `GetBucketPolicy`."""
    policies = access.bucket_policies(cloud.store, bucket)
    if not policies:
        raise ApiRejected("NoSuchBucketPolicy", "The bucket policy does not exist", status=404)
    return policies[0]


def set_bucket_policy(cloud: Cloud, bucket: str, body: bytes) -> None:
    """Replace the policy of a bucket. The other requests about policies are those of the provider."""
    policy_record = access.bucket_policy(cloud.store, bucket)
    if policy_record is None or not body:
        raise ApiRejected("InvalidRequest", "only changes of a bucket policy are supported in a rehearsal", status=400)
    cloud.change(policy_record, policy=_policy(body.decode(), "MalformedPolicy"))


def get_key_policy(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Return the policy of a key."""
    return {"Policy": str(_key(cloud, asked, region, "kms:GetKeyPolicy").plain.get("policy")), "PolicyName": "default"}


def put_key_policy(cloud: Cloud, asked: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Replace the policy of a key."""
    key = _key(cloud, asked, region, "kms:PutKeyPolicy")
    cloud.change(key, policy=_policy(str(asked.get("Policy")), "MalformedPolicyDocumentException"))
    return {}


def _key(cloud: Cloud, asked: Mapping[str, Any], region: str, action: str) -> Resource:
    name = str(asked.get("KeyId")).rpartition("/")[2]
    key = cloud.store.find("aws:kms/key:Key", name, region)
    if key is None or asked.get("PolicyName", "default") != "default":
        raise ApiRejected("NotFoundException", f"Key '{name}' does not exist")
    changed = {**key.plain, "policy": "{}"}
    asks = (
        operator.required(cloud.store, "update", key.type, changed, region, key)
        if action == "kms:PutKeyPolicy"
        else operator.required(cloud.store, "read", key.type, {}, region, key)
    )
    cloud.operator.check(operator, [one for one in asks if one.action == action])
    return key


def _policy(text: str, code: str) -> str:
    """Return the text of a policy. Raises `ApiRejected` if it is not one."""
    try:
        statements = json.loads(text)["Statement"]
    except (ValueError, KeyError, TypeError):
        statements = None
    if not isinstance(statements, list) or not statements:
        raise ApiRejected(code, "Policies must be valid JSON and contain a statement", status=400)
    return text


KEY_CHANGES = {"TrentService.GetKeyPolicy": get_key_policy, "TrentService.PutKeyPolicy": put_key_policy}


def versions(cloud: Cloud, bucket: str, prefix: str) -> str:
    """Return the response of `ListObjectVersions` in one page."""
    listed = "".join(
        f"<Version><Key>{escape(one.key)}</Key><VersionId>{one.version}</VersionId><IsLatest>{str(one.latest).lower()}</IsLatest>"
        f"<LastModified>{time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(one.modified))}</LastModified>"
        f"<ETag>&quot;{one.etag}&quot;</ETag><Size>{one.size}</Size><StorageClass>STANDARD</StorageClass></Version>"
        for one in version_records.listed(cloud.store, bucket, prefix)
    )
    return (
        "<ListVersionsResult "
        f'xmlns="{_NS}"><Name>{escape(bucket)}</Name><Prefix>{escape(prefix)}</Prefix><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{listed}</ListVersionsResult>'
    )
