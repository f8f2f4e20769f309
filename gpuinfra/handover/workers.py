"""Processes that call pure functions, so that judging many nodes uses all cores.

`multiprocessing` is not used: it runs the main program again in each process, which is the plugin or a program of the operator, and its processes
stay if the engine kills the plugin. These processes end when their input ends.
"""

from __future__ import annotations

import os
import pickle
import queue
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

PROCESSES_FROM = 100
"""Number of documents from which processes are started. One process starts in the time that this process needs for about ten documents."""

LARGE = 1024 * 1024
"""Size in bytes from which a document is evaluated in a process in any case. Evidence of a node has about 200 KiB. The time for a smaller document is
bounded by its size, because all patterns are linear (`tests/test_patterns.py`)."""

LIMIT_S = 60.0
"""Time after which a process is ended. The document is then not evaluated in this process either, so no document can hold it up for longer."""

T = TypeVar("T")


class Unfinished(ValueError):
    """A function did not end in time, or its process ended."""


class Workers:
    """Calls functions, in processes if there are any and otherwise in this process."""

    def __init__(self, processes: int = 0) -> None:
        self._inside = processes == 0
        self._processes = [_started() for _ in range(processes)]
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes] | None] = queue.SimpleQueue()
        for process in self._processes or [None]:
            self._idle.put(process)

    def call(self, function: Callable[..., T], *arguments: object, isolated: bool = False) -> T:
        """Return the result of a module-level function. With `isolated`, a process is started if there is none.

        Raises `Unfinished` if the function does not end within `LIMIT_S`, or if the process of an isolated call ends. If another process ends, this
        process calls the function.
        """
        if self._inside and not isolated:
            return function(*arguments)
        process = self._idle.get() or self._new()
        done = False
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(pickle.dumps((function, arguments)))
            process.stdin.flush()
            if not select.select([process.stdout], [], [], LIMIT_S)[0]:
                raise Unfinished(f"the evaluation takes longer than {LIMIT_S:.0f} s")
            result: T = pickle.load(process.stdout)
            done = True
            return result
        except (OSError, EOFError, pickle.UnpicklingError):
            if isolated:
                raise Unfinished(
                    "the process that evaluates it ended, for example because it needs too much memory"
                ) from None
        finally:
            if not done:
                process.kill()
            self._idle.put(process if done else None)
        return function(*arguments)

    def _new(self) -> subprocess.Popen[bytes]:
        process = _started()
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.communicate()


@contextmanager
def workers_for(documents: int, most: int) -> Iterator[Workers]:
    """Yield the workers for a number of documents: one process per core, at most `most`, or none for a few documents."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = Workers(min(cores, most) if documents >= PROCESSES_FROM else 0)
    try:
        yield workers
    finally:
        workers.close()


def _started() -> subprocess.Popen[bytes]:
    """Start a process with the modules of this process. A Ctrl-C in the terminal does not reach it."""
    path = os.pathsep.join(one for one in sys.path if one)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


def serve() -> None:
    """Call the functions that arrive on the input until it ends. An error ends the process, and the caller repeats the call in its own process."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            function, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(function(*arguments), answers)
        answers.flush()


if __name__ == "__main__":
    serve()
