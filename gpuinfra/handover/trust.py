"""Environment variables that change where the handover reads evidence and what proves an identity.

They are intended for sovereign clouds and for stand-ins on this machine. Every output that depends on these variables lists them, and an
address without TLS is accepted only on the loopback interface.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from gpuinfra.handover.ports import PortUnavailable

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def variables(cloud: str) -> tuple[str, ...]:
    """Return the variables that the handover for a cloud reads, which are the `TRUST_VARIABLES` of the cloud's module."""
    from gpuinfra.handover.connect import module

    try:
        return tuple(getattr(module(cloud), "TRUST_VARIABLES", ()))
    except PortUnavailable:
        return ()


def changed(cloud: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the variables that are set, in the form `NAME=VALUE`."""
    environ = os.environ if environ is None else environ
    return [f"{name}={environ[name][:200]}" for name in variables(cloud) if environ.get(name)]


def stated(cloud: str, environ: Mapping[str, str] | None = None) -> str:
    """Return one sentence that lists the variables that are set, or an empty string."""
    found = changed(cloud, environ)
    return f"Evidence and identities depend on {', '.join(found)}." if found else ""


def checked_address(name: str, default: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the address from a variable, or the default. An address that neither uses https nor is on the loopback interface is refused."""
    value = (os.environ if environ is None else environ).get(name) or default
    parts = urlsplit(value if "://" in value else f"http://{value}")
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise PortUnavailable(
            f"{name} is {value[:200]}; allowed: an https address, or http on 127.0.0.1; correct it or unset it"
        )
    return value
