"""The conditions under which nodes run a check, over the expectation of a pool.

The docstring of a condition completes "for pools ..." on the page of checks (docs/reference/checks.md).
"""

from __future__ import annotations

from typing import Callable

from ..expectation import Expectation

Condition = Callable[[Expectation], bool]


def every_node(pool: Expectation) -> bool:
    """of all machine types"""
    return True


def gpus(pool: Expectation) -> bool:
    """with GPUs"""
    return pool["gpus"] > 0


def mig(pool: Expectation) -> bool:
    """with MIG"""
    return pool.get("mig", False)


def nvlinks(pool: Expectation) -> bool:
    """whose GPUs are connected by NVLinks"""
    return pool.get("nvlinks_per_gpu", 0) > 0


def nvswitch(pool: Expectation) -> bool:
    """with NVSwitches"""
    return pool["nvswitch"]


def ampere(pool: Expectation) -> bool:
    """with GPUs of the Ampere generation"""
    return pool.get("arch") == "ampere"


def before_blackwell(pool: Expectation) -> bool:
    """with GPUs before the Blackwell generation"""
    return pool.get("arch") != "blackwell"


def fabric(pool: Expectation) -> bool:
    """with a fabric"""
    return pool["fabric_devices"] > 0


def several_gvnics(pool: Expectation) -> bool:
    """with gVNICs for the fabric or a second host network"""
    return pool.get("gvnics", 0) > 1


def lustre(pool: Expectation) -> bool:
    """that mount Lustre"""
    return bool(pool["file_systems"])


def lustre_over_efa(pool: Expectation) -> bool:
    """whose Lustre client uses EFA"""
    return pool.get("lnet_efa", 0) > 0


def homes(pool: Expectation) -> bool:
    """with home directories on a file system"""
    return bool(pool.get("homes"))


def buckets(pool: Expectation) -> bool:
    """that mount buckets"""
    return bool(pool.get("buckets"))


def files(pool: Expectation) -> bool:
    """with declared files or environment variables"""
    return bool(pool.get("files"))


def guarded_metadata(pool: Expectation) -> bool:
    """whose containers cannot reach the metadata service"""
    return bool(pool.get("metadata_guarded"))


def gpus_or_docker(pool: Expectation) -> bool:
    """with GPUs or with Docker"""
    return gpus(pool) or "docker" in pool.get("containers", [])


def enroot(pool: Expectation) -> bool:
    """with enroot"""
    return "enroot" in pool.get("containers", [])


def exporter(pool: Expectation) -> bool:
    """with the DCGM exporter"""
    return "dcgm_exporter" in pool["software"]


def control_node(pool: Expectation) -> bool:
    """of the control node"""
    return "prometheus" in pool["software"]


def fabric_test(pool: Expectation) -> bool:
    """with the fabric test"""
    return pool.get("fabric_test", False)


def fabric_of(*providers: str) -> Condition:
    """Return a condition that is true for these fabric providers."""

    def condition(pool: Expectation) -> bool:
        return fabric(pool) and pool["fabric_provider"] in providers

    condition.__doc__ = "with the fabric %s" % " or ".join(providers)
    return condition


def gpu_memory_is_comparable(pool: Expectation) -> bool:
    """with several GPUs, or whose machine type has a minimum for the measurement"""
    return pool["gpus"] > 1 or has_floor("B10")(pool)


def local_disks(pool: Expectation) -> bool:
    """with local disks of a known number"""
    return pool.get("local_disks", 0) > 0


def burn_in(level: int) -> Condition:
    """Return a condition that is true if the declaration requests this level of burn-in or a higher one."""

    def condition(pool: Expectation) -> bool:
        return pool.get("burn_in", 1) >= level

    condition.__doc__ = "with `burn_in` %d or higher" % level
    return condition


def has_floor(check: str) -> Condition:
    """Return a condition that is true if the machine type has a floor for a check."""

    def condition(pool: Expectation) -> bool:
        return any(entry["check"] == check for entry in pool.get("floors", []))

    condition.__doc__ = "whose machine type has a minimum for the measurement"
    return condition
