"""Resource names: logical names, and physical names that must be unique.

A logical name consists of the component name, the purpose, and an index if there are several resources. Logical names have been part of the
public contract since version 0.2.0. Renaming one requires an alias and a changelog entry.

Pulumi generates physical names with a random suffix. This module generates a name only if it must be known in advance (a trail in a
bucket policy) or found after a destroy (a retained resource). Such a name contains a token that is derived from the organization, project,
and stack, so that stacks in one account do not collide.
"""

from __future__ import annotations

import hashlib

TOKEN_LENGTH = 8
"""Number of hex digits (32 bits). With a thousand stacks in an account, the probability of a collision is about 1 in 10,000."""

BUCKET_LIMIT = 63
"""Maximum length of a bucket name on AWS and Google Cloud."""


def logical(component: str, *parts: str | int) -> str:
    """Return the logical name of a component's child: `logical("train-network", "private", 0)` is `train-network-private-0`."""
    return "-".join((component, *(str(part) for part in parts)))


def stack_token(organization: str, project: str, stack: str, name: str) -> str:
    """Return a token that identifies a stack. It is the same in every run and different for every other stack."""
    identity = "/".join((organization, project, stack, name))
    return hashlib.sha256(identity.encode()).hexdigest()[:TOKEN_LENGTH]


def short(text: str, limit: int) -> str:
    """Shorten text to a limit and remove trailing hyphens, dots, and underscores."""
    return text[:limit].rstrip("-._")


def bucket_name(cluster: str, purpose: str, account: str, region: str, token: str) -> str:
    """Return the name of a bucket: `train-evidence-000000000000-us-east-1-0a1b2c3d`.

    Bucket names are globally unique, so they contain the account. Long cluster names are shortened.
    """
    tail = f"-{account}-{region}-{token}"
    if len(purpose) + len(tail) + 2 > BUCKET_LIMIT:
        # A long mount path is shortened, and its hash is appended so that names remain unique.
        purpose = f"{short(purpose, BUCKET_LIMIT - len(tail) - 12)}-{text_token(purpose, 6)}"
    rest = f"-{purpose}{tail}"
    return short(cluster, BUCKET_LIMIT - len(rest)) + rest


def unique_name(cluster: str, purpose: str, token: str, limit: int = 64) -> str:
    """Return a name that is unique in an account and region: `train-trail-0a1b2c3d`."""
    rest = f"-{purpose}-{token}"
    return short(cluster, limit - len(rest)) + rest


def evidence_prefix(cluster: str) -> str:
    """Return the evidence folder of a cluster. Each node writes to its own subfolder."""
    return f"evidence/{cluster}"


def fabric_sheet(cluster: str, pool: str, bundle_sha256: str) -> str:
    """Return the key of the object with which the handover asks the nodes of a pool for the fabric test. It is next to the bundle, where nodes cannot write."""
    return f"bootstrap/{cluster}/{pool}/{bundle_sha256}.fabric.json"


def repair_orders(cluster: str) -> str:
    """Return the key of the object with the orders of the control node, which is next to the bundles. Only the control node can write in its folder."""
    return f"{repair_folder(cluster)}/orders.json"


def repair_folder(cluster: str) -> str:
    """Return the folder in which the control node writes its orders. A declared pool cannot have the name `monitoring`."""
    return f"bootstrap/{cluster}/monitoring/repair"


def planned_work(cluster: str) -> str:
    """Return the key of the object with the planned work of the operator, which nodes cannot write."""
    return f"bootstrap/{cluster}/monitoring/maintenance.json"


def text_token(text: str, length: int = TOKEN_LENGTH) -> str:
    """Return a hash of a text, for a logical name that must change when the text changes."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]
