"""Output of the device tools on a stand-in node: nvidia-smi, lspci, fi_info, the kernel log.

Each output is computed from the node's state, so it reveals steps that did not run and broken devices. A node runs
these tools hundreds of times, so the modules do not import slow packages, and each call loads only its tool's module.
`provenance.json` records the origin of each output: recorded, synthesized from a recording, or a documented format.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import Change, DeviceState

FOLDER = os.path.dirname(os.path.abspath(__file__))

TOOLS: dict[str, tuple[str, str]] = {
    "nvidia-smi": ("smi", "main"),
    "lspci": ("bus", "lspci"),
    "fi_info": ("fabric", "fi_info"),
    "rdma": ("fabric", "rdma"),
    "ibv_devinfo": ("fabric", "ibv_devinfo"),
    "ibv_devices": ("fabric", "ibv_devices"),
    "ibstat": ("fabric", "ibstat"),
    "ibdev2netdev": ("fabric", "ibdev2netdev"),
    "ib_write_bw": ("writes", "ib_write_bw"),
    "nproc": ("host", "nproc"),
    "free": ("host", "free"),
    "dcgmi": ("dcgm", "main"),
    "nvbandwidth": ("copies", "main"),
    "dmesg": ("kernel_log", "dmesg"),
    "journalctl": ("kernel_log", "journalctl"),
}
"""Maps a tool to its module and function."""


def main(words: list[str], state: DeviceState, change: Change | None = None) -> int:
    """Run one tool and return its exit code. `change` applies a function to the node's state; by default, to `state`."""
    module, function = TOOLS[words[0].rpartition("/")[2]]
    tool = getattr(__import__(f"{__name__}.{module}", fromlist=[function]), function)
    if module == "smi":
        return tool(state, list(words[1:]), change or (lambda apply: apply(state)))
    return tool(state, list(words[1:]))


def files(state: DeviceState) -> dict[str, str]:
    """Return the content of each device file in this state, keyed by path."""
    from . import bus

    return bus.files(state)


def needs_subnet_manager(state: DeviceState) -> bool:
    """Return whether the machine has fourth-generation NVSwitches, which require the NVLink subnet manager."""
    from . import fabric

    return bool(fabric.switch_bridges(state))


def gpu_count(state: DeviceState) -> int:
    """Return the number of GPUs that programs find: the GPUs that the driver lists, if it is loaded."""
    from . import device_faults, gpus

    broken = {"no-devices", "gpu-lost", "xid-79"} & set(device_faults.active(state))
    return len(gpus.listed(state)) if state["driver"]["loaded"] and not broken else 0


def efa_domains(state: DeviceState) -> list[str]:
    """Return the EFA devices that libfabric lists."""
    from . import fabric

    return fabric.efa_names(state) if fabric.efa_ready(state) else []


def verbs_ports(state: DeviceState) -> list[tuple[str, str, bool]]:
    """Return (device, link layer, whether the port is active) of each port that libibverbs lists, without EFA."""
    from . import fabric

    ports_seen = [(port["NAME"], port["LAYER"], not port["DOWN"]) for port in fabric.ports(state)]
    bridges = fabric.switch_bridges(state) if "mlx5_ib" in state["modules"] else []
    return ports_seen + [(name, "InfiniBand", True) for name in bridges]


def faults() -> dict[str, str]:
    """Return the effect of each device fault, keyed by name."""
    from .device_faults import FAULTS

    return dict(FAULTS)


def provenance() -> list[dict[str, str]]:
    """Return the origin of each output for reports: tool, method, source."""
    import json

    with open(f"{FOLDER}/provenance.json", encoding="utf-8") as file:
        return json.load(file)["outputs"]
