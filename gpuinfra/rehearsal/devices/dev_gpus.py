"""The GPUs of a stand-in node: where they sit, who they are, and every value that tools print about them.

Models carry what differs between them; the rest of each output is in the templates `gpu.xml` and `query-gpu.txt`.
Identities are synthetic and look it, and differ between instances, so a replaced node has other GPUs.
"""

import dev_faults

MODELS = {
    # Addresses and sub-system ids of p4d are as its Linux shows them; memory, power and clocks are the model's data sheet.
    "A100-SXM4-40GB": {
        "NAME": "NVIDIA A100-SXM4-40GB", "ARCH": "Ampere", "PCIID": "20B010DE", "SUBID": "144E10DE", "CHIP": "GA100 [A100 SXM4 40GB]",
        "MEMORY": "40960", "RESERVED": "568", "FREE": "40391", "GEN": "4", "WIDTH": "16", "CAP": "8.0", "LIMIT": "400.00",
        "CLOCK": "210", "CLOCK_MAX": "1410", "CLOCK_MEMORY": "1215", "TLIMIT": "N/A", "FABRIC": False, "LINKS": 12, "RATE": "25",
        "VBIOS": "92.00.45.00.03", "IMG": "G506.0200.00.04", "POWER": "44.51",
    },
    "A100-SXM4-80GB": {
        "NAME": "NVIDIA A100-SXM4-80GB", "ARCH": "Ampere", "PCIID": "20B210DE", "SUBID": "147F10DE", "CHIP": "GA100 [A100 SXM4 80GB]",
        "MEMORY": "81920", "RESERVED": "869", "FREE": "81050", "GEN": "4", "WIDTH": "16", "CAP": "8.0", "LIMIT": "400.00",
        "CLOCK": "210", "CLOCK_MAX": "1410", "CLOCK_MEMORY": "1593", "TLIMIT": "N/A", "FABRIC": False, "LINKS": 12, "RATE": "25",
        "VBIOS": "92.00.45.00.05", "IMG": "G506.0212.00.01", "POWER": "62.03",
    },
    "H100-SXM5-80GB": {
        "NAME": "NVIDIA H100 80GB HBM3", "ARCH": "Hopper", "PCIID": "233010DE", "SUBID": "16C110DE", "CHIP": "GH100 [H100 SXM5 80GB]",
        "MEMORY": "81559", "RESERVED": "479", "FREE": "81079", "GEN": "5", "WIDTH": "16", "CAP": "9.0", "LIMIT": "700.00",
        "CLOCK": "345", "CLOCK_MAX": "1980", "CLOCK_MEMORY": "2619", "TLIMIT": "46 C", "FABRIC": True, "LINKS": 18, "RATE": "26.562",
        "VBIOS": "96.00.A5.00.01", "IMG": "G520.0200.00.05", "POWER": "69.85",
    },
    "H200-SXM5-141GB": {
        "NAME": "NVIDIA H200", "ARCH": "Hopper", "PCIID": "233510DE", "SUBID": "18BE10DE", "CHIP": "GH100 [H200 SXM 141GB]",
        "MEMORY": "143771", "RESERVED": "614", "FREE": "143156", "GEN": "5", "WIDTH": "16", "CAP": "9.0", "LIMIT": "700.00",
        "CLOCK": "345", "CLOCK_MAX": "1980", "CLOCK_MEMORY": "3201", "TLIMIT": "59 C", "FABRIC": True, "LINKS": 18, "RATE": "26.562",
        "VBIOS": "96.00.CF.00.01", "IMG": "G520.0280.00.08", "POWER": "78.10",
    },
}  # fmt: skip

# Four pairs behind four PCIe switches, one EFA device beside each pair: p4d's shape. Machines without a recorded layout get the same.
ADDRESSES = ("10:1C.0", "10:1D.0", "20:1C.0", "20:1D.0", "90:1C.0", "90:1D.0", "A0:1C.0", "A0:1D.0")


def model(state):
    """The record of this machine's GPU, None for a machine without one."""
    hardware = state.get("hardware", {})
    name = hardware.get("gpu")
    if not name or not hardware.get("gpus"):
        return None
    for key, record in MODELS.items():
        if name in (key, record["NAME"]):
            return record
    raise SystemExit("this stand-in has no record of GPU %s" % name)


def gpus(state):
    """(index, values) of each GPU, in the driver's order, as the hardware is: faults that hide one are applied by the reader."""
    record = model(state)
    if record is None:
        return []
    faults = dev_faults.active(state)
    driver = state.get("driver", {})
    tail = _number(state.get("instance", {}).get("id", ""))
    found = []
    for index in range(state["hardware"]["gpus"]):
        address = ADDRESSES[index] if index < 8 else "%02X:00.0" % (0xB0 + index)
        bus, device = address.split(":")
        values = dict(record)
        values.update(
            INDEX=str(index), PCI="00000000:" + address, BUS=bus, DEVICE=device.split(".")[0],
            UUID="GPU-00000000-0000-4000-8%03x-%012x" % (index, tail % 16**12), SERIAL="0%08d%04d" % (tail % 10**8, index),
            PDI="0x%016x" % (tail % 16**12 * 16 + index), BOARD="0x%s%s" % (bus.lower(), device[:2].lower()), MODULE=str(index + 1),
            DRIVER=driver.get("loaded") or "", COUNT=str(state["hardware"]["gpus"]), PERSISTENCE="Enabled" if state.get("persistenced") else "Disabled",
            MIG="Disabled", MIG_PENDING="Disabled", RECOVERY="None", INFOROM="valid", ECC="Enabled", ECC_PENDING="Enabled", ZERO="0",
            ECC_V_SRAM="0", ECC_V_DRAM="0", ECC_V_TOTAL="0", ECC_A_SRAM="0", ECC_A_TOTAL="0", ROW_UNC="0", ROW_PENDING="No", ROW_FAILURE="No",
            GEN_MAX=record["GEN"], GEN_DEVICE=record["GEN"], WIDTH_MAX=record["WIDTH"], LIMIT_DEFAULT=record["LIMIT"], USED="0",
            TEMP=str(27 + index % 4), TEMP_MEMORY=str(26 + index % 4), REASONS="0x0000000000000001", BIT_1="Active", BIT_8="Not Active",
            BIT_32="Not Active", BIT_64="Not Active", BIT_128="Not Active",
            FABRIC_STATE="Completed" if record["FABRIC"] else "N/A", FABRIC_STATUS="Success" if record["FABRIC"] else "N/A",
        )  # fmt: skip
        for fault in faults if index == dev_faults.GPU else ():
            values.update(dev_faults.FIELDS.get(fault, {}))
        values.update(
            TLIMIT_CSV=values["TLIMIT"].replace(" C", ""), PROCESSES="\n\t\t",
            FABRIC_CSV_STATE="Completed" if record["FABRIC"] else "[N/A]", FABRIC_CSV_STATUS="Success" if record["FABRIC"] else "[N/A]",
            FABRIC_CLIQUE="0" if record["FABRIC"] else "[N/A]", FABRIC_CLUSTER="00000000-0000-0000-0000-000000000000" if record["FABRIC"] else "[N/A]",
        )  # fmt: skip
        found.append((index, values))
    return found


def on_bus(state):
    """GPUs that lspci shows."""
    hidden = "gpu-off-bus" in dev_faults.active(state)
    return [values for index, values in gpus(state) if not (hidden and index == dev_faults.GPU)]


def listed(state):
    """GPUs that the driver lists, numbered as it numbers them: a hidden one moves the later ones up."""
    hidden = [fault for fault in dev_faults.active(state) if fault in dev_faults.UNLISTED]
    seen = [values for index, values in gpus(state) if not (hidden and index == dev_faults.GPU)]
    for index, values in enumerate(seen):
        values.update(INDEX=str(index), COUNT=str(len(seen)))
    return seen


def _number(instance):
    digits = "".join(letter for letter in instance if letter in "0123456789abcdef")
    return int(digits, 16) if digits else 0
