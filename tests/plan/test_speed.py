"""The default checks of each machine measure a speed, with tools that its steps install."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpuinfra.base.findings import Level
from gpuinfra.node.checks import ALL
from gpuinfra.node.judge import judge
from gpuinfra.node.probes import PROBES
from gpuinfra.plan.profile import profile_of
from gpuinfra.rules import check
from gpuinfra.spec import parse_spec
from tests.node.healthy import JOURNAL, machine, probes, state
from tests.plan.pools import CAPACITY, REGIONS, TODAY, declared, machines, planned

CLOUDS = ("aws", "azure", "gcp")
SPEEDS = {"N5", "B2", "B3", "B5", "B9", "B10"}
"""Checks that measure a rate."""
UNMEASURED = {"Standard_NCC40ads_H100_v5"}
"""A confidential VM encrypts each copy between host and GPU, and no public figure of its rate is known."""
GPU_MACHINES = [(cloud, name) for cloud in CLOUDS for name in machines(cloud) if profile_of(cloud).machines[name].gpu]
BROUGHT_BY = {
    "nvbandwidth": "75-dcgm", "gpu-copies": "75-dcgm", "gpu-memory": "75-dcgm", "dcgm": "75-dcgm", "dcgm-medium": "75-dcgm", "dcgm-long": "75-dcgm",
    "dcgm-extra-long": "75-dcgm", "heat": "75-dcgm", "fabric-manager": "35-fabric-manager",
    "fabric-manager-version": "35-fabric-manager", "nvlsm": "33-nvlink-subnet-manager", "efa": "50-efa", "cdi": "70-container-toolkit",
    "lnet": "60-lustre", "lustre-module": "60-lustre", "metadata-guard": "72-metadata", "nccl": "45-nccl", "nccl-network": "45-nccl", "pair": "45-nccl",
    "enroot": "71-enroot", "enroot-namespaces": "71-enroot", "fabric-libraries": "50-", "metrics": "77-dcgm-exporter", "links": "50-",
}  # fmt: skip
"""Probe -> start of the step that installs its tool; empty if no step does. Other probes use the driver's tools, files of the
kernel, or tools of every image. `docker` and `containerd` are not here: C1 and C3 pass on a node without a runtime."""


@pytest.mark.parametrize(("cloud", "name"), GPU_MACHINES, ids=[name for _, name in GPU_MACHINES])
def test_the_default_checks_measure_a_speed(cloud: str, name: str) -> None:
    """At least one required check compares a rate with a floor that has a source and a date."""
    record = profile_of(cloud).machines[name]
    expectation: Any = planned(cloud, name, "default").expectation
    floors = {floor.check: floor for floor in record.floors}
    measured = SPEEDS & set(expectation["required"]) & set(floors)
    assert bool(measured) == (name not in UNMEASURED)
    for speed in measured:
        assert floors[speed].source
        assert floors[speed].read.year >= 2026
        assert {one["check"] for one in expectation["floors"]} >= {speed}


@pytest.mark.parametrize(("cloud", "name"), GPU_MACHINES, ids=[name for _, name in GPU_MACHINES])
def test_steps_install_the_tools_of_required_checks(cloud: str, name: str) -> None:
    """No required check uses a tool that no step of the machine installs."""
    pool = planned(cloud, name, "default")
    steps = [step.id for step in pool.steps]
    required: Any = pool.expectation["required"]
    skips: Any = pool.expectation["skips"]
    for one in required:
        for probe in ALL[one].probes:
            step = BROUGHT_BY.get(probe)
            assert step is None or one in skips or (step and any(each.startswith(step) for each in steps)), (
                f"{one} reads {probe}, and no step installs its tool"
            )


def _nvbandwidth(copies: int, gib: float, gb_s: float) -> float:
    """Seconds of a test case: three samples of 16 copies of each buffer (NVIDIA/nvbandwidth: README, defaults of -i and of the samples), 0.1 s to
    allocate and fill two buffers, and 5 s to start on eight GPUs."""
    return 5 + copies * (0.1 + 48 * gib * 1.0737 / gb_s)


def seconds_of(expectation: Any) -> dict[str, float]:
    """Probe -> seconds on an idle node with healthy devices, from the documentation of each tool and the slowest accepted rate."""
    least = {floor["check"]: floor["at_least"] for floor in expectation["floors"]}
    gpus, memory = expectation["gpus"], 700.0
    size = next((floor["gib"] for floor in expectation["floors"] if floor["check"] == "B2"), 1.0)
    return {
        # "-r 1: a few seconds" (DCGM user guide, diagnostics).
        "dcgm": 20.0,
        # Initialization of NCCL on eight GPUs: 5 to 10 s (NCCL_DEBUG time stamps of public logs); 5 warm-up and 20 measured rounds of 2 x 7/8 of the size.
        "nccl": 15 + 25 * 1.75 * size * 1.0737 / least.get("B2", 100.0),
        "nccl-network": 15.0,
        "nvbandwidth": _nvbandwidth(2 * gpus, 0.5, least.get("B5", 11.0)),
        "gpu-copies": _nvbandwidth(gpus * (gpus - 1), 0.5, least.get("B9", 235.0)),
        "gpu-memory": _nvbandwidth(gpus, 2.0, memory),
        # 5,000 writes of 8 MiB (perftest: default of -n), 1 s until the server listens, 2 s for the setup of a queue pair and of CUDA.
        "links": expectation["fabric_devices"] * (3 + 5000 * 0.0671 / least.get("N5", 180.0)),
        # DCGM's exporter collects every 30 s.
        "metrics": 30.0,
        # Each of nvidia-smi's calls takes about 1 s on eight GPUs with persistence mode, and the full report 3 s.
        "nvidia-smi-xml": 3.0,
    }


OTHER_S = 1.0
"""Commands that only read."""
GATE_S = 240


@pytest.mark.parametrize(
    ("cloud", "name"),
    [(cloud, name) for cloud, name in GPU_MACHINES if profile_of(cloud).machines[name].gpus == 8],
    ids=lambda value: value,
)
def test_the_default_checks_take_at_most_four_minutes(cloud: str, name: str) -> None:
    """On an idle node with eight GPUs, the documented times of the tools of all required checks add up to four minutes at most.
    The fabric test with another node is a service of its own."""
    expectation: Any = planned(cloud, name, "default").expectation
    known = seconds_of(expectation)
    probes = {probe for one in expectation["required"] for probe in ALL[one].probes}
    loading = {probe for probe in probes if PROBES[probe].loads}
    assert loading <= set(known), "a measurement without a documented time"
    assert sum(known.get(probe, OTHER_S) for probe in probes) <= GATE_S


def test_every_probe_of_an_installed_tool_is_known() -> None:
    """The table of tools names existing probes only."""
    assert set(BROUGHT_BY) <= set(PROBES)


@pytest.mark.parametrize(("cloud", "name"), GPU_MACHINES, ids=[name for _, name in GPU_MACHINES])
def test_a_slow_copy_is_found_on_every_machine(cloud: str, name: str) -> None:
    """A GPU that copies at a tenth of its rate fails B5 although its link looks healthy; the other checks pass."""
    if name in UNMEASURED:
        assert not [floor for floor in profile_of(cloud).machines[name].floors if floor.check == "B5"]
        return
    wanted = machine(cloud, name)
    device_state = state("host-copy-slow", expectation=wanted)
    device_state["driver"]["open"] = wanted["open_module"]
    answers = probes(expectation=wanted, device_state=device_state)
    checks = judge(answers, wanted, journal=JOURNAL)
    wrong = {one["id"]: one["reason"] for one in checks if one["outcome"] not in ("pass", "skip")}
    assert list(wrong) == ["B5"]
    assert re.search(r"GPU \d: host_to_device", wrong["B5"])


def test_machines_without_a_speed_check_are_named() -> None:
    """The exception is a machine that can be declared, so it does not outlive its reason."""
    assert all(declared("azure", name, "default") is not None for name in UNMEASURED)


IMEX = [
    (cloud, name, record)
    for cloud in CLOUDS
    for name, record in profile_of(cloud).machines.items()
    if record.gpu and record.gpu.key.startswith("GB")
]


@pytest.mark.parametrize(("cloud", "name", "record"), IMEX, ids=[name for _, name, _ in IMEX])
def test_a_machine_that_needs_imex_is_refused_in_every_zone(cloud: str, name: str, record: Any) -> None:
    """No capacity, zone, fabric or image makes a machine with Grace processors accepted, because no step installs nvidia-imex."""
    region = next(iter(record.zones), REGIONS[cloud])
    zones = record.zones.get(region) or {"gcp": ("us-central1-a",)}.get(cloud, (None,))
    for kind in sorted(record.capacity):
        for zone in zones:
            for fabric in ("auto", "none"):
                where = {"cloud": cloud, "region": region, **({"zone": zone} if zone else {})}
                entry = {"kind": str(kind), "count": record.unit_nodes[0] if record.unit_nodes else 1, **CAPACITY[kind]}
                pool = {"name": "gpu", "machine": name, "fabric": fabric, "capacity": [entry]}
                spec = parse_spec(
                    {
                        "name": "train",
                        "where": where,
                        "pools": [pool],
                        **({"access": {"evidence_from": ["203.0.113.0/24"]}} if cloud == "azure" else {}),
                    }
                )
                found = {one.rule: one for one in check(spec, TODAY) if one.level is Level.ERROR}
                assert "nvidia-imex" in found["nvlink_domain_has_its_service"].message
