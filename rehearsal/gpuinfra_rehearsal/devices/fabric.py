"""Fabric devices (EFA, InfiniBand, RDMA over Ethernet, gVNIC) and the tools that list them.

RDMA tools list a device once its kernel module is loaded, so the output reveals a fabric step that did not run.
"""

from __future__ import annotations

from . import device_faults
from . import gpus as device_gpus
from . import layout as layout_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import DeviceState, Port

EFA_BUSES = ("10", "20", "90", "a0")
"""PCI buses of the EFA devices of p4d: one per pair of GPUs, each device in slot 1b. Larger machines have additional buses."""
ADAPTERS = {"HDR": ("MT4124", "101c", "4124", "20.31.1014"), "NDR": ("MT4126", "101e", "4126", "28.42.1000")}
"""Maps a generation to the name, PCI ID, part number and firmware of a virtual function. HDR is recorded; NDR's
firmware is assumed."""
BROKEN = 5
"""Index of the device that faults break."""


def efa_addresses(state: DeviceState) -> list[tuple[str, str]]:
    """Return the bus and slot of each EFA device, in hexadecimal."""
    count = state.get("hardware", {}).get("efa", 0)
    addresses = [(EFA_BUSES[index] if index < 4 else "%02x" % (0x30 + index), "1b") for index in range(count)]
    return addresses[:-1] if "efa-missing" in device_faults.active(state) else addresses


def efa_names(state: DeviceState) -> list[str]:
    """Return the rdma-core name of each device, built from the decimal bus and slot: rdmap16s27."""
    return ["rdmap%ds%d" % (int(bus, 16), int(slot, 16)) for bus, slot in efa_addresses(state)]


def efa_ready(state: DeviceState) -> bool:
    """Return whether the EFA module is installed and loaded."""
    return bool(state.get("efa", {}).get("kmod")) and "efa" in state.get("modules", ())


def nics(state: DeviceState) -> list[tuple[str, str, str, str]]:
    """Return (address, vendor:device, class, name) of each device that lspci lists besides GPUs and bridges."""
    where, provider = layout_table.cloud(state), state.get("hardware", {}).get("fabric")
    cards = []
    if where == "aws":
        words = "Amazon.com, Inc. Elastic Network Adapter (ENA)"
        cards.append(("0000:00:05.0", "1d0f:ec20", "Ethernet controller [0200]", words))
        for bus, slot in efa_addresses(state):
            words = "Amazon.com, Inc. Elastic Fabric Adapter (EFA)"
            cards.append(("0000:%s:%s.0" % (bus, slot), "1d0f:efa0", "Ethernet controller [0200]", words))
    for address in gvnics(state):
        cards.append(
            (address, "1ae0:0042", "Ethernet controller [0200]", "Google, Inc. Compute Engine Virtual Ethernet [gVNIC]")
        )
    if where == "azure":
        words = "Mellanox Technologies MT27800 Family [ConnectX-5 Virtual Function]"
        cards.append(("a1b2:00:02.0", "15b3:1018", "Ethernet controller [0200]", words))
    for _, address, _ in devices(state):
        kind = "Infiniband controller [0207]" if provider == "infiniband" else "Ethernet controller [0200]"
        chip = _adapter(state)[1]
        words_of_family = "MT28908 Family [ConnectX-6 Virtual Function]"
        family = words_of_family if chip == "101c" else "ConnectX Family mlx5Gen Virtual Function"
        cards.append((address, "15b3:" + chip, kind, "Mellanox Technologies " + family))
    return cards  # fmt: skip


def gvnics(state: DeviceState) -> list[str]:
    """Return the addresses of Google's virtual interfaces: the host's, and the data interfaces of TCPX and TCPXO."""
    if layout_table.cloud(state) != "gcp":
        return []
    arch = _arch(state)
    addresses = list(layout_table.layout(state, arch).get("gvnics", ()))
    if state.get("hardware", {}).get("fabric") in ("tcpx", "tcpxo"):
        addresses += layout_table.fabric_addresses(state, arch)
    if "gvnic-missing" in device_faults.active(state) and len(addresses) > 1:
        addresses.pop(min(BROKEN, len(addresses) - 1))
    return addresses


def devices(state: DeviceState) -> list[tuple[int, str, str]]:
    """Return (number, PCI address, name) of each InfiniBand or RDMA device of the machine."""
    provider = state.get("hardware", {}).get("fabric")
    if provider not in ("infiniband", "gib"):
        return []
    named = []
    for number, address in enumerate(layout_table.fabric_addresses(state, _arch(state))):
        bus = int(address[5:7], 16)
        named.append((number, address, "mlx5_ib%d" % number if provider == "infiniband" else "rocep%ds0" % bus))
    if "fabric-device-missing" in device_faults.active(state):
        named.pop(min(BROKEN, len(named) - 1))
    return named


def ports(state: DeviceState) -> list[Port]:
    """Return the ports that RDMA tools list once mlx5_ib is loaded. Azure's Ethernet function comes last, as on real
    machines."""
    if "mlx5_ib" not in state.get("modules", ()):
        return []
    hardware, faults = state.get("hardware", {}), device_faults.active(state)
    layer = "InfiniBand" if hardware.get("fabric") == "infiniband" else "Ethernet"
    rate = int(hardware.get("fabric_gbps", 0))
    port_rows = []
    for number, _, name in devices(state):
        broken = number == BROKEN
        down, slow = broken and "fabric-port-down" in faults, broken and "fabric-port-slow" in faults
        port_rows.append({
            "NAME": name, "NUMBER": number, "LAYER": layer, "DOWN": down, "RATE": rate // 4 if slow else rate,
            "LID": 0 if layer == "Ethernet" or down else 958 + number, "NETDEV": "ib%d" % number if layer == "InfiniBand" else "gpu%drdma0" % number,
            "PKEY": "0x7fff" if broken and "fabric-no-key" in faults else "0x800b",
        })  # fmt: skip
    if layout_table.cloud(state) == "azure" and port_rows:
        port_rows.append({
            "NAME": "mlx5_an0", "NUMBER": 8, "LAYER": "Ethernet", "DOWN": False, "RATE": 100, "LID": 0, "NETDEV": "enP41394s1", "PKEY": "0xffff",
        })  # fmt: skip
    return port_rows


def switch_bridges(state: DeviceState) -> list[str]:
    """Return the names of the ConnectX functions through which the fabric manager reaches the NVSwitches of B200 and B300.

    They are InfiniBand devices of mlx5. On AWS, they exist in addition to the EFA devices. The names are from a p6-b300.48xlarge.
    """
    if (device_gpus.model(state) or {}).get("ARCH") != "Blackwell" or not state["hardware"].get("nvswitches"):
        return []
    return ["ibp198s0f0", "ibp199s0f0"]


def _adapter(state: DeviceState) -> tuple[str, str, str, str]:
    return ADAPTERS["HDR" if int(state.get("hardware", {}).get("fabric_gbps", 0)) <= 200 else "NDR"]


def _arch(state: DeviceState) -> str:
    return (device_gpus.model(state) or {}).get("ARCH", "")


def _guid(port: Port) -> str:
    return "00155dfffe33ff%02x" % (0x50 + port["NUMBER"])


def fi_info(state: DeviceState, args: list[str]) -> int:
    """`fi_info -p efa [-t FI_EP_RDM] [-l]`."""
    names = efa_names(state) if efa_ready(state) else []
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


def rdma(state: DeviceState, args: list[str]) -> int:
    """`rdma link`, `rdma dev` and `rdma -p statistic show`."""
    shown = [(name, None) for name in (efa_names(state) if efa_ready(state) else [])]
    shown += [(port["NAME"], port) for port in ports(state)]
    for index, (name, port) in enumerate(shown):
        if "dev" in args:
            kind = "unspecified" if port is None else "ca"
            print(
                "%d: %s: node_type %s fw 0.0.0.0 node_guid 0000:0000:0000:0000 sys_image_guid 0000:0000:0000:0000"
                % (index, name, kind)
            )
        elif "statistic" in args:
            print("link %s/1 tx_bytes 0 tx_pkts 0 rx_bytes 0 rx_pkts 0 rx_drops 0 retrans_timeout_events 0" % name)
        elif port is None:
            print("link %s/1 state ACTIVE physical_state LINK_UP" % name)
        else:
            state_words = "state DOWN physical_state POLLING" if port["DOWN"] else "state ACTIVE physical_state LINK_UP"
            if port["LAYER"] == "InfiniBand":
                state_words = "subnet_prefix fe80:0000:0000:0000 lid %d sm_lid 549 lmc 0 %s" % (
                    port["LID"],
                    state_words,
                )
            print("link %s/1 %s netdev %s" % (name, state_words, port["NETDEV"]))
    return 0  # fmt: skip


def ibstat(state: DeviceState, args: list[str]) -> int:
    """`ibstat [-l]`: InfiniBand and RDMA over Ethernet. EFA has no management devices and is not listed."""
    del args
    port_rows = ports(state)
    if not port_rows and "ib_umad" not in state.get("modules", ()):
        _print_error("ibpanic: [1001] main: can't init UMAD library: (No such file or directory)")
        return 255
    name, _, _, firmware = _adapter(state)
    for port in port_rows:
        guid = _guid(port)
        words = ("Down", "Polling") if port["DOWN"] else ("Active", "LinkUp")
        print(
            "CA '%s'\n\tCA type: %s\n\tNumber of ports: 1\n\tFirmware version: %s\n\tHardware version: 0"
            % (port["NAME"], name, firmware)
        )
        print("\tNode GUID: 0x%s\n\tSystem image GUID: 0x0c42a10300fb51%02x\n\tPort 1:" % (guid, port["NUMBER"]))
        print(
            "\t\tState: %s\n\t\tPhysical state: %s\n\t\tRate: %d"
            % (words[0], words[1], 10 if port["DOWN"] else port["RATE"])
        )
        manager = 549 if port["LAYER"] == "InfiniBand" else 0
        print("\t\tBase lid: %d\n\t\tLMC: 0\n\t\tSM lid: %d\n\t\tCapability mask: 0x2659ec48" % (port["LID"], manager))
        print("\t\tPort GUID: 0x%s\n\t\tLink layer: %s" % (guid.replace("fffe", "fffd"), port["LAYER"]))
    return 0  # fmt: skip


def ibv_devinfo(state: DeviceState, args: list[str]) -> int:
    """`ibv_devinfo`."""
    del args
    efa = efa_names(state) if efa_ready(state) else []
    port_rows = ports(state)
    if not efa and not port_rows:
        print("No IB devices found")
        return 255
    for name in efa:
        print(
            "hca_id:\t%s\n\ttransport:\t\t\tunspecified (4)\n\tphys_port_cnt:\t\t\t1\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n"
            % name
        )
    _, _, part, firmware = _adapter(state)
    for port in port_rows:
        guid = _guid(port)
        node = ":".join(guid[at : at + 4] for at in range(0, 16, 4))
        print(
            "hca_id:\t%s\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t%s\n\tnode_guid:\t\t\t%s"
            % (port["NAME"], firmware, node)
        )
        print(
            "\tvendor_id:\t\t\t0x02c9\n\tvendor_part_id:\t\t\t%s\n\thw_ver:\t\t\t\t0x0\n\tphys_port_cnt:\t\t\t1" % part
        )
        word = "PORT_DOWN (1)" if port["DOWN"] else "PORT_ACTIVE (4)"
        print("\t\tport:\t1\n\t\t\tstate:\t\t\t%s\n\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t4096 (5)" % word)
        print("\t\t\tsm_lid:\t\t\t%d\n\t\t\tport_lid:\t\t%d" % (549 if port["LID"] else 0, port["LID"]))
        print("\t\t\tport_lmc:\t\t0x00\n\t\t\tlink_layer:\t\t%s\n" % port["LAYER"])
    return 0  # fmt: skip


def ibv_devices(state: DeviceState, args: list[str]) -> int:
    """`ibv_devices`: names and node GUIDs."""
    del args
    print("    device          \t   node GUID\n    ------          \t----------------")
    for name in efa_names(state) if efa_ready(state) else []:
        print("    %-16s\t0000000000000000" % name)
    for port in ports(state):
        print("    %-16s\t%s" % (port["NAME"], _guid(port)))
    return 0


def ibdev2netdev(state: DeviceState, args: list[str]) -> int:
    """The network interface of each RDMA device."""
    del args
    for port in ports(state):
        print("%s port 1 ==> %s (%s)" % (port["NAME"], port["NETDEV"], "Down" if port["DOWN"] else "Up"))
    return 0


def pci_files(address: str, vendor: str, device: str, kind: str) -> dict[str, str]:
    """Return the files of a PCI device below /sys. IDs and class are hexadecimal."""
    folder = "/sys/bus/pci/devices/" + address
    values = {"vendor": vendor, "device": device, "class": kind}
    return {"%s/%s" % (folder, name): "0x%s\n" % value for name, value in values.items()}


def files(state: DeviceState) -> dict[str, str]:
    """Return the content of each fabric device file below /sys and /dev, keyed by path."""
    content = {}
    for (bus, slot), name in zip(efa_addresses(state), efa_names(state)):
        content.update(pci_files("0000:%s:%s.0" % (bus, slot), "1d0f", "efa0", "020000"))
        if efa_ready(state):
            down = name == efa_names(state)[0] and "efa-port-down" in device_faults.active(state)
            content["/sys/class/infiniband/%s/ports/1/state" % name] = "1: DOWN\n" if down else "4: ACTIVE\n"
            content["/sys/class/infiniband/%s/ports/1/link_layer" % name] = "Unspecified\n"
            content["/sys/class/infiniband/%s/node_type" % name] = "0: <unknown>\n"
            content["/sys/class/infiniband/%s/device/vendor" % name] = "0x1d0f\n"
    for name in switch_bridges(state) if "mlx5_ib" in state.get("modules", ()) else []:
        folder = "/sys/class/infiniband/%s" % name
        content[folder + "/device/vendor"] = "0x15b3\n"
        content[folder + "/device/vpd"] = "NVIDIA ConnectX-7 SW_MNG\n"
        content[folder + "/node_type"] = "1: CA\n"
        content[folder + "/hca_type"] = "MT4129\n"
        content[folder + "/ports/1/state"] = "4: ACTIVE\n"
        content[folder + "/ports/1/phys_state"] = "5: LinkUp\n"
        content[folder + "/ports/1/link_layer"] = "InfiniBand\n"
    for index, name in enumerate(efa_names(state) if efa_ready(state) else []):
        content["/sys/class/infiniband_verbs/uverbs%d/ibdev" % index] = name + "\n"
        content["/dev/infiniband/uverbs%d" % index] = ""
    for _, address, _ in devices(state):
        kind = "020700" if state["hardware"].get("fabric") == "infiniband" else "020000"
        content.update(pci_files(address, "15b3", _adapter(state)[1], kind))
    for address in gvnics(state):
        content.update(pci_files(address, "1ae0", "0042", "020000"))
    for index, port in enumerate(ports(state)):
        folder = "/sys/class/infiniband/%s" % port["NAME"]
        content[folder + "/device/vendor"] = "0x15b3\n"
        content[folder + "/node_type"] = "1: CA\n"
        content[folder + "/hca_type"] = _adapter(state)[0] + "\n"
        content[folder + "/fw_ver"] = _adapter(state)[3] + "\n"
        content[folder + "/ports/1/state"] = "1: DOWN\n" if port["DOWN"] else "4: ACTIVE\n"
        content[folder + "/ports/1/phys_state"] = "2: Polling\n" if port["DOWN"] else "5: LinkUp\n"
        content[folder + "/ports/1/rate"] = "%d Gb/sec (4X %s)\n" % (
            port["RATE"],
            "NDR" if port["RATE"] >= 400 else "HDR",
        )
        content[folder + "/ports/1/link_layer"] = port["LAYER"] + "\n"
        flaps = 9 if index == BROKEN and "fabric-flapping" in device_faults.active(state) else 0
        content[folder + "/ports/1/counters/link_downed"] = "%d\n" % flaps
        content[folder + "/ports/1/pkeys/0"] = port["PKEY"] + "\n"
        content[folder + "/ports/1/pkeys/1"] = "0x7fff\n" if port["LAYER"] == "InfiniBand" else "0x0000\n"
        content["/sys/class/infiniband_verbs/uverbs%d/ibdev" % index] = port["NAME"] + "\n"
        content["/dev/infiniband/uverbs%d" % index] = ""
        if "ib_umad" in state.get("modules", ()):
            content["/dev/infiniband/umad%d" % index] = ""
    return content  # fmt: skip


def _print_error(text: str) -> None:
    import sys

    sys.stderr.write(text + "\n")
