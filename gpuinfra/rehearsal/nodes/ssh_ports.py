"""SSH into stand-in nodes: one loopback port a node, and a real sshd for each connection.

A node's door answers with the node's own host keys, those that are in its evidence, so what the handover vouches for can
be verified here as on a deployed machine. The sshd is this computer's and runs outside of the node, because an ordinary
user cannot run one inside (it wants to change users); its only command enters the node (`login.py`).
It is made for one connection, as from inetd: nodes that nobody talks to cost a socket.
Whoever holds the key of this rehearsal (`ssh/operator`, made here) gets in as root, and nobody else.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from gpuinfra.rehearsal.nodes import login
from gpuinfra.rehearsal.nodes.node import Node
from gpuinfra.rehearsal.nodes.possible import ISOLATED

HOST_KEYS = ("ed25519", "ecdsa", "rsa")


@dataclass
class _Door:
    node: Node
    socket: socket.socket
    port: int


class Doors:
    """The doors of all nodes of one rehearsal. Every method may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "ssh"
        self.key = self.folder / "operator"
        self.problem = ""
        """Why no node answers SSH here; empty when they do."""
        self._doors: dict[str, _Door] = {}
        self._sessions: list[subprocess.Popen[bytes]] = []
        self._guard = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread: threading.Thread | None = None
        self._stopping = False

    def start(self) -> None:
        """Make the operator's key and begin to answer; where this computer has no sshd, say so and do nothing."""
        self.problem = self._prepare()
        self._thread = threading.Thread(target=self._answer, name="doors", daemon=True)
        self._thread.start()

    def open(self, node: Node) -> None:
        """Give a node its port. Safe to do again."""
        with self._guard:
            if self.problem or self._stopping or node.instance.id in self._doors:
                return
            listener = socket.create_server(("127.0.0.1", 0), backlog=64)
            listener.setblocking(False)
            door = _Door(node, listener, int(listener.getsockname()[1]))
            self._doors[node.instance.id] = door
            self._selector.register(listener, selectors.EVENT_READ, door)
        self._wake()

    def close(self, instance_id: str) -> None:
        """A node that is gone answers no more."""
        with self._guard:
            door = self._doors.pop(instance_id, None)
            if door is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(door.socket)
                door.socket.close()

    def where(self) -> dict[str, int]:
        """Instance id -> port on 127.0.0.1."""
        with self._guard:
            return {id: door.port for id, door in self._doors.items()}

    def stop(self) -> None:
        """Close all doors, and end who is inside."""
        with self._guard:
            self._stopping = True
        self._wake()
        if self._thread is not None:
            self._thread.join(timeout=10)
        for id in list(self._doors):
            self.close(id)
        for process in self._sessions:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()

    def _prepare(self) -> str:
        if _sshd() is None or shutil.which("ssh-keygen") is None:
            return "this computer has no sshd, so stand-in nodes answer no SSH; on Debian and Ubuntu: apt install openssh-server"
        if os.geteuid() == 0:
            with contextlib.suppress(OSError):  # sshd as root separates privileges there
                Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        if not self.key.exists():
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rehearsal", "-f", str(self.key)]
            done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
            if done.returncode != 0:
                return f"ssh-keygen made no key for this rehearsal: {done.stderr.strip()}"
        return ""

    def _answer(self) -> None:
        while not self._stopping:
            # Nobody registers in the middle of a select that has begun, so a wake-up follows each registration.
            for key, _ in self._selector.select(timeout=1.0):
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        self._wake_read.recv(4096)
                else:
                    self._let_in(key.data)
            self._sessions = [one for one in self._sessions if one.poll() is None]

    def _let_in(self, door: _Door) -> None:
        try:
            connection, _ = door.socket.accept()
        except OSError:
            return
        with connection:
            connection.setblocking(True)
            if door.node.process is None or door.node.init_pid is None:
                return  # A machine that is off or boots refuses: the other side sees a closed connection.
            config = self._config(door.node)
            sshd = _sshd()
            if config is None or sshd is None:
                return
            log = door.node.folder / "sshd.log"
            words = [sshd, "-i", "-f", str(config), "-E", str(log)]
            self._sessions.append(
                subprocess.Popen(
                    [*ISOLATED, login.__file__, "--tied-to", str(os.getpid()), *words],
                    stdin=connection.fileno(),
                    stdout=connection.fileno(),
                    stderr=subprocess.DEVNULL,
                    env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "GPUINFRA_REHEARSAL": str(self.folder.parent)},
                    start_new_session=True,
                )
            )

    def _config(self, node: Node) -> Path | None:
        """The settings of a node's sshd; None while the node has no host key yet."""
        keys = [node.root / f"etc/ssh/ssh_host_{kind}_key" for kind in HOST_KEYS]
        keys = [key for key in keys if key.is_file()]
        if not keys:
            return None
        enter = shlex.join([*ISOLATED, login.__file__, str(node.folder)])
        file = node.folder / "sshd_config"
        partial = file.with_suffix(".part")
        partial.write_text(
            "".join(f'HostKey "{key}"\n' for key in keys)
            + f'AuthorizedKeysFile "{self.key}.pub"\nForceCommand {enter}\n'
            # The shell that starts the command is this computer's user's; it must not read that person's files.
            f'SetEnv "HOME={self.folder / "home"}" SHLVL=5\n'
            "PidFile none\nStrictModes no\nUsePAM no\nUseDNS no\nPermitRootLogin prohibit-password\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nHostbasedAuthentication no\n"
            "AllowTcpForwarding no\nAllowAgentForwarding no\nX11Forwarding no\nPermitUserRC no\nPermitUserEnvironment no\n"
            "PrintMotd no\nPrintLastLog no\nMaxSessions 64\nLogLevel INFO\n",
            encoding="utf-8",
        )
        partial.replace(file)
        return file

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_write.send(b".")


def person() -> str:
    """The only name that a door lets in: who runs the rehearsal. Inside the node that is root."""
    return pwd.getpwuid(os.getuid()).pw_name


def _sshd() -> str | None:
    """Where OpenSSH's server is; /usr/sbin is on few people's PATH."""
    return shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))
