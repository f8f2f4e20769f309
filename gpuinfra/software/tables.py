"""Which versions go together: driver branches, CUDA, NCCL, frameworks, EFA, Lustre clients, container toolkit.

Facts only, each with the page it was read on; the choice is in `lock.py`. A new release is one line here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

LOCK_DATE = date(2026, 11, 20)

NVIDIA_BRANCHES = (
    "https://docs.nvidia.com/datacenter/tesla/drivers/615/supported-drivers-and-cuda-toolkit-versions.html"
)
CUDA_COMPAT = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """One branch of NVIDIA's data-center driver."""

    branch: int
    kind: str
    """`lts`, `production`, `new-feature`."""
    newest: str
    end_of_life: date | None
    ended: bool = False
    cuda_major: int = 13
    """Highest CUDA major without a compatibility package."""
    pin: str = ""
    """Version that gpuinfra installs from this branch; empty where it does not."""
    floor: str = ""
    """First version of the branch that is accepted from an image."""
    why: str = ""


BRANCHES = {
    row.branch: row
    for row in (
        Branch(branch=535, kind="lts", newest="535.309.01", end_of_life=date(2026, 6, 30), cuda_major=12),
        Branch(branch=550, kind="production", newest="550.163.01", end_of_life=None, ended=True, cuda_major=12),
        Branch(branch=570, kind="production", newest="570.211.01", end_of_life=date(2026, 2, 28), cuda_major=12),
        Branch(branch=575, kind="new-feature", newest="575.64.05", end_of_life=None, ended=True, cuda_major=12),
        Branch(
            branch=580,
            kind="lts",
            newest="580.178.04",
            end_of_life=date(2028, 6, 30),
            pin="580.173.02",
            floor="580.95",
            why="LTS until June 2028; the version that Azure's HPC images and the GPU Operator pin too; 580.95.05 came with CUDA 13.0",
        ),
        Branch(branch=590, kind="new-feature", newest="590.48.01", end_of_life=None, ended=True),
        Branch(
            branch=595,
            kind="production",
            newest="595.91.07",
            end_of_life=date(2027, 3, 31),
            pin="595.91.07",
            floor="595.58",
            why="production branch; the GPU Operator's default",
        ),
        Branch(branch=610, kind="new-feature", newest="610.57.04", end_of_life=date(2026, 8, 31)),
    )
}
"""Read 2026-11-20 on NVIDIA_BRANCHES; newest versions from NVIDIA/gpu-driver-container:versions.mk."""

DEFAULT_BRANCH = 580


@dataclass(frozen=True, kw_only=True, slots=True)
class Cuda:
    """One CUDA toolkit."""

    version: str
    package: str
    min_driver: int
    bundled_driver: str
    nccl: str
    """NCCL package that was built for it."""


CUDA = {
    row.version: row
    for row in (
        Cuda(version="12.8", package="cuda-toolkit-12-8", min_driver=525, bundled_driver="570.172.08", nccl="2.27.5-1+cuda12.9"),
        Cuda(version="12.9", package="cuda-toolkit-12-9", min_driver=525, bundled_driver="575.57.08", nccl="2.27.5-1+cuda12.9"),
        Cuda(version="13.0", package="cuda-toolkit-13-0", min_driver=580, bundled_driver="580.95.05", nccl="2.28.9-1+cuda13.0"),
        Cuda(version="13.1", package="cuda-toolkit-13-1", min_driver=580, bundled_driver="590.48.01", nccl="2.28.9-1+cuda13.0"),
        Cuda(version="13.2", package="cuda-toolkit-13-2", min_driver=580, bundled_driver="595.58.03", nccl="2.28.9-1+cuda13.0"),
    )
}  # fmt: skip
"""Read 2026-11-20 on CUDA_COMPAT and in GoogleCloudPlatform/compute-gpu-installation. NCCL 2.28.9 is what torch 2.11 carries for 13.0."""

DEFAULT_CUDA = "13.0"
LAST_CUDA = {"volta": "12.9"}
"""Architecture -> last CUDA that supports it. https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html"""
FIRST_CUDA = {"blackwell": "12.8", "hopper": "11.8", "ada": "11.8"}
LAST_BRANCH = {"volta": 580}


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """What the default wheel of a framework brings."""

    cuda: str
    nccl: str
    min_driver: int


TORCH = {
    "2.15.0": Wheel(cuda="13.2.2", nccl="2.30.7", min_driver=580),
    "2.14.1": Wheel(cuda="13.0.3", nccl="2.30.7", min_driver=580),
    "2.13.0": Wheel(cuda="13.0.3", nccl="2.29.7", min_driver=580),
    "2.12.1": Wheel(cuda="13.0.2", nccl="2.29.7", min_driver=580),
    "2.11.0": Wheel(cuda="13.0.2", nccl="2.28.9", min_driver=580),
    "2.10.0": Wheel(cuda="12.8.90", nccl="2.27.5", min_driver=525),
    "2.9.1": Wheel(cuda="12.8.90", nccl="2.27.5", min_driver=525),
    "2.8.0": Wheel(cuda="12.8.90", nccl="2.27.3", min_driver=525),
    "2.7.1": Wheel(cuda="12.6.77", nccl="2.26.2", min_driver=525),
    "2.6.0": Wheel(cuda="12.4.127", nccl="2.21.5", min_driver=525),
    "2.5.1": Wheel(cuda="12.4.127", nccl="2.21.5", min_driver=525),
    "2.4.1": Wheel(cuda="12.1.105", nccl="2.20.5", min_driver=525),
    "2.3.1": Wheel(cuda="12.1.105", nccl="2.20.5", min_driver=525),
}
TENSORFLOW = {
    "2.21.0": Wheel(cuda="12.5.82", nccl="2.27.7", min_driver=525),
    "2.20.0": Wheel(cuda="12.5.82", nccl="2.25.1", min_driver=525),
    "2.19.0": Wheel(cuda="12.5.82", nccl="2.23.4", min_driver=525),
    "2.18.0": Wheel(cuda="12.5.82", nccl="2.21.5", min_driver=525),
    "2.17.0": Wheel(cuda="12.3.101", nccl="2.19.3", min_driver=525),
}
JAX = {13: 580, 12: 525}
"""CUDA major of the plugin -> lowest driver branch. Wheels read on PyPI 2026-11-20."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """One release of one distribution: names of its suites, and the bootstrap package of NVIDIA's repository."""

    os: str
    suite: str
    repository: str
    keyring_sha256: str


KEYRING = "cuda-keyring_1.1-1_all.deb"
DISTRIBUTIONS = {
    "ubuntu-22.04": Distribution(
        os="ubuntu-22.04",
        suite="jammy",
        repository="ubuntu2204",
        keyring_sha256="d93190d50b98ad4699ff40f4f7af50f16a76dac3bb8da1eaaf366d47898ff8df",
    ),
    "ubuntu-24.04": Distribution(
        os="ubuntu-24.04",
        suite="noble",
        repository="ubuntu2404",
        keyring_sha256="d2a6b11c096396d868758b86dab1823b25e14d70333f1dfa74da5ddaf6a06dba",
    ),
}
"""Checksums: GoogleCloudPlatform/compute-gpu-installation:linux/cuda_installer/config.py, read 2026-11-20."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EfaInstaller:
    """One release of AWS's EFA installer."""

    version: str
    released: date
    libfabric: str
    aws_ofi_nccl: str


EFA_INSTALLERS = {
    row.version: row
    for row in (
        EfaInstaller(version="1.51.0", released=date(2026, 10, 22), libfabric="2.7.0amzn2.0", aws_ofi_nccl="1.22.0"),
        EfaInstaller(version="1.50.0", released=date(2026, 8, 21), libfabric="2.6.0amzn1.0", aws_ofi_nccl="1.21.1"),
    )
}
EFA_PIN = "1.51.0"
EFA_FLOOR = "1.29"
"""GPUDirect over EFA with the open driver needs 1.29 (aws/aws-parallelcluster issue 6015)."""
EFA_HOST = "https://efa-installer.amazonaws.com"
EFA_KEY_FINGERPRINT = "4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC"
"""AWS EC2 user guide, page `efa-start`."""

BROKEN_LUSTRE_KERNELS = ("4.18.0-425.3.1", "4.18.0-425.13.1")
"""RHEL 8.7 kernels that break the module's ABI (aws/aws-parallelcluster-cookbook)."""

CONTAINER_TOOLKIT_PIN = "1.20.0"
CONTAINER_TOOLKIT_FLOOR = "1.18"
CONTAINER_TOOLKIT_REPOSITORY = "https://nvidia.github.io/libnvidia-container/stable/deb"
CONTAINER_TOOLKIT_KEY_URL = "https://nvidia.github.io/libnvidia-container/gpgkey"
CONTAINER_TOOLKIT_KEY_FINGERPRINT = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"

GOOGLE_PACKAGES = "https://us-apt.pkg.dev/projects"
GOOGLE_KEY_URL = "https://us-apt.pkg.dev/doc/repo-signing-key.gpg"
GOOGLE_KEY_FINGERPRINT = "35BAA0B33E9EB396F59CA838C0BA5CE6DC6315A3"
"""The key of Artifact Registry's apt repositories, which other vendors that use it print."""

GIB_PIN = "1.1.0"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpudirect:
    """Google's NCCL plugin over TCP and its receive manager: container images that are released as a pair."""

    plugin: str
    """Tag of the plugin's image, and its version."""
    manager: str
    folder: str
    """Folder of both in Google's registry, and in one's own."""


PLUGIN_IMAGE = "nccl-plugin-gpudirecttcpx-dev"
MANAGER_IMAGE = "tcpgpudmarxd-dev"
TCPX = Gpudirect(plugin="v3.1.9", manager="v2.0.12", folder="gpudirect-tcpx")
"""GoogleCloudPlatform/container-engine-accelerators:gpudirect-tcpx/, read 2026-11-20."""
TCPXO = Gpudirect(plugin="v1.0.15", manager="v1.0.21", folder="gpudirect-tcpxo")
"""GoogleCloudPlatform/container-engine-accelerators:gpudirect-tcpxo/, January 2026, read 2026-11-20."""
TCPXO_HELPER = "dmabuf-import-helper=1.1"
TCPXO_ARGUMENTS = {"a3-mega": "--num_hops=2 --num_nics=8 --uid= --alsologtostderr", "a3-high": "--num_hops=2"}
"""Family -> arguments of the receive manager. GoogleCloudPlatform/cluster-toolkit:examples/machine-learning/{a3-megagpu-8g,a3-highgpu-8g}, read 2026-11-21."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Doca:
    """NVIDIA's DOCA-OFED for one release of Ubuntu: the package that brings its repository."""

    version: str
    url: str
    sha256: str


_DOCA = "https://www.mellanox.com/downloads/DOCA"
DOCA = {
    "ubuntu-22.04": Doca(
        version="3.2.1",
        url=f"{_DOCA}/DOCA_v3.2.1/host/doca-host_3.2.1-044000-25.10-ubuntu2204_amd64.deb",
        sha256="75b8d4258b7239ef5021abaa25e7eeb4fcbc0c8117cab89ce1a766d2d218c8a0",
    ),
    "ubuntu-24.04": Doca(
        version="3.2.3",
        url=f"{_DOCA}/DOCA_v3.2.3/host/doca-host_3.2.3-019000-25.10-ubuntu2404_amd64.deb",
        sha256="762a3dbc1c8c1e4b03867b022ccafcfafa95bffe461a58a5b6e38fc678263614",
    ),
}
"""Azure/azhpc-images:versions.json of 2026-07-29, read 2026-11-21."""

NVLSM_PIN = "2025.10.12-1"
NVLSM_RANGE = ("2025", "2027")
"""NVIDIA's repository; the version that public recipes pin for B200 nodes. It is dated and follows no driver."""
DCGM_PIN = "1:4.5.2-1"
DCGM_RANGE = ("4.2", "5")
"""Azure/azhpc-images:versions.json of 2026-07-29; Google's recipe for A3 High pins 1:4.6.0-1."""
GDRCOPY_PIN = "2.5.1"
GDRCOPY_RANGE = ("2.4", "3")
"""Azure/azhpc-images:versions.json of 2026-07-29: 2.5.1 on Ubuntu 22.04, 2.6 on 24.04. No checksum of its packages is published."""
