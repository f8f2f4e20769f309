"""dcgmi on a stand-in node: `diag -r LEVEL` and `discovery -l`, in the layout that DCGM 4 prints."""

import dev_faults
import dev_gpus

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
NEEDS = {
    "ecc-uncorrected": ("memory", "DCGM_FR_VOLATILE_DBE_DETECTED", 2, "Detected 4 uncorrectable memory errors"),
    "xid-48": ("memory", "DCGM_FR_VOLATILE_DBE_DETECTED", 2, "Detected 1 uncorrectable memory error"),
    "pcie-narrow": ("pcie", "DCGM_FR_PCIE_WIDTH", 2, "PCIe link width 8 is below the expected 16"),
    "pcie-slow": ("pcie", "DCGM_FR_PCIE_GENERATION", 2, "PCIe generation 3 is below the expected one"),
    "thermal": ("targeted_stress", "DCGM_FR_THERMAL_VIOLATIONS", 1, "Thermal violations were detected"),
    "remap-pending": ("software", "DCGM_FR_PENDING_ROW_REMAP", 6, "A row remapping is pending"),
    "inforom-corrupt": ("software", "DCGM_FR_CORRUPT_INFOROM", 2, "The infoROM is corrupt"),
}
"""Fault -> the test that finds it, its error, severity and words; the other faults pass DCGM's eyes."""


def main(state, args):
    """Answer one call; the exit code is 0, and 226 where a test failed, as DCGM 4 ends."""
    driver = state.get("driver", {})
    if not driver.get("loaded") or driver["loaded"] != driver.get("userspace"):
        print("Error: Cannot get the list of devices: the NVIDIA library could not be found or is of another version")
        return 1
    gpus = dev_gpus.listed(state)
    if args[:1] == ["discovery"]:
        print("%d GPUs found." % len(gpus))
        return 0
    if args[:1] != ["diag"] or "-r" not in args:
        print("PARSE ERROR: the stand-in plays `dcgmi diag -r LEVEL` and `dcgmi discovery -l`")
        return 1
    level = args[args.index("-r") + 1]
    chosen = [
        (category, name) for at, category, name in TESTS if level == name or (level.isdigit() and at <= int(level))
    ]
    if not chosen:
        print("Error: requested test %s was not found among possible test choices." % level)
        return 1
    return _print(state, gpus, chosen)


def _print(state, gpus, chosen):
    import json

    categories, failed = {}, False
    for category, name in chosen:
        results = []
        for index in range(len(gpus)):
            result = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": index, "status": "Pass"}
            for fault in dev_faults.active(state) if index == dev_faults.GPU else ():
                if NEEDS.get(fault, ("",))[0] == name:
                    _, error, severity, words = NEEDS[fault]
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
