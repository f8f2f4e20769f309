"""dcgmi on a stand-in node: `diag -r LEVEL` and `discovery -l`, in the layout that DCGM 4 prints."""

from __future__ import annotations

from . import device_faults
from . import gpus as device_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import DeviceState, Gpu

TESTS = (
    (1, "Deployment", "software"),
    (2, "Integration", "pcie"),
    (2, "Hardware", "memory"),
    (3, "Hardware", "diagnostic"),
    (3, "Hardware", "nvbandwidth"),
    (3, "Stress", "targeted_stress"),
    (3, "Stress", "targeted_power"),
    (3, "Stress", "memory_bandwidth"),
    (4, "Hardware", "memtest"),
    (4, "Hardware", "pulse_test"),
)
"""Level, category and name of each test."""
FAILING_TESTS = {
    "ecc-uncorrected": ("memory", 4, 2, "Detected 4 uncorrectable memory errors"),
    "xid-48": ("memory", 4, 2, "Detected 1 uncorrectable memory error"),
    "pcie-narrow": ("pcie", 46, 5, "PCIe link width 8 is below the expected 16"),
    "pcie-slow": ("pcie", 45, 4, "PCIe generation 3 is below the expected one"),
    "thermal": ("targeted_stress", 40, 1, "Thermal violations were detected"),
    "remap-pending": ("software", 85, 6, "A row remapping is pending"),
    "inforom-corrupt": ("software", 9, 4, "The infoROM is corrupt"),
}
"""Maps a fault to the test that fails, and to the number, severity and message of the error. DCGM does not detect other faults.

Numbers and severities are from NVIDIA/DCGM, dcgm_errors.h and dcgm_errors.c.
"""
PROPRIETARY = ("memory_bandwidth", "pulse_test")
"""Tests whose plugins are only in the proprietary packages. NVIDIA/DCGM does not contain their source."""
ISOLATE = 2


def main(state: DeviceState, args: list[str]) -> int:
    """Run one call. As in DCGM 4, the exit code is 226 if a test fails, and 205 if an error requires isolating the GPU."""
    driver = state.get("driver", {})
    if not driver.get("loaded") or driver["loaded"] != driver.get("userspace"):
        print("Error: Cannot get the list of devices: the NVIDIA library could not be found or is of another version")
        return 1
    gpus = device_gpus.listed(state)
    if args[:1] == ["discovery"]:
        print("%d GPUs found." % len(gpus))
        return 0
    if args[:1] != ["diag"] or "-r" not in args:
        print("PARSE ERROR: the stand-in supports `dcgmi diag -r LEVEL` and `dcgmi discovery -l`")
        return 1
    level = args[args.index("-r") + 1]
    chosen = [
        (category, name) for at, category, name in TESTS if level == name or (level.isdigit() and at <= int(level))
    ]
    if not chosen:
        print("Error: requested test %s was not found among possible test choices." % level)
        return 1
    return _report(state, gpus, chosen)


def _report(state: DeviceState, gpus: list[Gpu], chosen: list[tuple[str, str]]) -> int:
    import json

    categories, severities = {}, []
    installed = [name for name in state.get("packages", ()) if "-proprietary" in name]
    for category, name in chosen:
        skipped = name in PROPRIETARY and "packages" in state and not installed
        results = []
        for index, gpu in enumerate(gpus):
            result = {
                "entity_group": "GPU",
                "entity_group_id": 1,
                "entity_id": index,
                "status": "Skip" if skipped else "Pass",
            }
            errors = [
                FAILING_TESTS[fault][1:]
                for fault in (device_faults.active(state) if index == device_faults.broken(len(gpus)) else ())
                if FAILING_TESTS.get(fault, ("",))[0] == name
            ]
            if name == "software" and gpu["PERSISTENCE"] != "Enabled":
                text = 'Persistence mode for GPU %d is disabled. Enable persistence mode by running "nvidia-smi -i <gpuId> -pm 1 " as root.'
                errors.append((29, 5, "Persistence Mode: " + text % index))
            if errors:
                result["status"] = "Fail"
                result["warnings"] = [
                    {"error_category": 8, "error_id": number, "error_severity": severity, "warning": words}
                    for number, severity, words in errors
                ]
                severities += [severity for _, severity, _ in errors]
            results.append(result)
        words = {one["status"] for one in results}
        worst = next((word for word in ("Fail", "Skip") if word in words), "Pass")
        categories.setdefault(category, []).append(
            {"name": name, "results": results, "test_summary": {"status": worst}}
        )
    entities = [
        {"device_id": gpu["PCIID"][:4].lower(), "entity_id": index, "serial_num": gpu["SERIAL"]}
        for index, gpu in enumerate(gpus)
    ]
    document = {
        "DCGM Diagnostic": {
            "test_categories": [{"category": name, "tests": tests} for name, tests in categories.items()]
        },
        "entity_groups": [{"entities": entities, "entity_group": "GPU", "entity_group_id": 1}],
        "metadata": {"Driver Version Detected": state["driver"]["loaded"], "version": "4.5.2"},
    }
    print(json.dumps(document, indent=2))
    return 205 if ISOLATE in severities else 226 if severities else 0
