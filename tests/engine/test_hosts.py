"""Where the language host of another runtime comes from, with stand-ins for Go and the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.base.errors import EnvironmentMissing
from gpuinfra.base.shipped import shipped
from gpuinfra.engine import Engine, hosts, keep
from gpuinfra.engine.go import NoGo
from gpuinfra.engine.module import CLI, read_module


def script(path: Path) -> Path:
    """An executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/bash\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine without other hosts, on a machine with an empty PATH and an empty cache."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("GPUINFRA_CACHE", str(tmp_path / "cache"))
    path = script(tmp_path / "engine" / "pulumi")
    return Engine(path=path, version="3.259.0", host_dir=path.parent, source="kept")


def test_host_next_to_the_engine_is_used(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine starts the host in its own folder, as in a release of Pulumi, so nothing is built."""
    monkeypatch.setattr(hosts, "build", None)
    script(engine.path.parent / "pulumi-language-yaml")
    assert hosts.find_host("yaml", engine) is None
    assert hosts.find_host("python", engine) is None


def test_host_on_path_is_used(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host on PATH is used with its folder, because a rehearsal does not use PATH."""
    monkeypatch.setattr(hosts, "build", None)
    script(tmp_path / "bin" / "pulumi-language-nodejs")
    assert hosts.find_host("nodejs", engine) == tmp_path / "bin"


@pytest.mark.parametrize("runtime", hosts.PROGRAMS)
def test_missing_host_is_built_once(engine: Engine, runtime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run builds the host from its module, and the second run uses the cache."""
    builds: list[str] = []

    def build(cache: Path, module: object, programs: tuple[str, ...], go: Path, _: object) -> Path:
        builds.append(programs[0])
        assert isinstance(module, hosts.Module)
        with keep.workplace(cache, module, programs) as place:
            script(place / f"pulumi-language-{runtime}")
            return keep.keep(place, cache, module, programs)

    monkeypatch.setattr(hosts, "build", build)
    monkeypatch.setattr(hosts.go, "find_go", lambda *_: Path("go"))
    first = hosts.find_host(runtime, engine)
    assert first is not None
    assert (first / f"pulumi-language-{runtime}").exists()
    assert hosts.find_host(runtime, engine) == first
    assert builds == [hosts.PROGRAMS[runtime]]


def test_without_go_the_error_lists_what_to_install(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the missing host, the reason and the alternatives."""

    def find_go(*_: object) -> Path:
        raise NoGo("no Go on PATH")

    monkeypatch.setattr(hosts.go, "find_go", find_go)
    with pytest.raises(EnvironmentMissing) as caught:
        hosts.find_host("yaml", engine)
    text = str(caught.value)
    assert text.startswith("no pulumi-language-yaml found, and it cannot be built: no Go on PATH")
    assert "Pulumi's release, in which pulumi-language-yaml is next to `pulumi`" in text


def test_module_of_yaml_does_not_change_the_engine(tmp_path: Path) -> None:
    """The key of the engine does not contain the module of the YAML host, which has a folder and a version of its own."""
    folder = tmp_path / "engine"
    for source in shipped("engine").rglob("*"):
        if source.is_file():
            target = folder / source.relative_to(shipped("engine"))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    before, yaml = read_module(folder), read_module(folder / "yaml")
    (folder / "yaml" / "go.sum").write_text("changed")
    assert read_module(folder).key((CLI,)) == before.key((CLI,))
    assert read_module(folder / "yaml").digest != yaml.digest
    (folder / "internal" / "host" / "host.go").write_text("package host")
    assert read_module(folder).digest != before.digest
