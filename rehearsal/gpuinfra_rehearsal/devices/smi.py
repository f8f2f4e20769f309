"""nvidia-smi on a stand-in node: the queries that steps and checks use, in the formats of the real tool."""

from __future__ import annotations

import os

from . import device_faults, mig
from . import gpus as device_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import Change, DeviceState, Gpu

HERE = os.path.dirname(os.path.abspath(__file__))
CUDA = {"570": "12.8", "575": "12.9", "580": "13.0", "590": "13.1", "595": "13.2", "610": "13.3"}
"""Maps a driver branch to the highest CUDA version that its nvidia-smi shows."""


def main(state: DeviceState, args: list[str], change: Change) -> int:
    """Run one call. Exit codes match nvidia-smi(1)."""
    driver = state.get("driver", {})
    if args in (["-h"], ["--help"]):
        print("NVIDIA System Management Interface -- v%s" % driver.get("userspace"))
        return 0
    if not driver.get("loaded"):
        print(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n"
        )
        return 9
    if driver.get("loaded") != driver.get("userspace"):
        print(
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: %s"
            % ".".join(str(driver["userspace"]).split(".")[:2])
        )
        return 18
    faults = device_faults.active(state)
    if args == ["--version"]:
        version = str(driver["userspace"])
        print(
            "NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : %s\nCUDA Version        : %s"
            % (version, ".".join(version.split(".")[:2]), version, _cuda(version))
        )
        return 0
    if args == ["--help-query-gpu"]:
        print(_read("help-query-gpu.txt"), end="")
        return 0
    gpus = device_gpus.listed(state)
    if not gpus or "no-devices" in faults:
        print("No devices were found")
        return 6
    broken = "%s" % gpus[device_faults.broken(len(gpus))]["PCI"][4:]
    if "xid-79" in faults:
        print("Unable to determine the device handle for GPU%s: Unknown Error" % broken)
        return 255
    if "gpu-lost" in faults:
        print(
            "Unable to determine the device handle for GPU%s: GPU is lost.  Reboot the system to recover this GPU"
            % broken
        )
        return 15
    code = _query(state, args, gpus, faults, change)
    if "inforom-corrupt" in faults and code == 0:
        print("WARNING: infoROM is corrupted at gpu %s" % broken)
        return 14
    return code


def _query(state: DeviceState, args: list[str], gpus: list[Gpu], faults: list[str], change: Change) -> int:
    if not args:
        return _table(state, gpus)
    if args in (["-L"], ["--list-gpus"]):
        for gpu in gpus:
            print(_line(gpu))
            for number, profile in enumerate(mig.instances(state, gpu["INDEX"])):
                print(
                    "  MIG %-11s Device %2d: (UUID: %s)" % (profile, number, mig.uuid(state, int(gpu["INDEX"]), number))
                )
        return 0
    if args[0] == "mig":
        return mig.manage(state, args, change)
    if "-mig" in args:
        return mig.mode(args, change)
    if args[0] == "nvlink" and mig.enabled(state):
        for gpu in gpus:
            print(_line(gpu) + "\nNvlink queries are not supported for Devices in MIG mode")
        return 0
    if args[0] == "nvlink" and args[1:2] in (["-s"], ["--status"]):
        return _nvlink_status(gpus, faults)
    if args[0] == "nvlink" and args[1:2] in (["-e"], ["--errorcounters"]):
        return _nvlink_errors(gpus, faults)
    if args[:2] == ["topo", "-m"]:
        return _topology(state, gpus, faults)
    if args[0] in ("-pm", "-e", "-pl", "-ac", "--gpu-reset"):
        return 0
    if sorted(args) in (["-q", "-x"], ["--query", "--xml-format"], ["--query", "-x"], ["--xml-format", "-q"]):
        return _xml(state, gpus, faults)
    query = [arg for arg in args if arg.startswith("--query-")]
    style = [arg.split("=", 1)[1].split(",") for arg in args if arg.startswith("--format=")]
    chosen = [arg for arg in args if arg.startswith(("--id=", "-i"))]
    if len(query) == 1 and style and "=" in query[0] and style[0][0] == "csv" and not chosen:
        name, fields = query[0].split("=", 1)
        if name == "--query-gpu":
            return _csv(gpus, fields.split(","), style[0])
        if name == "--query-compute-apps":
            return _apps(gpus, fields.split(","), style[0], faults)
    print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
    return 1


def _csv(gpus: list[Gpu], fields: list[str], style: list[str]) -> int:
    columns = {}
    for line in _read("query-gpu.txt").splitlines():
        header, value = line.split("\t")
        columns[header.split(" [")[0]] = (header, value)
    for at, field in enumerate(fields):
        name = field if field in columns else _other_name(field, columns)
        if name is None:
            print('Field "%s" is not a valid field to query.\n' % field)
            return 2
        fields[at] = name
    if "noheader" not in style:
        print(", ".join(columns[field][0] for field in fields))
    for gpu in gpus:
        cells = []
        for field in fields:
            header, value = columns[field]
            cell = _fill(value, gpu)
            if cell in ("N/A %s" % _unit(header), "[Unknown Error] %s" % _unit(header), "N/A"):
                plain = cell == "N/A" and field.startswith("temperature")
                cell = "[Unknown Error]" if "Unknown" in cell else "N/A" if plain else "[N/A]"
            if "nounits" in style and cell.endswith(" " + _unit(header)):
                cell = cell[: -len(_unit(header)) - 1]
            cells.append(cell)
        print(", ".join(cells))
    return 0


def _other_name(field: str, columns: dict[str, tuple[str, str]]) -> str | None:
    """The column of a field that the driver's help lists under another name."""
    for line in _read("help-query-gpu.txt").splitlines():
        names = [word.strip('"') for word in line.split() if word.startswith('"')]
        if line.startswith('"') and field in names:
            return next((name for name in names if name in columns), None)
    return None


def _apps(gpus: list[Gpu], fields: list[str], style: list[str], faults: list[str]) -> int:
    gpu = gpus[device_faults.broken(len(gpus))]
    row = {
        "gpu_uuid": gpu["UUID"], "gpu_name": gpu["NAME"], "gpu_bus_id": gpu["PCI"], "pid": "4321", "process_name": "python3",
        "used_gpu_memory": "1024 MiB",
    }  # fmt: skip
    for field in fields:
        if field not in row:
            print('Field "%s" is not a valid field to query.\n' % field)
            return 2
    if "noheader" not in style:
        print(", ".join(field + (" [MiB]" if field == "used_gpu_memory" else "") for field in fields))
    if "stale-process" in faults:
        print(", ".join(row[field] for field in fields))
    return 0


def _xml(state: DeviceState, gpus: list[Gpu], faults: list[str]) -> int:
    template = _read("gpu.xml")
    driver = str(state["driver"]["userspace"])
    print('<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>')
    print("\t<timestamp>%s</timestamp>\n\t<driver_version>%s</driver_version>" % (_now(), driver))
    print("\t<cuda_version>%s</cuda_version>\n\t<attached_gpus>%d</attached_gpus>" % (_cuda(driver), len(gpus)))
    for gpu in gpus:
        if "stale-process" in faults and gpu["USED"] != "0":
            gpu["PROCESSES"] = (
                "\n\t\t\t<process_info>\n\t\t\t\t<pid>4321</pid>\n\t\t\t\t<type>C</type>\n\t\t\t\t<process_name>python3</process_name>"
                "\n\t\t\t\t<used_memory>1024 MiB</used_memory>\n\t\t\t</process_info>\n\t\t"
            )
        text = _fill(template, gpu)
        cut = mig.instances(state, gpu["INDEX"])
        if cut:
            text = text.replace("\t\t<mig_devices>\n\t\t\tNone\n", "\t\t<mig_devices>\n" + _instances(cut), 1)
        print(text, end="")
    print("</nvidia_smi_log>")
    return 0


def _instances(cut: list[str]) -> str:
    return "".join(
        "\t\t\t<mig_device>\n\t\t\t\t<index>%d</index>\n\t\t\t\t<gpu_instance_id>%d</gpu_instance_id>\n"
        "\t\t\t\t<compute_instance_id>0</compute_instance_id>\n\t\t\t</mig_device>\n" % (number, number + 1)
        for number, _ in enumerate(cut)
    )


def _nvlink_status(gpus: list[Gpu], faults: list[str]) -> int:
    for index, gpu in enumerate(gpus):
        print(_line(gpu))
        for link in range(int(gpu["LINKS"])):
            down = "nvlink-inactive" in faults and index == device_faults.broken(len(gpus)) and link in (4, 5)
            print("\t Link %d: %s" % (link, "<inactive>" if down else gpu["RATE"] + " GB/s"))
    return 0


NVLINK_4 = (("Replay Errors", "0"), ("Recovery Errors", "0"), ("CRC Errors", "0"))
NVLINK_5 = (
    ("Tx packets", "1204312"), ("Rx packets", "1204299"),
    ("Malformed packet Errors", "0"), ("Buffer overrun Errors", "0"), ("Rx Errors", "0"), ("Rx remote Errors", "0"),
    ("Rx General Errors", "0"), ("Local link integrity Errors", "0"), ("Tx discards", "0"), ("Link recovery successful events", "0"),
    ("Link recovery failed events", "0"), ("Total link recovery events", "0"), ("Effective Errors", "0"), ("Effective BER", "15e-255"),
    ("Symbol Errors", "0"), ("Symbol BER", "15e-255"), ("FEC Errors - 0", "36140749276"),
    *(("FEC Errors - %d" % bucket, "0") for bucket in range(1, 16)),
    ("Raw BER Lane 0", "2061"), ("Raw BER Lane 1", "1038"), ("Raw BER Total", "1037"), ("Raw Errors Lane 0", "82"), ("Raw Errors Lane 1", "4"),
)  # fmt: skip
"""Name and value of each counter of a healthy link. The order and the traffic values are assumed; the rest is from a p6-b300.48xlarge."""


def _nvlink_errors(gpus: list[Gpu], faults: list[str]) -> int:
    for index, gpu in enumerate(gpus):
        counters = NVLINK_5 if gpu["ARCH"] == "Blackwell" else NVLINK_4
        broken = "Link recovery failed events" if gpu["ARCH"] == "Blackwell" else "Replay Errors"
        print(_line(gpu))
        for link in range(int(gpu["LINKS"])):
            counted = "nvlink-errors" in faults and index == device_faults.broken(len(gpus)) and link == 4
            for name, value in counters:
                print("\t Link %d: %s: %s" % (link, name, "17" if counted and name == broken else value))
    return 0


def _topology(state: DeviceState, gpus: list[Gpu], faults: list[str]) -> int:
    count = len(gpus)
    print(
        "\t\x1b[4m"
        + "\t".join("GPU%d" % index for index in range(count))
        + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"
    )
    for row, gpu in enumerate(gpus):
        cells = []
        for column in range(count):
            links = int(gpu["LINKS"]) - (
                2 if "nvlink-inactive" in faults and device_faults.broken(count) in (row, column) else 0
            )
            cells.append(" X " if row == column else "NV%d" % links if links > 0 else "SYS")
        half = row * 2 // count if count > 1 else 0
        print("GPU%d\t%s\t%s\t%d\t\tN/A" % (row, "\t".join(cells), "0-23,48-71" if half == 0 else "24-47,72-95", half))
    print("\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks")
    return 0


def _table(state: DeviceState, gpus: list[Gpu]) -> int:
    driver = str(state["driver"]["userspace"])
    rule = "+-----------------------------------------+------------------------+----------------------+"
    print(_now() + "       \n" + "+" + "-" * 89 + "+")
    print("| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-9s|\n%s" % (driver, driver, _cuda(driver), rule))
    for gpu in gpus:
        print("| %3s  %-33s  On  |   %s Off | %20s |" % (gpu["INDEX"], gpu["NAME"], gpu["PCI"], gpu["ECC_V_TOTAL"]))
        print(
            "| N/A   %sC    P0  %29s | %7sMiB / %7sMiB |      0%%      Default |\n%s"
            % (gpu["TEMP"], gpu["POWER"] + "W", gpu["USED"], gpu["MEMORY"], rule)
        )
    return 0


def _line(gpu: Gpu) -> str:
    return "GPU %s: %s (UUID: %s)" % (gpu["INDEX"], gpu["NAME"], gpu["UUID"])


def _fill(text: str, values: Gpu) -> str:
    if "@" not in text:
        return text
    for name, value in values.items():
        mark = "@%s@" % name
        if mark in text:
            text = text.replace(mark, value if isinstance(value, str) else str(value))
    return text.replace("@TIME@", _stamp()) if "@TIME@" in text else text


def _unit(header: str) -> str:
    return header.split(" [")[1][:-1] if " [" in header else "-"


def _cuda(version: str) -> str:
    return CUDA.get(version.split(".")[0], "13.0")


def _now() -> str:
    import time

    return time.strftime("%a %b %e %H:%M:%S %Y", time.gmtime())


def _stamp() -> str:
    import time

    return time.strftime("%Y/%m/%d %H:%M:%S.000", time.gmtime())


def _read(name: str) -> str:
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()
