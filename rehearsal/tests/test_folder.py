from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gpuinfra.base.errors import DeploymentError, UsageError
from gpuinfra.base.shipped import shipped
from gpuinfra.spec import read_stack
from gpuinfra_rehearsal import applied_environment, processes
from gpuinfra_rehearsal.folder import SECRET_STAND_IN, copy_files, find_program, write_project

from .folders import folder_in

DECLARATION = "config:\n  gpuinfra:cluster: {name: train, pools: []}\n"


def yaml(path: Path) -> dict[str, object]:
    """The content of a YAML file."""
    return dict(YAML(typ="safe").load(path.read_text()))


def test_program_of_a_project_is_found_by_absolute_paths(tmp_path: Path) -> None:
    """The rehearsal's project has absolute paths of the user's program, environment and plugin, and nothing is written there."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text("")
    (tmp_path / "Pulumi.yaml").write_text(
        "name: mine\nruntime: {name: python, options: {virtualenv: none-here}}\nmain: app/\n"
        "plugins: {providers: [{name: gpuinfra, path: ../elsewhere}]}\n"
    )
    stack = tmp_path / "Pulumi.try.yaml"
    stack.write_text(DECLARATION)
    before = sorted(tmp_path.rglob("*"))
    program = find_program(stack)
    assert (program.project, program.main) == ("mine", tmp_path / "app")
    assert program.plugin == tmp_path.parent / "elsewhere"
    folder = folder_in(tmp_path / "r")
    write_project(folder, program, stack)
    project = yaml(folder.project / "Pulumi.yaml")
    assert project["main"] == str(tmp_path / "app")
    assert [p for p in sorted(tmp_path.rglob("*")) if tmp_path / "r" not in (p, *p.parents)] == before


def test_yaml_program_is_copied_with_its_project(tmp_path: Path) -> None:
    """A program in the project file is part of the rehearsal's project, which names the folder of the language host."""
    (tmp_path / "Pulumi.yaml").write_text(
        "name: mine\nruntime: yaml\nresources: {train: {type: 'gpuinfra:GpuCluster'}}\noutputs: {ready: '${train.ready}'}\n"
    )
    stack = tmp_path / "Pulumi.try.yaml"
    stack.write_text(DECLARATION)
    program = find_program(stack)
    assert program.main is None
    assert program.virtualenv is None
    folder = folder_in(tmp_path)
    write_project(folder, program, stack, {"yaml": tmp_path / "hosts"})
    project = yaml(folder.project / "Pulumi.yaml")
    assert project["runtime"] == {"name": "yaml"}
    assert project["resources"] == {"train": {"type": "gpuinfra:GpuCluster"}}
    assert project["outputs"] == {"ready": "${train.ready}"}
    assert "main" not in project
    assert project["plugins"] == {
        "providers": [{"name": "gpuinfra", "path": str(shipped("plugin"))}],
        "languages": [{"name": "yaml", "path": str(tmp_path / "hosts")}],
    }


@pytest.mark.parametrize(("runtime", "file"), [("yaml", "Main.yaml"), ("nodejs", "package.json")])
def test_programs_in_other_languages_stay_in_their_folder(tmp_path: Path, runtime: str, file: str) -> None:
    """The rehearsal runs the program in its folder, with the options of its runtime."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / file).write_text("{}")
    (tmp_path / "Pulumi.yaml").write_text(
        f"name: mine\nruntime: {{name: {runtime}, options: {{typescript: true}}}}\nmain: app\n"
    )
    stack = tmp_path / "Pulumi.try.yaml"
    stack.write_text(DECLARATION)
    folder = folder_in(tmp_path)
    write_project(folder, find_program(stack), stack)
    project = yaml(folder.project / "Pulumi.yaml")
    assert project["main"] == str(tmp_path / "app")
    assert project["runtime"] == {"name": runtime, "options": {"typescript": True}}


def test_scripts_and_files_of_the_declaration_are_next_to_the_copy(tmp_path: Path) -> None:
    """The copy of the stack file refers to the same scripts and files, which the program of the rehearsal reads."""
    (tmp_path / "home/setup").mkdir(parents=True)
    (tmp_path / "home/setup/site.conf").write_text("a = 1\n")
    (tmp_path / "home/setup/tuning.sh").write_text("#!/bin/bash\necho hello\n")
    stack = tmp_path / "home/Pulumi.try.yaml"
    stack.write_text(
        "name: train\nwhere: {cloud: aws, region: us-east-1}\n"
        "software:\n  steps: [{name: one, file: setup/tuning.sh}, {name: two, url: 'https://example.com/a', sha256: '%s'}]\n"
        "  files: [{path: /etc/site.conf, file: setup/site.conf}]\n" % ("0" * 64)
    )
    folder = folder_in(tmp_path)
    write_project(folder, find_program(stack), stack)
    copy_files(folder, read_stack(stack).spec.software)
    assert read_stack(folder.stack_file).spec.software.files[0].text == "a = 1\n"
    copied = read_stack(folder.stack_file).spec.software.steps
    assert copied[0].script == read_stack(stack).spec.software.steps[0].script
    assert copied[1].script is None


def test_file_without_a_project_runs_the_shipped_program(tmp_path: Path) -> None:
    """A file with only a declaration is rehearsed by the program that ships with gpuinfra."""
    stack = tmp_path / "Pulumi.try.yaml"
    stack.write_text("name: train\nwhere: {cloud: aws, region: us-east-1}\npools: []\n")
    program = find_program(stack)
    assert program.main == shipped("stacks")
    folder = folder_in(tmp_path)
    write_project(folder, program, stack)
    assert yaml(folder.stack_file)["config"]["gpuinfra:cluster"]["name"] == "train"  # type: ignore[index]


def test_secrets_are_not_copied(tmp_path: Path) -> None:
    """Encrypted values are replaced with a note, and the rehearsal's own salt survives a second run."""
    stack = tmp_path / "Pulumi.try.yaml"
    stack.write_text(
        "secretsprovider: awskms://alias/mine\nencryptedkey: AAAA\nencryptionsalt: v1:theirs\n"
        "config:\n  app:token: {secure: v1:cipher}\n  gpuinfra:cluster: {name: train}\n"
    )
    folder = folder_in(tmp_path)
    program = find_program(stack)
    notes = write_project(folder, program, stack)
    copy = yaml(folder.stack_file)
    assert set(copy) == {"config"}
    assert copy["config"]["app:token"] == SECRET_STAND_IN  # type: ignore[index]
    assert len(notes) == 1
    assert "app:token" in notes[0]
    folder.stack_file.write_text("encryptionsalt: v1:ours\n" + folder.stack_file.read_text())
    write_project(folder, program, stack)
    assert yaml(folder.stack_file)["encryptionsalt"] == "v1:ours"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: x\nruntime: java\n", "runtime is 'java'; allowed: python, yaml, nodejs"),
        ("name: x\nruntime: python\nmain: nowhere\n", "no __main__.py"),
        ("name: x\nruntime: nodejs\nmain: nowhere\n", "no package.json"),
        ("name: x\nruntime: yaml\n", "no Main.yaml, and the project file has no resources"),
        ("name: [\n", "is not YAML"),
        ("- a list\n", "is not a YAML mapping"),
    ],
)
def test_projects_that_cannot_be_rehearsed(tmp_path: Path, text: str, words: str) -> None:
    """A project that cannot be rehearsed is rejected with one sentence."""
    (tmp_path / "Pulumi.yaml").write_text(text)
    with pytest.raises(UsageError, match=words):
        find_program(tmp_path / "Pulumi.try.yaml")


def test_environment_is_built_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the variables of a short list are inherited."""
    for name in (
        "AWS_PROFILE",
        "AWS_ACCESS_KEY_ID",
        "PULUMI_ACCESS_TOKEN",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "SSH_AUTH_SOCK",
    ):
        monkeypatch.setenv(name, "theirs")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example")
    env = applied_environment.environment(folder_in(tmp_path))
    assert "theirs" not in env.values()
    assert "HTTPS_PROXY" not in env
    assert env["LANG"] == "C.UTF-8"
    inside = {"HOME", "PULUMI_HOME", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"}
    assert all(env[name].startswith(str(tmp_path)) for name in inside)
    assert env["PULUMI_BACKEND_URL"].startswith(f"file://{tmp_path}")


def test_applied_environment_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of this process is replaced and restored, also after an error."""
    monkeypatch.setenv("AWS_PROFILE", "theirs")

    def fail() -> None:
        assert dict(os.environ) == {"ONLY": "this"}
        raise KeyError

    with pytest.raises(KeyError), applied_environment.applied({"ONLY": "this"}):
        fail()
    assert os.environ["AWS_PROFILE"] == "theirs"


def test_rehearsal_is_not_part_of_a_git_repository(tmp_path: Path) -> None:
    """Git does not list the files of a rehearsal as untracked, and the user's `.gitignore` files are not written."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    own = tmp_path / ".gitignore"
    own.write_text("*.log")
    folder = folder_in(tmp_path)
    with folder.locked():
        folder.make()
        folder.passphrase()
    status = ["git", "-C", tmp_path, "status", "--porcelain", "--untracked-files=all"]
    assert subprocess.run(status, check=True, capture_output=True, text=True).stdout == "?? .gitignore\n"
    assert own.read_text() == "*.log"
    kept = folder.root / ".gitignore"
    kept.write_text("mine\n")
    with folder.locked():
        assert kept.read_text() == "mine\n"


def test_one_rehearsal_at_a_time(tmp_path: Path) -> None:
    """A second rehearsal of a stack is rejected while the first one runs, and accepted after the first one was killed."""
    folder = folder_in(tmp_path)
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom gpuinfra_rehearsal.folder import Folder\n"
        f"with Folder(root=Path({str(folder.root)!r}), stack='try').locked():\n    print('in', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with pytest.raises(DeploymentError, match=f"process {other.pid}"), folder.locked():
            pass
        other.kill()
    with folder.locked():
        pass


def test_leftover_processes_are_ended_and_others_are_not(tmp_path: Path) -> None:
    """The next run ends processes with its marker and recorded processes with the recorded start time, and no others."""
    folder = folder_in(tmp_path)
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    marked = subprocess.Popen(sleep, env={**os.environ, applied_environment.MARKER: str(folder.root)})
    stranger = subprocess.Popen(sleep, env={**os.environ, applied_environment.MARKER: str(folder.root) + "-other"})
    recorded = subprocess.Popen(sleep)
    try:
        processes.record(folder, {"engine": recorded.pid})
        document = json.loads(folder.processes.read_text())
        document["processes"].append({"name": "reused number", "pid": stranger.pid, "started": "1"})
        folder.processes.write_text(json.dumps(document))
        while applied_environment.MARKER.encode() not in Path(f"/proc/{marked.pid}/environ").read_bytes():
            time.sleep(0.01)  # before exec it is a copy of this process
        left = processes.sweep(folder)
        assert "engine" in left
        assert marked.wait(300) == -signal.SIGKILL
        assert recorded.wait(300) == -signal.SIGKILL
        assert stranger.poll() is None
        assert not folder.processes.exists()
    finally:
        for process in (marked, stranger, recorded):
            process.kill()
            process.wait()


def test_children_end_with_their_parent(tmp_path: Path) -> None:
    """A process of a rehearsal ends soon after its parent was killed."""
    folder = folder_in(tmp_path)
    script = (
        "import subprocess, sys, time, os\nfrom pathlib import Path\nfrom gpuinfra_rehearsal import processes\n"
        "p = processes.start([sys.executable, '-c', 'import time; time.sleep(60)'], env=dict(os.environ), "
        f"cwd=Path({str(folder.root)!r}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "print(p.pid, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as leader:
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        leader.kill()
    limit = time.monotonic() + 300
    while time.monotonic() < limit and Path(f"/proc/{child}").exists():
        time.sleep(0.02)
    assert not Path(f"/proc/{child}").exists()
