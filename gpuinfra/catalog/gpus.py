"""GPU products, one record each. All clouds sell the same products.

Device IDs and minimum drivers come from the device tables of NVIDIA's open kernel modules. Names, memory, and links come
from published `nvidia-smi` output of running machines.
"""

from __future__ import annotations

from datetime import date

from gpuinfra.catalog.records import Gpu, OpenModule, Source

_OGKM = "NVIDIA/open-gpu-kernel-modules:README.md, all release tags"
_READ = date(2026, 11, 20)
_TABLE = Source(page=_OGKM, read=_READ)
_CAPTURE = Source(page="utkuozdemir/nvidia_gpu_exporter:internal/captures", read=_READ, note="driver 590.48.01")
_AMPERE = Source(page="influxdata/telegraf:plugins/inputs/nvidia_smi/testdata/a100-sxm4-v12.xml", read=_READ)

V100 = Gpu(
    key="V100-32GB",
    name="Tesla V100-SXM2-32GB",
    arch="volta",
    memory_mib=32768,
    pci_ids=("10de:1db5",),
    pcie_gen=3,
    nvlinks=6,
    nvlink_gb_s=25.781,
    driver_floor="535",
    open_module=OpenModule.UNSUPPORTED,
    source=Source(page=_OGKM, read=_READ, note="not supported by the open modules; R580 is the last driver branch"),
)
T4 = Gpu(
    key="T4",
    name="Tesla T4",
    arch="turing",
    memory_mib=15360,
    pci_ids=("10de:1eb8",),
    pcie_gen=3,
    driver_floor="575.51.02",
    source=_TABLE,
)
A10 = Gpu(
    key="A10",
    name="NVIDIA A10",
    arch="ampere",
    memory_mib=23028,
    pci_ids=("10de:2236",),
    pcie_gen=4,
    driver_floor="515.48.07",
    source=_TABLE,
)
A10G = Gpu(
    key="A10G",
    name="NVIDIA A10G",
    arch="ampere",
    memory_mib=23028,
    pci_ids=("10de:2237",),
    pcie_gen=4,
    driver_floor="515.48.07",
    source=_TABLE,
)
A100_40 = Gpu(
    key="A100-40GB",
    name="NVIDIA A100-SXM4-40GB",
    arch="ampere",
    memory_mib=40960,
    pci_ids=("10de:20b0",),
    pcie_gen=4,
    nvlinks=12,
    nvlink_gb_s=25.0,
    driver_floor="515.48.07",
    mig=True,
    source=_AMPERE,
)
A100_80 = Gpu(
    key="A100-80GB",
    name="NVIDIA A100-SXM4-80GB",
    arch="ampere",
    memory_mib=81920,
    pci_ids=("10de:20b2",),
    pcie_gen=4,
    nvlinks=12,
    nvlink_gb_s=25.0,
    driver_floor="515.48.07",
    mig=True,
    source=_AMPERE,
)
A100_PCIE_80 = Gpu(
    key="A100-PCIE-80GB",
    name="NVIDIA A100 80GB PCIe",
    arch="ampere",
    memory_mib=81920,
    pci_ids=("10de:20b5",),
    pcie_gen=4,
    nvlinks=12,
    nvlink_gb_s=25.0,
    driver_floor="515.48.07",
    mig=True,
    source=_TABLE,
)
L4 = Gpu(
    key="L4",
    name="NVIDIA L4",
    arch="ada",
    memory_mib=23034,
    pci_ids=("10de:27b8",),
    pcie_gen=4,
    driver_floor="525.47.22",
    source=_TABLE,
)
L40S = Gpu(
    key="L40S",
    name="NVIDIA L40S",
    arch="ada",
    memory_mib=46068,
    pci_ids=("10de:26b9",),
    pcie_gen=4,
    pcie_width=8,  # AWS connects 8 of the 16 lanes: real g6e.2xlarge, NVIDIA/k8s-test-infra qx-l40s.xml, 2026-08-21
    driver_floor="535.43.09",
    source=_TABLE,
)
H100 = Gpu(
    key="H100",
    name="NVIDIA H100 80GB HBM3",
    arch="hopper",
    memory_mib=81559,
    pci_ids=("10de:2330",),
    pcie_gen=5,
    nvlinks=18,
    nvlink_gb_s=26.562,
    driver_floor="525.47.07",
    mig=True,
    source=_CAPTURE,
)
H100_NVL = Gpu(
    key="H100-NVL",
    name="NVIDIA H100 NVL",
    arch="hopper",
    memory_mib=95830,
    pci_ids=("10de:2321",),
    pcie_gen=5,
    nvlinks=12,
    nvlink_gb_s=26.562,
    driver_floor="535.43.09",
    mig=True,
    source=_TABLE,
)
H200 = Gpu(
    key="H200",
    name="NVIDIA H200",
    arch="hopper",
    memory_mib=143771,
    pci_ids=("10de:2335",),
    pcie_gen=5,
    nvlinks=18,
    nvlink_gb_s=26.562,
    driver_floor="550.40.65",
    mig=True,
    source=_CAPTURE,
)
B200 = Gpu(
    key="B200",
    name="NVIDIA B200",
    arch="blackwell",
    memory_mib=183359,
    pci_ids=("10de:2901", "10de:2909"),
    pcie_gen=5,
    nvlinks=18,
    nvlink_gb_s=53.125,
    driver_floor="570.133.20",
    open_module=OpenModule.REQUIRED,
    mig=True,
    source=_TABLE,
)
B300 = Gpu(
    key="B300",
    name="NVIDIA B300 SXM6 AC",
    arch="blackwell",
    memory_mib=275040,
    pci_ids=("10de:3182",),
    pcie_gen=6,
    nvlinks=18,
    nvlink_gb_s=53.125,
    driver_floor="580.82.07",
    open_module=OpenModule.REQUIRED,
    mig=True,
    source=_TABLE,
)
GB200 = Gpu(
    key="GB200",
    name="NVIDIA GB200",
    arch="blackwell",
    memory_mib=189471,
    pci_ids=("10de:2941",),
    pcie_gen=5,  # the GPU supports generation 6, and the link to Grace generation 5: real p6e-gb200.36xlarge, NVIDIA/k8s-test-infra qx-gb200.xml, 2026-08-21
    nvlinks=18,
    nvlink_gb_s=53.125,
    driver_floor="570.123.01",
    open_module=OpenModule.REQUIRED,
    mig=True,
    needs_imex=True,  # https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide, retrieved 2026-11-22
    source=_TABLE,
)
GB300 = Gpu(
    key="GB300",
    name="NVIDIA GB300",
    arch="blackwell",
    memory_mib=284208,
    pci_ids=("10de:31c2", "10de:31c3"),
    pcie_gen=6,
    nvlinks=18,
    nvlink_gb_s=53.125,
    driver_floor="580.82.07",
    open_module=OpenModule.REQUIRED,
    mig=True,
    needs_imex=True,  # https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide, retrieved 2026-11-22
    source=_TABLE,
)
RTX_PRO_6000 = Gpu(
    key="RTX-PRO-6000",
    name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
    arch="blackwell",
    memory_mib=97887,
    pci_ids=("10de:2bb5",),
    pcie_gen=5,
    driver_floor="575.57.08",
    open_module=OpenModule.REQUIRED,
    source=_TABLE,
)

GPUS = {
    gpu.key: gpu
    for gpu in (
        V100, T4, A10, A10G, A100_40, A100_80, A100_PCIE_80, L4, L40S, H100, H100_NVL, H200, B200, B300, GB200, GB300, RTX_PRO_6000,
    )
}  # fmt: skip
"""Key -> record. `gpuinfra catalog --gpu` accepts the keys."""
