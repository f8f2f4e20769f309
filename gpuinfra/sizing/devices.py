"""Peak rates and power of GPUs, which the catalog does not contain. Rates are dense: vendors also print rates with sparsity, which are twice as high."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuinfra.catalog.records import Gpu

STAS = "stas00/ml-engineering:compute/accelerator/README.md at 744d01e1, dense rates, and NVIDIA's data sheet of the product"
_DATASHEET = "NVIDIA's data sheet of the product, dense rate"


class Precision(StrEnum):
    """Precision of the matrix multiplications. Parameters, gradients and optimizer states are as the recipe says."""

    BF16 = "bf16"
    FP8 = "fp8"
    FP4 = "fp4"


@dataclass(frozen=True, slots=True)
class DeviceRate:
    """The rates of a GPU."""

    bf16_tflops: float
    fp8_tflops: float
    """0 if the GPU has no FP8 units."""
    fp4_tflops: float
    memory_tb_s: float
    watts: int
    """Highest power of the board (TDP)."""
    source: str

    def supports(self, precision: Precision) -> bool:
        """Return whether the GPU has units for the precision."""
        return {Precision.BF16: True, Precision.FP8: self.fp8_tflops > 0, Precision.FP4: self.fp4_tflops > 0}[precision]


DEVICES = {
    "V100-32GB": DeviceRate(125, 0, 0, 0.9, 300, _DATASHEET),
    "T4": DeviceRate(65, 0, 0, 0.32, 70, _DATASHEET),
    "A10": DeviceRate(125, 0, 0, 0.6, 150, _DATASHEET),
    "A10G": DeviceRate(70, 0, 0, 0.6, 300, _DATASHEET),
    "A100-40GB": DeviceRate(312, 0, 0, 1.555, 400, STAS),
    "A100-80GB": DeviceRate(312, 0, 0, 2.039, 400, STAS),
    "A100-PCIE-80GB": DeviceRate(312, 0, 0, 1.935, 300, STAS),
    "L4": DeviceRate(121, 242, 0, 0.3, 72, _DATASHEET),
    "L40S": DeviceRate(362, 733, 0, 0.864, 350, STAS),
    "H100": DeviceRate(989, 1979, 0, 3.35, 700, STAS),
    "H100-NVL": DeviceRate(835, 1671, 0, 3.9, 400, _DATASHEET),
    "H200": DeviceRate(989, 1979, 0, 4.8, 700, STAS),
    "B200": DeviceRate(2250, 4500, 9000, 8.0, 1000, STAS),
    "B300": DeviceRate(2250, 4500, 12600, 8.0, 1100, STAS),
    "GB200": DeviceRate(2500, 5000, 10000, 8.0, 1200, STAS),
    "GB300": DeviceRate(2500, 5000, 15000, 8.0, 1400, STAS),
    "RTX-PRO-6000": DeviceRate(500, 1000, 2000, 1.597, 600, _DATASHEET),
}
"""Key of the GPU in the catalog -> rates. A test compares the keys with the catalog."""

ARCHITECTURE = {"V100-32GB": "volta", "T4": "turing", "A10": "ampere-pcie", "A10G": "ampere-pcie", "A100-PCIE-80GB": "ampere-pcie", "L4": "ada", "L40S": "ada",
    "A100-40GB": "ampere", "A100-80GB": "ampere", "H100": "hopper", "H200": "hopper", "H100-NVL": "hopper-pcie", "B200": "blackwell", "B300": "blackwell",
    "GB200": "blackwell", "GB300": "blackwell", "RTX-PRO-6000": "blackwell-pcie"}  # fmt: skip
"""Key of the GPU -> family within which measurements are interpolated. GPUs without NVSwitch are families of their own."""


def memory_bytes(gpu: Gpu) -> float:
    """Return the memory of a GPU in bytes, as the driver reports it."""
    return gpu.memory_mib * 2.0**20


def default_precision(gpu: Gpu) -> Precision:
    """Return the precision of published runs on this GPU: FP8 on Blackwell, and BF16 on older GPUs."""
    return Precision.FP8 if gpu.arch == "blackwell" else Precision.BF16
