"""What device tools print on a stand-in node: nvidia-smi, lspci, fi_info, the kernel log.

Each output is computed from the node's state, so a step that did not run and a device that is broken both show.
The modules are flat (`devices.py` and `dev_*.py`) and import nothing slow, because a node copies them beside its other tools
and calls them hundreds of times; this file only lets the rest of the package find them.
Where each output comes from - recorded, synthesised from a recording, a documented format - is in `provenance.json`.
"""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def provenance() -> list[dict[str, str]]:
    """One record for each output: tool, how it was made, from what; reports show it."""
    return json.loads((FOLDER / "provenance.json").read_text(encoding="utf-8"))["outputs"]


def faults() -> dict[str, str]:
    """Device faults by name, each with what is broken."""
    from gpuinfra.rehearsal.devices import dev_faults

    return dict(dev_faults.FAULTS)
