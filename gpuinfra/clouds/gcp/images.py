"""GPU images of Google Cloud: Canonical's accelerator images in the project `ubuntu-os-accelerator-images`.

The family name contains the driver branch. Google does not publish a list of the packages in a release.
Families and machine series: https://docs.cloud.google.com/ai-hypercomputer/docs/images, updated 2026-04-06, retrieved 2026-11-22.
"""

from __future__ import annotations

from datetime import date

from gpuinfra.software.images import ImageFamily, ImageRelease

READ = date(2026, 11, 22)
PROJECT = "ubuntu-os-accelerator-images"
BRANCH = 580


def _seen(day: date, **contents: str) -> ImageRelease:
    source = (
        "a public test report that names the image and the versions that it found"
        if contents
        else "a public listing of the project's images"
    )
    return ImageRelease(date=day, contents=contents, source=source, read=READ)


_RELEASES = {
    "2204-amd64": (_seen(date(2026, 4, 28)),),
    "2404-amd64": (_seen(date(2026, 4, 18)), _seen(date(2026, 8, 20), driver="580.173.02", container_toolkit="1.20.0")),
    "2204-arm64": (_seen(date(2026, 4, 28)),),
    "2404-arm64": (_seen(date(2026, 4, 18)),),
}
IMAGES = tuple(
    ImageFamily(
        name=f"ubuntu-accelerator-{kind}-with-nvidia-{BRANCH}",
        os=f"ubuntu-{kind[:2]}.{kind[2:4]}",
        arch="arm64" if kind.endswith("arm64") else "x86_64",
        latest=f"{PROJECT}/ubuntu-accelerator-{kind}-with-nvidia-{BRANCH}",
        dated=f"projects/{PROJECT}/global/images/ubuntu-accelerator-{kind}-with-nvidia-{BRANCH}-v%Y%m%d",
        releases=releases,
        branch=BRANCH,
    )
    for kind, releases in _RELEASES.items()
)
