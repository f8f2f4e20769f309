"""`node.pyz ports`: lists the RDMA ports from /sys/class/infiniband.

Bridges to NVSwitches are left out. It requires no vendor tools, so it works on every image. ibstat stops at a device that it cannot read.
A missing value is null. This module measures and does not judge.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

SYS = Path("/sys/class/infiniband")
MAX_DEVICES, MAX_BYTES, MAX_VPD = 64, 64, 32768
"""Maximum number of devices, and maximum bytes per field and of vital product data."""

_TEXTS = {
    "state": "state",
    "physical": "phys_state",
    "rate": "rate",
    "layer": "link_layer",
    "link_downed": "counters/link_downed",
    "key_0": "pkeys/0",
    "key_1": "pkeys/1",
}
"""Maps each name in the result to a file in the port's folder."""
_COUNTERS = (
    "hw_counters/retrans_timeout_events", "hw_counters/unresponsive_remote_events", "hw_counters/impaired_remote_conn_events",
    "hw_counters/retrans_pkts", "hw_counters/rx_drops", "hw_counters/local_ack_timeout_err", "hw_counters/packet_seq_err",
    "hw_counters/rnr_nak_retry_err", "counters/symbol_error", "counters/link_error_recovery", "counters/port_rcv_errors",
)  # fmt: skip
"""Errors of EFA (amzn/amzn-drivers: kernel/linux/efa/src/efa_verbs.c), of mlx5 and of InfiniBand ports. A driver has some of these files."""


def ports(folder: Path = SYS) -> dict[str, Any]:
    """Return a `gpuinfra.ports/1` object: a list of ports, each with its device, number and fields."""
    ports_of_devices = []
    devices = sorted(folder.iterdir())[:MAX_DEVICES] if folder.is_dir() else []
    for device in devices:
        if is_switch_bridge(device):
            continue
        numbers = device / "ports"
        for port in sorted(numbers.iterdir())[:4] if numbers.is_dir() else []:
            port_record: dict[str, Any] = {"device": device.name, "port": port.name}
            port_record.update((name, _text(port / file)) for name, file in _TEXTS.items())
            port_record["firmware"] = _text(device / "fw_ver")
            values = ((file.rpartition("/")[2], _text(port / file)) for file in _COUNTERS)
            port_record["errors"] = {name: value for name, value in values if value not in (None, "0")}
            ports_of_devices.append(port_record)
    return {"schema": "gpuinfra.ports/1", "ports": ports_of_devices}


def is_switch_bridge(device: Path) -> bool:
    """Return True for a ConnectX function that manages the NVSwitches of B200 and B300; no data between nodes passes through it.

    NVIDIA's drivers recognize it in the same way: its vital product data contain `SW_MNG` (NVIDIA/gpu-driver-container, 2026-07).
    """
    try:
        with open(device / "device" / "vpd", "rb") as file:
            return b"SW_MNG" in file.read(MAX_VPD)
    except OSError:
        return False


def _text(path: Path) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES).decode("ascii", "backslashreplace").strip()
    except OSError:
        return None
