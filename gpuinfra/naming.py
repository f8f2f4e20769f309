"""Names of resources: logical names, and physical names that must be unique.

A logical name is the name of the component, the purpose, and an index if there are several. Logical names are part of the public contract
from version 0.2.0 on: a rename then needs an alias and a changelog entry.

Pulumi generates physical names with a random suffix. A name that must be known in advance (a trail that a bucket policy names), or found again
after a destroy (a retained resource), is made here. It contains a token of organization, project and stack, so that stacks in one account do not collide.
"""

from __future__ import annotations

import hashlib

TOKEN_LENGTH = 8
"""Hex digits of a token: 32 bits. In an account with a thousand stacks, the probability of a collision is about 1 in 10,000."""

BUCKET_LIMIT = 63
"""Maximum length of a bucket name on AWS and Google Cloud."""


def logical(component: str, *parts: str | int) -> str:
    """The logical name of a child of a component: `logical("train-network", "private", 0)` is `train-network-private-0`."""
    return "-".join((component, *(str(part) for part in parts)))


def stack_token(organization: str, project: str, stack: str, name: str) -> str:
    """A token that identifies a stack: the same in every run, different for every other stack."""
    identity = "/".join((organization, project, stack, name))
    return hashlib.sha256(identity.encode()).hexdigest()[:TOKEN_LENGTH]


def short(text: str, limit: int) -> str:
    """The text, cut to a limit, without a hyphen, dot or underscore at its end."""
    return text[:limit].rstrip("-._")


def bucket_name(cluster: str, purpose: str, account: str, region: str, token: str) -> str:
    """The name of a bucket: `train-evidence-000000000000-us-east-1-0a1b2c3d`.

    Bucket names are global, so they contain the account. A long name of the cluster is shortened.
    """
    tail = f"-{account}-{region}-{token}"
    if len(purpose) + len(tail) + 2 > BUCKET_LIMIT:
        # A long mount is shortened and gets a part of its hash, so that names remain unique.
        purpose = f"{short(purpose, BUCKET_LIMIT - len(tail) - 12)}-{text_token(purpose, 6)}"
    rest = f"-{purpose}{tail}"
    return short(cluster, BUCKET_LIMIT - len(rest)) + rest


def unique_name(cluster: str, purpose: str, token: str, limit: int = 64) -> str:
    """A name that is unique in an account and region: `train-trail-0a1b2c3d`."""
    rest = f"-{purpose}-{token}"
    return short(cluster, limit - len(rest)) + rest


def evidence_prefix(cluster: str) -> str:
    """The folder of a cluster's nodes in the evidence bucket; each node writes into a folder of its own below it."""
    return f"evidence/{cluster}"


def text_token(text: str, length: int = TOKEN_LENGTH) -> str:
    """A token of a text, for a logical name that must change with the text."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]
