"""The four ports on AWS, with boto3.

boto3 is imported when the first port is used, so previews do not load it. As with any AWS tool, credentials and endpoints come from
the profile, the role or the environment, never from the evidence.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import reason_of
from gpuinfra.base.safe_text import MAX_LINE, printable
from gpuinfra.clouds.aws import credentials
from gpuinfra.handover.ports import (
    PROOF_LIMIT,
    CloudTerms,
    EvidenceRef,
    GroupExpected,
    GroupProblem,
    Identity,
    IdentityExpired,
    IdentityRefused,
    IdentityUndecided,
    ListedObject,
    Member,
    Ports,
    PortUnavailable,
    StoredProof,
    evidence_in,
)
from gpuinfra.handover.refusals import Refusals
from gpuinfra.handover.trust import checked
from gpuinfra.node.aws import replacement
from gpuinfra.node.cloud import NoRedirect

LEAVING = ("Terminating", "Terminated", "Detaching", "Detached")
TRUST_VARIABLES = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_STS",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_AUTO_SCALING",
    "AWS_ENDPOINT_URL_EC2",
    "AWS_CA_BUNDLE",
)
PROOF_BODY = "Action=GetCallerIdentity&Version=2011-06-15"

SIGNED_HEADERS = {
    "content-type": r"application/x-www-form-urlencoded; charset=utf-8",
    "host": r"[a-zA-Z0-9.:-]+",
    "x-amz-content-sha256": r"[0-9a-f]{64}",
    "x-amz-date": r"\d{8}T\d{6}Z",
    "x-amz-security-token": r"[\x21-\x7e]+",
    "x-gpuinfra-evidence": r".*",
}
"""Headers that a node's request signs, with the format of their values. Other headers can change the response from STS."""
_STS = "{https://sts.amazonaws.com/doc/2011-06-15/}"

NODE = r"(?:(?P<owner>[A-Za-z0-9_-]+):)?(?P<instance>i-[0-9a-f]+)"

TERMS = CloudTerms(
    group="Auto Scaling group",
    template="launch template version",
    update="start an instance refresh for the Auto Scaling group, or terminate the instance so that the group replaces it",
    replace="terminate the instance so that the Auto Scaling group replaces it",
    activities="read the scaling activities of the Auto Scaling group",
)
REFUSALS = Refusals(Path(__file__).with_name("refusals.json"))


def connect(
    region: str, bucket: str, prefix: str, *, profile: str = "", role_arn: str = "", assume_roles: str = ""
) -> Ports:
    """Return the ports for one region, which use the operator's credentials."""
    session = _session(region, profile, role_arn, assume_roles)
    ec2 = _client(session, "ec2")
    return Ports(
        membership=AutoScalingMembership(_client(session, "autoscaling"), ec2),
        store=S3Evidence(_client(session, "s3"), bucket, prefix),
        identity=StsIdentity(_client(session, "sts")),
        console=Ec2Console(ec2),
    )


def check_credentials() -> None:
    """Do nothing: boto3 finds out whether there are credentials with its first request."""


def _client(session: Any, service: str) -> Any:
    """Return a client whose endpoint uses TLS. Endpoints can be set in variables and in the configuration file."""
    client = session.client(service)
    checked(client.meta.endpoint_url, f"the endpoint of {service} (AWS_ENDPOINT_URL, or endpoint_url in ~/.aws/config)")
    return client


def access(resources: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the arguments of `connect` with which the provider in a state signs its requests."""
    settings = credentials.of_provider(resources)
    return {"profile": settings.get(credentials.PROFILE, ""), "assume_roles": settings.get(credentials.ROLES, "")}


def _session(region: str, profile: str, role_arn: str, assume_roles: str) -> Any:
    settings: dict[str, object] = {credentials.PROFILE: profile, credentials.ROLES: assume_roles}
    if role_arn:
        settings = credentials.with_role(settings, role_arn, "gpuinfra-handover")
    return credentials.session(settings, region, base=botocore_session)


def botocore_session() -> Any:
    """Return a botocore session that parses ISO 8601 times quickly. With dateutil, which botocore uses, times take most of the CPU time of a list.

    The AWS CLI sets its parser in the same way: https://github.com/aws/aws-cli/blob/develop/awscli/customizations/scalarparse.py (retrieved 2026-11-26).
    """
    import botocore.session

    session = botocore.session.Session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_moment)
    return session


def _moment(value: Any) -> datetime:
    """Parse a time in a response, such as `2026-11-21T09:00:00.000Z`."""
    if isinstance(value, str) and value[10:11] == "T" and value.endswith("Z"):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    from botocore.utils import parse_timestamp

    moment: datetime = parse_timestamp(value)
    return moment


class AutoScalingMembership:
    """Members of Auto Scaling groups, with addresses and launch times from EC2."""

    def __init__(self, autoscaling: Any, ec2: Any) -> None:
        self._autoscaling = autoscaling
        self._ec2 = ec2

    def members(self, groups: Sequence[GroupExpected]) -> list[Member]:
        """Return the instances in the groups. An instance that EC2 does not list yet has no launch time."""
        held: list[tuple[str, dict[str, Any]]] = []
        with _cloud_errors():
            for names in _chunks([g.group for g in groups], 50):
                pages = self._autoscaling.get_paginator("describe_auto_scaling_groups").paginate(
                    AutoScalingGroupNames=names
                )
                for page in pages:
                    for group in page["AutoScalingGroups"]:
                        held += [(group["AutoScalingGroupName"], instance) for instance in group.get("Instances", [])]
            details = self._details([instance["InstanceId"] for _, instance in held])
        members: list[Member] = []
        for group, instance in held:
            more = details.get(instance["InstanceId"], {})
            template = instance.get("LaunchTemplate") or {}
            members.append(
                Member(
                    instance_id=instance["InstanceId"],
                    group=group,
                    template_version=str(template.get("Version", "")),
                    launched=more.get("LaunchTime"),
                    zone=(more.get("Placement") or {}).get("AvailabilityZone") or instance.get("AvailabilityZone", ""),
                    private_ip=more.get("PrivateIpAddress", ""),
                    leaving=instance.get("LifecycleState", "").startswith(LEAVING)
                    or (more.get("State") or {}).get("Name") in ("shutting-down", "terminated"),
                )
            )
        return members

    def _details(self, instances: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return EC2's instance descriptions by instance ID. The request uses a filter,
        because a terminated instance in `InstanceIds` makes the request fail."""
        details: dict[str, dict[str, Any]] = {}
        for ids in _chunks(list(instances), 200):
            pages = self._ec2.get_paginator("describe_instances").paginate(
                Filters=[{"Name": "instance-id", "Values": ids}]
            )
            for page in pages:
                for reservation in page["Reservations"]:
                    details.update({i["InstanceId"]: i for i in reservation["Instances"]})
        return details

    def problems(self, groups: Sequence[GroupExpected]) -> list[GroupProblem]:
        """Return the failed activities since the last successful launch."""
        problems: list[GroupProblem] = []
        for group in groups:
            with _cloud_errors():
                answer = self._autoscaling.describe_scaling_activities(AutoScalingGroupName=group.group, MaxRecords=20)
            for activity in answer["Activities"]:
                status = activity.get("StatusCode", "")
                if status == "Successful" and "Launching" in activity.get("Description", ""):
                    break
                if status in ("Failed", "Cancelled") and activity.get("StatusMessage"):
                    message = " ".join(str(activity["StatusMessage"]).split())
                    problems.append(REFUSALS.problem(group.group, message, activity.get("StartTime")))
        return problems

    def proceed(self, groups: Sequence[GroupExpected]) -> list[str]:
        """Start an instance refresh for the remaining instances in each group whose last refresh ended at its canary.

        A refresh whose last checkpoint is below 100 % ends successfully at this checkpoint
        (https://docs.aws.amazon.com/autoscaling/ec2/userguide/enable-checkpoints-console-cli.html, retrieved 2026-11-22).
        """
        started: list[str] = []
        for group in groups:
            with _cloud_errors():
                answer = self._autoscaling.describe_instance_refreshes(AutoScalingGroupName=group.group, MaxRecords=1)
                preferences = stopped_at_canary(answer["InstanceRefreshes"])
                if preferences is None:
                    continue
                try:
                    self._autoscaling.start_instance_refresh(
                        AutoScalingGroupName=group.group, Strategy="Rolling", Preferences=preferences
                    )
                except self._autoscaling.exceptions.InstanceRefreshInProgressFault:
                    continue
            started.append(group.name)
        return started

    def replace(self, group: GroupExpected, instance_id: str) -> None:
        """Terminate an instance. The group launches a new instance, because the desired capacity does not change.

        https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_TerminateInstanceInAutoScalingGroup.html (retrieved 2026-11-26).
        """
        with _cloud_errors():
            self._autoscaling.terminate_instance_in_auto_scaling_group(**replacement(instance_id))


_CARRIED = ("MinHealthyPercentage", "MaxHealthyPercentage", "InstanceWarmup")


def stopped_at_canary(refreshes: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the preferences for refreshing the rest of a group if its newest refresh ended at a checkpoint below 100 %, otherwise None."""
    if not refreshes or refreshes[0].get("Status") != "Successful":
        return None
    before = refreshes[0].get("Preferences") or {}
    checkpoints = before.get("CheckpointPercentages") or [100]
    if checkpoints[-1] >= 100:
        return None
    # `SkipMatching` leaves the verified nodes of the canary in place.
    return {key: before[key] for key in _CARRIED if key in before} | {"SkipMatching": True}


class S3Evidence:
    """Evidence under one prefix of the evidence bucket: `<prefix>/[<owner>:]<instance>/<boot>/<seq>.json`."""

    def __init__(self, s3: Any, bucket: str, prefix: str) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._prefix = prefix.strip("/") + "/"

    def folders(self) -> Iterator[str]:
        """Return the names of the folders. S3 returns the keys under a folder as one `CommonPrefixes` element, and up to 1,000 elements per request.

        https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html (retrieved 2026-11-26).
        """
        for page in self._pages(Prefix=self._prefix, Delimiter="/"):
            for entry in page.get("CommonPrefixes", []):
                yield entry["Prefix"].removeprefix(self._prefix).rstrip("/")

    def list(self, folder: str) -> Iterator[EvidenceRef]:
        """List the evidence in a folder. Other keys are skipped."""
        return evidence_in(NODE, self._prefix, self._in_folder(f"{self._prefix}{folder}/"))

    def _in_folder(self, prefix: str) -> Iterator[ListedObject]:
        for page in self._pages(Prefix=prefix):
            for entry in page.get("Contents", []):
                yield ListedObject(key=entry["Key"], etag=entry.get("ETag", ""), modified=entry["LastModified"])

    def _pages(self, **query: str) -> Iterator[dict[str, Any]]:
        with _cloud_errors():
            yield from self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, **query)

    def read(self, ref: EvidenceRef) -> bytes:
        """Read one piece of evidence, up to the size limit."""
        return self._get(ref.key, ref.limit)

    def proof(self, proof: StoredProof) -> bytes | None:
        """Return the content of an identity proof, or None if it does not exist anymore."""
        return self.published(proof.key, PROOF_LIMIT)

    def publish(self, key: str, document: Mapping[str, object]) -> None:
        """Write or replace an object in the bucket."""
        self._put(key, document)

    def tagged(self, key: str) -> tuple[bytes, str] | None:
        """Return an object and its ETag, or None if it does not exist."""
        try:
            with _cloud_errors():
                answer = self._s3.get_object(Bucket=self._bucket, Key=key)
                return answer["Body"].read(1 << 20), str(answer["ETag"])
        except RequestFailed as error:
            if error.code == "NoSuchKey":
                return None
            raise

    def update(self, key: str, document: Mapping[str, object], tag: str | None) -> bool:
        """Write an object if its ETag did not change (https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html, retrieved
        2026-11-26)."""
        try:
            self._put(key, document, **({"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}))
        except RequestFailed as error:
            if error.code in ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"):
                return False
            raise
        return True

    def _put(self, key: str, document: Mapping[str, object], **guard: str) -> None:
        body = json.dumps(document, separators=(",", ":")).encode("ascii")
        with _cloud_errors():
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType="application/json", **guard)

    def published(self, key: str, limit: int = 1 << 20) -> bytes | None:
        """Return the first bytes of an object in the bucket, or None if it does not exist."""
        try:
            return self._get(key, limit)
        except RequestFailed as error:
            if error.code == "NoSuchKey":
                return None
            raise

    def _get(self, key: str, limit: int) -> bytes:
        with _cloud_errors():
            body = self._s3.get_object(Bucket=self._bucket, Key=key)["Body"]
            return body.read(limit)


class Ec2Console:
    """The console log that EC2 stores."""

    def __init__(self, ec2: Any) -> None:
        self._ec2 = ec2

    def tail(self, instance_id: str, lines: int) -> list[str]:
        """Return the last lines of the log, or an empty string if EC2 has no log."""
        with _cloud_errors():
            answer = self._ec2.get_console_output(InstanceId=instance_id, Latest=True)
        return [printable(line, MAX_LINE) for line in str(answer.get("Output") or "").splitlines()[-lines:]]


class StsIdentity:
    """Replays a node's signed `GetCallerIdentity` request at the regional STS endpoint.

    A proof cannot choose the host, path, method or body of the request.
    Only identities in the operator's own account are accepted."""

    def __init__(self, sts: Any) -> None:
        self._sts = sts
        self._endpoint: str = sts.meta.endpoint_url.rstrip("/")
        self._account: str | None = None

    def verify(self, proof: dict[str, object]) -> Identity:
        """Return the signer and the evidence hash."""
        headers, sha256 = check_proof(proof, urllib.parse.urlsplit(self._endpoint).netloc)
        identity = parse_caller(self._send(headers), sha256)
        if self._account is None:
            with _cloud_errors():
                self._account = str(self._sts.get_caller_identity()["Account"])
        if identity.account != self._account:
            raise IdentityRefused(
                f"the node's evidence was signed in account {identity.account}, not in account {self._account}"
            )
        return identity

    def _send(self, headers: dict[str, str]) -> bytes:
        request = urllib.request.Request(f"{self._endpoint}/", data=PROOF_BODY.encode(), headers=headers, method="POST")
        opener = urllib.request.build_opener(NoRedirect, urllib.request.ProxyHandler())
        try:
            with opener.open(request, timeout=15) as answer:
                return answer.read(PROOF_LIMIT)
        except urllib.error.HTTPError as error:
            text = error.read(PROOF_LIMIT).decode(errors="replace")
            code = re.search(r"<Code>([\w.]+)</Code>", text)
            name = code[1] if code else str(error.code)
            if name in ("Throttling", "ThrottlingException", "RequestLimitExceeded"):
                raise PortUnavailable(f"STS returned {error.code} {name}") from None
            if error.code >= 500:
                # The headers of a proof can cause an error of the service, which must affect only the node that wrote them.
                raise IdentityUndecided(f"STS returned {error.code} {name} for the node's identity proof") from None
            if name in ("ExpiredToken", "RequestExpired", "RequestExpiredException") or "expired" in text.lower():
                raise IdentityExpired(f"the node's identity proof is too old ({name})") from None
            raise IdentityRefused(f"STS refused the node's identity proof: {name}") from None
        except (OSError, http.client.HTTPException) as error:
            raise PortUnavailable(f"STS cannot be reached: {reason_of(error)}") from None


def check_proof(proof: dict[str, object], host: str) -> tuple[dict[str, str], str]:
    """Return the headers to send and the evidence hash that they sign. Raises `IdentityRefused` if the proof contains anything unexpected."""
    request = proof.get("request")
    if proof.get("schema") != "gpuinfra.proof/1" or not isinstance(request, dict):
        raise IdentityRefused("the node's identity proof does not have the schema gpuinfra.proof/1")
    expected = {"method": "POST", "path": "/", "query": "", "body": PROOF_BODY}
    for name, value in expected.items():
        if request.get(name) != value:
            raise IdentityRefused(
                f"the node's identity proof has {name} {str(request.get(name))[:80]!r}, expected {value!r}"
            )
    raw = request.get("headers")
    if not isinstance(raw, dict):
        raise IdentityRefused("the node's identity proof has no headers")
    given = {str(k).lower(): str(v) for k, v in raw.items()}
    if len(given) != len(raw) or any("\n" in v or "\r" in v for v in given.values()):
        raise IdentityRefused("the node's identity proof has duplicate or invalid headers")
    if given.get("host", "") != host:
        raise IdentityRefused(f"the node's identity proof is for host {given.get('host', '')[:80]}, expected {host}")
    signed = re.search(r"SignedHeaders=([a-z0-9;-]+)", given.get("authorization", ""))
    names = set(signed[1].split(";")) if signed else set()
    lacking = {"host", "x-amz-date", "x-gpuinfra-evidence"} - names
    if lacking:
        raise IdentityRefused(f"the node's identity proof does not sign {', '.join(sorted(lacking))}")
    if more := names - SIGNED_HEADERS.keys():
        raise IdentityRefused(
            f"the node's identity proof signs {min(more)[:80]}, which is not a header of a node's request"
        )
    for name, form in SIGNED_HEADERS.items():
        if name in names and not re.fullmatch(form, given.get(name, "")):
            raise IdentityRefused(
                f"the node's identity proof has an invalid {name} header: {given.get(name, '')[:80]!r}"
            )
    sha256 = given.get("x-gpuinfra-evidence", "")
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise IdentityRefused("the node's identity proof contains no evidence hash")
    send = {
        name: given[name]
        for name in names | {"authorization", "x-amz-security-token"}
        if name in given and name != "host"
    }
    return send, sha256


def parse_caller(answer: bytes, sha256: str) -> Identity:
    """Parse the XML response from STS."""
    from defusedxml.ElementTree import fromstring

    try:
        root = fromstring(answer)
    except Exception as error:
        # A proof cannot cause this error, because its headers are fixed. The response does not come from STS.
        raise PortUnavailable(f"cannot parse the response from STS: {type(error).__name__}") from None
    result = root.findall(f"{_STS}GetCallerIdentityResult")
    arns = [(one.text or "") for one in result[0].findall(f"{_STS}Arn")] if len(result) == 1 else []
    if root.tag != f"{_STS}GetCallerIdentityResponse" or len(arns) != 1:
        raise IdentityRefused("the response from STS to the node's identity proof is not a GetCallerIdentityResponse")
    match = re.fullmatch(r"arn:[\w-]+:sts::(\d{12}):assumed-role/([\w+=,.@-]+)/([\w+=,.@-]+)", arns[0])
    if match is None:
        raise IdentityRefused(f"the node's evidence was signed by {arns[0][:120]}, which is not a node role")
    return Identity(account=match[1], role=match[2], instance_id=match[3], evidence_sha256=sha256)


class RequestFailed(PortUnavailable):
    """A request failed. `code` is the error code of AWS, or an empty string without a response."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(" ".join(str(error).split()))
        self.code = str(getattr(error, "response", {}).get("Error", {}).get("Code") or "")


class _cloud_errors:
    """Convert boto3 exceptions to `RequestFailed` with the message from the cloud."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, PortUnavailable):
            return
        from botocore.exceptions import BotoCoreError, ClientError

        if isinstance(error, BotoCoreError | ClientError | OSError):
            raise RequestFailed(error) from error


def _chunks(items: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (items[i : i + size] for i in range(0, len(items), size))
