"""CIS AWS Foundations 7.0: the controls that apply to the components."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.clouds.controls.control import Control, drop, each, has, put
from tests.clouds.recorder import Recording, Registered

BUCKET, POLICY = "aws:s3/bucket:Bucket", "aws:s3/bucketPolicy:BucketPolicy"
TRAIL, KEY, VPC = "aws:cloudtrail/trail:Trail", "aws:kms/key:Key", "aws:ec2/vpc:Vpc"
TEMPLATE, FLOW = "aws:ec2/launchTemplate:LaunchTemplate", "aws:ec2/flowLog:FlowLog"
INGRESS, CLOSED = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"  # fmt: skip
PUBLIC, LOGGING = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", "aws:s3/bucketLogging:BucketLogging"
ROLE, OWN, ENDPOINT = "aws:iam/role:Role", "aws:iam/rolePolicy:RolePolicy", "aws:ec2/vpcEndpoint:VpcEndpoint"
ANYWHERE = ("0.0.0.0/0", "::/0")
BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")


def _statements(one: Registered) -> list[dict[str, Any]]:
    return json.loads(one.inputs["policy"])["Statement"]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _everything(recording: Recording) -> Iterator[str]:
    for one in recording.of(OWN):
        for statement in _statements(one):
            if statement["Effect"] == "Allow" and any(action == "*" or action.endswith(":*") for action in _list(statement["Action"])):  # fmt: skip
                yield f"{one.name} allows everything in {statement['Sid']}"


def _keys_of_people(recording: Recording) -> Iterator[str]:
    yield from (f"{one.name} is a key of a person" for one in recording.custom if one.type in ("aws:iam/accessKey:AccessKey", "aws:iam/user:User"))  # fmt: skip
    yield from (f"{one.name} has no role" for one in recording.of(TEMPLATE) if not one.inputs.get("iamInstanceProfile"))


def _over_tls(policy: Registered, bucket: Registered) -> bool:
    denies = [s for s in _statements(policy) if s["Effect"] == "Deny" and s.get("Principal") == "*"]
    return policy.inputs["bucket"] == bucket.inputs["bucket"] and any(
        s["Condition"] == {"Bool": {"aws:SecureTransport": "false"}} and s["Action"] == "s3:*" for s in denies
    )


def _records_are_logged(recording: Recording) -> Iterator[str]:
    logged = {one.inputs["bucket"] for one in recording.of(LOGGING)}
    for trail in recording.of(TRAIL):
        if trail.inputs["s3BucketName"] not in logged:
            yield f"{trail.name} writes into a bucket without access logs"


def _selects(what: str) -> Any:
    def holds(trail: Registered) -> bool:
        for selector in trail.inputs.get("advancedEventSelectors") or []:
            fields = {field["field"]: field for field in selector["fieldSelectors"]}
            if fields.get("eventCategory", {}).get("equals") == ["Data"] and fields.get("resources.type", {}).get("equals") == ["AWS::S3::Object"]:  # fmt: skip
                only = fields.get("readOnly", {}).get("equals", [what])
                return only == [what]
        return False

    return holds


def _ports(rule: Registered) -> bool:
    """True if no administration port is open to any address."""
    if rule.inputs.get("cidrIpv4") not in ANYWHERE and rule.inputs.get("cidrIpv6") not in ANYWHERE:
        return True
    low, high = rule.inputs.get("fromPort", 0), rule.inputs.get("toPort", 65535)
    return rule.inputs["ipProtocol"] != "-1" and not any(low <= port <= high for port in (22, 3389))


def _disks(template: Registered) -> bool:
    disks = template.inputs.get("blockDeviceMappings") or []
    return bool(disks) and all(disk["ebs"].get("encrypted") == "true" for disk in disks)


CONTROLS = {
    "2.14": Control("no policy allows everything", _everything, lambda r: r.of(OWN)[0].inputs.update(policy='{"Statement": [{"Sid": "All", "Effect": "Allow", "Action": "*", "Resource": "*"}]}')),
    "2.16": Control("machines have roles and no access keys", _keys_of_people, put(TEMPLATE, iamInstanceProfile=None)),
    "3.1.1": Control("buckets deny what is not over TLS", has(BUCKET, POLICY, _over_tls, "takes requests without TLS"), drop(POLICY)),
    "3.1.4": Control("buckets block public access", has(BUCKET, PUBLIC, lambda block, bucket: block.inputs["bucket"] == bucket.inputs["bucket"] and all(block.inputs[key] is True for key in BLOCKS), "does not block public access"), put(PUBLIC, blockPublicPolicy=False)),
    "4.1": Control("the trail is of all regions", each(TRAIL, lambda one: one.inputs["isMultiRegionTrail"] and one.inputs["includeGlobalServiceEvents"], "is of one region"), put(TRAIL, isMultiRegionTrail=False)),
    "4.2": Control("log files are validated", each(TRAIL, lambda one: one.inputs["enableLogFileValidation"], "does not validate"), put(TRAIL, enableLogFileValidation=False)),
    "4.4": Control("access to the trail's bucket is logged", _records_are_logged, drop(LOGGING)),
    "4.5": Control("the trail has a key", each(TRAIL, lambda one: one.inputs.get("kmsKeyId"), "has no key"), put(TRAIL, kmsKeyId=None)),
    "4.6": Control("keys rotate", each(KEY, lambda one: one.inputs.get("enableKeyRotation") is True, "does not rotate"), put(KEY, enableKeyRotation=False)),
    "4.7": Control("each network logs its flows", has(VPC, FLOW, lambda flow, vpc: flow.inputs["vpcId"] == vpc.id and flow.inputs["trafficType"] in ("ALL", "REJECT"), "logs no flows"), drop(FLOW)),
    "4.8": Control("writes of the stack's objects are recorded", each(TRAIL, _selects("false"), "records no writes"), put(TRAIL, advancedEventSelectors=[])),
    "4.9": Control("reads of the stack's objects are recorded", each(TRAIL, _selects("true"), "records no reads"), put(TRAIL, advancedEventSelectors=[])),
    "6.1.1": Control("disks are encrypted", each(TEMPLATE, _disks, "has a plain disk"), put(TEMPLATE, blockDeviceMappings=[{"ebs": {"encrypted": "false"}}])),
    "6.3": Control("no administration port is open to IPv4 or (6.4) IPv6", each(INGRESS, _ports, "allows any source"), put(INGRESS, cidrIpv4="0.0.0.0/0", ipProtocol="tcp", fromPort=20, toPort=25)),
    "6.5": Control("the default group is closed", has(VPC, CLOSED, lambda group, vpc: group.inputs["vpcId"] == vpc.id and group.inputs["ingress"] == group.inputs["egress"] == [], "has an open default group"), put(CLOSED, egress=[{"protocol": "-1"}])),
    "6.7": Control("IMDSv2 only", each(TEMPLATE, lambda one: (one.inputs.get("metadataOptions") or {}).get("httpTokens") == "required", "takes IMDSv1"), put(TEMPLATE, metadataOptions={"httpTokens": "optional"})),
    "6.8": Control("S3 is reached by an endpoint", has(VPC, ENDPOINT, lambda endpoint, vpc: endpoint.inputs["vpcId"] == vpc.id and endpoint.inputs["serviceName"].endswith(".s3"), "has no endpoint"), drop(ENDPOINT)),
}  # fmt: skip

LEFT_OUT = {
    "2.18": "Access Analyzer exists once per account and region and does not belong to a cluster",
    "3.3.1": "no EFS file system is created",
    "4.3": "AWS Config exists once per account and region and does not belong to a cluster",
    "5": "metric filters and alarms belong to the account",
    "5.16": "Security Hub belongs to the account",
    "6.6": "no peering is created; the reachability tests detect an existing one",
}
"""Control numbers that are not asked, each with its reason."""
EXCEPTIONS: dict[tuple[str, str], str] = {}
"""(control, resource) -> reason for the exception."""
