"""Every code block in the README and the docs is run or checked: commands, declarations, other YAML files, JSON, programs and diagrams."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.session
import click
import pytest
from botocore import xform_name

from gpuinfra.base.errors import SpecError
from gpuinfra.base.findings import Finding, Level
from gpuinfra.base.shipped import shipped
from gpuinfra.cli import COMMANDS, main
from gpuinfra.cost.file import load as load_prices
from gpuinfra.engine import find_engine
from gpuinfra.provider.schema import package_schema
from gpuinfra.remote.hosts import read_hosts
from gpuinfra.rules import check
from gpuinfra.spec import ClusterSpec, parse_spec, read_stack
from gpuinfra.spec.document import parse
from gpuinfra.spec.load import stack_in
from tests.clouds.stacks import TODAY

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
STACKS = {path.name.split(".")[1] for path in shipped("stacks").glob("Pulumi.*.yaml")}
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*)(?P<rest>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    page: str
    language: str
    text: str

    def __str__(self) -> str:
        return re.sub(r"\W+", "-", f"{self.page} {self.text[:40]}").strip("-")


def blocks() -> Iterator[Block]:
    """The code blocks of all pages, without the indentation of a list."""
    for page in PAGES:
        for match in FENCE.finditer(page.read_text(encoding="utf-8")):
            yield Block(str(page.relative_to(ROOT)), match["language"], textwrap.dedent(match["text"]))


BLOCKS = list(blocks())
LANGUAGES = {"bash", "console", "json", "mermaid", "python", "text", "typescript", "yaml"}
"""Languages of blocks. A test checks each of them, except `text`, which is output or a list."""


def of(*languages: str) -> list[Block]:
    """The blocks in some languages."""
    return [one for one in BLOCKS if one.language in languages]


def test_each_block_has_a_language_that_is_checked() -> None:
    """A block without a language would be checked by no test."""
    assert [str(one) for one in BLOCKS if one.language not in LANGUAGES] == []
    assert len(of("console")) > 40


# Commands


def commands(block: Block) -> Iterator[list[str]]:
    """The commands of a block, as words. In a block with prompts, only the lines with a prompt are commands."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in lines:
        parser = shlex.shlex(line, posix=True, punctuation_chars=True)
        parser.whitespace_split, parser.commenters = True, "#"
        words: list[str] = []
        for word in (*parser, "&&"):
            if word in ("&&", "||", "|", ";"):
                yield from [_without_shell(words)] if words else []
                words = []
            else:
                words.append(word)


def _without_shell(words: list[str]) -> list[str]:
    """The words of a command without redirections and variables in front of it."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0], re.S):
        words = words[1:]
    at = next((index for index, word in enumerate(words) if word in (">", "<", ">>")), None)
    return words if at is None else [*words[:at], *words[at + 2 :]]


LINES = [(block.page, words) for block in of("console") for words in commands(block) if words]
IDS = [f"{page} {' '.join(words)}"[:70] for page, words in LINES]


@pytest.mark.parametrize(("page", "words"), LINES, ids=IDS)
def test_a_documented_command_exists(page: str, words: list[str]) -> None:
    """The program of a command is known, and its subcommands, options and files exist."""
    program = Path(words[0]).name
    assert program in PROGRAMS, f"{page}: {program} is in no table of this test"
    PROGRAMS[program](words[1:])


def check_gpuinfra(words: list[str]) -> None:
    """A command of gpuinfra with its options, and stacks that ship."""
    name, *rest = [re.sub(r"[\[\]]|\.\.\.", "", word) for word in words]
    assert name in COMMANDS
    command = importlib.import_module(f"gpuinfra.cli.{name}").command
    assert isinstance(command, click.Command)
    ours = rest[: rest.index("--")] if "--" in rest else rest
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in ours if word.startswith("--")} <= options
    named = {word for word in rest if re.fullmatch(r"(aws|azure|gcp)-[a-z0-9-]+", word)}
    assert named <= STACKS


def _make(words: list[str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {word for word in words if "=" not in word} <= targets


@functools.cache
def _help_of_pulumi(*words: str) -> str:
    engine = find_engine(lambda line: print(line, file=sys.stderr))
    done = subprocess.run([engine.path, *words, "--help"], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


def _pulumi(words: list[str]) -> None:
    """A command of the engine with its options."""
    names = []
    while words and not words[0].startswith("-") and f"\n  {words[0]} " in _help_of_pulumi(*names):
        names.append(words[0])
        words = words[1:]
    assert names
    text = _help_of_pulumi(*names)
    assert [word for word in words if word.startswith("--") and word.partition("=")[0] not in text] == []


def _python(words: list[str]) -> None:
    """A module or a script of this project, or of Python."""
    if words[0] == "-m":
        assert importlib.util.find_spec(words[1]) is not None
    elif not words[0].startswith("/opt/"):  # a file of the nodes
        assert (ROOT / words[0]).is_file()


def _aws(words: list[str]) -> None:
    """An operation of the AWS CLI, whose options are the members of the operation's input in botocore."""
    service, operation, *rest = words
    model = botocore.session.get_session().get_service_model(service)
    (name,) = [one for one in model.operation_names if xform_name(one, "-") == operation]
    shape = model.operation_model(name).input_shape
    known = {f"--{xform_name(one, '-')}" for one in shape.members} if shape else set()
    assert {word for word in rest if word.startswith("--")} <= known | {"--region", "--query", "--output"}


VENDORS = {
    "az keyvault secret set": "https://learn.microsoft.com/cli/azure/keyvault/secret",
    "az lock create": "https://learn.microsoft.com/cli/azure/lock",
    "az storage account or-policy delete": "https://learn.microsoft.com/cli/azure/storage/account/or-policy",
    "crane copy": "https://github.com/google/go-containerregistry/blob/main/cmd/crane/doc/crane_copy.md",
    "gcloud artifacts repositories create": "https://cloud.google.com/sdk/gcloud/reference/artifacts/repositories/create",
    "gcloud auth configure-docker": "https://cloud.google.com/sdk/gcloud/reference/auth/configure-docker",
    "gcloud secrets create": "https://cloud.google.com/sdk/gcloud/reference/secrets/create",
    "gcloud services enable": "https://cloud.google.com/sdk/gcloud/reference/services/enable",
    "gcloud alpha transfer jobs update": "https://cloud.google.com/sdk/gcloud/reference/alpha/transfer/jobs/update",
}
"""Commands of programs that publish no machine-readable description, with their reference pages."""


def _vendor(program: str) -> Callable[[list[str]], None]:
    def known(words: list[str]) -> None:
        line = " ".join([program, *words])
        assert any(line.startswith(f"{one} ") for one in VENDORS), line

    return known


def _folder(words: list[str]) -> None:
    assert (ROOT / words[0]).is_dir()


def _anything(_: list[str]) -> None:
    """Programs of the system, whose words depend on the reader's files."""


PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "gpuinfra": check_gpuinfra, "make": _make, "pulumi": _pulumi, "python": _python, "python3": _python, "aws": _aws, "az": _vendor("az"),
    "crane": _vendor("crane"), "gcloud": _vendor("gcloud"), "cd": _folder,
    **dict.fromkeys(("export", "git", "jq", "mkdir", "mpirun", "mv", "cp", "npm", "pip", "rsync", "source", "ssh"), _anything),
}  # fmt: skip
"""Program -> check of its words."""

OFFLINE = {
    "plan",
    "catalog",
    "prices",
    "images",
    "clone",
    "permissions",
    "explain",
    "schema",
    "init",
    "completion",
    "cache",
}
ELSEWHERE = {"--live", "--diff", "update", "install", "uninstall", "clean", "STACK", "azure-recovery", "--prices"}
"""Words of commands that need an account, a file, another commit, or that change the home directory. Other tests run them."""
RUN = [words for _, words in LINES if words[0] == "gpuinfra" and words[1] in OFFLINE and not {*words} & ELSEWHERE]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which the page about the start creates the stack `train`, with the stack file of the page about components."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(ROOT / "examples/components/aws/Pulumi.dev.yaml", folder)
    return folder


def test_offline_commands_succeed(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The documented commands that need no account and no engine end with exit code 0, in the order of the pages."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("GPUINFRA_CACHE", str(project / "cache"))
    (init,) = [words for words in RUN if words[1] == "init" and len(words) > 2]
    failed = []
    for words in [init, *(words for words in RUN if words[1] != "init" and not _writes_to_stacks(words))]:
        if main(words[1:]) != 0:
            failed.append((words, capsys.readouterr().err))
    assert failed == []
    assert len(RUN) > 30
    for name in ("Pulumi.train.yaml", "Pulumi.train-us-west-2.yaml", "plan.html", "train.svg"):
        assert (project / name).stat().st_size > 500


def _writes_to_stacks(words: list[str]) -> bool:
    """Whether a command writes or reads a clone next to the shipped stacks."""
    return (words[1] == "clone" and words[2] in STACKS and "--dry-run" not in words) or any(
        word.startswith("stacks/") for word in words
    )


@pytest.mark.parametrize("block", [one for one in of("console") if one.text.startswith("$ gpuinfra plan ")], ids=str)
def test_shown_output_is_that_of_the_command(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    """A block with a prompt shows the output of the command; `...` stands for other lines."""
    (words,) = commands(block)
    assert main(words[1:]) == 0
    shown = capsys.readouterr().out
    expected = [line.rstrip() for line in block.text.splitlines()[1:] if line != "..."]
    assert [line for line in expected if line not in shown.splitlines()] == []


# Files


def _clusters() -> Iterator[dict[str, Any]]:
    """A cluster on each cloud, and the clusters with a second region. A block is a part of one of them."""
    pools = {"aws": "p4d.24xlarge", "azure": "Standard_ND96amsr_A100_v4", "gcp": "a2-highgpu-8g"}
    places = {
        "aws": {"region": "us-east-1", "zone": "use1-az4"},
        "azure": {"region": "southcentralus"},
        "gcp": {"region": "us-central1", "zone": "us-central1-a"},
    }
    for cloud, machine in pools.items():
        access = {"access": {"evidence_from": ["203.0.113.0/24"]}} if cloud == "azure" else {}
        pool = {"name": "gpu", "machine": machine, "capacity": [{"kind": "on_demand", "count": 2}]}
        yield {"name": "train", "where": {"cloud": cloud, **places[cloud]}, "pools": [pool], **access}
    for stack in ("aws-recovery", "azure-recovery", "gcp-recovery"):
        spec = read_stack(shipped("stacks") / f"Pulumi.{stack}.yaml").spec
        yield spec.model_dump(exclude_unset=True, mode="json", by_alias=True)


def _is_cluster(value: Any) -> bool:
    return isinstance(value, dict) and {*value} <= {*ClusterSpec.model_fields}


def _errors(value: dict[str, Any], folder: Path) -> list[str]:
    try:
        found: tuple[Finding, ...] = check(parse_spec(value, folder=folder), TODAY)
    except SpecError as problem:
        found = problem.findings
    return [str(one) for one in found if one.level is Level.ERROR]


def _declaration(value: Any, folder: Path) -> None:
    """A declaration, or sections of one, without errors on at least one cloud. The files that it names exist."""
    for name in re.findall(r"'file': '([^']+)'", str(value)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/bash\n")
    if "where" in value and "pools" in value:
        assert _errors(value, folder) == []
        return
    tried = []
    for base in _clusters():
        merged = {
            name: {**base[name], **one} if isinstance(one, dict) and isinstance(base.get(name), dict) else one
            for name, one in value.items()
        }
        tried.append(_errors({**base, **merged}, folder))
    assert [] in tried, tried


def _pulumi_yaml(value: Any) -> None:
    """A project or a program of Pulumi YAML, whose components and properties are in the schema of the package."""
    resources = package_schema("0.0.0")["resources"]
    for one in value.get("resources", {}).values():
        known = resources[one["type"].replace("gpuinfra:", "gpuinfra:index:")]["inputProperties"]
        assert {*one.get("properties", {})} <= {*known}
    for one in value.get("plugins", {}).get("providers", ()):
        assert one["path"].endswith("plugin")


def _workflow_step(value: Any) -> None:
    """A step of a workflow uses an action at a commit."""
    for step in value:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_a_yaml_block_is_valid(block: Block, tmp_path: Path) -> None:
    """A declaration has no errors, and each other file is accepted by the code that reads it."""
    value: Any = parse(block.text, block.page).value
    file = tmp_path / "file.yaml"
    file.write_text(block.text)
    if isinstance(value, list):
        _workflow_step(value)
    elif "config" in value:
        stack = stack_in(parse(block.text, str(file)), file)
        assert [str(one) for one in check(stack.spec, TODAY) if one.level is Level.ERROR] == []
    elif "read" in value:
        assert load_prices(file)
    elif "hosts" in value:
        assert read_hosts(file).hosts
    elif _is_cluster(value):
        _declaration(value, tmp_path)
    else:
        _pulumi_yaml(value)


@pytest.mark.parametrize("block", of("json"), ids=str)
def test_a_json_block_is_valid(block: Block) -> None:
    """A JSON block is one document."""
    assert isinstance(json.loads(block.text), dict)


# Programs

RUN_BY = {
    "README.md": "tests/cli/test_readme.py",
    "docs/reference/aws.md": "tests/clouds/aws/test_docs.py",
    "docs/reference/azure.md": "tests/clouds/azure/test_docs.py",
    "docs/reference/gcp.md": "tests/clouds/gcp/test_docs.py",
    "docs/reference/aws-second-region.md": "tests/clouds/aws/region/test_recovery.py",
    "docs/reference/azure-second-region.md": "tests/clouds/azure/region/test_recovery.py",
    "docs/reference/gcp-second-region.md": "tests/clouds/gcp/region/test_recovery.py",
    "docs/guides/library.md": "tests/cli/test_readme.py",
    "docs/internals/add-a-check.md": "tests/node/test_adding_a_check.py",
    "docs/internals/adding-a-cloud.md": "tests/clouds/test_adding_a_cloud.py",
}
"""Page -> the test that runs its programs."""


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_a_python_block_is_run(block: Block) -> None:
    """A program runs here, or in the test of its page."""
    if block.page in RUN_BY:
        assert Path(block.page).name in (ROOT / RUN_BY[block.page]).read_text(encoding="utf-8")
        return
    exec(compile(block.text, block.page, "exec"), {})


@pytest.mark.parametrize("block", of("bash"), ids=str)
def test_a_script_is_valid(block: Block) -> None:
    """Bash accepts the script, and its first line names the interpreter, as own steps require."""
    assert block.text.startswith("#!/bin/bash\n")
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("block", of("typescript"), ids=str)
def test_a_typescript_block_is_an_example(block: Block) -> None:
    """Each line of a TypeScript program is in the program of `examples/typescript`, which a test rehearses."""
    example = (ROOT / "examples" / "typescript" / "index.ts").read_text(encoding="utf-8").splitlines()
    assert [line for line in block.text.splitlines() if line not in example] == []


@pytest.mark.parametrize("block", of("mermaid"), ids=str)
def test_a_diagram_is_a_flowchart(block: Block) -> None:
    """Each subgraph has an end, and each line is a node, an edge or a subgraph. `make docs` renders the diagrams."""
    first, *lines = [line.strip() for line in block.text.splitlines() if line.strip()]
    assert re.fullmatch(r"flowchart (TD|LR|TB)", first)
    assert sum(line.startswith("subgraph") for line in lines) == lines.count("end")
    edge = r'\w+(\[".*"\])?( & \w+)* (-->|-->\|[^|]+\|) \w+(\[".*"\])?( & \w+)*'
    assert [line for line in lines if not re.fullmatch(rf'{edge}|\w+\[".*"\]|subgraph .*|end', line)] == []
