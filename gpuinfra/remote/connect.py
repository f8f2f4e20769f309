"""The route to a host: sockets, jump hosts and proxy commands. `connection.py` runs SSH over it.

This module never retries. `fleet.py` retries without occupying a thread while it waits.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping

import paramiko

from gpuinfra.remote.connection import Connection, Limits, error_text
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.known import KnownHosts
from gpuinfra.remote.problem import HostProblem, ProblemKind
from gpuinfra.remote.proxy import ProxyCommand

_TCP_USER_TIMEOUT_MS = 45_000
"""How long sent data can remain unacknowledged. The TCP default is about 15 minutes."""


class Connector:
    """Opens connections for one fleet. All hosts behind a jump host share one connection to it."""

    def __init__(self, known_hosts: KnownHosts, by_name: Mapping[str, Host], limits: Limits | None = None) -> None:
        self.known = known_hosts
        self._by_name = by_name
        self._limits = limits or Limits()
        self._guard = threading.Lock()
        self._open: set[Connection] = set()
        self._jumps: dict[str, Connection] = {}
        self._jump_guards: dict[str, threading.Lock] = {}
        self.closed = False

    @contextlib.contextmanager
    def connect(self, host: Host) -> Iterator[Connection]:
        """Open a connection for the duration of a `with` block. Raises `HostProblem`."""
        connection = self._connect(host)
        try:
            yield connection
        finally:
            self._close(connection)

    def close(self) -> None:
        """Close every connection, which also ends all waits on these connections."""
        self.closed = True
        with self._guard:
            every = list(self._open)
        for connection in every:
            self._close(connection)

    def _connect(self, host: Host) -> Connection:
        trust = self.known.trust(host)
        stream, proxy = self._stream(host)
        connection = Connection(host, proxy, self._limits)
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
            raise HostProblem(
                ProblemKind.INTERRUPTED, f"{host.title} was interrupted", "run the same command again to continue"
            )
        return connection

    def _close(self, connection: Connection) -> None:
        with self._guard:
            self._open.discard(connection)
        connection.close()

    def _stream(self, host: Host) -> tuple[socket.socket | paramiko.Channel, ProxyCommand | None]:
        if host.jump:
            return self._through(host, self._by_name[host.jump]), None
        if host.proxy_command:
            proxy = ProxyCommand(host)
            return proxy.socket, proxy
        try:
            stream = socket.create_connection((host.address, host.port), timeout=self._limits.connect_s)
        except TimeoutError:
            raise HostProblem(
                ProblemKind.TIMEOUT,
                f"{host.title} ({host.where}) did not accept a connection within {self._limits.connect_s:g} s",
                "check that the host is running and that this machine can reach the port",
            ) from None
        except (OSError, UnicodeError) as error:
            raise HostProblem(
                ProblemKind.UNREACHABLE,
                f"{host.title} ({host.where}) cannot be reached: {getattr(error, 'strerror', None) or error}",
                "check that sshd is running and that the address and the port are correct",
            ) from None
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TCP_USER_TIMEOUT_MS)
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
                        problem.kind, f"{host.title} is behind {jump.name}: {problem.reason}", problem.hint
                    ) from None
        try:
            return connection.tunnel(host)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise HostProblem(
                ProblemKind.UNREACHABLE,
                f"{jump.name} did not forward a connection to {host.title} ({host.where}): {error_text(error)}",
                "check that the jump host can reach the host and that sshd on the jump host allows TCP forwarding",
            ) from None
