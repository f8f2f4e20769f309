"""`node.pyz energy`: reads the energy counters of this node's GPUs, and keeps the readings of this boot.

`nvmlDeviceGetTotalEnergyConsumption` returns the energy in millijoules that a GPU has used since the driver was loaded, on Volta and newer
(NVML API reference, docs.nvidia.com/deploy/nvml-api, device queries; retrieved 2026-11-27). The difference between two readings, divided by
the time between them, is the average power of this time. It therefore contains jobs that run between two readings.
The counter starts again if the driver is loaded again. Other GPUs or another boot start new readings.

`use_of` evaluates the output. The node uses it to decide whether to upload evidence, and `gpuinfra calendar` to decide whether a pool is idle.
"""

from __future__ import annotations

import ctypes
import json
import time
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .console import MissingPrerequisite
from .journal import write_whole
from .outcome import Unreadable, escaped, shortened

SCHEMA = "gpuinfra.energy/1"
STATE = Path("/var/lib/gpuinfra/energy.json")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LIBRARY = "libnvidia-ml.so.1"
UUID_BYTES = 96
"""Size of a UUID buffer (`NVML_DEVICE_UUID_V2_BUFFER_SIZE` in nvml.h)."""
SPACING_S = 1800.0
"""Minimum time between two readings that are kept. A program that verifies the node every minute must not replace the hourly readings."""
MOST_READINGS = 180
"""Maximum number of readings to keep: more than a week, with one reading each hour."""
LONGEST_S = 7200.0
"""Maximum time between two readings that shows that a GPU was idle. The average over a longer time can hide a job."""
IDLE_SHARE = 0.2
"""A GPU is idle while its average power is at most this share of its default power limit."""


class _Nvml:
    """The NVML functions that this module calls. A failed call raises `MissingPrerequisite`."""

    def __init__(self, name: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(name)
        except OSError as error:
            raise MissingPrerequisite("NVML cannot be loaded: %s" % shortened(str(error), 200)) from None
        for function, arguments in _FUNCTIONS.items():
            function_of_library = getattr(self._library, function)
            function_of_library.argtypes, function_of_library.restype = arguments, c_int
        self._library.nvmlErrorString.argtypes, self._library.nvmlErrorString.restype = [c_int], c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function."""
        code = getattr(self._library, name)(*arguments)
        if code:
            text = (self._library.nvmlErrorString(code) or b"?").decode("utf-8", "replace")
            raise MissingPrerequisite("%s failed: %s (%d)" % (name, text, code))


_FUNCTIONS: dict[str, list[Any]] = {
    "nvmlInit_v2": [],
    "nvmlShutdown": [],
    "nvmlDeviceGetCount_v2": [POINTER(c_uint)],
    "nvmlDeviceGetHandleByIndex_v2": [c_uint, POINTER(c_void_p)],
    "nvmlDeviceGetUUID": [c_void_p, c_char_p, c_uint],
    "nvmlDeviceGetPowerManagementDefaultLimit": [c_void_p, POINTER(c_uint)],
    "nvmlDeviceGetTotalEnergyConsumption": [c_void_p, POINTER(c_ulonglong)],
}


def counters() -> list[tuple[str, float, int]]:
    """Return the UUID, the default power limit in watts, and the energy counter in millijoules of each GPU. Raises `MissingPrerequisite`."""
    nvml = _Nvml()
    nvml.call("nvmlInit_v2")
    try:
        count = c_uint()
        nvml.call("nvmlDeviceGetCount_v2", byref(count))
        return [_counter(nvml, index) for index in range(count.value)]
    finally:
        nvml.call("nvmlShutdown")


def _counter(nvml: _Nvml, index: int) -> tuple[str, float, int]:
    device, limit, energy = c_void_p(), c_uint(), c_ulonglong()
    uuid = ctypes.create_string_buffer(UUID_BYTES)
    nvml.call("nvmlDeviceGetHandleByIndex_v2", index, byref(device))
    nvml.call("nvmlDeviceGetUUID", device, uuid, UUID_BYTES)
    nvml.call("nvmlDeviceGetPowerManagementDefaultLimit", device, byref(limit))
    nvml.call("nvmlDeviceGetTotalEnergyConsumption", device, byref(energy))
    return escaped(uuid.value.decode("ascii", "backslashreplace")), limit.value / 1000, energy.value


def energy() -> dict[str, Any]:
    """Read the counters, add them to the readings of this boot, and return all readings. Raises `MissingPrerequisite`."""
    gpus = counters()
    now = round(time.clock_gettime(time.CLOCK_BOOTTIME), 1)
    document = {
        "schema": SCHEMA,
        "boot_id": BOOT_ID.read_text(encoding="ascii").strip(),
        "uptime_s": now,
        "gpus": [{"uuid": uuid, "limit_w": limit} for uuid, limit, _ in gpus],
    }
    readings = _kept(document)
    if not readings or now - readings[-1]["uptime_s"] >= SPACING_S:
        readings = [*readings, {"uptime_s": now, "millijoules": [count for _, _, count in gpus]}][-MOST_READINGS:]
    document["readings"] = readings
    try:
        write_whole(STATE, json.dumps(document))
    except OSError as error:
        raise MissingPrerequisite("the readings cannot be stored in %s: %s" % (STATE, error.strerror)) from None
    return document


def _kept(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the earlier readings of the same GPUs in the same boot."""
    try:
        text = STATE.read_text(encoding="utf-8")
        before = json.loads(text)
        use_of(text)
    except (OSError, ValueError, Unreadable):
        return []
    same = all(before[name] == document[name] for name in ("boot_id", "gpus"))
    return before["readings"] if same and before["uptime_s"] <= document["uptime_s"] else []


@dataclass(frozen=True)
class GpuUse:
    """How long the GPUs of a node were idle."""

    idle_s: float
    """Seconds before the newest reading during which every GPU was idle."""
    age_s: float
    """Seconds between the newest reading and the output."""
    gpus: int
    reason: str
    """Why the GPUs were not idle earlier. Empty if no earlier reading exists."""


def use_of(text: str) -> GpuUse:
    """Evaluate the output of `node.pyz energy`. Raises `Unreadable` if it has a different form."""
    try:
        document = json.loads(text)
        if document["schema"] != SCHEMA:
            raise Unreadable("the schema is not %s" % SCHEMA)
        gpus = [(str(one["uuid"]), float(one["limit_w"])) for one in document["gpus"]]
        readings = [
            (float(one["uptime_s"]), [int(count) for count in one["millijoules"]]) for one in document["readings"]
        ]
        now = float(document["uptime_s"])
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable("the energy readings cannot be read: %s" % shortened(repr(error), 80)) from None
    times = [at for at, _ in readings]
    if not gpus or not readings or times != sorted(set(times)) or now < times[-1]:
        raise Unreadable("the energy readings are empty or not in order")
    if any(len(counts) != len(gpus) for _, counts in readings):
        raise Unreadable("an energy reading does not contain each GPU")
    idle, reason = 0.0, ""
    for before, after in zip(reversed(readings[:-1]), reversed(readings[1:])):
        reason = _busy(gpus, before, after)
        if reason:
            break
        idle += after[0] - before[0]
    return GpuUse(idle, now - times[-1], len(gpus), reason)


def _busy(gpus: list[tuple[str, float]], before: tuple[float, list[int]], after: tuple[float, list[int]]) -> str:
    """Return why the GPUs were not idle between two readings, or an empty text."""
    seconds = after[0] - before[0]
    if seconds > LONGEST_S:
        return "no reading for %d minutes" % (seconds // 60)
    for (uuid, limit), first, last in zip(gpus, before[1], after[1]):
        if last <= first:
            return "the energy counter of %s did not increase; it starts again when the driver is loaded" % uuid
        watts = (last - first) / 1000 / seconds
        if watts > limit * IDLE_SHARE:
            return "%s used %.0f W on average, and at most %.0f W is idle" % (uuid, watts, limit * IDLE_SHARE)
    return ""


def returned_to_use(before: str, after: str) -> bool:
    """Return True if the GPUs were idle at the newest reading of one output, and not at the newest reading of a later output."""
    try:
        return use_of(before).idle_s > 0 and use_of(after).idle_s == 0
    except Unreadable:
        return False
