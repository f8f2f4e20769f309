"""systemd's own checker reads the units that nodes get, beside the units of vendors."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuinfra.base.shipped import shipped

ROOT = Path(__file__).parents[2]
BOOT = "gpuinfra-boot.service"
"""The unit that user data installs."""
OURS = sorted([BOOT, *(path.name for path in (shipped("bootstrap") / "units").iterdir())])
UNITS = json.loads(
    (Path(__file__).parents[2] / "rehearsal/gpuinfra_rehearsal/tools/units.json").read_text(encoding="utf-8")
)["units"]
ANALYZE = shutil.which("systemd-analyze")


def _path(name: str) -> Path:
    return shipped("bootstrap") / ("boot" if name == BOOT else "units") / name


def complaints(folder: Path, names: list[str]) -> list[str]:
    """The lines of `systemd-analyze verify` about these units."""
    lines, code = verified(folder, names, "no")
    return [line for line in lines if any(name in line for name in names)] or lines * bool(code)


def verified(folder: Path, names: list[str], recursive: str) -> tuple[list[str], int]:
    """All lines of `systemd-analyze verify`, and its exit code. Programs of vendors do not exist here, so another one stands for them."""
    for name, lines in UNITS.items():
        if "/" not in name and not name.startswith("cloud-"):
            text = re.sub(r"(?m)^(Exec\w+)=.*$", r"\1=/bin/true", "\n".join(lines))
            (folder / name).write_text(text + "\n", encoding="utf-8")
    for name in OURS:
        if not (folder / name).exists():
            shutil.copy(_path(name), folder / name)
    done = subprocess.run(
        [str(ANALYZE), "verify", "--man=no", f"--recursive-errors={recursive}", *(str(folder / name) for name in names)],
        capture_output=True, text=True, check=False, env={"SYSTEMD_UNIT_PATH": f"{folder}:", "PATH": "/usr/bin:/bin", "SYSTEMD_LOG_TARGET": "console"},
    )  # fmt: skip
    return done.stderr.splitlines() or [f"exit code {done.returncode}"] * bool(done.returncode), done.returncode


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_every_unit(tmp_path: Path) -> None:
    """No unit has an unknown key, a missing dependency or an ordering cycle, beside the vendors' units; a broken one is reported."""
    assert complaints(tmp_path, OURS) == []
    broken = tmp_path / "gpuinfra-verify.service"
    broken.write_text(broken.read_text(encoding="utf-8").replace("\nAfter=", "\nAfer=", 1), encoding="utf-8")
    assert any("Afer" in line for line in complaints(tmp_path, ["gpuinfra-verify.service"]))


WRITTEN = re.compile(r"""(?<=")((?:\[Unit\]|\[Service\])\n[^"]*)"|(?<=')((?:\[Unit\]|\[Service\])\n[^']*)'""")
"""A unit or drop-in as a quoted text of a step."""


def texts() -> dict[str, str]:
    """Each service that the bundle ships, and each unit or drop-in that a step writes, by file and number."""
    shipped_units = {name: _path(name).read_text(encoding="utf-8") for name in OURS}
    found = {name: text for name, text in shipped_units.items() if name.endswith(".service")}
    for path in sorted(shipped("bootstrap").rglob("*.sh")):
        script = path.read_text(encoding="utf-8")
        written = [double or single for double, single in WRITTEN.findall(script)]
        assert sum(text.count("[Service]") for text in written) == script.count("[Service]"), path.name
        found |= {f"{path.name} {number}": text for number, text in enumerate(written, 1)}
    return found


def values(text: str, section: str, key: str) -> list[str]:
    """The values of a key in a section."""
    found, current = [], ""
    for line in text.splitlines():
        current = line if line.startswith("[") else current
        if current == f"[{section}]" and line.startswith(f"{key}="):
            found.append(line.partition("=")[2])
    return found


def test_no_program_writes_a_service() -> None:
    """Only steps and the bundle contain services, so `texts` covers all of them."""
    files = [path for path in (ROOT / "gpuinfra").rglob("*.py") if "rehearsal" not in path.parts]
    assert not [path.name for path in files if "[Service]" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", texts())
def test_a_service_that_always_restarts_has_no_start_limit(name: str) -> None:
    """By default, systemd leaves a unit failed after five starts within ten seconds, so `Restart=always` needs `StartLimitIntervalSec=0`."""
    text = texts()[name]
    always = values(text, "Service", "Restart") == ["always"]
    assert values(text, "Unit", "StartLimitIntervalSec") == ["0"] or not always, name
    assert not always or values(text, "Service", "RestartSec"), f"{name} restarts after 100 ms"


@pytest.mark.parametrize(("name", "prevented"), [(BOOT, []), ("gpuinfra-bootstrap.service", ["65"])])
def test_the_units_of_the_bootstrap_never_give_up(name: str, prevented: list[str]) -> None:
    """They start again after every failure, except after one that a retry cannot fix, and have neither a start limit nor a time limit."""
    text = texts()[name]
    assert values(text, "Service", "Restart") == ["on-failure"]
    assert values(text, "Service", "RestartPreventExitStatus") == prevented
    assert values(text, "Unit", "StartLimitIntervalSec") == ["0"]
    assert values(text, "Service", "TimeoutStartSec") == ["infinity"]


def test_the_proxy_of_homes_survives_a_shortage_of_memory() -> None:
    """A process of a user that fills the memory must not take the homes of all users with it; the proxy is small."""
    assert values(texts()["gpuinfra-home-tls.service"], "Service", "OOMScoreAdjust") == ["-500"]


def test_the_exporter_returns_and_waits_for_its_address() -> None:
    """The exporter listens at the node's private address only, so it starts after the network, and its messages are in the journal."""
    drop_in = texts()["77-dcgm-exporter.sh 1"]
    for key in ("Wants", "After"):
        assert values(drop_in, "Unit", key) == ["network-online.target"]
    wanted = {
        "Restart": "always",
        "RestartSec": "5",
        "TimeoutStopSec": "10",
        "StandardOutput": "journal",
        "StandardError": "journal",
    }
    assert {key: values(drop_in, "Service", key) for key in wanted} == {key: [value] for key, value in wanted.items()}
