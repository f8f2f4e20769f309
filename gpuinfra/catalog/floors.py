"""Floors for copies of data (checks B5, B9, B10) and for collectives (checks B2 and B3).

The copy is as fast as the slowest PCIe link between the processor and the GPU. The link on the processor's side differs
between clouds for the same GPU, so a measurement from one cloud does not apply to other clouds. A collective inside a node
is as fast as NVLink, which is the same for a board on all clouds.
"""

from __future__ import annotations

from datetime import date

from gpuinfra.catalog.records import ALL_REDUCE, Floor

PCIE_GB_S = {3: 11, 4: 21, 5: 42}
"""Rate of a copy over 16 lanes that a healthy GPU exceeds, by PCIe generation. A link at half its width or generation stays below it. 3.0: 0.9 of 12.2 to
12.9 GB/s (mpicbg-scicomp/gearshifft#82); 4.0: Azure's floor, two thirds of the raw rate; 5.0: the same share, below Azure's floor of 48."""


def host_copy(at_least: float, *, source: str, read: date) -> Floor:
    """Return the floor that a cloud publishes for this machine."""
    return Floor(check="B5", what="host to device copy", at_least=at_least, unit="GB/s", source=source, read=read)


def over_link(generation: int, *, width: int = 16, source: str, read: date) -> Floor:
    """Return the floor for a machine type whose copy was not measured, derived from the slowest link between processor and GPU."""
    return host_copy(
        PCIE_GB_S[generation] * width // 16,
        source=f"copy over PCIe {generation}.0 with {width} lanes; link: {source}",
        read=read,
    )


_ML = "stas00/ml-engineering at 744d01e1:network/README.md"
_ML_READ = date(2026, 11, 28)
PAIRS_SEARCHED = "2026-11-28"
"""The last search for figures of machine types with a fabric and without a floor for B3."""
UNPUBLISHED = "no figure of a healthy machine is published (searched 2026-11-30)"
"""End of the source of a cloud's threshold for which no page gives the figure of a healthy machine, with the date of the last search."""
MARGIN = 0.92
"""Highest share of a healthy figure that a floor may be, because healthy machines differ by a few percent."""


def collective(
    check: str, at_least: float, *, gib: float, healthy: float | None, source: str, read: date, name: str = ALL_REDUCE
) -> Floor:
    """Return the floor of a collective in one node (B2) or between two nodes (B3)."""
    size = f"{gib:g} GiB" if gib >= 1 else f"{gib * 1024:g} MiB"
    what = f"{name} of {size} {'in one node' if check == 'B2' else 'between two nodes'}"
    return Floor(
        check=check, what=what, at_least=at_least, unit="GB/s", source=source, read=read, collective=name, gib=gib, healthy=healthy
    )  # fmt: skip


A100_BOARD = collective(
    "B2", 216, gib=16, healthy=234.9, source=f"{_ML}: 234.89 GB/s on eight A100 with NVLink 3", read=_ML_READ
)
H100_BOARD = collective(
    "B2", 440, gib=16, healthy=482.2, source=f"{_ML}: 482.26 GB/s on eight H200, same NVLink 4 and NVSwitch; 480 on eight H100 at 4 GiB", read=_ML_READ
)  # fmt: skip
H200_BOARD = collective("B2", 431, gib=16, healthy=482.2, source=f"{_ML}: 482.26 GB/s on eight H200", read=_ML_READ)
RING_BOARD = collective(
    "B2", 330, gib=16, healthy=367.6, source=f"{_ML}: 367.61 GB/s on eight H200 without NVLS; NVIDIA/nccl#1455: 365 to 370", read=_ML_READ
)  # fmt: skip
"""Without reduction in the NVSwitch."""
B200_BOARD = collective(
    "B2", 750, gib=16, healthy=845.7, source=f"{_ML}: 845.67 GB/s on a p6-b200 (740 at 4 GiB); github.com/NVIDIA/nccl/issues/1807: more than 830", read=_ML_READ
)  # fmt: skip
B300_BOARD = collective(
    "B2", 750, gib=16, healthy=845.7, source=f"{_ML}: 845.67 GB/s on eight B200, same NVLink generation", read=_ML_READ
)


_NHC = "Azure/azurehpc-health-checks at 0e0a1ac"
_NHC_READ = date(2026, 11, 29)


def gpu_copy(at_least: float, *, healthy: float, source: str) -> Floor:
    """Return the floor of the copy from each GPU to each other one: nvbandwidth, device_to_device_memcpy_read_ce, 512 MiB, one pair at a time."""
    return Floor(
        check="B9", what="read of 512 MiB from another GPU", at_least=at_least, unit="GB/s", source=source, read=_NHC_READ, healthy=healthy
    )  # fmt: skip


def gpu_memory(at_least: float, *, healthy: float, source: str) -> Floor:
    """Return the floor of the copy within the memory of a GPU: nvbandwidth, device_local_copy, 2 GiB, in copied bytes."""
    return Floor(
        check="B10", what="copy of 2 GiB within a GPU", at_least=at_least, unit="GB/s", source=source, read=_NHC_READ, healthy=healthy
    )  # fmt: skip


A100_COPY = gpu_copy(
    235,
    healthy=270.8,
    source=f"{_NHC}:conf/nd96asr_v4.conf: check_gpu_bw 235; {_ML}: 270.8 to 276 GB/s for a write on eight A100 (p2pBandwidthLatencyTest)",
)
H100_COPY = gpu_copy(
    335,
    healthy=370.3,
    source=f"{_NHC}:conf/nd96isr_h100_v5.conf and nd96isr_h200_v5.conf: check_gpu_bw 335; 370.3 to 373.0 GB/s on an ND96isr_H100_v5 "
    "(notes on these checks: nvbandwidth 0.4, driver 570.133.20), 395 GB/s on eight other H100 (nvbandwidth 0.10, driver 595.71.05)",
)
"""H100 and H200 have the same NVLinks and NVSwitches."""
B200_COPY = gpu_copy(
    700,
    healthy=764.2,
    source="764.2 to 766.3 GB/s between seven B300 (nvbandwidth 0.10, driver 610.57.04, 2026-08-31), same NVLink generation; "
    "768 GB/s on average between four GB200 (nvbandwidth, sum of 12 pairs)",
)
H100_MEMORY = gpu_memory(
    1300,
    healthy=1518.9,
    source="1518.9 to 1519.6 GB/s on the eight H100 of a p5.48xlarge (Hugging Face: The Smol Training Playbook, "
    "nvbandwidth -t device_local_copy -b 2048)",
)
