"""Compatible versions of drivers, CUDA, NCCL, frameworks, EFA, DOCA-OFED, and the container toolkit.

This module contains facts with their sources. `lock.py` selects from them. To add a release, add one line here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

LOCK_DATE = date(2026, 11, 29)


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """A branch of NVIDIA's data center driver."""

    branch: int
    newest: str
    end_of_life: date | None
    ended: bool = False
    open_only: bool = False
    """True if the branch has no proprietary kernel module."""
    pin: str = ""
    """Version that gpuinfra installs from this branch. Empty if it does not install from this branch."""
    floor: str = ""
    """Lowest version of the branch accepted from an image."""
    why: str = ""


BRANCHES = {
    row.branch: row
    for row in (
        Branch(branch=535, newest="535.309.01", end_of_life=date(2026, 6, 30)),
        Branch(branch=550, newest="550.163.01", end_of_life=None, ended=True),
        Branch(branch=570, newest="570.211.01", end_of_life=date(2026, 2, 28)),
        Branch(branch=575, newest="575.64.05", end_of_life=None, ended=True),
        Branch(
            branch=580,
            newest="580.178.04",
            end_of_life=date(2028, 6, 30),
            pin="580.178.04",
            floor="580.95",
            why="LTS until June 2028; the newest release of the branch; CUDA 13.0 was released with 580.95.05",
        ),
        Branch(branch=590, newest="590.48.01", end_of_life=None, ended=True),
        Branch(
            branch=595,
            newest="595.91.07",
            end_of_life=date(2027, 3, 31),
            pin="595.91.07",
            floor="595.58",
            why="production branch, the default of the GPU Operator",
        ),
        Branch(branch=610, newest="610.57.04", end_of_life=date(2026, 8, 31)),
        Branch(branch=620, newest="620.10.01", end_of_life=date(2029, 9, 30), open_only=True),
    )
}
"""Branches: https://docs.nvidia.com/datacenter/tesla/drivers/{615,620}/supported-drivers-and-cuda-toolkit-versions.html,
retrieved 2026-11-20 and 2026-11-29. gpuinfra installs R620, which is a long-term branch, on request only: DCGM 4.5.2 and the recorded outputs of the
checks are older. Its kernel modules are open only: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/620/kernel-modules.html.

Newest versions: NVIDIA/gpu-driver-container:versions.mk and .common-ci.yml (580.178.04, 595.91.07, 610.57.04). NVIDIA's repositories for Ubuntu
22.04 and 24.04 contain 580.178.04-1ubuntu1 and 620.10.01-1ubuntu1 (addresses in public installation scripts and in the recorded directory listing of a
public test, retrieved 2026-11-29). apt verifies the packages with the key of the repository, so the lock has no checksums of them."""

DEFAULT_BRANCH = 580


@dataclass(frozen=True, kw_only=True, slots=True)
class Cuda:
    """A CUDA toolkit version."""

    version: str
    package: str
    min_driver: int
    nccl: str
    """NCCL package that was built for it."""


CUDA = {
    row.version: row
    for row in (
        Cuda(version="12.8", package="cuda-toolkit-12-8", min_driver=525, nccl="2.27.5-1+cuda12.9"),
        Cuda(version="12.9", package="cuda-toolkit-12-9", min_driver=525, nccl="2.27.5-1+cuda12.9"),
        Cuda(version="13.0", package="cuda-toolkit-13-0", min_driver=580, nccl="2.28.9-1+cuda13.0"),
        Cuda(version="13.1", package="cuda-toolkit-13-1", min_driver=580, nccl="2.28.9-1+cuda13.0"),
        Cuda(version="13.2", package="cuda-toolkit-13-2", min_driver=580, nccl="2.30.4-1+cuda13.2"),
    )
}  # fmt: skip
"""https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html and
GoogleCloudPlatform/compute-gpu-installation, retrieved 2026-11-20. PyTorch 2.11 for CUDA 13.0 contains NCCL 2.28.9.
NVIDIA's repository has no package of NCCL for CUDA 13.0 that is newer than 2.28.9 (`apt-cache policy` on four DGX machines, public notes, retrieved
2026-11-29). PyTorch 2.12 and later bring a newer NCCL, which their programs use; that of the node serves the checks and MPI programs."""

NCCL_PACKAGES = (
    "2.27.5-1+cuda12.9", "2.28.9-1+cuda12.9", "2.29.7-1+cuda12.9", "2.30.4-1+cuda12.9", "2.30.7-1+cuda12.9",
    "2.27.7-1+cuda13.0", "2.28.3-1+cuda13.0", "2.28.9-1+cuda13.0", "2.29.7-1+cuda13.2", "2.30.4-1+cuda13.2",
)  # fmt: skip
"""Published packages of NCCL (`libnccl2`) in NVIDIA's repositories, each as installed by public Dockerfiles and instructions, retrieved 2026-11-27:
meta-pytorch/monarch (2.28.9 for 12.9), nvidia/cuda images of 13.0.0 and 13.0.1 (2.27.7, 2.28.3), recipes for HPE Slingshot with aws-ofi-nccl 1.19 (13.2)."""

DEFAULT_CUDA = "13.0"
LAST_CUDA = {"volta": "12.9"}
"""Maps each architecture to the last CUDA version that supports it. https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html"""
FIRST_CUDA = {"blackwell": "12.8", "hopper": "11.8", "ada": "11.8"}
LAST_BRANCH = {"volta": 580}


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """The CUDA version in a framework's default wheel."""

    cuda: str
    min_driver: int
    nccl: str = ""
    """Version of NCCL that the wheel of PyTorch requires and brings (its requirement on nvidia-nccl-cu12 or -cu13). Empty if it was not read."""


TORCH = {
    "2.15.0": Wheel(cuda="13.2.2", min_driver=580, nccl="2.30.7"),
    "2.14.1": Wheel(cuda="13.0.3", min_driver=580, nccl="2.30.7"),
    "2.13.0": Wheel(cuda="13.0.3", min_driver=580, nccl="2.29.7"),
    "2.12.1": Wheel(cuda="13.0.2", min_driver=580, nccl="2.29.7"),
    "2.11.0": Wheel(cuda="13.0.2", min_driver=580, nccl="2.28.9"),
    "2.10.0": Wheel(cuda="12.8.90", min_driver=525, nccl="2.27.5"),
    "2.9.1": Wheel(cuda="12.8.90", min_driver=525, nccl="2.27.5"),
    "2.8.0": Wheel(cuda="12.8.90", min_driver=525, nccl="2.27.3"),
    "2.7.1": Wheel(cuda="12.6.77", min_driver=525),
    "2.6.0": Wheel(cuda="12.4.127", min_driver=525),
    "2.5.1": Wheel(cuda="12.4.127", min_driver=525),
    "2.4.1": Wheel(cuda="12.1.105", min_driver=525),
    "2.3.1": Wheel(cuda="12.1.105", min_driver=525),
}
TENSORFLOW = {
    "2.21.0": Wheel(cuda="12.5.82", min_driver=525),
    "2.20.0": Wheel(cuda="12.5.82", min_driver=525),
    "2.19.0": Wheel(cuda="12.5.82", min_driver=525),
    "2.18.0": Wheel(cuda="12.5.82", min_driver=525),
    "2.17.0": Wheel(cuda="12.3.101", min_driver=525),
}
JAX = {13: 580, 12: 525}
"""Maps the plugin's CUDA major version to the lowest driver branch. Wheels on PyPI, retrieved 2026-11-20."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """A release of Ubuntu: the names of its package suites, and the package that sets up NVIDIA's repository."""

    suite: str
    number: str
    repository: str
    keyring_sha256: str


KEYRING = "cuda-keyring_1.1-1_all.deb"
DISTRIBUTIONS = {
    "ubuntu-22.04": Distribution(
        suite="jammy",
        number="22.04",
        repository="ubuntu2204",
        keyring_sha256="d93190d50b98ad4699ff40f4f7af50f16a76dac3bb8da1eaaf366d47898ff8df",
    ),
    "ubuntu-24.04": Distribution(
        suite="noble",
        number="24.04",
        repository="ubuntu2404",
        keyring_sha256="d2a6b11c096396d868758b86dab1823b25e14d70333f1dfa74da5ddaf6a06dba",
    ),
}
"""Checksums: GoogleCloudPlatform/compute-gpu-installation:linux/cuda_installer/config.py, retrieved 2026-11-20."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EfaInstaller:
    """A release of the AWS EFA installer."""

    version: str
    released: date
    libfabric: str
    aws_ofi_nccl: str


EFA_INSTALLER = EfaInstaller(
    version="1.51.0", released=date(2026, 10, 22), libfabric="2.7.0amzn2.0", aws_ofi_nccl="1.22.0"
)
EFA_FLOOR = "1.29"
"""Lowest version that supports GPUDirect over EFA with the open driver (aws/aws-parallelcluster issue 6015)."""
EFA_HOST = "https://efa-installer.amazonaws.com"
EFA_KEY_FINGERPRINT = "4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC"
"""Amazon EC2 User Guide, page `efa-start`."""

BROKEN_LUSTRE_KERNELS = ("4.18.0-425.3.1", "4.18.0-425.13.1")
"""RHEL 8.7 kernels that break the ABI of the Lustre module (aws/aws-parallelcluster-cookbook)."""

_TCP = (
    "NCCL_SOCKET_IFNAME NCCL_CROSS_NIC NCCL_PROTO NCCL_P2P_NET_CHUNKSIZE NCCL_P2P_PCI_CHUNKSIZE NCCL_P2P_NVL_CHUNKSIZE "
    "NCCL_BUFFSIZE NCCL_MIN_NCHANNELS NCCL_NET_GDR_LEVEL "
)
FABRIC_VARIABLES = {
    "efa": "FI_EFA_USE_HUGE_PAGE",
    "infiniband": "UCX_NET_DEVICES CUDA_DEVICE_ORDER OMPI_MCA_coll_hcoll_enable NCCL_TOPO_FILE NCCL_IB_PCI_RELAXED_ORDERING NCCL_IGNORE_CPU_AFFINITY",
    "gib": "NCCL_NET NCCL_CROSS_NIC NCCL_NET_GDR_LEVEL NCCL_P2P_NET_CHUNKSIZE NCCL_NVLS_CHUNKSIZE NCCL_IB_GID_INDEX NCCL_IB_ADAPTIVE_ROUTING "
    "NCCL_IB_QPS_PER_CONNECTION NCCL_IB_TC NCCL_IB_FIFO_TC NCCL_TUNER_CONFIG_PATH",
    "tcpx": f"{_TCP}NCCL_GPUDIRECTTCPX_* NCCL_ALGO NCCL_NSOCKS_PERTHREAD NCCL_SOCKET_NTHREADS NCCL_DYNAMIC_CHUNK_SIZE NCCL_MAX_NCHANNELS NCCL_P2P_PXN_LEVEL",
    "tcpxo": f"{_TCP}NCCL_FASTRAK_* NCCL_LIB_DIR NCCL_TUNER_PLUGIN NCCL_TUNER_CONFIG_PATH NCCL_SHIMNET_* NCCL_NVLSTREE_MAX_CHUNKSIZE NCCL_NVLS_ENABLE",
}
"""Maps each fabric provider to the variables that its bootstrap step, or the script of its plugin, sets for logins. `*` stands for any characters.

Steps: `bootstrap/50-*.sh`. `set_nccl_env.sh` of gIB: GoogleCloudPlatform/cluster-toolkit:examples/machine-learning/a4-highgpu-8g/a4high-vm.yaml.
`nccl-env-profile.sh` of TCPXO: GoogleCloudPlatform/container-engine-accelerators:gpudirect-tcpxo/README.md, both retrieved 2026-11-20.
"""
NETWORK_VARIABLES = {
    "efa": "NCCL_NET NCCL_NET_PLUGIN FI_PROVIDER",
    "infiniband": "NCCL_NET NCCL_NET_PLUGIN NCCL_IB_DISABLE NCCL_IB_HCA",
    "gib": "NCCL_NET_PLUGIN NCCL_IB_DISABLE NCCL_IB_HCA",
    "tcpx": "NCCL_NET NCCL_NET_PLUGIN",
    "tcpxo": "NCCL_NET NCCL_NET_PLUGIN",
}
"""Maps each fabric provider to other variables with which a program uses another network. NCCL documentation, "Environment Variables"
(https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html); libfabric, fabric(7)."""

RESTRICTED_KERNELS = ("-gcp-tcpx",)
"""Ends of kernel releases whose packages are not in Ubuntu's archive. Google gives access to the packages of `linux-gcp-tcpx` on request
(GoogleCloudPlatform/cluster-toolkit:examples/machine-learning/a3-highgpu-8g/README.md, retrieved 2026-11-27)."""

CONTAINER_TOOLKIT_PIN = "1.20.1"
CONTAINER_TOOLKIT_FLOOR = "1.18"
CONTAINER_TOOLKIT_REPOSITORY = "https://nvidia.github.io/libnvidia-container/stable/deb"
CONTAINER_TOOLKIT_KEY_URL = "https://nvidia.github.io/libnvidia-container/gpgkey"
CONTAINER_TOOLKIT_KEY_FINGERPRINT = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"
"""Version: NVIDIA/aicr, container image inventory (`container-toolkit:v1.20.1`, GPU Operator v26.7.1), and three public installation scripts, which install
the package `nvidia-container-toolkit=1.20.1-1` from this repository; retrieved 2026-11-29. apt verifies the packages with the key."""

DOCKER_PIN = "29.8.1"
DOCKER_RANGE = ("26.1", "30")
"""CDI requires Docker 26.1 (NVIDIA/cloud-native-docs: container-toolkit/cdi-support.md). The cloud's own images contain 28.x."""
DOCKER_PACKAGES = {
    "containerd.io": "2.3.6-1",
    "docker-ce-cli": "5:29.8.1-1",
    "docker-ce": "5:29.8.1-1",
    "docker-buildx-plugin": "0.37.1-1",
}
"""Package -> version without the release of Ubuntu, in a set that other projects pin for jammy and noble (public installation
scripts and `apt-cache policy` outputs of September 2026, retrieved 2026-11-22). `docker build` requires the buildx plugin."""
DOCKER_REPOSITORY = "https://download.docker.com/linux/ubuntu"
DOCKER_KEY_URL = "https://download.docker.com/linux/ubuntu/gpg"
DOCKER_KEY_FINGERPRINT = "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"
"""https://docs.docker.com/engine/install/ubuntu/"""

ENROOT_PIN = "4.2.1"
ENROOT_RANGE = ("4", "5")
_ENROOT = f"https://github.com/NVIDIA/enroot/releases/download/v{ENROOT_PIN}"
ENROOT_DEBS = {
    f"{_ENROOT}/enroot_{ENROOT_PIN}-1_amd64.deb": "5955c51e88df0c5ed538d87abb5264609d4bad55fa8570745ed5d4ec66c8ab91",
    f"{_ENROOT}/enroot+caps_{ENROOT_PIN}-1_amd64.deb": "ca22652dcbdd3ebb6e2c68df781ef4301647c79dd7a41ed62899c2fd0f692750",
}
"""URL -> SHA-256. Release v4.2.1 of 2026-06-09. NVIDIA publishes no checksum file; the values come from a public installation
script for a machine with H100 GPUs, which downloads the release and compares its checksums, retrieved 2026-11-22."""

GOOGLE_PACKAGES = "https://us-apt.pkg.dev/projects"
GOOGLE_KEY_URL = "https://us-apt.pkg.dev/doc/repo-signing-key.gpg"
GOOGLE_KEY_FINGERPRINT = "35BAA0B33E9EB396F59CA838C0BA5CE6DC6315A3"
"""Key for Artifact Registry's apt repositories. Other vendors that use these repositories publish its fingerprint."""

GIB_PIN = "1.1.0"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpudirect:
    """Google's NCCL plugin for TCP and its receive manager. Both are container images that are released as a pair."""

    plugin: str
    """Tag of the plugin image, which is its version."""
    manager: str
    folder: str
    """Folder of both images in Google's registry and in yours."""


PLUGIN_IMAGE = "nccl-plugin-gpudirecttcpx-dev"
MANAGER_IMAGE = "tcpgpudmarxd-dev"
TCPX = Gpudirect(plugin="v3.1.9", manager="v2.0.12", folder="gpudirect-tcpx")
"""GoogleCloudPlatform/container-engine-accelerators:gpudirect-tcpx/, retrieved 2026-11-20."""
TCPXO = Gpudirect(plugin="v1.0.15", manager="v1.0.21", folder="gpudirect-tcpxo")
"""GoogleCloudPlatform/container-engine-accelerators:gpudirect-tcpxo/, January 2026, retrieved 2026-11-20."""
TCPXO_HELPER = "dmabuf-import-helper=1.1"
TCPXO_ARGUMENTS = {"a3-mega": "--num_hops=2 --num_nics=8 --uid= --alsologtostderr", "a3-high": "--num_hops=2"}
"""Family -> arguments of the receive manager. GoogleCloudPlatform/cluster-toolkit:examples/machine-learning/{a3-megagpu-8g,a3-highgpu-8g}, retrieved 2026-11-21."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Doca:
    """NVIDIA's DOCA-OFED for a release of Ubuntu: the package that sets up its repository."""

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
"""Azure/azhpc-images:versions.json of 2026-07-29, retrieved 2026-11-21."""

NVLSM_PIN = "2025.10.12-1"
NVLSM_RANGE = ("2025", "2027")
"""From NVIDIA's repository. Public installation guides pin this version for B200 nodes. Versions are dates and independent of the driver version."""
DCGM_PIN = "1:4.5.2-1"
DCGM_RANGE = ("4.4.1", "5")
"""Check B5 uses DCGM's nvbandwidth, which its packages contain since 4.4.1 (NVIDIA/DCGM, tag v4.4.1)."""
"""Azure/azhpc-images:versions.json of 2026-07-29. Google's instructions for A3 High pin 1:4.6.0-1."""
DCGM_EXPORTER_PIN = "4.8.2-1"
DCGM_EXPORTER_RANGE = ("4", "5")
"""Package in NVIDIA's repository that AKS also installs on its nodes (Azure/AgentBaker: e2e tests and node scripts,
retrieved 2026-11-22). The exporter release for DCGM 4.5.3 is 4.5.3-4.8.2; with DCGM 4.5.2 it is not verified."""
NODE_EXPORTER_PACKAGES = {"ubuntu-22.04": "1.3.1", "ubuntu-24.04": "1.7.0"}
NODE_EXPORTER_RANGE = ("1.3", "2")
"""Package `prometheus-node-exporter` of Ubuntu's universe (https://launchpad.net/ubuntu/+source/prometheus-node-exporter, not read again). The flags that the
step sets exist since 1.2 (prometheus/node_exporter: release 1.2.0, pull request 2078, retrieved 2026-11-29). The rehearsal runs Debian's 1.5.0."""
GDRCOPY_PIN = "2.5.1"
GDRCOPY_RANGE = ("2.4", "3")
"""Azure/azhpc-images:versions.json of 2026-07-29: 2.5.1 on Ubuntu 22.04, 2.6 on 24.04. Its packages have no published checksum."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """A release that is published as an archive for x86_64, with its checksum."""

    version: str
    url: str
    sha256: str


PROMETHEUS = Archive(
    version="3.13.2",
    url="https://github.com/prometheus/prometheus/releases/download/v3.13.2/prometheus-3.13.2.linux-amd64.tar.gz",
    sha256="0e8c4d46101bd025ea8265e377d2caabc57f488fc1be1c367f37db69ea41be6f",
)
ALERTMANAGER = Archive(
    version="0.33.1",
    url="https://github.com/prometheus/alertmanager/releases/download/v0.33.1/alertmanager-0.33.1.linux-amd64.tar.gz",
    sha256="93d802cba6a8d27239d747ce117df7648d326ab67394e32247540b030e9842ba",
)
"""Each checksum is the same in two public recipes, retrieved 2026-11-29. Prometheus: `Dockerfile` of kmgowda/sbk-dashboard, and the pins of a CI script
(`CI_PIN_PROMETHEUS_SHA256`). Alertmanager: the PKGBUILD of alertmanager-bin 0.33.1 (AUR), and a script that pins Prometheus 3.13.1 beside it
(`ALERTMANAGER_SHA256`). gpuinfra has not downloaded the archives."""
