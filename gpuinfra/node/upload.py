"""Delivering evidence: kept on this node first, written once to the bucket, and proven by a signature that is renewed.

Where things go and under which name is in docs/design.md, "Evidence v1".
"""

from __future__ import annotations

import datetime
from typing import Any, Mapping

from . import evidence
from .cloud import Cloud, CloudError, Exists, field

MOST_NUMBERS = 20
"""How many taken numbers are skipped before something else must be wrong."""


def deliver(node: Mapping[str, Any], document: dict[str, Any], kept: evidence.Kept, cloud: Cloud) -> None:
    """Keep and upload new evidence, then prove it.

    A number is taken when this node's disk forgot what it had uploaded; what is there stays, the next number is used.
    """
    for _ in range(MOST_NUMBERS):
        data = evidence.dumped(document)
        kept.write(document["seq"], data)
        kept.prune()
        try:
            _put_evidence(node, document, data, kept, cloud)
        except Exists:
            document["seq"] += 1
            continue
        _put_proof(node, document, data, cloud)
        return
    raise CloudError("the next %d numbers of this boot are all taken in the bucket" % MOST_NUMBERS)


def renew(node: Mapping[str, Any], kept: evidence.Kept, cloud: Cloud, boot_id: str) -> str | None:
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
            _put_evidence(node, document, data, kept, cloud)
        except Exists:
            # An upload whose answer was lost; should it be somebody else's, its hash differs and nobody believes it.
            kept.mark_arrived(document["seq"])
    _put_proof(node, document, data, cloud)
    return None


def _put_evidence(
    node: Mapping[str, Any], document: Mapping[str, Any], data: bytes, kept: evidence.Kept, cloud: Cloud
) -> None:
    bucket, key = _place(node, document, ".json")
    cloud.put(bucket, key, data, once=True)
    kept.mark_arrived(document["seq"])


def _put_proof(node: Mapping[str, Any], document: Mapping[str, Any], data: bytes, cloud: Cloud) -> None:
    bucket, key = _place(node, document, ".proof.json")
    proof = cloud.proof(evidence.sha256(data), datetime.datetime.now(datetime.timezone.utc))
    cloud.put(bucket, key, evidence.dumped(proof), once=False)


def _place(node: Mapping[str, Any], document: Mapping[str, Any], suffix: str) -> tuple[str, str]:
    place = node.get("evidence")
    if not isinstance(place, Mapping):
        raise CloudError("node.json does not say where evidence goes")
    # Where a store's rules can hold a writer to a folder only by another name beside its own (AWS: the role's id).
    owner = place.get("owner")
    folder = "%s:%s" % (owner, document["instance_id"]) if owner else document["instance_id"]
    key = evidence.key(field(place, "prefix"), folder, document["boot_id"], document["seq"], suffix)
    return field(place, "bucket"), key
