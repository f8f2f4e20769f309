"""The command `gpuinfra names`: what it prints, what it changes, and what it rejects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuinfra.cli import names as cli
from gpuinfra.cli import ready
from gpuinfra.clouds.dns import Key, NameRecord
from gpuinfra.clouds.failover import Unreachable
from gpuinfra.errors import DeploymentError, GpuinfraError, UsageError
from gpuinfra.failover.journal import Journal
from gpuinfra.shipped import shipped
from tests.clouds.stacks import TODAY
from tests.clouds.test_dns import DOMAIN, LUSTRE, ZONE, node, state

DECLARED = f"      names: {{zone: {ZONE}, domain: {DOMAIN}}}\n"


@dataclass
class Zone:
    """A zone. It implements `gpuinfra.clouds.dns.Dns`."""

    control_region: str = "us-west-1"
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
    resources: list[dict[str, Any]] = [{"type": "x", "custom": True}, *state(node(1), node(2))]
    monkeypatch.setattr(ready, "readable_stack", lambda *_, **__: nullcontext(resources))
    monkeypatch.setattr(cli, "exported", lambda name: [])
    monkeypatch.setattr("gpuinfra.clouds.dns.dns_of", lambda *_: found)
    return found


def run(*words: str, stack: str = "Pulumi.aws-recovery.yaml") -> Result:
    """Run the command."""
    return CliRunner().invoke(cli.command, [stack, *words], standalone_mode=False)


def test_each_record_is_printed_with_its_earlier_value(zone: Zone) -> None:
    """The first run creates the records, and a second run changes nothing."""
    zone.found[f"scratch.{DOMAIN}", "CNAME"] = ("old.example.com",)
    done = run("--yes")
    assert done.exception is None, done.exception
    lines = done.stdout.splitlines()
    assert lines[0] == f"login.{DOMAIN} A 10.0.0.1 10.0.0.2 (new)"
    assert lines[1] == f"scratch.{DOMAIN} CNAME {LUSTRE} (was old.example.com)"
    assert zone.found[f"scratch.{DOMAIN}", "CNAME"] == (LUSTRE,)
    assert all(line.endswith("(unchanged)") for line in run("--yes").stdout.splitlines())


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


def test_names_point_to_the_second_region_after_a_failover(zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
    """The region in the journal of the failover is the default, and `--to` selects the other one."""
    monkeypatch.setattr(cli, "_state", lambda _, region: state(node(7 if region == "us-west-2" else 1)))
    journal = Journal(Path("Pulumi.aws-recovery.yaml"))
    journal.begin("aws-recovery", "us-west-2", {})
    journal.end()
    journal.close()
    assert "A 10.0.0.7 " in run("--yes").stdout
    assert "A 10.0.0.1 " in run("--yes", "--to", "us-east-2").stdout


def test_a_control_plane_that_does_not_respond_is_an_error(zone: Zone) -> None:
    """The message contains the region that must respond."""
    zone.down = True
    problem = run("--yes").exception
    assert isinstance(problem, GpuinfraError)
    assert "us-west-1 did not respond" in str(problem)
