"""Faults that the outputs of tools state only in passing: each must fail its check."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gpuinfra.node.cause import Action
from gpuinfra.node.checks import ALL
from gpuinfra.node.judge import judge
from gpuinfra.node.nccl import devices_of
from tests.node.healthy import AZURE, GOOGLE, GOOGLE_RDMA, H100, JOURNAL, healthy


def judged(machine: dict[str, Any], check: str, change: Callable[[dict[str, Any]], None]) -> Any:
    """The result of a check after a change to the probes of a healthy node."""
    probes = healthy(machine)
    change(probes)
    (found,) = [one for one in judge(probes, machine, journal=JOURNAL) if one["id"] == check]
    return found


def dcgm(change: Callable[[list[dict[str, Any]]], None], probe: str = "dcgm") -> Callable[[dict[str, Any]], None]:
    """A change to the results of each test on GPUs in DCGM's document."""

    def do(probes: dict[str, Any]) -> None:
        document = json.loads(probes[probe]["stdout"])
        for category in document["DCGM Diagnostic"]["test_categories"]:
            for test in category["tests"]:
                change(test["results"])
                if any(one["status"] == "Fail" for one in test["results"]):
                    test["test_summary"] = {"status": "Fail"}
        probes[probe]["stdout"] = json.dumps(document)

    return do


PERSISTENCE = {"warning": "Persistence mode for GPU 0 is disabled.", "error_id": 29, "error_severity": 5}
NO_MEMORY = {"warning": "Couldn't allocate at least 75.0% of GPU memory on GPU 3", "error_id": 32, "error_severity": 4}


@pytest.mark.parametrize("count", [1, 4, 7, 8])
@pytest.mark.parametrize(("check", "probe"), [("B1", "dcgm"), ("B6", "dcgm-long")])
def test_persistence_mode_does_not_hide_gpus_without_a_result(check: str, probe: str, count: int) -> None:
    """A failure because of persistence mode is a warning only if each GPU of the machine has a result."""

    def change(results: list[dict[str, Any]]) -> None:
        del results[count:]
        for one in results:
            one.update(status="Fail", warnings=[PERSISTENCE])

    assert judged(H100, check, dcgm(change, probe))["outcome"] == ("warn" if count == 8 else "fail")


@pytest.mark.parametrize(("severity", "outcome"), [(0, "pass"), (1, "pass"), (2, "fail"), (4, "fail"), (6, "fail")])
def test_a_passed_test_with_an_error_is_no_pass(severity: int, outcome: str) -> None:
    """DCGM reports `Pass` for a memory test that could not allocate memory; the error beside it decides."""

    def change(results: list[dict[str, Any]]) -> None:
        results[3]["warnings"] = [{**NO_MEMORY, "error_severity": severity}]

    found = judged(H100, "B6", dcgm(change, "dcgm-long"))
    assert found["outcome"] == outcome
    assert outcome == "pass" or "GPU 3: Pass with an error, Couldn't allocate" in found["reason"]


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("Link recovery successful events: 505", "fail"),
        ("Link recovery failed events: 1", "fail"),
        ("Link recovery successful events: 1", "warn"),
        ("Link recovery successful events: 0", "pass"),
    ],
)
def test_a_link_that_recovers_again_and_again_fails(line: str, outcome: str) -> None:
    """A link that recovers often, or that failed to recover, requires a replacement; single events are a warning."""

    def change(probes: dict[str, Any]) -> None:
        text = probes["nvlink-errors"]["stdout"].splitlines()
        text.insert(1, f"\t Link 0: {line}")
        probes["nvlink-errors"]["stdout"] = "\n".join(text) + "\n"

    found = judged(H100, "F4", change)
    assert found["outcome"] == outcome
    assert outcome != "fail" or ALL["F4"].action is Action.REPLACE


@pytest.mark.parametrize(
    ("machine", "probe", "line"),
    [
        (AZURE, "link-log", "kernel: ib3: lost carrier"),
        (AZURE, "link-log", "systemd-networkd[1]: ib3: Lost carrier"),
        (AZURE, "kernel-log", "kernel: mlx5_core 0101:00:00.0 ibp1: Link down"),
        (GOOGLE_RDMA, "kernel-log", "kernel: mlx5_core 0000:91:00.0 gpu3rdma0: Link down"),
        (GOOGLE, "kernel-log", "kernel: gve 0000:06:00.0 enp6s0: Device link is down."),
        (GOOGLE, "kernel-log", "kernel: gve 0000:06:00.0: enp6s0: NIC Link is Down"),
    ],
)
def test_each_form_of_a_lost_link_counts(machine: dict[str, Any], probe: str, line: str) -> None:
    """The lines of the kernel, of drivers and of systemd-networkd name the interface in different places."""

    def change(probes: dict[str, Any], text: str = line) -> None:
        probes[probe]["stdout"] += f"2026-11-21T10:00:00+0000 gpu-1 {text}\n" * 6

    assert judged(machine, "N6", change)["outcome"] == "fail"
    host = line.replace("ib3", "eth0").replace("ibp1", "eth0").replace("gpu3rdma0", "docker0").replace("enp6s0", "eth0")
    assert judged(machine, "N6", lambda probes: change(probes, host))["outcome"] == "pass"


@pytest.mark.parametrize(
    "line",
    [
        "NET/OFI Selected Provider is efa (found 4 nics)",
        "NET/OFI Selected provider is efa (found 4 nics)",
        "NET/OFI Selected provider is efa, fabric is efa (found 4 nics)",
        "NET/OFI Selected provider is efa, fabric is efa-direct (found 4 nics)",
    ],
)
def test_the_devices_of_each_version_of_aws_ofi_nccl_are_counted(line: str) -> None:
    """The line that states the number of devices differs between versions of aws-ofi-nccl."""
    assert devices_of(f"node:1:1 [0] NCCL INFO {line}\n") == {"efa": 4}
