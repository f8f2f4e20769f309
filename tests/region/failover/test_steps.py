"""The steps of a failover: their order, what each refuses, and what happens if a region does not respond."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.region import checkpoints, readiness
from gpuinfra.clouds.region.failover import BucketPair
from gpuinfra.clouds.region.readiness import FAIL, UNREAD, ReadinessLine
from gpuinfra.engine.up import EngineFailure, UpFailed
from gpuinfra.handover.wire import TYPE
from gpuinfra.region.clone.model import Mode
from gpuinfra.region.failover.journal import DONE, FAILED, UNREACHABLE, FailoverJournal
from gpuinfra.region.failover.run import FailoverResult, first_region, run_steps
from gpuinfra.region.failover.steps import steps
from tests.region.failover.world import GOOD, World

STALE = ReadinessLine(topic="lag", name="scratch", state=FAIL, reason="the replica is 3 hours behind", fix="aws s3api")


def run(
    world: World, folder: Path, *, unreachable: bool = False, mode: Mode = "cold", ignore: str = "", named: bool = True,
    stop_first: bool = False,
) -> FailoverResult:  # fmt: skip
    """Run all steps that are not done, with the journal in this folder. `named`: the user confirms an unreachable region by its name."""
    failing = world.failing(mode, ignore=frozenset({ignore}), stop_first=stop_first)
    journal = FailoverJournal(folder / "Pulumi.aws-recovery.yaml", folder)
    try:
        if not journal.exists:
            journal.begin(failing.stack, failing.second, {})
        first = first_region(failing, lambda evidence: named, stated=unreachable)
        return run_steps(journal, steps(failing), lambda line: None, first, failing.ignore)
    finally:
        journal.close()


def states(result: FailoverResult) -> dict[str, str | None]:
    """The state of each step."""
    return {one.name: result.journal.state(one.name) for one in result.steps}


UP, VERIFY, LOAD = (f"{step} aws-recovery-us-west-2" for step in ("up", "verify", "import"))


def test_the_second_region_has_nodes_before_the_first_one_stops(tmp_path: Path) -> None:
    """The first region is stopped after the nodes of the second one are verified. Nothing is imported before the replica is complete and final."""
    world = World(missing=[["a"], []])
    result = run(world, tmp_path)
    assert result.ok
    assert world.calls == [
        "up aws-recovery-us-west-2",
        "stop gpu-0", "running gpu-0", "running gpu-0", "running gpu-0",
        "compare scratch-first", "compare scratch-first", "disable scratch-first", "detach scratch-second",
        "import fs-1",
    ]  # fmt: skip
    assert [one.name for one in result.steps] == [
        "check",
        UP,
        VERIFY,
        "fence",
        "drain",
        "replication",
        "replicas",
        LOAD,
    ]


@pytest.mark.parametrize("problem", ["no capacity", "not verified", "ended before the fence"])
def test_a_second_region_without_nodes_changes_nothing_in_the_first(problem: str, tmp_path: Path) -> None:
    """If the second region has no capacity, its nodes fail, or they end before the first region is stopped, no request changes the first region."""
    world = World()
    if problem == "no capacity":
        world.down.add("second")
    elif problem == "not verified":
        world.outcomes = ("verified", "failed")
    else:
        world.reads = [("verified", "verified"), ("verified", "failed")]
    result = run(world, tmp_path)
    assert not result.ok
    assert not [call for call in world.calls if not call.startswith("up ")]
    assert states(result)["drain"] is None


def test_an_empty_fleet_is_never_verified(tmp_path: Path) -> None:
    """0 of 0 nodes are no second region: the failover stops before it changes the first one."""
    world = World(outcomes=())
    result = run(world, tmp_path)
    assert result.problem.startswith(f"{VERIFY}: no nodes of aws-recovery-us-west-2 are expected")
    assert world.calls == [UP]


def test_the_first_region_can_stop_first(tmp_path: Path) -> None:
    """With `--stop-first`, nodes end, the replica is complete, replication ends, and then the second region starts."""
    world = World(missing=[["a"], []])
    result = run(world, tmp_path, stop_first=True)
    assert result.ok
    assert set(states(result).values()) == {DONE}
    assert world.calls == [
        "stop gpu-0", "running gpu-0", "running gpu-0", "running gpu-0",
        "compare scratch-first", "compare scratch-first", "disable scratch-first", "detach scratch-second",
        "up aws-recovery-us-west-2", "import fs-1",
    ]  # fmt: skip
    assert [one.name for one in result.steps] == [
        "check", "fence", "drain", "replication", "replicas", "up aws-recovery-us-west-2", "import aws-recovery-us-west-2",
        "verify aws-recovery-us-west-2",
    ]  # fmt: skip


@pytest.mark.parametrize("down", [set(), {"first"}])
def test_replicas_are_detached_before_the_second_region_imports(down: set[str], tmp_path: Path) -> None:
    """Nothing from the first region reaches the replicas after the import, also if the first region does not respond."""
    world = World(down=down)
    result = run(world, tmp_path)
    assert result.ok
    assert states(result)["replicas"] == DONE
    assert world.calls[-2:] == ["detach scratch-second", "import fs-1"]


def test_a_replica_that_cannot_be_detached_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second region does not write while the first one can replace its objects, unless the user accepts this. A resumed run tries again."""

    def refused(pair: BucketPair) -> None:
        raise DeploymentError("PutBucketPolicy requires us-east-1")

    world = World(down={"first"})
    with monkeypatch.context() as patched:
        patched.setattr(world, "detach_replica", refused)
        result = run(world, tmp_path)
        assert result.problem.startswith("replicas: PutBucketPolicy requires us-east-1; or add --ignore replicas")
        assert "import fs-1" not in world.calls
        again = run(world, tmp_path, ignore="replicas")
        assert again.ok
        assert again.ignored == ("replicas",)
    assert states(run(world, tmp_path))["replicas"] == DONE


def test_a_bucket_that_cannot_be_compared_can_be_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused comparison stops the failover, and `--ignore drain` continues and records the reason. A resumed run compares again."""

    def refused(*_: object) -> list[str]:
        raise DeploymentError("the firewall refused the request")

    world = World()
    monkeypatch.setattr(world, "not_replicated", refused)
    result = run(world, tmp_path)
    assert "the firewall refused the request; or add --ignore drain" in result.problem
    again = run(world, tmp_path, ignore="drain")
    assert again.ok
    assert again.ignored == ("drain",)
    assert "because of --ignore drain: the firewall refused" in str(again.journal.entry("drain")["found"])
    monkeypatch.undo()
    assert states(run(world, tmp_path))["drain"] == DONE


@pytest.mark.parametrize(
    ("mode", "deployed"), [("hot", ["us-west-2"]), ("pilot-light", ["us-west-2-base", "us-west-2"])]
)
def test_each_stack_of_the_second_region_is_deployed_in_order(tmp_path: Path, mode: Mode, deployed: list[str]) -> None:
    """In mode pilot-light, the site has the file systems and is deployed first, and only the other stack has nodes."""
    result = run(World(), tmp_path, mode=mode)
    names = [one.name for one in result.steps]
    assert [one for one in names if one.startswith("up ")] == [f"up aws-recovery-{one}" for one in deployed]
    assert [one for one in names if one.startswith("import ")] == [f"import aws-recovery-{deployed[0]}"]
    assert [one for one in names if one.startswith("verify ")] == ["verify aws-recovery-us-west-2"]
    assert result.ok


def test_a_region_that_is_not_ready_changes_nothing(tmp_path: Path) -> None:
    """A failed check ends the run before the first change, with the reason, the fix, and the option that continues."""
    world = World(lines=[GOOD, STALE])
    result = run(world, tmp_path)
    assert world.calls == []
    assert not result.ok
    assert "3 hours behind" in result.problem
    assert "aws s3api" in result.problem
    assert "--ignore lag" in result.problem
    assert states(result)["check"] == FAILED
    assert run(world, tmp_path, ignore="bundle").ok is False
    assert run(world, tmp_path, ignore="lag").ok


def test_a_failed_deployment_states_why_nodes_are_missing(tmp_path: Path) -> None:
    """The error contains the shortages in the state that the failed deployment wrote, and no shortage of an earlier deployment."""
    world = World()
    shortage = {
        "pool": "gpu", "group": "gpu-spot-0", "kind": "spot", "zone": "usw2-az1", "missing": 2, "cause": "stock-out",
        "message": "There is no Spot capacity", "hint": "wait",
    }  # fmt: skip
    state = [{"type": TYPE, "urn": "urn:ready", "outputs": {"ended": "stock-out", "shortages": [shortage]}}]
    for saved in (True, False):
        failure = EngineFailure(urn="urn:ready", message="0 of 2 nodes verified", saved=saved)

        def deploy(name: str, again: bool, failure: EngineFailure = failure) -> None:
            raise UpFailed("`pulumi up` exited with code 255", [failure])

        failing = replace(world.failing(), deploy=deploy, state=lambda name: state)
        (step,) = (one for one in steps(failing) if one.name.startswith("up "))
        with pytest.raises(DeploymentError) as caught:
            step.run(False)
        more = "\n  gpu-spot-0: There is no Spot capacity\n  what to do: wait" if saved else ""
        assert str(caught.value) == f"`pulumi up` exited with code 255{more}"


def test_unanswered_checks_do_not_stop_a_failover(tmp_path: Path) -> None:
    """The checks of a region that failed have no answer, and the result of the step states how many lines have which state."""
    result = run(World(lines=[GOOD, GOOD, replace(STALE, state=UNREAD)]), tmp_path)
    assert result.ok
    assert result.journal.entry("check")["found"] == f"2 {GOOD.state}, 1 {UNREAD}"


def test_first_region_that_does_not_answer_is_asked_once(tmp_path: Path) -> None:
    """After the first timeout, the other steps in that region are recorded, and the second region starts; a resumed run repeats only them."""
    world = World(down={"first"})
    result = run(world, tmp_path)
    assert result.ok
    assert result.unreachable == ("fence", "drain", "replication")
    assert world.calls == ["up aws-recovery-us-west-2", "answers", "detach scratch-second", "import fs-1"]
    assert "first timed out" in str(result.journal.entry("fence")["found"])
    world.down.clear()
    world.calls.clear()
    again = run(world, tmp_path)
    assert again.unreachable == ()
    assert world.calls[0] == "stop gpu-0"
    assert world.calls[-1] == "disable scratch-first"
    assert not any(call.startswith(("up ", "import ")) for call in world.calls)


@pytest.mark.parametrize("option", [False, True])
def test_global_service_stops_the_replication_without_the_first_region(option: bool, tmp_path: Path) -> None:
    """If a global service stops the replication, it is stopped before the second region is deployed, also if the first region does not respond."""
    world = World(down={"first"}, global_replication=True)
    result = run(world, tmp_path, unreachable=option)
    assert result.ok
    assert result.unreachable == ("fence", "drain")
    assert [call for call in world.calls if call != "answers"] == [UP, "disable scratch-first", "detach scratch-second", "import fs-1"]  # fmt: skip
    entries = [str(result.journal.entry(name)["ended"]) for name in ("replication", LOAD)]
    assert entries == sorted(entries)
    world.down.clear()
    world.calls.clear()
    assert run(world, tmp_path).unreachable == ()
    assert "disable scratch-first" not in world.calls


def test_global_service_that_does_not_respond_is_no_part_of_the_region(tmp_path: Path) -> None:
    """The evidence about a region says nothing about a global service, so its step fails, unless the user ignores it.
    A resumed run stops the replication."""
    world = World(down={"first", "global"}, global_replication=True)
    assert run(world, tmp_path).problem.startswith("replication: global timed out")
    result = run(world, tmp_path, ignore="replication")
    assert result.ok
    assert (result.unreachable, result.ignored) == (("fence", "drain"), ("replication",))
    world.down.clear()
    assert run(world, tmp_path).ignored == ()
    assert world.calls[-1] == "disable scratch-first"


@pytest.mark.parametrize(("name", "value"), [("busy", "first"), ("down", "groups"), ("down", "objects")])
@pytest.mark.parametrize("stated", [False, True])
def test_a_region_that_responds_is_never_skipped(name: str, value: str, stated: bool, tmp_path: Path) -> None:
    """An error of the services, and one service of several that does not respond, skip no step, also with `--unreachable`."""
    world = World(**{name: {value}})
    result = run(world, tmp_path, unreachable=stated)
    if value == "objects":
        assert result.ok
        assert result.unreachable == ()
        return
    assert result.problem.startswith("fence: ")
    assert "add --ignore fence" in result.problem
    assert world.calls == [UP]
    assert result.journal.evidence == ()
    ignored = run(world, tmp_path, ignore="fence")
    assert ignored.ignored == ("fence",)
    getattr(world, name).clear()
    assert "stop gpu-0" not in world.calls
    assert run(world, tmp_path).ignored == ()
    assert "stop gpu-0" in world.calls


def test_an_unreachable_region_is_skipped_only_by_name(tmp_path: Path) -> None:
    """Without the confirmation, the run stops with the evidence and the option. With it, the journal has the evidence of each service."""
    world = World(down={"first"})
    result = run(world, tmp_path, named=False)
    assert "no service of us-east-1 responded for" in result.problem
    assert "add --unreachable us-east-1" in result.problem
    assert not any(call.startswith("import ") for call in world.calls)
    result = run(world, tmp_path)
    assert result.ok
    evidence = result.document("aws-recovery")["evidence"]
    assert {one["service"] for one in evidence} == {"groups", "objects"}
    assert all(one["at"] and one["error"] == "first timed out" for one in evidence)


def test_first_region_is_not_asked_with_the_option(tmp_path: Path) -> None:
    """With `--unreachable`, only the requests that collect the evidence go to the first region."""
    world = World(down={"first"})
    result = run(world, tmp_path, unreachable=True)
    assert states(result)["fence"] == UNREACHABLE
    assert world.calls == [UP, "answers", "detach scratch-second", "import fs-1"]


def test_machine_without_a_network_does_not_fail_over(tmp_path: Path) -> None:
    """If neither region responds, the reason is this machine, and the failover stops."""
    world = World(down={"first", "second"})
    result = run(world, tmp_path, stop_first=True)
    assert not result.ok
    assert "neither region responds" in result.problem
    assert world.calls == []
    assert states(result)["fence"] == FAILED


def test_second_region_that_does_not_answer_ends_the_run(tmp_path: Path) -> None:
    """A step in the second region is never skipped."""
    world = World(down={"second"})
    result = run(world, tmp_path)
    assert not result.ok
    assert result.problem.startswith("up aws-recovery-us-west-2: second timed out")
    world.down.clear()
    assert run(world, tmp_path).ok
    assert (world.calls[0], world.calls[-1]) == (f"{UP} again", "import fs-1")


@pytest.mark.parametrize(
    ("world", "step", "text"),
    [
        (World(nodes=10**6), "fence", "nodes are still running after 60 minutes: gpu-0 "),
        (World(missing=[["a", "b"]] * 1000), "drain", "2 objects are not in the replicas: scratch-first: a, b"),
        (World(import_fails=True), "import aws-recovery-us-west-2", "the import task is FAILED"),
        (World(outcomes=("verified", "failed")), "verify aws-recovery-us-west-2", "gpu-2: failed"),
    ],
)
def test_step_that_does_not_succeed_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World, step: str, text: str
) -> None:
    """The run ends with the step and what is missing, and later steps do not start."""
    now = [0.0]
    monkeypatch.setattr(
        "gpuinfra.region.failover.steps.time.monotonic", lambda: now.__setitem__(0, now[0] + 60) or now[0]
    )
    result = run(world, tmp_path)
    assert result.problem.startswith(f"{step}: ")
    assert text in result.problem
    names = [one.name for one in result.steps]
    assert states(result)[step] == FAILED
    assert not any(states(result)[later] for later in names[names.index(step) + 1 :])


def test_missing_objects_can_be_left_behind(tmp_path: Path) -> None:
    """With `--ignore drain`, the objects that are lost are named in the journal, and replication ends."""
    world = World(missing=[["a"]] * 1000)
    result = run(world, tmp_path, ignore="drain")
    assert result.ok
    assert result.journal.entry("drain")["found"] == "1 object is not in the replicas: scratch-first: a"
    assert "disable scratch-first" in world.calls


def test_document_has_each_step(tmp_path: Path) -> None:
    """The JSON form has the state, the times and the result of each step."""
    document = run(World(down={"first"}), tmp_path).document("aws-recovery")
    assert document["ok"] is True
    assert document["schema"] == "gpuinfra.failover/1"
    assert document["unreachable"] == ["fence", "drain", "replication"]
    assert [one["state"] for one in document["steps"]] == [*[DONE] * 3, *[UNREACHABLE] * 3, DONE, DONE]
    assert all(one["started"] and one["ended"] and one["found"] for one in document["steps"])


def test_every_topic_can_be_ignored() -> None:
    """The option `--ignore` accepts each topic with which a line of the checks fails."""
    package = Path(readiness.__file__).parents[2]
    files = [
        package / "region" / "readiness.py",
        *package.glob("clouds/region/*.py"),
        *package.glob("clouds/*/region/readiness.py"),
    ]
    assert len(files) > 6
    used = {topic for file in files for topic in re.findall(r'\bfails\(\s*"([a-z ]+)"', file.read_text())}
    used |= {checkpoints.TOPIC for file in files if re.search(r"\bfails\(\s*TOPIC\b", file.read_text())}
    renamed = {readiness.RENAMED.get(topic, topic) for topic in readiness.PREFLIGHT}
    assert used | renamed == set(readiness.TOPICS)


def test_second_region_that_refuses_the_login_is_not_called_unreachable(tmp_path: Path) -> None:
    """If the first region does not respond and the second one refuses the request, the message states both."""
    world = World(down={"first"}, refuses=True)
    result = run(world, tmp_path)
    assert not result.ok
    assert "first timed out; the second region refused the request: ExpiredToken" in result.problem
    assert world.calls == [UP]


@pytest.mark.parametrize(
    ("wait", "floor", "ok"), [("floor", 1, True), ("floor", 2, False), ("all", None, False), ("none", None, False)]
)
def test_floor_of_the_handover_is_enough(tmp_path: Path, wait: str, floor: int | None, ok: bool) -> None:
    """With `wait: floor`, the failover succeeds with that number of verified nodes, otherwise only with all nodes."""
    world = World(outcomes=("verified", "failed"))
    failing = world.failing()
    (second,) = failing.stacks
    handover = replace(second.plan.handover, wait=wait, floor=floor)
    failing = replace(failing, stacks=(replace(second, plan=replace(second.plan, handover=handover)),))
    journal = FailoverJournal(tmp_path / "Pulumi.aws-recovery.yaml", tmp_path)
    journal.begin(failing.stack, failing.second, {})
    result = run_steps(journal, steps(failing), lambda line: None)
    journal.close()
    assert result.ok is ok, result.problem
