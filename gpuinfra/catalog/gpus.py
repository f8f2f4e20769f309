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
_VOLTA = Source(page=_OGKM, read=_READ, note="not supported by the open modules; R580 is the last driver branch")

_REQUIRED = OpenModule.REQUIRED

# Key, name, architecture, MiB, PCI IDs, PCIe generation, first driver, source, NVLink links and GB/s for each link.
# fmt: off
V100 = Gpu("V100-32GB", "Tesla V100-SXM2-32GB", "volta", 32768, ("10de:1db5",), 3, "535", _VOLTA, 6, 25.781, open_module=OpenModule.UNSUPPORTED)
T4 = Gpu("T4", "Tesla T4", "turing", 15360, ("10de:1eb8",), 3, "575.51.02", _TABLE)
A10 = Gpu("A10", "NVIDIA A10", "ampere", 23028, ("10de:2236",), 4, "515.48.07", _TABLE)
A10G = Gpu("A10G", "NVIDIA A10G", "ampere", 23028, ("10de:2237",), 4, "515.48.07", _TABLE)
A100_40 = Gpu("A100-40GB", "NVIDIA A100-SXM4-40GB", "ampere", 40960, ("10de:20b0",), 4, "515.48.07", _AMPERE, 12, 25.0, mig=True)
A100_80 = Gpu("A100-80GB", "NVIDIA A100-SXM4-80GB", "ampere", 81920, ("10de:20b2",), 4, "515.48.07", _AMPERE, 12, 25.0, mig=True)
A100_PCIE_80 = Gpu("A100-PCIE-80GB", "NVIDIA A100 80GB PCIe", "ampere", 81920, ("10de:20b5",), 4, "515.48.07", _TABLE, 12, 25.0, mig=True)
L4 = Gpu("L4", "NVIDIA L4", "ada", 23034, ("10de:27b8",), 4, "525.47.22", _TABLE)
# AWS connects 8 of the 16 lanes: real g6e.2xlarge, NVIDIA/k8s-test-infra qx-l40s.xml, 2026-08-21
L40S = Gpu("L40S", "NVIDIA L40S", "ada", 46068, ("10de:26b9",), 4, "535.43.09", _TABLE, pcie_width=8)
H100 = Gpu("H100", "NVIDIA H100 80GB HBM3", "hopper", 81559, ("10de:2330",), 5, "525.47.07", _CAPTURE, 18, 26.562, mig=True)
H100_NVL = Gpu("H100-NVL", "NVIDIA H100 NVL", "hopper", 95830, ("10de:2321",), 5, "535.43.09", _TABLE, 12, 26.562, mig=True)
H200 = Gpu("H200", "NVIDIA H200", "hopper", 143771, ("10de:2335",), 5, "550.40.65", _CAPTURE, 18, 26.562, mig=True)
B200 = Gpu("B200", "NVIDIA B200", "blackwell", 183359, ("10de:2901", "10de:2909"), 5, "570.133.20", _TABLE, 18, 53.125, open_module=_REQUIRED, mig=True)
B300 = Gpu("B300", "NVIDIA B300 SXM6 AC", "blackwell", 275040, ("10de:3182",), 6, "580.82.07", _TABLE, 18, 53.125, open_module=_REQUIRED, mig=True)
# The GPU supports generation 6, and the link to Grace generation 5: real p6e-gb200.36xlarge, NVIDIA/k8s-test-infra qx-gb200.xml, 2026-08-21
GB200 = Gpu("GB200", "NVIDIA GB200", "blackwell", 189471, ("10de:2941",), 5, "570.123.01", _TABLE, 18, 53.125, open_module=_REQUIRED, mig=True, needs_imex=True)
GB300 = Gpu("GB300", "NVIDIA GB300", "blackwell", 284208, ("10de:31c2", "10de:31c3"), 6, "580.82.07", _TABLE, 18, 53.125,
    open_module=_REQUIRED, mig=True, needs_imex=True)
RTX_PRO_6000 = Gpu("RTX-PRO-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "blackwell", 97887, ("10de:2bb5",), 5, "575.57.08", _TABLE,
    open_module=_REQUIRED)
# fmt: on

GPUS = {
    gpu.key: gpu
    for gpu in (
        V100, T4, A10, A10G, A100_40, A100_80, A100_PCIE_80, L4, L40S, H100, H100_NVL, H200, B200, B300, GB200, GB300, RTX_PRO_6000,
    )
}  # fmt: skip
"""Key -> record. `gpuinfra catalog --gpu` accepts the keys."""
