"""Known broken states of a GPU node, with their tool output, their meaning, and what to do.

The data comes from public reports, retrieved 2026-11-20: lyulyul/shine-cluster#50, canonical/nvidia-graphics-drivers#78,
NVIDIA/open-gpu-kernel-modules#587, #789 and #862, Start9Labs/start-technologies#3693, leptonai/gpud: sxid/README.md,
utkuozdemir/nvidia_gpu_exporter: internal/nvidiasmi/transform_test.go.
The text is matched regardless of the exit code, because several of these states have exit code 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .cause import Cause
from .probes import NOT_FOUND, TIMED_OUT


@dataclass(frozen=True)
class BrokenState:
    """One known broken state."""

    pattern: str
    """A regular expression for a line of output."""
    meaning: str
    hint: str
    cause: Cause
    tool: str = "nvidia-smi"
    exit: int | None = None
    """An exit code that identifies this state without any text."""

    def describe(self, text: str) -> str:
        """Return the meaning, with the line of output that shows it."""
        for line in text.splitlines():
            if re.search(self.pattern, line):
                return "%s (%s)" % (self.meaning, " ".join(line.split())[:160])
        return self.meaning


NO_TEXT = r"(?!)"
"""The pattern of a state that only an exit code identifies."""
STATES = (
    BrokenState(
        r"Driver/library version mismatch",
        "the loaded kernel module and the user-space libraries have different versions (NVML error 18)",
        "drain and reboot the node; if the mismatch persists, an upgrade replaced the driver: compare "
        "/proc/driver/nvidia/version with dpkg -l 'libnvidia*', reinstall the pinned version and hold it",
        Cause.DRIVER_MISMATCH,
        exit=18,
    ),
    BrokenState(
        r"Unable to determine the device handle for GPU",
        "a GPU no longer responds",
        "drain the node, search the kernel log for Xid 79, and reboot the node; replace it if a GPU stops responding again",
        Cause.GPU_UNRESPONSIVE,
    ),
    BrokenState(
        r"GPU is lost|\[GPU is lost\]",
        "the driver lost a GPU (NVML error 15)",
        "drain and reboot the node; replace it if the GPU is lost again",
        Cause.GPU_LOST,
        exit=15,
    ),
    BrokenState(
        r"No devices were found",
        "the driver is loaded but initialized no GPU",
        "search journalctl -k -b for RmInitAdapter or GSP lines; reboot once, then replace the node",
        Cause.NO_GPU_INITIALIZED,
    ),
    BrokenState(
        r"couldn't communicate with the NVIDIA driver",
        "the NVIDIA kernel module is not loaded",
        "run dkms status and modprobe nvidia; rerun the driver step if no module is built for the running kernel",
        Cause.DRIVER_NOT_LOADED,
        exit=9,
    ),
    BrokenState(
        r"Failed to initialize NVML: (?:Unknown Error|GPU access blocked)",
        "NVML cannot be initialized",
        "reboot the node; in a container, use CDI and recreate the container",
        Cause.NVML_UNAVAILABLE,
    ),
    BrokenState(
        r"infoROM is corrupted",
        "the infoROM of a GPU is corrupt",
        "drain the node and replace it: an infoROM cannot be repaired",
        Cause.INFOROM_CORRUPT,
        exit=14,
    ),
    BrokenState(
        r"NVML (?:Shared Library|library) (?:Not Found|couldn't be found)|couldn't find libnvidia-ml\.so",
        "the driver's user-space library is missing",
        "rerun the driver step",
        Cause.LIBRARY_MISSING,
        exit=12,
    ),
    BrokenState(
        NO_TEXT,
        "nvidia-smi is not installed",
        "rerun the driver step; the journal /var/lib/gpuinfra/state.json shows where it stopped",
        Cause.TOOL_MISSING,
        exit=NOT_FOUND,
    ),
    BrokenState(
        NO_TEXT,
        "nvidia-smi does not respond: the driver or a GPU hangs",
        "drain the node and read journalctl -k -b; reboot the node, and replace it if nvidia-smi hangs again",
        Cause.TOOL_HANGS,
        exit=TIMED_OUT,
    ),
)


_END = 4096


def recognize(argv: tuple[str, ...], code: int, text: str) -> BrokenState | None:
    """Return the known state that the output shows, if any."""
    tool = argv[0].rsplit("/", 1)[-1]
    # The text is the whole output, or its start or end. Check G13 handles error tokens inside a long document.
    if len(text) > 2 * _END:
        text = text[:_END] + "\n" + text[-_END:]
    for state in STATES:
        if state.tool == tool and re.search(state.pattern, text, re.MULTILINE):
            return state
    for state in STATES:
        if state.tool == tool and state.exit is not None and state.exit == code:
            return state
    return None
