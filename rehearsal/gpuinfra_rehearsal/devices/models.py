"""GPU models: the values that differ between models in tool output.

Memory, links, PCIe generation and device IDs match the machine catalog; a test compares them.
Reserved memory, clocks, power and subsystem IDs are from data sheets or recordings; no check depends on them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import Model


def _model(
    name: str,
    arch: str,
    chip: str,
    device: str,
    memory: int,
    reserved: int,
    gen: int,
    cap: str,
    watts: int,
    clocks: tuple[int, int, int],
    links: int = 0,
    rate: str = "25",
    fabric: bool = False,
    tlimit: str = "N/A",
    sub: str = "0000",
    width: int = 16,
) -> Model:
    return {
        "NAME": name, "ARCH": arch, "CHIP": chip, "PCIID": device + "10DE", "SUBID": sub + "10DE", "MEMORY": str(memory),
        "RESERVED": str(reserved), "FREE": str(memory - reserved - 1), "GEN": str(gen), "WIDTH": str(width), "CAP": cap, "LIMIT": "%d.00" % watts,
        "POWER": "%.2f" % (watts * 0.11), "CLOCK": str(clocks[0]), "CLOCK_MAX": str(clocks[1]), "CLOCK_MEMORY": str(clocks[2]),
        "TLIMIT": tlimit, "FABRIC": fabric, "LINKS": links, "RATE": rate, "VBIOS": "00.00.00.00.01", "IMG": "G000.0000.00.00",
    }  # fmt: skip


MODELS = (
    _model("Tesla V100-SXM2-32GB", "Volta", "GV100GL [Tesla V100 SXM2 32GB]", "1DB5", 32768, 300, 3, "7.0", 300, (135, 1530, 877), 6, "25.781"),
    _model("Tesla T4", "Turing", "TU104GL [Tesla T4]", "1EB8", 15360, 450, 3, "7.5", 70, (300, 1590, 5001)),
    _model("NVIDIA A10", "Ampere", "GA102GL [A10]", "2236", 23028, 490, 4, "8.6", 150, (210, 1695, 6251)),
    _model("NVIDIA A10G", "Ampere", "GA102GL [A10G]", "2237", 23028, 490, 4, "8.6", 300, (210, 1710, 6251)),
    _model("NVIDIA A100-SXM4-40GB", "Ampere", "GA100 [A100 SXM4 40GB]", "20B0", 40960, 568, 4, "8.0", 400, (210, 1410, 1215), 12, sub="144E"),
    _model("NVIDIA A100-SXM4-80GB", "Ampere", "GA100 [A100 SXM4 80GB]", "20B2", 81920, 869, 4, "8.0", 400, (210, 1410, 1593), 12, sub="147F"),
    _model("NVIDIA A100 80GB PCIe", "Ampere", "GA100 [A100 PCIe 80GB]", "20B5", 81920, 869, 4, "8.0", 300, (210, 1410, 1512), 12),
    _model("NVIDIA L4", "Ada Lovelace", "AD104GL [L4]", "27B8", 23034, 460, 4, "8.9", 72, (210, 2040, 6251), tlimit="40 C"),
    _model("NVIDIA L40S", "Ada Lovelace", "AD102GL [L40S]", "26B9", 46068, 610, 4, "8.9", 350, (210, 2520, 9001), tlimit="50 C", width=8),
    _model("NVIDIA H100 80GB HBM3", "Hopper", "GH100 [H100 SXM5 80GB]", "2330", 81559, 479, 5, "9.0", 700, (345, 1980, 2619), 18, "26.562", True,
        "46 C", "16C1"),
    _model("NVIDIA H100 NVL", "Hopper", "GH100 [H100 NVL]", "2321", 95830, 550, 5, "9.0", 400, (345, 1785, 2619), 12, "26.562", False, "46 C"),
    _model("NVIDIA H200", "Hopper", "GH100 [H200 SXM 141GB]", "2335", 143771, 614, 5, "9.0", 700, (345, 1980, 3201), 18, "26.562", True, "59 C", "18BE"),
    _model("NVIDIA B200", "Blackwell", "GB100 [B200]", "2901", 183359, 720, 5, "10.0", 1000, (120, 1965, 3996), 18, "50", True, "50 C"),
    _model("NVIDIA B300 SXM6 AC", "Blackwell", "GB110 [B300 SXM6 AC]", "3182", 275040, 900, 6, "10.3", 1100, (120, 2032, 3996), 18, "53.125", True, "50 C"),
    _model("NVIDIA GB200", "Blackwell", "GB100 [GB200]", "2941", 189471, 740, 5, "10.0", 1200, (120, 2062, 3996), 18, "53.125", True, "50 C"),
    _model("NVIDIA GB300", "Blackwell", "GB110 [GB300]", "31C2", 284208, 920, 6, "10.3", 1400, (120, 2062, 3996), 18, "53.125", True, "50 C"),
)  # fmt: skip
