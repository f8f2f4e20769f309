"""Why a check did not pass, and what to do about it: the values that decisions depend on. The texts beside them are for people.

This module is data only. A cause without an action of its own leaves the decision to the class of the check (`checks/base.py`).
"""

from __future__ import annotations

import enum


class Action(str, enum.Enum):
    """What to do with a node, from the weakest to the strongest action.

    A reboot also fixes what a reset fixes, and a replacement fixes everything but depends on available capacity.
    """

    NOTHING = "nothing"
    LOOK = "look"
    """Investigate while work continues."""
    CONFIGURE = "configure"
    """Rerun the bootstrap or fix a setting. From this action on, drain the node."""
    RESET = "reset"
    REBOOT = "reboot"
    REPLACE = "replace"

    @property
    def strength(self) -> int:
        """The position in the order of strength."""
        return list(Action).index(self)

    @property
    def drains(self) -> bool:
        """True if the node must not accept new work."""
        return self.strength >= Action.CONFIGURE.strength


class FaultyPart(enum.Enum):
    """What is faulty if a check fails, from which a report for a cloud provider derives its category (`gpuinfra/clouds/vendor.py`)."""

    MISSING_GPU = "a GPU is missing"
    GPU = "a GPU is not usable"
    NVLINK = "a link between GPUs is down or has errors"
    PORT = "a port or device of the fabric is missing or down"
    FABRIC = "the fabric is slow or has errors"
    SLOW_NVLINK = "the links between GPUs are slow"
    SLOW_GPU = "a GPU is slow"
    HOST = "the host without its GPUs and its fabric is faulty"


class Cause(str, enum.Enum):
    """Why a check warned, failed or ended in an error. The value is the field `cause` of a result (docs/reference/formats.md)."""

    action: Action | None
    """The action that this cause requires of a failed check, or None if the check decides."""

    @classmethod
    def requiring(cls, action: Action) -> Cause:
        """Return the cause for a source that requires this action of a node that cannot stay in use."""
        return {Action.RESET: cls.RESET_REQUIRED, Action.REPLACE: cls.REPLACEMENT_REQUIRED}.get(
            action, cls.REBOOT_REQUIRED
        )

    def __new__(cls, value: str, action: Action | None = None) -> Cause:
        member = str.__new__(cls, value)
        member._value_ = value
        member.action = action
        return member

    DIFFERS = "differs"
    """The value differs from the expectation of the machine type."""
    UNREADABLE = "unreadable", Action.CONFIGURE
    """The output is missing, truncated or unknown, or the check is unknown. The state of the hardware is not known, so the node is not replaced."""

    POOL_DIFFERS = "pool-differs"
    """The versions differ from those of most nodes of the pool (`gpuinfra.handover.uniform`)."""

    NOT_REBOOTED = "not-rebooted"
    """The node has not rebooted since a step changed it, as each new node."""

    FEWER_GPUS = "fewer-gpus"
    """Not every GPU responds. If check G1 fails, this is its consequence."""

    # What the output of a tool that cannot answer shows (`states.py`).
    DRIVER_MISMATCH = "driver-mismatch", Action.REBOOT
    GPU_UNRESPONSIVE = "gpu-unresponsive", Action.REBOOT
    GPU_LOST = "gpu-lost", Action.REBOOT
    NO_GPU_INITIALIZED = "no-gpu-initialized", Action.REBOOT
    DRIVER_NOT_LOADED = "driver-not-loaded", Action.CONFIGURE
    NVML_UNAVAILABLE = "nvml-unavailable", Action.REBOOT
    INFOROM_CORRUPT = "inforom-corrupt", Action.REPLACE
    LIBRARY_MISSING = "library-missing", Action.CONFIGURE
    TOOL_MISSING = "tool-missing", Action.CONFIGURE
    TOOL_HANGS = "tool-hangs", Action.REBOOT

    # What the driver, NVIDIA's diagnostics or the table of Xids requires.
    RESET_REQUIRED = "reset-required", Action.RESET
    REBOOT_REQUIRED = "reboot-required", Action.REBOOT
    REPLACEMENT_REQUIRED = "replacement-required", Action.REPLACE

    SRAM_ERRORS = "sram-errors", Action.REPLACE
    REMAPPING_FAILED = "remapping-failed", Action.REPLACE

    # The fabric test (check B8).
    UNTESTED = "untested"
    """The node has no result of the fabric test yet. The handover waits for it."""
    NO_GOOD_PAIR = "no-good-pair"
    """No pair of this fabric test reached the floor. A later test with another node can pass."""
