"""SSH to stand-in nodes: one loopback port per node, and one real sshd per connection.

A port presents its node's host keys, which are in the node's evidence, so known hosts are verified as on a deployed
node. The sshd is the host's and runs outside the node, because sshd changes users, which an unprivileged user namespace
does not allow (`serve.py`). Its forced command enters the node (`login.py`). Each sshd serves one connection, as
under inetd, so an idle node uses only one socket. The stand-in cloud determines the users and their keys (`StandIn.logins`).
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuinfra_rehearsal.nodes import login, serve
from gpuinfra_rehearsal.nodes.enter import LOGIN_UID
from gpuinfra_rehearsal.nodes.node import StandInNode
from gpuinfra_rehearsal.nodes.support import ISOLATED

HOST_KEYS = ("ed25519", "ecdsa", "rsa")
Logins = Callable[[str], Mapping[str, Iterable[str]]]
"""Instance ID -> users with their public keys."""
_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")


@dataclass
class _Port:
    node: StandInNode
    socket: socket.socket
    number: int


class SshPorts:
    """The SSH ports of all nodes of one rehearsal. Methods are thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "ssh"
        self.logins: Logins = lambda _: {}
        """Returns the users who can log in to an instance. Called for each connection."""
        self.problem = ""
        """The reason that nodes do not accept SSH connections on this system. Empty if they do."""
        self._ports: dict[str, _Port] = {}
        self._sessions: list[subprocess.Popen[bytes]] = []
        self._guard = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread: threading.Thread | None = None
        self._stopping = False

    def start(self) -> None:
        """Accept connections. Without sshd on this system, `problem` is set."""
        self.problem = self._prepare()
        self._thread = threading.Thread(target=self._answer, name="ssh ports", daemon=True)
        self._thread.start()

    def open(self, node: StandInNode) -> None:
        """Open the port of a node if it is not already open."""
        with self._guard:
            if self.problem or self._stopping or node.instance.id in self._ports:
                return
            listener = socket.create_server(("127.0.0.1", 0), backlog=64)
            listener.setblocking(False)
            port = _Port(node, listener, int(listener.getsockname()[1]))
            self._ports[node.instance.id] = port
            self._selector.register(listener, selectors.EVENT_READ, port)
        self._wake()

    def close(self, instance_id: str) -> None:
        """Close the port of a node."""
        with self._guard:
            port = self._ports.pop(instance_id, None)
            if port is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(port.socket)
                port.socket.close()

    def numbers(self) -> dict[str, int]:
        """Return the ports on 127.0.0.1, keyed by instance ID."""
        with self._guard:
            return {id: port.number for id, port in self._ports.items()}

    def stop(self) -> None:
        """Close all ports and end all sessions."""
        with self._guard:
            self._stopping = True
        self._wake()
        if self._thread is not None:
            self._thread.join(timeout=10)
        for id in list(self._ports):
            self.close(id)
        for process in self._sessions:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()

    def _prepare(self) -> str:
        if sshd_program() is None or shutil.which("ssh-keygen") is None:
            return "this system has no sshd, so stand-in nodes do not accept SSH connections; on Debian and Ubuntu, run: apt install openssh-server"
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        return ""

    def _answer(self) -> None:
        while not self._stopping:
            # A running select does not see new registrations, so each registration is followed by a wake-up.
            for key, _ in self._selector.select(timeout=1.0):
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        self._wake_read.recv(4096)
                else:
                    self._accept(key.data)
            self._sessions = [one for one in self._sessions if one.poll() is None]

    def _accept(self, port: _Port) -> None:
        try:
            connection, _ = port.socket.accept()
        except OSError:
            return
        with connection:
            connection.setblocking(True)
            init = port.node.init_pid
            if port.node.process is None or init is None:
                return  # a machine that is off or booting closes the connection
            config = self._config(port.node)
            sshd = sshd_program()
            if config is None or sshd is None:
                return
            log = port.node.folder / "sshd.log"
            words = [str(os.getpid()), str(init), str(port.node.folder / "passwd")]
            words += [sshd, "-i", "-f", str(config), "-E", str(log)]
            self._sessions.append(
                subprocess.Popen(
                    [*ISOLATED, serve.__file__, *words],
                    stdin=connection.fileno(),
                    stdout=connection.fileno(),
                    stderr=subprocess.DEVNULL,
                    env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "GPUINFRA_REHEARSAL": str(self.folder.parent)},
                    start_new_session=True,
                )
            )

    def _config(self, node: StandInNode) -> Path | None:
        """Return the sshd configuration of a node, or None while the node has no host key."""
        keys = [node.root / f"etc/ssh/ssh_host_{kind}_key" for kind in HOST_KEYS]
        keys = [key for key in keys if key.is_file()]
        if not keys:
            return None
        self._write_accounts(node)
        enter = shlex.join([*ISOLATED, login.__file__, str(node.folder)])
        file = node.folder / "sshd_config"
        partial = file.with_suffix(".part")
        partial.write_text(
            "".join(f'HostKey "{key}"\n' for key in keys)
            + f'AuthorizedKeysFile "{node.folder / "keys"}/%u"\nForceCommand {enter}\n'
            # The host user's shell starts the command. It must not read that user's files.
            f'SetEnv "HOME={self.folder / "home"}" SHLVL=5\n'
            # As in Ubuntu's own sshd_config. The forced command starts the program inside the node.
            "Subsystem sftp /usr/lib/openssh/sftp-server\n"
            "PidFile none\nStrictModes no\nUsePAM no\nUseDNS no\nPermitRootLogin prohibit-password\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nHostbasedAuthentication no\n"
            "AllowTcpForwarding no\nAllowAgentForwarding no\nX11Forwarding no\nPermitUserRC no\nPermitUserEnvironment no\n"
            "PrintMotd no\nPrintLastLog no\nMaxSessions 64\nLogLevel INFO\n",
            encoding="utf-8",
        )
        partial.replace(file)
        return file

    def _write_accounts(self, node: StandInNode) -> None:
        """Write the users of a node with their keys, and the sudo rule that an image or a guest agent sets up."""
        folder, sudoers = node.folder / "keys", node.root / "etc/sudoers.d"
        for path in (folder, sudoers):
            path.mkdir(parents=True, exist_ok=True)
        users = {user: tuple(keys) for user, keys in self.logins(node.instance.id).items() if _USER.fullmatch(user)}
        for user, keys in users.items():
            (node.root / "home" / user).mkdir(parents=True, exist_ok=True)
            (folder / user).write_text("".join(f"{key}\n" for key in keys), encoding="utf-8")
        rules = "".join(f"{user} ALL=(ALL) NOPASSWD:ALL\n" for user in users)
        (sudoers / "90-cloud-users").write_text(rules, encoding="utf-8")
        home = self.folder / "home"
        rows = "".join(f"{user}:x:{LOGIN_UID}:{LOGIN_UID}::{home}:/bin/bash\n" for user in users)
        (node.folder / "passwd").write_text(rows, encoding="utf-8")

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_write.send(b".")


def sshd_program() -> str | None:
    """Return the path of OpenSSH's server. /usr/sbin is often missing from PATH."""
    return shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))
