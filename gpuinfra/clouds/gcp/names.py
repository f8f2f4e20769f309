"""Names and labels that Google Cloud accepts. Pure.

The names that Pulumi generates for most Google Cloud types can have 255 characters and contain uppercase letters.
The API rejects such names (pulumi/pulumi-gcp: provider/resources.go). Names in this module are
readable and have at most 63 characters. A shortened name ends in part of a hash. Names include the stack token, so that they are unique among the
stacks of a project.
"""

from __future__ import annotations

import hashlib
import re

from gpuinfra.base import naming

NAME_LIMIT = 63
"""Maximum length of most names (RFC 1035)."""
GROUP_BASE_LIMIT = 58
"""Maximum length of the base instance name, to which the group appends a hyphen and four characters."""
ACCOUNT_LIMIT = 30
"""Maximum length of a service account ID."""
LABEL_LIMIT = 63
_CONTENT_LENGTH = 10
_BUCKET_TOKEN = 16
_BUCKET_PURPOSE = 20
"""Maximum length of a purpose, which can be a mount name. It leaves room for the cluster name, which has at most 24 characters."""


def fitted(text: str, limit: int = NAME_LIMIT) -> str:
    """Return the text. If it is too long, return its beginning and six digits of its hash."""
    if len(text) <= limit:
        return text
    return f"{naming.short(text, limit - 7)}-{naming.text_token(text, 6)}"


def physical(logical: str, token: str, limit: int = NAME_LIMIT) -> str:
    """Return the name of a resource of this stack, such as `train-network-main-0a1b2c3d`."""
    return f"{fitted(logical, limit - len(token) - 1)}-{token}"


def by_content(logical: str, content: str) -> str:
    """Return a name that depends on the content, for resources that cannot be updated in place."""
    digest = hashlib.sha256(content.encode()).hexdigest()[:_CONTENT_LENGTH]
    return f"{fitted(logical, NAME_LIMIT - _CONTENT_LENGTH - 1)}-{digest}"


def bucket(cluster: str, purpose: str, project: str, token: str) -> str:
    """Return a globally unique bucket name. The project ID is part of the hash, because it can have up to 30 characters."""
    rest = f"-{fitted(purpose, _BUCKET_PURPOSE)}-{naming.text_token(f'{project}/{token}', _BUCKET_TOKEN)}"
    name = naming.short(cluster, NAME_LIMIT - len(rest)) + rest
    # Google Cloud rejects bucket names that resemble Google names (pulumi/pulumi-gcp: provider/resources.go).
    return (
        f"gpu-{naming.text_token(name, _BUCKET_TOKEN)}{rest[-_BUCKET_TOKEN - 1 :]}" if _resembles_google(name) else name
    )


def account_id(cluster: str, purpose: str, token: str) -> str:
    """Return the ID of a service account, which has 6 to 30 characters."""
    return naming.unique_name(cluster, purpose, token, ACCOUNT_LIMIT)


def role_id(cluster: str, purpose: str, token: str) -> str:
    """Return the ID of a custom role, which has 3 to 64 letters, digits, underscores and periods."""
    return naming.unique_name(cluster, purpose, token, NAME_LIMIT).replace("-", "_")


def labels(tags: dict[str, str]) -> dict[str, str]:
    """Convert tags to labels: `gpuinfra:cluster` becomes `gpuinfra-cluster`. Unsupported characters are replaced by hyphens."""
    return {label_key(key): label(value) for key, value in sorted(tags.items())}


def label(text: str) -> str:
    """Return a valid label value: lower case, at most 63 characters."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:LABEL_LIMIT]


def network_path(given: str, project: str) -> str:
    """Return the path of a network, given its name or path."""
    return given if "/" in given else f"projects/{project}/global/networks/{given}"


def project_of(path: str, otherwise: str) -> str:
    """Return the project in a path, or `otherwise` if the path contains none."""
    match = re.search(r"(?:^|/)projects/([^/]+)/", path)
    return match[1] if match else otherwise


def subnet_path(given: str, project: str, region: str) -> str:
    """Return the path of a subnet, given its name or path."""
    return given if "/" in given else f"projects/{project}/regions/{region}/subnetworks/{given}"


def repository(registry: str) -> tuple[str, str, str] | None:
    """Return the location, project and repository of an Artifact Registry repository, or `None` for other registries."""
    match = re.fullmatch(r"([a-z0-9-]+)-docker\.pkg\.dev/([a-z][a-z0-9:.-]+)/([a-z0-9-]+)(/.*)?", registry)
    return (match[1], match[2], match[3]) if match else None


def file_system(name: str) -> str:
    """Return the name of a Lustre file system, which has at most eight letters and digits."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return plain if len(plain) <= 8 else plain[:4] + naming.text_token(name, 4)


def label_key(key: str) -> str:
    """Return the label key of a tag key: `gpuinfra:cluster` becomes `gpuinfra-cluster`."""
    plain = label(key)
    return plain if plain[:1].isalpha() else f"x{plain}"[:LABEL_LIMIT]


def _resembles_google(name: str) -> bool:
    return name.startswith("goog") or "google" in name or "g00gle" in name
