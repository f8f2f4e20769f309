"""Facts of a cloud that decide about software on its nodes. Each cloud's `software.py` fills them in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

GENERIC_KERNELS: Final = {"ubuntu-22.04": ("5.15", "6.8"), "ubuntu-24.04": ("6.8",)}
"""OS -> kernel series of Ubuntu's generic images."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LustreRelease:
    """The Lustre client for one release of an operating system."""

    packages: str
    """Packages to install; `@KERNEL@` stands for the running kernel."""
    version: str = "kernel"
    """Version of the client; `kernel` if the repository has a package for each kernel."""
    kernel_series: tuple[str, ...] = ()
    """Kernel series with published modules; empty if there are modules for every kernel of the cloud's images."""
    kernel_flavour: str = ""
    """Kernel flavour that the modules require, if it is not the flavour of the cloud's images."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LustreClient:
    """The repository with a cloud's Lustre client."""

    repository: str
    """`{suite}` stands for the code name of the operating system's release, here and in `suite`."""
    suite: str
    key_url: str
    key_fingerprint: str
    releases: Mapping[str, LustreRelease]
    """OS -> client."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudSoftware:
    """Facts of one cloud. The defaults fit a cloud that boots Ubuntu's generic images and has no storage service."""

    kernels: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: GENERIC_KERNELS)
    """OS -> kernel series that its images boot, such as `6.8`."""
    kernel_flavour: str = "generic"
    """Flavour in the names of kernel packages, such as `linux-image-aws`."""
    local_disk_model: str = ""
    """Model of local disks (`/sys/block/*/device/model`), a pattern for the whole name."""
    local_disk_mount_of_image: str = ""
    """Directory where the cloud's GPU images mount local disks."""
    home_options: str = ""
    """Mount options of home file systems."""
    lustre: LustreClient | None = None
