"""The requests for the record of the active region on each cloud: conditions, a record that does not exist, and a refused write."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import Stubber

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.aws.region import record as aws_record
from gpuinfra.clouds.aws.region.record import S3Record
from gpuinfra.clouds.azure.region.record import BlobRecord
from gpuinfra.clouds.azure.rest import Rest, RestAnswer
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.gcp.api import Api
from gpuinfra.clouds.gcp.handover.ports import RequestFailed
from gpuinfra.clouds.gcp.region import record as gcp_record
from gpuinfra.clouds.gcp.region.record import GcsRecord
from gpuinfra.clouds.region import reach
from gpuinfra.clouds.region.active import KEY, RecordChanged, RecordStore

TEXT = json.dumps({"region": "first"}).encode()
CONTAINER = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/copy/blobServices/default/containers/evidence"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat requests without a pause."""
    monkeypatch.setattr(reach.time, "sleep", lambda _: None)


def s3(*answers: tuple[str, Any, dict[str, Any]]) -> tuple[S3Record, Stubber]:
    """A record in a bucket whose client answers with these responses. A number is the status of an error, and a text its code."""
    client = boto3.client("s3", region_name="us-west-2", aws_access_key_id="a", aws_secret_access_key="b")
    stubber = Stubber(client)
    for method, answer, expected in answers:
        if isinstance(answer, str):
            stubber.add_client_error(method, answer, http_status_code=412, expected_params=expected)
        else:
            stubber.add_response(method, answer, expected)
    stubber.activate()
    return S3Record(lambda service, region: client, "copy", "us-west-2"), stubber


PLACE = {"Bucket": "copy", "Key": KEY}
WRITE = {**PLACE, "Body": TEXT, "ContentType": "application/json"}


def test_the_record_in_s3() -> None:
    """A read returns the ETag; the first write requires that the object does not exist, and the next one that it has the ETag."""
    body = StreamingBody(io.BytesIO(TEXT), len(TEXT))
    store, stubber = s3(
        ("get_object", "NoSuchKey", PLACE),
        ("put_object", {"ETag": '"1"'}, {**WRITE, "IfNoneMatch": "*"}),
        ("get_object", {"Body": body, "ETag": '"1"'}, PLACE),
        ("put_object", {"ETag": '"2"'}, {**WRITE, "IfMatch": '"1"'}),
    )
    assert store.read() is None
    assert store.write(TEXT, None) == '"1"'
    held = store.read()
    assert held is not None
    assert (held.text, held.tag) == (TEXT, '"1"')
    assert store.write(TEXT, held.tag) == '"2"'
    stubber.assert_no_pending_responses()


@pytest.mark.parametrize("code", ["PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"])
def test_a_refused_write_in_s3(code: str) -> None:
    """The object was written or deleted after it was read, or at the same time."""
    store, _ = s3(("put_object", code, {**WRITE, "IfMatch": '"1"'}))
    with pytest.raises(RecordChanged):
        store.write(TEXT, '"1"')


def test_a_missing_permission_is_not_a_missing_record() -> None:
    """A denied read is an error, because the record can exist."""
    store, _ = s3(("get_object", "AccessDenied", PLACE))
    with pytest.raises(DeploymentError, match="AccessDenied"):
        store.read()


def test_a_ready_region_is_reported_to_cloudwatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report adds the value 1 to the metric of the alarm, in the second Region."""
    client = boto3.client("cloudwatch", region_name="us-west-2", aws_access_key_id="a", aws_secret_access_key="b")
    stubber, regions = Stubber(client), list[str]()
    value = {"MetricName": "Ready", "Dimensions": [{"Name": "Replica", "Value": "copy"}], "Value": 1.0}
    stubber.add_response("put_metric_data", {}, {"Namespace": "gpuinfra", "MetricData": [value]})
    stubber.add_client_error("put_metric_data", "AccessDenied", http_status_code=403)
    stubber.activate()
    monkeypatch.setattr(
        aws_record, "client_of", lambda config: lambda service, region: regions.append(region) or client
    )
    aws_record.report_ready("copy", "us-west-2", {})
    with pytest.raises(DeploymentError, match="AccessDenied"):
        aws_record.report_ready("copy", "us-west-2", {})
    assert regions == ["us-west-2", "us-west-2"]


class Reports:
    """Cloud Monitoring, which keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any]] = []

    def json(self, method: str, url: str, parameters: Any = None, body: Any = None) -> dict[str, Any]:
        """Keep the request."""
        self.requests.append((method, url, body))
        return {}


def test_a_ready_region_is_reported_to_cloud_monitoring() -> None:
    """The report adds the value 1 to the metric of the alert, in the project of the bucket."""
    reports = Reports()
    state = [
        {"type": "gcp:storage/bucket:Bucket", "id": "other", "outputs": {"project": "others"}},
        {"type": "gcp:storage/bucket:Bucket", "id": "copy", "outputs": {"project": "p"}},
    ]
    gcp_record.report_ready("copy", state, Api(reports, lambda _: None))
    ((method, url, body),) = reports.requests
    assert (method, url.partition(".com/")[2]) == ("POST", "v3/projects/p/timeSeries")
    (series,) = body["timeSeries"]
    assert series["metric"] == {"type": "custom.googleapis.com/gpuinfra/ready", "labels": {"replica": "copy"}}
    assert series["resource"] == {"type": "global", "labels": {"project_id": "p"}}
    (point,) = series["points"]
    assert point["value"] == {"int64Value": "1"}
    assert datetime.fromisoformat(point["interval"]["endTime"]).tzinfo is not None


@dataclass
class Blobs(Rest):
    """Blob storage with one blob."""

    blob_text: bytes | None = None
    etag: int = 0
    denied: bool = False
    urls: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def blob(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> RestAnswer:
        """The response of the blob."""
        self.urls.add(url)
        given = headers or {}
        if self.denied:
            return RestAnswer(status=403, headers={}, body=b"<Error><Code>AuthorizationFailure</Code></Error>")
        if method == "PUT":
            if given.get("If-None-Match") == "*" and self.blob_text is not None:
                return RestAnswer(
                    status=409,
                    headers={"x-ms-error-code": "BlobAlreadyExists"},
                    body=b"<Error><Code>BlobAlreadyExists</Code></Error>",
                )
            if "If-Match" in given and given["If-Match"] != f'"{self.etag}"':
                return RestAnswer(
                    status=412,
                    headers={"x-ms-error-code": "ConditionNotMet"},
                    body=b"<Error><Code>ConditionNotMet</Code></Error>",
                )
            self.blob_text, self.etag = body, self.etag + 1
        elif self.blob_text is None:
            return RestAnswer(status=404, headers={}, body=b"<Error><Code>BlobNotFound</Code></Error>")
        return RestAnswer(status=200, headers={"Etag": f'"{self.etag}"'}, body=self.blob_text or b"")


@dataclass
class Objects:
    """Cloud Storage with one object."""

    document: dict[str, Any] | None = None
    generation: int = 0
    denied: bool = False
    changes: int = 0
    """How often another operator replaces the object after its generation was read."""

    def json(
        self,
        method: str,
        url: str,
        parameters: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """The response of the object."""
        given = parameters or {}
        if self.denied:
            raise RequestFailed("denied", 403, frozenset({"forbidden"}))
        if method == "POST":
            assert "/upload/storage/v1/b/copy/o" in url
            assert (given["uploadType"], given["name"]) == ("media", KEY)
            if given["ifGenerationMatch"] != str(self.generation if self.document is not None else 0):
                raise RequestFailed("conditionNotMet", 412, frozenset({"conditionNotMet"}))
            self.document, self.generation = dict(body or {}), self.generation + 1
            return {"generation": str(self.generation)}
        if self.document is None:
            raise RequestFailed("notFound", 404, frozenset({"notFound"}))
        if given.get("alt") == "media":
            if given["generation"] != str(self.generation):
                raise RequestFailed("notFound", 404, frozenset({"notFound"}))
            return self.document
        read = str(self.generation)
        if self.changes:
            self.changes, self.generation = self.changes - 1, self.generation + 1
        return {"generation": read}


def blob_record() -> tuple[RecordStore, Any]:
    """A record in blob storage."""
    blobs = Blobs()
    return BlobRecord(blobs, "copy"), blobs


def gcs_record() -> tuple[RecordStore, Any]:
    """A record in Cloud Storage."""
    objects = Objects()
    return GcsRecord(Api(objects, lambda _: None), "copy"), objects


STORES = pytest.mark.parametrize("made", [blob_record, gcs_record], ids=["azure", "gcp"])
Made = Callable[[], tuple[RecordStore, Any]]


@STORES
def test_a_write_requires_the_version_that_was_read(made: Made) -> None:
    """The first write requires that the object does not exist, and the next one that it has not changed since it was read."""
    store, _ = made()
    assert store.read() is None
    tag = store.write(TEXT, None)
    held = store.read()
    assert held is not None
    assert (json.loads(held.text), held.tag) == (json.loads(TEXT), tag)
    with pytest.raises(RecordChanged):
        store.write(TEXT, None)
    assert store.write(TEXT, tag) != tag
    with pytest.raises(RecordChanged):
        store.write(TEXT, tag)


@pytest.mark.parametrize(("changes", "reads"), [(1, True), (100, False)])
def test_a_record_that_changes_during_a_read_is_read_again(changes: int, reads: bool) -> None:
    """Cloud Storage needs two requests for the content and its generation. The newest content is returned, or one error after several reads."""
    objects = Objects(document={"region": "first"}, generation=1, changes=changes)
    record = GcsRecord(Api(objects, lambda _: None), "copy")
    if reads:
        held = record.read()
        assert held is not None
        assert (held.text, held.tag) == (TEXT, "2")
        return
    with pytest.raises(DeploymentError, match="changed during each of 5 reads"):
        record.read()


@STORES
def test_a_denied_read_is_an_error(made: Made) -> None:
    """A denied read is not a missing record."""
    store, cloud = made()
    cloud.denied = True
    with pytest.raises(DeploymentError):
        store.read()


def test_the_record_on_azure_has_its_own_container() -> None:
    """The container of a replica is read-only, so the record is beside it in the same account."""
    store, blobs = blob_record()
    store.read()
    assert blobs.urls == {f"https://copy.blob.core.windows.net/active-region/{KEY}"}


@pytest.mark.parametrize(
    ("cloud", "place", "kind"),
    [("aws", "copy", S3Record), ("azure", CONTAINER, BlobRecord), ("gcp", "copy", GcsRecord)],
)
def test_each_cloud_with_a_failover_has_a_record(
    cloud: str, place: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is the replica of the evidence bucket in the outputs of the stack."""
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    assert isinstance(cloud_of(cloud).record(place, "second", {}), kind)
