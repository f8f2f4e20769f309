"""Completion: what each shell offers, how fast it answers, and what `gpuinfra completion install` changes."""

from __future__ import annotations

import importlib
import json
import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.cli import COMMANDS, main
from gpuinfra.cli.complete import COMPLETED, attach, completes
from gpuinfra.cli.completion import BEGIN, END, SHELLS, script
from gpuinfra.node.xids import XIDS
from gpuinfra.plan.profile import profile_of
from gpuinfra.reference.explain import known_alerts, known_checks, known_rules, known_steps
from gpuinfra.reference.fields import all_fields

ROOT = Path(__file__).parents[2]
GOOGLE = """\
config:
  gpuinfra:cluster:
    where: {cloud: gcp, region: us-central1, zone: us-central1-a}
    pools:
      - name: gpu
        machine: a3-megagpu-8g
        capacity: [{kind: spot, count: 2}]
      - {name: work, machine: a3-megagpu-8g}
    storage:
      - name: scratch
    recovery:
      region: us-east4
"""
REPORT = {"nodes": [{"label": "gpu-1"}, {"label": "gpu-2"}]}

CASES: dict[str, tuple[list[str], set[str], set[str]]] = {
    "command": (["pla"], {"plan"}, {"clone"}),
    "option": (["plan", "aws-p4d", "--w"], {"--why"}, {"--html"}),
    "shipped stack": (["plan", "aws-p4"], {"aws-p4d"}, {"aws-p5-block"}),
    "own stack": (["plan", "mi"], {"mine"}, set()),
    "stack of every command": (["rehearse", "up", "aws-p4"], {"aws-p4d"}, set()),
    "cloud": (["init", "--cloud", "a"], {"aws", "azure"}, {"gcp"}),
    "region": (["init", "--cloud", "aws", "--region", "us-east-"], {"us-east-1", "us-east-2"}, {"us-central1"}),
    "zone": (["init", "--cloud", "aws", "--region", "us-east-1", "--zone", "use1-az"], {"use1-az1"}, {"use2-az1"}),
    "machine": (["init", "--cloud", "aws", "--region", "us-east-1", "--machine", "p4"], {"p4d.24xlarge"}, set()),
    "machine of a region": (
        ["init", "--cloud", "gcp", "--region", "us-central1", "--machine", ""],
        {"a3-megagpu-8g"},
        {"p4d.24xlarge"},
    ),
    "machine of the catalog": (["catalog", "Standard_ND96is"], {"Standard_ND96isr_H100_v5"}, set()),
    "machine of a pool": (["clone", "mine", "--machine", "gpu=p4d"], {"p4d.24xlarge"}, {"gpu=p4d.24xlarge"}),
    "field": (["explain", "pools.capacity.c"], {"pools.capacity.count"}, set()),
    "path": (["clone", "mine", "--set", "pools[0].capacity[0].c"], {"pools[0].capacity[0].count"}, set()),
    "capacity": (["init", "--capacity", ""], {"on_demand", "spot", "reserved", "block", "flex"}, set()),
    "capacity of a cloud": (["init", "--cloud", "aws", "--capacity", ""], {"on_demand", "block"}, {"flex"}),
    "capacity of a machine": (
        ["init", "--cloud", "gcp", "--machine", "a3-highgpu-1g", "--capacity", ""],
        {"flex", "spot"},
        {"on_demand", "reserved", "block"},
    ),
    "region of the stack's cloud": (["clone", "google", "--region", "us-"], {"us-central1"}, {"us-east-1"}),
    "region of the second region": (["failover", "google", "--to", ""], {"us-east4"}, {"us-east-1", "us-west1"}),
    "region of a drill": (["rehearse", "drill", "google", "--to", ""], {"us-east4"}, {"us-east-1"}),
    "stack to compare with": (["plan", "mine", "--diff", "aws-p4"], {"aws-p4d"}, set()),
    "price of a machine": (["prices", "p4d"], {"p4d.24xlarge"}, set()),
    "price of a stack": (["prices", "aws-p4"], {"aws-p4d"}, set()),
    "storage": (["init", "--storage", ""], {"none", "lustre", "home", "object"}, set()),
    "GPU": (["catalog", "--gpu", "B"], {"B200", "B300"}, {"H100"}),
    "fixed value": (["catalog", "--cloud", "az"], {"azure"}, {"aws"}),
    "node": (["ssh", "mine", "gpu-"], {"gpu-1", "gpu-2"}, set()),
    "node to replace": (["replace", "mine", "gpu-"], {"gpu-1", "gpu-2"}, set()),
    "node of a stack file": (["ssh", "./Pulumi.mine.yaml", "gpu-"], {"gpu-1", "gpu-2"}, set()),
    "node to copy to": (["cp", "mine", "gpu-"], {"gpu-1:", "gpu-2:"}, {"gpu-1"}),
    "check": (["explain", "G"], {"G1", "G13"}, {"D1"}),
    "name of a check": (["explain", "gpu_c"], {"gpu_count"}, set()),
    "rule": (["explain", "capacity_"], {"capacity_kind_is_offered"}, set()),
    "fault": (["rehearse", "up", "google", "--fault", ""], {"cloud:no-quota:gpu"}, {"node:work-2:gpu-missing"}),
    "fault of a node": (["rehearse", "up", "mine", "--fault", "node:gpu-2:gpu-mi"], {"gpu-missing"}, {"gpu-lost"}),
    "fault of a pool": (
        ["rehearse", "up", "google", "--fault", "node:"],
        {"gpu-1:gpu-missing", "work-1:xid-79"},
        {"scratch-1:gpu-missing"},
    ),
    "fault of a typed node": (["rehearse", "up", "google", "--fault", "node:gpu-7:gpu-m"], {"gpu-missing"}, set()),
    "fault of a kind": (["rehearse", "up", "google", "--fault", "cloud:no-capacity:"], {"spot", "gpu"}, set()),
    "step": (["explain", "30"], {"30-driver"}, {"20-kernel"}),
    "Xid": (["explain", "xid-7"], {"xid-79"}, {"xid-48"}),
}
"""Words of a command line, values that are offered, and values that are not."""


def make_project(folder: Path) -> dict[str, str]:
    """Make a project with a stack that was rehearsed. Return an environment with a `gpuinfra` command and an empty home."""
    (folder / "Pulumi.yaml").write_text("name: own\nruntime: python\n")
    (folder / "Pulumi.mine.yaml").write_text("config: {}\n")
    (folder / "Pulumi.google.yaml").write_text(GOOGLE)
    report = folder / ".rehearsal" / "mine" / "report.json"
    report.parent.mkdir(parents=True)
    report.write_text(json.dumps(REPORT))
    tool = folder / "bin" / "gpuinfra"
    tool.parent.mkdir()
    tool.write_text(
        f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -m gpuinfra "$@"\n'
    )
    tool.chmod(0o755)
    (folder / "home").mkdir()
    return {"PATH": f"{tool.parent}:{os.environ['PATH']}", "HOME": str(folder / "home"), "LANG": "C.UTF-8"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project is the current folder, and its environment is that of this process."""
    for name, value in make_project(tmp_path).items():
        monkeypatch.setenv(name, value)
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answers(shell: list[str], program: str, folder: Path) -> list[set[str]]:
    """Run a program in a shell. Return the lines that it prints before each line `==`."""
    done = subprocess.run(
        [*shell, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=folder,
        env=make_project(folder),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [set(part.split("\n")) for part in done.stdout.split("\n==\n")[:-1]]


@pytest.fixture(scope="module")
def in_bash(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Case -> what bash offers for the last word, from the function that the script registers for the command."""
    program = (
        "source <(gpuinfra completion bash)\n"
        "compopt() { :; }\n"  # the builtin works only during a completion
        "function=$(complete -p gpuinfra | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\n"
        'offer() { COMP_LINE="gpuinfra $*"; COMP_POINT=${#COMP_LINE}; COMPREPLY=(); "$function" gpuinfra; '
        'printf "%s\\n" "${COMPREPLY[@]}" ==; }\n'
    )
    program += "\n".join(f"offer {shlex.join(words)}" for words, _, _ in CASES.values())
    found = answers(["bash", "--norc"], program, tmp_path_factory.mktemp("bash"))
    return dict(zip(CASES, found, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_bash_offers_the_values(case: str, in_bash: dict[str, set[str]]) -> None:
    """Bash offers commands, options, and the values of the catalog, the schema and the project."""
    _, offered, others = CASES[case]
    assert offered <= in_bash[case]
    assert not others & in_bash[case]


def test_fish_offers_the_values(tmp_path: Path) -> None:
    """Fish offers the same values: commands, options, stacks, machine types and nodes."""
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    chosen = [CASES[case] for case in ("command", "own stack", "machine", "option", "node")]
    program = "gpuinfra completion fish | source\n"
    for words, _, _ in chosen:
        program += f"complete -C {shlex.quote(shlex.join(['gpuinfra', *words]))} | cut -f 1; echo ==\n"
    for (_, offered, others), found in zip(chosen, answers(["fish", "--no-config"], program, tmp_path), strict=True):
        assert offered <= found
        assert not others & found


ZSH = (
    "PS1='ready> '; autoload -Uz compinit && compinit -u -D; source <(gpuinfra completion zsh); "
    "save() {{ print -r -- \"$BUFFER\" > {saved}.part; mv {saved}.part {saved} }}; zle -N save; bindkey '^X' save; print set-up\n"
)
BASH = (
    "source <(gpuinfra completion bash); bind 'set enable-bracketed-paste off'; "
    "save() {{ printf '%s\\n' \"$READLINE_LINE\" > {saved}.part; mv {saved}.part {saved}; }}; bind -x '\"\\C-x\": save'; "
    "printf 'set-%s\\n' up\n"
)
INTERACTIVE = {
    "zsh": (["zsh", "-f", "-i"], ZSH),
    "bash": (["bash", "--norc", "-i"], BASH),
}
"""The command of an interactive shell, and the line that loads the completion and binds Ctrl-X to writing the command line to a file."""


def completed_in(shell: str, folder: Path, line: str) -> str:
    """The command line of an interactive shell after a line and the Tab key."""
    saved = folder / "line"
    command, program = INTERACTIVE[shell]
    setup = program.format(saved=saved)
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    shown, typed, end = "", False, time.monotonic() + 300
    os.write(fd, setup.encode())
    try:
        while not saved.exists():
            assert time.monotonic() < end, shown
            if select.select([fd], [], [], 0.1)[0]:
                shown += os.read(fd, 65536).decode(errors="replace")
            if not typed and "set-up\r\n" in shown:
                os.write(fd, f"{line}\t\x18".encode())
                typed = True
        return saved.read_text().strip()
    finally:
        os.close(fd)
        os.waitpid(pid, 0)


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("gpuinfra pla", "gpuinfra plan"),
        ("gpuinfra plan aws-p4", "gpuinfra plan aws-p4d"),
        ("gpuinfra init --cloud aws --machine p4d.", "gpuinfra init --cloud aws --machine p4d.24xlarge"),
    ],
)
def test_zsh_completes_the_line(line: str, completed: str, folder: Path) -> None:
    """The Tab key of an interactive zsh completes the word."""
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    assert completed_in("zsh", folder, line) == completed


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("gpuinfra plan aws-p4", "gpuinfra plan aws-p4d"),
        ("gpuinfra clone mine --machine gpu=p4de", "gpuinfra clone mine --machine gpu=p4de.24xlarge"),
        (
            "gpuinfra rehearse up mine --fault node:gpu-2:gpu-mi",
            "gpuinfra rehearse up mine --fault node:gpu-2:gpu-missing",
        ),
        ("gpuinfra rehearse up mine --fault cloud:err", "gpuinfra rehearse up mine --fault cloud:error:"),
    ],
)
def test_bash_completes_the_line(line: str, completed: str, folder: Path) -> None:
    """The Tab key of an interactive bash completes words with colons and equals signs, at which bash splits a line."""
    assert completed_in("bash", folder, line) == completed


def test_a_completion_imports_no_models(folder: Path) -> None:
    """A completion of a stack, a machine type or a field imports neither pydantic nor an engine, so that the shell does not wait."""
    program = (
        "import sys, gpuinfra.cli\n"
        "gpuinfra.cli.main([])\n"
        "slow = {'pydantic', 'pulumi', 'grpc', 'ruamel', 'rich', 'boto3', 'paramiko', 'jinja2'} & set(sys.modules)\n"
        "print('slow', sorted(slow), file=sys.stderr)\n"
    )
    lines = ["gpuinfra plan a", "gpuinfra init --machine p", "gpuinfra clone x --set p", "gpuinfra ssh mine g"]
    lines += ["gpuinfra rehearse up mine --fault node:"]
    lines += ["gpuinfra explain G", "gpuinfra clone google --region us", "gpuinfra init --cloud aws --capacity b"]
    for line in lines:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "_GPUINFRA_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split()) - 1),
        }
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.stdout, line
        assert done.stderr == "slow []\n", line


def test_values_are_those_of_the_catalog_and_the_schema() -> None:
    """The fast paths have the same machine types, fields and rules as the profiles and `gpuinfra explain`."""
    context = click.Context(click.Command("x"))
    for cloud in CLOUDS:
        context.params = {"cloud": cloud}
        found = {item.value for item in COMPLETED["machine"](context, click.Option(["--x"]), "")}
        assert found == set(profile_of(cloud).machines)
    found = {item.value for item in COMPLETED["explain.name"](context, click.Option(["--x"]), "")}
    xids = {f"xid-{number}" for number in XIDS}
    assert found == {*all_fields(), *known_rules(), *known_checks(), *known_steps(), *known_alerts(), *xids}


def test_each_row_is_a_parameter_and_each_stack_is_completed() -> None:
    """The table has no row without a parameter, and every command completes its stack."""
    commands = {name: importlib.import_module(f"gpuinfra.cli.{name}").command for name in COMMANDS}
    names = {f"{name}.{one.name}" for name, command in commands.items() for one in command.params}
    short = {one.partition(".")[2] for one in names}
    assert set(COMPLETED) <= names | short
    for command in commands.values():
        attach(command)
    context = click.Context(commands["plan"])
    for name, command in commands.items():
        for one in command.params:
            if one.name == "stack":
                assert "aws-p4d" in {item.value for item in one.shell_complete(context, "")}, name


def test_nodes_are_completed_in_each_folder_of_the_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder below the project, the nodes of the rehearsal in the folder of the project are offered."""
    below = folder / "programs" / "train"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    context = click.Context(click.Command("ssh"))
    context.params = {"words": ("mine",), "folder": Path(".rehearsal")}
    found = COMPLETED["ssh.words"](context, click.Argument(["words"]), "")
    assert {item.value for item in found} == {"gpu-1", "gpu-2"}


def test_a_failure_completes_nothing() -> None:
    """An error in a value function does not reach the command line."""

    def fails(*_: object) -> list[str]:
        raise OSError("gone")

    assert completes(fails)(click.Context(click.Command("x")), click.Option(["--x"]), "") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_installation_is_repeatable_and_can_be_undone(
    shell: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`install` names the files that it changes, changes nothing the second time, and `uninstall` restores the startup file."""
    place = SHELLS[shell]
    startup = place.startup() if place.startup else None
    own, text = "# mine, without an end of line", ""
    if startup:
        startup.write_text(own)
        startup.chmod(0o600)
    assert main(["completion", "install", shell]) == 0
    out = capsys.readouterr().out
    assert f"written: {place.script()}" in out
    assert place.script().read_text() == script(shell) + "\n"
    if startup:
        assert f"changed: {startup}" in out
        text = startup.read_text()
        assert text.startswith(f"{own}\n{BEGIN}\n")
        assert text.endswith(f"{END}\n")
        assert startup.stat().st_mode & 0o777 == 0o600
    if startup:
        startup.write_text(f"{text}# added later\n")
    assert main(["completion", "install", shell]) == 0
    assert "nothing to change" in capsys.readouterr().out
    if startup:
        assert startup.read_text() == f"{text}# added later\n"
        startup.write_text(text)
    assert main(["completion", "uninstall", shell]) == 0
    assert f"removed: {place.script()}" in capsys.readouterr().out
    assert not place.script().exists()
    if startup:
        assert startup.read_text() == f"{own}\n"
    assert main(["completion", "uninstall", shell]) == 0
    assert "nothing to change" in capsys.readouterr().out


def test_a_new_bash_uses_the_installation(folder: Path) -> None:
    """A new interactive bash has the completion, without a command that sources the script."""
    assert main(["completion", "install", "bash"]) == 0
    done = subprocess.run(
        ["bash", "-i", "-c", "complete -p gpuinfra"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout.strip().endswith(" gpuinfra")


def test_a_link_to_a_startup_file_stays_a_link(folder: Path) -> None:
    """A startup file that is a link, as in a repository of settings, is changed at its place."""
    kept = folder / "settings"
    kept.write_text("# mine\n")
    (folder / "home" / ".bashrc").symlink_to(kept)
    assert main(["completion", "install", "bash"]) == 0
    assert (folder / "home" / ".bashrc").is_symlink()
    assert BEGIN in kept.read_text()


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        (["install"], "", "SHELL is missing, and $SHELL is empty; allowed: bash, zsh, fish"),
        (["install"], "/bin/tcsh", "$SHELL is tcsh"),
        (["bash", "zsh"], "/bin/bash", "bash prints a script"),
        (["instal"], "/bin/bash", "'instal' is not one of"),
    ],
)
def test_a_wrong_shell_is_one_error(
    words: list[str],
    environment: str,
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An unknown shell is a usage error, and nothing is written."""
    monkeypatch.setenv("SHELL", environment)
    assert main(["completion", *words]) == 2
    assert message in capsys.readouterr().err
    assert list((folder / "home").iterdir()) == []


def test_a_block_without_an_end_is_not_touched(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If the end of the block was removed, the file is left alone, because the rest of it may be the user's."""
    startup = folder / "home" / ".bashrc"
    startup.write_text(f"{BEGIN}\nmine\n")
    assert main(["completion", "install", "bash"]) == 2
    assert "remove the block" in capsys.readouterr().err
    assert startup.read_text() == f"{BEGIN}\nmine\n"
