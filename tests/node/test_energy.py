"""The energy counters of the GPUs: reading them, and the evaluation of the readings."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.node import energy
from gpuinfra.node.console import MissingPrerequisite
from gpuinfra.node.outcome import Unreadable

HOUR = 3600.0
LIMIT_W = 700.0
IDLE_W, BUSY_W = 70, 632
"""Power of a GPU without work, and under load."""


def readings(*watts: tuple[float, ...], every: float = HOUR, age: float = 60.0) -> dict[str, Any]:
    """Output with one reading before the first period and one after each period. Each period has the average power of each GPU."""
    counts = [1_000_000] * len(watts[0])
    found = [{"uptime_s": 600.0, "millijoules": list(counts)}]
    for number, period in enumerate(watts, 1):
        counts = [count + int(one * every * 1000) for count, one in zip(counts, period, strict=True)]
        found.append({"uptime_s": 600.0 + number * every, "millijoules": list(counts)})
    gpus = [{"uuid": f"GPU-{number}", "limit_w": LIMIT_W} for number in range(len(counts))]
    return {"schema": energy.SCHEMA, "boot_id": "b", "uptime_s": found[-1]["uptime_s"] + age, "gpus": gpus, "readings": found}  # fmt: skip


def use(document: dict[str, Any]) -> energy.GpuUse:
    """Evaluate an output."""
    return energy.use_of(json.dumps(document))


def test_gpus_are_idle_since_the_last_period_with_work() -> None:
    """The idle time is the time of all periods after the last one in which a GPU used more power than an idle GPU."""
    found = use(readings((IDLE_W, IDLE_W), (IDLE_W, BUSY_W), (IDLE_W, IDLE_W), (75, 69)))
    assert (found.idle_s, found.age_s, found.gpus) == (2 * HOUR, 60, 2)
    assert found.reason == "GPU-1 used 632 W on average, and at most 140 W is idle"


def test_one_busy_gpu_keeps_a_node_in_use() -> None:
    """A node is in use if one of its GPUs is."""
    assert use(readings((IDLE_W,) * 8, (*((IDLE_W,) * 7), BUSY_W))).idle_s == 0


def test_a_job_between_two_readings_is_seen() -> None:
    """A job that runs for ten minutes of an hour is part of the average, although both readings are taken while the GPU is idle."""
    average = (10 * BUSY_W + 50 * IDLE_W) / 60
    assert use(readings((IDLE_W,), (average,))).idle_s == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda found: found["readings"][-1].update(millijoules=[5]), "the energy counter of GPU-0 did not increase"),
        (lambda found: found["readings"][-1].update(millijoules=found["readings"][-2]["millijoules"]), "did not increase"),
        (lambda found: found["readings"].__delitem__(slice(1, 3)), "no reading for 180 minutes"),
    ],
)  # fmt: skip
def test_a_period_without_two_comparable_readings_is_not_idle(change: Any, reason: str) -> None:
    """A counter that started again or stands still, and a gap between the readings, end the idle time."""
    document = readings((IDLE_W,), (IDLE_W,), (IDLE_W,), (IDLE_W,))
    change(document)
    found = use(document)
    assert reason in found.reason
    assert found.idle_s == (HOUR if "no reading" in reason else 0)


def test_one_reading_does_not_show_that_a_gpu_is_idle() -> None:
    """After a boot, the idle time starts at the first reading."""
    document = readings((IDLE_W,))
    document["readings"].pop()
    found = use(document)
    assert (found.idle_s, found.reason) == (0, "")


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.update(schema="other"),
        lambda found: found.update(readings=[]),
        lambda found: found.update(gpus=[]),
        lambda found: found.pop("uptime_s"),
        lambda found: found.update(uptime_s=0),
        lambda found: found["readings"].reverse(),
        lambda found: found["readings"][0].update(millijoules=[1, 2]),
        lambda found: found["readings"][0].update(millijoules="x"),
    ],
)
def test_output_of_a_different_form_is_not_evaluated(change: Any) -> None:
    """Missing, unordered or incomplete readings raise an error, and never count as idle."""
    document = readings((IDLE_W,))
    change(document)
    with pytest.raises(Unreadable):
        use(document)
    with pytest.raises(Unreadable):
        energy.use_of("[")


def test_work_on_idle_gpus_is_news() -> None:
    """GPUs that are used again are news. GPUs that become idle or stay in use, and unreadable output, are not."""
    idle, busy = (json.dumps(readings((one,))) for one in (IDLE_W, BUSY_W))
    assert energy.returned_to_use(idle, busy)
    for before, after in ((busy, idle), (busy, busy), (idle, idle), ("", busy), (idle, "None")):
        assert not energy.returned_to_use(before, after)


class Node:
    """The counters, the clock and the boot of one node."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gpus = [("GPU-a", LIMIT_W, 1000), ("GPU-b", LIMIT_W, 2000)]
        self.uptime = 1000.0
        self.boot = folder / "boot_id"
        self.boot.write_text("first\n")
        self.state = folder / "energy.json"
        monkeypatch.setattr(energy, "counters", lambda: self.gpus)
        monkeypatch.setattr(energy, "BOOT_ID", self.boot)
        monkeypatch.setattr(energy, "STATE", self.state)
        monkeypatch.setattr(energy.time, "clock_gettime", lambda _: self.uptime)

    def read(self, after: float = HOUR) -> dict[str, Any]:
        """Let time pass and read the counters."""
        self.uptime += after
        self.gpus = [(uuid, limit, count + int(after * IDLE_W * 1000)) for uuid, limit, count in self.gpus]
        return energy.energy()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node with two GPUs."""
    return Node(tmp_path, monkeypatch)


def test_the_readings_of_a_boot_are_kept(node: Node) -> None:
    """Each hourly reading is added to the earlier ones of this boot, up to a maximum number."""
    for number in range(1, 4):
        assert len(node.read()["readings"]) == number
    assert use(node.read()).idle_s == 3 * HOUR
    for _ in range(energy.MOST_READINGS):
        node.read()
    found = node.read()
    assert len(found["readings"]) == energy.MOST_READINGS
    assert len(json.dumps(found)) < 32 * 1024


def test_frequent_reads_do_not_replace_the_hourly_readings(node: Node) -> None:
    """A reading within half an hour after the last one is not kept."""
    for _ in range(60):
        node.read(after=60)
    found = node.read(after=60)
    assert [one["uptime_s"] for one in found["readings"]] == [1060, 2860, 4660]
    assert found["uptime_s"] == 4660


@pytest.mark.parametrize("change", ["boot", "gpu", "driver"])
def test_other_gpus_and_another_boot_start_new_readings(node: Node, change: str) -> None:
    """After a reboot or with another GPU, earlier readings are not used. A counter that starts again is not idle in its period."""
    node.read()
    node.read()
    if change == "boot":
        node.boot.write_text("second\n")
    elif change == "gpu":
        node.gpus[1] = ("GPU-c", LIMIT_W, 5)
    else:
        node.gpus = [(uuid, limit, -int(HOUR * IDLE_W * 1000)) for uuid, limit, _ in node.gpus]
    found = node.read()
    assert len(found["readings"]) == (3 if change == "driver" else 1)
    assert use(found).idle_s == 0
    assert use(node.read()).idle_s == HOUR


@pytest.mark.parametrize("text", ["", "{", '{"schema": "gpuinfra.energy/1"}', "[]"])
def test_damaged_readings_are_replaced(node: Node, text: str) -> None:
    """A file that cannot be read does not stop new readings."""
    node.state.write_text(text)
    assert len(node.read()["readings"]) == 1


class Function:
    """A function with the attributes that ctypes reads."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)


class Nvml:
    """NVML on a machine with one GPU. `failing` is a function that returns NVML_ERROR_NOT_SUPPORTED."""

    def __init__(self, failing: str = "") -> None:
        self.calls: list[str] = []
        values = {"nvmlDeviceGetCount_v2": 1, "nvmlDeviceGetPowerManagementDefaultLimit": 700000, "nvmlDeviceGetTotalEnergyConsumption": 2**40}  # fmt: skip
        for name in energy._FUNCTIONS:
            setattr(self, name, Function(self._function(name, values.get(name), 3 if name == failing else 0)))
        self.nvmlErrorString = Function(lambda code: b"Not Supported")

    def _function(self, name: str, value: int | None, code: int) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if value is not None and not code:
                arguments[-1]._obj.value = value
            if name == "nvmlDeviceGetUUID":
                arguments[1].value = b"GPU-1"
            return code

        return call


def test_counters_are_read_through_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each GPU has its UUID, its default power limit in watts, and its counter, which has 64 bits. NVML is shut down."""
    library = Nvml()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    assert energy.counters() == [("GPU-1", 700.0, 2**40)]
    assert library.calls[-1] == "nvmlShutdown"


def test_a_gpu_without_a_counter_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that fails is named with NVML's text, and no reading is made. NVML is shut down."""
    library = Nvml("nvmlDeviceGetTotalEnergyConsumption")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    with pytest.raises(MissingPrerequisite, match=r"nvmlDeviceGetTotalEnergyConsumption failed: Not Supported \(3\)"):
        energy.counters()
    assert library.calls[-1] == "nvmlShutdown"


def test_a_machine_without_the_library_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the driver's library, the message has the reason of the dynamic linker."""
    monkeypatch.setattr(energy, "LIBRARY", "libnvidia-ml-absent.so.1")
    with pytest.raises(
        MissingPrerequisite, match=r"NVML cannot be loaded: libnvidia-ml-absent.so.1: cannot open shared object file"
    ):
        energy._Nvml(energy.LIBRARY)


RECORDED = [
    pytest.param(phase, id=f"{path.stem}-{phase['phase']}")
    for path in sorted((Path(__file__).parent / "recorded").glob("energy-*.json"))
    for phase in json.loads(path.read_text(encoding="utf-8"))["phases"]
]


@pytest.mark.parametrize("phase", RECORDED)
def test_recorded_counters_tell_work_from_no_work(phase: dict[str, Any]) -> None:
    """On a real GPU, no process and a process without work are idle, and work for 5 percent of the time or more is not."""
    document = readings((0,), every=phase["seconds"])
    for one, count in zip(document["readings"], (phase["mJ_before"], phase["mJ_after"]), strict=True):
        one["millijoules"] = [count]
    is_idle = phase["phase"] in ("idle", "idle-after", "cuda-context-only")
    assert (use(document).idle_s > 0) == is_idle, use(document).reason
