"""`node.pyz heat`: stresses the GPUs until the temperatures are steady.

DCGM's targeted stress loads every GPU while nvidia-smi samples it every few seconds. The test ends when the temperature of each GPU
has stayed within two degrees for three minutes, when the load ends, or at the time limit. Only a test under steady load shows thermal
throttling. This module measures and does not judge.
"""

from __future__ import annotations

import subprocess
import time
from typing import Any, Callable

from .console import MissingPrerequisite
from .outcome import Unreadable, shortened
from .table import GpuRow, number, parse

FIELDS = (
    "index", "uuid", "temperature.gpu", "temperature.memory", "clocks_event_reasons.active", "power.draw", "clocks.current.sm",
    "utilization.gpu", "ecc.errors.uncorrected.volatile.total",
)  # fmt: skip
SAMPLE_S, STEADY_S, WITHIN_C, LIMIT_S = 10.0, 180.0, 2.0, 1800
"""Seconds between samples, duration and temperature range of a steady state, and time limit for the load."""


def load(limit_s: int) -> list[str]:
    """Return the command that generates the load: DCGM's targeted stress on all GPUs."""
    return ["dcgmi", "diag", "-r", "targeted_stress", "-j", "-p", "targeted_stress.test_duration=%d" % limit_s]


def measure(
    limit_s: int = LIMIT_S,
    *,
    heat: list[str] | None = None,
    sample: Callable[[], list[GpuRow]] | None = None,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Stress and sample the GPUs. Returns a `gpuinfra.heat/1` object with values in degrees Celsius, watts, MHz and seconds.

    Raises `MissingPrerequisite` if the load cannot be started or a GPU stops responding.
    """
    sample = sample or _sample
    words = heat or load(limit_s)
    first = sample()
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
    except OSError as error:
        raise MissingPrerequisite("%s: %s" % (words[0], error.strerror or "cannot be started")) from None
    started = clock()
    series: list[tuple[float, list[GpuRow]]] = [(0.0, first)]
    steady, code = False, None
    try:
        while not steady and clock() - started < limit_s:
            wait(SAMPLE_S)
            code = process.poll()
            if code is not None:
                break
            series.append((clock() - started, sample()))
            if len(series[-1][1]) != len(first):
                raise MissingPrerequisite(
                    "%d GPUs responded before the stress test, %d during the test" % (len(first), len(series[-1][1]))
                )
            steady = is_steady(series)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return {
        "schema": "gpuinfra.heat/1",
        "seconds": round(clock() - started, 1),
        "steady": steady,
        "load": " ".join(words),
        "ended": code,
        "gpus": [_gpu(series, at) for at in range(len(first))],
    }


def is_steady(series: list[tuple[float, list[GpuRow]]]) -> bool:
    """Return True if the temperature of every GPU under load was steady for long enough."""
    now = series[-1][0]
    recent = [rows for at, rows in series if at >= now - STEADY_S]
    if now < STEADY_S or len(recent) < 3:
        return False
    for at in range(len(recent[0])):
        degrees = [_figure(rows[at], "temperature.gpu") for rows in recent]
        if max(degrees) - min(degrees) > WITHIN_C:
            return False
    return True


def _gpu(series: list[tuple[float, list[GpuRow]]], at: int) -> dict[str, Any]:
    rows = [rows[at] for _, rows in series]
    under = rows[1:] or rows
    reasons = 0
    for row in under:
        reasons |= int(row.get("clocks_event_reasons.active"), 16)
    memory = [value for value in (row.number("temperature.memory") for row in rows) if value is not None]
    errors = [row.number("ecc.errors.uncorrected.volatile.total") for row in (rows[0], rows[-1])]
    return {
        "index": int(_figure(rows[0], "index")),
        "uuid": shortened(rows[0].get("uuid"), 60),
        "first_c": _figure(rows[0], "temperature.gpu"),
        "highest_c": max(_figure(row, "temperature.gpu") for row in rows),
        "memory_highest_c": max(memory) if memory else None,
        "reasons": "0x%016x" % reasons,
        "highest_w": max(_figure(row, "power.draw") for row in rows),
        "lowest_sm_mhz": min(_figure(row, "clocks.current.sm") for row in under),
        "busy_percent": _figure(under[-1], "utilization.gpu"),
        "new_errors": None if errors[0] is None or errors[1] is None else int(errors[1] - errors[0]),
    }


def _figure(row: GpuRow, column: str) -> float:
    value = number(row.get(column), column)
    if value is None:
        raise Unreadable("%s reports no %s" % (row.label, column))
    return value


def _sample() -> list[GpuRow]:
    words = ["nvidia-smi", "--query-gpu=" + ",".join(FIELDS), "--format=csv"]
    try:
        done = subprocess.run(words, capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingPrerequisite("nvidia-smi: %s" % error) from None
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        raise MissingPrerequisite("nvidia-smi failed with exit code %d: %s" % (done.returncode, shortened(text, 120)))
    return list(parse(text).rows)
