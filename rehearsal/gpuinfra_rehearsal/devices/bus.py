"""The PCI bus, and the files of devices below /proc, /sys and /dev. Fabric devices are in `fabric.py`."""

from __future__ import annotations

from . import fabric
from . import gpus as device_gpus
from . import layout as layout_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import DeviceState


def lspci(state: DeviceState, args: list[str]) -> int:
    """`lspci [-D] [-n|-nn] [-d VENDOR:]`: devices of NVIDIA (10de), Amazon (1d0f), Mellanox (15b3), Google (1ae0) or
    all."""
    vendor = ""
    for at, arg in enumerate(args):
        if arg.startswith("-d"):
            vendor = (arg[2:] or (args[at + 1] if at + 1 < len(args) else "")).split(":")[0].lower()
    for line in sorted(_devices(state)):
        if not vendor or "[%s:" % vendor in line:
            print(line)
    return 0


def _devices(state: DeviceState) -> list[str]:
    lines = []
    for gpu in device_gpus.on_bus(state):
        lines.append(
            "%s 3D controller [0302]: NVIDIA Corporation %s [10de:%s] (rev a1)"
            % (gpu["PCI"][4:].lower(), gpu["CHIP"], gpu["PCIID"][:4].lower())
        )
    for index in range(state.get("hardware", {}).get("nvswitches", 0)):
        chip = "[10de:1af1]" if (device_gpus.model(state) or {}).get("ARCH") == "Ampere" else "[10de:22a3]"
        lines.append("%s Bridge [0680]: NVIDIA Corporation NVSwitch %s (rev a1)" % (switch_address(state, index), chip))
    for address, device, kind, words in fabric.nics(state):
        lines.append("%s %s: %s [%s]" % (address, kind, words, device))
    return lines


def switch_address(state: DeviceState, index: int) -> str:
    """PCI address of one NVSwitch: one bus on AWS and Google (assumed), a separate domain on Azure (assumed)."""
    if layout_table.cloud(state) == "azure":
        return "%04x:00:00.0" % (0x201 + index)
    return "0000:c0:%02x.0" % (0x18 + index)


def files(state: DeviceState) -> dict[str, str]:
    """Return the content of each device file below /proc/driver, /sys and /dev, keyed by path."""
    content = {}
    driver = state.get("driver", {})
    if driver.get("loaded"):
        flavour = "Open Kernel Module for x86_64" if driver.get("open") else "x86_64 Kernel Module"
        content["/proc/driver/nvidia/version"] = (
            "NVRM version: NVIDIA UNIX %s  %s  Release Build  (dvs-builder@U22-I3-AM02-24-3)  Thu Nov 20 01:00:00 UTC 2025\n"
            "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04.2)\n" % (flavour, driver["loaded"])
        )
        for gpu in device_gpus.listed(state):
            address = gpu["PCI"][4:].lower()
            content["/proc/driver/nvidia/gpus/%s/information" % address] = (
                "Model: \t\t %s\nGPU UUID: \t %s\nVideo BIOS: \t %s\nBus Type: \t PCIe\nBus Location: \t %s\nDevice Minor: \t %s\nGPU Excluded:\t No\n"
                % (gpu["NAME"], gpu["UUID"], gpu["VBIOS"], address, gpu["INDEX"])
            )
            content["/dev/nvidia%s" % gpu["INDEX"]] = ""
        content["/dev/nvidiactl"] = ""
        if "nvidia_uvm" in state.get("modules", ()):
            content["/dev/nvidia-uvm"] = content["/dev/nvidia-uvm-tools"] = ""
    for gpu in device_gpus.on_bus(state):
        content.update(fabric.pci_files(gpu["PCI"][4:].lower(), "10de", gpu["PCIID"][:4].lower(), "030200"))
    content.update(fabric.files(state))
    return content
