"""Shows the progress of a running rehearsal: two bars in a terminal, plain lines elsewhere.

Every line starts with `rehearsal:`. If nothing is printed for 4 seconds, a line states what still runs, and then less and less often.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TextIO

from gpuinfra.base.heartbeat import Heartbeat

PREFIX = "rehearsal: "
LINE_INTERVAL_S = 2.0
QUIET_S = 4.0
"""Seconds without a line until the view states what still runs."""
MOST_NODES = 16
SETTLED_STAGES = frozenset({"reported", "failed", "terminated"})


class Progress(Protocol):
    """The engine's progress so far."""

    @property
    def done(self) -> Mapping[str, int]:
        """Number of finished resources, keyed by operation."""
        ...

    @property
    def status(self) -> Mapping[str, str]:
        """Last status line of each resource, keyed by URN."""
        ...

    @property
    def current_resources(self) -> Sequence[tuple[str, str]]:
        """Type and logical name of each resource in progress."""
        ...


class _Alive:
    """A view that states what still runs, within a `with` block over the whole rehearsal."""

    _pulse: Heartbeat | None = None
    _title = ""

    def alive(self, every_s: float = QUIET_S) -> AbstractContextManager[object]:
        """Return the context in which the view prints a line after `every_s` seconds without one."""
        self._pulse = Heartbeat(self._still, every_s)
        return self._pulse

    def phase(self, what: str) -> None:
        """State what runs outside an operation."""
        self._title = what
        self._restart()

    def _restart(self) -> None:
        if self._pulse:
            self._pulse.restart()

    def _beat(self) -> None:
        if self._pulse:
            self._pulse.beat()

    # Each view prints the line in its own form.
    def _still(self, seconds: float) -> None:
        raise NotImplementedError


class Lines(_Alive):
    """Plain lines for logs: each change is printed once, and counts are printed at most every two seconds and at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = ""
        self._stages: dict[str, str] = {}
        self._at = 0.0
        self._total: int | None = None
        self._progress: Progress | None = None

    def line(self, text: str) -> None:
        """Print a permanent line."""
        self._stream.write("".join(f"{PREFIX}{part}\n" for part in text.splitlines() or [""]))
        self._stream.flush()
        self._beat()

    def begin(self, title: str, resources: int | None, nodes: int | None) -> None:
        """Start an operation. The total is None as long as it is unknown."""
        self._total, self._last, self._at, self._progress = resources, "", time.monotonic(), None
        self._title = title
        self.line(title)

    def show(self, progress: Progress, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Show the progress of the operation."""
        for node in nodes:
            name, stage = _name(node), _stage(node)
            if self._stages.get(name) != stage:
                self._stages[name] = stage
                self.line(f"{name}: {stage}")
        self._progress = progress
        now = time.monotonic()
        if now - self._at < LINE_INTERVAL_S:
            return
        text = _counts(progress, self._total)
        if text != self._last:
            self._last, self._at = text, now
            self.line(text)

    def end(self) -> None:
        """End the operation with the final count."""
        if self._progress and (text := _counts(self._progress, self._total)) != self._last:
            self.line(text)
        self._title, self._progress = "", None

    def _still(self, seconds: float) -> None:
        counts = f"; {self._last}" if self._last and self._progress else ""
        self.line(f"{_still_running(seconds, self._title)}{counts}")


class Bars(_Alive):
    """Two bars and one line per node, redrawn in place."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream, highlight=False)
        self._live: Any = None
        self._bars: Any = None

    def line(self, text: str) -> None:
        from rich.text import Text

        for part in text.splitlines() or [""]:
            self._console.print(Text(f"{PREFIX}{part}"))
        self._beat()

    def begin(self, title: str, resources: int | None, nodes: int | None) -> None:
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.line(title)
        self._bars = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(30),
            TextColumn("{task.fields[text]}", style="dim"),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._resources = self._bars.add_task("resources", total=resources, text="")
        self._nodes = self._bars.add_task("nodes", total=nodes, text="", visible=bool(nodes))
        self._live = Live(self._bars, console=self._console, refresh_per_second=8, transient=True)
        self._live.start()

    def show(self, progress: Progress, nodes: Sequence[Mapping[str, Any]]) -> None:
        from rich.console import Group
        from rich.text import Text

        types = ", ".join(sorted({kind.rpartition(":")[2] for kind, _ in progress.current_resources})[:3])
        self._bars.update(self._resources, completed=sum(progress.done.values()), text=types)
        settled = sum(1 for node in nodes if _stage(node) in SETTLED_STAGES)
        self._bars.update(self._nodes, completed=settled, text=f"{settled} reported", visible=bool(nodes))
        rows = [f"{_name(node):<34} {_stage(node)}" for node in nodes[:MOST_NODES]]
        if len(nodes) > MOST_NODES:
            rows.append(f"and {len(nodes) - MOST_NODES} more")
        rows += list(progress.status.values())[-1:]
        self._live.update(Group(self._bars, *(Text(f"  {row}", style="dim") for row in rows)))

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live, self._title = None, ""

    def _still(self, seconds: float) -> None:
        """The bars themselves show that an operation runs."""
        if self._live is None:
            self.line(_still_running(seconds, self._title))


View = Lines | Bars
"""The view that shows the progress of a rehearsal."""


def view_for(stream: TextIO) -> View:
    """Return bars in a terminal, otherwise plain lines."""
    return Bars(stream) if stream.isatty() else Lines(stream)


def _still_running(seconds: float, what: str) -> str:
    return f"still running after {seconds:.0f} s{': ' + what if what else ''}"


def _name(node: Mapping[str, Any]) -> str:
    return f"{node.get('label') or node.get('name')} ({node.get('instance_id')})"


def _stage(node: Mapping[str, Any]) -> str:
    return str(node.get("stage") or node.get("state") or "unknown")


def _counts(progress: Progress, total: int | None) -> str:
    done = sum(progress.done.values())
    text = f"{done} of {total} resources" if total and total >= done else f"{done} resources"
    current = [name for _, name in progress.current_resources][:2]
    status = list(progress.status.values())[-1:]
    return f"{text}{'; now ' + ', '.join(current) if current else ''}{'; ' + status[0] if status else ''}"
