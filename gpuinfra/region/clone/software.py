"""Replaces images and the registry that exist in the first region only."""

from __future__ import annotations

from gpuinfra.base.findings import error
from gpuinfra.clouds.images import WORDS
from gpuinfra.clouds.region.second_region import Manual
from gpuinfra.region.clone.draft import Draft
from gpuinfra.region.clone.pair import RegionPair
from gpuinfra.spec.document import Route
from gpuinfra.spec.image import CustomImage


def check_images(pair: RegionPair, draft: Draft) -> None:
    """Add an error for each image that does not exist in the second region."""
    declared: list[tuple[str, Route, object]] = [
        (f"pools[{index}].image", ("pools", index, "image"), pool.image) for index, pool in enumerate(pair.spec.pools)
    ]
    declared.append(("software.image", ("software", "image"), pair.spec.software.image))
    for path, route, image in declared:
        if pair.is_given(route) or pair.is_given((*route, "ref")):
            continue
        if pair.across and isinstance(image, str) and image not in WORDS:
            what = f"is {image}, the release date of an image of {pair.here.title}"
            draft.findings.append(
                error(path, what, f"add --set {path}=default, or set it to a release date of {pair.there.title}")
            )
        if not isinstance(image, CustomImage):
            continue
        if pair.across:
            what = f"is an image of {pair.here.title}, which does not start on {pair.there.title}"
            draft.findings.append(
                error(
                    path,
                    what,
                    f"build it on {pair.there.title} and set it with --set {path}.ref=IMAGE, or use --set {path}=default",
                )
            )
            continue
        copied = pair.facts.image(image.ref, pair.source, pair.target)
        if copied:
            why, command = copied
            recovery = pair.spec.recovery
            if recovery is not None and recovery.copy_images and recovery.region == pair.target:
                command = f"pulumi stack output recovery --stack {pair.stack.name}"
                why = f"{why}; `recovery` of the stack copies it, and `images` in this stack output contains the ID of the copy"
            what = f"is in {pair.source}: {why}"
            draft.findings.append(
                error(
                    f"{path}.ref",
                    what,
                    f"run `{command}` and add --set {path}.ref=IMAGE, or add --set {path}=default",
                )
            )


def set_registry(pair: RegionPair, draft: Draft) -> None:
    """Set the registry, and remove settings of another cloud."""
    software = pair.spec.software
    if pair.across:
        for name in ("registry", "kernel"):
            if getattr(software, name):
                draft.set(("software", name), None, f"it is specific to {pair.here.title}")
        if pair.spec.logs and pair.there.software.log_agent is None:
            draft.set(("logs",), None, f"gpuinfra sends no logs on {pair.there.title}")
        return
    moved = software.registry and pair.facts.registry(software.registry, pair.source, pair.target)
    if moved and not pair.is_given(("software", "registry")):
        new, command = moved
        draft.set(("software", "registry"), new, f"the registry is in {pair.source}")
        why = "a registry is in one region; copy the images before the failover"
        draft.manual.append(
            Manual(path="software.registry", what=f"container images in {new}", why=why, command=command)
        )
