"""Runs random command lines in one process: `python -m tests.cli.fuzzed SEED COUNT FOLDER`. Prints the command lines with an unexpected result."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click

from gpuinfra.cli import cli, main

EXIT_CODES = {0, 1, 2, 3, 130}
"""The exit codes in `gpuinfra --help`, and that of an interrupted command."""
HANG_S = 120
ROOT = Path(__file__).parents[2]
STACKS = ("aws-p4d", "azure-ndv5", "gcp-a3mega", "aws-recovery", "gcp-recovery", "azure-recovery")
WORDS = (
    *("", " ", "-", "--", "-1", "0", "1", "8", "1e309", "NaN", "9" * 30, "true", "null", "[]", "{", "a" * 5000, "ä", "💥", "\u202e", "\x1b[31mred", "a\nb"),
    *("aws", "azure", "gcp", "us-east-1", "us-west-2", "eastus", "westus3", "us-central1", "us-east4-b", "mars-north-1", "p4d.24xlarge", "a3-megagpu-8g", "p9.giant"),
    *("gpu-1", "gpu-1:0", "pools.capacity.count", "N1", "63", "2026-02-30", "2026-12-01T11:30:00Z", "10.0.0.0/99", "203.0.113.0/24", "checkpoints", "ubuntu@"),
)  # fmt: skip
"""Values that are valid for one option and invalid for the others. No path leads out of the working folder."""
FILES = {
    "empty.yaml": b"",
    "binary.yaml": bytes(range(256)),
    "list.yaml": b"- a\n- b\n",
    "deep.yaml": b"a: " + b"[" * 400 + b"]" * 400,
    "alias.yaml": b"a: &a [1, 2]\nb: [*a, *a]\n<<: {name: x}\n",
    "tag.yaml": b"name: !!python/object/apply:os.system ['true']\n",
    "twice.yaml": b"name: a\nname: b\n",
    "tab.yaml": b"name:\tx\n\twhere: y\n",
    "escape.yaml": "name: \"\\e[31mred\"\nwhere: {cloud: aws, region: 'us\u202eeast'}\n".encode(),
    "report.json": b'{"schema": "gpuinfra.plan/1", "pools": [{"name": 7}]}',
}


class TimedOut(BaseException):
    """Raised if a command line takes too long."""


def folder_of(root: Path) -> list[str]:
    """Fill a working folder with a project, stack files and invalid files. Returns the words that name them."""
    shutil.copy(ROOT / "Pulumi.yaml", root)
    (root / "stacks").mkdir()
    for stack in STACKS:
        shutil.copy(ROOT / f"stacks/Pulumi.{stack}.yaml", root / "stacks")
    for name, content in FILES.items():
        (root / f"Pulumi.{name}").write_bytes(content)
    (root / "folder").mkdir()
    (root / "Pulumi.folder.yaml").mkdir()
    named = [f"Pulumi.{name}" for name in FILES]
    return [*STACKS, *(f"stacks/Pulumi.{one}.yaml" for one in STACKS), *named, "folder", "missing.yaml", "Pulumi.folder.yaml"]  # fmt: skip


def commands(group: click.Group, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    """Return every command with its words."""
    found = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        inner = commands(command, (*words, name)) if isinstance(command, click.Group) else []
        found += [*inner, ((*words, name), command)]
    return found


def value(chance: random.Random, parameter: click.Parameter, files: list[str]) -> str:
    """Return a value that is more often valid than not."""
    kind = parameter.type
    if isinstance(kind, click.Choice) and chance.random() < 0.8:
        return str(chance.choice(list(kind.choices)))
    if isinstance(kind, (click.types.IntParamType, click.types.FloatParamType)) and chance.random() < 0.7:
        return str(chance.choice((0, 1, 2, 8, 30, -1, 10**9)))
    if parameter.name == "stack" and chance.random() < 0.6:
        return chance.choice(STACKS)
    named = parameter.name in ("stack", "path", "file", "folder", "output", "project") or isinstance(kind, click.Path)
    return chance.choice(files if chance.random() < (0.9 if named else 0.1) else WORDS)


def line(chance: random.Random, known: list[tuple[tuple[str, ...], click.Command]], files: list[str]) -> list[str]:
    """Return a random command line."""
    words, command = chance.choice(known)
    made: list[list[str]] = []
    options = [one for one in command.params if isinstance(one, click.Option) and not one.required]
    chosen = chance.sample(options, min(len(options), chance.choice((0, 0, 1, 1, 2, 4))))
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            if chance.random() < 0.93:
                most = 3 if parameter.nargs == -1 else parameter.nargs
                made.append([value(chance, parameter, files) for _ in range(chance.randint(min(1, most), most))])
        elif isinstance(parameter, click.Option) and (parameter.required or parameter in chosen):
            flag = [chance.choice(parameter.opts)]
            counted = parameter.is_flag or parameter.count
            made.append(flag if counted else [*flag, *(value(chance, parameter, files) for _ in range(parameter.nargs))])  # fmt: skip
    if chance.random() < 0.05:
        made.append([chance.choice((*WORDS, "--unknown", "--json", "-x"))])
    if chance.random() < 0.05 and made:
        made.append(chance.choice(made))
    if chance.random() < 0.05 and made:
        made.remove(chance.choice(made))
    chance.shuffle(made)
    return [*words, *(word for part in made for word in part)]


def run(words: list[str], environment: dict[str, str]) -> tuple[int, str, float]:
    """Run a command line. Returns its exit code, its output, and its duration in seconds."""
    os.environ.clear()
    os.environ.update(environment)
    out, begun = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict"), time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        signal.alarm(HANG_S)
        try:
            code = main(words)
        finally:
            signal.alarm(0)
    out.flush()
    return code, out.buffer.getvalue().decode(), time.monotonic() - begun  # type: ignore[attr-defined]


def problem_of(code: int, output: str) -> str | None:
    """Return what is wrong with a result, or None."""
    if code not in EXIT_CODES:
        return f"exit code {code}"
    if "Traceback" in output or "internal error" in output:
        return "a traceback or an internal error"
    if "\x1b" in output or "\u202e" in output:
        return "control characters in the output"
    if code and not output.strip():
        return "no message"
    return None


def search(seed: int, count: int, root: Path) -> dict[str, Any]:
    """Run `count` command lines, and return the unexpected results and the number of results for each exit code."""
    environment = {"PATH": str(root / "bin"), "HOME": str(root / "home"), "PULUMI_BACKEND_URL": f"file://{root}/state",
                   "PULUMI_CONFIG_PASSPHRASE": "", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)}  # fmt: skip
    for name in ("bin", "home", "state", "work"):
        (root / name).mkdir()
    os.chdir(root / "work")
    files, known, chance = folder_of(root / "work"), commands(cli), random.Random(seed)
    wrong, codes = [], Counter[str]()

    def late(*_: object) -> None:
        raise TimedOut

    signal.signal(signal.SIGALRM, late)
    for _ in range(count):
        words = line(chance, known, files)
        try:
            code, output, _seconds = run(words, environment)
        except TimedOut:
            wrong.append({"words": words, "problem": f"no end after {HANG_S} s", "output": ""})
            continue
        codes[str(code)] += 1
        if problem := problem_of(code, output):
            wrong.append({"words": words, "problem": problem, "output": output[-2000:]})
    return {"wrong": wrong, "codes": codes, "commands": len(known)}


if __name__ == "__main__":
    found = search(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    sys.__stdout__.write(json.dumps(found))  # pyright: ignore[reportOptionalMemberAccess]
