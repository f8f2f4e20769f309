from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from gpuinfra.base.safe_text import printable
from gpuinfra.clouds.aws.handover.ports import (
    NODE,
    PROOF_BODY,
    AutoScalingMembership,
    S3Evidence,
    StsIdentity,
    botocore_session,
    check_proof,
    parse_caller,
)
from gpuinfra.handover.ports import (
    EvidenceRef,
    GroupExpected,
    IdentityExpired,
    IdentityRefused,
    IdentityUndecided,
    ListedObject,
    PortUnavailable,
    StoredProof,
    evidence_in,
)
from tests.servers import Answering, serve

SHA = "a" * 64
HOST = "sts.us-east-1.amazonaws.com"
SIGNED = "content-type;host;x-amz-date;x-amz-security-token;x-gpuinfra-evidence"
CALLER = """<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>
<Arn>arn:aws:sts::{account}:assumed-role/train-node/i-00000000000000001</Arn><UserId>AROA:i-1</UserId>
<Account>{account}</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"""


def proof(host: str = HOST, **more: Any) -> dict[str, Any]:
    """A proof as a node creates it."""
    headers = {
        "Authorization": f"AWS4-HMAC-SHA256 Credential=ASIA/x, SignedHeaders={SIGNED}, Signature=00",
        "Host": host,
        "X-Amz-Date": "20261121T090000Z",
        "X-Amz-Security-Token": "token",
        "X-Gpuinfra-Evidence": SHA,
        "Content-Type": "application/x-www-form-urlencoded; charset=utf-8",
    }
    request = {"method": "POST", "path": "/", "query": "", "headers": headers, "body": PROOF_BODY}
    headers.update(more.pop("headers", {}))
    request.update(more)
    return {"schema": "gpuinfra.proof/1", "cloud": "aws", "request": request}


@pytest.mark.parametrize(
    "name", ["accept", "x-forwarded-for", "expect", "transfer-encoding", "accept-encoding", "x-amz-target"]
)
def test_header_that_nodes_do_not_sign_is_refused(name: str) -> None:
    """A proof signs the headers of a node's request and no other, because others can change what STS answers."""
    signed = f"AWS4-HMAC-SHA256 Credential=ASIA/x, SignedHeaders={name};{SIGNED}, Signature=00"
    with pytest.raises(IdentityRefused, match=f"signs {name}"):
        check_proof(proof(headers={"Authorization": signed, name: "application/json"}), HOST)


@pytest.mark.parametrize(
    "answer",
    [
        CALLER.replace("GetCallerIdentityResponse", "Other").encode(),
        CALLER.replace("https://sts.amazonaws.com/doc/2011-06-15/", "https://example.com/").encode(),
        f"<x>{CALLER}</x>".encode(),
        CALLER.replace("GetCallerIdentityResult", "ResponseMetadata").encode(),
        CALLER.replace("</Arn>", "</Arn><Arn>arn:aws:sts::000000000000:assumed-role/train-node/i-2</Arn>").encode(),
    ],
)
def test_answer_of_another_kind_is_a_problem_of_that_node(answer: bytes) -> None:
    """A document that is not STS's refuses the one node whose proof caused it; other nodes are judged."""
    with pytest.raises(IdentityRefused):
        parse_caller(answer.replace(b"{account}", b"000000000000"), SHA)


def test_valid_proof_yields_hash_and_signed_headers() -> None:
    """Only signed headers are sent on; the sender sets the host."""
    headers, sha256 = check_proof(proof(), HOST)
    assert sha256 == SHA
    assert "host" not in headers
    assert headers["x-gpuinfra-evidence"] == SHA


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"host": "sts.evil.example"}, "for host sts.evil.example"),
        ({"method": "GET"}, "method 'GET'"),
        ({"path": "/evil"}, "path '/evil'"),
        ({"query": "Action=AssumeRole"}, "query"),
        ({"body": "Action=AssumeRole&RoleArn=x"}, "body"),
        (
            {"headers": {"Authorization": "AWS4-HMAC-SHA256 SignedHeaders=host;x-amz-date, Signature=0"}},
            "does not sign",
        ),
        ({"headers": {"Authorization": ""}}, "does not sign host"),
        ({"headers": {"X-Gpuinfra-Evidence": "abc"}}, "no evidence hash"),
        ({"headers": {"x-gpuinfra-evidence": "b" * 64}}, "duplicate"),
        ({"headers": {"X-Amz-Date": "x\r\nHost: evil"}}, "invalid headers"),
        ({"headers": None}, "no headers"),
    ],
)
def test_proof_with_unexpected_content_is_refused(change: dict[str, Any], words: str) -> None:
    """Host, method, path, query, body and signed headers are fixed; anything else is refused."""
    if change.get("headers", "") is None:
        given = proof()
        given["request"]["headers"] = None
    else:
        given = proof(**change)
    with pytest.raises(IdentityRefused, match=words):
        check_proof(given, HOST)


@contextmanager
def sts(status: int, body: str, seen: list[dict[str, str]]) -> Iterator[str]:
    """An STS endpoint on loopback with one answer."""

    class Handler(Answering):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            seen.append({**{k.lower(): v for k, v in self.headers.items()}, "body": self.rfile.read(length).decode()})
            elsewhere = {"Location": "http://127.0.0.1:9/elsewhere"} if status == 302 else {}
            self.answer(status, body.encode(), **elsewhere)

    with serve(Handler) as url:
        yield url


def client(endpoint: str, account: str = "000000000000") -> Any:
    """The parts of the operator's STS client that the code uses."""
    return SimpleNamespace(
        meta=SimpleNamespace(endpoint_url=endpoint), get_caller_identity=lambda: {"Account": account}
    )


def asked(status: int, body: str, account: str = "000000000000") -> tuple[Any, list[dict[str, str]]]:
    """The result of one answer, and the requests that the service received."""
    seen: list[dict[str, str]] = []
    with sts(status, body, seen) as endpoint:
        return StsIdentity(client(endpoint, account)).verify(proof(host=endpoint.removeprefix("http://"))), seen


def test_signed_request_goes_to_the_regions_endpoint() -> None:
    """The signed request reaches the operator's endpoint unchanged, and the answer yields role and instance."""
    identity, seen = asked(200, CALLER.format(account="000000000000"))
    assert (identity.role, identity.instance_id, identity.evidence_sha256) == ("train-node", "i-00000000000000001", SHA)
    assert seen[0]["body"] == PROOF_BODY
    assert seen[0]["x-gpuinfra-evidence"] == SHA


def test_identity_of_another_account_is_refused() -> None:
    """A role and session of the same name in another account is refused."""
    with pytest.raises(IdentityRefused, match="account 111111111111, not in account 000000000000"):
        asked(200, CALLER.format(account="111111111111"))


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (403, "<Code>SignatureDoesNotMatch</Code>", IdentityRefused),
        (403, "<Code>InvalidClientTokenId</Code>", IdentityRefused),
        (403, "<Code>ExpiredToken</Code>", IdentityExpired),
        (403, "<Code>SignatureDoesNotMatch</Code> Signature expired: 20261121T090000Z", IdentityExpired),
        (400, "<Code>Throttling</Code>", PortUnavailable),
        (503, "busy", IdentityUndecided),
        (302, "", IdentityRefused),
        (200, "not xml", PortUnavailable),
        (200, '<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>', PortUnavailable),
        (200, "<x><Arn>arn:aws:iam::000000000000:user/mallory</Arn></x>", IdentityRefused),
    ],
)
def test_sts_answers_are_classified(status: int, body: str, kind: type[Exception]) -> None:
    """Each answer is a refusal, an expired proof or a reason to retry; redirects are not followed."""
    with pytest.raises(kind):
        asked(status, body)


def test_unreachable_sts_is_retried() -> None:
    """A failed connection is a reason to retry, not a verdict."""
    with pytest.raises(PortUnavailable, match="cannot be reached"):
        StsIdentity(client("http://127.0.0.1:9")).verify(proof(host="127.0.0.1:9"))


def test_arns_of_other_partitions_are_parsed() -> None:
    """ARNs of China and GovCloud yield role and instance as well."""
    answer = CALLER.replace("arn:aws:", "arn:aws-cn:").replace("i-00000000000000001", "i-0abc")
    answer = answer.replace("{account}", "000000000000").encode()
    assert parse_caller(answer, SHA).instance_id == "i-0abc"


def test_keys_of_other_shapes_are_skipped() -> None:
    """Folders, foreign keys and proofs without a document are skipped; both forms of a node's folder are read, with the proofs of each document."""
    prefix, at = "evidence/train/", datetime.now(UTC)

    def listed(*names: str) -> list[EvidenceRef]:
        objects = (ListedObject(key=prefix + name, etag="e", modified=at) for name in names)
        return list(evidence_in(NODE, prefix, objects))

    for name, owner in (("i-0abc", ""), ("AROAX:i-0abc", "AROAX")):
        (ref,) = listed(f"{name}/1234-abcd/000007.json")
        assert (ref.owner, ref.instance_id, ref.seq, ref.proofs) == (owner, "i-0abc", 7, ())
    for name in ("i-0abc/1234-abcd/000007.proof.json", "i-0abc/x", "../i-0abc/1234-abcd/000007.json", ""):
        assert listed(name) == []
    folder = "i-0abc/1234-abcd/"
    first, second = listed(
        *(
            folder + name
            for name in (
                "000007.0123abcd.proof.json",
                "000007.json",
                "000007.proof.json",
                "000008.json",
                "000009.proof.json",
            )
        )
    )
    assert [one.key.rpartition("/")[2] for one in first.proofs] == ["000007.0123abcd.proof.json", "000007.proof.json"]
    assert (second.seq, second.proofs) == (8, ())


def test_console_text_cannot_move_the_terminal() -> None:
    """Escape sequences in a console log are replaced."""
    assert "\x1b" not in printable("\x1b[2Jgone")


def _refresh(status: str, checkpoints: list[int] | None) -> dict[str, Any]:
    preferences: dict[str, Any] = {"MinHealthyPercentage": 66, "MaxHealthyPercentage": 100, "InstanceWarmup": 600}
    preferences |= {"CheckpointPercentages": checkpoints, "CheckpointDelay": 0} if checkpoints else {}
    return {"InstanceRefreshId": "1", "Status": status, "Preferences": preferences}


@pytest.mark.parametrize(
    ("refreshes", "starts"),
    [
        ([], False),
        ([_refresh("Successful", [33])], True),
        ([_refresh("Successful", [33, 100])], False),
        ([_refresh("Successful", None)], False),
        ([_refresh("InProgress", [33])], False),
        ([_refresh("Cancelled", [33])], False),
        ([_refresh("Failed", [33])], False),
        ([_refresh("Successful", [100]), _refresh("Successful", [33])], False),
    ],
)
def test_only_a_refresh_that_ended_at_its_canary_continues(refreshes: list[dict[str, Any]], starts: bool) -> None:
    """The rest of a group is refreshed with the same limits, without a checkpoint, if its newest refresh ended below 100 %."""
    client = boto3.client("autoscaling", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    with Stubber(client) as stub:
        stub.add_response("describe_instance_refreshes", {"InstanceRefreshes": refreshes}, {"AutoScalingGroupName": "asg-1", "MaxRecords": 1})  # fmt: skip
        if starts:
            preferences = {"MinHealthyPercentage": 66, "MaxHealthyPercentage": 100, "InstanceWarmup": 600, "SkipMatching": True}  # fmt: skip
            stub.add_response(
                "start_instance_refresh",
                {"InstanceRefreshId": "2"},
                {"AutoScalingGroupName": "asg-1", "Strategy": "Rolling", "Preferences": preferences},
            )
        group = GroupExpected(name="gpu-0", group="asg-1", count=3)
        assert AutoScalingMembership(client, None).proceed([group]) == (["gpu-0"] if starts else [])
        stub.assert_no_pending_responses()


def test_replacement_keeps_the_desired_capacity() -> None:
    """A replaced instance is terminated through its group, which launches another instance. The request follows botocore's model."""
    client = boto3.client("autoscaling", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    group = GroupExpected(name="gpu-0", group="asg-1", count=3)
    with Stubber(client) as stub:
        stub.add_response("terminate_instance_in_auto_scaling_group", {}, {"InstanceId": "i-1", "ShouldDecrementDesiredCapacity": False})  # fmt: skip
        AutoScalingMembership(client, None).replace(group, "i-1")
        stub.add_client_error("terminate_instance_in_auto_scaling_group", "ScalingActivityInProgress", "in progress")
        with pytest.raises(PortUnavailable, match="in progress"):
            AutoScalingMembership(client, None).replace(group, "i-1")


def test_folders_and_the_evidence_in_a_folder_are_listed_in_pages() -> None:
    """A folder is one element of the first list, and the second list has the prefix of the folder. The requests follow botocore's model."""
    client = boto3.client("s3", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    store = S3Evidence(client, "evidence", "evidence/train")
    one, two = "AROA1:i-1", "AROA1:i-2"
    at = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
    with Stubber(client) as stub:
        ask = {"Bucket": "evidence", "Prefix": "evidence/train/", "Delimiter": "/"}
        stub.add_response(
            "list_objects_v2",
            {
                "CommonPrefixes": [{"Prefix": f"evidence/train/{one}/"}],
                "IsTruncated": True,
                "NextContinuationToken": "t",
            },
            ask,
        )
        stub.add_response("list_objects_v2", {"CommonPrefixes": [{"Prefix": f"evidence/train/{two}/"}]}, {**ask, "ContinuationToken": "t"})  # fmt: skip
        assert list(store.folders()) == [one, two]
        key = f"evidence/train/{two}/0a0a0a0a-0000/000007"
        rows = [{"Key": key + end, "LastModified": at, "ETag": '"e"'} for end in (".json", ".proof.json")]
        stub.add_response("list_objects_v2", {"Contents": rows}, {"Bucket": "evidence", "Prefix": f"evidence/train/{two}/"})  # fmt: skip
        assert [(ref.instance_id, ref.owner, ref.seq, ref.modified) for ref in store.list(two)] == [("i-2", "AROA1", 7, at)]  # fmt: skip
        stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    "text", ["2026-11-21T09:00:00.000Z", "Sat, 21 Nov 2026 09:00:00 GMT", "1795251600", "2026-11-21T10:00:00+01:00"]
)
def test_times_are_parsed_as_botocore_parses_them(text: str) -> None:
    """The fast parser has the results of botocore's parser for each form of a time."""
    from botocore.utils import parse_timestamp

    factory = botocore_session().get_component("response_parser_factory")
    parse = factory.create_parser("rest-xml")._timestamp_parser
    assert parse(text) == parse_timestamp(text) == datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(("code", "unavailable"), [("NoSuchKey", False), ("AccessDenied", True), ("SlowDown", True)])
def test_a_proof_that_does_not_exist_anymore_is_none(code: str, unavailable: bool) -> None:
    """Between the list and the read, a node can replace its proof. Any other error of S3 is no answer about the proof."""
    client = boto3.client("s3", region_name="us-east-2", aws_access_key_id="testing", aws_secret_access_key="testing")
    store = S3Evidence(client, "evidence", "evidence/train")
    proof = StoredProof(
        key="evidence/train/i-1/b/000001.proof.json", etag="e", modified=datetime(2026, 11, 21, tzinfo=UTC)
    )
    with Stubber(client) as stub:
        stub.add_client_error("get_object", service_error_code=code)
        with pytest.raises(PortUnavailable, match=code) if unavailable else nullcontext():
            assert store.proof(proof) is None


@pytest.mark.parametrize(
    "code", ["PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "AccessDenied", "SlowDown"]
)
def test_a_record_that_another_command_changed_or_removed_is_not_written(code: str) -> None:
    """S3 has three answers to a condition that does not hold. Any other error of S3 is no answer about the record."""
    client = boto3.client("s3", region_name="us-east-2", aws_access_key_id="testing", aws_secret_access_key="testing")
    store = S3Evidence(client, "evidence", "evidence/train")
    with Stubber(client) as stub:
        stub.add_client_error("put_object", service_error_code=code)
        with pytest.raises(PortUnavailable, match=code) if code in ("AccessDenied", "SlowDown") else nullcontext():
            assert store.update("active.json", {}, "tag") is False
