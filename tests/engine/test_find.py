"""Which engine is used, and how one is kept; Go, `pulumi` and the package index are the only things played here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuinfra.engine import Engine, keep
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
    """A machine whose PATH holds what a test puts there, and nothing else."""

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
            # No package index: what pip and uv would find is outside this machine.
            "PIP_NO_INDEX": "1",
            "UV_NO_INDEX": "1",
            "UV_OFFLINE": "1",
            "UV_CACHE_DIR": str(folder / "uv"),
        }

    def has(self, name: str, text: str) -> Path:
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
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def builds(self) -> int:
        return len(self.log.read_text().splitlines())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with nothing on it."""
    return Machine(tmp_path)


def says(version: str) -> str:
    """A script that answers as `pulumi version` does."""
    return f"#!/bin/bash\necho v{version}\n"


def test_recent_pulumi_on_path_is_used(machine):
    """A `pulumi` of the tested version with its host beside it is used, and nothing is built."""
    machine.has("pulumi", says(MODULE.version))
    machine.has("pulumi-language-python", "#!/bin/bash\n")
    machine.has("go", GO)
    code, out, err = machine.get()
    assert (code, err) == (0, "")
    assert f"Pulumi {MODULE.version}, found on PATH: {machine.bin / 'pulumi'}" in out
    assert machine.builds() == 0


@pytest.mark.parametrize(
    ("script", "said"),
    [(says("3.100.0"), "is 3.100.0, older than"), ("#!/bin/bash\necho something else\n", "does not answer")],
)
def test_unusable_pulumi_on_path_is_passed_over(machine, script, said):
    """A `pulumi` that is too old, or is none, is named, and the engine is built instead."""
    machine.has("pulumi", script)
    machine.has("pulumi-language-python", "#!/bin/bash\n")
    machine.has("go", GO)
    code, out, err = machine.get()
    assert code == 0, err
    assert said in err
    assert "just built" in out


def test_pulumi_without_host_gets_ours(machine):
    """A `pulumi` without a Python host is used with the host of this project, which alone is built."""
    machine.has("pulumi", says(MODULE.version))
    machine.has("go", GO)
    code, out, err = machine.get()
    assert code == 0, err
    assert "comes without pulumi-language-python" in err
    assert f"found on PATH: {machine.bin / 'pulumi'}" in out
    assert machine.builds() == 1
    assert machine.get()[0] == 0
    assert machine.builds() == 1


def test_built_engine_is_kept(machine):
    """The second run finds what the first one built, says where, and is quick."""
    machine.has("go", GO)
    code, out, err = machine.get()
    assert code == 0, err
    assert "1 modules downloaded" in err
    assert "2 packages compiled and linked" in err
    assert "just built" in out
    (machine.bin / "go").unlink()
    started = time.monotonic()
    code, out, err = machine.get()
    assert (code, err) == (0, "")
    assert "kept from an earlier run" in out
    assert time.monotonic() - started < 5
    assert machine.builds() == 1


def test_environment_puts_the_engine_first(tmp_path):
    """The engine's own environment finds its CLI and its host before any other, each folder once."""
    engine = Engine(path=tmp_path / "a" / "pulumi", version="3.0.0", host_dir=tmp_path / "b", source="kept")
    path = engine.environ({"PATH": f"/usr/bin:{tmp_path / 'b'}:/bin", "LANG": "C"})
    assert path == {"PATH": f"{tmp_path / 'a'}:{tmp_path / 'b'}:/usr/bin:/bin", "LANG": "C"}


def test_no_way_is_one_message_and_exit_code_3(machine):
    """Without Pulumi, Go and a package index, one message says what can be installed."""
    code, out, err = machine.get()
    assert (code, out) == (3, "")
    assert "no Pulumi engine on this machine" in err
    assert f"Pulumi {MODULE.version} or newer" in err
    assert f"Go {MODULE.go} or newer" in err
    assert "Traceback" not in err


def test_cache_that_cannot_be_written_is_said(machine):
    """A cache folder that cannot be made is named, with the variable that moves it, and is exit code 3."""
    machine.has("go", GO)
    machine.cache.write_text("a file where the folder should be")
    code, out, err = machine.get()
    assert (code, out) == (3, "")
    assert str(machine.cache) in err
    assert "GPUINFRA_CACHE" in err
    assert "Traceback" not in err


def test_old_go_is_passed_over(machine):
    """A Go that is too old for the module is named and not used."""
    machine.has("go", GO)
    code, _, err = machine.get(GO_VERSION="1.20.1")
    assert code == 3
    assert f"is Go 1.20.1, older than {MODULE.go}" in err
    assert machine.builds() == 0


def test_failed_build_is_told_in_go_s_words(machine):
    """A build that fails says what Go said, exits with 3, leaves nothing half, and the next run succeeds."""
    machine.has("go", GO)
    code, _, err = machine.get(GO_FAILS="1")
    assert code == 3
    assert "disk full" in err
    assert "Traceback" not in err
    assert not list(machine.cache.glob("engine/.building-*"))
    assert machine.get()[0] == 0


def test_program_of_another_version_is_not_kept(machine):
    """A build whose program does not answer with the version it was built as is refused."""
    machine.has("go", GO)
    code, _, err = machine.get(GO_BUILDS="0.0.1")
    assert code == 3
    assert f"does not answer v{MODULE.version}: v0.0.1" in err
    assert keep.kept(machine.cache, MODULE, BOTH) is None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_build_leaves_nothing_half(machine, eventually, number):
    """Killed in the middle of writing a binary, nothing is kept, Go goes too, and the next run completes."""
    machine.has("go", GO)
    first = machine.start(GO_SECONDS="60")
    eventually(lambda: bool(list(machine.cache.glob("engine/.building-*/pulumi"))))
    (go,) = (int(line) for line in machine.log.read_text().split())
    os.kill(first.pid, number)
    if number == signal.SIGINT:
        os.kill(go, number)  # a terminal interrupts both
    _, err = first.communicate(timeout=30)
    assert "Traceback" not in err
    assert first.returncode == (130 if number == signal.SIGINT else -number)
    eventually(lambda: not Path(f"/proc/{go}").exists())
    assert keep.kept(machine.cache, MODULE, BOTH) is None
    code, out, err = machine.get()
    assert code == 0, err
    assert "just built" in out
    assert not list(machine.cache.glob("engine/.building-*"))


def test_two_runs_at_once_build_once(machine, eventually):
    """The second of two runs says for whom it waits, and uses what the first one built."""
    machine.has("go", GO)
    first = machine.start(GO_SECONDS="2")
    eventually(lambda: machine.builds() == 1)
    code, out, err = machine.get()
    assert code == 0, err
    assert f"waiting for process {first.pid}" in err
    assert "Pulumi" in out
    assert first.communicate(timeout=30)[0]
    assert first.returncode == 0
    assert machine.builds() == 1


@pytest.mark.parametrize("damage", ["truncated", "deleted", "marker"])
def test_damaged_engine_is_built_again(machine, damage):
    """A kept engine whose files are not those of its marker is not used."""
    machine.has("go", GO)
    assert machine.get()[0] == 0
    folder = keep.kept(machine.cache, MODULE, BOTH)
    assert folder is not None
    match damage:
        case "truncated":
            os.truncate(folder / "pulumi", 3)
        case "deleted":
            (folder / "pulumi-language-python-exec").unlink()
        case "marker":
            (folder / keep.MARKER).write_text("{")
    code, out, err = machine.get()
    assert code == 0, err
    assert "just built" in out
    assert machine.builds() == 2


def test_key_changes_with_the_sources(tmp_path):
    """A changed line of the host is another engine; the same sources elsewhere are the same one."""
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


def test_kept_scripts_and_marker_are_whole(machine):
    """The kept folder holds both programs and both scripts, executable, with a checksum for each."""
    machine.has("go", GO)
    assert machine.get()[0] == 0
    folder = keep.kept(machine.cache, MODULE, BOTH)
    assert folder is not None
    marker = json.loads((folder / keep.MARKER).read_text())
    names = {"pulumi", "pulumi-language-python", "pulumi-language-python-exec", "pulumi-resource-pulumi-python"}
    assert set(marker["files"]) == names
    assert all(os.access(folder / name, os.X_OK) for name in names)
    assert all(len(about["sha256"]) == 64 for about in marker["files"].values())
