"""The command `gpuinfra names`: what it prints, what it changes, and what it rejects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuinfra.base.errors import DeploymentError, GpuinfraError, UsageError
from gpuinfra.base.shipped import shipped
from gpuinfra.cli import names as cli
from gpuinfra.cli import ready
from gpuinfra.clouds.aws.cloud import AwsCloud
from gpuinfra.clouds.region.active import SharedRecord
from gpuinfra.clouds.region.dns import Key, Mounted, NameRecord
from gpuinfra.clouds.region.failover import Unreachable
from gpuinfra.region.failover.journal import SCHEMA, FailbackJournal, FailoverJournal
from tests.clouds.region.test_dns import DEAD, DOMAIN, LUSTRE, PRIMARY, ZONE, fleet, node, state
from tests.clouds.stacks import TODAY
from tests.region.failover.shared import CLUSTER_STATE, MemoryRecord

DECLARED = f"      names: {{zone: {ZONE}, domain: {DOMAIN}}}\n"


@dataclass
class Zone:
    """A zone. It implements `gpuinfra.clouds.region.dns.Dns`."""

    control_plane: str = "us-west-1"
    down: bool = False
    found: dict[Key, tuple[str, ...]] = field(default_factory=dict)

    def zone_name(self, zone: str) -> str | None:
        return DOMAIN

    def values(self, zone: str, keys: Iterable[Key]) -> dict[Key, tuple[str, ...]]:
        if self.down:
            raise Unreachable("timed out")
        return dict(self.found)

    def point(self, zone: str, records: Sequence[NameRecord]) -> None:
        self.found.update({one.key: one.values for one in records})

    def zone_region(self, zone: str) -> str | None:
        return None

    def mounted(self, entry: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]) -> Mounted | None:
        if entry["dns_name"] != LUSTRE:
            return None
        return Mounted(addresses=(PRIMARY,), source=f"{PRIMARY}@tcp:/abcdefgh")


@pytest.fixture
def zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Zone:
    """A deployed `aws-recovery` with names, and its zone."""
    found = Zone()
    (tmp_path / "Pulumi.yaml").write_text("name: gpuinfra\nruntime: python\n")
    text = (shipped("stacks") / "Pulumi.aws-recovery.yaml").read_text()
    (tmp_path / "Pulumi.aws-recovery.yaml").write_text(text + DECLARED)
    (tmp_path / "Pulumi.plain.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUINFRA_TODAY", TODAY.isoformat())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    resources: list[dict[str, Any]] = [{"type": "x", "custom": True}, *state()]
    monkeypatch.setattr(ready, "readable_stack", lambda *_, **__: nullcontext(resources))
    monkeypatch.setattr(cli, "exported", lambda name, **_: [])
    monkeypatch.setattr(cli, "verdicts", lambda resources: fleet(node(1), node(2)) if resources else [])
    monkeypatch.setattr("gpuinfra.clouds.aws.region.dns.connect", lambda *_: found)
    return found


def run(*words: str, stack: str = "Pulumi.aws-recovery.yaml") -> Result:
    """Run the command."""
    return CliRunner().invoke(cli.command, [stack, *words], standalone_mode=False)


def test_each_record_is_printed_with_its_earlier_value(zone: Zone) -> None:
    """The first run creates the records, and a second run changes nothing."""
    zone.found[f"scratch.{DOMAIN}", "A"] = ("10.9.9.9",)
    done = run("--yes")
    assert done.exception is None, done.exception
    lines = done.stdout.splitlines()
    assert lines[0] == f"login.{DOMAIN} A 10.0.0.1 10.0.0.2 (new)"
    assert lines[1] == f"scratch.{DOMAIN} A {PRIMARY} (was 10.9.9.9)"
    assert zone.found[f"scratch.{DOMAIN}", "A"] == (PRIMARY,)
    assert all(line.endswith("(unchanged)") for line in run("--yes").stdout.splitlines())


def test_the_name_of_the_nodes_points_to_nodes_that_exist(zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state can list a node that was replaced, so the command reads the nodes, and changes nothing if none is verified."""
    assert str(DEAD["privateIp"]) not in run("--yes").stdout
    before = dict(zone.found)
    monkeypatch.setattr(cli, "verdicts", lambda resources: fleet(node(3, "failed")))
    problem = run("--yes").exception
    assert isinstance(problem, DeploymentError)
    assert "no node is verified" in str(problem)
    assert zone.found == before


def test_json_states_whether_records_changed(zone: Zone) -> None:
    """`changed` is true if the command changed a record. A second run changes none."""
    assert [json.loads(run("--json", "--yes").stdout)["changed"] for _ in range(2)] == [True, False]


def test_the_confirmation_of_json_shows_the_records(zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--json`, the records are on stderr before the question. Click's runner writes the input to stdout before the JSON object."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    done = CliRunner().invoke(cli.command, ["Pulumi.aws-recovery.yaml", "--json"], standalone_mode=False, input="y\n")
    assert done.exception is None, done.exception
    assert json.loads(done.stdout[done.stdout.index("{") :])["changed"]
    assert done.stderr.index("login.") < done.stderr.index("Change these records?")


def test_a_dry_run_changes_nothing(zone: Zone) -> None:
    """The JSON document contains each record with its earlier values."""
    done = run("--dry-run", "--json")
    document = json.loads(done.stdout)
    assert zone.found == {}
    assert (document["schema"], document["zone"], document["changed"]) == (cli.SCHEMA, ZONE, False)
    assert document["records"][0] == {
        "name": f"login.{DOMAIN}", "type": "A", "values": ["10.0.0.1", "10.0.0.2"], "before": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "stack", "kind", "text"),
    [
        (["--yes"], "Pulumi.plain.yaml", UsageError, "has no `recovery.names`"),
        (["--to", "eu-west-1", "--yes"], "Pulumi.aws-recovery.yaml", UsageError, "--to is eu-west-1; allowed: "),
        ([], "Pulumi.aws-recovery.yaml", UsageError, "stdin is not a terminal; add --yes"),
        (["--to", "us-west-2", "--yes"], "Pulumi.aws-recovery.yaml", DeploymentError, "deploy the stack first"),
    ],
)
def test_wrong_use_has_one_error(zone: Zone, words: list[str], stack: str, kind: type[Exception], text: str) -> None:
    """A stack without names, another region, a missing confirmation and a region without a deployment change nothing."""
    problem = run(*words, stack=stack).exception
    assert isinstance(problem, kind)
    assert text in str(problem)
    assert zone.found == {}


@pytest.mark.parametrize(
    ("words", "stack", "text"),
    [
        (["--to", "mars"], "Pulumi.aws-recovery.yaml", "--to is mars; allowed: us-east-2, us-west-2"),
        ([], "Pulumi.plain.yaml", "has no `recovery.names`"),
    ],
)
def test_the_declaration_is_checked_before_the_state_is_read(
    zone: Zone, words: list[str], stack: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error does not require a login to the state backend."""
    monkeypatch.setattr(ready, "readable_stack", lambda *_, **__: pytest.fail("the state was read"))
    problem = run(*words, stack=stack).exception
    assert isinstance(problem, UsageError)
    assert text in str(problem)


def journal(kind: type[FailoverJournal], region: str, *, ended: bool) -> None:
    """Write the journal of a move."""
    found = kind(Path("Pulumi.aws-recovery.yaml"))
    found.begin("aws-recovery", region, {})
    if ended:
        found.end()
    found.close()


def test_names_point_to_the_second_region_after_a_failover(zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
    """The region in the journal of the failover is the default, and `--to` selects the other one."""
    monkeypatch.setattr(cli, "_state", lambda _, region: [{"region": region}])
    monkeypatch.setattr(cli, "verdicts", lambda found: fleet(node(7 if found[0]["region"] == "us-west-2" else 1)))
    journal(FailoverJournal, "us-west-2", ended=True)
    assert "A 10.0.0.7 " in run("--yes").stdout
    assert "A 10.0.0.1 " in run("--yes", "--to", "us-east-2").stdout


@pytest.mark.parametrize(("kind", "region"), [(FailoverJournal, "us-west-2"), (FailbackJournal, "us-east-2")])
def test_a_move_that_is_not_finished_has_no_default_region(
    zone: Zone, kind: type[FailoverJournal], region: str
) -> None:
    """The nodes of one region can be terminated, so the command changes nothing without `--to`."""
    if kind is FailbackJournal:
        journal(FailoverJournal, "us-west-2", ended=True)
    journal(kind, region, ended=False)
    problem = run("--yes").exception
    assert isinstance(problem, UsageError)
    assert f"to {region} is not finished" in str(problem)
    assert "add --to us-east-2 or --to us-west-2" in str(problem)
    assert zone.found == {}
    assert run("--yes", "--to", "us-east-2").exception is None


def test_a_control_plane_that_does_not_respond_is_an_error(zone: Zone) -> None:
    """The message contains the region that must respond."""
    zone.down = True
    problem = run("--yes").exception
    assert isinstance(problem, GpuinfraError)
    assert "us-west-1 did not respond" in str(problem)


def test_names_follow_the_record(zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failover from a different machine, the names point to the second region, and another region is rejected.
    If the record cannot be read, the journals of this machine count."""
    record = MemoryRecord()
    monkeypatch.setattr(AwsCloud, "record", lambda *_: record)
    resources: list[dict[str, Any]] = [{"type": "x", "custom": True}, *state(), CLUSTER_STATE]
    monkeypatch.setattr(ready, "readable_stack", lambda *_, **__: nullcontext(resources))
    monkeypatch.setattr(cli, "_state", lambda paired, region: state())
    body = {"schema": SCHEMA, "to": "us-west-2", "ended": "2026-11-28T00:00:00Z", "steps": {}}
    SharedRecord(record, "aws-recovery", "us-east-2").update("failover", body, "us-west-2")
    done = run("--yes", "--json")
    assert json.loads(done.stdout)["region"] == "us-west-2", done.exception
    refused = run("--yes", "--to", "us-east-2")
    assert isinstance(refused.exception, UsageError)
    assert "--to is us-east-2, but us-west-2 is active since" in str(refused.exception)
    record.down = True
    done = run("--yes", "--to", "us-east-2")
    assert done.return_value == 0, done.exception
    assert "gpuinfra: warn: the record of the active region" in done.stderr
