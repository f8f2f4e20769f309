"""Records of the GPU images that clouds publish: families, releases, and the software in each release.

Each cloud's `images.py` contains the records. A record contains only facts from its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Protocol

from gpuinfra.software.version import key

LABELS = {
    "driver": "driver",
    "kernel": "kernel",
    "cuda": "CUDA",
    "efa_installer": "EFA",
    "doca_ofed": "DOCA-OFED",
    "dcgm": "DCGM",
    "container_toolkit": "container toolkit",
    "gdrcopy": "GDRCopy",
    "lustre_client": "Lustre client",
}
"""Maps package names in the lock to names in reports, in report order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageRelease:
    """One release of an image family."""

    date: date
    """Date in the release name."""
    contents: Mapping[str, str]
    """Maps package names in the lock to versions in the image. Packages that the source does not list are missing."""
    source: str
    """Source of the contents."""
    read: date


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageFamily:
    """A series of GPU images with the same operating system and architecture."""

    name: str
    os: str
    arch: str
    latest: str
    """Reference to the newest release, in the cloud's terms."""
    dated: str
    """Reference to the release with a given date, as a pattern for `strftime`."""
    releases: tuple[ImageRelease, ...]
    """Recorded releases, oldest first. Empty if no contents are recorded."""
    branch: int | None = None
    """Driver branch of every release, if the family name contains it."""

    def ref(self, day: date) -> str:
        """Return the reference to the release with a given date."""
        return day.strftime(self.dated)

    def day(self, ref: str) -> date | None:
        """Return the date of a release from its reference, or None if the reference has another form."""
        try:
            return datetime.strptime(ref, self.dated).replace(tzinfo=UTC).date()
        except ValueError:
            return None

    def release(self, day: date) -> ImageRelease | None:
        """Return the record of the release with a given date, or None if the release is not recorded."""
        return next((one for one in self.releases if one.date == day), None)

    @property
    def newest(self) -> ImageRelease | None:
        """The newest recorded release."""
        return self.releases[-1] if self.releases else None

    def contents(self, day: date | None) -> Mapping[str, str]:
        """Return what is known about the release with a given date: its record, or otherwise the driver branch in the family name."""
        release = self.release(day) if day else None
        if release and release.contents:
            return release.contents
        return {"driver": f"branch {self.branch}"} if self.branch else {}

    def branch_of(self, release: ImageRelease | None) -> int | None:
        """Return the driver branch of a release, or None if it is unknown."""
        driver = release.contents.get("driver") if release else None
        return key(driver)[0] if driver else self.branch


class NodeImage(Protocol):
    """The image attributes that the lock reads. `plan.model.Image` describes them."""

    @property
    def os(self) -> str: ...
    @property
    def prebuilt(self) -> bool: ...
    @property
    def date(self) -> date | None: ...
    @property
    def release(self) -> ImageRelease | None: ...
    @property
    def branch(self) -> int | None: ...


def contents_text(contents: Mapping[str, str]) -> str:
    """Format contents as `driver 595.91.07, kernel 6.8.0-1066-aws`."""
    return ", ".join(f"{label} {contents[name]}" for name, label in LABELS.items() if name in contents)


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the packages of `after` whose version differs in `before`: label -> versions. An unknown version is empty."""
    return {
        label: (before.get(name, ""), after[name])
        for name, label in LABELS.items()
        if name in after and before.get(name) != after[name]
    }


ALWAYS_SHOWN = ("driver", "kernel", "dcgm")
"""Packages that `unrecorded_changes` lists even if no record of the family contains them."""


def unrecorded_changes(
    family: ImageFamily, before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Return the changes to a release whose contents may be unknown: label -> versions. An unknown version is empty.

    It lists the packages in the family's records and `ALWAYS_SHOWN`. Packages with the same known version are left out.
    """
    stated = {name for release in family.releases for name in release.contents} | {*ALWAYS_SHOWN, *before}
    return {
        label: (before.get(name, ""), after.get(name, ""))
        for name, label in LABELS.items()
        if name in stated and (name not in after or before.get(name) != after[name])
    }
