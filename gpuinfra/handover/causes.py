"""The causes that decisions and advice depend on: of the verdict on a node, of missing nodes, and of the end of the wait.

Each cause accompanies a text for people. Code compares causes and never searches these texts. The causes of single checks are in `gpuinfra.node`.
"""

from __future__ import annotations

from enum import StrEnum


class NodeCause(StrEnum):
    """Why a node is not verified."""

    OUTDATED = "outdated"
    """The node runs an outdated template. Only replacing or upgrading the node fixes this problem."""
    NO_EVIDENCE = "no-evidence"
    OLD_EVIDENCE = "old-evidence"
    """The node has only evidence that is older than its launch."""
    UNREADABLE = "unreadable"
    """The document is not evidence of the node."""
    OTHER_BUNDLE = "other-bundle"
    AWAITS_UPGRADE = "awaits-upgrade"
    """A different bundle set up the node, and its group upgrades running nodes."""
    UNPROVEN = "unproven"
    """The evidence has no valid identity proof yet."""
    IDENTITY = "identity"
    """The cloud does not confirm that the node signed the evidence."""
    UNJUDGED = "unjudged"
    """The raw output cannot be judged."""
    CHECKS_MISSING = "checks-missing"
    CHECKS_FAILED = "checks-failed"
    EXPIRED = "expired"
    """The newest evidence is too old."""
    UNTESTED = "untested"
    """The node passes all of its own checks, and only the result of the fabric test with another node is missing."""

    @property
    def is_silence(self) -> bool:
        """Whether the node has not reported since its launch."""
        return self in (NodeCause.NO_EVIDENCE, NodeCause.OLD_EVIDENCE)


class CapacityCause(StrEnum):
    """Why the cloud does not launch nodes."""

    STOCK_OUT = "stock-out"
    """The cloud has no free machine of this type in this zone, for this capacity kind."""
    QUOTA = "quota"
    SPOT_QUOTA = "spot-quota"
    """The quota of spot machines is used up. Another kind of capacity has its own quota."""
    PERMISSION = "permission"
    IMAGE = "image"
    TEMPLATE = "template"
    """The cloud rejects the combination of options in the launch template, scale set or instance template."""
    RESERVATION = "reservation"
    """The reservation is full, not active, or does not fit the nodes."""
    PRICE = "price"
    """The spot price is above the maximum price."""
    PLACEMENT = "placement"
    """The zone does not offer the machine type, or the placement group does not allow the node."""
    NETWORK = "network"
    """The subnet has no free address."""
    THROTTLING = "throttling"
    INTERNAL = "internal"
    """The cloud's service failed."""
    NO_MESSAGE = "no-message"
    """The deadline passed, and the cloud did not say why it launched too few nodes."""
    UNKNOWN = "unknown"


NO_CAPACITY = frozenset(
    {
        CapacityCause.STOCK_OUT,
        CapacityCause.SPOT_QUOTA,
        CapacityCause.RESERVATION,
        CapacityCause.PRICE,
        CapacityCause.PLACEMENT,
        CapacityCause.NO_MESSAGE,
    }
)
"""Causes for which nodes may be available in another zone, as another capacity kind, or later."""

PASSING = frozenset({CapacityCause.THROTTLING, CapacityCause.INTERNAL})
"""Causes that end without a change. Another placement does not help, and waiting does."""


class WaitEnd(StrEnum):
    """Why the wait for the nodes ended."""

    READY = "ready"
    NOT_DUE = "not-due"
    """No node is expected yet, because all counts are 0, no capacity window is open, or a request is queued."""
    ONCE = "once"
    """The nodes were judged once, without a wait."""
    SETTLED = "settled"
    """Every node has reported, and the verdict is final."""
    CANARY = "canary"
    """The first node of a replacement failed."""
    DEADLINE = "deadline"
    STOCK_OUT = "stock-out"
    """The cloud does not launch the missing nodes."""
    STALE = "stale"
    """Outdated nodes are not being replaced."""
    CANCELLED = "cancelled"
    UNREACHABLE = "unreachable"
    """The nodes were not judged, because the cloud could not be read."""
