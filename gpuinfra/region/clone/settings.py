"""Edits the stack references, and the settings of the stack file outside the declaration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote

from gpuinfra.clouds.region.second_region import Manual
from gpuinfra.region.clone import names
from gpuinfra.region.clone.draft import HIDDEN, Draft, leaves
from gpuinfra.region.clone.model import CloneChange
from gpuinfra.region.clone.pair import RegionPair
from gpuinfra.spec.document import Route
from gpuinfra.spec.load import CLONE_OF
from gpuinfra.spec.shown import looks_secret


def set_settings(pair: RegionPair, draft: Draft, zones: Mapping[str, str]) -> None:
    """Edit the settings outside the declaration. Settings that contain secrets or the name of the region are omitted."""
    if not pair.stack.route:
        return
    for key, value in pair.stack.config.items():
        route: Route = ("config", key)
        after, why = _setting(pair, draft, zones, key, value)
        if after != value:
            draft.config.append(CloneChange(route=route, before=_hidden(value), after=after, reason=why))
    if pair.across:
        key = pair.facts.region_settings[0]
        draft.config.append(
            CloneChange(route=("config", key), before=None, after=pair.target, reason="region of the clone")
        )
    if pair.origin is None or pair.origin.region != pair.target:
        before = pair.stack.config.get(CLONE_OF)
        why = "original of this clone, so that a clone in its region gets the original names"
        after = names.record_of(pair.stack.name, pair.source, references(pair))
        draft.config.append(CloneChange(route=("config", CLONE_OF), before=before, after=after, reason=why))


def references(pair: RegionPair) -> dict[str, str]:
    """Return layer -> stack reference of the stack."""
    use = pair.spec.use
    return {layer: one for layer, one in (("foundation", use.foundation), ("site", use.site)) if one}


def _setting(pair: RegionPair, draft: Draft, zones: Mapping[str, str], key: str, value: object) -> tuple[object, str]:
    if key == CLONE_OF:
        return (
            (None, "the clone is in the original region")
            if pair.origin and pair.origin.region == pair.target
            else (value, "")
        )
    if _is_secret(value):
        _secret(
            pair, draft, key, "is encrypted with the stack's key and cannot be decrypted by another stack", secret=True
        )
        return None, "a secret of the stack"
    if key in pair.own_facts.region_settings and not pair.across:
        return pair.target, f"second region instead of {pair.source}"
    if key in pair.own_facts.zone_settings and not pair.across:
        return zones.get(str(value)) or draft.get(("where", "zone")), f"zone of {pair.target}"
    if pair.across and key.partition(":")[0] in {one.partition(":")[0] for one in pair.own_facts.region_settings}:
        return None, f"it is a setting of {pair.here.title}"
    if any(looks_secret(one) for one in _texts(value)):
        _secret(pair, draft, key, "looks like a plaintext secret", secret=True)
        return None, "it looks like a secret, and the clone contains no plaintext secrets"
    if any(pair.source in one for one in _texts(value)):
        _secret(pair, draft, key, f"refers to {pair.source}", secret=False)
        return None, f"it refers to {pair.source}"
    return value, ""


def _secret(pair: RegionPair, draft: Draft, key: str, why: str, *, secret: bool) -> None:
    option = " --secret" if secret else ""
    draft.manual.append(
        Manual(
            path=f"config.{key}",
            what=f"setting {key}",
            why=f"it {why}",
            command=f"pulumi config set {quote(key)}{option} --stack {pair.name}",
        )
    )


def set_references(pair: RegionPair, draft: Draft) -> None:
    """Set the references to the stacks in the second region."""
    for layer in ("foundation", "site"):
        reference = getattr(pair.spec.use, layer)
        if reference and not pair.is_given(("use", layer)):
            new = names.reference_in(reference, layer, pair.source, pair.target, pair.origin)
            why = f"the {layer} of {pair.target}; `gpuinfra clone {quote(reference.rpartition('/')[2])} --region {pair.target}` writes its stack file"
            draft.set(("use", layer), new, why)


def _is_secret(value: object) -> bool:
    if isinstance(value, dict):
        return set(value) == {"secure"} or any(map(_is_secret, value.values()))
    return isinstance(value, list) and any(map(_is_secret, value))


def _hidden(value: object) -> object:
    """Return a setting for the list of changes, without secrets."""
    if _is_secret(value) or any(looks_secret(one) for one in _texts(value)):
        return HIDDEN
    return value


def _texts(value: object) -> Iterator[str]:
    yield from (text for _, text in leaves(value))
