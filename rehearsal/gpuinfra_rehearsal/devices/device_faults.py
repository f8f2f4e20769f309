"""Device faults and the fields of a GPU that show them.

A fault changes the output of tools. It does not change how checks are evaluated.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import DeviceState

GPU = 3
"""Index of the GPU that faults break, so that you can verify that the right GPU is reported. On a machine with fewer GPUs, faults break the last one."""

FAULTS = {
    "gpu-missing": "one GPU is on the PCI bus, but the driver does not list it",
    "gpu-off-bus": "one GPU is missing from the PCI bus",
    "gpu-lost": "the driver lost one GPU (NVML error 15)",
    "xid-79": "one GPU has fallen off the bus: Xid 79 in the kernel log, nvidia-smi cannot reach it",
    "xid-48": "one GPU reported a double-bit memory error: Xid 48 in the kernel log",
    "xid-154": "one GPU reported an error, and the driver requests a node reboot: Xid 154 in the kernel log",
    "sxid-fatal": "an NVSwitch reported a fatal error: SXid in the kernel log",
    "no-devices": "the driver is loaded but initializes no GPU",
    "gpu-wrong-model": "one GPU is a different model",
    "gpu-less-memory": "one GPU shows less memory than its model has",
    "ecc-uncorrected": "one GPU counts uncorrectable memory errors",
    "ecc-sram": "one GPU has an aggregate count of one uncorrectable SRAM error",
    "ecc-off": "ECC is off on one GPU",
    "remap-pending": "one GPU has a row remapping that is pending until a reset",
    "remap-failed": "row remapping failed on one GPU",
    "pcie-narrow": "the PCIe link of one GPU trained to half its width",
    "pcie-slow": "the PCIe link of one GPU runs at an older generation",
    "host-copy-slow": "one GPU copies to and from host memory at a tenth of its normal rate, although its link looks healthy",
    "gpu-copy-slow": "all copies of one GPU to and from other GPUs run at half their normal rate, although its NVLinks look healthy",
    "gpu-memory-slow": "one GPU copies within its own memory at half its normal rate",
    "pcie-replays": "one GPU repeated many transfers over PCIe",
    "rdma-slow": "one InfiniBand device writes at a quarter of its rate, although its port looks healthy (Azure)",
    "efa-port-down": "the port of one EFA device is down, although libfabric lists the device",
    "cpus-missing": "half of the vCPUs are missing",
    "memory-missing": "a quarter of the host memory is missing",
    "thermal": "one GPU is overheated and throttled by its hardware",
    "power-capped": "the power limit of one GPU is below its default",
    "recovery-reset": "the driver requests a reset of one GPU",
    "recovery-reboot": "the driver requests a node reboot because of one GPU",
    "inforom-corrupt": "the infoROM of one GPU is corrupt",
    "mig-enabled": "MIG is enabled on one GPU in a pool of whole GPUs",
    "unknown-error": "one field of one GPU reads [Unknown Error], with exit code 0",
    "stale-process": "a process of another user runs on one GPU",
    "memory-leaked": "35 GB of one GPU's memory are in use, but no process is listed",
    "nvlink-inactive": "two NVLinks of one GPU are down",
    "nvlink-errors": "one NVLink counted errors",
    "fabric-unhealthy": "one GPU is in the NVLink fabric, but its health summary is Unhealthy",
    "efa-missing": "one EFA device is missing",
    "fabric-device-missing": "one InfiniBand or RDMA device is missing (Azure, A3 Ultra, A4)",
    "fabric-port-down": "the port of one InfiniBand or RDMA device is down",
    "fabric-port-slow": "the port of one InfiniBand device runs at a quarter of its rate",
    "fabric-no-key": "one InfiniBand port lacks the partition key of its tenant",
    "fabric-flapping": "one InfiniBand port lost its link nine times since boot",
    "gvnic-missing": "one data interface of A3 High or A3 Mega, or the second interface of A3 Ultra or A4, is missing",
}
"""Maps a fault to its effect."""

FIELDS = {
    "gpu-wrong-model": {"NAME": "Tesla V100-SXM2-32GB", "MEMORY": "32768", "FREE": "32467"},
    "gpu-less-memory": {"MEMORY": "36864", "FREE": "36296"},
    "xid-48": {"ECC_V_DRAM": "1", "ECC_V_TOTAL": "1", "ECC_A_TOTAL": "1"},
    "ecc-uncorrected": {"ECC_V_DRAM": "4", "ECC_V_TOTAL": "4", "ECC_A_TOTAL": "4"},
    "ecc-sram": {"ECC_A_SRAM": "1", "ECC_A_TOTAL": "1"},
    "ecc-off": {
        "ECC": "Disabled", "ECC_PENDING": "Disabled", "ZERO": "N/A", "ECC_V_SRAM": "N/A", "ECC_V_DRAM": "N/A",
        "ECC_V_TOTAL": "N/A", "ECC_A_SRAM": "N/A", "ECC_A_TOTAL": "N/A",
    },
    "remap-pending": {"ROW_PENDING": "Yes", "ROW_UNC": "1"},
    "remap-failed": {"ROW_FAILURE": "Yes", "ROW_UNC": "1"},
    "pcie-narrow": {"WIDTH": "8"},
    "pcie-slow": {"GEN": "3", "GEN_MAX": "3"},
    "thermal": {"TEMP": "91", "TEMP_MEMORY": "97", "REASONS": "0x0000000000000048", "BIT_1": "Not Active", "BIT_8": "Active", "BIT_64": "Active"},
    "power-capped": {"LIMIT": "300.00"},
    "pcie-replays": {"REPLAYS": "48211"},
    "recovery-reset": {"RECOVERY": "Reset"},
    "recovery-reboot": {"RECOVERY": "Reboot"},
    "xid-154": {"RECOVERY": "Reboot"},
    "inforom-corrupt": {"INFOROM": "invalid"},
    "mig-enabled": {"MIG": "Enabled", "MIG_PENDING": "Enabled"},
    "unknown-error": {"POWER": "[Unknown Error]", "TEMP_MEMORY": "[Unknown Error]"},
    "stale-process": {"USED": "1024"},
    "memory-leaked": {"USED": "35840"},
    "fabric-unhealthy": {"FABRIC_HEALTH": "Unhealthy"},
}  # fmt: skip
"""Maps a fault to the fields of the broken GPU that differ. No machine type has the GPU of `gpu-wrong-model`."""

UNLISTED = ("gpu-missing", "gpu-off-bus")
UNREACHABLE = ("xid-79",)


def broken(count: int) -> int:
    """Return the index of the GPU that faults break, on a machine with this number of GPUs."""
    return min(GPU, count - 1)


def active(state: DeviceState) -> list[str]:
    """Return the device faults of this node."""
    return [fault for fault in state.get("faults", ()) if fault in FAULTS]
