"""The image of a pool, from the declaration and a cloud's records of its GPU images."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import date

from gpuinfra.base.findings import Finding, error
from gpuinfra.plan.machines import pools_of
from gpuinfra.plan.model import Image
from gpuinfra.software.images import ImageFamily
from gpuinfra.spec.image import CustomImage
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.pool import Pool

WORDS = ("default", "plain")


def wanted(spec: ClusterSpec, pool: Pool) -> str | CustomImage:
    """Return the declared image of a pool: `default`, `plain`, a release date, or an image that is selected by its ID."""
    return pool.image or spec.software.image


def where(pool: Pool, path: str) -> str:
    """Return the path of the field that declares the image of a pool. `path` is the path of the pool."""
    return f"{path}.image" if pool.image else "software.image"


def declared_os(spec: ClusterSpec, pool: Pool) -> str | None:
    """Return the declared operating system of a pool, or None."""
    return pool.os or spec.software.os


def day(image: str | CustomImage) -> date | None:
    """Return the declared release date, or None. A rule rejects a date that does not exist."""
    if isinstance(image, str) and image not in WORDS:
        with contextlib.suppress(ValueError):
            return date.fromisoformat(image)
    return None


def misfits(spec: ClusterSpec, is_ref: Callable[[str], object], what: str, hint: str) -> Iterator[Finding]:
    """Yield an error for each image that is selected by its ID and has another architecture than the machine type, or whose ID has
    another form. `is_ref` recognizes an ID of the cloud; `what` and `hint` are the message about other IDs."""
    for path, pool, machine in pools_of(spec):
        image, field = wanted(spec, pool), where(pool, path)
        if not isinstance(image, CustomImage):
            continue
        if image.arch != machine.arch:
            problem = f"is {image.arch}, but {machine.name} is {machine.arch}"
            yield error(f"{field}.arch", problem, "use an image that has the same architecture as the machine type")
        if not is_ref(image.ref):
            yield error(f"{field}.ref", what, hint)


def released(
    families: tuple[ImageFamily, ...], os: str, arch: str, image: str | CustomImage, *, latest: str, dated: str
) -> Image | None:
    """Return the GPU image for an operating system and an architecture, or None if the cloud publishes none.

    `latest` and `dated` are the sources (`Image.source`) of the newest release and of a dated release.
    """
    family = next((one for one in families if (one.os, one.arch) == (os, arch)), None)
    if family is None:
        return None
    on = day(image)
    release = family.release(on) if on else family.newest
    return Image(
        source=dated if on else latest,
        ref=family.ref(on) if on else family.latest,
        os=os,
        arch=arch,
        prebuilt=True,
        family=family.name,
        date=on,
        release=release,
        branch=family.branch_of(release),
    )


def own(families: tuple[ImageFamily, ...], image: CustomImage, source: str, ref: str = "") -> Image:
    """Return an image that is selected by its ID. Its contents are known if it is a recorded release of the cloud's GPU images."""
    for family in families:
        for release in family.releases:
            if family.ref(release.date).lower() == image.ref.lower():
                return Image(
                    source=source,
                    ref=ref or image.ref,
                    os=image.os,
                    arch=image.arch,
                    prebuilt=image.prebuilt,
                    family=family.name,
                    date=release.date,
                    release=release,
                    branch=family.branch_of(release),
                )
    return Image(source=source, ref=ref or image.ref, os=image.os, arch=image.arch, prebuilt=image.prebuilt)
