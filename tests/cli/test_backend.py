"""The state backend of the last login, which `gpuinfra ready` checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.cli.stacks import current_backend, stacks_of
from gpuinfra.engine.find import Engine
from gpuinfra.errors import EnvironmentMissing


@pytest.mark.parametrize(
    ("script", "url"),
    [
        ("""echo '{"user": "u", "organizations": [], "url": "gs://state"}'""", "gs://state"),
        ("echo 'error: PULUMI_ACCESS_TOKEN must be set' >&2; exit 255", ""),
        ("echo '[]'", ""),
        ("echo '{}'", ""),
    ],
)
def test_backend_is_the_url_of_the_login(
    script: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CLI prints the URL (`pulumi whoami --json`). Without a login, the URL is unknown."""
    program = tmp_path / "pulumi"
    program.write_text(f'#!/bin/sh\n[ "$1 $2" = "whoami --json" ] || exit 1\n{script}\n')
    program.chmod(0o755)
    engine = Engine(path=program, version="3.259.0", host_dir=tmp_path, source="path")
    monkeypatch.setattr("gpuinfra.engine.find_engine", lambda **_: engine)
    assert current_backend() == url
    assert stacks_of({}).backend() == url


def test_backend_is_unknown_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing engine is not an error of `ready`."""

    def missing(**_: object) -> Engine:
        raise EnvironmentMissing("no engine")

    monkeypatch.setattr("gpuinfra.engine.find_engine", missing)
    assert current_backend() == ""
