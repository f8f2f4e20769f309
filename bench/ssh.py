"""Runs one command on 300 SSH hosts with gpuinfra, asyncssh, parallel-ssh and ansible in turn.

Usage: `make bench`, or:

    python3 tools/environment.py bench && .venv/bin/python bench/ssh.py [--hosts 300] [--rounds 3]

The hosts are real OpenSSH servers on loopback aliases (127.1.7.x), with 15 addresses per server, because OpenSSH listens on at most 16.
Servers and clients share the machine, so use the figures only to compare clients. The script has no pass criteria.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = ROOT / ".venv" / "bin" / "python"
THEIRS = ROOT / ".venv-bench" / "bin" / "python"
LISTENERS = 15
"""Number of addresses per server. OpenSSH listens on at most 16."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """An SSH tool that runs a command on all hosts."""

    name: str
    program: str
    python: Path
    parallel: tuple[int, ...]
    """Numbers of parallel connections to measure; the fastest counts."""
    held: int
    """Number of parallel connections in the memory measurement."""
    keys: str
    """How the tool verifies host keys."""


TOOLS = (
    Tool(name="gpuinfra", program="ours.py", python=OURS, parallel=(64, 300), held=300, keys="verified against known_hosts"),
    Tool(name="asyncssh", program="with_asyncssh.py", python=THEIRS, parallel=(64, 300), held=300, keys="verified against known_hosts"),
    Tool(name="parallel-ssh", program="with_parallel_ssh.py", python=THEIRS, parallel=(64, 300), held=300, keys="not verified: the tool has no code for it"),
    # On two cores, 64 forks are slower than 16, and 300 forks need too much memory.
    Tool(name="ansible", program="with_ansible.py", python=THEIRS, parallel=(16,), held=30, keys="verified by OpenSSH's client"),
)  # fmt: skip


def main() -> int:
    """Print the figures."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    arguments.add_argument("--hosts", type=int, default=300)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--no-memory", action="store_true", help="skip the memory measurement")
    options = arguments.parse_args()
    if missing := _missing():
        print(f"bench/ssh.py requires {missing}")
        return 3
    with tempfile.TemporaryDirectory(prefix="gpuinfra-bench-") as name, _servers(Path(name), options.hosts):
        folder = Path(name)
        _unknown_host_keys(folder)
        _speed(folder, options.hosts, options.rounds)
        if not options.no_memory:
            _memory(folder, options.hosts)
    return 0


def _unknown_host_keys(folder: Path) -> None:
    """Test which tools run a command on a host with an unknown key."""
    good = (folder / "known_hosts").read_text()
    (folder / "known_hosts").write_text("")
    for tool in TOOLS:
        answer = _run(tool, folder, 1, "true", hosts=1)
        print(
            f"{tool.name:<13} host keys {tool.keys}; on a host with an unknown key, it ran {answer['right']} of 1 commands"
        )
    (folder / "known_hosts").write_text(good)


def _speed(folder: Path, hosts: int, rounds: int) -> None:
    print(f"\n`true` on {hosts} hosts, seconds from the first connection to the last response, {rounds} rounds in turn")
    runs = [(tool, parallel) for tool in TOOLS for parallel in tool.parallel if parallel <= hosts]
    seconds: dict[tuple[str, int], list[float]] = {(tool.name, parallel): [] for tool, parallel in runs}
    cpu: dict[tuple[str, int], float] = {}
    for number in range(rounds):
        # Reverse the order in every other round, so that other load on the machine affects all tools.
        for tool, parallel in runs if number % 2 == 0 else reversed(runs):
            answer = _run(tool, folder, parallel, "true", hosts)
            if answer["right"] != hosts:
                print(f"{tool.name} with {parallel} connections: {answer['right']} of {hosts} hosts answered")
            seconds[tool.name, parallel].append(answer["seconds"])
            cpu[tool.name, parallel] = answer["cpu"]
    middle = {run: statistics.median(times) for run, times in seconds.items()}
    for (name, parallel), times in seconds.items():
        spread = ", ".join(f"{one:.2f}" for one in sorted(times))
        print(
            f"{name:<13} {parallel:>4} parallel  {middle[name, parallel]:6.2f} s  {hosts / middle[name, parallel]:5.0f} hosts/s  "
            f"{cpu[name, parallel] / hosts * 1000:5.1f} ms of client CPU per host  ({spread})"
        )
    best = {tool.name: min(value for (name, _), value in middle.items() if name == tool.name) for tool in TOOLS}
    rival = min((name for name in best if name != "gpuinfra"), key=best.__getitem__)
    print(f"speed of gpuinfra relative to the fastest other tool, {rival}: {best[rival] / best['gpuinfra']:.2f}")


def _memory(folder: Path, hosts: int) -> None:
    """Print the memory per parallel host: the client's process tree with many hosts, compared to one host."""
    print("\nclient memory with open connections (proportional set size of its processes)")
    for tool in TOOLS:
        held = min(tool.held, hosts)
        many, one = _peak(tool, folder, held, 12), _peak(tool, folder, 1, 2)
        print(
            f"{tool.name:<13} {one / 1024:6.1f} MiB with one, {many / 1024:7.1f} MiB with {held}: {(many - one) / max(1, held - 1):7.0f} KiB per host"
        )


def _peak(tool: Tool, folder: Path, held: int, sleep_s: int) -> int:
    """Run the command and return the peak memory of the client in KiB."""
    process = _start(tool, folder, held, f"sleep {sleep_s}", held)
    most = 0
    while process.poll() is None:
        most = max(most, _tree_kib(process.pid))
        time.sleep(0.25)
    process.communicate()
    return most


def _tree_kib(root: int) -> int:
    """Return the proportional set size of a process and its descendants, in KiB."""
    total, todo = 0, [root]
    while todo:
        pid = todo.pop()
        with contextlib.suppress(OSError, ValueError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
            for thread in Path(f"/proc/{pid}/task").iterdir():
                todo += [int(word) for word in (thread / "children").read_text().split()]
    return total


def _start(tool: Tool, folder: Path, parallel: int, command: str, hosts: int) -> subprocess.Popen[str]:
    words = [
        str(tool.python),
        str(ROOT / "bench" / "ssh_tools" / tool.program),
        str(folder),
        str(parallel),
        str(hosts),
        command,
    ]
    # Use a clean environment, without the user's agent, configuration or known hosts.
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    environment = {
        "LANG": "C.UTF-8",
        **kept,
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT) if tool.python == OURS else "",
    }
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _run(tool: Tool, folder: Path, parallel: int, command: str, hosts: int) -> dict[str, float]:
    """Run the tool once and return `{"seconds", "right", "cpu"}`."""
    out, _ = _start(tool, folder, parallel, command, hosts).communicate()
    lines = out.splitlines()
    return json.loads(lines[-1]) if lines else {"seconds": float("inf"), "right": 0, "cpu": 0.0}


@contextlib.contextmanager
def _servers(folder: Path, count: int) -> Iterator[None]:
    """Start servers that accept the benchmark's key, on one loopback address per host."""
    for name in ("user", "host"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)], check=True
        )
    shutil.copy(folder / "user.pub", folder / "authorized")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd requires its privilege separation folder
    public = " ".join((folder / "host.pub").read_text().split()[:2])
    hosts: list[tuple[str, int]] = []
    running: list[subprocess.Popen[bytes]] = []
    try:
        for start in range(0, count, LISTENERS):
            addresses = [f"127.{1 + n // 250}.7.{1 + n % 250}" for n in range(start, min(start + LISTENERS, count))]
            port = _free(addresses)
            config = folder / f"sshd-{start}.conf"
            config.write_text(
                "".join(f"ListenAddress {address}:{port}\n" for address in addresses)
                + f"HostKey {folder}/host\nPidFile none\nAuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
                "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nMaxStartups 1000\n"
                # Under sshd, bash reads .bashrc unless SHLVL shows a nested shell.
                "MaxSessions 1000\nLogLevel QUIET\nPrintMotd no\nSetEnv SHLVL=5\n"
            )
            running.append(subprocess.Popen([_sshd() or "sshd", "-D", "-f", str(config)], stdin=subprocess.DEVNULL))
            hosts += [(address, port) for address in addresses]
        for address, port in hosts[LISTENERS - 1 :: LISTENERS] + hosts[-1:]:
            _wait_for(address, port)
        (folder / "hosts.json").write_text(json.dumps(hosts))
        (folder / "known_hosts").write_text("".join(f"[{address}]:{port} {public}\n" for address, port in hosts))
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(10)


def _missing() -> str:
    if not _sshd() or not shutil.which("ssh-keygen"):
        return "OpenSSH's sshd (apt-get install openssh-server)"
    if not THEIRS.exists():
        return "the other tools: python3 tools/environment.py bench"
    return "" if OURS.exists() else "the project's environment: make dev"


def _sshd() -> str | None:
    return shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


def _free(addresses: list[str]) -> int:
    """Return a port that is free on all of these addresses."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        with contextlib.suppress(OSError):
            for address in addresses:
                with socket.socket() as probe:
                    probe.bind((address, port))
            return port


def _wait_for(address: str, port: int) -> None:
    for _ in range(500):
        with contextlib.suppress(OSError):
            socket.create_connection((address, port), timeout=1).close()
            return
        time.sleep(0.02)
    raise RuntimeError(f"no server listens on {address}:{port}")


if __name__ == "__main__":
    sys.exit(main())
