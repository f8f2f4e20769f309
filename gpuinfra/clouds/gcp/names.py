"""Names and labels that Google Cloud accepts. Pure.

The names that Pulumi generates for most Google types can have 255 characters and upper case, which the API refuses (pulumi/pulumi-gcp: provider/resources.go). The names here are
readable and have at most 63 characters; a shortened name ends in a part of a hash. Names include the token of the stack, so that the stacks of
a project have different names.
"""

from __future__ import annotations

import hashlib
import re

from gpuinfra import naming

NAME_LIMIT = 63
"""Maximum length of most names (RFC 1035)."""
GROUP_BASE_LIMIT = 58
"""Maximum length of the base name of instances, to which the group adds a hyphen and four characters."""
ACCOUNT_LIMIT = 30
"""Maximum length of the id of a service account."""
LABEL_LIMIT = 63
_CONTENT_LENGTH = 10
_BUCKET_TOKEN = 16
_BUCKET_PURPOSE = 20
"""Maximum length of a purpose, which can be the name of a mount. The name of the cluster, at most 24 characters, always fits beside it."""


def fitted(text: str, limit: int = NAME_LIMIT) -> str:
    """The text, or its beginning and six digits of its hash if it is too long."""
    if len(text) <= limit:
        return text
    return f"{naming.short(text, limit - 7)}-{naming.text_token(text, 6)}"


def physical(logical: str, token: str, limit: int = NAME_LIMIT) -> str:
    """The name of a resource of this stack: `train-network-main-0a1b2c3d`."""
    return f"{fitted(logical, limit - len(token) - 1)}-{token}"


def by_content(logical: str, content: str) -> str:
    """A name that depends on the content, for resources that cannot be changed in place."""
    digest = hashlib.sha256(content.encode()).hexdigest()[:_CONTENT_LENGTH]
    return f"{fitted(logical, NAME_LIMIT - _CONTENT_LENGTH - 1)}-{digest}"


def bucket(cluster: str, purpose: str, project: str, token: str) -> str:
    """A globally unique name of a bucket. The hash includes the project, whose id can have up to 30 characters."""
    rest = f"-{fitted(purpose, _BUCKET_PURPOSE)}-{naming.text_token(f'{project}/{token}', _BUCKET_TOKEN)}"
    name = naming.short(cluster, NAME_LIMIT - len(rest)) + rest
    # Google refuses bucket names that resemble its own (pulumi/pulumi-gcp: provider/resources.go).
    return (
        f"gpu-{naming.text_token(name, _BUCKET_TOKEN)}{rest[-_BUCKET_TOKEN - 1 :]}" if _resembles_google(name) else name
    )


def account_id(cluster: str, purpose: str, token: str) -> str:
    """The id of a service account, 6 to 30 characters."""
    return naming.unique_name(cluster, purpose, token, ACCOUNT_LIMIT)


def labels(tags: dict[str, str]) -> dict[str, str]:
    """Tags as labels: `gpuinfra:cluster` becomes `gpuinfra-cluster`. Unsupported characters become hyphens."""
    return {_label_key(key): label(value) for key, value in sorted(tags.items())}


def label(text: str) -> str:
    """The value of a label: lower case, at most 63 characters."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:LABEL_LIMIT]


def network_path(given: str, project: str) -> str:
    """The path of a network, from its name or its path."""
    return given if "/" in given else f"projects/{project}/global/networks/{given}"


def project_of(path: str, otherwise: str) -> str:
    """The project in a path, or `otherwise` if the path has none."""
    found = re.search(r"(?:^|/)projects/([^/]+)/", path)
    return found[1] if found else otherwise


def subnet_path(given: str, project: str, region: str) -> str:
    """The path of a subnet, from its name or its path."""
    return given if "/" in given else f"projects/{project}/regions/{region}/subnetworks/{given}"


def repository(registry: str) -> tuple[str, str, str] | None:
    """Location, project and repository of an Artifact Registry, None for other registries."""
    found = re.fullmatch(r"([a-z0-9-]+)-docker\.pkg\.dev/([a-z][a-z0-9:.-]+)/([a-z0-9-]+)(/.*)?", registry)
    return (found[1], found[2], found[3]) if found else None


def file_system(name: str) -> str:
    """The name of a Lustre file system, at most eight letters and digits."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return plain if len(plain) <= 8 else plain[:4] + naming.text_token(name, 4)


def _label_key(key: str) -> str:
    plain = label(key)
    return plain if plain[:1].isalpha() else f"x{plain}"[:LABEL_LIMIT]


def _resembles_google(name: str) -> bool:
    return name.startswith("goog") or "google" in name or "g00gle" in name
