"""Downloads Pulumi's official release instead of building the engine.

The archive is compared with the SHA-256 in the checksum file of the same release. Both come from the same host over TLS, so the comparison
detects a damaged download, but not a host that serves different files (docs/internals/decisions/engine.md). Names and addresses follow Pulumi's
own installer; retrieved 2026-11-23. The proxy settings in `HTTPS_PROXY` and `NO_PROXY` apply.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import platform
import re
import shutil
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gpuinfra.base.errors import reason_of
from gpuinfra.engine import child, keep
from gpuinfra.engine.module import CLI, HOST, Module

Progress = Callable[[str], None]

BASE = "https://get.pulumi.com/releases/sdk"
"""Address of the releases."""
PROGRAMS = (CLI, HOST)
"""What a release provides."""
NEEDED = ("pulumi", "pulumi-language-python", "pulumi-language-python-exec", "pulumi-resource-pulumi-python")
"""Programs in the archive that a Python program requires."""
OPTIONAL = ("pulumi-analyzer-policy-python", "pulumi-language-nodejs", "pulumi-language-yaml")
"""Programs in the archive that are also kept: the one that runs policy packs, and the language hosts of other runtimes."""
FIRST_ANSWER_S = 2.5
"""Time limit for the checksum file. A machine without internet access waits at most this long."""
STALL_S = 30.0
"""A connection that transfers nothing for this long is closed, and the download continues with a new one."""
ATTEMPTS = 5
"""Maximum number of connections for one archive."""
LIMIT_S = 1800.0
"""Time limit for the whole download. The received part is kept for the next run."""
PROGRESS_EVERY_S = 10.0
CHUNK = 1 << 18
MAX_CHECKSUMS = 1_000_000
"""Maximum size of the checksum file in bytes."""
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


class NotAvailable(Exception):
    """The release cannot be used. The text is the reason."""


_known: dict[str, str] = {}
"""The reason why an address cannot be used, keyed by address, so that a run tries each address once."""


def module_of(module: Module) -> Module:
    """Return the module under whose key a release is kept. A release does not depend on this project's sources."""
    return replace(module, digest="release")


def download(cache: Path, module: Module, progress: Progress) -> Path | None:
    """Download the release and add it to the cache. The caller holds `keep.lock` of `PROGRAMS`.

    Return None after one line of progress if the release cannot be used.
    """
    name = f"pulumi-v{module.version}-{archive_platform()}.tar.gz"
    address = f"{BASE}/{name}"
    if address in _known:
        return None
    try:
        started = time.monotonic()
        expected = _checksum(f"{BASE}/pulumi-{module.version}-checksums.txt", name)
        progress(f"engine: downloading Pulumi {module.version} from {BASE}")
        archive = _archive(cache / "engine" / f".download-{name}", address, expected, progress)
        kept = module_of(module)
        with keep.workplace(cache, kept, PROGRAMS) as place:
            _unpack(archive, place)
            _check(place, module)
            folder = keep.keep(place, cache, kept, PROGRAMS)
        archive.unlink(missing_ok=True)
    except (NotAvailable, tarfile.TarError, EOFError) as error:
        _known[address] = str(error)
        progress(f"engine: Pulumi's release cannot be used: {error}; building the engine from source instead")
        return None
    progress(f"engine: Pulumi {module.version} is ready after {time.monotonic() - started:.0f} s: {folder}")
    return folder


def archive_platform() -> str:
    """Return the name of this platform in the name of an archive, such as `linux-x64`."""
    machine = platform.machine().lower()
    return f"{'darwin' if sys.platform == 'darwin' else 'linux'}-{_MACHINES.get(machine, machine)}"


def _checksum(address: str, name: str) -> str:
    """Return the SHA-256 of an archive from the checksum file. It is the first request, so it determines whether the host can be reached."""
    answer: list[bytes] = []
    reason: list[str] = []

    def read() -> None:
        try:
            with _open(urllib.request.Request(address), FIRST_ANSWER_S) as response:
                answer.append(response.read(MAX_CHECKSUMS))
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason.append(_reason(error))

    # The time limit of a connection does not include the name lookup, so a thread has the time limit.
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(FIRST_ANSWER_S)
    if not answer:
        raise NotAvailable(f"{address}: {reason[0] if reason else f'no response within {FIRST_ANSWER_S:g} s'}")
    for line in answer[0].decode("utf-8", "replace").splitlines():
        if match := re.fullmatch(rf"([0-9a-f]{{64}}) [ *]{re.escape(name)}", line.strip()):
            return match[1]
    raise NotAvailable(f"{address} has no checksum of {name}")


def _archive(path: Path, address: str, expected: str, progress: Progress) -> Path:
    """Download an archive, continue an interrupted download, and compare the checksum. An archive with a different checksum is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    problem = ""
    for _ in range(ATTEMPTS):
        if time.monotonic() - began > LIMIT_S:
            problem = f"not complete within {LIMIT_S / 60:.0f} minutes"
            break
        try:
            _receive(path, address, began, progress)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code != 416:
                raise NotAvailable(f"{address}: {_reason(error)}") from None
            if not isinstance(error, urllib.error.HTTPError):
                problem = _reason(error)
                continue
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest == expected:
            return path
        path.unlink()
        problem = f"its SHA-256 is {digest}, but the checksum file of the release has {expected}"
    raise NotAvailable(f"{address}: {problem}")


def _receive(path: Path, address: str, began: float, progress: Progress) -> None:
    """Receive the missing part of a file. Raises `OSError` if the connection ends early, or if the time limit is reached."""
    there = path.stat().st_size if path.exists() else 0
    request = urllib.request.Request(address, headers={"Range": f"bytes={there}-"} if there else {})
    with _open(request, STALL_S) as response:
        if there and response.status != http.HTTPStatus.PARTIAL_CONTENT:
            there = 0  # The server sends the whole file.
        size = there + int(response.headers.get("Content-Length") or 0)
        last = time.monotonic()
        with path.open("ab" if there else "wb") as file:
            while chunk := response.read1(CHUNK):  # `read` would discard a part when the connection stalls.
                file.write(chunk)
                there += len(chunk)
                now = time.monotonic()
                if now - began > LIMIT_S:
                    raise OSError("the time limit is reached")
                if now - last >= PROGRESS_EVERY_S:
                    last = now
                    progress(f"engine: {there / 1e6:.0f} of {size / 1e6:.0f} MB downloaded, {now - began:.0f} s")
    if there < size:
        raise OSError(f"the connection ended after {there} of {size} bytes")


def _open(request: urllib.request.Request, timeout_s: float) -> http.client.HTTPResponse:
    """Send a request through the proxy of the environment. `urlopen` would use the environment of its first call."""
    return urllib.request.build_opener().open(request, timeout=timeout_s)


def _unpack(archive: Path, place: Path) -> None:
    """Copy the needed programs of an archive. Names, links and modes in the archive have no effect."""
    with tarfile.open(archive, "r:gz") as members:
        for member in members:
            name = member.name.rsplit("/", 1)[-1]
            source = members.extractfile(member) if member.isfile() and name in (*NEEDED, *OPTIONAL) else None
            if source is not None:
                with (place / name).open("wb") as target:
                    shutil.copyfileobj(source, target)
                (place / name).chmod(0o755)
    if missing := [name for name in NEEDED if not (place / name).exists()]:
        raise NotAvailable(f"{archive.name.removeprefix('.download-')} does not contain {', '.join(missing)}")


def _check(place: Path, module: Module) -> None:
    """Check that the CLI runs and prints its version."""
    answer = child.run([place / "pulumi", "version"])
    if answer.returncode or answer.stdout.strip() != f"v{module.version}":
        output = (answer.stdout + answer.stderr).strip() or f"exit code {answer.returncode}"
        raise NotAvailable(
            f"`pulumi` from the release does not run on this machine as v{module.version}: {output[-300:]}"
        )


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        with contextlib.suppress(OSError):
            error.close()
        return f"HTTP status {error.code}"
    return reason_of(error)
