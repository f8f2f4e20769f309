"""systemd's own checker reads the units that nodes get, beside the units of vendors."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuinfra.shipped import shipped

OURS = sorted(path.name for path in (shipped("bootstrap") / "units").iterdir())
UNITS = json.loads((Path(__file__).parents[2] / "gpuinfra/rehearsal/tools/units.json").read_text(encoding="utf-8"))[
    "units"
]
ANALYZE = shutil.which("systemd-analyze")


def complaints(folder: Path, names: list[str]) -> list[str]:
    """The lines of `systemd-analyze verify` about these units. Programs of vendors do not exist here, so another one stands for them."""
    for name, lines in UNITS.items():
        if "/" not in name and not name.startswith("cloud-"):
            text = re.sub(r"(?m)^(Exec\w+)=.*$", r"\1=/bin/true", "\n".join(lines))
            (folder / name).write_text(text + "\n", encoding="utf-8")
    for name in OURS:
        if not (folder / name).exists():
            shutil.copy(shipped("bootstrap") / "units" / name, folder / name)
    done = subprocess.run(
        [str(ANALYZE), "verify", "--man=no", "--recursive-errors=no", *(str(folder / name) for name in names)],
        capture_output=True, text=True, check=False, env={"SYSTEMD_UNIT_PATH": f"{folder}:", "PATH": "/usr/bin:/bin", "SYSTEMD_LOG_TARGET": "console"},
    )  # fmt: skip
    lines = done.stderr.splitlines() or [f"exit code {done.returncode}"] * bool(done.returncode)
    return [line for line in lines if any(name in line for name in names)] or lines * bool(done.returncode)


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_every_unit(tmp_path: Path) -> None:
    """No unit has an unknown key, a missing dependency or an ordering cycle, beside the vendors' units; a broken one is reported."""
    assert complaints(tmp_path, OURS) == []
    broken = tmp_path / "gpuinfra-verify.service"
    broken.write_text(broken.read_text(encoding="utf-8").replace("\nAfter=", "\nAfer=", 1), encoding="utf-8")
    assert any("Afer" in line for line in complaints(tmp_path, ["gpuinfra-verify.service"]))
