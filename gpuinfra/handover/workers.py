"""Processes that evaluate documents of nodes, so that no document holds up this process, and so that many documents use all cores.

Each call has a deadline. A process that misses it is killed, and the next call starts another one, because Python cannot interrupt one pattern or one
parser in its own process. `multiprocessing` is not used: it runs the main program again in each process, which is the plugin or a program of the
operator, and its processes stay if the engine kills the plugin. These processes end when their input ends.
"""

from __future__ import annotations

import os
import pickle
import queue
import select
import subprocess
import sys
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, TypeVar

LIMIT_S = 60.0
"""Time for one call, in seconds. The first call of a process includes its start, which takes less than a second. Evidence of a node has about 200 KiB and
takes about 20 ms; the rest is for machines under load."""

T = TypeVar("T")


class NotEvaluated(ValueError):
    """A document cannot be evaluated. The message gives the reason."""


class Caller(Protocol):
    """Calls pure functions with documents of nodes."""

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Return the result of a function. Raises `NotEvaluated`."""
        ...


class Workers:
    """Calls module-level functions in processes. They start when they are needed."""

    def __init__(self, most: int = 0) -> None:
        """`most` is the maximum number of processes, by default one per core."""
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._idle: queue.LifoQueue[subprocess.Popen[bytes] | None] = queue.LifoQueue()
        """An entry for each process that can exist. The process that finished last is the next one, so few calls start few processes."""
        for _ in range(most or _cores()):
            self._idle.put(None)
        self.close = weakref.finalize(self, _end_all, self._processes)
        """Ends the processes, at the latest with this process."""

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Return the result of a function. Raises `NotEvaluated` if the function raises, does not end within `LIMIT_S`, or ends two processes.

        A process that ends is replaced once, because the operating system can have ended it, for example for the memory of another program.
        """
        request = pickle.dumps((function, arguments))
        process = self._idle.get()
        try:
            answer = None
            for _ in range(2):
                if process is None or process.poll() is not None:
                    self._end(process)
                    process = self._started()
                answer = _answer(process, request)
                if answer is not None:
                    break
                self._end(process)
                process = None
            if answer is None:
                raise NotEvaluated("the process that evaluates it ended, for example because it needs too much memory")
        except TimeoutError:
            self._end(process)
            process = None
            raise NotEvaluated(f"the evaluation takes longer than {LIMIT_S:.0f} s") from None
        except OSError as error:
            raise NotEvaluated(f"no process can be started to evaluate it: {error.strerror}") from None
        finally:
            self._idle.put(process)
        result, problem = answer
        if problem:
            raise NotEvaluated(problem)
        return result

    def _started(self) -> subprocess.Popen[bytes]:
        """Start a process with the modules of this process. A Ctrl-C in the terminal does not reach it."""
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)},
            start_new_session=True,
        )
        self._processes.add(process)
        return process

    def _end(self, process: subprocess.Popen[bytes] | None) -> None:
        if process is not None:
            self._processes.discard(process)
            _end_all({process})


@cache
def shared() -> Workers:
    """Return the workers of this process."""
    return Workers()


def _answer(process: subprocess.Popen[bytes], request: bytes) -> tuple[Any, str] | None:
    """Return the result and the problem of one call, or None if the process ended. Raises `TimeoutError`."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(request)
        process.stdin.flush()
    except OSError:
        return None
    if not select.select([process.stdout], [], [], LIMIT_S)[0]:
        raise TimeoutError
    try:
        return pickle.load(process.stdout)
    except (EOFError, pickle.UnpicklingError):
        return None


def _end_all(processes: set[subprocess.Popen[bytes]]) -> None:
    for process in tuple(processes):
        process.kill()
        process.communicate()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def serve() -> None:
    """Call the functions that arrive on the input until it ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            function, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = function(*arguments), ""
        except ValueError as error:
            answer = None, str(error) or "ValueError"
        except Exception as error:
            # The text of another error can quote the document.
            answer = None, f"{type(error).__name__} in the evaluation"
        answers.write(pickle.dumps(answer))
        answers.flush()


if __name__ == "__main__":
    serve()
