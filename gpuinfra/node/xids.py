"""The meaning of each Xid for a node. The module is a data table, because sources disagree and the list changes with the hardware.

Sources, retrieved 2026-11-20: NVIDIA's Xid catalog, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html;
leptonai/gpud: xid/catalog_generated.go; NVIDIA/k8s-device-plugin: internal/rm/health.go; Azure/azurehpc-health-checks;
awslabs/awsome-distributed-ai: 4.validation_and_observability/2.gpu-cluster-healthcheck, check 0.
An unlisted number counts as `drain`: a node with an unknown error is not handed over.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cause import Action

TO_DO = {
    Action.NOTHING: "an application error: no action for the node",
    Action.LOOK: "check whether the error recurs, and report it to the cloud's support if it does",
    Action.RESET: "drain the node and reset the GPU, or reboot if it cannot be reset alone",
    Action.REBOOT: "drain and reboot the node; replace it if the error returns",
    Action.REPLACE: "drain and replace the node: the hardware needs service",
}
"""Maps each action to the instruction for the operator."""


@dataclass(frozen=True)
class Xid:
    """One error number of the NVIDIA driver."""

    meaning: str
    severity: str
    """`log` (an application error), `warn`, `drain`."""
    do: Action
    more: str = ""
    """Further instructions."""

    @property
    def action(self) -> str:
        """What to do next."""
        return TO_DO[self.do] + ("; " + self.more if self.more else "")


XIDS: dict[int, Xid] = {
    **{number: Xid("application error", "log", Action.NOTHING) for number in (13, 31, 32, 69, 80, 94)},
    **{number: Xid("channel removed or cleaned up", "log", Action.NOTHING) for number in (43, 44, 45)},
    46: Xid("GPU stopped processing", "drain", Action.RESET),
    48: Xid("double-bit memory error", "drain", Action.RESET, "read remapped rows (G6) afterwards"),
    54: Xid("auxiliary power is not connected", "drain", Action.REPLACE),
    62: Xid("power management unit halted", "drain", Action.RESET),
    63: Xid("row remapping recorded", "log", Action.NOTHING, "the row is remapped at the GPU's next reset, see G6"),
    64: Xid("row remapping failed", "drain", Action.RESET, "replace the node if the error recurs"),
    74: Xid("NVLink error", "drain", Action.REBOOT, "look for SXid lines: the switch may be at fault"),
    79: Xid("GPU has fallen off the bus", "drain", Action.REBOOT),
    92: Xid("high rate of single-bit errors", "warn", Action.LOOK, "see G5 and G6"),
    95: Xid("uncontained memory error", "drain", Action.RESET),
    109: Xid("context switch timeout", "drain", Action.RESET),
    110: Xid("security fault", "drain", Action.RESET),
    119: Xid("GSP timeout", "drain", Action.RESET),
    120: Xid("GSP error", "drain", Action.RESET),
    121: Xid("chip-to-chip link error", "warn", Action.LOOK),
    136: Xid("NVLink training failed", "drain", Action.RESET),
    137: Xid("NVLink privilege error", "log", Action.NOTHING),
    140: Xid("unrecovered memory error", "drain", Action.RESET),
    143: Xid("GPU initialization error", "drain", Action.RESET),
    **{
        number: Xid("NVLink 5 error", "warn", Action.LOOK, "drain the node if the line contains Fatal")
        for number in range(144, 151)
    },
    151: Xid("key rotation error", "drain", Action.REBOOT),
    154: Xid("recovery action changed", "drain", Action.REBOOT, "the line names the action that the driver requests"),
    155: Xid("NVLink software error", "drain", Action.RESET),
    156: Xid("a resource was retired", "drain", Action.RESET),
    157: Xid("retiring a resource failed", "warn", Action.LOOK),
    158: Xid("GPU fatal timeout", "drain", Action.RESET),
    162: Xid("power smoothing capability", "log", Action.NOTHING),
    163: Xid("power smoothing lifetime", "log", Action.NOTHING),
    164: Xid("power smoothing lifetime", "log", Action.NOTHING),
    165: Xid("power smoothing lifetime", "warn", Action.LOOK),
    167: Xid("PCIe fatal timeout", "drain", Action.REBOOT),
    168: Xid("protected memory was lost", "drain", Action.REBOOT),
    169: Xid(
        "security processor halted", "drain", Action.REBOOT, "on Blackwell also: the proprietary module is loaded"
    ),
    171: Xid("detail of a DRAM error (Xid 48)", "drain", Action.RESET),
    172: Xid("detail of an SRAM error (Xid 48)", "drain", Action.RESET),
}

UNKNOWN = Xid(
    "not in the table", "drain", Action.REBOOT, "find the Xid in NVIDIA's Xid catalog, and add it to the table"
)

ACTIONS_OF_154 = {
    "None": Action.NOTHING,
    "GPU Reset Required": Action.RESET,
    "PF FLR": Action.RESET,
    "Node Reboot Required": Action.REBOOT,
    "OS Reboot": Action.REBOOT,
    "Drain P2P": Action.RESET,
    "Drain and Reset": Action.RESET,
}
"""Maps the action in the text of Xid 154 to the action for the node. Drivers use different words for the same number: 0x1 is `GPU Reset Required` or
`PF FLR` (a reset of the PCIe function), 0x2 is `Node Reboot Required` or `OS Reboot` (public kernel logs, drivers 575 to 595, retrieved 2026-11)."""
