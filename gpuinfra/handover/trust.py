"""Environment variables that change where the handover reads evidence and what proves an identity.

They are intended for sovereign clouds and for stand-ins on this machine. Every output that depends on these variables lists them, and an
address without TLS is accepted only on the loopback interface.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from gpuinfra.handover.connect import handover_of
from gpuinfra.handover.ports import PortUnavailable

CA_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that make OpenSSL and the client libraries trust other certificate authorities."""
_CA = frozenset({*CA_VARIABLES, "AWS_CA_BUNDLE"})
_SYSTEM_STORES = ("/etc/ssl/", "/etc/pki/", "/etc/ca-certificates/", "/usr/")
"""Directories of the operating system's certificates, which are always trusted."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def variables(cloud: str) -> tuple[str, ...]:
    """Return the variables that the handover for a cloud reads: the `TRUST_VARIABLES` of the cloud's module, and the variables for certificate authorities."""
    try:
        return (*handover_of(cloud).TRUST_VARIABLES, *CA_VARIABLES)
    except PortUnavailable:
        return ()


def changed(cloud: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the variables that are set, in the form `NAME=VALUE`."""
    environ = os.environ if environ is None else environ
    given = [(name, environ[name][:200]) for name in variables(cloud) if environ.get(name)]
    return [f"{name}={value}" for name, value in given if name not in _CA or not f"{value}/".startswith(_SYSTEM_STORES)]


def stated(cloud: str, environ: Mapping[str, str] | None = None) -> str:
    """Return one sentence that lists the variables that are set, or an empty string."""
    names = changed(cloud, environ)
    return f"Evidence and identities depend on {', '.join(names)}." if names else ""


def checked_address(name: str, default: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the address from a variable, or the default. An address that neither uses https nor is on the loopback interface is refused."""
    return checked((os.environ if environ is None else environ).get(name) or default, name)


def checked(value: str, name: str) -> str:
    """Return an address that uses https or is on the loopback interface. Other addresses are refused. `name` is the variable or setting."""
    parts = urlsplit(value if "://" in value else f"http://{value}")
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise PortUnavailable(
            f"{name} is {value[:200]}; allowed: an https address, or http on 127.0.0.1; correct the value or unset {name}"
        )
    return value
