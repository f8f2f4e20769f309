"""Delivering evidence: kept on this node first, written once to the bucket, and proven by a signature that is renewed.

Where things go and under which name is in docs/design.md, "Evidence v1".
"""

from __future__ import annotations

import datetime
from typing import Any, Mapping

from . import aws, evidence

MOST_NUMBERS = 20
"""How many taken numbers are skipped before something else must be wrong."""


def deliver(node: Mapping[str, Any], document: dict[str, Any], kept: evidence.Kept, metadata: aws.Metadata) -> None:
    """Keep and upload new evidence, then prove it.

    A number is taken when this node's disk forgot what it had uploaded; what is there stays, the next number is used.
    """
    for _ in range(MOST_NUMBERS):
        data = evidence.dumped(document)
        kept.write(document["seq"], data)
        kept.prune()
        try:
            _put_evidence(node, document, data, kept, metadata)
        except aws.Exists:
            document["seq"] += 1
            continue
        _put_proof(node, document, data, metadata)
        return
    raise aws.CloudError("the next %d numbers of this boot are all taken in the bucket" % MOST_NUMBERS)


def renew(node: Mapping[str, Any], kept: evidence.Kept, metadata: aws.Metadata, boot_id: str) -> str | None:
    """Sign the newest evidence again, because a signature is good for minutes; upload it if it never arrived.

    Returns why there is nothing to renew, or None.
    """
    newest = kept.newest()
    if newest is None:
        return "there is no evidence yet; gpuinfra-verify.service makes it"
    _, document, data = newest
    if document.get("boot_id") != boot_id:
        return "the newest evidence is of an earlier boot; gpuinfra-verify.service makes new one"
    if not kept.arrived(document["seq"]):
        try:
            _put_evidence(node, document, data, kept, metadata)
        except aws.Exists:
            # An upload whose answer was lost; should it be somebody else's, its hash differs and nobody believes it.
            kept.mark_arrived(document["seq"])
    _put_proof(node, document, data, metadata)
    return None


def _put_evidence(
    node: Mapping[str, Any], document: Mapping[str, Any], data: bytes, kept: evidence.Kept, metadata: aws.Metadata
) -> None:
    bucket, key = _place(node, document, ".json")
    aws.put_object(metadata, bucket, key, _field(node, "region"), data, once=True)
    kept.mark_arrived(document["seq"])


def _put_proof(node: Mapping[str, Any], document: Mapping[str, Any], data: bytes, metadata: aws.Metadata) -> None:
    bucket, key = _place(node, document, ".proof.json")
    region, now = _field(node, "region"), datetime.datetime.now(datetime.timezone.utc)
    proof = aws.identity_proof(metadata.credentials(), region, evidence.sha256(data), now)
    aws.put_object(metadata, bucket, key, region, evidence.dumped(proof), once=False)


def _place(node: Mapping[str, Any], document: Mapping[str, Any], suffix: str) -> tuple[str, str]:
    if node.get("cloud") != "aws":
        raise aws.CloudError("this node part uploads on aws only, and node.json says %s" % node.get("cloud"))
    place = node.get("evidence")
    if not isinstance(place, Mapping):
        raise aws.CloudError("node.json does not say where evidence goes")
    # An IAM policy can hold an instance to a folder only by the role's id and its own (aws:userid).
    owner = place.get("owner")
    folder = "%s:%s" % (owner, document["instance_id"]) if owner else document["instance_id"]
    key = evidence.key(_field(place, "prefix"), folder, document["boot_id"], document["seq"], suffix)
    return _field(place, "bucket"), key


def _field(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value:
        raise aws.CloudError("node.json names no %s" % name)
    return value
