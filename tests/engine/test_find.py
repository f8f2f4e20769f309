"""Which engine is used, and how the cache works, with stand-ins for Go, `pulumi` and the package index."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinfra.engine import Engine, find, keep
from gpuinfra.engine.module import CLI, HOST, read_module

MODULE = read_module()
BOTH = (CLI, HOST)

GO = """#!/bin/bash
PATH=/usr/bin:/bin
case "$1 $2" in
"env GOVERSION") echo "go$GO_VERSION" ;;
"list -deps") echo "go: downloading example.org/a v1.0.0" >&2 && printf '1\\n\\n1\\n' ;;
"list -m") echo "$GO_SDK" ;;
"build -v")
  echo "$$" >>"$GO_LOG"
  while [[ $1 != -o ]]; do shift; done
  out=$2
  printf 'example.org/a\\nexample.org/b\\n' >&2
  if [[ -n $GO_FAILS ]]; then echo "a.go:1:1: disk full" >&2 && exit 1; fi
  printf '#!/bin/bash\\n' >"$out/pulumi" && chmod +x "$out/pulumi"
  exec 3<> <(:) && read -r -t "$GO_SECONDS" -u 3 # a wait that starts no process
  echo "echo v$GO_BUILDS" >>"$out/pulumi"
  cp "$out/pulumi" "$out/pulumi-language-python"
  ;;
*) exit 2 ;;
esac
"""


class Machine:
    """A machine whose PATH contains only what a test adds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.cache = folder / "cache"
        self.log = folder / "builds"
        sdk = folder / "sdk"
        for script in ("python/cmd/pulumi-language-python-exec", "python/dist/pulumi-resource-pulumi-python"):
            (sdk / script).parent.mkdir(parents=True)
            (sdk / script).write_text("# a script of the SDK\n")
        self.bin.mkdir()
        self.log.touch()
        self.environment = {
            "PATH": str(self.bin),
            "HOME": str(folder),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "GPUINFRA_CACHE": str(self.cache),
            "GO_VERSION": MODULE.go,
            "GO_BUILDS": MODULE.version,
            "GO_SDK": str(sdk),
            "GO_LOG": str(self.log),
            "GO_SECONDS": "0",
            "GO_FAILS": "",
            # No release of Pulumi is downloaded.
            "HTTPS_PROXY": "http://127.0.0.1:1",
            # Disable the package index for pip and uv.
            "PIP_NO_INDEX": "1",
            "UV_NO_INDEX": "1",
            "UV_OFFLINE": "1",
            "UV_CACHE_DIR": str(folder / "uv"),
        }

    def add(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def start(self, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "gpuinfra.engine"],
            cwd=self.folder,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def get(self, **environment: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr of `python -m gpuinfra.engine`."""
        process = self.start(**environment)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def builds(self) -> int:
        return len(self.log.read_text().splitlines())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine without any program on PATH."""
    return Machine(tmp_path)


def prints(version: str) -> str:
    """A script that prints what `pulumi version` prints."""
    return f"#!/bin/bash\necho v{version}\n"


def test_a_build_without_output_is_reported(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """While Go prints nothing, for example because it links, a line with the seconds since the start is printed."""
    machine.add("go", GO)
    for name, value in {**machine.environment, "GO_SECONDS": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(find, "QUIET_S", 0.1)
    lines: list[str] = []
    assert find.find_engine(lines.append, may_download=False).source == "built"
    assert [one for one in lines if one.startswith("engine: still working, ")]
    assert "is ready after" in lines[-1]


def test_recent_pulumi_on_path_is_used(machine):
    """A `pulumi` of the tested version with a language host next to it is used, and nothing is built."""
    machine.add("pulumi", prints(MODULE.version))
    machine.add("pulumi-language-python", "#!/bin/bash\n")
    machine.add("go", GO)
    code, out, err = machine.get()
    assert (code, err) == (0, "")
    assert f"Pulumi {MODULE.version}, found on PATH: {machine.bin / 'pulumi'}" in out
    assert machine.builds() == 0


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (prints("3.100.0"), "is version 3.100.0, which is older than"),
        ("#!/bin/bash\necho something else\n", "does not respond"),
    ],
)
def test_unusable_pulumi_on_path_is_skipped(machine, script, message):
    """A `pulumi` that is too old or does not respond is reported, and the engine is built instead."""
    machine.add("pulumi", script)
    machine.add("pulumi-language-python", "#!/bin/bash\n")
    machine.add("go", GO)
    code, out, err = machine.get()
    assert code == 0, err
    assert message in err
    assert "built now" in out


def test_pulumi_without_a_host_uses_the_host_of_this_project(machine):
    """For a `pulumi` without a Python host, only the host of this project is built."""
    machine.add("pulumi", prints(MODULE.version))
    machine.add("go", GO)
    code, out, err = machine.get()
    assert code == 0, err
    assert "has no pulumi-language-python" in err
    assert f"found on PATH: {machine.bin / 'pulumi'}" in out
    assert machine.builds() == 1
    assert machine.get()[0] == 0
    assert machine.builds() == 1


def test_built_engine_is_cached(machine):
    """The second run uses the engine of the first one and builds nothing."""
    machine.add("go", GO)
    code, out, err = machine.get()
    assert code == 0, err
    assert "1 modules downloaded" in err
    assert "2 packages compiled and linked" in err
    assert "built now" in out
    (machine.bin / "go").unlink()
    code, out, err = machine.get()
    assert (code, err) == (0, "")
    assert "from the cache" in out
    assert machine.builds() == 1


def test_environment_puts_the_engine_first(tmp_path):
    """On PATH, the folders of the CLI and the host come first, each once."""
    engine = Engine(path=tmp_path / "a" / "pulumi", version="3.0.0", host_dir=tmp_path / "b", source="kept")
    path = engine.environ({"PATH": f"/usr/bin:{tmp_path / 'b'}:/bin", "LANG": "C"})
    assert path == {"PATH": f"{tmp_path / 'a'}:{tmp_path / 'b'}:/usr/bin:/bin", "LANG": "C"}


def test_missing_prerequisites_are_one_message_and_exit_code_3(machine):
    """Without Pulumi, Go and a package index, one message lists what to install."""
    code, out, err = machine.get()
    assert (code, out) == (3, "")
    assert "no Pulumi engine found" in err
    assert f"Pulumi {MODULE.version} or later" in err
    assert f"Go {MODULE.go} or later" in err
    assert "Traceback" not in err


def test_read_only_cache_is_reported(machine):
    """A cache folder that cannot be created is exit code 3; the message names it and GPUINFRA_CACHE."""
    machine.add("go", GO)
    machine.cache.write_text("a file where the folder should be")
    code, out, err = machine.get()
    assert (code, out) == (3, "")
    assert str(machine.cache) in err
    assert "GPUINFRA_CACHE" in err
    assert "Traceback" not in err


def test_old_go_is_skipped(machine):
    """A Go that is too old for the module is reported and not used."""
    machine.add("go", GO)
    code, _, err = machine.get(GO_VERSION="1.20.1")
    assert code == 3
    assert f"is Go 1.20.1, older than {MODULE.go}" in err
    assert machine.builds() == 0


def test_failed_build_quotes_go(machine):
    """A failed build quotes the output of Go, exits with 3 and leaves no partial engine; the next run succeeds."""
    machine.add("go", GO)
    code, _, err = machine.get(GO_FAILS="1")
    assert code == 3
    assert "disk full" in err
    assert "Traceback" not in err
    assert not list(machine.cache.glob("engine/.building-*"))
    assert machine.get()[0] == 0


def test_program_of_another_version_is_not_cached(machine):
    """A program that does not print the version it was built as is refused."""
    machine.add("go", GO)
    code, _, err = machine.get(GO_BUILDS="0.0.1")
    assert code == 3
    assert f"was built as v{MODULE.version} but printed: v0.0.1" in err
    assert keep.kept(machine.cache, MODULE, BOTH) is None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_build_leaves_no_partial_engine(machine, eventually, number):
    """After a kill during the build, nothing is cached, Go has ended too, and the next run completes."""
    machine.add("go", GO)
    first = machine.start(GO_SECONDS="60")
    eventually(lambda: bool(list(machine.cache.glob("engine/.building-*/pulumi"))))
    (go,) = (int(line) for line in machine.log.read_text().split())
    os.kill(first.pid, number)
    if number == signal.SIGINT:
        os.kill(go, number)  # a terminal interrupts both
    _, err = first.communicate(timeout=300)
    assert "Traceback" not in err
    assert first.returncode == (130 if number == signal.SIGINT else -number)
    eventually(lambda: not Path(f"/proc/{go}").exists())
    assert keep.kept(machine.cache, MODULE, BOTH) is None
    code, out, err = machine.get()
    assert code == 0, err
    assert "built now" in out
    assert not list(machine.cache.glob("engine/.building-*"))


def test_concurrent_runs_build_once(machine, eventually):
    """The second run reports the process that it waits for, and uses its engine."""
    machine.add("go", GO)
    first = machine.start(GO_SECONDS="2")
    eventually(lambda: machine.builds() == 1)
    code, out, err = machine.get()
    assert code == 0, err
    assert f"waiting for process {first.pid}" in err
    assert "Pulumi" in out
    assert first.communicate(timeout=300)[0]
    assert first.returncode == 0
    assert machine.builds() == 1


def test_copied_engine_is_used(machine):
    """A cached engine that was copied to another folder has other modification times, and is used without a build."""
    machine.add("go", GO)
    assert machine.get()[0] == 0
    copy = machine.folder / "copy"
    shutil.copytree(machine.cache, copy, copy_function=shutil.copy)
    code, out, err = machine.get(GPUINFRA_CACHE=str(copy))
    assert (code, err, machine.builds()) == (0, "", 1)
    assert "from the cache" in out
    folder = keep.kept(copy, MODULE, BOTH)
    assert folder is not None
    files = json.loads((folder / keep.MARKER).read_text())["files"]
    # The times of the copy are recorded, so that later runs do not read the files again.
    assert {name: about["mtime_ns"] for name, about in files.items()} == {
        name: (folder / name).stat().st_mtime_ns for name in files
    }


@pytest.mark.parametrize("damage", ["truncated", "changed", "deleted", "marker"])
def test_damaged_engine_is_rebuilt(machine, damage):
    """A cached engine whose files differ from its marker is not used."""
    machine.add("go", GO)
    assert machine.get()[0] == 0
    folder = keep.kept(machine.cache, MODULE, BOTH)
    assert folder is not None
    match damage:
        case "truncated":
            os.truncate(folder / "pulumi", 3)
        case "changed":
            program = folder / "pulumi"
            program.write_bytes(program.read_bytes()[:-1] + b"!")
        case "deleted":
            (folder / "pulumi-language-python-exec").unlink()
        case "marker":
            (folder / keep.MARKER).write_text("{")
    code, out, err = machine.get()
    assert code == 0, err
    assert "built now" in out
    assert machine.builds() == 2


def test_key_changes_with_the_sources(tmp_path):
    """A changed source file changes the key; the same sources in another folder have the same key."""
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "go.mod").write_text("go 1.25.0\n\nrequire (\n\tgithub.com/pulumi/pulumi/pkg/v3 v3.1.2\n)\n")
        (folder / "main.go").write_text("package main\n")
    one, two = read_module(tmp_path / "one"), read_module(tmp_path / "two")
    assert (one.version, one.go) == ("3.1.2", "1.25.0")
    assert one.key(BOTH) == two.key(BOTH)
    assert one.key((HOST,)) != one.key(BOTH)
    (tmp_path / "two" / "main.go").write_text("package main // changed\n")
    assert read_module(tmp_path / "two").key(BOTH) != one.key(BOTH)


def test_cached_scripts_and_marker_are_complete(machine):
    """The cached folder contains both programs and both scripts, executable, with a checksum for each."""
    machine.add("go", GO)
    assert machine.get()[0] == 0
    folder = keep.kept(machine.cache, MODULE, BOTH)
    assert folder is not None
    marker = json.loads((folder / keep.MARKER).read_text())
    names = {"pulumi", "pulumi-language-python", "pulumi-language-python-exec", "pulumi-resource-pulumi-python"}
    assert set(marker["files"]) == names
    assert all(os.access(folder / name, os.X_OK) for name in names)
    assert all(len(about["sha256"]) == 64 for about in marker["files"].values())
