"""A logged-in SSH connection: handshake, host key, login, commands; a limit on every wait.

The host key is checked before anything of the person's is offered, and by `known.py` alone. Which stream it runs over is
`connect.py`'s business. It never retries.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from dataclasses import dataclass

import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from gpuinfra.remote.hosts import Host
from gpuinfra.remote.keys import agent as agent_of_person
from gpuinfra.remote.keys import default_keys, private_key
from gpuinfra.remote.known import Trust
from gpuinfra.remote.problem import HostProblem, Kind
from gpuinfra.remote.proxy import Helper, last_line

WEAK = {
    "ciphers": ["3des-cbc", "aes128-cbc", "aes192-cbc", "aes256-cbc"],
    "macs": ["hmac-sha1", "hmac-sha1-96", "hmac-md5", "hmac-md5-96"],
    "kex": ["diffie-hellman-group1-sha1", "diffie-hellman-group14-sha1", "diffie-hellman-group-exchange-sha1"],
    "keys": ["ssh-rsa", "ssh-dss"],
    "pubkeys": ["ssh-rsa", "ssh-dss"],
}
"""What paramiko would still agree to; no supported image needs any of it."""
KEPT_BYTES = 1 << 20
"""Of a command's output only this much is kept, the end of it: one host may not fill the operator's memory."""
_KEEPALIVE_S = 15
_LOG = logging.getLogger("gpuinfra.remote.ssh")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False  # paramiko reports a refused host as an error with a traceback; here it is an outcome


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long one thing may take, in seconds. Hundreds of handshakes share a core, so these are not tight."""

    connect_s: float = 20.0
    handshake_s: float = 60.0
    login_s: float = 60.0
    channel_s: float = 30.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command came to."""

    exit: int
    output: bytes
    dropped_bytes: int
    """Output that was not kept."""

    @property
    def last_words(self) -> str:
        """Its last line, for messages; nothing in it acts on a terminal."""
        return last_line(self.output) or "it said nothing"


class _Transport(paramiko.Transport):
    """Asks for the host key algorithms that can be verified, certificates among them."""

    wanted: tuple[str, ...] = ()

    @property
    def preferred_ciphers(self) -> tuple[str, ...]:
        # AES-GCM first, as OpenSSH would have it: it needs no MAC beside it, which here is Python's time for each packet.
        return tuple(sorted(super().preferred_ciphers, key=lambda name: "gcm" not in name))

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        return self.wanted


class Connection:
    """A logged-in connection."""

    def __init__(self, host: Host, helper: Helper | None, limits: Limits) -> None:
        self.host = host
        self._helper = helper
        self._limits = limits
        self._transport: _Transport | None = None
        self._agreed = threading.Event()
        self._left = False

    @property
    def alive(self) -> bool:
        """True while commands can be sent."""
        return self._transport is not None and self._transport.is_active()

    def begin(self, stream: socket.socket | paramiko.Channel, trust: Trust) -> None:
        """Shake hands, check the host key, log in: in this order."""
        limits, host = self._limits, self.host
        try:
            transport = _Transport(stream, disabled_algorithms=WEAK)  # type: ignore[arg-type]
            self._transport = transport
            transport.wanted = trust.algorithms
            transport.set_log_channel(_LOG.name)
            transport.daemon = True
            transport.banner_timeout = transport.handshake_timeout = limits.handshake_s
            transport.auth_timeout = limits.login_s
            # It would start a thread for each connection to time the handshake, which is timed below.
            transport.packetizer.start_handshake = lambda timeout: None
            transport.start_client(event=self._agreed)
            answered = self._agreed.wait(limits.handshake_s)
            if answered and (self._left or not transport.is_active()):
                raise transport.get_exception() or EOFError()
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._handshake_problem(error) from None
        if not answered:
            raise HostProblem(
                Kind.TIMEOUT,
                f"{host.name} ({host.where}) took the connection and did not shake hands within {limits.handshake_s:g} s",
                "is that sshd, and is the machine overloaded?",
            )
        trust.check(_shown_key(transport))
        self._login(transport)
        transport.set_keepalive(_KEEPALIVE_S)

    def run(self, command: str, stdin: bytes = b"", limit_s: float = 120.0, keep_bytes: int = KEPT_BYTES) -> Answer:
        """Run one command to its end. Raises `HostProblem` when the connection or the time ends first."""
        until = time.monotonic() + limit_s
        try:
            return self._run(command, stdin, until, limit_s, keep_bytes)
        except TimeoutError:
            raise HostProblem(
                Kind.TIMEOUT,
                f"{self.host.name} did not answer within {limit_s:g} s",
                "the machine is stalled or overloaded; what was started there goes on, run again to look",
            ) from None
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._dropped(words_of(error)) from None

    def tunnel(self, to: Host) -> paramiko.Channel:
        """A stream to another host, as this one reaches it."""
        assert self._transport is not None
        return self._transport.open_channel(
            "direct-tcpip", (to.address, to.port), ("127.0.0.1", 0), timeout=self._limits.channel_s
        )

    def close(self) -> None:
        """End it, whatever it is doing."""
        self._left = True
        self._agreed.set()  # paramiko tells nobody who waits for a handshake that was closed
        if self._transport is not None:
            self._transport.close()
        if self._helper is not None:
            self._helper.close()

    def _run(self, command: str, stdin: bytes, until: float, limit_s: float, keep_bytes: int) -> Answer:
        assert self._transport is not None
        channel = self._transport.open_session(timeout=min(self._limits.channel_s, limit_s))
        try:
            # One stream, so that a flood on the other cannot stop the command while nobody reads it.
            channel.set_combine_stderr(True)
            channel.settimeout(_left(until))
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
            if not channel.status_event.wait(_left(until)):
                raise TimeoutError
            if channel.exit_status == -1:
                raise self._dropped("it ended before the command did")
            return Answer(exit=channel.exit_status, output=bytes(output), dropped_bytes=dropped)
        finally:
            channel.close()

    @staticmethod
    def _receive(channel: paramiko.Channel, until: float) -> bytes:
        channel.settimeout(_left(until))
        return channel.recv(65536)

    def _login(self, transport: _Transport) -> None:
        host, tried, reasons = self.host, 0, []
        agent = None if host.identity else agent_of_person()
        try:
            offered = [
                key for path in host.identity or default_keys() if (key := private_key(path, reasons)) is not None
            ]
            for key in [*(agent.get_keys() if agent else ()), *offered]:
                tried += 1
                try:
                    transport.auth_publickey(host.user, key)
                except paramiko.BadAuthenticationType as error:
                    reasons.append(f"the machine wants {', '.join(error.allowed_types)}")
                except paramiko.AuthenticationException as error:
                    if not transport.is_active() and tried > 1:
                        reasons.append("the machine ended the connection after several keys; name one with identity")
                        break
                    if "timeout" in str(error).lower():
                        raise HostProblem(
                            Kind.TIMEOUT,
                            f"{host.name} did not answer a login within {self._limits.login_s:g} s",
                            "is the machine overloaded, or its directory service away?",
                        ) from None
                if transport.is_authenticated():
                    return
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._dropped(words_of(error), "while logging in") from None
        finally:
            if agent:
                agent.close()
        what = f"{tried} key{'s' if tried != 1 else ''} of " + (
            ", ".join(str(path) for path in host.identity) or "the agent and ~/.ssh"
        )
        raise HostProblem(
            Kind.LOGIN,
            f"{host.name} lets {host.user} in with none of {what}" + "".join(f"; {reason}" for reason in reasons[:3]),
            "give the right user and identity, or add the key to the agent (ssh-add)",
        )

    def _handshake_problem(self, error: BaseException) -> HostProblem:
        words, said = words_of(error), self._helper.last_words() if self._helper else ""
        if isinstance(error, IncompatiblePeer):
            return HostProblem(
                Kind.UNUSABLE,
                f"{self.host.name} and gpuinfra agree on no algorithm: {words}",
                "update its sshd; weak algorithms are not turned on again",
            )
        if self._helper:
            return HostProblem(
                Kind.UNREACHABLE,
                f"the proxy command of {self.host.name} gave no SSH connection: {said or words}",
                f"try it by hand: {' '.join(self.host.proxy_words())}",
            )
        if "banner" in words.lower() and "timed out" not in words.lower() and not isinstance(error, EOFError):
            return HostProblem(
                Kind.TIMEOUT if "timeout" in repr(error.__context__).lower() else Kind.UNREACHABLE,
                f"{self.host.name} ({self.host.where}) does not speak SSH: {words}",
                "is that sshd's port, and is the machine overloaded (MaxStartups)?",
            )
        return self._dropped(words, "during the handshake")

    def _dropped(self, words: str, when: str = "") -> HostProblem:
        return HostProblem(
            Kind.DROPPED,
            f"the connection to {self.host.name} was lost{' ' + when if when else ''}: {words}",
            "what was started there goes on; run again to look",
        )


def _shown_key(transport: paramiko.Transport) -> bytes:
    """The blob that the server signed the handshake for: the certificate where it showed one."""
    key = transport.get_remote_server_key()
    blob = key.public_blob
    return blob.key_blob if blob is not None else key.asbytes()


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def words_of(error: BaseException) -> str:
    """What an error says, as one line; nothing in it acts on a terminal."""
    text = str(error).splitlines()[0] if str(error) else "the other side closed it"
    return "".join(c if c.isprintable() else " " for c in text)[:300]
