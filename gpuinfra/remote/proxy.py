"""Proxy commands: processes whose standard input and output carry an SSH connection, such as a cloud's tunnel."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile

from gpuinfra.base.safe_text import one_line
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.problem import HostProblem, ProblemKind


class ProxyCommand:
    """A running proxy command."""

    def __init__(self, host: Host) -> None:
        words = host.proxy_words()
        self.socket, child_end = socket.socketpair()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process runs
        try:
            # Use a separate session, so that Ctrl-C in the terminal does not reach the process. close() terminates the process.
            self._process = subprocess.Popen(
                words, stdin=child_end.fileno(), stdout=child_end.fileno(), stderr=self._stderr, start_new_session=True
            )
        except OSError as error:
            self.socket.close()
            self._stderr.close()
            raise HostProblem(
                ProblemKind.UNUSABLE,
                f"the proxy command of {host.title} cannot start: {words[0]}: {error.strerror}",
                "install the program or correct proxy_command",
            ) from None
        finally:
            child_end.close()

    def last_error(self) -> str:
        """Return the last line of the command's standard error."""
        with contextlib.suppress(OSError, ValueError):
            end = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, end - 2000))
            return last_line(self._stderr.read()) if end else ""
        return ""

    def close(self) -> None:
        """Terminate the process and its children."""
        self.socket.close()
        # A killed process exits at once, but a busy machine reports its exit later.
        for number, patience_s in ((signal.SIGTERM, 2), (signal.SIGKILL, 60)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
                break
        self._stderr.close()


def last_line(output: bytes) -> str:
    """Return the last non-empty line, without control characters."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return one_line(lines[-1][-300:]) if lines else ""
