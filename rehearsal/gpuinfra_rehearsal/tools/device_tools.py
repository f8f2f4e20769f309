"""The device tools of `gpuinfra_rehearsal.devices`, run on the state of this node."""

from __future__ import annotations

from .. import devices
from .state import change_state, read_state

TOOLS = devices.TOOLS


def run(words: list[str]) -> int:
    """Run one device tool and return its exit code."""
    return devices.main(words, read_state(), change_state)  # type: ignore[arg-type]


def files() -> dict[str, str]:
    """Return the content of each device file of this node, by path."""
    return devices.files(read_state())  # type: ignore[arg-type]
