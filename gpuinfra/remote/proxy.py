"""A proxy command: a process whose standard input and output are a connection, such as a cloud's tunnel."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile

from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import HostProblem, Kind


class Helper:
    """A proxy command: a process whose standard input and output are the connection."""

    def __init__(self, host: Host) -> None:
        words = host.proxy_words()
        self.socket, theirs = socket.socketpair()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        try:
            # A session of its own: an interrupt at the operator's terminal ends it through close(), with the rest.
            self._process = subprocess.Popen(
                words, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=self._said, start_new_session=True
            )
        except OSError as error:
            self.socket.close()
            self._said.close()
            raise HostProblem(
                Kind.UNUSABLE,
                f"the proxy command of {host.name} cannot start: {words[0]}: {error.strerror}",
                "install it or correct proxy_command",
            ) from None
        finally:
            theirs.close()

    def last_words(self) -> str:
        """What it complained about."""
        with contextlib.suppress(OSError, ValueError):
            end = self._said.seek(0, os.SEEK_END)
            self._said.seek(max(0, end - 2000))
            return last_line(self._said.read()) if end else ""
        return ""

    def close(self) -> None:
        """End the process and all that it started."""
        self.socket.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2)
                break
        self._said.close()


def last_line(output: bytes) -> str:
    """The last thing that was said, as one line; nothing in it acts on a terminal."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return "".join(c if c.isprintable() else " " for c in lines[-1][-300:]) if lines else ""
