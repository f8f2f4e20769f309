"""Names and labels as Google Cloud takes them. Pure.

Pulumi's own names for most Google types may have 255 letters and keep capitals, which the API refuses (pulumi/pulumi-gcp: provider/resources.go), so every name that the API
holds to 63 is made here: readable, cut where it must be, with a piece of a hash where something was cut off.
Names carry the stack's token, so that two stacks never meet in one project.
"""

from __future__ import annotations

import hashlib
import re

from gpuinfra import naming

NAME_LIMIT = 63
"""Longest name of nearly everything (RFC 1035)."""
GROUP_BASE_LIMIT = 58
"""Longest base name of a group's instances: the group adds a dash and four letters."""
ACCOUNT_LIMIT = 30
"""Longest id of a service account."""
LABEL_LIMIT = 63
_CONTENT_LENGTH = 10
_BUCKET_TOKEN = 16
_BUCKET_PURPOSE = 20
"""A purpose may be the name of a mount; the cluster's name, 24 letters at most, always fits beside it."""


def fitted(text: str, limit: int = NAME_LIMIT) -> str:
    """The text where it fits, else its beginning and six digits of its hash: two long names that begin alike stay two."""
    if len(text) <= limit:
        return text
    return f"{naming.short(text, limit - 7)}-{naming.text_token(text, 6)}"


def physical(logical: str, token: str, limit: int = NAME_LIMIT) -> str:
    """The name of a thing of this stack: `train-network-vpc-0a1b2c3d`."""
    return f"{fitted(logical, limit - len(token) - 1)}-{token}"


def by_content(logical: str, content: str) -> str:
    """A name that changes exactly when the content does; for what cannot be changed in place."""
    digest = hashlib.sha256(content.encode()).hexdigest()[:_CONTENT_LENGTH]
    return f"{fitted(logical, NAME_LIMIT - _CONTENT_LENGTH - 1)}-{digest}"


def bucket(cluster: str, purpose: str, project: str, token: str) -> str:
    """A bucket's name, unique in the world: the project is in the hash, because a project's id alone may take half the letters there are."""
    rest = f"-{fitted(purpose, _BUCKET_PURPOSE)}-{naming.text_token(f'{project}/{token}', _BUCKET_TOKEN)}"
    name = naming.short(cluster, NAME_LIMIT - len(rest)) + rest
    # Google refuses bucket names that look like its own (pulumi/pulumi-gcp: provider/resources.go).
    return f"gpu-{naming.text_token(name, _BUCKET_TOKEN)}{rest[-_BUCKET_TOKEN - 1 :]}" if _googles(name) else name


def account_id(cluster: str, purpose: str, token: str) -> str:
    """The id of a service account: 6 to 30 characters."""
    return naming.unique_name(cluster, purpose, token, ACCOUNT_LIMIT)


def labels(tags: dict[str, str]) -> dict[str, str]:
    """Tags as labels: `gpuinfra:cluster` becomes `gpuinfra-cluster`; what a label cannot hold becomes a dash."""
    return {_label_key(key): label(value) for key, value in sorted(tags.items())}


def label(text: str) -> str:
    """A label's value: lower case, 63 letters."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:LABEL_LIMIT]


def network_path(given: str, project: str) -> str:
    """A network by its name or its path, as a path."""
    return given if "/" in given else f"projects/{project}/global/networks/{given}"


def project_of(path: str, otherwise: str) -> str:
    """The project that a path names."""
    found = re.search(r"(?:^|/)projects/([^/]+)/", path)
    return found[1] if found else otherwise


def subnet_path(given: str, project: str, region: str) -> str:
    """A subnet by its name or its path, as a path."""
    return given if "/" in given else f"projects/{project}/regions/{region}/subnetworks/{given}"


def repository(registry: str) -> tuple[str, str, str] | None:
    """Location, project and repository of an Artifact Registry, None for a registry of somebody else."""
    found = re.fullmatch(r"([a-z0-9-]+)-docker\.pkg\.dev/([a-z][a-z0-9:.-]+)/([a-z0-9-]+)(/.*)?", registry)
    return (found[1], found[2], found[3]) if found else None


def file_system(name: str) -> str:
    """Name of a Lustre file system: at most eight letters and digits."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return plain if len(plain) <= 8 else plain[:4] + naming.text_token(name, 4)


def _label_key(key: str) -> str:
    plain = label(key)
    return plain if plain[:1].isalpha() else f"x{plain}"[:LABEL_LIMIT]


def _googles(name: str) -> bool:
    return name.startswith("goog") or "google" in name or "g00gle" in name
