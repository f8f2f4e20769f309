"""dcgmi on a stand-in node: `diag -r LEVEL` and `discovery -l`, in the layout that DCGM 4 prints."""

from __future__ import annotations

from . import device_faults
from . import gpus as device_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import Gpu, State

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
    "ecc-uncorrected": ("memory", "DCGM_FR_VOLATILE_DBE_DETECTED", 2, "Detected 4 uncorrectable memory errors"),
    "xid-48": ("memory", "DCGM_FR_VOLATILE_DBE_DETECTED", 2, "Detected 1 uncorrectable memory error"),
    "pcie-narrow": ("pcie", "DCGM_FR_PCIE_WIDTH", 2, "PCIe link width 8 is below the expected 16"),
    "pcie-slow": ("pcie", "DCGM_FR_PCIE_GENERATION", 2, "PCIe generation 3 is below the expected one"),
    "thermal": ("targeted_stress", "DCGM_FR_THERMAL_VIOLATIONS", 1, "Thermal violations were detected"),
    "remap-pending": ("software", "DCGM_FR_PENDING_ROW_REMAP", 6, "A row remapping is pending"),
    "inforom-corrupt": ("software", "DCGM_FR_CORRUPT_INFOROM", 2, "The infoROM is corrupt"),
}
"""Fault -> the test that fails, its error id, severity and message. DCGM does not detect the other faults."""


def main(state: State, args: list[str]) -> int:
    """Run one call. The exit code is 226 if a test failed, as in DCGM 4."""
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


def _report(state: State, gpus: list[Gpu], chosen: list[tuple[str, str]]) -> int:
    import json

    categories, failed = {}, False
    for category, name in chosen:
        results = []
        for index in range(len(gpus)):
            result = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": index, "status": "Pass"}
            for fault in device_faults.active(state) if index == device_faults.GPU else ():
                if FAILING_TESTS.get(fault, ("",))[0] == name:
                    _, error, severity, words = FAILING_TESTS[fault]
                    result["status"] = "Fail"
                    result["warnings"] = [
                        {"error_category": 1, "error_id": error, "error_severity": severity, "warning": words}
                    ]
                    failed = True
            results.append(result)
        worst = "Fail" if any(one["status"] == "Fail" for one in results) else "Pass"
        categories.setdefault(category, []).append(
            {"name": name, "results": results, "test_summary": {"status": worst}}
        )
    document = {
        "DCGM Diagnostic": {
            "test_categories": [{"category": name, "tests": tests} for name, tests in categories.items()]
        },
        "entity_groups": [{"entities": [{"entity_id": index} for index in range(len(gpus))], "entity_group": "GPU"}],
        "metadata": {"DCGM Version": "4.5.2", "Driver Version Detected": state["driver"]["loaded"]},
    }
    print(json.dumps(document, indent=2))
    return 226 if failed else 0
