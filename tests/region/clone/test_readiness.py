"""The stack file of the second region: missing, invalid, different, overlapping, and a state in the region that fails."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuinfra.base.errors import DeploymentError, EnvironmentMissing, SpecError, UsageError
from gpuinfra.base.shipped import shipped
from gpuinfra.cli import ready as cli
from gpuinfra.cli.clone import command as clone_command
from gpuinfra.cli.stacks import Stacks
from gpuinfra.clouds.preflight import PreflightRow, problem
from gpuinfra.clouds.region.active import CLUSTER
from gpuinfra.clouds.region.failover import Unreachable
from gpuinfra.clouds.region.readiness import FAIL, OK, SKIPPED, UNREAD, WARN, ReadinessLine
from gpuinfra.region.clone.make import clone
from gpuinfra.region.clone.model import ClonedFile, CloneRequest
from gpuinfra.region.readiness import DeclaredSecond, data, deployed_role, second_of
from gpuinfra.spec.load import LoadedStack, read_stack
from gpuinfra.spec.policy import NetworkSpec
from tests.clouds.stacks import TODAY
from tests.region.clone.stacks import cloned, file_of
from tests.region.failover.shared import MemoryRecord

PAIRS = {"aws-recovery": "us-west-2", "azure-recovery": "eastus2", "gcp-recovery": "us-east4"}

RESERVED = ("aws-recovery", "gcp-recovery")
"""Stacks whose nodes are reserved, so that a clone changes their capacity."""


@pytest.fixture(scope="module", params=PAIRS)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a stack that has `recovery` and its clone."""
    name = str(request.param)
    folder = tmp_path_factory.mktemp("project")
    (folder / "Pulumi.yaml").write_text("name: gpuinfra\nruntime: python\n")
    path = folder / f"Pulumi.{name}.yaml"
    shutil.copyfile(shipped("stacks") / path.name, path)
    request_ = CloneRequest(region=PAIRS[name], mode="cold")
    (file,) = clone(read_stack(path), path.read_text(), request_, TODAY).files
    file.path.write_text(file.text)
    return path


@pytest.fixture
def pair(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A stack and its clone, in a project of this test."""
    monkeypatch.setenv("GPUINFRA_TODAY", TODAY.isoformat())
    shutil.copytree(written.parent, tmp_path, dirs_exist_ok=True)
    name = written.name.split(".")[1]
    return tmp_path / written.name, tmp_path / f"Pulumi.{name}-{PAIRS[name]}.yaml"


def read(path: Path, **environment: str) -> DeclaredSecond:
    """Compare the files."""
    return second_of(read_stack(path), "gpuinfra", TODAY, environment)


def bad(second: DeclaredSecond) -> set[tuple[str, str, str]]:
    """State, topic and name of each line that is not ok."""
    return {(one.state, one.topic, one.name) for one in second.lines if one.state != OK}


def edit(path: Path, pattern: str, new: str) -> None:
    """Replace one place of a file."""
    text, count = re.subn(pattern, new, path.read_text(), count=1)
    assert count == 1, pattern
    path.write_text(text)


def test_fresh_clone_is_ready(pair: tuple[Path, Path]) -> None:
    """A clone that was just written agrees with its stack, and its network does not overlap."""
    second = read(pair[0])
    assert bad(second) == set()
    assert {one.topic for one in second.lines} == {"stack file", "difference", "addresses", "state"}
    assert [one.path for one in second.files] == [pair[1]]


def test_missing_file_is_named_with_the_command_that_writes_it(pair: tuple[Path, Path]) -> None:
    """Without the file, the command of the line is the clone of this stack."""
    pair[1].unlink()
    (line,) = [one for one in read(pair[0]).lines if one.state == FAIL]
    assert (line.topic, line.name) == ("stack file", pair[1].name.split(".")[1])
    assert line.fix == f"gpuinfra clone {pair[0].name.split('.')[1]} --region {PAIRS[line.fix.split()[2]]} --mode cold"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda path: edit(path, r"mount: /scratch", "mount: /data"), (FAIL, "difference", "storage[0].mount")),
        (lambda path: edit(path, r"name: gpu\b", "name: other"), (FAIL, "difference", "pools[0].name")),
        (lambda path: edit(path, r"(?m)^( *)cidr: .*", rf"\1cidr: {NetworkSpec().cidr}"), (FAIL, "addresses", "")),
        (lambda path: edit(path, r"kind: lustre", "kind: nothing"), (FAIL, "stack file", "")),
        (lambda path: edit(path, r"machine: \S+", "machine: h4d-standard-192"), (FAIL, "stack file", "")),
    ],
)
def test_changed_file_is_named(
    pair: tuple[Path, Path], change: Callable[[Path], None], expected: tuple[str, str, str]
) -> None:
    """A value that differs, an overlapping range, and an invalid file each have a line with its path and a command."""
    change(pair[1])
    lines = [one for one in read(pair[0]).lines if one.state == FAIL]
    assert (expected[0], expected[1]) in {(one.state, one.topic) for one in lines}
    assert not expected[2] or expected[2] in {one.name for one in lines}
    assert all(one.fix.startswith("gpuinfra ") for one in lines)


@pytest.mark.parametrize("written", RESERVED, indirect=True)
def test_values_that_a_clone_changes_can_be_edited(pair: tuple[Path, Path]) -> None:
    """Another capacity in the second region is no difference, and a command that writes the file again keeps it."""
    text = pair[1].read_text()
    assert "kind: on_demand" in text or "kind: spot" in text
    edit(pair[1], r"kind: (on_demand|spot)", "kind: reserved, id: mine")
    assert "difference" not in {topic for _, topic, _ in bad(read(pair[0]))}
    edit(pair[1], r"mount: /scratch", "mount: /data")
    (line,) = [one for one in read(pair[0]).lines if one.topic == "difference"]
    assert '--set \'pools[0].capacity[0]={"kind": "reserved", "id": "mine"' in line.fix


def test_stack_that_changed_after_the_clone_is_named(pair: tuple[Path, Path]) -> None:
    """A field that was added to the stack later is missing in the clone."""
    edit(pair[0], r"    budget:", "    tags: {team: vision}\n    budget:")
    (line,) = [one for one in read(pair[0]).lines if one.state == FAIL]
    assert (line.topic, line.name) == ("difference", "tags.team")
    assert "is not set in" in line.reason
    assert '"vision"' in line.reason


@pytest.mark.parametrize("url", ["s3://state?region={}", "s3://state?awssdk=v2&region={}"])
def test_state_in_the_region_that_fails_is_named(pair: tuple[Path, Path], url: str) -> None:
    """A state backend in the project file or in the environment, and a secrets provider, must not be in the region."""
    region = read_stack(pair[0]).spec.where.region
    found = bad(read(pair[0], PULUMI_BACKEND_URL=url.format(region)))
    assert (FAIL, "state", "PULUMI_BACKEND_URL") in found
    assert bad(read(pair[0], PULUMI_BACKEND_URL=url.format("eu-west-1"))) == set()
    project = pair[0].with_name("Pulumi.yaml")
    project.write_text(project.read_text() + f"backend: {{url: '{url.format(region)}'}}\n")
    assert (FAIL, "state", "backend.url") in bad(read(pair[0]))


def test_backend_of_a_login_in_the_region_that_fails_is_named(pair: tuple[Path, Path]) -> None:
    """Without a setting, the backend is the one of the last login. The variable and the project file take precedence over a login."""
    region = read_stack(pair[0]).spec.where.region
    url = f"s3://state?region={region}"
    assert (FAIL, "state", "pulumi login") in bad(second_of(read_stack(pair[0]), "gpuinfra", TODAY, {}, url))
    elsewhere = {"PULUMI_BACKEND_URL": "https://api.pulumi.com"}
    assert bad(second_of(read_stack(pair[0]), "gpuinfra", TODAY, elsewhere, url)) == set()
    project = pair[0].with_name("Pulumi.yaml")
    project.write_text(project.read_text() + "backend: {url: 'file://~'}\n")
    second = second_of(read_stack(pair[0]), "gpuinfra", TODAY, {}, url)
    assert (bad(second), second.backend) == (set(), ("backend.url", "file://~"))


@pytest.mark.parametrize(
    ("line", "states"),
    [
        (ReadinessLine(topic="state", name="backend.url", state=OK, reason="is in eu-west-1"), [OK]),
        (ReadinessLine(topic="state", name="backend.url", state=FAIL, reason="is in us-east-1"), [FAIL]),
        (ReadinessLine(topic="state", name="backend.url", state=UNREAD, reason="403"), [WARN, UNREAD]),
    ],
)
def test_location_of_the_state_replaces_the_warning_about_its_url(
    pair: tuple[Path, Path], line: ReadinessLine, states: list[str]
) -> None:
    """If the cloud returned the location of the bucket, the URL needs no region."""
    project = pair[0].with_name("Pulumi.yaml")
    project.write_text(project.read_text() + "backend: {url: 's3://state'}\n")
    second = read(pair[0])
    assert second.backend == ("backend.url", "s3://state")
    found = [one for one in second.merged([line], []) if one.topic == "state"]
    assert [one.state for one in found] == states


def test_state_without_a_region_is_a_warning(pair: tuple[Path, Path]) -> None:
    """A backend whose region is unknown is not an error."""
    project = pair[0].with_name("Pulumi.yaml")
    project.write_text(project.read_text() + "backend: {url: 's3://state'}\n")
    assert bad(read(pair[0])) == {(WARN, "state", "backend.url")}


def run(
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
    lines: list[ReadinessLine],
    *words: str,
    rows: tuple[PreflightRow, ...] = (),
) -> Result:
    """Run the command with these lines of the cloud, and these rows about the stack of the second region."""

    @contextmanager
    def opened(name: str) -> Iterator[Any]:
        yield [{"type": "aws:s3/bucket:Bucket", "custom": True}]

    def chosen(given: dict[str, Any]) -> Stacks:
        del given["rehearsal"], given["folder"]
        return Stacks(open=opened, up="", restore="pulumi up --refresh --stack {stack}", project=lambda name: Path())

    monkeypatch.setattr("gpuinfra.cli.options.stacks_of", chosen)
    monkeypatch.setattr("gpuinfra.region.readiness.of_cloud", lambda cloud, question: iter(lines))
    monkeypatch.setattr("gpuinfra.doctor.cloud.live_rows", lambda stack, topics: rows)
    return CliRunner().invoke(cli.command, [str(path), *words], standalone_mode=False)


GOOD = ReadinessLine(topic="key", name="k", state=OK, reason="is enabled")
BROKEN = ReadinessLine(topic="replica", name="r", state=FAIL, reason="the replica does not exist")
UNKNOWN = ReadinessLine(topic="lag", name="s", state=UNREAD, reason="403", fix="log in")
LATE = ReadinessLine(topic="lag", name="s", state=WARN, reason="20 minutes", fix="look")


@pytest.mark.parametrize(
    ("lines", "code"),
    [([GOOD], 0), ([GOOD, LATE], 0), ([GOOD, BROKEN], 1), ([UNKNOWN], 3), ([UNKNOWN, BROKEN, LATE], 1)],
)
def test_exit_code_states_whether_the_region_is_ready(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[Path, Path], lines: list[ReadinessLine], code: int
) -> None:
    """0 if ready, 1 if not, 3 if a question has no answer; the JSON document has each line, and each failure a command."""
    done = run(monkeypatch, pair[0], lines, "--json")
    assert done.return_value == code, done.output
    document = json.loads(done.output)
    assert document["schema"] == "gpuinfra.ready/1"
    assert (document["ready"], document["complete"]) == (code == 0, UNKNOWN not in lines)
    assert all(one["fix"] for one in document["lines"] if one["state"] in (FAIL, WARN, UNREAD))
    assert {one["topic"]: one["state"] for one in document["lines"]}["drill"] == SKIPPED
    assert {one["topic"]: one["fix"] for one in document["lines"]}["permissions"] == f"gpuinfra doctor {pair[1]}"
    assert sum(document["totals"].values()) == len(document["lines"])
    text = run(monkeypatch, pair[0], lines)
    assert text.return_value == code
    assert "no drill of this stack file is recorded" in text.output
    assert text.output.splitlines()[-1].startswith(
        {0: f"{document['region']} is ready", 1: f"{document['region']} is not ready", 3: "the readiness of "}[code]
    )


@pytest.mark.parametrize("lines", [[GOOD], [GOOD, BROKEN]])
def test_a_recorded_result_is_seen_by_the_next_check(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[Path, Path], lines: list[ReadinessLine]
) -> None:
    """With `--record`, the result is stored in the second region, and the next check shows it on any machine.
    Only a result that says that the region is ready is reported to the monitoring of the cloud."""
    store, reported = MemoryRecord(), list[str]()
    monkeypatch.setattr(cli, "_results_store", lambda loaded, resources: store)
    monkeypatch.setattr(cli, "_report", lambda loaded, resources: reported.append(loaded.name))
    first = run(monkeypatch, pair[0], lines, "--record", "--json")
    assert len(reported) == (0 if BROKEN in lines else 1)
    assert first.return_value == (1 if BROKEN in lines else 0), first.output
    assert "the result is recorded in" in first.output
    document = json.loads(run(monkeypatch, pair[0], lines, "--json").output)
    (line,) = (one for one in document["lines"] if one["topic"] == "recorded")
    assert line["state"] == (WARN if BROKEN in lines else OK)
    assert ("not ready at" in line["reason"]) is (BROKEN in lines)


@pytest.mark.parametrize("reason", [Unreachable("no answer"), DeploymentError("AccessDenied")])
def test_a_report_that_the_cloud_refuses_is_an_error(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[Path, Path], reason: Exception
) -> None:
    """The report names the replica of the evidence bucket. Without a report, an alarm would follow although the result is recorded.
    Azure has no alarm and gets no report."""
    cloud, places = pair[0].name.split(".")[1].partition("-")[0], list[str]()

    def refuse(place: str, *rest: Any) -> None:
        places.append(place)
        raise reason

    outputs = {"recovery": {"buckets": {"evidence": "copy"}}}
    loaded, state = read_stack(pair[0]), [{"type": CLUSTER, "outputs": outputs}]
    if cloud == "azure":
        cli._report(loaded, state)
        return
    monkeypatch.setattr(f"gpuinfra.clouds.{cloud}.region.record.report_ready", refuse)
    with pytest.raises(DeploymentError, match=f"the result is recorded, but .*: {reason}"):
        cli._report(loaded, state)
    assert places == ["copy"]


def test_without_a_second_region_nothing_can_be_recorded(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[Path, Path]
) -> None:
    """The state of a stack that is not deployed completely contains no place for the result."""
    failed = run(monkeypatch, pair[0], [GOOD], "--record")
    assert isinstance(failed.exception, UsageError)
    assert "deploy the stack, or omit --record" in str(failed.exception)


IMAGES = {
    "aws-recovery": ("ami-0123456789abcdef0", "ami-0fedcba9876543210", "aws ec2 copy-image"),
    "azure-recovery": (
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/first",
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/second",
        "az sig image-version create",
    ),
}
"""Image of the stack, image of its clone, and the start of the command that copies the first."""


@pytest.mark.parametrize("written", IMAGES, indirect=True)
def test_image_that_was_not_copied_has_the_command_that_copies_it(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[Path, Path]
) -> None:
    """The image of the second region does not exist: the fix copies the image of the stack. A problem makes the region not ready."""
    first, second, command = IMAGES[pair[0].name.split(".")[1]]
    for path, image in zip(pair, (first, second), strict=True):
        edit(path, r"( *)- name: gpu\n", rf"\1- name: gpu\n\1  image: {{ref: {image}}}\n")
    missing = problem("image", second, "not found", "an existing image", "set `image` in the stack file")
    zero = problem("quota", "gpus", "0", "16", "request it")
    done = run(monkeypatch, pair[0], [GOOD], "--json", rows=(missing, zero))
    assert done.return_value == 1, done.output
    assert not [
        one
        for one in json.loads(done.output)["lines"]
        if one["topic"] in ("stack file", "difference") and one["state"] != OK
    ]
    fixes = {one["topic"]: one["fix"] for one in json.loads(done.output)["lines"] if one["state"] == FAIL}
    assert fixes["image"].startswith(command)
    assert first in fixes["image"]
    assert fixes["quota"] == "request it"


def test_deployment_fixes_a_line_without_its_own_command(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[Path, Path]
) -> None:
    """A replica that is gone is created by a deployment that reads the cloud first."""
    done = run(monkeypatch, pair[0], [BROKEN], "--json")
    (line,) = [one for one in json.loads(done.output)["lines"] if one["topic"] == "replica"]
    assert line["fix"] == f"pulumi up --refresh --stack {pair[0].name.split('.')[1]}"


def test_stack_without_recovery_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `recovery`, there is no second region."""
    done = run(monkeypatch, Path("aws-p4d"), [])
    assert isinstance(done.exception, UsageError)
    assert "recovery" in str(done.exception)


def test_unreadable_state_ends_with_exit_code_3(monkeypatch: pytest.MonkeyPatch, pair: tuple[Path, Path]) -> None:
    """A stack without resources is not compared with the cloud."""
    done = run(monkeypatch, pair[0], [])
    assert done.return_value == 0
    monkeypatch.setattr(
        "gpuinfra.cli.ready.readable_stack", lambda *_, **__: (_ for _ in ()).throw(EnvironmentMissing("no state"))
    )
    assert isinstance(run(monkeypatch, pair[0], []).exception, EnvironmentMissing)


def test_rules_still_end_the_command(monkeypatch: pytest.MonkeyPatch, pair: tuple[Path, Path]) -> None:
    """A stack with an error in its declaration is not compared."""
    edit(pair[0], rf"region: {PAIRS[pair[0].name.split('.')[1]]}", "region: nowhere")
    assert isinstance(run(monkeypatch, pair[0], []).exception, SpecError)


def _state(pair: tuple[Path, Path], **outputs: Any) -> list[dict[str, Any]]:
    cloud = pair[0].name.split(".")[1].split("-")[0]
    return [{"type": f"gpuinfra:{cloud}:RegionClone", "outputs": {"buckets": {"scratch-0": "the-replica"}, **outputs}}]


@pytest.mark.parametrize("written", RESERVED, indirect=True)
def test_second_region_must_use_the_replica(pair: tuple[Path, Path]) -> None:
    """A clone with a new bucket has no data. The fix writes the file with the replica, which then agrees with the stack."""
    stack = read_stack(pair[0])
    second = read(pair[0])
    assert list(data(stack, second, [])) == []
    (line,) = data(stack, second, _state(pair))
    assert (line.topic, line.name, line.state) == ("data", "storage[0].bucket", FAIL)
    assert "the-replica" in line.reason
    words = shlex.split(line.fix)
    assert words[words.index("--set") + 1] == "storage[0].bucket=the-replica"
    edit(pair[1], r"kind: (on_demand|spot)", "kind: reserved, id: cr-0aaaaaaaaaaaaaaaa")
    (line,) = data(stack, read(pair[0]), _state(pair))
    words = [str(pair[0]), *shlex.split(line.fix)[3:]]
    done = CliRunner().invoke(clone_command, words, standalone_mode=False)
    assert done.return_value == 0, done.output
    again = read(pair[0])
    assert read_stack(pair[1]).spec.recovery is None
    assert "cr-0aaaaaaaaaaaaaaaa" in pair[1].read_text()
    assert bad(again) == set()
    (line,) = data(stack, again, _state(pair))
    assert line.state == OK
    (line,) = data(stack, again, _state(pair, buckets={"scratch-0": "another"}))
    assert line.state == FAIL
    assert shlex.split(line.fix).count("--force") == 1
    assert [word for word in shlex.split(line.fix) if word.startswith("storage[0].bucket=")] == ["storage[0].bucket=another"]  # fmt: skip


@pytest.mark.parametrize("written", ["azure-recovery", "gcp-recovery"], indirect=True)
def test_only_the_first_region_exports_before_a_failover(pair: tuple[Path, Path]) -> None:
    """A clone pauses its schedule, and one that runs prevents a failover. Without one in the stack, a line states what is lost."""
    stack, second = (read_stack(one) for one in pair)
    entries = [one.spec.storage[0] for one in (stack, second)]
    assert [(getattr(one, "export_minutes", None), getattr(one, "export_paused", None)) for one in entries] == [
        (15, False),
        (15, True),
    ]
    assert {one.name for one in data(stack, read(pair[0]), _state(pair))} == {"storage[0].bucket"}
    edit(pair[1], r"export_paused: true", "export_paused: false")
    lines = {one.name: one for one in data(stack, read(pair[0]), _state(pair))}
    assert lines["storage[0].export_paused"].state == FAIL
    assert "would replace its objects" in lines["storage[0].export_paused"].reason
    edit(pair[0], r", export_minutes: 15", "")
    lines = {one.topic: one for one in data(read_stack(pair[0]), read(pair[0]), _state(pair))}
    assert lines["export"].state == WARN
    assert "are lost if" in lines["export"].reason


EXISTING = r"\1existing_buckets: true\n\1existing_key_arn: arn:aws:kms:us-east-2:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab\n\1region: "


@pytest.mark.parametrize("written", ["aws-recovery"], indirect=True)
def test_a_stack_whose_bucket_is_a_replica_has_a_second_region(pair: tuple[Path, Path]) -> None:
    """The clone has its own bucket, or uses the replica of the replica, and declares no existing buckets."""
    edit(pair[0], r"bucket: auto", "bucket: their-replica")
    edit(pair[0], r"(?m)^( +)region: (?=us-west-2\n +mode)", EXISTING)
    stack = read_stack(pair[0])
    assert bad(read(pair[0])) == set()
    assert {one.state for one in data(stack, read(pair[0]), _state(pair))} == {FAIL}
    edit(pair[1], r"bucket: auto", "bucket: the-replica")
    edit(pair[1], r"(?m)^    recovery:\n(      .*\n)+", "")
    assert bad(read(pair[0])) == set()
    assert {one.state for one in data(stack, read(pair[0]), _state(pair))} == {OK}


@pytest.mark.parametrize("written", ["aws-recovery"], indirect=True)
def test_recovery_of_a_replica_agrees_with_the_stack_that_failed_over(pair: tuple[Path, Path]) -> None:
    """A failback does not require that the stack of the second region loses its own second region."""
    edit(pair[1], r"bucket: auto", "bucket: the-replica")
    edit(pair[1], r"(?m)^( +)region: (?=us-east-2\n +mode)", EXISTING)
    assert bad(read(pair[0])) == set()
    assert {one.state for one in data(read_stack(pair[0]), read(pair[0]), _state(pair))} == {OK}


CONTAINER = (
    "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/second"
    "/providers/Microsoft.Storage/storageAccounts/replica/blobServices/default/containers/data"
)


@pytest.mark.parametrize("written", ["azure-recovery"], indirect=True)
def test_second_region_on_azure_reaches_its_replica(pair: tuple[Path, Path]) -> None:
    """The fix sets the replica and its private endpoint. A file without the endpoint is a warning, because you can have created one."""
    stack, state = read_stack(pair[0]), _state(pair, buckets={"scratch-0": CONTAINER})

    def fixed() -> tuple[str, str]:
        (line,) = data(stack, read(pair[0]), state)
        words = [str(pair[0]), *shlex.split(line.fix)[3:]]
        assert CliRunner().invoke(clone_command, words, standalone_mode=False).return_value == 0
        return line.name, line.state

    assert fixed() == ("storage[0].bucket", FAIL)
    assert f"bucket: {CONTAINER}" in pair[1].read_text()
    (line,) = data(stack, read(pair[0]), state)
    assert line.state == OK
    assert bad(read(pair[0])) == set()
    edit(pair[1], r", private_endpoint: true", "")
    assert fixed() == ("storage[0].private_endpoint", WARN)
    (line,) = data(stack, read(pair[0]), state)
    assert line.state == OK
    (back,) = clone(
        read_stack(pair[1]), pair[1].read_text(), CloneRequest(region="southcentralus", mode="cold"), TODAY
    ).files
    assert back.declaration["storage"][0]["bucket"] == "auto"
    assert "private_endpoint" not in back.declaration["storage"][0]


@pytest.mark.parametrize("written", ["aws-recovery"], indirect=True)
def test_mounted_replica_needs_its_key(pair: tuple[Path, Path]) -> None:
    """Nodes read a mounted replica only with the key of the second region, so a file without the key fails."""
    edit(pair[0], r"storage:", "storage:\n      - {kind: object, mount: /data, bucket: auto}")
    (file,) = clone(
        read_stack(pair[0]),
        pair[0].read_text(),
        CloneRequest(region="us-west-2", mode="cold", values=(("storage[0].bucket", "data-replica"),)),
        TODAY,
    ).files
    file.path.write_text(file.text)
    state = _state(pair, buckets={"data-0": "data-replica"}, data_key_arn="arn:aws:kms:us-west-2:0:key/k")
    (line,) = data(read_stack(pair[0]), read(pair[0]), state)
    assert (line.name, line.state) == ("storage[0].key_arn", FAIL)
    assert shlex.split(line.fix).count("storage[0].bucket=data-replica") == 1
    assert "storage[0].key_arn=arn:aws:kms:us-west-2:0:key/k" in shlex.split(line.fix)


LOST = [("us-east-1", FAIL), ("us-east-2", WARN)]
"""First regions, and the state of a line about a role that a failover creates: the control plane of IAM is in us-east-1."""


def pilot_light(folder: Path, region: str) -> tuple[LoadedStack, ClonedFile, ClonedFile]:
    """A stack in mode pilot-light with this first region, and the two files of its clone, which are written."""
    text = file_of("aws-recovery").read_text().replace("mode: cold", "mode: pilot-light")
    text = text.replace("      site_minutes: 30\n", "").replace("us-east-2", region)
    path = folder / "Pulumi.recovery.yaml"
    path.write_text(text.replace("use2-az1", {"us-east-1": "use1-az4"}.get(region, "use2-az1")))
    base, nodes = cloned(path, "us-west-2", mode="pilot-light").files
    base.path.write_text(base.text)
    nodes.path.write_text(nodes.text)
    return read_stack(path), base, nodes


def earlier(file: ClonedFile) -> None:
    """Write a file as an earlier version wrote it, without `node_role_in_site`."""
    lines = file.text.splitlines()
    kept = [line for line in lines if "node_role_in_site" not in line and line.strip() != "access:"]
    file.path.write_text("\n".join(kept) + "\n")


@pytest.mark.parametrize(("region", "state"), LOST)
def test_a_node_role_that_a_failover_creates_is_reported(tmp_path: Path, region: str, state: str) -> None:
    """Stack files of an earlier version have no `node_role_in_site`. This is not a difference, and a failure only if IAM is in the region that fails."""
    loaded, base, nodes = pilot_light(tmp_path, region)
    assert not [one for one in second_of(loaded, "gpuinfra", TODAY, {}).lines if one.topic == "role"]
    for files in ([nodes], [base, nodes]):
        for one in files:
            earlier(one)
        found = second_of(loaded, "gpuinfra", TODAY, {}).lines
        roles = [one for one in found if one.topic == "role"]
        assert [one.state for one in roles] == [state] * len(files)
        assert all(one.fix.endswith("--force") for one in roles)
        assert [one for one in found if one.topic == "difference" and one.state != OK] == []


def test_nodes_whose_site_has_no_role_are_a_failure(tmp_path: Path) -> None:
    """If only the file of the nodes has the field, their deployment fails in each region."""
    loaded, base, _ = pilot_light(tmp_path, "us-east-2")
    earlier(base)
    (line,) = [one for one in second_of(loaded, "gpuinfra", TODAY, {}).lines if one.topic == "role"]
    assert (line.state, line.reason) == (FAIL, f"is not set in {base.path.name}, so the nodes have no role")


@pytest.mark.parametrize(("region", "state"), LOST)
def test_a_base_that_was_not_deployed_with_the_role_is_reported(tmp_path: Path, region: str, state: str) -> None:
    """A file with the field has no effect before `pulumi up`, so the check reads the state of the base stack."""
    loaded, base, _ = pilot_light(tmp_path, region)
    second = second_of(loaded, "gpuinfra", TODAY, {})
    asked: list[str] = []

    def read_with(outputs: dict[str, Any] | None) -> ReadinessLine:
        def state_of(name: str) -> list[dict[str, Any]]:
            asked.append(name)
            if outputs is None:
                raise DeploymentError("no stack named 'base' found")
            return [{"type": "pulumi:pulumi:Stack"}, {"type": "gpuinfra:index:GpuCluster", "outputs": outputs}]

        (line,) = deployed_role(loaded, second, state_of)
        return line

    assert read_with({"node_profile_arn": "arn:aws:iam::0:instance-profile/p"}).state == OK
    for outputs in ({"vpc_id": "vpc-1"}, None):
        line = read_with(outputs)
        assert (line.topic, line.state) == ("role", state)
        assert "a failover creates the nodes' role" in line.reason
        assert line.fix == f"pulumi up --stack {base.stack}"
    assert set(asked) == {base.stack}


@pytest.mark.parametrize("written", ["aws-recovery"], indirect=True)
def test_only_a_base_stack_is_read_for_the_role(pair: tuple[Path, Path]) -> None:
    """In mode cold, a failover creates the role, so no state is read."""

    def state_of(name: str) -> list[dict[str, Any]]:
        raise AssertionError(name)

    assert list(deployed_role(read_stack(pair[0]), read(pair[0]), state_of)) == []
