"""What earlier programs registered: parent's type, type and name of everything, as in its URNs.

`aws-p4d.json` is the first version's, the others are those of 2026-11-21, when components became parts.
"""

from __future__ import annotations

import json
from pathlib import Path

STACKS = sorted(path.stem for path in Path(__file__).parent.glob("*.json"))
PARTS = {
    f"gpuinfra:{cloud}:{name}"
    for cloud, names in {
        "aws": ("Key", "NodeRole", "PrivateBucket", "Security"),
        "azure": ("Endpoints", "Key", "NodeRole", "PrivateStore", "Security", "Vault"),
        "gcp": ("Key", "Neighbours", "NodeRole", "PrivateBucket", "RdmaNetwork", "Services", "Walls"),
    }.items()
    for name in names
}
"""Components of then that are parts of others now: their rows leave the state, and nothing leaves the cloud."""


def of_then(stack: str) -> set[str]:
    """Everything that a cloud or a component of today may hold under those names."""
    names = json.loads((Path(__file__).parent / f"{stack}.json").read_text(encoding="utf-8"))
    return {name for name in names if type_of(name) not in PARTS}


def known_as(urn: str) -> str:
    """Parent's type, type and name: as much of a URN as mocks keep."""
    types, name = urn.split("::", 2)[2].rsplit("::", 1)
    return "$".join(types.split("$")[-2:]) + "::" + name


def type_of(name: str) -> str:
    """The type of what a URN, or a name as in `known_as`, names."""
    return name.rsplit("::", 1)[0].split("::")[-1].split("$")[-1]
