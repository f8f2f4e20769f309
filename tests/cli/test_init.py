"""`gpuinfra init`: questions, options, the files that it writes, and refusals that write nothing."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuinfra.base.findings import Level
from gpuinfra.base.registry import CLOUDS
from gpuinfra.base.shipped import shipped
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.cli import main
from gpuinfra.new_stack.answers import QUESTIONS, StackAnswers, kind_needs, needed_fields
from gpuinfra.new_stack.choices import choices
from gpuinfra.new_stack.files import PROGRAM, PROJECT, stack_text
from gpuinfra.plan.profile import profile_of
from gpuinfra.rules import check_stack, load_stack
from gpuinfra.spec.document import parse
from gpuinfra.spec.load import read_stack, stack_in
from gpuinfra_rehearsal.folder import find_program
from gpuinfra_rehearsal.nodes import available
from tests.rules.cases import TODAY

ROOT = Path(__file__).parents[2]
P4D = ["--cloud", "aws", "--region", "us-east-1", "--machine", "p4d.24xlarge"]


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is empty, in a project only if the test writes one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUINFRA_TODAY", TODAY.isoformat())


def written(folder: Path) -> set[str]:
    """Names of the files in a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_options_write_a_stack_that_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With all options, the file declares what they state, `plan` accepts it, and the price and the next commands are printed."""
    options = ["--name", "mine", "--zone", "use1-az4", "--capacity", "spot", "--count", "4"]
    storage = ["--storage", "lustre,capacity_gib=4800,bucket=auto", "--set", "budget.recipients=[ops@example.com]"]
    assert main(["init", *P4D, *options, *storage]) == 0
    out, err = capsys.readouterr()
    stack = load_stack("mine", TODAY)
    assert stack.path == tmp_path / "Pulumi.mine.yaml"
    assert stack.findings == ()
    assert stack.config == {"aws:region": "us-east-1"}
    spec = stack.spec
    assert (spec.name, spec.where.region, spec.where.zone) == ("mine", "us-east-1", "use1-az4")
    assert [(e.kind, e.count) for e in spec.pools[0].capacity] == [("spot", 4)]
    assert [(e.kind, e.mount, getattr(e, "bucket", "")) for e in spec.storage] == [("lustre", "/scratch", "auto")]
    assert "price: " in out
    assert "USD an hour" in out
    assert out.splitlines()[-2:] == ["  gpuinfra plan mine", "  gpuinfra rehearse up mine"]
    assert "error" not in err
    assert main(["plan", "mine"]) == 0


def test_defaults_are_one_node_without_storage() -> None:
    """Only the cloud, the region and the machine type are required. The other values have defaults."""
    assert main(["init", *P4D]) == 0
    spec = read_stack("train").spec
    assert [(e.kind, e.count) for e in spec.pools[0].capacity] == [("on_demand", 1)]
    assert spec.storage == ()


@pytest.mark.parametrize(
    ("given", "missing", "allowed"),
    [
        ([], "--cloud", ["aws", "azure", "gcp"]),
        (["--yes"], "--cloud", ["aws"]),
        (["--cloud", "gcp"], "--region", ["us-central1"]),
        (["--cloud", "aws", "--region", "us-east-1"], "--machine", ["p4d.24xlarge", "p5.48xlarge"]),
        (
            ["--cloud", "aws", "--region", "us-east-1", "--machine", "p6e-gb200.36xlarge"],
            "--machine",
            ["B200 or B300"],
        ),
    ],
)
def test_a_missing_option_is_one_finding_with_allowed_values(
    given: list[str], missing: str, allowed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a terminal, a missing option is one line that names the option and the allowed values, and nothing is written."""
    assert main(["init", *given]) in (1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert missing in line
    for word in allowed:
        assert word in line
    assert written(tmp_path) == set()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--cloud", "asw"], ["--cloud is 'asw'", "allowed: aws, azure, gcp", "did you mean aws?"]),
        (["--cloud", "aws", "--region", "us-esat-1"], ["--region is 'us-esat-1'", "did you mean us-east-1?"]),
        ([*P4D[:4], "--machine", "p4d.24xlrage"], ["--machine is 'p4d.24xlrage'", "did you mean p4d.24xlarge?"]),
        ([*P4D, "--zone", "use1-az9x"], ["--zone is 'use1-az9x'"]),
        ([*P4D, "--capacity", "sopt"], ["--capacity has kind 'sopt'", "did you mean spot?"]),
        (
            [*P4D, "--capacity", "fast"],
            ["has kind 'fast'; allowed: block, on_demand, reserved, spot; use one of these"],
        ),
        (["--cloud", "aws", "--region", "us-est-1"], ["did you mean us-east-1?"]),
        (["--cloud", "aws", "--region", "us-wst-1"], ["did you mean us-west-1?"]),
        ([*P4D, "--capacity", "flex,max_run_hours=2"], ["--capacity kind is flex", "does not offer"]),
        ([*P4D, "--capacity", "reserved"], ["--capacity has neither id nor group_arn"]),
        ([*P4D, "--capacity", "spot,id"], ["--capacity is", "KIND[,FIELD=VALUE]..."]),
        ([*P4D, "--count", "-1"], ["--count is -1", "0 or more"]),
        ([*P4D, "--count", "two"], ["--count is 'two'", "a whole number"]),
        ([*P4D, "--storage", "lustr"], ["--storage", "did you mean lustre?"]),
        ([*P4D, "--storage", "lustre,capacity_gib=4.8TiB"], ["capacity_gib is '4.8TiB'"]),
        ([*P4D, "--storage", "object,mount=/data,bucket=b"], ["--storage bucket is not a bucket name"]),
        ([*P4D, "--storage", "lustre"], ["--storage capacity_gib is missing"]),
        ([*P4D, "--storage", "fast"], ["--storage has kind 'fast'"]),
        (
            [*P4D, "--storage", "lustre,capacity_gib=4800", "--storage", "lustre,capacity_gib=4800"],
            ["--storage (number 2) mount is /scratch, which overlaps"],
        ),
        (
            [*P4D, "--storage", "lustre,capacity_gib=4800", "--storage", "fast"],
            ["--storage (number 2) has kind 'fast'"],
        ),
        (
            [*P4D, "--storage", "none", "--storage", "lustre,capacity_gib=4800"],
            ["--storage none cannot be combined with other values"],
        ),
        (
            [*P4D, "--storage", "lustre,capacity_gib=4800", "--storage", "none"],
            ["--storage none cannot be combined with other values"],
        ),
        ([*P4D, "--output", "missing/x.yaml"], ["missing/x.yaml is in a folder that does not exist"]),
        (
            [*P4D, "--set", "software.steps=[{name: a, file: missing.sh}]"],
            ["gpuinfra: error: software.steps[0].file is missing.sh"],
        ),
        ([*P4D, "--name", "My_Cluster"], ["--name is 'My_Cluster'", "lowercase letters"]),
        ([*P4D, "--set", "budget"], ["--set is 'budget'", "PATH=VALUE"]),
        ([*P4D, "--set", "pools[3].zone=x"], ["--set 'pools[3].zone' uses index 3"]),
        ([*P4D, "--set", "budgt.recipients=[a@example.com]"], ["budgt", "did you mean budget?"]),
        (
            ["--cloud", "gcp", "--region", "us-central1", "--machine", "a3-megagpu-8g"],
            ["software.registry is not compatible", "--set software.registry=VALUE"],
        ),
    ],
)
def test_a_bad_value_is_refused_with_the_finding_of_the_rules(
    options: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each bad value is one error that names the option, the value and what is allowed, and nothing is written."""
    assert main(["init", *options]) in (1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    errors = [line for line in err.splitlines() if "warn:" not in line]
    assert len(errors) == 1, err
    for word in words:
        assert word in errors[0]
    assert written(tmp_path) == set()


def test_an_existing_file_is_replaced_only_with_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second run changes nothing and states the way out. `--force` replaces the stack file, but never the project or the program."""
    assert main(["init", *P4D]) == 0
    (tmp_path / PROGRAM).write_text("# my program\n")
    before = {name: (tmp_path / name).read_text() for name in written(tmp_path)}
    capsys.readouterr()
    assert main(["init", *P4D, "--count", "2"]) == 2
    assert "Pulumi.train.yaml exists; use a different --name or --output, or add --force" in capsys.readouterr().err
    assert {name: (tmp_path / name).read_text() for name in written(tmp_path)} == before
    assert main(["init", *P4D, "--count", "2", "--force"]) == 0
    after = {name: (tmp_path / name).read_text() for name in written(tmp_path)}
    assert {name for name in after if after[name] != before[name]} == {"Pulumi.train.yaml"}
    assert read_stack("train").spec.nodes == 2


def test_a_folder_with_another_program_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A program without a project is not replaced, not even with `--force`."""
    (tmp_path / PROGRAM).write_text("# my program\n")
    assert main(["init", *P4D, "--force"]) == 2
    assert "__main__.py exists, but the folder has no Pulumi.yaml" in capsys.readouterr().err
    assert written(tmp_path) == {PROGRAM}


def test_an_empty_folder_becomes_a_project_that_a_rehearsal_finds(tmp_path: Path) -> None:
    """Outside of a project, the project file names the provider and the environment of gpuinfra, and the program is the shipped one."""
    assert main(["init", *P4D]) == 0
    assert written(tmp_path) == {PROJECT, PROGRAM, "Pulumi.train.yaml"}
    program = find_program(tmp_path / "Pulumi.train.yaml")
    assert (program.project, program.main, program.plugin) == ("gpuinfra", tmp_path, shipped("plugin"))
    if sys.prefix != sys.base_prefix:
        document = parse((tmp_path / PROJECT).read_text(), PROJECT).value
        assert isinstance(document, dict)
        assert document["runtime"]["options"]["virtualenv"] == sys.prefix
    assert (tmp_path / PROGRAM).read_text() == (shipped("stacks") / PROGRAM).read_text()


def test_a_project_keeps_its_program_and_gets_only_the_stack_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a project, the stack file goes to its folder for stack files, also from a subfolder. A missing program is reported."""
    (tmp_path / PROJECT).write_text("name: own\nruntime: python\nstackConfigDir: stacks\n")
    for name in ("stacks", "inner"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    assert main(["init", *P4D]) == 0
    out, err = capsys.readouterr()
    assert written(tmp_path) == {PROJECT, "stacks/Pulumi.train.yaml"}
    assert f"missing for a rehearsal or a deployment: the program {tmp_path / PROGRAM}" in err
    assert "gpuinfra plan train" in out


def test_a_project_in_yaml_gets_a_stack_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A YAML project gets only the stack file. A missing plugin is reported with the path to add."""
    (tmp_path / PROJECT).write_text("name: own\nruntime: yaml\n")
    monkeypatch.chdir(tmp_path)
    assert main(["init", *P4D]) == 0
    assert "missing for a rehearsal or a deployment: gpuinfra's plugin; add " in capsys.readouterr().err
    assert written(tmp_path) == {PROJECT, "Pulumi.train.yaml"}
    plugins = "plugins: {providers: [{name: gpuinfra, path: plugin}]}\n"
    (tmp_path / PROJECT).write_text(f"name: own\nruntime: yaml\n{plugins}")
    assert main(["init", *P4D, "--force"]) == 0
    assert "missing" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("runtime", "given"),
    [("runtime: java", "has the runtime 'java'"), ("runtime: {name: go}", "has the runtime 'go'"), ("main: app", "has no runtime")],
)  # fmt: skip
def test_a_project_in_another_language_is_refused(
    runtime: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A project above the folder whose programs cannot be rehearsed gets no stack file, not even with `--force`."""
    (tmp_path / PROJECT).write_text(f"name: own\n{runtime}\n")
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    assert main(["init", *P4D, "--force"]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert f"{tmp_path / PROJECT} {given}, but `gpuinfra init` supports the runtimes python, yaml, nodejs" in err
    assert written(tmp_path) == {PROJECT}


def test_the_schema_of_a_file_in_the_checkout_is_relative(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a checkout, the file names the schema by a relative path. Elsewhere, the path is absolute."""
    from gpuinfra.new_stack.files import files_of

    answers = draft(*P4D[1::2])
    assert files_of(answers, Path("Pulumi.x.yaml"))[-1].text.startswith(
        f"# yaml-language-server: $schema={ROOT}/gpuinfra/spec/schema.json\n"
    )
    (file,) = files_of(answers, ROOT / "stacks" / "Pulumi.x.yaml")
    assert file.text.startswith("# yaml-language-server: $schema=../gpuinfra/spec/schema.json\n")


def draft(cloud: str, region: str, machine: str, *, name: str = "train") -> StackAnswers:
    """Answers to the required questions."""
    answers = StackAnswers(today=TODAY)
    for option, text in (("name", name), ("cloud", cloud), ("region", region), ("machine", machine)):
        QUESTIONS[option].apply(answers, text)
    return answers


FIELDS = {
    "id": "cr-0123456789abcdef0",
    "starts_at": "2026-12-01T11:30:00Z",
    "ends_at": "2026-12-08T11:30:00Z",
    "max_run_hours": "72",
}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_proposal_is_accepted_by_the_rules(cloud: str) -> None:
    """In each region, each proposed machine type, kind of capacity and storage results in a declaration without errors."""
    answers = StackAnswers(today=TODAY)
    QUESTIONS["name"].apply(answers, "train")
    QUESTIONS["cloud"].apply(answers, cloud)
    regions = choices("region", answers).values
    assert set(regions) <= set(profile_of(cloud).regions)
    seen: set[tuple[str, str]] = set()
    for region in regions:
        QUESTIONS["region"].apply(answers, region)
        machines = choices("machine", answers)
        assert machines.values, region
        for machine in machines.values:
            if (machine, "") in seen:
                continue
            seen.add((machine, ""))
            one = draft(cloud, region, machine)
            for kind in choices("capacity", one).values:
                if set(needed_fields(kind)) & {"id"}:
                    continue  # The form of an ID differs between clouds.
                text = ",".join([kind, *(f"{name}={FIELDS[name]}" for name in needed_fields(kind))])
                QUESTIONS["capacity"].apply(one, text)
                QUESTIONS["count"].apply(one, choices("count", one).default or "")
                errors = [found.path for found in one.errors()]
                assert set(errors) <= {"access.evidence_from", "software.registry"}, (machine, kind, one.errors())
            if len(seen) % 5 == 1:
                for storage in choices("storage", one).values:
                    other = one.copy()
                    QUESTIONS["storage"].apply(other, storage)
                    assert QUESTIONS["storage"].problems(other) == (), (machine, storage)


def test_storage_is_proposed_with_its_price() -> None:
    """The smallest Lustre file system that the cloud bills is proposed with the price that it adds to the plan."""
    answers = draft(*P4D[1::2])
    found = {row[0].partition(",")[0]: row for row in choices("storage", answers).rows}
    assert found["lustre"][0] == "lustre,capacity_gib=1200,bucket=auto"
    assert float(found["lustre"][1]) > 0
    assert set(found) == {"none", "lustre", "home", "object"}


def test_machine_types_are_listed_with_price_and_date() -> None:
    """A row has the GPUs, their memory, the fabric, both prices and the date of the price. The cheapest machine type is first."""
    found = choices("machine", draft(*P4D[1::2]))
    row = next(row for row in found.rows if row[0] == "p4d.24xlarge")
    assert row == (
        "p4d.24xlarge",
        "8 x A100-40GB",
        "40 GiB",
        "efa 400 Gbit/s",
        "21.96",
        "2.50 to 8.20",
        "2026-07-28, spot 2026-05-31",
    )
    prices = [float(row[4]) for row in found.rows if row[4] != "-"]
    assert prices == sorted(prices)
    assert "p6e-gb200.36xlarge" not in found.values


def test_each_kind_of_capacity_states_its_fields() -> None:
    """A kind with required fields lists them, in the form of the option."""
    assert kind_needs("reserved") == "reserved,id=ID"
    assert kind_needs("block") == "block,id=ID,starts_at=STARTS_AT,ends_at=ENDS_AT"
    assert kind_needs("flex") == "flex,max_run_hours=MAX_RUN_HOURS"
    assert {kind: kind_needs(kind) for kind in ("spot", "on_demand")} == {"spot": "spot", "on_demand": "on_demand"}
    assert {kind.value for kind in CapacityKind} == {"on_demand", "spot", "reserved", "block", "flex"}


@pytest.mark.parametrize(
    ("place", "required"),
    [
        (("aws", "us-east-1", "p4d.24xlarge"), {}),
        (("azure", "eastus", "Standard_ND96isr_H100_v5"), {"access": {"evidence_from": ["203.0.113.0/24"]}}),
        (("gcp", "us-central1", "a3-megagpu-8g"), {"software": {"registry": "r-docker.pkg.dev/my-project/gpudirect"}}),
    ],
)
def test_text_has_the_declaration_and_its_optional_fields_can_be_used(
    place: tuple[str, str, str], required: dict[str, object]
) -> None:
    """The file has exactly the declared values, and stays free of errors if all optional fields are uncommented."""
    answers = draft(*place)
    answers.declaration.update(required)
    text = stack_text(answers, "schema.json")
    stack = stack_in(parse(text, "new"), Path("Pulumi.new.yaml"))
    assert stack.spec.model_dump(exclude_unset=True, mode="json")["pools"][0]["machine"] == place[2]
    document = stack.document
    assert document is not None
    assert isinstance(document.value, dict)
    assert document.value["config"]["gpuinfra:cluster"] == answers.declaration
    whole = stack_in(parse(_uncommented(text), "new"), Path("Pulumi.new.yaml"))
    assert [f for f in check_stack(whole, TODAY) if f.level is Level.ERROR] == []
    assert whole.spec.duration_hours == 720
    assert whole.spec.budget.recipients


def _uncommented(text: str) -> str:
    """The file with every optional field in use: a # without a space after it."""
    return "\n".join(
        line.replace("#", "", 1) if line.lstrip().startswith("#") and not line.lstrip().startswith("# ") else line
        for line in text.splitlines()
    )


class Terminal:
    """`gpuinfra init` in a terminal."""

    def __init__(self, folder: Path, *words: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "200"}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(sys.executable, [sys.executable, "-m", "gpuinfra", "init", *words], environment)
        self.shown, self.start = "", 0

    def until(self, text: str, start: int) -> None:
        """Wait until the terminal shows a text."""
        end = time.monotonic() + 300
        while text not in self.shown[start:]:
            assert time.monotonic() < end, self.shown
            if select.select([self.fd], [], [], 1)[0]:
                try:
                    self.shown += os.read(self.fd, 65536).decode()
                except OSError:
                    raise AssertionError(f"ended before {text!r}: {self.shown}") from None

    def type(self, prompt: str, text: str) -> None:
        """Wait for a prompt after the last answer, and type an answer."""
        start = self.start
        self.until(prompt, start)
        self.start = self.shown.index(prompt, start) + len(prompt)
        os.write(self.fd, text.encode())

    def end(self, key: str = "") -> int:
        """Wait for the end and return the exit code. A key is pressed again each second, because Python's `input` misses a signal
        that arrives right before it reads, but not after the message, because a second signal kills a process that ends."""
        while True:
            if key and "interrupted" not in self.shown and not select.select([self.fd], [], [], 1)[0]:
                os.write(self.fd, key.encode())
                continue
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                break
            if not data:
                break
            self.shown += data.decode()
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


def test_a_terminal_is_asked_and_wrong_answers_are_asked_again(tmp_path: Path) -> None:
    """Answers are row numbers or names. A wrong answer shows the finding and repeats the question, and each question can be left or explained."""
    terminal = Terminal(tmp_path)
    terminal.type("name [train]: ", "\n")
    terminal.type("cloud: ", "1\n")
    terminal.type("region: ", "us-esat-1\n")
    terminal.type("did you mean us-east-1?", "")
    terminal.type("region: ", "us-east-1\n")
    terminal.type("machine: ", "p4d.24xlarge\n")
    terminal.type("capacity [on_demand]: ", "block\n")
    terminal.type("id: ", "?\n")
    terminal.type("example", "")
    terminal.type("id: ", "skip\n")
    terminal.type("id cannot be skipped: block capacity requires it", "")
    terminal.type("id: ", "<\n")
    terminal.type("capacity [on_demand]: ", "reserved\n")
    terminal.type("id: ", "cr-0123456789abcdef0\n")
    terminal.type("count [1]: ", "2\n")
    terminal.type("storage [none]: ", "2\n")
    terminal.type("recipients [none]: ", "ops@example.com,ml@example.com\n")
    terminal.type("where.zone: ", "use1-az4\n")
    terminal.type("write Pulumi.yaml, __main__.py, Pulumi.train.yaml? [Y/n]: ", "y\n")
    assert terminal.end() == 0, terminal.shown
    spec = read_stack("train").spec
    (entry,) = spec.pools[0].capacity
    assert (entry.kind, entry.count, getattr(entry, "id", "")) == ("reserved", 2, "cr-0123456789abcdef0")
    assert len(spec.storage) == 1
    assert spec.budget.recipients == ("ops@example.com", "ml@example.com")
    assert "21.96" in terminal.shown


def test_a_field_that_the_rules_require_is_asked_for(tmp_path: Path) -> None:
    """If the answers make another field necessary, its finding is shown and its value is asked for."""
    terminal = Terminal(tmp_path, "--cloud", "azure", "--region", "eastus", "--machine", "Standard_ND96isr_H100_v5")
    terminal.type("name [train]: ", "frontier\n")
    terminal.type("capacity [on_demand]: ", "\n")
    terminal.type("count [1]: ", "\n")
    terminal.type("storage [none]: ", "none\n")
    terminal.type("recipients [none]: ", "\n")
    terminal.type("access.evidence_from: ", "?\n")
    terminal.type("at most 100 entries", "")
    terminal.type("access.evidence_from: ", "203.0.113.0/24\n")
    terminal.type("[Y/n]: ", "\n")
    assert terminal.end() == 0, terminal.shown
    assert read_stack("frontier").spec.access.evidence_from == ("203.0.113.0/24",)


def test_a_terminal_can_go_back_and_skip(tmp_path: Path) -> None:
    """`<` returns to the previous question without its answer, and `skip` writes the file without a field that the rules require."""
    terminal = Terminal(
        tmp_path, "--name", "train", "--cloud", "GCP", "--machine", "A3-MEGAGPU-8G", "--storage", "none"
    )
    terminal.type("project [none]: ", "wrong-project\n")
    terminal.type("region: ", "<\n")
    terminal.type("project [none]: ", "<\n")
    terminal.type("there is no earlier question", "")
    terminal.type("project [none]: ", "my-project\n")
    terminal.type("region: ", "us-central1\n")
    terminal.type("capacity [on_demand]: ", "\n")
    terminal.type("count [1]: ", "0\n")
    terminal.type("--count is 0; allowed: 1 or more", "")
    terminal.type("count [1]: ", "2\n")
    terminal.type("recipients [none]: ", "\n")
    terminal.type("example: registry: us-central1-docker.pkg.dev/my-project/gpudirect", "")
    terminal.type("software.registry: ", "<\n")
    terminal.type("recipients [none]: ", "\n")
    terminal.type("software.registry: ", "skip\n")
    terminal.type("[Y/n]: ", "\n")
    assert terminal.end() == 0, terminal.shown
    assert "missing in Pulumi.train.yaml: software.registry" in terminal.shown
    spec = read_stack("train").spec
    assert getattr(spec.where, "project", None) == "my-project"
    assert (spec.pools[0].machine, spec.pools[0].capacity[0].count) == ("a3-megagpu-8g", 2)


def test_a_question_of_another_cloud_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that the cloud does not have is an error, and nothing is written."""
    assert main(["init", *P4D, "--project", "mine"]) == 2
    assert "--project does not apply to aws; remove it" in capsys.readouterr().err
    assert written(tmp_path) == set()


def test_a_region_without_machine_types_is_explained(tmp_path: Path) -> None:
    """If the catalog lists no machine type in the region, the question says so instead of showing an empty list."""
    terminal = Terminal(tmp_path, "--name", "train", "--cloud", "aws", "--region", "af-south-1")
    terminal.until("the catalog lists no machine type in af-south-1", 0)
    terminal.type("machine: ", "\x03")
    assert terminal.end("\x03") == 130, terminal.shown


@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["interrupt", "end of input"])
@pytest.mark.parametrize("prompt", ["machine: ", "[Y/n]: "])
def test_an_interrupt_writes_nothing(key: str, prompt: str, tmp_path: Path) -> None:
    """Ctrl-C and the end of the input at a question or at the confirmation write nothing and end with exit code 130."""
    answers = ["--name", "train", "--cloud", "aws", "--region", "us-east-1"]
    if prompt != "machine: ":
        answers += [
            "--recipients",
            "none",
            "--machine",
            "p4d.24xlarge",
            "--count",
            "1",
            "--capacity",
            "spot",
            "--storage",
            "none",
        ]
    terminal = Terminal(tmp_path, *answers)
    terminal.type(prompt, key)
    assert terminal.end(key) == 130, terminal.shown
    assert "Traceback" not in terminal.shown
    assert written(tmp_path) == set()


def test_a_no_writes_nothing(tmp_path: Path) -> None:
    """The answer no to the confirmation writes nothing and is not an error."""
    options = [
        "--name",
        "train",
        *P4D,
        "--count",
        "1",
        "--capacity",
        "spot",
        "--storage",
        "none",
        "--recipients",
        "none",
    ]
    terminal = Terminal(tmp_path, *options)
    terminal.type("[Y/n]: ", "n\n")
    assert terminal.end() == 0, terminal.shown
    assert "nothing was written" in terminal.shown
    assert written(tmp_path) == set()


def test_a_closed_input_is_not_a_terminal(tmp_path: Path) -> None:
    """Without a terminal, nothing is asked, even if the input has answers."""
    done = subprocess.run(
        [sys.executable, "-m", "gpuinfra", "init"],
        input="train\naws\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=300,
    )
    assert done.returncode == 2
    assert "--cloud is missing" in done.stderr


def test_an_unwritable_folder_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path that cannot be written is one line, and no other file is written."""
    assert main(["init", *P4D, "--output", "/proc/x/Pulumi.x.yaml"]) == 2
    assert len([line for line in capsys.readouterr().err.splitlines() if "warn" not in line]) == 1
    assert written(tmp_path) == set()


ELSEWHERE = ("gpuinfra init", "gpuinfra completion install bash")
"""Commands of the page that other tests run."""
START = re.findall(r"^gpuinfra .*$", (ROOT / "docs" / "start" / "first-rehearsal.md").read_text(), flags=re.MULTILINE)


def test_the_commands_of_the_start_page_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In an empty folder, the commands of the page run in their order. Another test runs the rehearsals, and others the questions."""
    lines = [line.split()[1:] for line in START if "rehearse" not in line and line not in ELSEWHERE]
    assert {words[0] for words in lines} == {"init", "plan", "clone"}
    for words in lines:
        assert main(words) == 0, capsys.readouterr().err
    assert "\n  gpuinfra plan train-us-west-2\n" in capsys.readouterr().out
    assert written(tmp_path) == {
        PROJECT,
        PROGRAM,
        "Pulumi.train.yaml",
        "Pulumi.train-us-west-2.yaml",
        "plan.html",
        "train.svg",
    }


@pytest.mark.long
def test_the_rehearsals_of_the_start_page_run(tmp_path: Path) -> None:
    """A stack that `init` wrote in an empty folder is rehearsed: the broken node is named, and healthy nodes are verified."""
    if not (available_ := available())[0]:
        pytest.skip(f"stand-in nodes cannot run here: {available_[1]}")
    (init,) = [line for line in START if line.startswith("gpuinfra init ")]
    assert main(init.split()[1:]) == 0
    outcomes = []
    for line in [line for line in START if "rehearse" in line]:
        done = subprocess.run(
            [sys.executable, "-m", *line.split()],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
            timeout=900,
        )
        outcomes.append((done.returncode, done.stdout + done.stderr))
    assert [code for code, _ in outcomes] == [1, 0, 0], outcomes
    assert "gpu-1" in outcomes[0][1]
    assert "7 of 8 GPUs" in outcomes[0][1], outcomes[0][1]
