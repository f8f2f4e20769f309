"""`node.pyz pcie`: lists the PCIe devices whose error counters are above zero, from /sys/bus/pci/devices.

The kernel has these files if it handles Advanced Error Reporting (AER) itself. On other machines, and in many virtual machines, the list of
`counted` devices is empty, and the host handles the errors. This module measures and does not judge.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

SYS = Path("/sys/bus/pci/devices")
MAX_DEVICES, MAX_BYTES = 512, 4096
CLASSES = ("0x02", "0x03", "0x0604", "0x0680", "0x0108")
"""Beginnings of the classes of network and display controllers, bridges and NVMe disks (PCI-SIG class codes)."""
FILES = {"correctable": "COR", "nonfatal": "NONFATAL", "fatal": "FATAL"}
"""Maps each kind of error to the name of its sum: `TOTAL_ERR_COR` in `aer_dev_correctable` (kernel documentation,
Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats)."""


def counters(folder: Path = SYS) -> dict[str, Any]:
    """Return a `gpuinfra.pcie/1` object: the number of devices with counters, and each device with a counter above zero."""
    counted, devices = 0, []
    for device in sorted(folder.iterdir())[:MAX_DEVICES] if folder.is_dir() else []:
        kind = _text(device / "class")
        if not kind or not kind.startswith(CLASSES):
            continue
        sums = {name: _sum(device / ("aer_dev_" + name), total) for name, total in FILES.items()}
        sums_read = {name: value for name, value in sums.items() if value is not None}
        counted += bool(sums_read)
        if any(sums_read.values()):
            devices.append({"device": device.name, "class": kind, **sums_read})
    return {"schema": "gpuinfra.pcie/1", "counted": counted, "devices": devices}


def _sum(path: Path, total: str) -> "int | None":
    text = _text(path)
    match = re.search(r"^TOTAL_ERR_%s (\d{1,20})$" % total, text, re.MULTILINE) if text else None
    return int(match.group(1)) if match else None


def _text(path: Path) -> "str | None":
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES).decode("ascii", "backslashreplace").strip()
    except OSError:
        return None
