"""ib_write_bw on a stand-in node: the server waits for its client, and the client prints the rate of the device."""

from __future__ import annotations

import time

from . import device_faults, fabric

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import DeviceState

RATE = 0.982
"""Share of the port's rate: 392.8 of 400 Gb/s on an ND96isr_H100_v5 (a public result of Azure's node health checks)."""
SERVER_S = 30


def ib_write_bw(state: DeviceState, args: list[str]) -> int:
    """`-d DEVICE ... [HOST]`: without a host, this is the server."""
    name = next((args[at + 1] for at, word in enumerate(args[:-1]) if word == "-d"), "")
    port = next((one for one in fabric.ports(state) if one["NAME"] == name), None)
    if port is None or port["DOWN"]:
        print("IB device %s not found" % name if port is None else " Port number 1 state is Down")
        return 1
    if args[-1][:1].isdigit() and args[-2:-1] not in (["-d"], ["-p"], ["-s"], ["-x"]):
        slow = port["NUMBER"] == fabric.BROKEN and "rdma-slow" in device_faults.active(state)
        rate = port["RATE"] * RATE / (4 if slow else 1)
        print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
        print(
            " 8388608    5000             %.2f             %.2f               %.6f" % (rate + 0.1, rate, rate / 67108)
        )
        return 0
    time.sleep(SERVER_S)
    return 0
