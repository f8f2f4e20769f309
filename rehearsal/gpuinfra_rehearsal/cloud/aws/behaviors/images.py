"""Copies of machine images.

The request is sent to the Region of the copy, and EC2 reads the source in its own Region. A copy has its own ID and the content of its source
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/how-ami-copy-works.html, retrieved 2026-11-27). EC2 parses the key asynchronously, so a
copy with a key of another Region fails later (`KmsKeyId` of CopyImage in the EC2 API reference, retrieved 2026-11-27).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.aws.images import COPY
from gpuinfra_rehearsal.cloud.core import offers, wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected, CreatedButFailed

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud


@behaves
class ImageCopy(Behavior):
    """A copy of an image in another Region."""

    types = (COPY,)
    unique = (("name", "region"),)
    taken = ApiRejected("InvalidAMIName.Duplicate", "AMI name {name} is already in use by AMI {id}", "EC2: CopyImage")

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        key = call.plain.get("kmsKeyId")
        if isinstance(key, str) and not wire.is_unknown(key) and not key.startswith("arn:"):
            yield RejectedInput("kmsKeyId", f'"kms_key_id" ({key}) is an invalid ARN: arn: invalid prefix')

    def before_create(self, cloud: Cloud, call: Call) -> None:
        source, region = str(call.plain.get("sourceAmiId")), str(call.plain.get("sourceAmiRegion"))
        if cloud.store.get("image", source) is None and not offers.available(cloud, source, region):
            raise ApiRejected("InvalidAMIID.NotFound", f"The image id '[{source}]' does not exist", "EC2: CopyImage")

    def kept(self, cloud: Cloud, call: Call) -> None:
        source = str(call.plain.get("sourceAmiId"))
        name = (cloud.store.get("image", source) or {}).get("name", source)
        cloud.store.put("image", call.id, {"name": name, "copied_to": call.region})

    def after(self, cloud: Cloud, call: Call) -> None:
        key = str(call.plain.get("kmsKeyId") or "")
        if key and f":{call.region}:" not in key:
            wait = f"waiting for EC2 AMI ({call.id}) create: unexpected state 'failed', wanted target 'available'"
            raise CreatedButFailed("failed", wait, "EC2: CopyImage")
