"""Real OpenSSH servers on loopback, with their own configuration, keys and ports."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuinfra.remote.connect import Connector
from gpuinfra.remote.connection import Limits
from gpuinfra.remote.hosts import Host
from gpuinfra.remote.known import KnownHosts
from tests.servers import free_port


def sshd() -> str | None:
    """Path of the OpenSSH server, which is often outside PATH."""
    return shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


def installed() -> bool:
    """Whether the programs of OpenSSH are installed."""
    return all((sshd(), shutil.which("ssh-keygen"), shutil.which("ssh")))


def needed() -> pytest.MarkDecorator:
    """Skip the test if OpenSSH is not installed."""
    return pytest.mark.skipif(not installed(), reason="OpenSSH's sshd is not installed")


def needed_from_here() -> None:
    """Skip the rest of the test if OpenSSH is not installed."""
    if not installed():
        pytest.skip("OpenSSH's sshd is not installed, so this test ended early")


@dataclass
class Lab:
    """A folder with a user key, and servers that accept it."""

    folder: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        self.key = self.keygen("user")
        self.user = os.environ.get("USER") or subprocess.check_output(["id", "-un"], text=True).strip()
        shutil.copy(self.key.with_suffix(".pub"), self.folder / "authorized")

    def keygen(self, name: str) -> Path:
        """A new key pair."""
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)], check=True)
        return path

    def public(self, key: Path) -> str:
        """`type base64` of a key."""
        return " ".join(key.with_suffix(".pub").read_text().split()[:2])

    def sign(self, authority: Path, key: Path, *, names: str, host: bool = True, valid: str = "+1h") -> Path:
        """A certificate for a key."""
        kind = ["-h"] if host else []
        words = ["ssh-keygen", "-q", "-s", str(authority), *kind, "-I", "test", "-n", names, "-V", valid]
        subprocess.run([*words, str(key.with_suffix(".pub"))], check=True)
        return key.with_name(key.name + "-cert.pub")

    def serve(self, *, key: Path, addresses: tuple[str, ...] = ("127.0.0.1",), more: str = "") -> int:
        """Start a server on loopback addresses; returns its port."""
        self.made += 1
        port = free_port(*addresses)
        config = self.folder / f"sshd-{self.made}.conf"
        listens = "".join(f"ListenAddress {address}:{port}\n" for address in addresses)
        config.write_text(
            f"{listens}HostKey {key}\nPidFile none\nAuthorizedKeysFile {self.folder}/authorized\nStrictModes no\n"
            f"UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n"
            f"MaxStartups 400\nMaxSessions 400\nLogLevel VERBOSE\nPrintMotd no\n"
            f"Subsystem sftp internal-sftp\n"
            # Under sshd, bash reads .bashrc unless SHLVL shows a nested shell.
            f"SetEnv SHLVL=5\n{more}"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # privilege separation folder of sshd
        log = (self.folder / f"sshd-{self.made}.log").open("wb")
        server = sshd()
        assert server
        self.running.append(
            subprocess.Popen([server, "-D", "-e", "-f", str(config)], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        )
        log.close()
        wait_for(addresses[-1], port)
        return port

    def host(self, port: int, name: str = "node", address: str = "127.0.0.1", **fields: object) -> Host:
        """A host of this lab."""
        fields.setdefault("identity", (self.key,))
        return Host(name=name, address=address, port=port, user=self.user, **fields)  # type: ignore[arg-type]

    def connector(self, *hosts: Host, known: str = "", limits: Limits | None = None) -> Connector:
        """A connector that trusts these known_hosts lines."""
        file = self.folder / "known_hosts"
        file.write_text(known)
        return Connector(KnownHosts([file]), {host.name: host for host in hosts}, limits)

    def close(self) -> None:
        """Stop every server. Their child processes end with the connections."""
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait(300)


def wait_for(address: str, port: int) -> None:
    """Wait until a server listens on the port."""
    for _ in range(500):
        try:
            socket.create_connection((address, port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"no server listens on {address}:{port}")
