"""PCI addresses of GPUs and network devices, which determine device names.

| layout | source |
| --- | --- |
| p4d | addresses of a p4d.24xlarge; larger AWS machines have additional buses (assumed) |
| ndv4, ndv5 | Azure/azhpc-images topology/ndv4-topo.xml and ndv5-topo.xml, retrieved 2026-11-21 |
| a3-mega | interface names enp6s0 .. enp142s0 and enp0s12 that Google's recipes pass to FasTrak; GPU addresses assumed |
| a3-high | data interfaces behind 06, 0c, 86, 8c, from Google's TCPX topology; GPU addresses assumed |
| rdma | RDMA names rocep145s0 .. rocep206s0 of A3 Ultra and A4, from published recipes; GPU addresses assumed, CC:00.0 observed on an A4 |
| plain | one to sixteen GPUs and no fabric: consecutive slots (assumed) |
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import DeviceState, Layout

P4D: Layout = {
    "gpus": ("0000:10:1c.0", "0000:10:1d.0", "0000:20:1c.0", "0000:20:1d.0", "0000:90:1c.0", "0000:90:1d.0", "0000:a0:1c.0", "0000:a0:1d.0"),
    "fabric": (),
}  # fmt: skip
NDV4: Layout = {
    "gpus": tuple("%04x:00:00.0" % domain for domain in (1, 2, 3, 4, 0xB, 0xC, 0xD, 0xE)),
    "fabric": tuple("%04x:00:00.0" % domain for domain in range(0x101, 0x109)),
}
NDV5: Layout = {
    "gpus": tuple("%04x:00:00.0" % domain for domain in (1, 2, 3, 8, 9, 0xA, 0xB, 0xC)),
    "fabric": NDV4["fabric"],
}
A3_HIGH: Layout = {
    "gpus": tuple("0000:%s:00.0" % bus for bus in ("04", "05", "0a", "0b", "84", "85", "8a", "8b")),
    "fabric": tuple("0000:%s:00.0" % bus for bus in ("06", "0c", "86", "8c")),
    "gvnics": ("0000:00:0c.0",),
}
A3_MEGA: Layout = {
    "gpus": tuple("0000:%s:00.0" % bus for bus in ("04", "05", "0b", "0c", "84", "85", "8b", "8c")),
    "fabric": tuple("0000:%s:00.0" % bus for bus in ("06", "07", "0d", "0e", "86", "87", "8d", "8e")),
    "gvnics": ("0000:00:0c.0",),
}
RDMA: Layout = {
    "gpus": tuple("0000:%s:00.0" % bus for bus in ("8f", "90", "96", "97", "c4", "c5", "cb", "cc")),
    "fabric": tuple("0000:%s:00.0" % bus for bus in ("91", "92", "98", "99", "c6", "c7", "cd", "ce")),
    "gvnics": ("0000:00:0c.0", "0000:00:0d.0"),
}
PLAIN: dict[str, Layout] = {
    "aws": {"gpus": tuple("0000:00:%02x.0" % slot for slot in range(0x1E, 0x0E, -1)), "fabric": ()},
    "azure": {"gpus": tuple("%04x:00:00.0" % domain for domain in range(1, 17)), "fabric": NDV4["fabric"]},
    "gcp": {"gpus": tuple("0000:00:%02x.0" % slot for slot in range(4, 20)), "fabric": (), "gvnics": ("0000:00:14.0",)},
}


def cloud(state: DeviceState) -> str:
    """Return the node's cloud, or `aws` for a state without one."""
    return state.get("instance", {}).get("cloud") or "aws"


def layout(state: DeviceState, arch: str) -> Layout:
    """Return the layout of this machine. `arch` is the architecture of its GPUs."""
    hardware = state.get("hardware", {})
    where, fabric, gpus = cloud(state), hardware.get("fabric"), hardware.get("gpus", 0)
    if where == "azure" and gpus == 8:
        return NDV4 if arch == "Ampere" else NDV5
    if where == "gcp" and fabric in ("tcpx", "tcpxo", "gib"):
        return RDMA if fabric == "gib" else A3_HIGH if hardware.get("fabric_devices") == 4 else A3_MEGA
    return P4D if where == "aws" else PLAIN[where]


def gpu_address(state: DeviceState, arch: str, index: int) -> str:
    """`0000:10:1c.0` of one GPU."""
    addresses = layout(state, arch)["gpus"]
    return addresses[index] if index < len(addresses) else "0000:%02x:00.0" % (0xB0 + index)


def fabric_addresses(state: DeviceState, arch: str) -> list[str]:
    """Return the addresses of all fabric devices except EFA."""
    hardware = state.get("hardware", {})
    if hardware.get("fabric") in (None, "efa"):
        return []
    return list(layout(state, arch)["fabric"][: hardware.get("fabric_devices", 0)])
