"""Handover: who should be there, who reported, and what that evidence says.

`judge` decides and is pure; `ports` are the four narrow questions that a cloud answers; `aws` answers them with boto3;
`watch` asks until the answer is final or the deadline passes; `provider` is the Pulumi provider plugin around it;
`component` is what programs import.
Nothing here reaches a node: nodes are in private networks, and what they are is in the evidence that they put down themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuinfra.handover.component import GroupReady, NodesReady, NodesReadyArgs, PoolReady

__all__ = ["GroupReady", "NodesReady", "NodesReadyArgs", "PoolReady"]


def __getattr__(name: str) -> object:
    """Import Pulumi only when a program asks for the resource: the judge is used where no engine is."""
    if name in __all__:
        from gpuinfra.handover import component

        return getattr(component, name)
    raise AttributeError(name)
