"""What the node part needs of a cloud, in one small interface; each cloud's own module gives it.

A module is imported when its cloud is used, so a node never loads what belongs to another one.
"""

from __future__ import annotations

import datetime
import importlib
import os
from typing import Any, Mapping, Protocol

CLOUDS = ("aws", "azure", "gcp")
"""Clouds whose module stands beside this one; each has `connect(node, environ) -> Cloud`."""


class CloudError(Exception):
    """The cloud did not do what was asked; the message is for people."""


class Exists(CloudError):
    """The object is there already, and this call was told to replace nothing."""


class Cloud(Protocol):
    """This node's cloud, under the node's own identity. Credentials stay inside and are never part of a representation.

    Every method raises `CloudError` with a message for people.
    """

    def instance_id(self) -> str:
        """The cloud's own name of this machine, as evidence and membership spell it."""
        ...

    def put(self, bucket: str, key: str, body: bytes, *, once: bool) -> None:
        """Write one object of JSON into a bucket or container, as `node.json` names it.

        `once` refuses to replace an existing one and raises `Exists`. Throttling, server errors and an identity that is
        not known everywhere yet are tried again with growing pauses.
        """
        ...

    def proof(self, evidence_sha256: str, now: datetime.datetime) -> dict[str, Any]:
        """A document of schema `gpuinfra.proof/1` that only this machine can have asked for, over that hash (64 hexadecimal digits)."""
        ...


def of(node: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Cloud:
    """The cloud that `node.json` names; `CloudError` for one that there is no module for."""
    name = node.get("cloud")
    if name not in CLOUDS:
        raise CloudError("this node part knows %s, and node.json says %s" % (", ".join(CLOUDS), name))
    return importlib.import_module("." + str(name), __package__).connect(node, environ)


def field(record: Mapping[str, Any], name: str) -> str:
    """A word of `node.json` that has to be there."""
    value = record.get(name)
    if not isinstance(value, str) or not value:
        raise CloudError("node.json names no %s" % name)
    return value
