"""AWS access from a node, using only the standard library: instance identity, object storage and identity proof.

Custom endpoints come only from the variables that every AWS SDK reads:
AWS_ENDPOINT_URL and its variants for one service, such as AWS_ENDPOINT_URL_S3, and AWS_EC2_METADATA_SERVICE_ENDPOINT.
The requests are signed here because curl's own signing is broken on Ubuntu 22.04.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

from .cloud import (
    CloudError,
    FaultyNode,
    Refused,
    change,
    error_code,
    field,
    get_optional,
    make_proof,
    optional_metadata,
    put_with_retry,
    read_metadata,
    read_secret,
)
from .notices import Notice, NoticeKind, moment

PROOF_BODY = "Action=GetCallerIdentity&Version=2011-06-15"
DATA_DEVICE = "/dev/sdf"
"""Name of the device in a request. Instances of Nitro show another name."""
_UNRESERVED = "-_.~"
_TOKEN_S, _RENEW_S = 300, 240.0
"""Lifetime of a token of the metadata service, and the age at which a new token is requested. The service refuses an expired token:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html, retrieved 2026-11-27."""


@dataclass(frozen=True)
class Credentials:
    """Temporary credentials of the node's role. The repr contains none of the fields."""

    access_key: str
    secret_key: str
    token: str

    def __repr__(self) -> str:
        return "Credentials(...)"


class Metadata:
    """The instance metadata service, version 2 only."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._base = (environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or "http://169.254.169.254").rstrip("/")
        self._token, self._renew = "", 0.0

    def get(self, path: str) -> str:
        """Return one metadata value."""
        now = time.monotonic()
        if not self._token or now >= self._renew:
            self._token = self._call("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_S)})
            self._renew = now + _RENEW_S
        try:
            return self._call("GET", path, {"X-aws-ec2-metadata-token": self._token})
        except CloudError:
            self._token = ""  # the service may have lost the token
            raise

    def identity(self) -> dict[str, Any]:
        """Return the instance identity document: instance ID, region, account."""
        return json.loads(self.get("dynamic/instance-identity/document"))

    def credentials(self) -> Credentials:
        """Return the credentials of the role in the instance profile."""
        role = self.get("meta-data/iam/security-credentials/").split("\n")[0].strip()
        text = self.get("meta-data/iam/security-credentials/" + urllib.parse.quote(role))
        try:
            answer = json.loads(text)
            if answer.get("Code") in (None, "Success"):
                return Credentials(answer["AccessKeyId"], answer["SecretAccessKey"], answer["Token"])
            problem = str(answer.get("Message", answer.get("Code")))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            problem = "unreadable answer (%s)" % error
        raise CloudError("the metadata service returned no credentials: %s" % problem)

    def _call(self, method: str, path: str, headers: dict[str, str]) -> str:
        url = "%s/latest/%s" % (self._base, path)
        request = urllib.request.Request(url, method=method, headers=headers)
        return read_metadata(request, "the metadata service", path)[1]


def sign(
    credentials: Credentials,
    *,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    service: str,
    region: str,
    now: datetime.datetime,
) -> dict[str, str]:
    """Return all headers of a request, signed with AWS Signature Version 4."""
    parts = urllib.parse.urlsplit(url)
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    payload = hashlib.sha256(body).hexdigest()
    whole = {name: " ".join(str(value).split()) for name, value in headers.items()}
    whole.update({"Host": parts.netloc, "X-Amz-Date": stamp})
    if credentials.token:
        whole["X-Amz-Security-Token"] = credentials.token
    if service == "s3":
        whole["X-Amz-Content-SHA256"] = payload
    names = sorted(name.lower() for name in whole)
    by_lower = {name.lower(): value for name, value in whole.items()}
    query = "&".join(
        "%s=%s" % (urllib.parse.quote(name, safe=_UNRESERVED), urllib.parse.quote(value, safe=_UNRESERVED))
        for name, value in sorted(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
    )
    canonical = "\n".join(
        (
            method,
            parts.path or "/",
            query,
            "".join("%s:%s\n" % (name, by_lower[name]) for name in names),
            ";".join(names),
            payload,
        )
    )
    scope = "%s/%s/%s/aws4_request" % (stamp[:8], region, service)
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = ("AWS4" + credentials.secret_key).encode()
    for part in (stamp[:8], region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    whole["Authorization"] = "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s" % (
        credentials.access_key,
        scope,
        ";".join(names),
        signature,
    )
    return whole


def object_url(bucket: str, key: str, region: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the URL of an object: at the regional AWS endpoint, or in path style at the endpoint that the environment sets."""
    path = urllib.parse.quote(key, safe="/" + _UNRESERVED)
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        return "%s/%s/%s" % (endpoint.rstrip("/"), bucket, path)
    if "." in bucket:  # virtual-host names with a dot do not match the wildcard certificate
        return "https://s3.%s.%s/%s/%s" % (region, _suffix(region), bucket, path)
    return "https://%s.s3.%s.%s/%s" % (bucket, region, _suffix(region), path)


def sts_url(region: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the regional STS endpoint."""
    endpoint = environ.get("AWS_ENDPOINT_URL_STS") or environ.get("AWS_ENDPOINT_URL")
    return (endpoint.rstrip("/") if endpoint else "https://sts.%s.%s" % (region, _suffix(region))) + "/"


def ssm_url(region: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the regional endpoint of Systems Manager."""
    endpoint = environ.get("AWS_ENDPOINT_URL_SSM") or environ.get("AWS_ENDPOINT_URL")
    return (endpoint.rstrip("/") if endpoint else "https://ssm.%s.%s" % (region, _suffix(region))) + "/"


def autoscaling_url(region: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the regional endpoint of Auto Scaling."""
    endpoint = environ.get("AWS_ENDPOINT_URL_AUTO_SCALING") or environ.get("AWS_ENDPOINT_URL")
    return (endpoint.rstrip("/") if endpoint else "https://autoscaling.%s.%s" % (region, _suffix(region))) + "/"


def ec2_url(region: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the regional endpoint of EC2."""
    endpoint = environ.get("AWS_ENDPOINT_URL_EC2") or environ.get("AWS_ENDPOINT_URL")
    return (endpoint.rstrip("/") if endpoint else "https://ec2.%s.%s" % (region, _suffix(region))) + "/"


def replacement(instance_id: str) -> dict[str, Any]:
    """Return the arguments of `TerminateInstanceInAutoScalingGroup` that replace an instance: the desired capacity does not change, so the group
    launches another one (https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_TerminateInstanceInAutoScalingGroup.html, retrieved 2026-11-26)."""
    return {"InstanceId": instance_id, "ShouldDecrementDesiredCapacity": False}


def _error_type(text: str) -> str:
    kind = re.search(r'"__type"\s*:\s*"(?:[^"#]*#)?(\w+)"', text)
    return kind[1] if kind else "without an error type"


def _suffix(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


class AwsNode:
    """A node's cloud (`cloud.NodeCloud`): the instance's role, S3 and STS of one region."""

    notice_poll_s = 5.0
    """AWS recommends to check for interruption notices every five seconds:
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html, retrieved 2026-11-28."""

    def __init__(self, region: str, environ: Mapping[str, str]) -> None:
        self._region = region
        self._environ = environ
        self._metadata = Metadata(environ)

    def instance_id(self) -> str:
        """Return the instance ID, `i-...`, from the identity document."""
        try:
            return str(self._metadata.identity()["instanceId"])
        except (KeyError, ValueError) as error:
            raise CloudError("cannot read the identity document from the metadata service: %s" % error) from None

    def put(self, bucket: str, key: str, body: bytes, *, once: bool) -> None:
        """Write one object to a bucket. With `once`, an existing object is not replaced, so evidence is append-only."""
        url = object_url(bucket, key, self._region, self._environ)
        headers = {"Content-Type": "application/json"}
        if once:
            headers["If-None-Match"] = "*"

        def request() -> urllib.request.Request:
            signed = self._sign("PUT", url, headers, body, "s3", _utc_now())
            return urllib.request.Request(url, data=body, method="PUT", headers=signed)

        put_with_retry(
            request,
            "s3://%s/%s" % (bucket, key),
            once=once,
            own=True,
            explain=lambda error, text: error_code(text),
            exists=lambda status, code: status == 412,
            retried=(403, 409, 429),
        )

    def get(self, bucket: str, key: str, limit: int = 65536) -> bytes | None:
        """Return the first bytes of an object, or None if it does not exist.

        In folders that nodes cannot list, S3 returns 403 for a missing object. Both 403 and 404 mean "not yet".
        """
        return get_optional(
            self._reads(object_url(bucket, key, self._region, self._environ)), "s3://%s/%s" % (bucket, key), limit
        )

    def _reads(self, url: str) -> Callable[[], urllib.request.Request]:
        """Return a function that makes a signed GET request."""
        return lambda: urllib.request.Request(url, headers=self._sign("GET", url, {}, b"", "s3", _utc_now()))

    def proof(self, evidence_sha256: str, now: datetime.datetime) -> dict[str, Any]:
        """Return a signed `GetCallerIdentity` request that contains the evidence hash. It is valid for a few minutes.

        Only this instance's role can sign it. The verifier sends it to the region's own STS endpoint, never to a host that the proof names.
        """
        headers = {
            "Content-Type": "application/x-www-form-urlencoded; charset=utf-8",
            "X-Gpuinfra-Evidence": evidence_sha256,
        }
        url = sts_url(self._region, self._environ)
        signed = self._sign("POST", url, headers, PROOF_BODY.encode(), "sts", now)
        request = {"method": "POST", "path": "/", "query": "", "headers": signed, "body": PROOF_BODY}
        return make_proof("aws", evidence_sha256, now, request=request)

    def secret(self, name: str) -> str:
        """Return the decrypted value of a parameter in SSM Parameter Store. Makes one attempt.

        GetParameter: https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_GetParameter.html, retrieved 2026-11-29.
        """
        url, body = ssm_url(self._region, self._environ), json.dumps({"Name": name, "WithDecryption": True}).encode()
        headers = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "AmazonSSM.GetParameter"}
        signed = self._sign("POST", url, headers, body, "ssm", _utc_now())
        request = urllib.request.Request(url, data=body, method="POST", headers=signed)
        text = read_secret(request, "parameter %s" % name, _error_type)
        try:
            return str(json.loads(text)["Parameter"]["Value"])
        except (ValueError, KeyError, TypeError):
            raise CloudError("Parameter Store returned no value for the parameter %s" % name) from None

    def replace_node(self, node: FaultyNode) -> bool:
        """Request the replacement of a node. Returns False if it is no longer in a group. Makes one attempt.

        The request names the instance, so it can be repeated: an instance that is already terminating is not replaced twice.
        """
        asked = {
            "Action": "TerminateInstanceInAutoScalingGroup",
            "Version": "2011-01-01",
            **replacement(node.instance_id),
        }
        try:
            url = autoscaling_url(self._region, self._environ)
            change(self._query("autoscaling", url, asked), "instance %s" % node.name, error_code)
        except Refused as error:
            # The only error of a request for an instance that is not in a group (botocore has no other shape; the text is in the stand-in's tests).
            if error.code == "ValidationError":
                return False
            raise
        return True

    def disk_links(self, disk: str) -> Sequence[str]:
        """Return the link that udev makes from the model and the serial number, which is the ID of the volume without the hyphen.
        Several public storage drivers search for this link (seen 2026-11-30)."""
        return ("/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_%s" % disk.replace("-", ""),)

    def attach_disk(self, disk: str) -> None:
        """Request that a volume is attached to this instance. Makes one attempt. A volume that an instance has is `VolumeInUse`.

        AttachVolume: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_AttachVolume.html, retrieved 2026-11-30.
        """
        asked = {"VolumeId": disk, "InstanceId": self.instance_id(), "Device": DATA_DEVICE}
        asked = {"Action": "AttachVolume", "Version": "2016-11-15", **asked}
        change(self._query("ec2", ec2_url(self._region, self._environ), asked), "volume %s" % disk, error_code)

    def _query(self, service: str, url: str, asked: Mapping[str, Any]) -> urllib.request.Request:
        """Return a signed request of the query protocol."""
        body = urllib.parse.urlencode(
            {key: str(value).lower() if value is False else value for key, value in asked.items()}
        ).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        signed = self._sign("POST", url, headers, body, service, _utc_now())
        return urllib.request.Request(url, data=body, method="POST", headers=signed)

    def _sign(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, service: str, now: datetime.datetime
    ) -> dict[str, str]:
        return sign(
            self._metadata.credentials(),
            method=method,
            url=url,
            headers=headers,
            body=body,
            service=service,
            region=self._region,
            now=now,
        )

    def notice_sources(self) -> Mapping[str, Callable[[], list[Notice]]]:
        """Return the interruption of a spot instance, the rebalance recommendation and the scheduled events.

        Paths and bodies: the pages spot-instance-termination-notices, rebalance-recommendations and viewing_scheduled_events of the EC2
        user guide, retrieved 2026-11-28.
        """
        return {"spot": self._interruption, "rebalance": self._rebalance, "maintenance": self._scheduled}

    def _interruption(self) -> list[Notice]:
        notice = self._document("spot/instance-action")
        if not notice:
            return []
        action, time_ = str(notice.get("action")), notice.get("time")
        return [Notice("spot %s" % time_, NoticeKind.RECLAIM, "spot interruption: %s" % action, moment(time_))]

    def _rebalance(self) -> list[Notice]:
        notice = self._document("events/recommendations/rebalance")
        if not notice:
            return []
        return [
            Notice("rebalance %s" % notice.get("noticeTime"), NoticeKind.REBALANCE, "rebalance recommendation", None)
        ]

    def _scheduled(self) -> list[Notice]:
        events = self._document("events/maintenance/scheduled")
        return [
            Notice(str(one.get("EventId")), NoticeKind.MAINTENANCE, "%s: %s" % (one.get("Code"), one.get("Description")), moment(one.get("NotBefore")))
            for one in events or []
            if isinstance(one, dict) and one.get("State") == "active"
        ]  # fmt: skip

    def _document(self, path: str) -> Any:
        """Return one JSON value of the metadata service, or None if there is none."""
        text = optional_metadata(lambda: self._metadata.get("meta-data/" + path))
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise CloudError("the metadata service returned invalid JSON for %s" % path) from None


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def connect(node: Mapping[str, Any], environ: Mapping[str, str]) -> AwsNode:
    """Return the AWS implementation of `Cloud`."""
    return AwsNode(field(node, "region"), environ)
