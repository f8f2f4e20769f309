"""The DCGM exporter and node exporter of a stand-in node, and the node's private address.

All stand-in nodes share the host's network, so the DCGM exporter does not open a port. `curl` calls `answer` instead. The real node exporter listens on a
loopback address of this node, if the host has it. Otherwise `curl` prints the file of the node program.
"""

from __future__ import annotations

import sys

from .passthrough import become_real, real
from .state import fail, make_folder, read_state, read_text, unit_active, write_atomically
from .unitfile import load

UNIT = "nvidia-dcgm-exporter.service"
NODE_UNIT, NODE_EXPORTER = "prometheus-node-exporter.service", "prometheus-node-exporter"
ADDRESSES = "/run/standin/filesystems/.exporters"
"""Folder that all nodes of a rehearsal share, with the address of the exporter of each node."""
LISTEN, TEXTFILES = "--web.listen-address=", "--collector.textfile.directory="
PLACE = "/run/standin-node-exporter"
"""File with the address on which node exporter was told to listen, and the loopback address on which it listens, or a folder."""


def private_address() -> str:
    """Return this node's address in the cluster network. It is derived from the number in the node's name: `gpu-1` has 10.0.1.11."""
    number = read_state()["instance"]["name"].rpartition("-")[2]
    return f"10.0.1.{10 + int(number) if number.isdigit() else 10}"


def ip(argv: list[str]) -> int:
    """`ip -4 -o route get ADDRESS`; other calls use the real command."""
    if argv[-3:-1] != ["route", "get"]:
        return become_real("ip", argv)
    sys.stdout.write(f"{argv[-1]} via 10.0.0.1 dev ens5 src {private_address()} uid 0 \\    cache \n")
    return 0


def daemon(argv: list[str]) -> int:
    """The exporter, which requires the DCGM host engine."""
    from .vendor import stay

    del argv
    if not unit_active("nvidia-dcgm.service"):
        return fail("Error connecting to nv-hostengine: Host engine connection invalid/disconnected")
    return stay()


def answer(url: str) -> int:
    """Answer `curl URL` with one temperature for each GPU that the driver lists, if the exporter listens there."""
    from .vendor import _gpu_indexes

    unit = load(UNIT)
    words = unit.words("Service", "Environment") if unit else []
    listens = [word.partition("=")[2] for word in words if word.startswith("DCGM_EXPORTER_LISTEN=")]
    listen = listens[-1] if listens else ":9400"
    there = url.removeprefix("http://").partition("/")[0]
    if not unit_active(UNIT) or (listen != there and listen != ":9400"):
        return 7
    sys.stdout.write("# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n")
    for index in _gpu_indexes() or []:
        sys.stdout.write(f'DCGM_FI_DEV_GPU_TEMP{{gpu="{index}",device="nvidia{index}"}} 30\n')
    return 0


def node_exporter(argv: list[str]) -> int:
    """node exporter. It listens on the loopback address of this node, because the private address of a stand-in node does not exist."""
    import os

    from .vendor import stay

    wanted = next((word.removeprefix(LISTEN) for word in argv if word.startswith(LISTEN)), ":9100")
    folder = next((word.removeprefix(TEXTFILES) for word in argv if word.startswith(TEXTFILES)), "")
    there = f"{os.environ['GPUINFRA_MONITORING_ADDRESS']}:9100" if real(NODE_EXPORTER) else folder
    with open(PLACE, "w", encoding="utf-8") as file:
        file.write(f"{wanted} {there}")
    make_folder(ADDRESSES)
    write_atomically(f"{ADDRESSES}/{read_state()['instance']['id']}", there)
    if there == folder:
        return stay()
    return become_real(NODE_EXPORTER, [LISTEN + there if word.startswith(LISTEN) else word for word in argv])


def address_of(instance_id: str) -> str:
    """Return the address at which the exporter of a node of this rehearsal listens, or one at which nothing listens."""
    there = read_text(f"{ADDRESSES}/{instance_id}", "")
    return there if there and not there.startswith("/") else "127.0.0.1:1"


def node_answer(url: str) -> int:
    """Answer `curl URL`, if node exporter listens there."""
    wanted, _, there = read_text(PLACE, "").partition(" ")
    asked = url.removeprefix("http://").partition("/")[0]
    if not unit_active(NODE_UNIT) or wanted not in (asked, ":9100"):
        return 7
    if not there.startswith("/"):
        return become_real("curl", ["-s", "--noproxy", "*", "--max-time", "10", f"http://{there}/metrics"])
    file = f"{there}/gpuinfra.prom"
    if text := read_text(file, ""):
        sys.stdout.write(f'{text}node_textfile_mtime_seconds{{file="{file}"}} 1\n')
    return 0
