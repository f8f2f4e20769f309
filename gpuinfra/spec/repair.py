"""What the control node does with a node that fails a check after the handover."""

from typing import Literal

from pydantic import Field

from gpuinfra.spec.base import Nodes, SpecModel


class Repair(SpecModel):
    """What the control node does with a node that was verified and fails a check or has an alert that requires an action."""

    mode: Literal["off", "report", "hold", "replace"] = Field(default="off", examples=["hold"])
    """What happens to such a node: nothing with `off`. `report` records an event and the text of a report. `hold` also takes the node out of use: its
    jobs are signaled, it accepts no new jobs, and it is kept for diagnosis. `replace` reboots or replaces the node, depending on the cause, and waits
    until the node is verified."""
    at_most: Nodes = Field(default=1, ge=1, le=100, examples=[2])
    """Maximum number of nodes that are taken out of use within 24 hours. Further nodes are only reported. Nothing is taken out of use while more nodes
    than this number, and more than a quarter of all nodes, fail at the same time."""


__all__ = ["Repair"]
