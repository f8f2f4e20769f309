"""Stand-in nodes: each runs the real user data, the real steps and the real node part in namespaces of its own.

`host.py` keeps the nodes, `root.py` assembles what a node sees, `enter.py` goes in, `state.py` owns what a node is.
Inside a node, `gpuinfra.rehearsal.tools` plays its init, its package manager and what else needs hardware or a vendor's server,
and `gpuinfra.rehearsal.devices` plays its devices. No root is needed; `available()` says where the system forbids it.
"""

from gpuinfra.rehearsal.nodes.host import NodeHost
from gpuinfra.rehearsal.nodes.node import NodeStatus
from gpuinfra.rehearsal.nodes.possible import available
from gpuinfra.rehearsal.nodes.state import Instance

__all__ = ["Instance", "NodeHost", "NodeStatus", "available"]
