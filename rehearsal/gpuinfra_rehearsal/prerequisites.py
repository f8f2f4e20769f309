"""Checks what stand-in nodes require on this machine, as rows of `gpuinfra doctor`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from gpuinfra.clouds.preflight import PreflightQuestion, PreflightRow, ok, warning
from gpuinfra_rehearsal.nodes.ssh_ports import sshd_program
from gpuinfra_rehearsal.nodes.support import available

TOPIC = "rehearsal"


def questions() -> Iterator[PreflightQuestion]:
    """Yield the questions. A rehearsal without nodes, or without SSH to them, is still possible, so the rows are warnings."""
    yield PreflightQuestion(topic=TOPIC, where="namespaces", ask=namespaces)
    yield PreflightQuestion(topic=TOPIC, where="sshd", ask=sshd)


def namespaces() -> Iterator[PreflightRow]:
    """This system allows the namespaces of stand-in nodes."""
    possible, why = available()
    if possible:
        yield ok(TOPIC, "namespaces", "user namespaces are allowed")
        return
    reason, _, fix = why.partition("; ")
    yield warning(TOPIC, "namespaces", reason, "user namespaces for stand-in nodes", fix or "rehearse on Linux")


def sshd() -> Iterator[PreflightRow]:
    """An OpenSSH server is installed, for SSH to stand-in nodes."""
    program = sshd_program()
    if program and shutil.which("ssh-keygen"):
        yield ok(TOPIC, "sshd", program)
    else:
        missing = "ssh-keygen" if program else "sshd"
        needed = "OpenSSH, for commands on stand-in nodes"
        yield warning(TOPIC, "sshd", f"{missing} not found", needed, "sudo apt-get install openssh-server")
