"""The meaning of each Xid for a node. The module is a data table, because sources disagree and the list changes with the hardware.

Sources, retrieved 2026-11-20: NVIDIA's Xid catalog, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html;
leptonai/gpud: xid/catalog_generated.go; NVIDIA/k8s-device-plugin: internal/rm/health.go; Azure/azurehpc-health-checks;
awslabs/awsome-distributed-ai: 4.validation_and_observability/2.gpu-cluster-healthcheck, check 0.
An unlisted number counts as `drain`: a node with an unknown error is not handed over.
"""

from __future__ import annotations

from dataclasses import dataclass

TO_DO = {
    "nothing": "an application error: no action for the node",
    "look": "check whether the error recurs, and report it to the cloud's support if it does",
    "reset": "drain the node and reset the GPU, or reboot if it cannot be reset alone",
    "reboot": "drain and reboot the node; replace it if the error returns",
    "replace": "drain and replace the node: the hardware needs service",
}
"""Maps each action to the instruction for the operator."""


@dataclass(frozen=True)
class Xid:
    """One error number of the NVIDIA driver."""

    meaning: str
    severity: str
    """`log` (an application error), `warn`, `drain`."""
    do: str
    """A key of `TO_DO`."""
    more: str = ""
    """Further instructions."""

    @property
    def action(self) -> str:
        """What to do next."""
        return TO_DO[self.do] + ("; " + self.more if self.more else "")


XIDS: dict[int, Xid] = {
    **{number: Xid("application error", "log", "nothing") for number in (13, 31, 32, 69, 80, 94)},
    **{number: Xid("channel removed or cleaned up", "log", "nothing") for number in (43, 44, 45)},
    46: Xid("GPU stopped processing", "drain", "reset"),
    48: Xid("double-bit memory error", "drain", "reset", "read remapped rows (G6) afterwards"),
    54: Xid("auxiliary power is not connected", "drain", "replace"),
    62: Xid("power management unit halted", "drain", "reset"),
    63: Xid("row remapping recorded", "log", "nothing", "the row is remapped at the GPU's next reset, see G6"),
    64: Xid("row remapping failed", "drain", "reset", "replace the node if the error recurs"),
    74: Xid("NVLink error", "drain", "reboot", "look for SXid lines: the switch may be at fault"),
    79: Xid("GPU has fallen off the bus", "drain", "reboot"),
    92: Xid("high rate of single-bit errors", "warn", "look", "see G5 and G6"),
    95: Xid("uncontained memory error", "drain", "reset"),
    109: Xid("context switch timeout", "drain", "reset"),
    110: Xid("security fault", "drain", "reset"),
    119: Xid("GSP timeout", "drain", "reset"),
    120: Xid("GSP error", "drain", "reset"),
    121: Xid("chip-to-chip link error", "warn", "look"),
    136: Xid("NVLink training failed", "drain", "reset"),
    137: Xid("NVLink privilege error", "log", "nothing"),
    140: Xid("unrecovered memory error", "drain", "reset"),
    143: Xid("GPU initialization error", "drain", "reset"),
    **{
        number: Xid("NVLink 5 error", "warn", "look", "drain the node if the line contains Fatal")
        for number in range(144, 151)
    },
    151: Xid("key rotation error", "drain", "reboot"),
    154: Xid("recovery action changed", "drain", "reboot", "the line names the action that the driver requests"),
    155: Xid("NVLink software error", "drain", "reset"),
    156: Xid("a resource was retired", "drain", "reset"),
    157: Xid("retiring a resource failed", "warn", "look"),
    158: Xid("GPU fatal timeout", "drain", "reset"),
    162: Xid("power smoothing capability", "log", "nothing"),
    163: Xid("power smoothing lifetime", "log", "nothing"),
    164: Xid("power smoothing lifetime", "log", "nothing"),
    165: Xid("power smoothing lifetime", "warn", "look"),
    167: Xid("PCIe fatal timeout", "drain", "reboot"),
    168: Xid("protected memory was lost", "drain", "reboot"),
    169: Xid("security processor halted", "drain", "reboot", "on Blackwell also: the proprietary module is loaded"),
    171: Xid("detail of a DRAM error (Xid 48)", "drain", "reset"),
    172: Xid("detail of an SRAM error (Xid 48)", "drain", "reset"),
}

UNKNOWN = Xid("not in the table", "drain", "reboot", "find the Xid in NVIDIA's Xid catalog, and add it to the table")

ACTIONS_OF_154 = {
    "None": "nothing",
    "GPU Reset Required": "reset",
    "PF FLR": "reset",
    "Node Reboot Required": "reboot",
    "OS Reboot": "reboot",
    "Drain P2P": "reset",
    "Drain and Reset": "reset",
}
"""Maps the action in the text of Xid 154 to a key of `TO_DO` or `nothing`. Drivers use different words for the same number: 0x1 is `GPU Reset Required` or
`PF FLR` (a reset of the PCIe function), 0x2 is `Node Reboot Required` or `OS Reboot` (public kernel logs, drivers 575 to 595, retrieved 2026-11)."""
