from __future__ import annotations

import datetime
import hashlib
import urllib.parse
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from gpuinfra.node import aws, pair
from gpuinfra.node.cloud import CloudError, Exists
from tests.node import cloud as standin
from tests.node.cloud import KEY, SECRET, TOKEN, Cloud, same_signature

NOW = datetime.datetime(2026, 11, 21, 9, 0, 0, tzinfo=datetime.UTC)
CREDENTIALS = aws.Credentials(KEY, SECRET, TOKEN)
REGION = "us-east-1"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """A metadata service and an object store on loopback."""
    with standin.running() as one:
        yield one


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between attempts are recorded instead of slept."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    return pauses


@pytest.mark.parametrize(
    ("method", "url", "headers", "body", "service"),
    [
        (
            "PUT",
            "https://bucket.s3.us-east-1.amazonaws.com/evidence/train/i-0/b/000001.json",
            {"If-None-Match": "*"},
            b"{}",
            "s3",
        ),
        (
            "PUT",
            "http://127.0.0.1:8080/bucket/evidence/AROA1%3Ai-0/x.json",
            {"Content-Type": "application/json"},
            b"x" * 1000,
            "s3",
        ),
        ("GET", "https://s3.eu-west-1.amazonaws.com/a.b/k%20ey~._-/x?list-type=2&prefix=a%2Fb&empty=", {}, b"", "s3"),
        (
            "POST",
            "https://sts.us-east-1.amazonaws.com/",
            {"X-Gpuinfra-Evidence": "a" * 64},
            aws.PROOF_BODY.encode(),
            "sts",
        ),
        ("POST", "https://sts.us-east-1.amazonaws.com/", {"X-Spaces": "  a   b  "}, b"a=b", "sts"),
    ],
)
def test_signatures_match_botocore(method: str, url: str, headers: dict[str, str], body: bytes, service: str) -> None:
    """AWS's own SDK signs the same request with the same signature."""
    signed = aws.sign(
        CREDENTIALS, method=method, url=url, headers=headers, body=body, service=service, region=REGION, now=NOW
    )
    assert same_signature(method, url, signed, body, service, REGION)
    assert not same_signature(method, url, signed, body + b"!", service, REGION)


def test_every_header_is_signed() -> None:
    """An unsigned header, such as the evidence's hash, could be replaced in transit."""
    signed = aws.sign(
        CREDENTIALS, method="POST", url="https://sts.us-east-1.amazonaws.com/", headers={"X-Gpuinfra-Evidence": "a" * 64},
        body=b"", service="sts", region=REGION, now=NOW,
    )  # fmt: skip
    names = signed["Authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    assert names == sorted(name.lower() for name in signed if name != "Authorization")
    assert "x-gpuinfra-evidence" in names


def test_endpoints_come_from_the_region_or_the_sdk_variables() -> None:
    """Only the region and the variables of the AWS SDKs set addresses."""
    assert aws.object_url("b", "k/x y", REGION, {}) == "https://b.s3.us-east-1.amazonaws.com/k/x%20y"
    assert aws.object_url("a.b", "k", "cn-north-1", {}) == "https://s3.cn-north-1.amazonaws.com.cn/a.b/k"
    assert aws.object_url("b", "AROA:i-0/k", REGION, {"AWS_ENDPOINT_URL": "http://h:1/"}) == "http://h:1/b/AROA%3Ai-0/k"
    both = {"AWS_ENDPOINT_URL": "http://h:1", "AWS_ENDPOINT_URL_S3": "http://s:2", "AWS_ENDPOINT_URL_STS": "http://t:3"}
    assert aws.object_url("b", "k", REGION, both) == "http://s:2/b/k"
    assert aws.sts_url(REGION, both) == "http://t:3/"
    assert aws.sts_url(REGION, {}) == "https://sts.us-east-1.amazonaws.com/"


def test_credentials_are_not_printed() -> None:
    """A traceback or a log never contains credentials."""
    assert SECRET not in repr(CREDENTIALS)
    assert TOKEN not in str(CREDENTIALS)


def test_object_is_written_with_the_roles_credentials(cloud: Cloud) -> None:
    """The metadata service is called with a session token, and the store accepts the signature."""
    aws.AwsNode(REGION, cloud.environ).put("b", "k/1.json", b"{}", once=True)
    assert cloud.objects == {"b/k/1.json": b"{}"}
    assert cloud.requests[0] == "PUT /imds/latest/api/token"


def test_temporary_errors_are_retried(cloud: Cloud, no_pauses: list[float]) -> None:
    """Throttling, server errors and a new role are retried with increasing pauses."""
    cloud.troubles = [(503, "SlowDown"), (500, "InternalError"), (403, "InvalidAccessKeyId")]
    aws.AwsNode(REGION, cloud.environ).put("b", "k", b"1", once=False)
    assert cloud.objects == {"b/k": b"1"}
    assert no_pauses == [1.0, 2.0, 4.0]


def test_permanent_error_has_its_code(cloud: Cloud) -> None:
    """After the last attempt the message names object and error code; a client error is not retried."""
    cloud.troubles = [(403, "AccessDenied")] * 6
    with pytest.raises(aws.CloudError, match=r"s3://b/k could not be written: 403 AccessDenied"):
        aws.AwsNode(REGION, cloud.environ).put("b", "k", b"1", once=False)
    cloud.troubles = [(404, "NoSuchBucket")] * 2
    with pytest.raises(aws.CloudError, match="404 NoSuchBucket"):
        aws.AwsNode(REGION, cloud.environ).put("b", "k", b"1", once=False)
    assert len(cloud.troubles) == 1


def test_existing_object_is_never_replaced(cloud: Cloud) -> None:
    """Evidence can only be added."""
    cloud.objects["b/k"] = b"first"
    with pytest.raises(Exists):
        aws.AwsNode(REGION, cloud.environ).put("b", "k", b"second", once=True)
    assert cloud.objects["b/k"] == b"first"


def test_lost_answer_counts_as_written(cloud: Cloud) -> None:
    """If the store wrote the object but the answer was lost, the next attempt finds the object and succeeds."""
    cloud.lose_answers = 1
    aws.AwsNode(REGION, cloud.environ).put("b", "k", b"1", once=True)
    assert cloud.objects == {"b/k": b"1"}


def test_proof_is_a_signed_request_with_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof has exactly the documented fields, and botocore confirms its signature."""
    digest = hashlib.sha256(b"evidence").hexdigest()
    monkeypatch.setattr(aws.Metadata, "credentials", lambda metadata: CREDENTIALS)
    proof = aws.AwsNode(REGION, {}).proof(digest, NOW)
    assert set(proof) == {"schema", "cloud", "evidence_sha256", "signed", "request"}
    assert proof["signed"] == "2026-11-21T09:00:00Z"
    request = proof["request"]
    assert request["headers"]["X-Gpuinfra-Evidence"] == digest
    assert request["headers"]["Host"] == "sts.us-east-1.amazonaws.com"
    url = "https://sts.us-east-1.amazonaws.com/"
    assert same_signature("POST", url, request["headers"], request["body"].encode(), "sts", REGION)
    forged = {**request["headers"], "X-Gpuinfra-Evidence": "0" * 64}
    assert not same_signature("POST", url, forged, request["body"].encode(), "sts", REGION)


def test_requests_to_ec2_are_signed_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """AttachVolume is a form with the media type of the query protocol, and botocore confirms its signature."""
    sent: list[urllib.request.Request] = []
    monkeypatch.setattr(aws.Metadata, "credentials", lambda metadata: CREDENTIALS)
    monkeypatch.setattr(aws.AwsNode, "instance_id", lambda node: "i-0")
    monkeypatch.setattr(aws, "change", lambda request, *_: sent.append(request))
    aws.AwsNode(REGION, {}).attach_disk("vol-1")
    (request,) = sent
    assert isinstance(request.data, bytes)
    assert dict(urllib.parse.parse_qsl(request.data.decode())) == {
        "Action": "AttachVolume",
        "Version": "2016-11-15",
        "VolumeId": "vol-1",
        "InstanceId": "i-0",
        "Device": aws.DATA_DEVICE,
    }
    headers = {name.title(): value for name, value in request.header_items()}
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert same_signature("POST", request.full_url, headers, request.data, "ec2", REGION)


def test_silent_metadata_service_is_reported(cloud: Cloud) -> None:
    """A missing role and a missing service each give one message."""
    environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": cloud.url + "/imds"}
    with pytest.raises(aws.CloudError, match="returned status 404"):
        aws.Metadata(environ).get("meta-data/none")
    with pytest.raises(aws.CloudError, match="did not respond"):
        aws.Metadata({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"}).identity()


def test_metadata_requests_use_no_proxy(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials are never sent through the proxy of the steps' downloads."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert aws.Metadata(cloud.environ).identity()["region"] == REGION


def test_the_token_of_the_metadata_service_is_renewed(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that runs longer than the lifetime of a token requests a new one before the old one expires, and not for each request."""
    now = [1000.0]
    cloud.clock = lambda: now[0]
    monkeypatch.setattr(aws, "time", SimpleNamespace(monotonic=cloud.clock))
    connected = aws.AwsNode(REGION, cloud.environ)
    for number in range(60):
        connected.put("b", f"k{number}", b"{}", once=True)
        now[0] += 15.0
    assert len(cloud.objects) == 60
    assert len(cloud.tokens) == 4


def test_two_nodes_meet_in_the_bucket(cloud: Cloud) -> None:
    """A node reads what another node wrote under its own name, with signed requests; a missing object is not an error."""
    node = {"evidence": {"bucket": "logs", "prefix": "evidence/train", "owner": "AROA1"}, "region": REGION}
    store = pair.RendezvousBucket(node, aws.connect(node, cloud.environ))
    assert store.get("i-1", "r1-0.json") is None
    store.put("i-1", "r1-0.json", b'{"gpus": 8}')
    assert store.get("i-1", "r1-0.json") == b'{"gpus": 8}'
    cloud.troubles = [(503, "SlowDown"), (500, "InternalError")]
    assert store.get("i-1", "r1-0.json") == b'{"gpus": 8}'
    cloud.troubles = [(500, "InternalError")] * 6
    with pytest.raises(CloudError, match=r"r1-0.json could not be read: 500"):
        store.get("i-1", "r1-0.json")
