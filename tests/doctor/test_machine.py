"""Questions about this machine."""

from __future__ import annotations

import os
from collections import namedtuple
from pathlib import Path

import pytest

from gpuinfra.clouds.preflight import PreflightRow, RowState
from gpuinfra.doctor import machine
from gpuinfra.engine import Engine, build, keep
from gpuinfra.engine.module import CLI, HOST, read_module


def _states(rows: list[PreflightRow]) -> list[RowState]:
    return [one.state for one in rows]


@pytest.mark.parametrize(
    ("version", "allowed", "fits"),
    [
        ("7.51.0", "<8,>=7.51", True),
        ("7.51", ">=7.51.0", True),
        ("7.50.9", "<8,>=7.51", False),
        ("8.0.0", "<8,>=7.51", False),
        ("3.11.7", ">=3.11", True),
        ("3.13.0rc1", ">=3.11", True),
        ("1.0", "", True),
    ],
)
def test_versions_are_compared_by_number(version: str, allowed: str, fits: bool) -> None:
    """A version is compared with each bound of a range, number by number."""
    assert machine.satisfies(version, allowed) is fits


def test_unknown_operators_are_refused() -> None:
    """An operator that is not supported is an error instead of an accepted version."""
    with pytest.raises(ValueError, match="operator"):
        machine.satisfies("1.0", "~=1.0")


def test_old_python_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python below the minimum of the package is a problem."""
    assert _states(list(machine.python())) == [RowState.OK]
    monkeypatch.setattr(machine.platform, "python_version", lambda: "3.10.1")
    (row,) = machine.python()
    assert (row.state, row.needed) == (RowState.ERROR, "Python >=3.11")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of engines, and a PATH without Pulumi."""
    monkeypatch.setenv("GPUINFRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return tmp_path / "cache"


def _keep_engine(cache: Path) -> Path:
    module, programs = read_module(), (CLI, HOST)
    with keep.lock(cache, module, programs, print), keep.workplace(cache, module, programs) as place:
        for name in ("pulumi", "pulumi-language-python"):
            (place / name).write_text(f"#!/bin/sh\necho {name}\n")
            (place / name).chmod(0o755)
        return keep.keep(place, cache, module, programs)


def test_missing_engine_is_a_warning_with_the_build_command(cache: Path) -> None:
    """Without an engine, the row states the command that builds one, and nothing is built."""
    (row,) = machine.engine()
    assert (row.state, row.fix) == (RowState.WARN, "python -m gpuinfra.engine")
    assert "pulumi and pulumi-language-python" in row.found
    assert " are neither on PATH nor in " in row.found
    assert "downloads or builds one" in row.needed
    assert not (cache / "engine").exists()


def test_changed_engine_is_a_problem(cache: Path) -> None:
    """An engine with a changed byte but the recorded size and time is a problem with the command that builds it again."""
    folder = _keep_engine(cache)
    assert _states(list(machine.engine())) == [RowState.OK]
    program = folder / "pulumi"
    times = program.stat()
    program.write_text(program.read_text().replace("echo", "ECHO"))
    os.utime(program, ns=(times.st_atime_ns, times.st_mtime_ns))
    (row,) = machine.engine()
    assert row.state is RowState.ERROR
    assert "pulumi in" in row.found
    assert row.fix == f"rm -r {folder} && python -m gpuinfra.engine"


def test_old_engine_on_path_is_named(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Pulumi on PATH that is too old is named with its version."""
    old = tmp_path / "bin" / "pulumi"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho v3.1.0\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:/usr/bin:/bin")
    (row,) = machine.engine()
    assert row.state is RowState.WARN
    assert f"{old} is version 3.1.0" in row.found


def test_missing_sdk_is_a_problem_only_for_the_cloud_of_a_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is skipped without a stack and a problem with one. Both rows name the install command."""
    monkeypatch.setattr(machine, "installed_version", lambda name: None if name == "boto3" else "7.51.0")
    for required, state in ((True, RowState.ERROR), (False, RowState.SKIPPED)):
        (row,) = machine.sdk("aws", required=required)
        assert (row.state, row.found) == (state, "boto3 not installed")
        assert row.fix.startswith("`pip install 'gpuinfra[aws]'`")


def test_sdk_of_another_version_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package outside of the range of the package is a problem."""
    monkeypatch.setattr(machine, "installed_version", lambda name: "6.0.0" if name == "pulumi-aws" else "1.40.1")
    row = next(iter(machine.sdk("aws", required=True)))
    assert (row.state, row.found) == (RowState.ERROR, "pulumi-aws 6.0.0 installed")


def test_plugin_is_complete_missing_or_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that Pulumi can download is a warning; an incomplete one, or one that it may not download, is a problem."""
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "as_run_here", lambda fix: fix)
    monkeypatch.delenv("PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION", raising=False)
    (row,) = machine.plugin("pulumi_aws")
    version = row.needed.split()[1]
    assert (row.state, row.fix) == (RowState.WARN, f"pulumi plugin install resource aws {version}")
    monkeypatch.setenv("PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION", "true")
    (row,) = machine.plugin("pulumi_aws")
    assert (row.state, row.fix) == (RowState.ERROR, f"pulumi plugin install resource aws {version}")
    folder = tmp_path / "plugins" / f"resource-aws-v{version}"
    folder.mkdir(parents=True)
    assert _states(list(machine.plugin("pulumi_aws"))) == [RowState.OK]
    folder.with_name(f"{folder.name}.partial").touch()
    (row,) = machine.plugin("pulumi_aws")
    assert (row.state, row.found) == (RowState.ERROR, f"{folder} is incomplete")


def test_fixes_start_the_pulumi_of_this_machine(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fix names `pulumi` if it is on PATH, otherwise the engine in the cache, and without an engine the command that builds one."""
    fix = "pulumi login, or pulumi plugin install resource aws 7.0.0 && pulumi up"
    command = 'PATH="$(python -m gpuinfra.engine --folder):$PATH" pulumi'
    assert machine.as_run_here("pulumi login") == f"{command} login"
    once = 'run `export PATH="$(python -m gpuinfra.engine --folder):$PATH"`, then '
    assert machine.as_run_here(fix) == f"{once}{fix}"
    folder = _keep_engine(cache)
    assert machine.as_run_here("pulumi login") == f"{folder / 'pulumi'} login"
    assert machine.as_run_here(fix) == f'run `export PATH="{folder}:$PATH"`, then {fix}'
    engine = Engine(path=folder / "pulumi", version="3.300.0", host_dir=folder, source="path")
    monkeypatch.setattr(machine, "find_engine", lambda **_: engine)
    assert machine.as_run_here("pulumi login") == "pulumi login"


def test_the_cache_has_space_for_the_build_of_an_engine(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an engine, less space than a build needs is a warning. With an engine in the cache, it is enough."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: usage(10, 10, 2e9))

    def row() -> PreflightRow:
        asked = [one for one in machine.questions([], required=False) if one.topic == "disk"]
        return next(iter(asked[0].ask()))

    assert (row().state, row().needed) == (
        RowState.WARN,
        f"{build.FREE_GB:g} GB, if the engine must be built from source",
    )
    _keep_engine(cache)
    assert row().state is RowState.OK


def test_full_disk_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than 1 GB of free space is a problem with the fix. A folder that does not exist yet counts as its parent."""
    (row,) = machine.space("cache", tmp_path / "a" / "b", "use another disk")
    assert row.state is RowState.OK
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: usage(10, 10, 5e8))
    (row,) = machine.space("cache", tmp_path / "a" / "b", "use another disk")
    assert (row.state, row.found) == (RowState.ERROR, f"0.5 GB free in {tmp_path}")
    assert row.fix == "use another disk"


def test_folder_that_is_not_writable_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without write permission is a problem. Root can write everywhere, so the answer of the kernel is replaced."""
    monkeypatch.setattr(machine.os, "access", lambda *_: False)
    (row,) = machine.space("cache", tmp_path, "use another disk")
    assert (row.state, row.found) == (RowState.ERROR, f"{tmp_path} is not writable")
