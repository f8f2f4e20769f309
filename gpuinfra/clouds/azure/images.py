"""GPU images of Azure: the Ubuntu HPC images of `microsoft-dsvm`.

Azure publishes the contents of each release as `versions.json` at the release's tag in Azure/azhpc-images. The file does not list the kernel.
An image version ends with the release date and a number. The number is 01 in every known version.
"""

from __future__ import annotations

from datetime import date

from gpuinfra.software.images import ImageFamily, ImageRelease

READ = date(2026, 11, 22)


def _release(day: date, driver: str, dcgm: str, doca: str, lustre: str) -> ImageRelease:
    return ImageRelease(
        date=day,
        contents={"driver": driver, "cuda": "13.0", "dcgm": dcgm, "doca_ofed": doca, "lustre_client": lustre},
        source=f"Azure/azhpc-images:versions.json at tag ubuntu-hpc-{day:%Y%m%d}01",
        read=READ,
    )


IMAGES = tuple(
    ImageFamily(
        name=f"microsoft-dsvm:ubuntu-hpc:{version.replace('.', '')}",
        os=f"ubuntu-{version}",
        arch="x86_64",
        latest=f"microsoft-dsvm:ubuntu-hpc:{version.replace('.', '')}:latest",
        dated=f"microsoft-dsvm:ubuntu-hpc:{version.replace('.', '')}:{version}.%Y%m%d01",
        releases=releases,
    )
    for version, releases in (
        (
            "22.04",
            (
                _release(date(2026, 5, 26), "580.126.16", "4.5.2", "3.2.1", "2.15.7"),
                _release(date(2026, 7, 29), "580.126.16", "4.5.2", "3.2.1", "2.15.8"),
            ),
        ),
        (
            "24.04",
            (
                _release(date(2026, 5, 26), "580.126.20", "4.5.2", "3.2.2", "2.16.1"),
                _release(date(2026, 7, 29), "580.173.02", "4.6.0", "3.2.3", "2.17.0"),
            ),
        ),
    )
)
"""A tag lists the contents for both Ubuntu releases. Public projects use the versions 24.04.2026052601 and 24.04.2026072901."""
