"""Lines during long operations that print nothing themselves."""

from __future__ import annotations

import threading

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
