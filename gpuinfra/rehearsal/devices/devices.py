"""The device tools of a stand-in node: `main([tool, *args])` prints what the tool would and returns its exit code."""

import dev_bus
import dev_dcgm
import dev_fabric
import dev_faults
import dev_log
import dev_smi

FAULTS = dev_faults.FAULTS

_PLAYERS = {
    "nvidia-smi": dev_smi.main,
    "lspci": dev_bus.lspci,
    "fi_info": dev_fabric.fi_info,
    "rdma": dev_fabric.rdma,
    "ibv_devinfo": dev_fabric.ibv_devinfo,
    "ibv_devices": dev_fabric.ibv_devices,
    "ibstat": dev_fabric.ibstat,
    "ibdev2netdev": dev_fabric.ibdev2netdev,
    "dcgmi": dev_dcgm.main,
    "dmesg": dev_log.dmesg,
    "journalctl": dev_log.journalctl,
}
TOOLS = tuple(_PLAYERS)


def files(state):
    """Absolute path -> text of every file that exists because of a device, in this state."""
    return dev_bus.files(state)


def main(words, state=None):
    """Play one tool. `state` is given in tests; on a node it is read from /run/standin/standin.json."""
    if state is None:
        from tools.state import read_state

        state = read_state()
    return _PLAYERS[words[0].rsplit("/", 1)[-1]](state, list(words[1:]))


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
