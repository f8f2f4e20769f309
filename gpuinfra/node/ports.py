"""What the kernel says about each RDMA port, read from /sys/class/infiniband: `node.pyz ports`.

No tool of a vendor is needed, so this answers on every image; `ibstat` is asked besides, because people compare with it.
A text that is not there is null. Nothing is judged here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

SYS = Path("/sys/class/infiniband")
MOST = 64
"""Most devices that are listed, and most bytes of one text that are read."""

_TEXTS = {
    "state": "state",
    "physical": "phys_state",
    "rate": "rate",
    "layer": "link_layer",
    "link_downed": "counters/link_downed",
    "key_0": "pkeys/0",
    "key_1": "pkeys/1",
}
"""Name in the answer -> file below the port's folder."""


def ports(folder: Path = SYS) -> dict[str, Any]:
    """One JSON object of schema `gpuinfra.ports/1`: a list of ports, each with its device, number and texts."""
    found = []
    devices = sorted(folder.iterdir())[:MOST] if folder.is_dir() else []
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
            return file.read(MOST).decode("ascii", "backslashreplace").strip()
    except OSError:
        return None
