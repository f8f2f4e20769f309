"""The GPUs of a stand-in node: their addresses, identities, and all values that tools print.

`models.py` contains the values that differ between models. The rest of each output is in `gpu.xml` and `query-gpu.txt`.
Identities are clearly synthetic and differ between instances, so a replacement node has different GPUs. A
node that moved to a different host also has different GPUs.
"""

from __future__ import annotations

from . import device_faults
from . import layout as layout_table
from .models import MODELS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import DeviceState, Gpu, Model


def model(state: DeviceState) -> Model | None:
    """Return the model of this machine's GPUs, or None for a machine without GPUs."""
    hardware = state.get("hardware", {})
    name = hardware.get("gpu")
    if not name or not hardware.get("gpus"):
        return None
    for record in MODELS:
        if record["NAME"] == name:
            return record
    raise SystemExit("the stand-in has no record of GPU %s" % name)


def gpus(state: DeviceState) -> list[tuple[int, Gpu]]:
    """Return the index and values of each GPU, in driver order. `on_bus` and `listed` apply faults that hide a GPU."""
    record = model(state)
    if record is None:
        return []
    faults = device_faults.active(state)
    driver = state.get("driver", {})
    blackwell = record["ARCH"] == "Blackwell"
    instance = state.get("instance", {})
    tail = _number(instance.get("id", "")) + instance.get("moves", 0) * 16**8
    present = []
    for index in range(state["hardware"]["gpus"]):
        domain, bus, device = layout_table.gpu_address(state, record["ARCH"], index).upper().split(":")
        values: Gpu = {name: str(value) for name, value in record.items()}
        values.update(
            INDEX=str(index), PCI="0000%s:%s:%s" % (domain, bus, device), DOMAIN=domain, BUS=bus, DEVICE=device.split(".")[0],
            UUID="GPU-00000000-0000-4000-8%03x-%012x" % (index, tail % 16**12), SERIAL="0%08d%04d" % (tail % 10**8, index),
            PDI="0x%016x" % (tail % 16**12 * 16 + index), BOARD="0x%s%s" % (bus.lower(), device[:2].lower()), MODULE=str(index + 1),
            DRIVER=driver.get("loaded") or "", COUNT=str(state["hardware"]["gpus"]), PERSISTENCE="Enabled" if state.get("persistenced") else "Disabled",
            MIG="Disabled", MIG_PENDING="Disabled", RECOVERY="None", INFOROM="valid", ECC="Enabled", ECC_PENDING="Enabled", ZERO="0", REPLAYS="0",
            ECC_V_SRAM="0", ECC_V_DRAM="0", ECC_V_TOTAL="0", ECC_A_SRAM="0", ECC_A_TOTAL="0", ROW_UNC="0", ROW_PENDING="No", ROW_FAILURE="No",
            GEN_MAX=record["GEN"], GEN_DEVICE=record["GEN"], WIDTH_MAX="16", LIMIT_DEFAULT=record["LIMIT"], USED="0",
            TEMP=str(27 + index % 4), TEMP_MEMORY=str(26 + index % 4), REASONS="0x0000000000000001", BIT_1="Active", BIT_8="Not Active",
            BIT_32="Not Active", BIT_64="Not Active", BIT_128="Not Active",
            POWER_SMOOTHING="Insufficient Permissions" if blackwell else "N/A",
            FABRIC_HEALTH="Healthy" if blackwell and record["FABRIC"] else "N/A", FABRIC_TIMEOUT="False" if blackwell and record["FABRIC"] else "N/A",
            FABRIC_STATE="Completed" if record["FABRIC"] else "N/A", FABRIC_STATUS="Success" if record["FABRIC"] else "N/A",
        )  # fmt: skip
        if index in state.get("mig", {}).get("enabled", ()):
            # A GPU in MIG mode reports no remapped rows.
            values.update(
                MIG="Enabled", MIG_PENDING="Enabled", ROW_UNC="[N/A]", ROW_PENDING="[N/A]", ROW_FAILURE="[N/A]"
            )
        for fault in faults if index == device_faults.broken(state["hardware"]["gpus"]) else ():
            values.update(device_faults.FIELDS.get(fault, {}))
        values.update(
            TLIMIT_CSV=values["TLIMIT"].replace(" C", ""), PROCESSES="\n\t\t",
            FABRIC_CSV_STATE="Completed" if record["FABRIC"] else "[N/A]", FABRIC_CSV_STATUS="Success" if record["FABRIC"] else "[N/A]",
            FABRIC_XML_CLIQUE="0" if record["FABRIC"] else "N/A", FABRIC_XML_CLUSTER="00000000-0000-0000-0000-000000000000" if record["FABRIC"] else "N/A",
            FABRIC_CLIQUE="0" if record["FABRIC"] else "[N/A]", FABRIC_CLUSTER="00000000-0000-0000-0000-000000000000" if record["FABRIC"] else "[N/A]",
        )  # fmt: skip
        present.append((index, values))
    return present


def on_bus(state: DeviceState) -> list[Gpu]:
    """Return the GPUs that lspci lists."""
    hidden = "gpu-off-bus" in device_faults.active(state)
    present = gpus(state)
    return [values for index, values in present if not (hidden and index == device_faults.broken(len(present)))]


def listed(state: DeviceState) -> list[Gpu]:
    """Return the GPUs that the driver lists. A hidden GPU shifts the indexes of later GPUs."""
    hidden = [fault for fault in device_faults.active(state) if fault in device_faults.UNLISTED]
    present = gpus(state)
    seen = [values for index, values in present if not (hidden and index == device_faults.broken(len(present)))]
    for index, values in enumerate(seen):
        values.update(INDEX=str(index), COUNT=str(len(seen)))
    return seen


def _number(instance: str) -> int:
    digits = "".join(letter for letter in instance if letter in "0123456789abcdef")
    return int(digits, 16) if digits else 0
