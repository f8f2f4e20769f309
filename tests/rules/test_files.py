"""Declared files and variables: the rules know what the bootstrap steps and bash set."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra.node.notice_service import HOOKS
from gpuinfra.rules.files import file_path_is_free, variable_name_is_free
from gpuinfra.spec import parse_spec
from tests.rules.cases import declaration, node_file

TODAY = date(2026, 11, 21)
STEPS = {path.name: path.read_text(encoding="utf-8") for path in sorted(shipped("bootstrap").glob("*.sh"))}
_PATH = re.compile(r"(?<![\w$}/.:*-])/(?:etc|usr|var|opt|lib)(?:/[\w.@%$*{}+-]+)+")
_CONSTANT = re.compile(r"^readonly ([A-Z_]+)=([\w./-]+)", re.MULTILINE)
NOT_WRITTEN = {
    "/etc/systemd/x": "declared files, after which 92-files reloads systemd",
    "/etc/skel": "the source of new home directories",
    "/etc/ssl/certs/ca-certificates.crt": "read by the TLS tunnel of the home directories",
    "/lib/modules": "of the packages of the kernel",
    "/opt/amazon": "of the packages of the EFA installer",
    "/usr/bin": "of the packages of Ubuntu",
    "/usr/lib/x86_64-linux-gnu": "in the container of the receive manager",
    "/usr/local/cuda-": "of the packages of CUDA",
    "/usr/local/gib": "of the package of gIB",
    "/usr/src/dmabuf-import-helper-1.1": "of the package of GPUDirect-TCPXO",
    "/var/lib/dpkg": "of dpkg",
}
"""Paths in the steps that the steps do not write, and whose files they are."""
OF_FUNCTIONS = {
    "/etc/%s.yaml": "/etc/gpuinfra-bucket-data.yaml",
    "/etc/systemd/system/$unit": "/etc/systemd/system/gpuinfra-bucket-data.service",
    "/etc/systemd/system/$1": "/etc/systemd/system/gpuinfra-prometheus.service",
}
"""Paths whose names a function prints or gets: `config_of` and `unit_of` in lib-buckets.sh, `service_current` in 94-monitoring.sh."""


def paths() -> Iterator[tuple[str, str]]:
    """The step and the path of each absolute path in a command, with constants and with `x` for other variables."""
    for name, text in STEPS.items():
        constants = dict(_CONSTANT.findall(text))
        for line in text.splitlines():
            if line.lstrip().startswith("#"):
                continue
            for found in _PATH.findall(line):
                path: str = OF_FUNCTIONS.get(found) or found
                for constant, value in constants.items():
                    path = path.replace(f"${constant}", value)
                yield name, re.sub(r"\$\{?\w*\}?|%s|\*", "x", path)


def refused(*declared: str) -> set[str]:
    """The paths that a declaration cannot have."""
    found = set()
    for path in declared:
        spec = parse_spec(declaration(("gcp", {"software.files": [node_file(path)]})))
        found |= {path for _ in file_path_is_free(spec, TODAY)}
    return found


def test_files_that_the_steps_write_are_refused() -> None:
    """A declared file cannot have a path that a bootstrap step writes: an absolute path in the scripts, or the list and the key of a package repository."""
    found = {path: step for step, path in paths() if path != "/var/lib" and not path.startswith(tuple(NOT_WRITTEN))}
    for step, text in STEPS.items():
        for name in re.findall(r"^ *add_repository ([a-z-]+) ", text, re.MULTILINE):
            found |= {f"/etc/apt/sources.list.d/{name}.list": step, f"/etc/apt/keyrings/{name}.gpg": step}
    del (
        found["/etc/apt/keyrings"],
        found["/etc/apt/sources.list.d/x.list"],
    )  # of `add_repository`, which the loop adds by name
    assert len(found) > 40
    known = refused(*found)
    assert {path: step for path, step in found.items() if path not in known} == {}


@pytest.mark.parametrize("path", NOT_WRITTEN)
def test_each_exception_is_in_a_step(path: str) -> None:
    """Each path of the exceptions occurs in a step."""
    assert any(found.startswith(path) for _, found in paths())


@pytest.mark.parametrize(
    "path",
    [
        "/home/alice/.config/a", "/etc/ssh/authorized_keys.d/alice", "/var/lock/a", "/run/a", "/etc/subuid", "/etc/environment/a",
        "/etc/apt/sources.list.d/cuda-ubuntu2204-x86_64.list", "/etc/apt/sources.list.d/doca.list",
    ],
)  # fmt: skip
def test_other_paths_are_refused(path: str) -> None:
    """Folders that users change or that are empty after a reboot, and files of accounts and packages, are refused."""
    assert refused(path) == {path}


def test_hooks_of_notices_can_be_declared() -> None:
    """The folder whose programs run when the cloud announces an interruption is not refused."""
    assert refused(f"{HOOKS}/10-site") == set()


def refused_names(*names: str) -> set[str]:
    """The names of variables that a declaration cannot have."""
    spec = parse_spec(declaration(("aws", {"software.environment": dict.fromkeys(names, "1")})))
    return {one.path.rpartition(".")[2] for one in variable_name_is_free(spec, TODAY)}


def test_lists_that_the_steps_extend_are_refused() -> None:
    """A variable that a script of the steps extends with its own value cannot be declared, because the declaration would replace the value."""
    extended = {name for text in STEPS.values() for name in re.findall(r"\b([A-Z_]+)=[^\n ]*\\\$\{?\1\b", text)}
    assert extended == {"PATH", "LD_LIBRARY_PATH"}
    assert refused_names(*extended) == extended


OF_BASH = """
_ BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_COMPAT BASH_ENV BASH_EXECUTION_STRING
BASH_LINENO BASH_LOADABLES_PATH BASH_REMATCH BASH_SOURCE BASH_SUBSHELL BASH_VERSINFO BASH_VERSION BASH_XTRACEFD CDPATH CHILD_MAX COLUMNS
COMP_CWORD COMP_KEY COMP_LINE COMP_POINT COMP_TYPE COMP_WORDBREAKS COMP_WORDS COMPREPLY COPROC DIRSTACK EMACS ENV EPOCHREALTIME
EPOCHSECONDS EUID EXECIGNORE FCEDIT FIGNORE FUNCNAME FUNCNEST GLOBIGNORE GROUPS HISTCMD HISTCONTROL HISTFILE HISTFILESIZE HISTIGNORE
HISTSIZE HISTTIMEFORMAT HOME HOSTFILE HOSTNAME HOSTTYPE IFS IGNOREEOF INPUTRC INSIDE_EMACS LANG LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES
LC_NUMERIC LC_TIME LINENO LINES MACHTYPE MAIL MAILCHECK MAILPATH MAPFILE OLDPWD OPTARG OPTERR OPTIND OSTYPE PATH PIPESTATUS
POSIXLY_CORRECT PPID PROMPT_COMMAND PROMPT_DIRTRIM PS0 PS1 PS2 PS3 PS4 PWD RANDOM READLINE_LINE READLINE_MARK READLINE_POINT REPLY
SECONDS SHELL SHELLOPTS SHLVL SRANDOM TIMEFORMAT TMOUT TMPDIR UID auto_resume histchars
"""
"""bash(1), "Shell Variables", bash 5.2."""


def test_variables_that_bash_changes_are_refused(tmp_path: Path) -> None:
    """A variable that does not have its value after a script exports it cannot be declared, because check S3 would always fail."""
    script = tmp_path / "variables.sh"

    def changes(name: str, value: str) -> bool:
        script.write_text(f"export {name}={shlex.quote(value)}\n", encoding="utf-8")
        words = ["bash", "-c", f". {script}; exec env -0"]
        given = {"PATH": os.environ["PATH"], "HOME": "/", "LC_ALL": "C"}
        done = subprocess.run(words, env=given, capture_output=True, check=False)
        return f"{name}={value}".encode() not in done.stdout.split(b"\0")

    changed = {name for name in OF_BASH.split() if changes(name, "declared") or changes(name, "1")}
    assert {"RANDOM", "UID", "BASH_COMMAND", "_"} <= changed
    assert refused_names(*changed) == changed
