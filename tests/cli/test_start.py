"""What the start and the end of a command cost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _python(code: str, *folders: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *folders])},
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("code", [0, 3])
def test_no_search_for_garbage_examines_the_objects_of_a_command_at_its_end(code: int) -> None:
    """`run` ends with the exit code of the command, and the last searches for garbage skip the objects that exist then."""
    done = _python(
        "import gc, gpuinfra.cli\n"
        f"gpuinfra.cli.main = lambda: {code}\n"
        "try:\n"
        "    gpuinfra.cli.run()\n"
        "finally:\n"
        "    print('examined', len(gc.get_objects()) < 1000 < gc.get_freeze_count())\n"
    )
    assert done.stdout == "examined True\n", done.stderr
    assert done.returncode == code


def test_a_plan_loads_no_plugins_of_pydantic(tmp_path: Path) -> None:
    """`gpuinfra plan` does not search the installed packages for plugins of pydantic."""
    metadata = tmp_path / "watch-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: watch\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[pydantic]\nwatch = watch:plugin\n")
    (tmp_path / "watch.py").write_text("import sys\nsys.exit('a plugin was loaded')\n")
    done = _python("from gpuinfra.cli import main\nmain(['plan', 'aws-p4d'])", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "USD an hour" in done.stdout


def test_a_plan_as_text_loads_no_table_of_emoji() -> None:
    """`gpuinfra plan` does not load rich's table of emoji, because its tables contain none."""
    done = _python(
        "import sys\n"
        "from gpuinfra.cli import main\n"
        "main(['plan', 'aws-p4d'])\n"
        "print('loaded', 'rich._emoji_codes' in sys.modules, file=sys.stderr)\n"
    )
    assert "loaded False" in done.stderr, done.stderr
    assert "USD an hour" in done.stdout
