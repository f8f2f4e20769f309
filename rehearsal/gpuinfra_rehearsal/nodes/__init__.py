"""Stand-in nodes. Each runs the real user data, bootstrap steps and checks in its own namespaces, without root.

`host.py` starts and watches the nodes, `root.py` builds a node's file system, `enter.py` enters its namespaces, and
`state.py` owns its state. In a node, `gpuinfra_rehearsal.tools` replaces init, the package manager and commands that
require hardware or a vendor's server. `gpuinfra_rehearsal.devices` replaces device tools.
"""

from gpuinfra_rehearsal.nodes.host import NodeHost
from gpuinfra_rehearsal.nodes.node import NodeStatus
from gpuinfra_rehearsal.nodes.state import Instance
from gpuinfra_rehearsal.nodes.support import available

__all__ = ["Instance", "NodeHost", "NodeStatus", "available"]
