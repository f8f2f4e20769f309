"""What things are called: logical names, and names that a cloud wants to be unique.

Logical names are part of the public contract: a component's name, then what the thing is, then an index where there are several.
Renaming one ships with an alias and a line in the changelog.

Physical names are left to Pulumi's own random suffix wherever it can choose them.
What must be known before it exists (a trail that its bucket's policy names), or found again after a destroy (what is kept), has a name made here:
readable, and with a token of organisation, project and stack, so that two stacks never meet in one account.
Nothing here asks a cloud or the engine.
"""

from __future__ import annotations

import hashlib

TOKEN_LENGTH = 8
"""Hex digits of a stack's token: 32 bits, so that a thousand stacks in one account meet with a chance of one in ten thousand."""

BUCKET_LIMIT = 63
"""Longest name of a bucket, on AWS and on Google Cloud."""


def logical(component: str, *parts: str | int) -> str:
    """The logical name of a component's child: `logical("train-network", "private", 0)` is `train-network-private-0`."""
    return "-".join((component, *(str(part) for part in parts)))


def stack_token(organization: str, project: str, stack: str, name: str) -> str:
    """A short token that is the same in every run of one stack and different in every other stack."""
    identity = "/".join((organization, project, stack, name))
    return hashlib.sha256(identity.encode()).hexdigest()[:TOKEN_LENGTH]


def short(text: str, limit: int) -> str:
    """The text cut to a limit, without a hyphen or dot at its end."""
    return text[:limit].rstrip("-._")


def bucket_name(cluster: str, purpose: str, account: str, region: str, token: str) -> str:
    """A bucket's name: `train-evidence-000000000000-us-east-1-0a1b2c3d`.

    Bucket names are shared by all accounts of the world, so the account is part of it; the cluster's name gives way when it grows too long.
    """
    tail = f"-{account}-{region}-{token}"
    if len(purpose) + len(tail) + 2 > BUCKET_LIMIT:
        # The name of a long mount: its beginning, and a piece of its hash, so that two long ones stay two.
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
    """A short token of a text, for a logical name that must change when the text does."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]
