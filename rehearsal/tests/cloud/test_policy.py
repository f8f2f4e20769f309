"""IAM's logic as far as it is implemented: a deny wins, no statement denies, and an unsupported condition never allows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuinfra_rehearsal.cloud.aws.policy import decide
from gpuinfra_rehearsal.cloud.core.interfaces import AccessRequest

NODE = "arn:aws:sts::000000000000:assumed-role/node/i-1"
ASK = AccessRequest(
    NODE,
    "s3:PutObject",
    "arn:aws:s3:::b/evidence/AROA:i-1/x",
    {"aws:userid": "AROA:i-1", "aws:SecureTransport": "true"},
)
ALLOW = {"Effect": "Allow", "Action": "s3:Put*", "Resource": "arn:aws:s3:::b/evidence/${aws:userid}/*"}


def document(*statements: dict[str, Any]) -> str:
    """A policy of these statements."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        (ALLOW, True),
        ({**ALLOW, "Action": "s3:putobject"}, True),
        ({**ALLOW, "Action": "s3:GetObject"}, False),
        ({**ALLOW, "Resource": "arn:aws:s3:::b/evidence/AROA:i-2/*"}, False),
        ({**ALLOW, "Resource": "arn:aws:s3:::b/evidence/${aws:unheard}/*"}, False),
        ({"Effect": "Allow", "NotAction": "s3:Delete*", "Resource": "*"}, True),
        ({"Effect": "Allow", "Action": "*", "NotResource": "arn:aws:s3:::b/*"}, False),
        ({**ALLOW, "Condition": {"StringLike": {"AWS:UserId": "AROA:*"}}}, True),
        ({**ALLOW, "Condition": {"StringEquals": {"aws:userid": ["a", "b"]}}}, False),
        ({**ALLOW, "Condition": {"StringEquals": {"aws:missing": "a"}}}, False),
        ({**ALLOW, "Condition": {"StringEqualsIfExists": {"aws:missing": "a"}}}, True),
        ({**ALLOW, "Condition": {"Null": {"aws:missing": "true"}}}, True),
        ({**ALLOW, "Condition": {"NobodyKnows": {"aws:userid": "a"}}}, False),
    ],
)
def test_statements_match_as_in_iam(statement: dict[str, Any], allowed: bool) -> None:
    """Actions, resources, variables and conditions match as in IAM."""
    assert decide(ASK, [document(statement)])[0] is allowed


@pytest.mark.parametrize(
    ("operator", "given", "allowed"),
    [
        ("ForAllValues:StringEquals", ("A", "TXT"), True),
        ("ForAllValues:StringEquals", ("A", "MX"), False),
        ("ForAllValues:StringEquals", "A", True),
        ("ForAllValues:StringEquals", None, True),
        ("ForAllValues:StringLike", ("A", "TXT"), True),
        ("StringEquals", ("A",), False),
        ("ForAnyValue:StringEquals", ("A", "MX"), True),
        ("ForAnyValue:StringEquals", ("MX",), False),
        ("ForAnyValue:StringEquals", None, False),
    ],
)
def test_each_value_of_a_key_matches(operator: str, given: str | tuple[str, ...] | None, allowed: bool) -> None:
    """`ForAllValues` compares each value of a key in the request, and matches without the key. `ForAnyValue` needs one value.
    An operator for single values never allows a key with several."""
    context = {} if given is None else {"service:Types": given}
    ask = AccessRequest(NODE, "s3:PutObject", "arn:aws:s3:::b/x", context)
    statement = {
        "Effect": "Allow",
        "Action": "*",
        "Resource": "*",
        "Condition": {operator: {"service:types": ["A", "TXT"]}},
    }
    assert decide(ask, [document(statement)])[0] is allowed


@pytest.mark.parametrize(
    ("denial", "allowed"),
    [
        ({"Action": "s3:PutObject", "Resource": "*"}, False),
        ({"Action": "s3:*", "Resource": "*", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}, True),
        ({"Action": "s3:*", "Resource": "*", "Condition": {"NobodyKnows": {"a": "b"}}}, False),
        ({"Action": "s3:*", "Resource": "arn:aws:s3:::other/*"}, True),
    ],
)
def test_an_explicit_deny_of_the_bucket_wins(denial: dict[str, Any], allowed: bool) -> None:
    """A deny of the bucket policy wins; an unsupported condition denies too."""
    assert decide(ASK, [document(ALLOW)], [document({"Effect": "Deny", "Principal": "*", **denial})])[0] is allowed


@pytest.mark.parametrize(
    ("principal", "allowed"),
    [
        ("*", True),
        ({"AWS": "arn:aws:iam::000000000000:role/node"}, True),
        ({"AWS": "arn:aws:iam::000000000000:root"}, True),
        ({"AWS": "arn:aws:iam::000000000000:role/other"}, False),
        ({"Service": "cloudtrail.amazonaws.com"}, False),
    ],
)
def test_a_bucket_policy_names_its_principal(principal: Any, allowed: bool) -> None:
    """A statement of a bucket policy applies to the principals that it names."""
    statement = {"Effect": "Allow", "Principal": principal, "Action": "s3:PutObject", "Resource": "*"}
    assert decide(ASK, [], [document(statement)])[0] is allowed


@pytest.mark.parametrize("text", ["", "[]", "not json", '{"Statement": []}'])
def test_no_statement_denies(text: str) -> None:
    """Without a statement that allows, a request is denied, whatever the document contains."""
    allowed, why = decide(ASK, [text])
    assert not allowed
    assert "no identity-based policy allows the s3:PutObject action" in why
