"""The container in which a job runs on each node: its image, and what it shares with the node. `supervisor.py` starts it.

The options come from these pages. Only the first one was retrieved, on 2026-11-26; the others are cited from memory:

- Devices of the fabric: https://docs.aws.amazon.com/batch/latest/userguide/efa.html (`/dev/infiniband/uverbs0` with read, write and mknod).
- Locked memory and shared memory: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html ("Docker").
- gIB: NCCL loads the plugin in `/usr/local/gib`, which Google's recipes mount into the container
  (GoogleCloudPlatform/container-engine-accelerators: gpudirect-rdma).

TCPX and TCPXO are excluded. In public recipes (retrieved 2026-11-27), the job's container shares libraries, sockets and devices with a receive manager, which
runs in a privileged container or with NET_ADMIN. The set differs between the recipes, and none was run with gpuinfra's receive manager.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from gpuinfra.node.measure import PROFILE

FABRICS = ("efa", "infiniband", "gib", None)
"""The values of `fabric_provider` with which a job can run in a container. None: no fabric."""
WITHOUT_CONTAINER: dict[str, str] = dict.fromkeys(
    ("tcpx", "tcpxo"),
    "the container needs the libraries, sockets and devices of the node's receive manager, and gpuinfra has no tested list of them",
)
"""Maps each fabric with which no job runs in a container to the reason."""
VARIABLES = "/etc/profile.d/gpuinfra-variables.sh"
"""File that sets the declared environment variables (`gpuinfra.plan.files`). The `92-files` step writes it."""
PATHS = (PROFILE, VARIABLES, "/etc/nccl.conf", "/opt/microsoft", "/usr/local/gib")
"""Files and folders with the settings and the plugin of the fabric, and the declared environment variables.
The container gets those that exist on the node, as read-only mounts."""
DEVICES = ("/dev/infiniband", "/dev/gdrdrv")
"""Devices for the container, if they exist on the node: the fabric, and GDRCopy."""


@dataclass(frozen=True, kw_only=True)
class JobContainer:
    """The container of a job on each node."""

    image: str
    mounts: tuple[str, ...] = ()
    """Mounted file systems of the node."""
    token: str = field(default_factory=lambda: secrets.token_hex(4))
    """Identifies the job in the names of its containers."""

    def order(self, rank: int, gpus: int) -> dict[str, object]:
        """Return the container's part of the order for the supervisor of one node."""
        return {
            "name": f"gpuinfra-{self.token}-{rank}",
            "image": self.image,
            "gpus": gpus,
            "mounts": list(self.mounts),
            "paths": list(PATHS),
            "devices": list(DEVICES),
            "profiles": [PROFILE, VARIABLES],
        }
