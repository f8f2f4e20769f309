"""Uploads evidence. Evidence is first stored on this node and then written once to the bucket. Its identity proof is renewed regularly.

Section "Evidence" of docs/reference/formats.md defines locations and names.
"""

from __future__ import annotations

import datetime
import random
from typing import Any, Mapping

from . import evidence
from .cloud import CloudError, Exists, NodeCloud, field

MAX_TAKEN_NUMBERS = 20
"""Maximum number of used sequence numbers to skip."""
LONGEST_SKIP = 2000
"""Where nodes share a folder, another node can use the next numbers. From the fourth on, a node skips a random number of them, up to this one."""
RENEW_S = 1200.0
"""Age from which a proof that cannot be replaced is renewed, in seconds. The identity tokens of Google Cloud are valid for an hour."""


def deliver(
    node: Mapping[str, Any], document: dict[str, Any], folder: evidence.EvidenceFolder, cloud: NodeCloud
) -> None:
    """Store and upload new evidence, then upload its proof.

    If the disk lost the record of an earlier upload, its number is in use. The object stays, and a later number is used.
    """
    for attempt in range(MAX_TAKEN_NUMBERS):
        data = evidence.dumped(document)
        folder.write(document["seq"], data)
        folder.prune()
        try:
            _put_evidence(node, document, data, folder, cloud)
        except Exists:
            _skip(document, attempt)
            continue
        _put_proof(node, document, data, folder, cloud)
        return
    raise CloudError("the next %d sequence numbers of this boot already exist in the bucket" % MAX_TAKEN_NUMBERS)


def deliver_report(node: Mapping[str, Any], document: dict[str, Any], cloud: NodeCloud, part: str) -> None:
    """Upload a small document with its proof to a folder below the boot. If its number is in use, a later one is used, and `document` contains it."""
    for attempt in range(MAX_TAKEN_NUMBERS):
        data = evidence.dumped(document)
        bucket, key = _place(node, document, ".json", part)
        try:
            cloud.put(bucket, key, data, once=True)
        except Exists:
            _skip(document, attempt)
            continue
        _send_proof(node, document, data, cloud, part)
        return
    raise CloudError("the next %d numbers of the reports of this boot already exist in the bucket" % MAX_TAKEN_NUMBERS)


def _skip(document: dict[str, Any], attempt: int) -> None:
    document["seq"] += 1 if attempt < 3 else random.randint(1, LONGEST_SKIP)


def renew(node: Mapping[str, Any], folder: evidence.EvidenceFolder, cloud: NodeCloud, boot_id: str) -> str | None:
    """Sign the newest evidence again, because signatures expire within minutes. Upload the evidence if necessary.

    Returns the reason if there is nothing to renew, otherwise None.
    """
    newest = folder.newest()
    if newest is None:
        return "no evidence yet; gpuinfra-verify.service creates it"
    _, document, data = newest
    if document.get("boot_id") != boot_id:
        return "the newest evidence is from an earlier boot; gpuinfra-verify.service creates new evidence"
    if not folder.is_uploaded(document["seq"]):
        try:
            _put_evidence(node, document, data, folder, cloud)
        except Exists:
            if not _has_own_folder(node):
                # Another node can have used this name, so the evidence gets a name that this node creates.
                deliver(node, document, folder, cloud)
                return None
            # The response to an earlier upload was lost.
            folder.mark_uploaded(document["seq"])
    if _has_own_folder(node) or folder.proof_age_s(document["seq"]) > RENEW_S:
        _put_proof(node, document, data, folder, cloud)
    return None


def _put_evidence(
    node: Mapping[str, Any], document: Mapping[str, Any], data: bytes, folder: evidence.EvidenceFolder, cloud: NodeCloud
) -> None:
    bucket, key = _place(node, document, ".json")
    cloud.put(bucket, key, data, once=True)
    folder.mark_uploaded(document["seq"])


def _put_proof(
    node: Mapping[str, Any], document: Mapping[str, Any], data: bytes, folder: evidence.EvidenceFolder, cloud: NodeCloud
) -> None:
    _send_proof(node, document, data, cloud)
    folder.mark_proven(document["seq"])


def _send_proof(
    node: Mapping[str, Any], document: Mapping[str, Any], data: bytes, cloud: NodeCloud, part: str = ""
) -> None:
    """Replace the proof. Where nodes share a folder, each proof has a new name, because a node that can replace its own proofs can replace those of others."""
    own = _has_own_folder(node)
    suffix = ".proof.json" if own else ".%08x.proof.json" % random.getrandbits(32)
    bucket, key = _place(node, document, suffix, part)
    proof = cloud.proof(evidence.sha256(data), datetime.datetime.now(datetime.timezone.utc))
    cloud.put(bucket, key, evidence.dumped(proof), once=not own)


def _has_own_folder(node: Mapping[str, Any]) -> bool:
    """Return True if the store's access rules let no other node write to the folder of this node."""
    place = node.get("evidence")
    return isinstance(place, Mapping) and bool(place.get("owner"))


def _place(node: Mapping[str, Any], document: Mapping[str, Any], suffix: str, part: str = "") -> tuple[str, str]:
    place = node.get("evidence")
    if not isinstance(place, Mapping):
        raise CloudError("node.json has no evidence location")
    # If the store's access rules identify a writer by a second name (AWS: the role's ID), the folder starts with it.
    owner = place.get("owner")
    folder = "%s:%s" % (owner, document["instance_id"]) if owner else document["instance_id"]
    boot = "%s/%s" % (document["boot_id"], part) if part else document["boot_id"]
    key = evidence.key(field(place, "prefix"), folder, boot, document["seq"], suffix)
    return field(place, "bucket"), key
