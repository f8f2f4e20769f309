"""Machine images. The store records the lookup name of each ID.

The ID of a real image does not describe its content. The result of a lookup (a public parameter, `getAmi`) is stored
with the lookup name, which determines the operating system and whether the image contains the driver and the fabric software. An
ID without a lookup is treated as a plain Ubuntu 22.04 image.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from gpuinfra_rehearsal.cloud.core.store import Store

COPY = "aws:ec2/amiCopy:AmiCopy"


@dataclass(frozen=True, slots=True)
class ImageContent:
    """The content of an image."""

    os: str
    prebuilt: bool


def image_id(store: Store, name: str, region: str) -> str:
    """Return the ID of the image that a lookup of `name` returns."""
    id = "ami-" + hashlib.sha256(f"{region} {name}".encode()).hexdigest()[:17]
    store.put("image", id, {"name": name})
    return id


def image_of(store: Store, id: str) -> ImageContent:
    """Return the content of an image by its ID."""
    stored = store.get("image", id) or {}
    name = str(stored.get("name") or id.removeprefix("resolve:ssm:"))
    version = re.search(r"ubuntu[-/\w]*?[-/ ](\d\d\.\d\d)", name, re.I)
    return ImageContent(
        os=f"ubuntu-{version.group(1) if version else '22.04'}",
        prebuilt=bool(re.search(r"deeplearning|deep.learning|nvidia|neuron", name, re.I)),
    )
