"""Handover: waits until the nodes of a cluster are verified, and explains why if they are not.

`judge` is pure and makes the decision. `ports` defines the four interfaces that each cloud implements (`aws`, `azure`, `gcp`).
`watch` polls until the verdict is final or the deadline passes. `provider` is the Pulumi provider plugin around it.
`component` holds the resource class. `gpuinfra.clouds.<cloud>.NodesReady` is the component around it.
The handover never connects to a node: nodes are in private networks, and each node uploads its own evidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinfra.base.lazy import lazy_exports

if TYPE_CHECKING:
    from gpuinfra.handover.component import GroupReady as GroupReady
    from gpuinfra.handover.component import NodesVerified as NodesVerified
    from gpuinfra.handover.component import NodesVerifiedArgs as NodesVerifiedArgs
    from gpuinfra.handover.component import PoolReady as PoolReady

__getattr__, __all__ = lazy_exports(__name__, __file__)
