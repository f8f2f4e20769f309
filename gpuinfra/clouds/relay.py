"""Copies bytes between a socket and standard input and output, for programs that are proxy commands."""

from __future__ import annotations

import contextlib
import os
import socket
import threading

_CHUNK = 65536


def relay(stream: socket.socket) -> None:
    """Copy bytes in both directions until the remote side closes."""
    stream.settimeout(None)

    def up() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(0, _CHUNK):
                stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)

    threading.Thread(target=up, daemon=True).start()
    with contextlib.suppress(OSError):
        while data := stream.recv(_CHUNK):
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]
