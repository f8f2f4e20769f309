"""What each Xid means for a node, as data, because peers disagree and the list changes with the hardware.

From the project's fact sheet "node bootstrap and verification" 7.6 (read 2026-11-20): NVIDIA's Xid catalogue, GPUD,
AWS's and Azure's health checks.
A number that is not here counts as `drain`: an unknown error is no reason to hand a node over.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Xid:
    """One error number of the NVIDIA driver."""

    meaning: str
    severity: str
    """`log` (an application's business), `warn`, `drain`."""
    action: str


_LOG = "an application's error: nothing to do for the node"
_RESET = "drain the node and reset the GPU, or reboot where it cannot be reset alone"
_REBOOT = "drain and reboot the node; replace it if the error returns"

XIDS: dict[int, Xid] = {
    **{number: Xid("application error", "log", _LOG) for number in (13, 31, 32, 69, 80, 94)},
    **{number: Xid("channel removed or cleaned up", "log", _LOG) for number in (43, 44, 45)},
    46: Xid("GPU stopped processing", "drain", _RESET),
    48: Xid("double-bit memory error", "drain", _RESET + "; read remapped rows (G6) afterwards"),
    54: Xid("auxiliary power is not connected", "drain", "replace the node: somebody has to look at the machine"),
    62: Xid("power management unit halted", "drain", _RESET),
    63: Xid("row remapping recorded", "log", "reset the GPU at the next idle moment, so that the row is remapped"),
    64: Xid("row remapping failed", "drain", _RESET + "; replace the node if it repeats"),
    74: Xid("NVLink error", "drain", "drain, look for SXid lines, reboot; replace the node if it repeats"),
    79: Xid("GPU has fallen off the bus", "drain", _REBOOT),
    92: Xid("high rate of single-bit errors", "warn", "watch G5 and G6; replace the node if the rate stays"),
    95: Xid("uncontained memory error", "drain", _RESET),
    109: Xid("context switch timeout", "drain", _RESET),
    110: Xid("security fault", "drain", _RESET),
    119: Xid("GSP does not answer", "drain", _RESET),
    120: Xid("GSP error", "drain", _RESET),
    121: Xid("chip-to-chip link error", "warn", "watch whether it repeats"),
    136: Xid("NVLink training failed", "drain", _RESET),
    137: Xid("NVLink privilege error", "log", _LOG),
    140: Xid("unrecovered memory error", "drain", _RESET),
    143: Xid("GPU initialisation error", "drain", _RESET),
    **{
        number: Xid("NVLink 5 error", "warn", "watch whether it repeats; drain where the line says Fatal")
        for number in range(144, 151)
    },
    151: Xid("key rotation error", "drain", "reboot the node"),
    154: Xid("recovery action changed", "drain", "do what the line asks for"),
    155: Xid("NVLink software error", "drain", _RESET),
    156: Xid("a resource was retired", "drain", _RESET),
    157: Xid("retiring a resource failed", "warn", "tell the cloud's support"),
    158: Xid("GPU fatal timeout", "drain", _RESET),
    162: Xid("power smoothing capability", "log", "nothing to do"),
    163: Xid("power smoothing lifetime", "log", "nothing to do"),
    164: Xid("power smoothing lifetime", "log", "nothing to do"),
    165: Xid("power smoothing lifetime", "warn", "tell the cloud's support"),
    167: Xid("PCIe fatal timeout", "drain", _REBOOT),
    168: Xid("protected memory was lost", "drain", _REBOOT),
    169: Xid(
        "security processor halted; on Blackwell also the proprietary module instead of the open one", "drain", _REBOOT
    ),
    171: Xid("detail of a DRAM error (Xid 48)", "drain", _RESET),
    172: Xid("detail of an SRAM error (Xid 48)", "drain", _RESET),
}

UNKNOWN = Xid(
    "not in the table",
    "drain",
    "look it up in NVIDIA's Xid catalogue, drain until it is understood, and add it to the table",
)

ACTIONS_OF_154 = (
    ("Drain and Reset", _RESET),
    ("GPU Reset Required", _RESET),
    ("Node Reboot Required", _REBOOT),
    ("Drain P2P", "drain jobs that use peer-to-peer traffic of that GPU, then reset it"),
)
"""Xid 154 carries its action in its text; `None` there means that nothing is asked for."""
