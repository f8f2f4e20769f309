"""The kernel log of this boot, in the formats of `journalctl -k` and `dmesg`."""

from __future__ import annotations

from . import device_faults, fabric
from . import gpus as device_gpus
from . import layout as layout_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import DeviceState

LINUX = "Linux version %s (buildd@lcy02-amd64-000) (x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04.2) 12.3.0) #42~22.04.1-Ubuntu SMP"
COMMAND_LINE = "Command line: BOOT_IMAGE=/boot/vmlinuz-%s root=PARTUUID=00000000-01 ro console=tty1 console=ttyS0 nvme_core.io_timeout=4294967295"


def lines(state: DeviceState) -> list[tuple[float, str]]:
    """Return (seconds since boot, text) of each kernel message."""
    messages = [
        (0.0, LINUX % state.get("kernel", "6.8.0-1040-aws")),
        (0.0, COMMAND_LINE % state.get("kernel", "")),
    ]
    messages += [(0.9, text) for text in _ethernet(state)]
    for gpu in device_gpus.on_bus(state):
        messages.append(
            (1.1, "pci %s: [10de:%s] type 00 class 0x030200" % (gpu["PCI"][4:].lower(), gpu["PCIID"][:4].lower()))
        )
    driver = state.get("driver", {})
    if driver.get("loaded"):
        flavour = "Open Kernel Module for x86_64" if driver.get("open") else "x86_64 Kernel Module"
        messages.append((9.2, "nvidia-nvlink: Nvlink Core is being initialized, major device number 239"))
        messages.append((9.4, "NVRM: loading NVIDIA UNIX %s  %s  Release Build" % (flavour, driver["loaded"])))
        if driver.get("userspace") and driver["userspace"] != driver["loaded"]:
            text = "NVRM: API mismatch: the client has the version %s, but this kernel module has the version %s."
            messages.append((14.0, text % (driver["userspace"], driver["loaded"])))
    if "efa" in state.get("modules", ()):
        for name in fabric.efa_names(state):
            messages.append((11.0, "infiniband %s: EFA device registered" % name))
    for port in fabric.ports(state):
        if port["LAYER"] == "InfiniBand" and not port["DOWN"]:
            messages.append((11.0, "IPv6: ADDRCONF(NETDEV_CHANGE): %s: link becomes ready" % port["NETDEV"]))
    if (
        driver.get("loaded")
        and (device_gpus.model(state) or {}).get("ARCH") == "Hopper"
        and state["hardware"].get("nvswitches")
    ):
        messages += _switch_error(9.5, "0000:c0:18.0", 0, 22013, "Non-fatal, Link 44 Minion Link DLREQ interrupt", 44)
    return messages + _faults(state)


def _ethernet(state: DeviceState) -> list[str]:
    """Return the messages of the drivers of the machine's Ethernet interfaces."""
    where = layout_table.cloud(state)
    if where == "aws":
        return ["ena 0000:00:05.0: Elastic Network Adapter (ENA) found at mem, mac addr 02:00:00:00:00:01"]
    if where == "azure":
        return ["hv_netvsc 000d3a00-0001-000d-3a00-0001000d3a00 eth0: VF registering: enP41394s1"]
    return ["gvnic %s: GVE version 1.0.0" % address for address in fabric.gvnics(state)]


def _faults(state: DeviceState) -> list[tuple[float, str]]:
    faults = device_faults.active(state)
    gpus = device_gpus.gpus(state)
    if not gpus:
        return []
    broken = device_faults.broken(len(gpus))
    pci = gpus[broken][1]["PCI"][4:].lower()
    short = pci.rsplit(".", 1)[0]
    messages = []
    if "gpu-missing" in faults:
        messages += [
            (12.1, "NVRM: GPU %s: RmInitAdapter failed! (0x62:0x40:2477)" % pci),
            (12.1, "NVRM: GPU %s: rm_init_adapter failed, device minor number %d" % (pci, broken)),
        ]
    if "no-devices" in faults:
        messages += [
            (12.1, "NVRM: GPU %s: RmInitAdapter failed! (0x62:0x40:2477)" % gpu["PCI"][4:].lower()) for _, gpu in gpus
        ]
    reboot = (
        "NVRM: Xid (PCI:%s): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)" % short
    )
    if "xid-79" in faults:
        messages += [
            (41.7, "NVRM: Xid (PCI:%s): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus." % short),
            (41.7, "NVRM: GPU %s: GPU has fallen off the bus." % pci),
            (41.9, reboot),
        ]
    if "xid-154" in faults:
        messages.append((41.9, reboot))
    if "xid-48" in faults:
        text = "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 4, subpartition 0."
        messages.append((41.7, "NVRM: Xid (PCI:%s): 48, pid='<unknown>', name=<unknown>, %s" % (short, text)))
    if "gpu-lost" in faults:
        messages.append((41.7, "NVRM: GPU %s: GPU is lost." % pci))
    if "sxid-fatal" in faults:
        messages += _switch_error(41.7, "0000:c0:1a.0", 2, 20034, "Fatal, Link 12 LTSSM Fault Up", 12)
    return messages


def _switch_error(at: float, address: str, switch: int, number: int, text: str, link: int) -> list[tuple[float, str]]:
    """Return the three lines of one error of an NVSwitch."""
    start = "nvidia-nvswitch%d: SXid (PCI:%s): %d, " % (switch, address, number)
    instance = "Severity %d Engine instance %02d Sub-engine instance 00" % (text.startswith("Fatal"), link)
    data = "Data {%s}" % ", ".join("0x%08x" % (link if word in (0, 1, 3) else 0) for word in range(9))
    return [(at + 0.001 * line, start + words) for line, words in enumerate((text, instance, data))]


def dmesg(state: DeviceState, args: list[str]) -> int:
    """`dmesg [--time-format iso]`."""
    iso = "iso" in args or "--time-format=iso" in args
    base = _boot(state)
    for at, text in lines(state):
        print(
            "%s %s" % (_iso(base + at, ",%06d+00:00" % int(at % 1 * 1e6)), text) if iso else "[%12.6f] %s" % (at, text)
        )
    return 0


def journalctl(state: DeviceState, args: list[str]) -> int:
    """`journalctl -k [-b] [-o short-iso]`. `tools/machine.py` handles other journals."""
    base = _boot(state)
    host = state.get("instance", {}).get("name", "node")
    for at, text in lines(state):
        print("%s %s kernel: %s" % (_iso(base + at, "+0000"), host, text))
    return 0


def _boot(state: DeviceState) -> float:
    import calendar
    import time

    try:
        return calendar.timegm(time.strptime(state.get("booted", "")[:19], "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return time.time() - 60


def _iso(at: float, zone: str) -> str:
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + zone
