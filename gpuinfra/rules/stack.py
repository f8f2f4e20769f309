"""Reads and checks a stack's declaration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path

from gpuinfra.base.errors import SpecError
from gpuinfra.base.findings import Finding, Level, error, warn
from gpuinfra.base.registry import CLOUDS
from gpuinfra.base.stack_files import project_folder
from gpuinfra.plan.profile import profile_of
from gpuinfra.rules.run import check
from gpuinfra.spec.document import Document, read
from gpuinfra.spec.load import CLONE_OF, PROJECT, LoadedStack, read_stack, with_line
from gpuinfra.spec.messages import nearest
from gpuinfra.spec.shown import shown


def load_stack(name_or_path: str | Path, today: date) -> LoadedStack:
    """Read, parse, and check a stack. If there are errors, raises `SpecError` with all findings."""
    stack = read_stack(name_or_path)
    findings = check_stack(stack, today)
    if any(finding.level is Level.ERROR for finding in findings):
        raise SpecError(findings)
    return replace(stack, findings=findings)


def check_stack(stack: LoadedStack, today: date) -> tuple[Finding, ...]:
    """Return all findings for a parsed stack, each with its line in the file."""
    findings = (
        with_line(finding, stack.document, (*stack.route, *_route(finding.path)))
        for finding in check(stack.spec, today)
    )
    return (*(finding for rule in FILE_RULES for finding in rule(stack)), *findings)


def _route(path: str) -> tuple[str | int, ...]:
    parts: list[str | int] = []
    for piece in path.replace("]", "").split("."):
        name, *indices = piece.split("[")
        if name:
            parts.append(name)
        parts.extend(int(index) for index in indices if index.isdigit())
    return tuple(parts)


def region_agrees_with_provider(stack: LoadedStack) -> Iterator[Finding]:
    """The region in the provider's configuration matches the region in the declaration."""
    cloud = profile_of(stack.spec.cloud)
    key = cloud.region_setting
    given, declared = stack.config.get(key) if key else None, stack.spec.where.region
    if key is None or given is None or given == declared:
        return
    regions = (*cloud.regions, *(one for one in (given, declared) if isinstance(one, str) and cloud.is_region(one)))
    what = f"but where.region is {shown(declared)}"
    if declared in regions:
        hint = f"set it to {declared}, or change where.region" if given in regions else f"did you mean {declared}?"
    elif isinstance(given, str) and given in regions:
        return  # A different rule already reports where.region.
    else:
        near = nearest(str(given), list(regions))
        what = f"which is not a valid {cloud.title} region"
        hint = f"did you mean {near}?" if near else "set it to the value of where.region"
    finding = error(key, f"is {shown(given)}, {what}", hint, rule=region_agrees_with_provider.__name__)
    yield with_line(finding, stack.document, (*stack.route[:-1], key))


def project_agrees_with_provider(stack: LoadedStack) -> Iterator[Finding]:
    """The project in the provider's configuration matches the project in the declaration, which the components use."""
    given, declared = stack.config.get(PROJECT), stack.settings.get(PROJECT)
    if given is not None and given != declared:
        what = f"is {shown(given)}, but where.project is {shown(declared)}"
        finding = error(PROJECT, what, "remove one of them", rule=project_agrees_with_provider.__name__)
        yield with_line(finding, stack.document, (*stack.route[:-1], PROJECT))


def requests_sign_in_as_the_provider(stack: LoadedStack) -> Iterator[Finding]:
    """gpuinfra's own requests (handover, live checks, failover, SSH) can use the sign-in settings of the provider."""
    cloud, rule = profile_of(stack.spec.cloud), requests_sign_in_as_the_provider.__name__
    only = [name for name in stack.config if any(fnmatchcase(name, form) for form in cloud.provider_only_settings)]
    if only:
        what = f"{'applies' if len(only) == 1 else 'apply'} only to the provider; gpuinfra's own requests use the credentials of the environment"
        more = f" (also {', '.join(only[1:])})" if only[1:] else ""
        finding = warn(only[0], f"{what}, which can belong to another account{more}", cloud.sign_in_hint)
        yield with_line(finding, stack.document, (*stack.route[:-1], only[0]))
    for name in cloud.sign_in_settings:
        if _has_secret(stack.config.get(name)):
            what = "is a secret, which commands cannot read from the stack file or the state"
            finding = error(
                name, what, "set it without --secret; profiles, ARNs and external IDs are no secrets", rule=rule
            )
            yield with_line(finding, stack.document, (*stack.route[:-1], name))


def _has_secret(value: object) -> bool:
    if isinstance(value, dict):
        return "secure" in value or any(_has_secret(one) for one in value.values())
    return isinstance(value, list) and any(_has_secret(one) for one in value)


_REGION_IN_URL = re.compile(r"[?&]region=([\w-]+)|:kms:([\w-]+):|^gcpkms://projects/[^/]+/locations/([\w-]+)/")
"""The region in a URL of Pulumi's state backend or secrets provider: `s3://state?region=us-west-2`, `awskms:///arn:aws:kms:us-west-2:...`,
`gcpkms://projects/p/locations/us-east4/keyRings/r/cryptoKeys/k` (https://www.pulumi.com/docs/iac/concepts/secrets/, retrieved 2026-11-26)."""
REGIONAL = ("s3://", "awskms://")
"""URL prefixes of regional services whose URLs can specify a region."""


def state_survives_the_region(stack: LoadedStack) -> Iterator[Finding]:
    """The Pulumi state and its secrets provider are not in a region that can fail:
    the region of a stack with `recovery`, or the region of a clone's original."""
    origin = stack.config.get(CLONE_OF)
    original = origin.get("region") if isinstance(origin, dict) else None
    own = stack.spec.where.region
    regions = [own] if stack.spec.recovery else []
    # The original of a clone can be on a different cloud.
    is_region = isinstance(original, str) and any(original in profile_of(cloud).regions for cloud in CLOUDS)
    if isinstance(original, str) and is_region and original != own:
        regions.append(original)
    if not regions:
        return
    for document, route in _urls_of(stack):
        url, path = _at(document, route), ".".join(route)
        if not isinstance(url, str):
            continue
        named = region_in_url(url)
        if named in regions:
            what = f"is in {named}, so a failover cannot read the state when this region fails"
            # A clone can have a purpose other than failover, so the region of its original causes only a warning.
            finding = (error if named == own else warn)(path, what, "use a bucket and a key in a third region")
        elif named is None and url.startswith(REGIONAL):
            what = f"is {shown(url)}, which does not specify its region"
            finding = warn(path, what, f"add ?region=... and make sure that it is not {' or '.join(regions)}")
        else:
            continue
        yield with_line(replace(finding, rule=state_survives_the_region.__name__), document, route)


STATE_RULE = state_survives_the_region.__name__


def region_in_url(url: str) -> str | None:
    """Return the region in a URL of a state backend or a secrets provider, or None if the URL does not specify a region."""
    match = _REGION_IN_URL.search(url)
    return next(filter(None, match.groups()), None) if match else None


def project_backend(stack: LoadedStack) -> str:
    """Return the URL of the state backend in the nearest `Pulumi.yaml`, or an empty string."""
    urls = (_at(document, route) for document, route in _urls_of(stack) if route == BACKEND_ROUTE)
    return next((url for url in urls if isinstance(url, str)), "")


def secrets_provider(stack: LoadedStack) -> str:
    """Return the URL of the secrets provider in the stack file, or an empty string."""
    url = _at(stack.document, ("secretsprovider",)) if stack.document is not None else None
    return url if isinstance(url, str) else ""


BACKEND_ROUTE = ("backend", "url")
"""Location of the state backend in `Pulumi.yaml`."""


def _urls_of(stack: LoadedStack) -> Iterator[tuple[Document, tuple[str, ...]]]:
    """Yield the locations of the secrets provider in the stack file and of the state backend in the nearest `Pulumi.yaml`."""
    if stack.document is not None:
        yield stack.document, ("secretsprovider",)
    folder = project_folder(stack.path.absolute().parent)
    if folder is not None:
        yield read(folder / "Pulumi.yaml"), BACKEND_ROUTE


def _at(document: Document, route: tuple[str, ...]) -> object:
    value = document.value
    for part in route:
        value = value.get(part) if isinstance(value, dict) else None
    return value


FILE_RULES = (
    region_agrees_with_provider,
    project_agrees_with_provider,
    requests_sign_in_as_the_provider,
    state_survives_the_region,
)
"""Rules about a stack file, in the order of their findings. The other rules are about the declaration only."""
