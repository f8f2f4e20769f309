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

LIMIT_S = 60.0
"""Time after which a process is ended, for example because the machine has too little memory for it."""

T = TypeVar("T")


class Workers:
    """Calls functions, in processes if there are any and otherwise in this process."""

    def __init__(self, processes: int = 0) -> None:
        self._processes = [_started() for _ in range(processes)]
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        for process in self._processes:
            self._idle.put(process)

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Return the result of a module-level function. If a process ended or does not respond, this process calls the function."""
        if not self._processes:
            return function(*arguments)
        wire = pickle.dumps((function, arguments))
        process = self._idle.get()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(wire)
            process.stdin.flush()
            if not select.select([process.stdout], [], [], LIMIT_S)[0]:
                raise EOFError
            return pickle.load(process.stdout)  # type: ignore[no-any-return]
        except (OSError, EOFError, pickle.UnpicklingError):
            process.kill()
        finally:
            self._idle.put(process)
        return function(*arguments)

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
