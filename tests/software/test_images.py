from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.plan.profile import profile_of
from gpuinfra.software.images import LABELS, ImageFamily, contents_text
from gpuinfra.software.version import key

FAMILIES = [family for cloud in CLOUDS for family in profile_of(cloud).image_families]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_record_has_a_source_and_a_date(family: ImageFamily) -> None:
    """Releases are in order, are read after they are released, and state packages of the lock with versions that can be compared."""
    assert family.releases, "a family without a record states nothing"
    days = [release.date for release in family.releases]
    assert days == sorted(set(days))
    for release in family.releases:
        assert release.source
        assert release.date < release.read <= date(2026, 11, 22)
        assert set(release.contents) <= set(LABELS)
        assert all(key(version) for version in release.contents.values())


def test_releases_without_an_address_are_on_the_page() -> None:
    """Each source is an address or a file of a public repository, except for the releases that the page lists: all on Google Cloud, and some on AWS."""
    page = (Path(__file__).parents[2] / "docs/reference/images.md").read_text()
    (line,) = [one for one in page.splitlines() if one.startswith("The address of the source is not recorded for")]
    listed = set(re.findall(r"Ubuntu (\S+) (\S+) (\d{4}-\d\d-\d\d)", line))
    found = {
        cloud: {
            (family.os.removeprefix("ubuntu-"), family.arch, str(release.date))
            for family in profile_of(cloud).image_families
            for release in family.releases
            if not re.search(r"https://|^Azure/azhpc-images:", release.source)
        }
        for cloud in CLOUDS
    }
    assert (found["aws"], found["azure"]) == (listed, set())
    assert "all releases on Google Cloud" in line
    assert len(found["gcp"]) == sum(len(family.releases) for family in profile_of("gcp").image_families)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_families_differ_and_name_their_releases(family: ImageFamily) -> None:
    """A family is the only one for its system and architecture on its cloud, and each date has its own reference."""
    same = [one for one in FAMILIES if one.latest == family.latest]
    assert same == [family]
    assert family.ref(date(2026, 10, 6)) != family.ref(date(2026, 10, 7))
    assert "20261006" in family.ref(date(2026, 10, 6))


REFERENCES = {
    "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20260929": ("aws", date(2026, 9, 29)),
    "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20261006": ("aws", date(2026, 10, 6)),
    "microsoft-dsvm:ubuntu-hpc:2404:24.04.2026072901": ("azure", date(2026, 7, 29)),
    "microsoft-dsvm:ubuntu-hpc:2204:22.04.2026082801": ("azure", date(2026, 8, 28)),
    "projects/ubuntu-os-accelerator-images/global/images/ubuntu-accelerator-2404-amd64-with-nvidia-580-v20260225": ("gcp", date(2026, 2, 25)),
    "projects/ubuntu-os-accelerator-images/global/images/ubuntu-accelerator-2204-arm64-with-nvidia-580-v20260428": ("gcp", date(2026, 4, 28)),
}  # fmt: skip
"""References to releases that public projects use (retrieved 2026-11-22)."""


@pytest.mark.parametrize("ref", REFERENCES)
def test_references_are_those_that_public_projects_use(ref: str) -> None:
    """The reference to the release of a date is the reference that public projects use for it."""
    cloud, day = REFERENCES[ref]
    assert ref in [family.ref(day) for family in profile_of(cloud).image_families]


def test_contents_are_listed_in_the_order_of_reports() -> None:
    """Contents name their packages, and unknown packages are left out."""
    assert contents_text({"dcgm": "4.7.0", "driver": "595.91.07"}) == "driver 595.91.07, DCGM 4.7.0"
    assert contents_text({}) == ""
