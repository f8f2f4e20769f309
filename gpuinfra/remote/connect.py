"""The way to a host: sockets, jump hosts, proxy commands; a connection over it is `connection.py`.

It never retries: `fleet.py` does, so that a wait for one host holds no thread.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping

import paramiko

from gpuinfra.remote.connection import Connection, Limits, words_of
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.known import Known
from gpuinfra.remote.problem import HostProblem, Kind
from gpuinfra.remote.proxy import Helper

_GONE_MS = 45_000
"""A peer that acknowledges nothing for so long is gone; without this TCP waits a quarter of an hour."""


class Connector:
    """Opens connections for one fleet; jump hosts are connected once and shared."""

    def __init__(self, known: Known, by_name: Mapping[str, Host], limits: Limits | None = None) -> None:
        self._known = known
        self._by_name = by_name
        self._limits = limits or Limits()
        self._guard = threading.Lock()
        self._open: set[Connection] = set()
        self._jumps: dict[str, Connection] = {}
        self._jump_guards: dict[str, threading.Lock] = {}
        self.closed = False

    @contextlib.contextmanager
    def connect(self, host: Host) -> Iterator[Connection]:
        """A connection for the length of a `with`. Raises `HostProblem`."""
        connection = self._connect(host)
        try:
            yield connection
        finally:
            self._close(connection)

    def close(self) -> None:
        """End every connection, which also ends every wait on one."""
        self.closed = True
        with self._guard:
            every = list(self._open)
        for connection in every:
            self._close(connection)

    def _connect(self, host: Host) -> Connection:
        trust = self._known.of(host)
        stream, helper = self._stream(host)
        connection = Connection(host, helper, self._limits)
        with self._guard:
            if not self.closed:
                self._open.add(connection)
        try:
            connection.begin(stream, trust)
        except BaseException:
            self._close(connection)
            stream.close()
            raise
        if self.closed:
            self._close(connection)
            raise HostProblem(Kind.INTERRUPTED, f"{host.name} was left", "run the same command again to go on")
        return connection

    def _close(self, connection: Connection) -> None:
        with self._guard:
            self._open.discard(connection)
        connection.close()

    def _stream(self, host: Host) -> tuple[socket.socket | paramiko.Channel, Helper | None]:
        if host.jump:
            return self._through(host, self._by_name[host.jump]), None
        if host.proxy_command:
            helper = Helper(host)
            return helper.socket, helper
        try:
            stream = socket.create_connection((host.address, host.port), timeout=self._limits.connect_s)
        except TimeoutError:
            raise HostProblem(
                Kind.TIMEOUT,
                f"{host.name} ({host.where}) did not take a connection within {self._limits.connect_s:g} s",
                "is it running, and may this machine reach that port?",
            ) from None
        except (OSError, UnicodeError) as error:
            raise HostProblem(
                Kind.UNREACHABLE,
                f"{host.name} ({host.where}) cannot be reached: {getattr(error, 'strerror', None) or error}",
                "is sshd running there, and are address and port right?",
            ) from None
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_MS)
        return stream, None

    def _through(self, host: Host, jump: Host) -> paramiko.Channel:
        with self._guard:
            guard = self._jump_guards.setdefault(jump.name, threading.Lock())
        with guard:
            connection = self._jumps.get(jump.name)
            if connection is None or not connection.alive:
                try:
                    connection = self._jumps[jump.name] = self._connect(jump)
                except HostProblem as problem:
                    raise HostProblem(
                        problem.kind, f"{host.name} is behind {jump.name}: {problem.reason}", problem.hint
                    ) from None
        try:
            return connection.tunnel(host)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise HostProblem(
                Kind.UNREACHABLE,
                f"{jump.name} did not pass a connection on to {host.name} ({host.where}): {words_of(error)}",
                "may the jump host reach it, and does its sshd allow TCP forwarding?",
            ) from None
