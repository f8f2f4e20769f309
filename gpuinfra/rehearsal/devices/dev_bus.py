"""The PCI bus, the EFA devices, and the files below /proc and /sys that devices bring."""

import dev_faults
import dev_gpus

EFA_BUSES = ("10", "20", "90", "a0")
"""One EFA device beside each pair of GPUs, at slot 1b: p4d's shape. Larger machines get further buses."""


def lspci(state, args):
    """`lspci [-D] [-n|-nn] [-d VENDOR:]`: devices of NVIDIA (10de), of Amazon (1d0f) or all of them."""
    vendor = ""
    for at, arg in enumerate(args):
        if arg.startswith("-d"):
            vendor = (arg[2:] or (args[at + 1] if at + 1 < len(args) else "")).split(":")[0].lower()
    for line in sorted(_devices(state)):
        if not vendor or "[%s:" % vendor in line:
            print(line)
    return 0


def _devices(state):
    lines = ["0000:00:05.0 Ethernet controller [0200]: Amazon.com, Inc. Elastic Network Adapter (ENA) [1d0f:ec20]"]
    for gpu in dev_gpus.on_bus(state):
        lines.append(
            "0000:%s 3D controller [0302]: NVIDIA Corporation %s [10de:%s] (rev a1)"
            % (gpu["PCI"][9:].lower(), gpu["CHIP"], gpu["PCIID"][:4].lower())
        )
    for index in range(state.get("hardware", {}).get("nvswitches", 0)):
        chip = "[10de:1af1]" if (dev_gpus.model(state) or {}).get("ARCH") == "Ampere" else "[10de:22a3]"
        lines.append("0000:c0:%02x.0 Bridge [0680]: NVIDIA Corporation NVSwitch %s (rev a1)" % (0x18 + index, chip))
    for bus, slot in efa_addresses(state):
        lines.append(
            "0000:%s:%s.0 Ethernet controller [0200]: Amazon.com, Inc. Elastic Fabric Adapter (EFA) [1d0f:efa0]"
            % (bus, slot)
        )
    return lines


def efa_addresses(state):
    """(bus, slot) of each EFA device, as hexadecimal text."""
    count = state.get("hardware", {}).get("efa", 0)
    found = [(EFA_BUSES[index] if index < 4 else "%02x" % (0x30 + index), "1b") for index in range(count)]
    return found[:-1] if "efa-missing" in dev_faults.active(state) else found


def efa_names(state):
    """rdma-core's name of each device, made of bus and slot in decimal: rdmap16s27."""
    return ["rdmap%ds%d" % (int(bus, 16), int(slot, 16)) for bus, slot in efa_addresses(state)]


def _efa_ready(state):
    return bool(state.get("efa", {}).get("kmod")) and "efa" in state.get("modules", ())


def fi_info(state, args):
    """`fi_info -p efa [-t FI_EP_RDM] [-l]`."""
    names = efa_names(state) if _efa_ready(state) else []
    if "--version" in args:
        print(
            "fi_info: %s\nlibfabric: %s\nlibfabric api: 2.4"
            % ((state.get("efa", {}).get("libfabric") or "2.4.0amzn1.0",) * 2)
        )
        return 0
    if "-l" in args:
        if names:
            print("efa:\n    version: 204.0")
        print("tcp:\n    version: 204.0\nshm:\n    version: 204.0")
        return 0
    if not names:
        print("fi_getinfo: -61 (No data available)")
        return 61
    for name in names:
        for fabric, protocol in (("efa-direct", "FI_PROTO_EFA"), ("efa", "FI_PROTO_EFA")):
            print(
                "provider: efa\n    fabric: %s\n    domain: %s-rdm\n    version: 204.0\n    type: FI_EP_RDM\n    protocol: %s"
                % (fabric, name, protocol)
            )
    return 0


def rdma(state, args):
    """`rdma link`, `rdma dev` and `rdma -p statistic show`."""
    names = efa_names(state) if _efa_ready(state) else []
    for index, name in enumerate(names):
        if "dev" in args:
            print(
                "%d: %s: node_type unspecified fw 0.0.0.0 node_guid 0000:0000:0000:0000 sys_image_guid 0000:0000:0000:0000"
                % (index, name)
            )
        elif "statistic" in args:
            print("link %s/1 tx_bytes 0 tx_pkts 0 rx_bytes 0 rx_pkts 0 rx_drops 0 retrans_timeout_events 0" % name)
        else:
            print("link %s/1 state ACTIVE physical_state LINK_UP" % name)
    return 0


def ibv_devinfo(state, args):
    """`ibv_devinfo`, `ibv_devices` and `ibstat`, as far as EFA shows in them."""
    names = efa_names(state) if _efa_ready(state) else []
    if not names:
        print("No IB devices found")
        return 255
    for name in names:
        print(
            "hca_id:\t%s\n\ttransport:\t\t\tunspecified (4)\n\tphys_port_cnt:\t\t\t1\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n"
            % name
        )
    return 0


def files(state):
    """Path -> text of every file below /proc/driver, /sys and /dev that exists because of a device."""
    found = {}
    driver = state.get("driver", {})
    if driver.get("loaded"):
        flavour = "Open Kernel Module for x86_64" if driver.get("open") else "x86_64 Kernel Module"
        found["/proc/driver/nvidia/version"] = (
            "NVRM version: NVIDIA UNIX %s  %s  Release Build  (dvs-builder@U22-I3-AM02-24-3)  Thu Nov 20 01:00:00 UTC 2025\n"
            "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04.2)\n" % (flavour, driver["loaded"])
        )
        for gpu in dev_gpus.listed(state):
            address = "0000:" + gpu["PCI"][9:].lower()
            found["/proc/driver/nvidia/gpus/%s/information" % address] = (
                "Model: \t\t %s\nGPU UUID: \t %s\nVideo BIOS: \t %s\nBus Type: \t PCIe\nBus Location: \t %s\nDevice Minor: \t %s\nGPU Excluded:\t No\n"
                % (gpu["NAME"], gpu["UUID"], gpu["VBIOS"], address, gpu["INDEX"])
            )
            found["/dev/nvidia%s" % gpu["INDEX"]] = ""
        found["/dev/nvidiactl"] = ""
        if "nvidia_uvm" in state.get("modules", ()):
            found["/dev/nvidia-uvm"] = found["/dev/nvidia-uvm-tools"] = ""
    for gpu in dev_gpus.on_bus(state):
        folder = "/sys/bus/pci/devices/0000:" + gpu["PCI"][9:].lower()
        found[folder + "/vendor"], found[folder + "/device"], found[folder + "/class"] = (
            "0x10de\n",
            "0x%s\n" % gpu["PCIID"][:4].lower(),
            "0x030200\n",
        )
    for (bus, slot), name in zip(efa_addresses(state), efa_names(state)):
        folder = "/sys/bus/pci/devices/0000:%s:%s.0" % (bus, slot)
        found[folder + "/vendor"], found[folder + "/device"], found[folder + "/class"] = (
            "0x1d0f\n",
            "0xefa0\n",
            "0x020000\n",
        )
        if _efa_ready(state):
            found["/sys/class/infiniband/%s/ports/1/state" % name] = "4: ACTIVE\n"
            found["/sys/class/infiniband/%s/node_type" % name] = "0: <unknown>\n"
    if _efa_ready(state):
        for index, name in enumerate(efa_names(state)):
            found["/sys/class/infiniband_verbs/uverbs%d/ibdev" % index] = name + "\n"
            found["/dev/infiniband/uverbs%d" % index] = ""
    return found
