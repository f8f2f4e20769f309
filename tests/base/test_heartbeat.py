"""Lines during long operations that print nothing themselves."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from gpuinfra.base.heartbeat import Heartbeat, heard


def test_silence_is_reported() -> None:
    """After each interval without a line, a line contains the text and the seconds."""
    lines: list[str] = []
    two = threading.Event()

    def line(text: str) -> None:
        lines.append(text)
        if len(lines) == 2:
            two.set()

    with heard(line, "engine: still working", 0.02):
        assert two.wait(60)
    assert all(one.startswith("engine: still working, ") and one.endswith(" s") for one in lines)


def test_the_lines_of_a_long_operation_become_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within six minutes, an operation that prints every ten seconds has three lines about its duration, and a silent one has one every half minute."""
    counts: list[int] = []
    for every in (10.0, 1e9):
        clock, told = [0.0], []
        monkeypatch.setattr("gpuinfra.base.heartbeat.time", SimpleNamespace(monotonic=lambda: clock[0]))  # noqa: B023
        pulse, own = Heartbeat(told.append, 4.0), every

        def wait(seconds: float) -> bool:
            nonlocal own
            clock[0] = min(clock[0] + seconds, own)  # noqa: B023
            if clock[0] == own:  # noqa: B023
                own += every  # noqa: B023
                pulse.beat()  # noqa: B023
            return clock[0] >= 360  # noqa: B023

        pulse._stop = SimpleNamespace(wait=wait)  # type: ignore[assignment]
        pulse._run()
        counts.append(len(told))
    assert counts == [2, 14]


def test_another_operation_starts_with_the_first_interval() -> None:
    """After `restart`, the interval is the first one again."""
    pulse = Heartbeat(lambda _: None, 4.0)
    pulse._wait_s = 30.0
    pulse.restart()
    assert pulse._wait_s == 4.0


def test_a_line_starts_the_interval_again() -> None:
    """A line within the interval is passed on, and nothing else is printed."""
    lines: list[str] = []
    with heard(lines.append, "still working", 3600) as line:
        line("one")
        line("two")
    assert lines == ["one", "two"]


def test_the_thread_ends_with_the_block() -> None:
    """The thread is stopped, also if the block raises an exception."""
    pulse = Heartbeat(lambda _: None, 3600)
    try:
        with pulse:
            raise ValueError("stop")
    except ValueError:
        pass
    assert not pulse._thread.is_alive()
