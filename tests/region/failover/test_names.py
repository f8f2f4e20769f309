"""The last step of a failover and of a failback: the DNS names move to the region with the verified nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuinfra.clouds.region.dns import CLUSTER, Key, Mounted, NameRecord
from gpuinfra.clouds.region.failover import Unreachable
from gpuinfra.handover.judge import FleetVerdict
from gpuinfra.region.failover import back
from gpuinfra.region.failover.journal import DONE, FAILED, UNREACHABLE, FailbackJournal, FailoverJournal
from gpuinfra.region.failover.run import FailoverResult, first_region, run_steps
from gpuinfra.region.failover.steps import Failing, StackNames, steps
from tests.clouds.region.test_dns import DEAD, LUSTRE, NAMES, PRIMARY
from tests.region.failover.returning import Returned
from tests.region.failover.world import World


@dataclass
class Zone:
    """A zone. It implements `gpuinfra.clouds.region.dns.Dns`."""

    world: World
    control_plane: str = "us-east-1"
    down: bool = False
    second_down: bool = False
    """Whether the region of the file systems does not respond."""
    found: list[str] = field(default_factory=list)

    def zone_name(self, zone: str) -> str | None:
        return NAMES.domain

    def values(self, zone: str, keys: Iterable[Key]) -> dict[Key, tuple[str, ...]]:
        return {}

    def point(self, zone: str, records: Sequence[NameRecord]) -> None:
        if self.down:
            raise Unreachable(f"{self.control_plane} timed out")
        self.world.calls.append(f"names in {zone}")
        self.found = [str(one) for one in records]

    def zone_region(self, zone: str) -> str | None:
        return None

    def mounted(self, entry: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]) -> Mounted | None:
        if self.second_down:
            raise Unreachable("us-west-2 timed out")
        if entry["dns_name"] != LUSTRE:
            return None
        return Mounted(addresses=(PRIMARY,), source=f"{PRIMARY}@tcp:/abcdefgh")


def state(name: str) -> list[dict[str, object]]:
    """The state of a stack with a file system that imports from a bucket, and with a node that was replaced since the last deployment."""
    mounts = [{"kind": "lustre", "mount": "/scratch", "dns_name": LUSTRE, "mount_name": "abcdefgh"}]
    ready = {"type": "gpuinfra:index:NodesReady", "outputs": {"nodes": [DEAD]}}
    return [{"type": "lustre", "id": "fs-1"}, {"type": CLUSTER, "outputs": {"file_systems": mounts}}, ready]


def moving(one: Failing, zone: Zone) -> Failing:
    """The same move with names."""
    return replace(one, names=StackNames(plan=NAMES, dns=zone), state=state)


def run(world: World, zone: Zone, folder: Path, **more: Any) -> FailoverResult:
    """Run all steps of a failover from us-east-1 that are not done."""
    failing = replace(moving(world.failing(), zone), **more)
    journal = FailoverJournal(folder / "Pulumi.aws-recovery.yaml", folder)
    try:
        if not journal.exists:
            journal.begin(failing.stack, failing.second, {})
        return run_steps(
            journal, steps(failing), lambda line: None, first_region(failing, lambda _: True, stated=False)
        )
    finally:
        journal.close()


def test_names_move_after_the_nodes_are_verified(tmp_path: Path) -> None:
    """The last step points the names to the file systems of the second region, and the journal contains the records."""
    world = World()
    zone = Zone(world)
    result = run(world, zone, tmp_path)
    assert result.ok, result.problem
    assert [one.name for one in result.steps][-2:] == ["import aws-recovery-us-west-2", "names"]
    assert world.calls[-1] == f"names in {NAMES.zone}"
    assert zone.found == [
        "login.train.example.internal A 10.1.0.1 10.1.0.2",
        f"scratch.train.example.internal A {PRIMARY}",
        f'source.scratch.train.example.internal TXT "{PRIMARY}@tcp:/abcdefgh"',
    ]
    assert f"scratch.train.example.internal A {PRIMARY}" in str(result.journal.entry("names")["found"])
    assert "login.train.example.internal" in result.steps[-1].what


def test_names_do_not_move_to_nodes_that_are_not_verified(tmp_path: Path) -> None:
    """Clients stay in the first region if a node of the second region fails."""
    world = World(outcomes=("verified", "failed"))
    zone = Zone(world)
    result = run(world, zone, tmp_path)
    assert not result.ok
    assert zone.found == []


def test_names_do_not_move_if_the_nodes_ended_after_their_check(tmp_path: Path) -> None:
    """The step reads the nodes again. Without a verified node, no name moves, and a resumed run repeats the step."""
    world = World()
    zone = Zone(world)
    reads: list[None] = []

    def verdicts(resources: Sequence[Any]) -> list[FleetVerdict]:
        reads.append(None)
        # The steps `verify` and `fence` read the nodes before.
        world.outcomes = ("verified", "verified") if len(reads) != 3 else ("waiting", "waiting")
        return world._verdicts(resources)

    result = run(world, zone, tmp_path, verdicts=verdicts)
    assert result.problem.startswith("names: no node is verified")
    assert zone.found == []
    assert run(world, zone, tmp_path, verdicts=verdicts).ok
    assert zone.found


def test_a_region_without_nodes_keeps_the_name_of_the_nodes(tmp_path: Path) -> None:
    """If the stack of a region declares no pools, the names of the file systems move, and the result states that `login` did not."""
    world = World(outcomes=())
    zone = Zone(world)
    stacks = tuple(replace(one, plan=replace(one.plan, pools=())) for one in world.failing().stacks)
    result = run(world, zone, tmp_path, stacks=stacks)
    assert result.ok, result.problem
    assert not any("login" in one for one in zone.found)
    assert "login.train.example.internal is unchanged" in str(result.journal.entry("names")["found"])


def test_file_systems_that_cannot_be_read_fail_the_step(tmp_path: Path) -> None:
    """The addresses are read in the second region, so the step is not recorded as unreachable in the first region."""
    world = World()
    result = run(world, Zone(world, second_down=True), tmp_path)
    assert result.journal.state("names") == FAILED
    assert "the addresses of the file systems cannot be read: us-west-2 timed out" in result.problem


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
    zone = Zone(world, control_plane="eu-west-1", down=True)
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
    result = run_steps(journal, back.steps(one), lambda line: None)
    journal.close()
    assert result.ok, result.problem
    assert result.steps[-1].name == "names"
    assert result.steps[-1].what.endswith("to us-east-1")
    assert world.calls[-1] == f"names in {NAMES.zone}"


def test_a_failback_does_not_skip_the_names(tmp_path: Path) -> None:
    """If the control plane is in the second region and does not respond, the failback stops."""
    world = Returned()
    zone = Zone(world, control_plane="us-west-2", down=True)
    one = world.returning()
    one = replace(one, back=moving(one.back, zone))
    journal = FailbackJournal(tmp_path / "Pulumi.aws-recovery.yaml", tmp_path)
    journal.begin(one.back.stack, one.back.second, {})
    result = run_steps(journal, back.steps(one), lambda line: None)
    journal.close()
    assert not result.ok
    assert result.problem.startswith("names: ")
