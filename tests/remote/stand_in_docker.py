"""A docker client and its daemon, for tests: a container is a process group of the daemon, so it survives its client.

`stand_in_docker.py SOCKET` is the daemon. `docker` in a folder of `install` is the client.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

VALUED = (
    "--name",
    "--network",
    "--ipc",
    "--ulimit",
    "--env",
    "--user",
    "--workdir",
    "--gpus",
    "--group-add",
    "--device",
    "--mount",
    "--entrypoint",
)


def install(folder: Path) -> Path:
    """Write the commands `docker` and `sudo` into a folder, and return the socket of the daemon."""
    at = folder / "socket"
    client = shlex.join([sys.executable, __file__, "client", str(at)])
    (folder / "docker").write_text(f'#!/bin/sh\nexec {client} "$@"\n')
    (folder / "sudo").write_text('#!/bin/sh\n[ "$1 $2" = "-n --" ] || exit 9\nshift 2\nexec "$@"\n')
    for name in ("docker", "sudo"):
        (folder / name).chmod(0o755)
    return at


def parse(argv: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The options of `docker run`, and the image with its arguments. Unknown options are refused, as docker does."""
    options: dict[str, list[str]] = {}
    rest = list(argv)
    while rest and rest[0].startswith("-"):
        name = rest.pop(0)
        assert name in (*VALUED, "--rm", "--init"), name
        options.setdefault(name, []).append(rest.pop(0) if name in VALUED else "")
    return options, rest


def client(at: str, argv: list[str]) -> int:
    """Send the command to the daemon. SIGTERM goes to the container. Returns its exit code."""
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.connect(at)
        signal.signal(signal.SIGTERM, lambda number, frame: daemon.send(b"T"))
        socket.send_fds(daemon, [json.dumps(argv).encode()], [1, 2])
        return int(daemon.makefile().read() or 125)


def serve(at: str) -> None:
    """Accept clients until SIGTERM, which also ends all containers."""
    running: dict[str, subprocess.Popen[bytes]] = {}

    def end(number: int, frame: object) -> None:
        for process in [*running.values()]:
            os.killpg(process.pid, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(at)
        server.listen()
        while True:
            threading.Thread(target=answer, args=(server.accept()[0], running), daemon=True).start()


def answer(peer: socket.socket, running: dict[str, subprocess.Popen[bytes]]) -> None:
    """Run or remove one container."""
    text, files, _, _ = socket.recv_fds(peer, 1 << 16, 2)
    verb, *argv = json.loads(text)
    if verb == "rm":
        found = running.get(argv[-1])
        if found:
            os.killpg(found.pid, signal.SIGKILL)
        peer.sendall(b"0" if found else b"1")
        peer.close()
        return
    options, (_, *words) = parse(argv)
    environ = {"PATH": os.environ["PATH"], **dict(one.split("=", 1) for one in options["--env"])}
    process = subprocess.Popen(
        [*options["--entrypoint"], *words], env=environ, cwd=options["--workdir"][0],
        stdin=subprocess.DEVNULL, stdout=files[0], stderr=files[1], start_new_session=True,
    )  # fmt: skip
    for file in files:
        os.close(file)
    running[options["--name"][0]] = process
    threading.Thread(target=relay, args=(peer, process), daemon=True).start()
    code = process.wait()
    del running[options["--name"][0]]
    try:
        peer.sendall(b"%d" % (code if code >= 0 else 128 - code))
        peer.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the client was killed


def relay(peer: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Forward each SIGTERM of the client."""
    while peer.recv(1):
        os.killpg(process.pid, signal.SIGTERM)


if __name__ == "__main__":
    if sys.argv[1] == "client":
        sys.exit(client(sys.argv[2], sys.argv[3:]))
    serve(sys.argv[1])
