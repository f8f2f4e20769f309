"""Runs random command lines in one process: `python -m tests.cli.fuzzed SEED COUNT FOLDER`. Prints the command lines with an unexpected result.

Each command line gets its own files, environment and temporary folder. These parts of the process remain: imported modules, functions with a
cache, whether Pulumi's release can be downloaded, and in nine of ten command lines, no pip and no uv (an attempt to install Go takes a second).
`FIRST` after FOLDER starts with a later command line of the seed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from gpuinfra.cli import cli, main
from gpuinfra.engine import go
from tests.cli.fuzz_places import PLACES, Place, programs
from tests.cli.fuzz_places import problem_of as problem_of_place
from tests.cli.fuzz_stacks import mutant

EXIT_CODES = {0, 1, 2, 3, 130}
"""The exit codes in `gpuinfra --help`, and that of an interrupted command."""
HANG_S = 120
ROOT = Path(__file__).parents[2]
MUTANTS = 8
"""Number of changed stack files that all command lines of a seed share. Each command line has one more."""
STACKS = ("aws-p4d", "azure-ndv5", "gcp-a3mega", "aws-recovery", "gcp-recovery", "azure-recovery")
WORDS = (
    *("", " ", "-", "--", "-1", "0", "1", "8", "1e309", "NaN", "9" * 30, "true", "null", "[]", "{", "a" * 5000, "ä", "💥", "\u202e", "\x1b[31mred", "a\nb"),
    *("aws", "azure", "gcp", "us-east-1", "us-west-2", "eastus", "westus3", "us-central1", "us-east4-b", "mars-north-1", "p4d.24xlarge", "a3-megagpu-8g", "p9.giant"),
    *("gpu-1", "gpu-1:0", "pools.capacity.count", "N1", "63", "2026-02-30", "2026-12-01T11:30:00Z", "10.0.0.0/99", "203.0.113.0/24", "checkpoints", "ubuntu@"),
)  # fmt: skip
"""Values that are valid for one option and invalid for the others. No path leads out of the working folder."""
VALID: dict[str, tuple[str, ...]] = {
    "against": ("azure-ndv5", "mutant", "HEAD", "stacks/Pulumi.gcp-a3mega.yaml"),
    "capacity": ("on_demand", "spot", "reserved", "capacity_block"),
    "cidr": ("10.64.0.0/16",),
    "cloud": ("aws", "azure", "gcp"),
    "count": ("1", "2", "0", "8"),
    "day": ("2026-12-01", "2026-12-01T11:30:00Z"),
    "deadline": ("30", "600"),
    "faults": ("node:gpu-1:gpu-missing", "region", "capacity:gpu"),
    "gpu": ("H100", "A100"),
    "hosts_file": ("hosts.yaml", "changed-hosts.yaml"),
    "ignore": ("lag", "quota", "replica"),
    "image": ("ubuntu:24.04",),
    "machine": ("p4d.24xlarge", "p5.48xlarge", "a3-megagpu-8g", "Standard_ND96isr_H100_v5", "m5.large"),
    "mode": ("pilot-light", "backup", "hot"),
    "name": ("train", "pools.count", "where", "E-101", "79"),
    "names": (*STACKS, "p5.48xlarge", "a3-highgpu-8g"),
    "nodes": ("gpu-1", "1", "2"),
    "own": ("report.json", "prices.yaml"),
    "pool": ("gpu", "workers", "nodes"),
    "region": ("us-east-1", "us-west-2", "eastus", "westus3", "us-central1", "us-east4", "europe-west4"),
    "shared_folder": ("/scratch",),
    "storage": ("none", "lustre", "nfs"),
    "to": ("us-west-2", "us-east4", "westus3"),
    "values": ("pools[0].count=2", "name=x", "budget.limit_usd_per_month=100"),
    "words": ("gpu-1", "gpu-1:/var/log/syslog", ".", "nvidia-smi"),
    "zone": ("us-east-1a", "us-west-2b", "1", "us-central1-a"),
}
"""Values that are valid for a parameter of at least one command."""
INIT = ("--cloud aws --region us-east-1 --machine p4d.24xlarge", "--cloud azure --region eastus --machine Standard_ND96isr_H100_v5", "--cloud gcp --region us-central1 --machine a3-megagpu-8g")  # fmt: skip
HOSTS = b"hosts:\n  - {name: gpu-1, address: 192.0.2.1, user: ubuntu}\n  - {name: gpu-2, address: 192.0.2.2, user: ubuntu}\ncloud: aws\nmachine: p5.48xlarge\n"
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


def template_of(root: Path, chance: random.Random) -> list[str]:
    """Create the folders of a user with a project, stack files and invalid files. Returns the words that name the files."""
    for name in ("home", "state", "tmp", "work/stacks", "work/folder", "work/Pulumi.folder.yaml"):
        (root / name).mkdir(parents=True)
    work, texts = root / "work", stack_texts()
    shutil.copy(ROOT / "Pulumi.yaml", work)
    shutil.copy(ROOT / "stacks/__main__.py", work / "stacks")
    (work / "hosts.yaml").write_bytes(HOSTS)
    (work / "changed-hosts.yaml").write_bytes(mutant(chance, [HOSTS.decode()]))
    for stack in STACKS:
        shutil.copy(ROOT / f"stacks/Pulumi.{stack}.yaml", work / "stacks")
    changed = [f"changed{number}" for number in range(MUTANTS)]
    for name in changed:
        (work / f"stacks/Pulumi.{name}.yaml").write_bytes(mutant(chance, texts))
    (work / "Pulumi.mutant.yaml").write_bytes(mutant(chance, texts))
    for name, content in FILES.items():
        (work / f"Pulumi.{name}").write_bytes(content)
    (work / "loop.yaml").symlink_to("loop.yaml")
    named = [f"Pulumi.{name}" for name in FILES]
    return [*STACKS, *changed, *["mutant"] * 20, *(f"stacks/Pulumi.{one}.yaml" for one in STACKS), *named, "folder", "missing.yaml", "Pulumi.folder.yaml", "loop.yaml", "folder/new.yaml"]  # fmt: skip


def stack_texts() -> list[str]:
    """Return the shipped stack files."""
    return [path.read_text() for path in sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))]


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
    if parameter.name == "stack" and (kept := chance.random()) < 0.8:
        return chance.choice(STACKS) if kept < 0.4 else "mutant"
    if parameter.name in VALID and chance.random() < 0.75:
        return chance.choice(VALID[parameter.name])
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
            if chance.random() < 0.97:
                most = chance.choice((1, 1, 3)) if parameter.nargs == -1 else parameter.nargs
                made.append([value(chance, parameter, files) for _ in range(chance.randint(min(1, most), most))])
        elif isinstance(parameter, click.Option) and (parameter.required or parameter in chosen):
            flag = [chance.choice(parameter.opts)]
            counted = parameter.is_flag or parameter.count
            made.append(flag if counted else [*flag, *(value(chance, parameter, files) for _ in range(parameter.nargs))])  # fmt: skip
    if chance.random() < 0.03:
        made.append([chance.choice((*WORDS, "--unknown", "--json", "-x"))])
    if chance.random() < 0.03 and made:
        made.append(chance.choice(made))
    if chance.random() < 0.03 and made:
        made.remove(chance.choice(made))
    if words == ("init",) and chance.random() < 0.7:
        made.append([str(word) for word in chance.choice(INIT).split()])
    chance.shuffle(made)
    return [*words, *(word for part in made for word in part)]


def run(words: list[str], environment: dict[str, str], place: Place) -> tuple[int, str]:
    """Run a command line. Returns its exit code and its output."""
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    # Without /tmp, which is not part of the place.
    tempfile._candidate_tempdir_list = lambda: [environment["TMPDIR"]]  # type: ignore[attr-defined]
    with _captured() as output, place.entered():
        signal.alarm(HANG_S)
        try:
            code = main(words)
        finally:
            signal.alarm(0)
    return code, output[0]


@contextlib.contextmanager
def _captured() -> Iterator[list[str]]:
    """Collect the output in files in memory, because gpuinfra replaces the descriptor of an output that cannot be written."""
    output: list[str] = []
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(os.fdopen(os.memfd_create(name), "w", encoding="utf-8")) for name in ("out", "error")
        ]
        read = [stack.enter_context(os.fdopen(os.dup(file.fileno()), "rb")) for file in files]
        with contextlib.redirect_stdout(files[0]), contextlib.redirect_stderr(files[1]):
            yield output
        for file in files:
            file.flush()
        output.append(str(b"".join(os.pread(file.fileno(), 1 << 24, 0) for file in read), "utf-8"))


def problem_of(code: int, output: str) -> str | None:
    """Return what is wrong with a result, or None."""
    if code not in EXIT_CODES:
        return f"exit code {code}"
    if "Traceback" in output or "internal error" in output:
        return "a traceback or an internal error"
    if "\x1b" in output or "\u202e" in output:
        return "control characters in the output"
    if "[Errno" in output:
        return "an error number"
    if code and not output.strip():
        return "no message"
    return None


def search(seed: int, count: int, root: Path, first: int = 0) -> dict[str, Any]:
    """Run `count` command lines, and return the unexpected results and the number of results for each exit code, place and set of programs."""
    chance = random.Random(seed)
    (root / "none").mkdir()
    (root / "failing").mkdir()
    files, known, texts = template_of(root / "template", chance), commands(cli), stack_texts()
    places = {kind: Place(kind, root / kind, root / "template") for kind in dict.fromkeys(PLACES)}
    for place in places.values():
        place.reset(b"", None)
        if problem := problem_of_place(place):
            raise AssertionError(problem)
    wrong: list[dict[str, Any]] = []
    project = (ROOT / "Pulumi.yaml").read_text()
    codes, where = Counter[str](), Counter[str]()
    installers = go._installers

    def late(*_: object) -> None:
        raise TimedOut

    signal.signal(signal.SIGALRM, late)
    for number in range(first, first + count):
        chance = random.Random(f"{seed} {number}")
        place, tools = places[chance.choice(PLACES)], chance.choice(("none", "failing"))
        programs(chance, root / "failing")
        go._installers = installers if chance.random() < 0.1 else list
        place.reset(mutant(chance, texts), mutant(chance, [project]) if chance.random() < 0.1 else None)
        environment = {"PATH": str(root / tools), "HOME": str(place.root / "home"), "TMPDIR": str(place.root / "tmp"), "LANG": "C.UTF-8",
                       "PULUMI_BACKEND_URL": f"file://{place.root}/state", "PULUMI_CONFIG_PASSPHRASE": "", "PYTHONPATH": str(ROOT)}  # fmt: skip
        words = line(chance, known, files)
        about: dict[str, Any] = {"number": number, "place": place.kind, "tools": tools, "words": words}
        try:
            code, output = run(words, environment, place)
        except TimedOut:
            wrong.append({**about, "problem": f"no end after {HANG_S} s", "output": ""})
            continue
        except Exception:
            wrong.append({**about, "problem": "an exception", "output": traceback.format_exc()[-3000:]})
            continue
        codes[str(code)] += 1
        where[f"{place.kind}, {tools} programs"] += 1
        if problem := problem_of(code, output):
            wrong.append({**about, "problem": problem, "output": output[-2000:]})
    return {"wrong": wrong, "codes": codes, "where": where, "commands": len(known)}


if __name__ == "__main__":
    found = search(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), *map(int, sys.argv[4:]))
    sys.__stdout__.write(json.dumps(found))  # pyright: ignore[reportOptionalMemberAccess]
