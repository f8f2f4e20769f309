"""Floors for the all-reduce in one node (check B2), and for the copy between host memory and a GPU (check B5).

The copy is as fast as the slowest PCIe link between the processor and the GPU. The link on the processor's side differs
between clouds for the same GPU, so a measurement from one cloud does not apply to other clouds.
"""

from __future__ import annotations

from datetime import date

from gpuinfra.catalog.records import Floor

PCIE_GB_S = {3: 15.75, 4: 31.5, 5: 63.0}
"""Raw rate of 16 lanes in one direction by PCIe generation, after line encoding."""
SHARE = 2 / 3
"""Share of the raw rate that a healthy copy exceeds. Azure's floor for PCIe 4.0 (21 of 31.5 GB/s) is this share; its floor
for 5.0 (48 of 63) is higher. A link at half its width or generation stays below it."""


def host_copy(at_least: float, *, source: str, read: date) -> Floor:
    """Return the floor that a cloud publishes for this machine."""
    return Floor(check="B5", what="host to device copy", at_least=at_least, unit="GB/s", source=source, read=read)


def one_node(at_least: float, *, source: str, read: date) -> Floor:
    """Return the floor for the all-reduce between the GPUs of a node."""
    what = "all-reduce of 16 GiB in one node"
    return Floor(check="B2", what=what, at_least=at_least, unit="GB/s", source=source, read=read)


def over_link(generation: int, *, width: int = 16, source: str, read: date) -> Floor:
    """Return the floor for a machine type whose copy was not measured, derived from the slowest link between processor and GPU."""
    rate = PCIE_GB_S[generation] * width / 16
    return host_copy(
        int(SHARE * rate), source=f"two thirds of PCIe {generation}.0 with {width} lanes; link: {source}", read=read
    )
