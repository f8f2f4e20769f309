from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

import pytest

from gpuinfra.node import heat
from gpuinfra.node.console import MissingPrerequisite
from gpuinfra.node.table import GpuRow, parse
from tests.node.real import EVIDENCE

LOAD = [sys.executable, "-c", "import time; time.sleep(60)"]


class Clock:
    """A clock that advances only in waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def read(self) -> float:
        return self.now


def rows(degrees: float, **other: str) -> list[GpuRow]:
    """Two GPUs, the second one two degrees cooler."""
    cells = {
        "uuid": "GPU-1", "temperature.memory": "70", "clocks_event_reasons.active": "0x0000000000000000", "power.draw": "690.00 W",
        "clocks.current.sm": "1800 MHz", "utilization.gpu": "100 %", "ecc.errors.uncorrected.volatile.total": "0", **other,
    }  # fmt: skip
    return [GpuRow({**cells, "index": str(at), "temperature.gpu": str(degrees - 2 * at)}) for at in range(2)]


def warming(clock: Clock, **other: str) -> Callable[[], list[GpuRow]]:
    """A node that warms up from 30 to 66 degrees in four minutes."""
    return lambda: rows(min(66, 30 + int(clock.now * 36 / 240)), **(other if clock.now else {}))


def test_it_ends_at_a_steady_temperature() -> None:
    """Three minutes within two degrees on every GPU end the stress before its limit."""
    clock = Clock()
    found = heat.measure(1800, heat=LOAD, sample=warming(clock), wait=clock.wait, clock=clock.read)
    assert found["steady"] is True
    assert 230 + 180 <= found["seconds"] <= 260 + 180
    assert found["ended"] is None
    first = found["gpus"][0]
    assert (first["first_c"], first["highest_c"], first["new_errors"], first["busy_percent"]) == (30, 66, 0, 100)


def test_recorded_samples_of_a_real_gpu_become_steady() -> None:
    """The samples of an H100 under load result in the recorded evidence: the temperature is steady after four minutes, and not before."""
    text = (EVIDENCE.parent / "heat/h100-80gb-hbm3.csv").read_text(encoding="ascii")
    header, *lines = [line for line in text.splitlines() if line]
    samples = [list(parse(f"{header}\n{line}\n").rows) for line in lines if line != header]
    recorded = json.loads(json.loads((EVIDENCE / "h100-heat.json").read_text())["probes"]["heat"]["stdout"])
    clock, left = Clock(), iter(samples)
    step_s = recorded["seconds"] / (len(samples) - 1)
    found = heat.measure(
        1800, heat=LOAD, sample=lambda: next(left), wait=lambda _: clock.wait(step_s), clock=clock.read
    )
    assert (found["steady"], list(left)) == (True, [])
    assert found["seconds"] == recorded["seconds"]
    # Each recorded sample was taken just before that of the measurement.
    assert found["gpus"] == [{**gpu, "highest_w": pytest.approx(gpu["highest_w"], abs=1)} for gpu in recorded["gpus"]]
    assert not heat.is_steady([(number * step_s, rows) for number, rows in enumerate(samples[:-1])])


def test_events_during_the_load_are_recorded() -> None:
    """Reasons for slowdowns are collected over the whole stress, and memory errors are counted as new."""
    clock = Clock()
    sample = warming(
        clock, **{"clocks_event_reasons.active": "0x0000000000000048", "ecc.errors.uncorrected.volatile.total": "3"}
    )
    found = heat.measure(1800, heat=LOAD, sample=sample, wait=clock.wait, clock=clock.read)
    assert found["gpus"][1]["reasons"] == "0x0000000000000048"
    assert found["gpus"][1]["new_errors"] == 3


def test_rising_temperature_is_not_steady() -> None:
    """At the limit the stress ends without a steady state."""
    clock = Clock()
    found = heat.measure(600, heat=LOAD, sample=lambda: rows(30 + clock.now / 15), wait=clock.wait, clock=clock.read)
    assert (found["steady"], found["seconds"]) == (False, 600)


def test_early_end_of_the_load_is_reported() -> None:
    """Without load nothing is steady, and the exit code of the load is recorded."""
    clock = Clock()

    def wait(seconds: float) -> None:
        import time

        time.sleep(0.5)  # the real process needs a moment to end
        clock.wait(seconds)

    found = heat.measure(
        600, heat=[sys.executable, "-c", "raise SystemExit(3)"], sample=lambda: rows(40), wait=wait, clock=clock.read
    )
    assert (found["steady"], found["ended"]) == (False, 3)


def test_gpu_that_disappears_ends_the_stress() -> None:
    """A GPU that no longer responds raises an error."""
    clock = Clock()
    answers: Iterator[list[GpuRow]] = iter([rows(30), rows(31)[:1]])
    with pytest.raises(MissingPrerequisite, match="2 GPUs responded before the stress test, 1 during the test"):
        heat.measure(600, heat=LOAD, sample=lambda: next(answers), wait=clock.wait, clock=clock.read)


def test_missing_tool_is_reported() -> None:
    """Without DCGM the message names the command."""
    with pytest.raises(MissingPrerequisite, match="dcgmi-missing: No such file or directory"):
        heat.measure(600, heat=["dcgmi-missing"], sample=lambda: rows(30))
