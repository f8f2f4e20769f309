"""What a person sees while a rehearsal runs: a bar on a terminal, plain lines elsewhere.

Every line says that it is a rehearsal. Views only show; what happened is decided elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TextIO

from gpuinfra.rehearsal.events import Progress, kind_of, name_of

PREFIX = "rehearsal: "
PLAIN_EVERY_S = 2.0
SETTLED_STAGES = frozenset({"reported", "failed", "terminated"})


class View(Protocol):
    """Something that shows."""

    def line(self, text: str) -> None:
        """One line that stays."""
        ...

    def begin(self, title: str, resources: int | None, nodes: int | None) -> None:
        """An operation begins; the totals are None where nobody knows them."""
        ...

    def show(self, progress: Progress, nodes: Sequence[Mapping[str, Any]]) -> None:
        """How far it is."""
        ...

    def end(self) -> None:
        """The operation is over."""
        ...


def view_for(stream: TextIO) -> View:
    """A bar where the stream is a terminal, plain lines elsewhere."""
    return Bars(stream) if stream.isatty() else Lines(stream)


class Lines:
    """Plain lines for logs: what changed since the last one, not too often."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._said = ""
        self._stages: dict[str, str] = {}
        self._at = 0.0
        self._title = ""
        self._total: int | None = None

    def line(self, text: str) -> None:
        for part in text.splitlines() or [""]:
            self._stream.write(f"{PREFIX}{part}\n")
        self._stream.flush()

    def begin(self, title: str, resources: int | None, nodes: int | None) -> None:
        self._title, self._total, self._said, self._at = title, resources, "", time.monotonic()
        self.line(title)

    def show(self, progress: Progress, nodes: Sequence[Mapping[str, Any]]) -> None:
        for node in nodes:
            who, stage = who_is(node), stage_of(node)
            if self._stages.get(who) != stage:
                self._stages[who] = stage
                self.line(f"{who}: {stage}")
        now = time.monotonic()
        if now - self._at < PLAIN_EVERY_S:
            return
        text = resources_line(progress, self._total)
        if text != self._said:
            self._said, self._at = text, now
            self.line(text)

    def end(self) -> None:
        return None


class Bars:
    """Two bars and a line per node, redrawn in place."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream, highlight=False)
        self._live: Any = None
        self._bars: Any = None

    def line(self, text: str) -> None:
        from rich.text import Text

        for part in text.splitlines() or [""]:
            self._console.print(Text(f"{PREFIX}{part}"))

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

        now = ", ".join(sorted({kind_of(urn).rpartition(":")[2] for urn in progress.current})[:3])
        self._bars.update(self._resources, completed=sum(progress.done.values()), text=now)
        settled = sum(1 for node in nodes if stage_of(node) in SETTLED_STAGES)
        self._bars.update(self._nodes, completed=settled, text=f"{settled} reported", visible=bool(nodes))
        rows = [Text(f"  {who_is(node):<34} {stage_of(node)}", style="dim") for node in nodes[:16]]
        if len(nodes) > 16:
            rows.append(Text(f"  and {len(nodes) - 16} more", style="dim"))
        self._live.update(
            Group(self._bars, *rows, *[Text(f"  {t}", style="dim") for t in list(progress.status.values())[-1:]])
        )

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def who_is(node: Mapping[str, Any]) -> str:
    """`gpu-1 (i-...)`."""
    return f"{node.get('label') or node.get('name')} ({node.get('instance_id')})"


def stage_of(node: Mapping[str, Any]) -> str:
    """Where a node is on its way."""
    return str(node.get("stage") or node.get("state") or "unknown")


def resources_line(progress: Progress, total: int | None) -> str:
    """How many resources are done, and what is in hand."""
    done = sum(progress.done.values())
    text = f"{done} of {total} resources" if total and total >= done else f"{done} resources"
    waiting = [name_of(urn) for urn in progress.current][:2]
    status = list(progress.status.values())[-1:]
    return f"{text}{'; now ' + ', '.join(waiting) if waiting else ''}{'; ' + status[0] if status else ''}"
