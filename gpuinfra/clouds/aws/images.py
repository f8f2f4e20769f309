"""AWS GPU images: the Deep Learning Base OSS Nvidia Driver GPU AMIs.

AWS names the AMI of each release after its build date. The release notes are pages of the DLAMI developer guide, one for each release.
"""

from __future__ import annotations

from datetime import date

from gpuinfra.software.images import ImageFamily, ImageRelease

READ = date(2026, 11, 22)
_NOTES = "https://docs.aws.amazon.com/dlami/latest/devguide/aws-deep-learning-ami-gpubaseoss"


def _release(day: date, source: str, **contents: str) -> ImageRelease:
    return ImageRelease(date=day, contents=contents, source=source, read=READ)


_X86_2204 = (
    _release(
        date(2026, 4, 3),
        "release notes, as quoted in a public test suite that pins ami-06517bc7fad3c6a48",
        driver="580.126.09",
    ),
    _release(
        date(2026, 9, 29),
        "measured on a g6e.2xlarge on 2026-10-03, in a public build record",
        driver="595.91.07",
        cuda="13.2",
    ),
)
_X86_2404 = (
    _release(
        date(2026, 1, 23),
        "public setup script, tested on p4d.24xlarge and p4de.24xlarge",
        driver="580.126.09",
        cuda="12.9",
        efa_installer="1.45.0",
    ),
    _release(
        date(2026, 9, 15),
        f"{_NOTES}-ul2404-2026-09-16.html, as quoted in a public plan of 2026-09-22",
        driver="595.91.07",
        kernel="7.0.0-1012-aws",
        cuda="13.2",
    ),
    _release(
        date(2026, 10, 6),
        f"{_NOTES}-ul2404-2026-10-08.html, and public benchmark records on g6e.xlarge",
        driver="595.91.07",
        cuda="13.2",
    ),
)
_ARM64_2204 = (
    _release(
        date(2026, 1, 6),
        f"{_NOTES}arm64-ul2204-2026-01-08.html",
        driver="580.105.08",
        kernel="6.8.0-1044-aws",
        cuda="13.0",
        efa_installer="1.45.1",
        dcgm="4.4.2",
        container_toolkit="1.18.1",
        gdrcopy="2.5.1",
    ),
    _release(
        date(2026, 9, 15),
        f"{_NOTES}arm64-ul2204-2026-09-16.html",
        driver="595.91.07",
        kernel="6.8.0-1063-aws",
        cuda="13.2",
        efa_installer="1.50.0",
        dcgm="4.7.0",
        container_toolkit="1.20.0",
        gdrcopy="2.5.2",
    ),
    _release(
        date(2026, 10, 6),
        f"{_NOTES}arm64-ul2204-2026-10-08.html",
        driver="595.91.07",
        kernel="6.8.0-1066-aws",
        cuda="13.2",
        efa_installer="1.50.0",
        dcgm="4.7.0",
        container_toolkit="1.20.1",
        gdrcopy="2.5.2",
    ),
)
_ARM64_2404 = (
    _release(
        date(2025, 12, 5),
        f"{_NOTES}arm64-ul2404-2025-12-10.html",
        driver="580.105.08",
        kernel="6.14.0-1017-aws",
        cuda="13.0",
        efa_installer="1.45.1",
        dcgm="4.4.2",
        container_toolkit="1.18.1",
        gdrcopy="2.5.1",
    ),
    _release(
        date(2026, 4, 28),
        f"{_NOTES}arm64-ul2404-2026-04-30.html",
        driver="595.58.03",
        kernel="6.17.0-1012-aws",
        cuda="13.2",
        efa_installer="1.47.0",
        dcgm="4.5.3",
        container_toolkit="1.19.0",
    ),
    _release(
        date(2026, 6, 16),
        f"{_NOTES}arm64-ul2404-2026-06-16.html",
        driver="595.71.05",
        kernel="6.17.0-1017-aws",
        cuda="13.2",
        efa_installer="1.47.0",
        dcgm="4.5.3",
        container_toolkit="1.19.1",
    ),
    _release(
        date(2026, 9, 18),
        f"{_NOTES}arm64-ul2404-2026-09-21.html",
        driver="595.91.07",
        kernel="7.0.0-1012-aws",
        cuda="13.2",
        efa_installer="1.50.0",
        dcgm="4.7.0",
        container_toolkit="1.20.0",
    ),
    _release(
        date(2026, 10, 9),
        f"{_NOTES}arm64-ul2404-2026-10-09.html",
        driver="595.91.07",
        kernel="7.0.0-1014-aws",
        cuda="13.2",
        efa_installer="1.50.0",
        dcgm="4.7.0",
        container_toolkit="1.20.1",
    ),
)


def _family(os: str, arch: str, releases: tuple[ImageRelease, ...]) -> ImageFamily:
    version = os.removeprefix("ubuntu-")
    prefix = "Deep Learning ARM64 Base" if arch == "arm64" else "Deep Learning Base"
    name = f"{prefix} OSS Nvidia Driver GPU AMI (Ubuntu {version})"
    return ImageFamily(
        name=name,
        os=os,
        arch=arch,
        latest=f"/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-{os}/latest/ami-id",
        dated=f"{name} %Y%m%d",
        releases=releases,
    )


IMAGES = (
    _family("ubuntu-22.04", "x86_64", _X86_2204),
    _family("ubuntu-24.04", "x86_64", _X86_2404),
    _family("ubuntu-22.04", "arm64", _ARM64_2204),
    _family("ubuntu-24.04", "arm64", _ARM64_2404),
)
"""AMI and parameter names are from the DLAMI developer guide. The EFA version is the version of the EFA installer."""
