"""Machine images: ids are made from what they were looked up by, and remember it.

A real `ami-...` says nothing about what is in it. Here an id that came out of a lookup (a public parameter, `getAmi`) is kept
with the name it was looked up by, and the name says which system it is and whether it brings driver and fabric.
An id that nobody looked up is taken for a plain Ubuntu 22.04.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from gpuinfra.rehearsal.cloud.core.store import Store


@dataclass(frozen=True, slots=True)
class Image:
    """What a machine finds on its disk."""

    os: str
    prebuilt: bool


def image_id(store: Store, name: str, region: str) -> str:
    """The id of the image that `name` leads to."""
    id = "ami-" + hashlib.sha256(f"{region} {name}".encode()).hexdigest()[:17]
    store.put("image", id, {"name": name})
    return id


def image_of(store: Store, id: str) -> Image:
    """What is in an image."""
    known = store.get("image", id) or {}
    name = str(known.get("name") or id.removeprefix("resolve:ssm:"))
    version = re.search(r"ubuntu[-/\w]*?[-/](\d\d\.\d\d)", name)
    return Image(
        os=f"ubuntu-{version.group(1) if version else '22.04'}",
        prebuilt=bool(re.search(r"deeplearning|deep.learning|nvidia|neuron", name, re.I)),
    )
