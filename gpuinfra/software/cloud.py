"""Facts about a cloud that affect the software on its nodes. Each cloud's `software.py` provides them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

GENERIC_KERNELS: Final = {"ubuntu-22.04": ("5.15", "6.8"), "ubuntu-24.04": ("6.8",)}
"""Maps each OS to the kernel series of Ubuntu's generic images."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LustreRelease:
    """The Lustre client for an operating system release."""

    packages: str
    """Packages to install. `@KERNEL@` stands for the running kernel."""
    version: str = "kernel"
    """Version of the client, or `kernel` if the repository has a package per kernel."""
    kernel_series: tuple[str, ...] = ()
    """Kernel series with published modules. Empty if every kernel of the cloud's images has modules."""
    kernel_flavour: str = ""
    """Kernel flavor that the modules require, if it differs from the flavor of the cloud's images."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LustreClient:
    """The package repository of a cloud's Lustre client."""

    repository: str
    """`{suite}` stands for the code name of the operating system release, here and in `suite`."""
    suite: str
    key_url: str
    key_fingerprint: str
    releases: Mapping[str, LustreRelease]
    """Maps each operating system to its client."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudProgram:
    """A program of a cloud's vendor that nodes run."""

    name: str
    """Name in the lock. In upper case, it is the prefix of the bootstrap step's variables, such as `GCSFUSE_VERSION`."""
    package: str
    pin: str
    """Version to install."""
    accepted: tuple[str, str]
    """Versions that an image may contain: the lowest version and the exclusive upper limit."""
    why: str
    variables: Mapping[str, str]
    """Variables of the step without their prefix. `{version}`, `{suite}` (noble), `{number}` (24.04), `{arch}` (x86_64, arm64) and `{deb_arch}` (amd64,
    arm64) are replaced."""


class BucketClient(CloudProgram):
    """The program that nodes of a cloud use to mount buckets."""

    @property
    def step(self) -> str:
        """Return the bootstrap step, such as `85-gcsfuse`."""
        return f"85-{self.name.replace('_', '-')}"


class LogAgent(CloudProgram):
    """The agent of a cloud that sends logs to its log service."""

    @property
    def step(self) -> str:
        """Return the bootstrap step, such as `15-cloudwatch-agent`. It is early, so that the lines of the other steps are sent."""
        return f"15-{self.name.replace('_', '-')}"


@dataclass(frozen=True, kw_only=True, slots=True)
class HomeMount:
    """How nodes mount the file systems of a service for home directories."""

    options: str
    """Mount options."""
    tls: bool = False
    """Whether nodes connect with TLS, at the port `CloudSoftware.home_tls_port`."""

    @property
    def setting(self) -> str:
        """The connection and the options, as the step for home directories reads them: `tls nfsvers=4.1,hard`."""
        return f"{'tls' if self.tls else 'plain'} {self.options}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudSoftware:
    """Facts about a cloud. The defaults suit a cloud that uses Ubuntu's generic images and has no storage service."""

    kernels: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: GENERIC_KERNELS)
    """Maps each OS to the kernel series of the cloud's images, such as `6.8`."""
    kernel_flavour: str = "generic"
    """Flavor in the names of kernel packages, such as `linux-image-aws`."""
    local_disk_model: str = ""
    """Model of local disks (`/sys/block/*/device/model`), as a pattern that matches the full name."""
    local_disk_mount_of_image: str = ""
    """Directory in which the cloud's GPU images mount local disks."""
    homes: Mapping[str, HomeMount] = field(default_factory=dict)
    """Maps each service for home directories to how nodes mount its file systems."""
    home_tls_port: int | None = None
    """Port on which the servers of home file systems accept TLS. Required if a service in `homes` uses TLS."""
    buckets: BucketClient | None = None
    """The program that nodes use to mount buckets, or None if they mount no buckets."""
    log_agent: LogAgent | None = None
    """The agent that sends logs, or None if gpuinfra cannot send logs on this cloud."""
    lustre: LustreClient | None = None
