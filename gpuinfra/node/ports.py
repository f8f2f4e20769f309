"""List the RDMA ports from /sys/class/infiniband: `node.pyz ports`.

It requires no vendor tools, so it works on every image. `ibstat` is a separate probe, for comparison.
A missing value is null. This module measures and does not judge.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

SYS = Path("/sys/class/infiniband")
MAX_DEVICES, MAX_BYTES = 64, 64
"""Maximum number of devices, and maximum bytes per field."""

_TEXTS = {
    "state": "state",
    "physical": "phys_state",
    "rate": "rate",
    "layer": "link_layer",
    "link_downed": "counters/link_downed",
    "key_0": "pkeys/0",
    "key_1": "pkeys/1",
}
"""Name in the result -> file in the port's folder."""


def ports(folder: Path = SYS) -> dict[str, Any]:
    """Return a `gpuinfra.ports/1` object: a list of ports, each with its device, number and fields."""
    found = []
    devices = sorted(folder.iterdir())[:MAX_DEVICES] if folder.is_dir() else []
    for device in devices:
        numbers = device / "ports"
        for port in sorted(numbers.iterdir())[:4] if numbers.is_dir() else []:
            one: dict[str, Any] = {"device": device.name, "port": port.name}
            one.update((name, _text(port / file)) for name, file in _TEXTS.items())
            found.append(one)
    return {"schema": "gpuinfra.ports/1", "ports": found}


def _text(path: Path) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES).decode("ascii", "backslashreplace").strip()
    except OSError:
        return None
