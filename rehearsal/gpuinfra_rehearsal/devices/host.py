"""The processors and the memory of a stand-in node: nproc and free. The machine that runs the rehearsal has others."""

from __future__ import annotations

from . import device_faults

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import DeviceState

KEPT = 0.984
"""Share of the nominal memory that the kernel manages, as on ND96isr_H100_v5 (Azure/azurehpc-health-checks: conf)."""


def nproc(state: DeviceState, args: list[str]) -> int:
    """The number of processors, with or without `--all`."""
    del args
    count = int(state["hardware"].get("vcpus", 0)) or 2
    print(count // 2 if "cpus-missing" in device_faults.active(state) else count)
    return 0


def free(state: DeviceState, args: list[str]) -> int:
    """The memory in bytes (`-b`) or KiB. There is no swap space."""
    share = 0.75 if "memory-missing" in device_faults.active(state) else 1.0
    total = int(float(state["hardware"].get("memory_gib", 0) or 4) * 2**30 * KEPT * share)
    total //= 1 if "-b" in args else 1024
    used, cached = total // 50, total // 100
    print("               total        used        free      shared  buff/cache   available")
    print("Mem:    %12d %11d %11d %11d %11d %11d" % (total, used, total - used - cached, 0, cached, total - used))
    print("Swap:   %12d %11d %11d" % (0, 0, 0))
    return 0
