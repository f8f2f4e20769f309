"""An SSH connection: handshake, host key, login and commands, each with a time limit.

`known.py` verifies the host key before the connection offers any key of the user. `connect.py` provides the stream. This module never retries.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from gpuinfra.base.safe_text import one_line
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.keys import default_keys, private_key, ssh_agent
from gpuinfra.remote.known import HostTrust
from gpuinfra.remote.problem import HostProblem, ProblemKind
from gpuinfra.remote.proxy import ProxyCommand, last_line

WEAK = {
    "ciphers": ["3des-cbc", "aes128-cbc", "aes192-cbc", "aes256-cbc"],
    "macs": ["hmac-sha1", "hmac-sha1-96", "hmac-md5", "hmac-md5-96"],
    "kex": ["diffie-hellman-group1-sha1", "diffie-hellman-group14-sha1", "diffie-hellman-group-exchange-sha1"],
    "keys": ["ssh-rsa", "ssh-dss"],
    "pubkeys": ["ssh-rsa", "ssh-dss"],
}
"""Weak algorithms that paramiko accepts by default. No supported image needs them."""
MAX_OUTPUT_BYTES = 1 << 20
"""Number of bytes to keep from the end of a command's output, so that one host cannot exhaust the operator's memory."""
_KEEPALIVE_S = 15
_LOG = logging.getLogger("gpuinfra.remote.ssh")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False  # paramiko logs a refused host with a traceback, but here a refusal is a result


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Time limits in seconds. They are generous because hundreds of handshakes may share one core."""

    connect_s: float = 20.0
    handshake_s: float = 60.0
    login_s: float = 60.0
    channel_s: float = 30.0


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """The result of a command."""

    exit: int
    output: bytes
    dropped_bytes: int
    """Number of bytes of output that were discarded."""

    @property
    def last_line(self) -> str:
        """The last line of the output without control characters, for use in messages."""
        return last_line(self.output) or "no output"


class _Transport(paramiko.Transport):
    """Requests only host key algorithms that can be verified, including certificates."""

    host_key_algorithms: tuple[str, ...] = ()

    @property
    def preferred_ciphers(self) -> tuple[str, ...]:
        # AES-GCM needs no separate MAC, which paramiko computes in Python for each packet.
        return tuple(sorted(super().preferred_ciphers, key=lambda name: "gcm" not in name))

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        return self.host_key_algorithms


class RunningCommand:
    """A command that runs on a host, with standard input open and without a time limit."""

    def __init__(self, channel: paramiko.Channel, dropped: Callable[[str], HostProblem]) -> None:
        self._channel = channel
        self._dropped = dropped

    def stop(self) -> None:
        """Close the command's standard input. The command decides how it reacts."""
        with contextlib.suppress(OSError, paramiko.SSHException, EOFError):
            self._channel.shutdown_write()

    def wait(self, on_output: Callable[[bytes], None]) -> int:
        """Pass the combined output to `on_output` until the command exits, and return its exit code.

        Raises `HostProblem` if the connection is lost, and any exception of `on_output`.
        """
        try:
            while chunk := self._received():
                on_output(chunk)
            code = self._channel.recv_exit_status()
        finally:
            self._channel.close()
        if code == -1:
            raise self._lost("the connection closed before the command ended")
        return code

    def _received(self) -> bytes:
        try:
            return self._channel.recv(65536)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._lost(error_text(error)) from None

    def _lost(self, text: str) -> HostProblem:
        problem = self._dropped(text)
        return HostProblem(problem.kind, problem.reason, "the node stops the command; run the command again")


class Connection:
    """One SSH connection to a host."""

    def __init__(self, host: Host, proxy: ProxyCommand | None, limits: Limits) -> None:
        self.host = host
        self._proxy = proxy
        self._limits = limits
        self._transport: _Transport | None = None
        self._agreed = threading.Event()
        self._closed = False

    @property
    def alive(self) -> bool:
        """True while commands can be sent."""
        return self._transport is not None and self._transport.is_active()

    def begin(self, stream: socket.socket | paramiko.Channel, trust: HostTrust) -> None:
        """Complete the handshake, verify the host key, then log in."""
        limits, host = self._limits, self.host
        try:
            transport = _Transport(stream, disabled_algorithms=WEAK)  # type: ignore[arg-type]
            self._transport = transport
            transport.host_key_algorithms = trust.algorithms
            transport.set_log_channel(_LOG.name)
            transport.daemon = True
            transport.banner_timeout = transport.handshake_timeout = limits.handshake_s
            transport.auth_timeout = limits.login_s
            # paramiko starts a thread per connection to limit the time of the handshake. The wait below does not need a thread.
            transport.packetizer.start_handshake = lambda timeout: None
            transport.start_client(event=self._agreed)
            answered = self._agreed.wait(limits.handshake_s)
            if answered and (self._closed or not transport.is_active()):
                raise transport.get_exception() or EOFError()
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._handshake_problem(error) from None
        if not answered:
            raise HostProblem(
                ProblemKind.TIMEOUT,
                f"{host.title} ({host.where}) accepted the connection but did not complete the SSH handshake within {limits.handshake_s:g} s",
                "check that sshd listens on this port and that the machine is not overloaded",
            )
        trust.check(_presented_key(transport))
        self._login(transport)
        transport.set_keepalive(_KEEPALIVE_S)

    def run(
        self, command: str, stdin: bytes = b"", limit_s: float = 120.0, keep_bytes: int = MAX_OUTPUT_BYTES
    ) -> CommandResult:
        """Run one command to completion. Raises `HostProblem` if the connection closes or the time limit expires before the command ends."""
        until = time.monotonic() + limit_s
        try:
            return self._run(command, stdin, until, limit_s, keep_bytes)
        except TimeoutError:
            raise HostProblem(
                ProblemKind.TIMEOUT,
                f"{self.host.title} did not respond within {limit_s:g} s",
                "check that the machine is not overloaded; a command that has already started keeps running on the host; "
                "run gpuinfra again to see the state of the command",
            ) from None
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._dropped(error_text(error)) from None

    def start(self, command: str, stdin: bytes) -> RunningCommand:
        """Start a command and send it the beginning of its standard input. Raises `HostProblem`."""
        assert self._transport is not None
        try:
            channel = self._transport.open_session(timeout=self._limits.channel_s)
            channel.set_combine_stderr(True)
            channel.exec_command(command)
            channel.sendall(stdin)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._dropped(error_text(error)) from None
        return RunningCommand(channel, self._dropped)

    def tunnel(self, to: Host) -> paramiko.Channel:
        """Open a stream from this host to another host."""
        assert self._transport is not None
        return self._transport.open_channel(
            "direct-tcpip", (to.address, to.port), ("127.0.0.1", 0), timeout=self._limits.channel_s
        )

    def close(self) -> None:
        """Close the connection, even while it is in use."""
        self._closed = True
        self._agreed.set()  # paramiko does not wake a thread that waits for the handshake
        if self._transport is not None:
            self._transport.close()
        if self._proxy is not None:
            self._proxy.close()

    def _run(self, command: str, stdin: bytes, until: float, limit_s: float, keep_bytes: int) -> CommandResult:
        assert self._transport is not None
        channel = self._transport.open_session(timeout=min(self._limits.channel_s, limit_s))
        try:
            # Use one combined stream, because an unread second stream would fill its window and block the command.
            channel.set_combine_stderr(True)
            channel.settimeout(_remaining(until))
            channel.exec_command(command)
            if stdin:
                channel.sendall(stdin)
            channel.shutdown_write()
            output, dropped = bytearray(), 0
            while chunk := self._receive(channel, until):
                output += chunk
                if len(output) > 2 * keep_bytes:
                    dropped += len(output) - keep_bytes
                    del output[:-keep_bytes]
            if not channel.status_event.wait(_remaining(until)):
                raise TimeoutError
            if channel.exit_status == -1:
                raise self._dropped("the connection closed before the command ended")
            return CommandResult(exit=channel.exit_status, output=bytes(output), dropped_bytes=dropped)
        finally:
            channel.close()

    @staticmethod
    def _receive(channel: paramiko.Channel, until: float) -> bytes:
        channel.settimeout(_remaining(until))
        return channel.recv(65536)

    def _login(self, transport: _Transport) -> None:
        host, tried, reasons = self.host, 0, []
        agent = None if host.identity else ssh_agent()
        try:
            offered = [
                key for path in host.identity or default_keys() if (key := private_key(path, reasons)) is not None
            ]
            for key in [*(agent.get_keys() if agent else ()), *offered]:
                tried += 1
                try:
                    transport.auth_publickey(host.user, key)
                except paramiko.BadAuthenticationType as error:
                    reasons.append(f"the host accepts {', '.join(error.allowed_types)}")
                except paramiko.AuthenticationException as error:
                    if not transport.is_active() and tried > 1:
                        reasons.append(
                            "the host closed the connection after several keys were offered; set identity to one key"
                        )
                        break
                    if "timeout" in str(error).lower():
                        raise HostProblem(
                            ProblemKind.TIMEOUT,
                            f"{host.title} did not respond to the login within {self._limits.login_s:g} s",
                            "check that the machine and its directory service respond",
                        ) from None
                if transport.is_authenticated():
                    return
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._dropped(error_text(error), "while logging in") from None
        finally:
            if agent:
                agent.close()
        what = f"{tried} key{'s' if tried != 1 else ''} from " + (
            ", ".join(str(path) for path in host.identity) or "the agent and ~/.ssh"
        )
        raise HostProblem(
            ProblemKind.LOGIN,
            f"{host.title} refused the login of {host.user} with {what}"
            + "".join(f"; {reason}" for reason in reasons[:3]),
            "set the correct user and identity, or add the key to the agent (ssh-add)",
        )

    def _handshake_problem(self, error: BaseException) -> HostProblem:
        text, proxy_error = error_text(error), self._proxy.last_error() if self._proxy else ""
        if isinstance(error, IncompatiblePeer):
            return HostProblem(
                ProblemKind.UNUSABLE,
                f"{self.host.title} offers no algorithm that gpuinfra accepts: {text}",
                "update sshd on the host; weak algorithms cannot be enabled",
            )
        if self._proxy:
            return HostProblem(
                ProblemKind.UNREACHABLE,
                f"the proxy command of {self.host.title} did not open an SSH connection: {proxy_error or text}",
                f"run it manually: {' '.join(self.host.proxy_words())}",
            )
        if "banner" in text.lower() and "timed out" not in text.lower() and not isinstance(error, EOFError):
            return HostProblem(
                ProblemKind.TIMEOUT if "timeout" in repr(error.__context__).lower() else ProblemKind.UNREACHABLE,
                f"{self.host.title} ({self.host.where}) did not send an SSH banner: {text}",
                "check that sshd listens on this port and that the MaxStartups limit of sshd is not exceeded",
            )
        return self._dropped(text, "during the handshake")

    def _dropped(self, text: str, when: str = "") -> HostProblem:
        return HostProblem(
            ProblemKind.DROPPED,
            f"the connection to {self.host.title} was lost{' ' + when if when else ''}: {text}",
            "a command that has already started keeps running on the host; run gpuinfra again to see the state of the command",
        )


def _presented_key(transport: paramiko.Transport) -> bytes:
    """Return the key that signed the handshake, or its certificate if the server presented one."""
    key = transport.get_remote_server_key()
    blob = key.public_blob
    return blob.key_blob if blob is not None else key.asbytes()


def _remaining(until: float) -> float:
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def error_text(error: BaseException) -> str:
    """Return the first line of an error, without control characters."""
    return one_line((str(error).splitlines() or ["the remote side closed the connection"])[0], limit=300)
