"""`gpuinfra replace`: which nodes are replaced, what is written, what is requested, and how a replacement is judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuinfra.base.errors import DeploymentError, GpuinfraError, UsageError
from gpuinfra.cli import replace as cli
from gpuinfra.cli import stack_context
from gpuinfra.cli.stacks import Stacks
from gpuinfra.handover.causes import CapacityCause
from gpuinfra.handover.examine import judge_node
from gpuinfra.handover.gather import Gatherer
from gpuinfra.handover.ports import GroupProblem, PortUnavailable
from gpuinfra.handover.relay import FabricRelay
from gpuinfra.remote.hosts import Hosts
from gpuinfra.verification import replacement, store
from gpuinfra.verification.replacement import targets
from gpuinfra.verification.store import Poll
from tests.handover.fleet import INSIDE, LAUNCHED, Fleet, gpu_uuid, instance
from tests.handover.test_fabric_test import WAITING, expected, fleet_of
from tests.handover.test_fabric_test import report as report_test
from tests.node.healthy import fabric_result
from tests.verification.test_nodes import polled

SAME = {"gpus": [{"index": i, "uuid": gpu_uuid(1, i)} for i in range(8)]}
"""The GPUs of node 1 in the evidence of another node."""


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fleet:
    """The stack `aws-p4d`, whose group has a failed node gpu-1 and a verified node gpu-2, in an empty folder."""

    def chosen(given: dict[str, Any]) -> Stacks:
        del given["rehearsal"], given["folder"]
        state = [{"type": "gpuinfra:index:NodesReady", "custom": True, "outputs": {"deadlineS": 1}}]
        return Stacks(open=lambda name: nullcontext(state), up="", restore="pulumi up --refresh --stack {stack}", project=lambda name: Path())  # fmt: skip

    found = Fleet()
    for number, gpus in ((1, 7), (2, 8)):
        found.launch(number, zone="use1-az4")
        found.report(number, gpus=gpus)
    found.consoles[instance(1)] = ["the last line"]
    monkeypatch.setattr("gpuinfra.cli.options.stacks_of", chosen)
    monkeypatch.setattr(store, "polled", lambda resources: (polled(found, 2),))
    monkeypatch.setattr(replacement, "POLL_S", 0.0)
    monkeypatch.setattr(stack_context.ActiveStack, "hosts", lambda *_: Hosts(hosts=()))
    monkeypatch.chdir(tmp_path)
    return found


def replaced_by(fleet: Fleet, number: int, **report: Any) -> Callable[[str], None]:
    """Return what the group does: it terminates the instance and launches another, which reports."""

    def act(instance_id: str) -> None:
        fleet.members_ = [one for one in fleet.members_ if one.instance_id != instance_id]
        fleet.launch(number)
        fleet.report(number, **report)

    return act


def run(*words: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli.command, ["aws-p4d", *words], standalone_mode=False)


def test_replacement_on_a_different_host_succeeds(fleet: Fleet) -> None:
    """The files are written, the group gets the request, and the output names the replacement and the command that updates the state."""
    fleet.on_replace = replaced_by(fleet, 3)
    done = run("gpu-1", "--yes", "--save", "out")
    assert (done.exception, done.return_value) == (None, 0)
    assert fleet.replaced == [("asg-1", instance(1))]
    assert f"is replaced by gpu-3 ({instance(3)}), which is verified" in done.output
    assert "pulumi up --refresh --stack aws-p4d" in done.output
    folder = Path("out/gpu-1")
    assert json.loads((folder / "evidence.json").read_text())["instance_id"] == instance(1)
    assert (folder / "console.log").read_text() == "the last line\n"
    assert [one["id"] for one in json.loads((folder / "checks.json").read_text())] == ["G1"]
    assert gpu_uuid(1, 0) in (folder / "aws-support.txt").read_text()
    assert "use1-az4" in (folder / "aws-support.txt").read_text()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_host_that_comes_back_is_recognized(fleet: Fleet) -> None:
    """If the replacement has the GPUs of the replaced node, the command fails with the advice for the cloud, even if all checks pass."""
    fleet.on_replace = replaced_by(fleet, 3, document=SAME)
    done = run("gpu-1", "--yes", "--json")
    assert isinstance(done.exception, GpuinfraError)
    assert done.exception.exit_code == 1
    text = str(done.exception)
    assert f"gpu-3 ({instance(3)}) runs on the same host as gpu-1: 7 of 8 GPUs" in text
    assert f"enter-standby --instance-ids {instance(3)} --auto-scaling-group-name asg-1" in text
    document = json.loads(done.stdout)
    assert document["nodes"][0]["replacement"]["same_host"] is True


def test_unknown_gpus_are_not_compared(fleet: Fleet) -> None:
    """If the replaced node listed no GPUs, the result does not state that the replacement runs on a different host."""
    fleet.report(1, document={"gpus": []}, modified=LAUNCHED + timedelta(hours=1))
    fleet.on_replace = replaced_by(fleet, 3)
    done = run("gpu-1", "--yes", "--json")
    assert done.exception is None, done.exception
    assert json.loads(done.stdout)["nodes"][0]["replacement"]["same_host"] is None
    assert f"the GPU UUIDs of gpu-1 ({instance(1)}) are unknown, so the hosts were not compared" in done.stderr


def test_failed_replacement_has_its_findings(fleet: Fleet) -> None:
    """A replacement that fails a check on a different host is an error with the failed check."""
    fleet.on_replace = replaced_by(fleet, 3, gpus=6)
    done = run("gpu-1", "--yes")
    assert "gpu-3" in str(done.exception)
    assert "found 6, expected 8" in str(done.exception)
    assert "same host" not in str(done.exception)


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize("result", [WAITING, fabric_result()], ids=["no partner", "tested"])
def test_replacement_is_verified_only_after_the_fabric_test(
    result: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pool with the fabric test, a replacement without a result is not verified, and the error states why it waits."""
    fleet = fleet_of(fabric_result(), fabric_result())

    def act(instance_id: str) -> None:
        fleet.members_ = [one for one in fleet.members_ if one.instance_id != instance_id]
        fleet.launch(3)
        report_test(fleet, 3, result)

    def with_test(_: object) -> tuple[Poll, ...]:
        gatherer = Gatherer(fleet.ports, [expected()], judge_node=judge_node, workers=INSIDE)
        relay = FabricRelay(fleet, "train", [expected()])
        return (
            Poll(
                pools=[expected()],
                gatherer=gatherer,
                verdict=gatherer.poll(),
                store=fleet,
                cluster="train",
                relay=relay,
            ),
        )

    fleet.on_replace = act
    monkeypatch.setattr(store, "polled", with_test)
    done = run("gpu-1", "--yes")
    if result is WAITING:
        assert done.exception is not None
        assert "has no result of the fabric test yet: no other node joined within 300 s" in str(done.exception)
        assert [list(sheet["nodes"]) for _, sheet in fleet.sheets] == [[instance(3)], []]
    else:
        assert (done.exception, done.return_value) == (None, 0)
        assert f"is replaced by gpu-3 ({instance(3)}), which is verified" in done.output


def test_missing_replacement_has_the_reason_of_the_group(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the group cannot launch an instance before the deadline, the message contains the cloud's reason."""
    monkeypatch.setattr(replacement, "limit_of", lambda _: 0.0)
    fleet.on_replace = lambda id: fleet.members_.pop(0) and None
    fleet.problems_ = [
        GroupProblem(group="asg-1", cause=CapacityCause.STOCK_OUT, message="InsufficientInstanceCapacity: none left")
    ]
    done = run("gpu-1", "--yes")
    assert f"gpu-1 ({instance(1)}) has no replacement yet: gpu-reserved-0: InsufficientInstanceCapacity" in str(done.exception)  # fmt: skip


def test_moved_node_is_judged_after_its_new_boot(fleet: Fleet) -> None:
    """On Azure, the instance keeps its ID. The evidence of the old boot does not end the wait."""

    def act(instance_id: str) -> None:
        polls = iter(
            (
                lambda: None,
                lambda: fleet.report(
                    1,
                    boot="boot-0002",
                    modified=LAUNCHED + timedelta(hours=1),
                    document={"gpus": [{"index": 0, "uuid": gpu_uuid(9, 0)}]},
                ),
            )
        )
        members = fleet.members

        def later(groups: Any) -> Any:
            next(polls, lambda: None)()
            return members(groups)

        fleet.members = later  # type: ignore[method-assign]

    fleet.on_replace = act
    done = run("gpu-1", "--yes", "--json")
    assert done.exception is None, done.exception
    new = json.loads(done.stdout)["nodes"][0]["replacement"]
    assert (new["instance_id"], new["outcome"], new["same_host"]) == (instance(1), "verified", False)
    assert "--refresh" not in done.output


def test_two_nodes_get_two_replacements(fleet: Fleet) -> None:
    """Each replaced node of a group is matched with a different new instance."""
    numbers = iter((3, 4))
    fleet.on_replace = lambda id: replaced_by(fleet, next(numbers))(id)
    done = run("gpu-1", instance(2), "--yes", "--json")
    assert done.exception is None, done.exception
    assert [one["replacement"]["label"] for one in json.loads(done.stdout)["nodes"]] == ["gpu-3", "gpu-4"]


def test_failed_poll_is_repeated(fleet: Fleet) -> None:
    """An outage of the cloud during the wait does not end the command."""

    def act(instance_id: str) -> None:
        replaced_by(fleet, 3)(instance_id)
        fleet.unavailable = 1

    fleet.on_replace = act
    done = run("gpu-1", "--yes")
    assert done.exception is None, done.exception
    assert "Throttling" in done.output


def test_unreachable_node_is_replaced_with_a_note(fleet: Fleet) -> None:
    """A node whose jobs cannot be stopped is replaced, because the replacement ends them; the output has the reason."""
    fleet.on_replace = replaced_by(fleet, 3)
    done = run("gpu-1", "--yes")
    assert "jobs not stopped: the node is not in the state of the stack" in done.output


def test_jobs_are_stopped_before_the_request(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script that stops jobs runs on the node before its group gets the request."""
    host = SimpleNamespace(name=instance(1), sudo=True)

    def ran(command: str, script: bytes, limit_s: float) -> Any:
        assert fleet.replaced == []
        assert command == "sudo -n -- sh -s"
        return SimpleNamespace(exit=0, output=b"stopped=2 left=0\n")

    @contextmanager
    def connector(*_: object) -> Any:
        yield SimpleNamespace(connect=lambda host: nullcontext(SimpleNamespace(run=ran)))

    monkeypatch.setattr(stack_context.ActiveStack, "hosts", lambda *_: SimpleNamespace(hosts=(host,)))
    monkeypatch.setattr(stack_context, "connector_to", connector)
    fleet.on_replace = replaced_by(fleet, 3)
    done = run("gpu-1", "--yes")
    assert done.exception is None, done.exception
    assert "2 processes stopped" in done.output


def test_refused_request_names_the_nodes_that_were_requested(fleet: Fleet) -> None:
    """If the cloud refuses the second request, the error has its reason and the first node."""

    def act(instance_id: str) -> None:
        if instance_id == instance(2):
            raise PortUnavailable("AccessDenied: not authorized")

    fleet.on_replace = act
    done = run("gpu-1", "gpu-2", "--yes")
    assert isinstance(done.exception, DeploymentError)
    assert f"gpu-2 ({instance(2)}) cannot be replaced: AccessDenied" in str(done.exception)
    assert f"already requested: gpu-1 ({instance(1)})" in str(done.exception)


def test_dry_run_changes_and_writes_nothing(fleet: Fleet, tmp_path: Path) -> None:
    """The steps are printed. Neither the group nor the folder changes."""
    done = run("gpu-1", "--dry-run")
    assert "terminate the instance" in done.output
    assert "4. wait until" in done.output
    assert "4. wait until" not in run("gpu-1", "--dry-run", "--no-wait").output
    assert (fleet.replaced, list(tmp_path.iterdir())) == ([], [])


def test_report_only_replaces_nothing(fleet: Fleet, tmp_path: Path) -> None:
    """Only the files are written, in a new folder with the name of the stack."""
    done = run("gpu-2", "--report-only", "--json")
    assert done.exception is None
    document = json.loads(done.stdout)
    assert (document["status"], document["schema"], fleet.replaced) == ("reported", "gpuinfra.replace/1", [])
    (folder,) = tmp_path.iterdir()
    assert folder.name == document["folder"]
    assert folder.name.startswith("replace-aws-p4d-")


def test_no_wait_ends_after_the_request(fleet: Fleet) -> None:
    """The command does not poll after the request."""
    done = run("gpu-1", "--yes", "--no-wait", "--json")
    assert json.loads(done.stdout)["status"] == "requested"
    assert fleet.replaced == [("asg-1", instance(1))]


def test_replacement_requires_confirmation(fleet: Fleet) -> None:
    """Without a terminal, `--yes` is required; the evidence is then already written."""
    done = run("gpu-1", "--save", "out")
    assert isinstance(done.exception, UsageError)
    assert "add --yes" in str(done.exception)
    assert fleet.replaced == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gpu-9",), "NODE is gpu-9; allowed: a label or an instance ID of a node in the groups (gpu-1, gpu-2)"),
        (("gpu-1", "--report-only", "--no-wait"), "--no-wait has no effect with --report-only"),
        (("gpu-1", "--report-only", "--dry-run"), "--dry-run has no effect with --report-only"),
        (("gpu-1", "--dry-run", "--yes"), "--yes has no effect with --dry-run"),
        (("gpu-1", "--dry-run", "--direct"), "--direct has no effect with --dry-run"),
        (("gpu-1", "--dry-run", "--save", "out"), "--save has no effect with --dry-run"),
    ],
)
def test_wrong_arguments_are_refused(fleet: Fleet, words: tuple[str, ...], message: str) -> None:
    """An unknown node and an option without effect are usage errors."""
    done = run(*words)
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)


def test_label_of_several_nodes_needs_an_id(fleet: Fleet) -> None:
    """Two clusters of a stack can have nodes with the same label."""
    polls = (polled(fleet, 2), polled(fleet, 2))
    with pytest.raises(UsageError, match="matches several nodes; specify an instance ID"):
        targets(polls, ["gpu-1"])
