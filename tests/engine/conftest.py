from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuinfra.engine import Engine, find_engine

TINY = Path(__file__).parent / "tiny"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The engine that `make test` uses; built here if the tests run alone."""
    return find_engine(lambda line: print(line, file=sys.stderr))


class Stack:
    """A separate Pulumi project and state, run by the real engine and this project's language host."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.folder = folder
        (folder / "state").mkdir()
        self.environment = engine.environ(
            {name: value for name, value in os.environ.items() if not name.startswith(("PULUMI_", "AWS_"))}
        ) | {
            "PULUMI_HOME": str(folder / "home"),
            "PULUMI_BACKEND_URL": f"file://{folder / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "only a test",
            "PULUMI_SKIP_UPDATE_CHECK": "1",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_PYTHON_CMD": sys.executable,
        }
        self.project()

    def project(self, *, options: dict[str, str] | None = None) -> None:
        """Write Pulumi.yaml with these runtime options and the tiny provider."""
        runtime = {"name": "python", "options": {"virtualenv": sys.prefix} if options is None else options}
        plugins = {"providers": [{"name": "tiny", "path": str(TINY)}]}
        about = {"name": "trial", "runtime": runtime, "plugins": plugins}
        (self.folder / "Pulumi.yaml").write_text(json.dumps(about))

    def program(self, text: str) -> None:
        (self.folder / "__main__.py").write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["pulumi", *arguments, "--non-interactive", "--color=never"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def up(self) -> tuple[int, str]:
        return self.run("up", "--yes", "--skip-preview")


@pytest.fixture
def stack(engine: Engine, tmp_path: Path) -> Stack:
    """An empty stack `dev`."""
    made = Stack(engine, tmp_path)
    made.program("")
    code, output = made.run("stack", "init", "dev")
    assert code == 0, output
    return made


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Wait until a condition is true."""

    def wait(condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < end, "the condition was not true within 300 s"
            time.sleep(0.02)

    return wait
