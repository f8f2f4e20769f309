"""What each Xid (GPU) and SXid (NVSwitch) requires of a node. The tables follow NVIDIA's catalogs: number -> NVIDIA's bucket -> severity and action.

Sources, retrieved 2026-11:
NVIDIA: Xid catalog, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, column "Immediate Action" and sheet "XID 144-150 Decode"
(witness: leptonai/gpud at 4a8de33a: components/accelerator/nvidia/xid/catalog_generated.go, generated from this page);
NVIDIA: fabric manager user guide, https://docs.nvidia.com/datacenter/tesla/pdf/fabric-manager-user-guide.pdf, appendix D, NVSwitch SXid errors
(witness: leptonai/gpud at 4a8de33a: components/accelerator/nvidia/sxid/sxid.go);
The profile of a cloud names the Xids after which the cloud replaces a machine although the catalog requires less.
Azure/azurehpc-health-checks also fails a node on 68, 69, 80 and 92, which NVIDIA calls errors of an application or ignores; those stay warnings here.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Collection

from .cause import Action

TO_DO = {
    Action.NOTHING: "an application error: no action for the node",
    Action.LOOK: "check whether the error recurs, and report it to the cloud's support if it does",
    Action.RESET: "drain the node and reset the GPU, or reboot if it cannot be reset alone",
    Action.REBOOT: "drain and reboot the node; replace it if the error returns",
    Action.REPLACE: "drain and replace the node: the hardware needs service",
}
"""Maps each action to the instruction for the operator."""


class Bucket(enum.Enum):
    """NVIDIA's resolution bucket of an Xid, by its name in the catalog."""

    severity: str
    """`log` (information), `warn`, `drain`."""
    do: Action

    def __new__(cls, value: str, severity: str, do: Action) -> Bucket:
        member = object.__new__(cls)
        member._value_ = value
        member.severity, member.do = severity, do
        return member

    IGNORE = "IGNORE", "warn", Action.LOOK
    RESTART_APP = "RESTART_APP", "warn", Action.NOTHING
    WORKFLOW_XID_45 = "WORKFLOW_XID_45", "warn", Action.NOTHING
    """The cleanup after another error, whose Xid decides."""
    UPDATE_SOFTWARE = "UPDATE_SWFW", "warn", Action.LOOK
    CHECK_UVM = "CHECK_UVM", "warn", Action.LOOK
    XID_154 = "XID_154", "drain", Action.REBOOT
    """The line contains the action (`ACTIONS_OF_154`). A line with an unknown action requires a reboot."""
    RESET_GPU = "RESET_GPU", "drain", Action.RESET
    WORKFLOW_XID_48 = "WORKFLOW_XID_48", "drain", Action.RESET
    WORKFLOW_NVLINK = "WORKFLOW_NVLINK_ERR", "drain", Action.REBOOT
    WORKFLOW_NVLINK5 = "WORKFLOW_NVLINK5_ERR", "warn", Action.LOOK
    """The severity in the line and the details in its numbers decide (`nvlink5`)."""
    RESTART_VM = "RESTART_VM", "drain", Action.REBOOT
    RESTART_BM = "RESTART_BM", "drain", Action.REBOOT
    CHECK_MECHANICALS = "CHECK_MECHANICALS", "drain", Action.REPLACE
    CONTACT_SUPPORT = "CONTACT_SUPPORT", "drain", Action.REPLACE
    """No action on the machine helps. In a cloud the node is replaced and reported."""

    # Xids 162 to 172 have no bucket. The buckets below carry the decision of this project.
    INFORMATION = "information", "log", Action.NOTHING
    MONITOR = "monitor", "warn", Action.LOOK
    NEEDS_RESET = "needs reset", "drain", Action.RESET
    NEEDS_REBOOT = "needs reboot", "drain", Action.REBOOT
    CLOUD_REPLACES = "the cloud replaces the machine", "drain", Action.REPLACE


@dataclass(frozen=True)
class Xid:
    """One error number of the NVIDIA driver."""

    meaning: str
    bucket: Bucket
    more: str = ""
    """Further instructions."""

    @property
    def severity(self) -> str:
        """`log` (information), `warn`, `drain`."""
        return self.bucket.severity

    @property
    def do(self) -> Action:
        """The action for the node."""
        return self.bucket.do

    @property
    def action(self) -> str:
        """What to do next."""
        return TO_DO[self.do] + ("; " + self.more if self.more else "")


def _all(numbers: str, meaning: str, bucket: Bucket, more: str = "") -> dict[int, Xid]:
    """Return an entry for each number of a list such as `1-7 9 10`."""
    spans = [[int(end) for end in span.split("-")] for span in numbers.split()]
    return {number: Xid(meaning, bucket, more) for span in spans for number in range(span[0], span[-1] + 1)}


XIDS: dict[int, Xid] = {
    **_all(
        "1-7 9 10 12 15-24 26-30 33-36 42 47 49-53 55-59 61 65 73 81 87 90 91 111-118 122-125 138",
        "not used on GPUs from Ampere on", Bucket.CONTACT_SUPPORT, "report the error to the cloud's support",
    ),
    **_all("8", "GPU stopped processing a channel", Bucket.RESTART_APP),
    **_all("11 25 32 80", "invalid or corrupted commands of an application", Bucket.RESTART_APP),
    **_all("13 31 69", "application error", Bucket.RESTART_APP),
    **_all("39-41 70-72 75-77 85 126-135", "copy engine error", Bucket.RESTART_APP),
    **_all("60 68 82-84 86 88 89 96-105 139", "video or image engine error", Bucket.RESTART_APP),
    **_all("94", "contained memory error", Bucket.RESTART_APP, "read remapped rows (G6)"),
    **_all("14", "test error", Bucket.IGNORE),
    **_all("37 38", "error of a context switch", Bucket.IGNORE),
    **_all("43 44", "channel removed", Bucket.IGNORE),
    **_all("66 67", "illegal access by the driver", Bucket.IGNORE),
    **_all("141", "CUDA fast path error", Bucket.IGNORE),
    **_all("152 153", "error of a deep learning accelerator", Bucket.IGNORE),
    **_all("160 161", "channel retirement", Bucket.IGNORE),
    63: Xid("row remapping recorded", Bucket.IGNORE, "the row is remapped at the GPU's next reset, see G6"),
    92: Xid("high rate of single-bit errors", Bucket.IGNORE, "see G5 and G6"),
    93: Xid("wear limit of the infoROM", Bucket.IGNORE),
    **_all("106 107", "test message", Bucket.INFORMATION),
    108: Xid("NVLink remote translation error", Bucket.IGNORE),
    121: Xid("chip-to-chip link error", Bucket.IGNORE),
    137: Xid("NVLink privilege error", Bucket.IGNORE, "look for an application error on this or another GPU"),
    157: Xid("retiring a resource failed", Bucket.IGNORE),
    45: Xid("cleanup after an error", Bucket.WORKFLOW_XID_45, "the Xid before it states the error"),
    46: Xid("GPU stopped processing", Bucket.RESET_GPU),
    48: Xid("double-bit memory error", Bucket.WORKFLOW_XID_48, "read remapped rows (G6) afterwards"),
    54: Xid("auxiliary power is not connected", Bucket.CHECK_MECHANICALS),
    62: Xid("power management unit halted", Bucket.RESET_GPU),
    64: Xid("row remapping failed", Bucket.RESET_GPU, "replace the node if the error recurs"),
    74: Xid("NVLink error", Bucket.WORKFLOW_NVLINK, "look for SXid lines: the switch may be at fault"),
    78: Xid("virtual GPU did not start", Bucket.UPDATE_SOFTWARE),
    79: Xid("GPU has fallen off the bus", Bucket.RESTART_BM),
    95: Xid("uncontained memory error", Bucket.RESET_GPU),
    109: Xid("context switch timeout", Bucket.RESET_GPU),
    110: Xid("security fault", Bucket.RESET_GPU),
    119: Xid("GSP timeout", Bucket.RESET_GPU),
    120: Xid("GSP error", Bucket.RESET_GPU),
    136: Xid("NVLink training failed", Bucket.RESET_GPU),
    140: Xid("unrecovered memory error", Bucket.RESET_GPU),
    142: Xid("video encoder error", Bucket.CONTACT_SUPPORT),
    143: Xid("GPU initialization error", Bucket.RESET_GPU),
    **_all("144-150", "NVLink 5 error", Bucket.WORKFLOW_NVLINK5),
    151: Xid("key rotation error", Bucket.RESTART_VM),
    154: Xid("recovery action changed", Bucket.XID_154, "the line names the action that the driver requests"),
    155: Xid("NVLink software error", Bucket.RESET_GPU),
    156: Xid("a resource was retired", Bucket.RESET_GPU),
    158: Xid("GPU fatal timeout", Bucket.RESET_GPU),
    159: Xid("error of the coherent interface", Bucket.CHECK_UVM, "restart the applications that use managed memory"),
    162: Xid("power smoothing capability", Bucket.INFORMATION),
    163: Xid("power smoothing is off", Bucket.MONITOR),
    164: Xid("power smoothing lifetime is low", Bucket.MONITOR),
    165: Xid("power smoothing lifetime is exhausted", Bucket.MONITOR),
    166: Xid("traffic before encryption of NVLink", Bucket.NEEDS_REBOOT),
    167: Xid("PCIe fatal timeout", Bucket.NEEDS_REBOOT),
    168: Xid("protected memory was lost", Bucket.NEEDS_REBOOT),
    169: Xid("security processor halted", Bucket.NEEDS_REBOOT, "on Blackwell also: the proprietary module is loaded"),
    170: Xid("NVLink interrupt in confidential mode", Bucket.MONITOR),
    171: Xid("detail of a DRAM error (Xid 48)", Bucket.NEEDS_RESET),
    172: Xid("detail of an SRAM error (Xid 48)", Bucket.NEEDS_RESET),
}  # fmt: skip

UNKNOWN = Xid("not in the table", Bucket.MONITOR, "find the Xid in NVIDIA's Xid catalog, and add it to the table")


def xid_of(number: int, replacing: Collection[object] = ()) -> Xid:
    """Return the entry of a number. The cloud replaces the machine after the numbers in `replacing`."""
    entry = XIDS.get(number, UNKNOWN)
    return Xid(entry.meaning, Bucket.CLOUD_REPLACES) if number in replacing else entry


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

_NVLINK5 = re.compile(r"\b(\w+)\s+(Fatal|Nonfatal)\b(?:.*?\((0x[0-9a-fA-F]+)\s+(0x[0-9a-fA-F]+))?")
_EXPECTED_LINK_DOWN = (0b100110, 0b101000)
"""Reasons of a link that goes down (bits 20 to 25 of the first number) that NVIDIA's catalog ignores: the software on this host took the link down."""
_RECEIVE_ERRORS = 0b111
"""Status bits of `RLW_RXPIPE`: lost packets of one link. NVIDIA calls them non-fatal, with a reset of the GPU as the second action."""


def nvlink5(text: str) -> Bucket:
    """Return the bucket of an NVLink 5 error (Xids 144 to 150) from its line: `NETIR_LINK_DOWN Fatal XC0 i0 Link 14 (0x00000011 0x00000000 ...`."""
    match = _NVLINK5.search(text)
    if match is None:
        return Bucket.WORKFLOW_NVLINK5
    unit, severity = match.group(1), match.group(2)
    details, status = (int(number, 16) if number else 0 for number in match.group(3, 4))
    if severity == "Fatal":
        ignored = unit.startswith("NETIR_LINK") and details >> 20 & 0x3F in _EXPECTED_LINK_DOWN
        return Bucket.IGNORE if ignored else Bucket.RESET_GPU
    return Bucket.RESET_GPU if unit == "RLW_RXPIPE" and status & _RECEIVE_ERRORS else Bucket.WORKFLOW_NVLINK5


BENIGN_SXIDS = frozenset((22013,))
"""NVIDIA's guide allows you to ignore 22013, an interrupt during link training."""

_REBOOT_SXIDS = (11004, 12028, 19084)
_FABRIC_SXIDS = (12020, 22003, 22011, *range(23001, 23018))


def sxid_action(number: int, *, is_fatal: bool) -> Action:
    """Return the action for an NVSwitch error.

    A fatal one ends the traffic of its links until the guest restarts; one that is "always fatal" stops the whole fabric until the host restarts, which
    only the cloud can do. Three non-fatal ones stop the traffic too. The switch corrects the other non-fatal ones.
    """
    if is_fatal:
        return Action.REPLACE if number in _FABRIC_SXIDS else Action.REBOOT
    if number in _REBOOT_SXIDS:
        return Action.REBOOT
    return Action.NOTHING if number in BENIGN_SXIDS else Action.LOOK
