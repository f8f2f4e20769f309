"""The last step of a failover and of a failback: the DNS names move to the region with the verified nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuinfra.clouds.dns import CLUSTER, Key, NameRecord
from gpuinfra.clouds.failover import Unreachable
from gpuinfra.failover import back
from gpuinfra.failover.journal import DONE, FAILED, UNREACHABLE, FailbackJournal, Journal
from gpuinfra.failover.run import Result, probe_of, run_steps
from gpuinfra.failover.steps import Failing, Names, steps
from tests.clouds.test_dns import LUSTRE, NAMES
from tests.failover.returning import Returned
from tests.failover.world import PAIR, World


@dataclass
class Zone:
    """A zone. It implements `gpuinfra.clouds.dns.Dns`."""

    world: World
    control_region: str = "us-east-1"
    down: bool = False
    found: list[str] = field(default_factory=list)

    def zone_name(self, zone: str) -> str | None:
        return NAMES.domain

    def values(self, zone: str, keys: Iterable[Key]) -> dict[Key, tuple[str, ...]]:
        return {}

    def point(self, zone: str, records: Sequence[NameRecord]) -> None:
        if self.down:
            raise Unreachable(f"{self.control_region} timed out")
        self.world.calls.append(f"names in {zone}")
        self.found = [str(one) for one in records]


def state(name: str) -> list[dict[str, object]]:
    """The state of a stack with a file system that imports from a bucket."""
    mounts = [{"kind": "lustre", "mount": "/scratch", "dns_name": LUSTRE, "mount_name": "abcdefgh"}]
    return [{"type": "lustre", "id": "fs-1"}, {"type": CLUSTER, "outputs": {"file_systems": mounts}}]


def moving(one: Failing, zone: Zone) -> Failing:
    """The same move with names."""
    return replace(one, names=Names(plan=NAMES, dns=zone), state=state)


def run(world: World, zone: Zone, folder: Path) -> Result:
    """Run all steps of a failover from us-east-1 that are not done."""
    failing = moving(world.failing(), zone)
    journal = Journal(folder / "Pulumi.aws-recovery.yaml", folder)
    try:
        if not journal.exists:
            journal.begin(failing.stack, failing.second, {})
        return run_steps(journal, steps(failing), lambda line: None, probe_of(world, [PAIR]), unreachable=False)
    finally:
        journal.close()


def test_names_move_after_the_nodes_are_verified(tmp_path: Path) -> None:
    """The last step points the names to the file systems of the second region, and the journal contains the records."""
    world = World()
    zone = Zone(world)
    result = run(world, zone, tmp_path)
    assert result.ok, result.problem
    assert [one.name for one in result.steps][-2:] == ["verify aws-recovery-us-west-2", "names"]
    assert world.calls[-1] == f"names in {NAMES.zone}"
    assert any(LUSTRE in one for one in zone.found)
    assert "scratch.train.example.internal CNAME" in str(result.journal.entry("names")["found"])
    assert "login.train.example.internal" in result.steps[-1].what


def test_names_do_not_move_to_nodes_that_are_not_verified(tmp_path: Path) -> None:
    """Clients stay in the first region if a node of the second region fails."""
    world = World(outcomes=("verified", "failed"))
    zone = Zone(world)
    result = run(world, zone, tmp_path)
    assert not result.ok
    assert zone.found == []


def test_names_move_later_if_their_control_plane_is_in_the_failed_region(tmp_path: Path) -> None:
    """The failover continues without the names, and a resumed run moves them."""
    world = World(down={"first"})
    zone = Zone(world, down=True)
    result = run(world, zone, tmp_path)
    assert result.ok, result.problem
    assert result.journal.state("names") == UNREACHABLE
    world.down.clear()
    zone.down = False
    again = run(world, zone, tmp_path)
    assert again.journal.state("names") == DONE
    assert zone.found


def test_a_control_plane_in_another_region_that_does_not_respond_ends_the_run(tmp_path: Path) -> None:
    """The step is not skipped if its region is not the failed one, and the message contains that region."""
    world = World()
    zone = Zone(world, control_region="eu-west-1", down=True)
    result = run(world, zone, tmp_path)
    assert not result.ok
    assert result.journal.state("names") == FAILED
    assert "eu-west-1, which changes DNS records, did not respond" in result.problem


def test_names_move_back_after_the_nodes_are_verified(tmp_path: Path) -> None:
    """The last step of a failback points the names to the first region."""
    world = Returned()
    zone = Zone(world)
    one = world.returning()
    one = replace(one, back=moving(one.back, zone))
    journal = FailbackJournal(tmp_path / "Pulumi.aws-recovery.yaml", tmp_path)
    journal.begin(one.back.stack, one.back.second, {})
    result = run_steps(journal, back.steps(one), lambda line: None, lambda: None, unreachable=False)
    journal.close()
    assert result.ok, result.problem
    assert result.steps[-1].name == "names"
    assert result.steps[-1].what.endswith("to us-east-1")
    assert world.calls[-1] == f"names in {NAMES.zone}"


def test_a_failback_does_not_skip_the_names(tmp_path: Path) -> None:
    """If the control plane is in the second region and does not respond, the failback stops."""
    world = Returned()
    zone = Zone(world, control_region="us-west-2", down=True)
    one = world.returning()
    one = replace(one, back=moving(one.back, zone))
    journal = FailbackJournal(tmp_path / "Pulumi.aws-recovery.yaml", tmp_path)
    journal.begin(one.back.stack, one.back.second, {})
    result = run_steps(journal, back.steps(one), lambda line: None, lambda: None, unreachable=False)
    journal.close()
    assert not result.ok
    assert result.problem.startswith("names: ")
