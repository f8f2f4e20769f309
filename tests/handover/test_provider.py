"""The plugin as the engine sees it: over gRPC, with an in-memory fleet behind the four ports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2_grpc, provider_pb2, provider_pb2_grpc, status_pb2

from gpuinfra.base.shipped import shipped
from gpuinfra.handover import provider as module
from gpuinfra.handover import wire

from .fleet import BUNDLE, LAUNCHED, OWNER, ROLE, Fleet, instance, judge

URN = "urn:pulumi:s::p::gpuinfra:index:NodesReady::train-ready"


def inputs(**more: Any) -> dict[str, Any]:
    """The resource's inputs, as the engine sends them."""
    group = {"name": "gpu-reserved-0", "group": "asg-1", "count": 2, "templateId": "lt-1", "templateVersion": "3"}
    pool = {
        "name": "gpu", "machine": "p4d.24xlarge", "bundleSha256": BUNDLE, "nodeRole": ROLE, "evidenceOwner": OWNER,
        "expectation": {"gpus": 8, "required": ["G1"], "skips": {}}, "groups": [group],
    }  # fmt: skip
    given: dict[str, Any] = {
        "cloud": "aws", "cluster": "train", "region": "us-east-1", "evidenceBucket": "b", "evidencePrefix": "evidence/train",
        "pools": [pool], "wait": "all", "deadlineS": 20,
    }  # fmt: skip
    return {**given, **more}


class EngineLog(engine_pb2_grpc.EngineServicer):
    """The engine's log service."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def Log(self, request: Any, context: Any) -> Any:
        assert request.ephemeral
        self.lines.append(request.message)
        return empty_pb2.Empty()


@pytest.fixture
def fleet() -> Fleet:
    """Two healthy nodes."""
    fleet = Fleet()
    for number in (1, 2):
        fleet.launch(number)
        fleet.report(number)
    return fleet


@pytest.fixture
def log() -> EngineLog:
    """The lines that the engine received."""
    return EngineLog()


@pytest.fixture
def stub(fleet: Fleet, log: EngineLog, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The plugin behind a real gRPC connection."""
    monkeypatch.setattr(module, "connect", lambda _inputs: fleet.ports)
    monkeypatch.setattr(module, "judge_node", judge)
    monkeypatch.delenv(wire.DEADLINE_VARIABLE, raising=False)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(module.NodesReadyProvider("1.2.3"), server)
    engine_pb2_grpc.add_EngineServicer_to_server(log, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        made = provider_pb2_grpc.ResourceProviderStub(channel)
        made.Handshake(provider_pb2.ProviderHandshakeRequest(engine_address=f"127.0.0.1:{port}"))
        yield made
    server.stop(0).wait()


def create(stub: Any, **more: Any) -> dict[str, Any]:
    """Create, and return the properties for the state."""
    request = provider_pb2.CreateRequest(urn=URN, properties=wire.to_struct(inputs(**more)))
    return wire.from_struct(stub.Create(request).properties)


def failure(error: grpc.RpcError) -> provider_pb2.ErrorResourceInitFailed:
    """The details that the engine reads from a failed call to keep the state."""
    trailing = {key: value for key, value in error.trailing_metadata()}  # type: ignore[attr-defined]
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    detail = provider_pb2.ErrorResourceInitFailed()
    assert status.details[0].Unpack(detail)
    return detail


def test_create_waits_and_reports_progress(stub: Any, log: EngineLog) -> None:
    """A healthy fleet is ready, its nodes are in the state beside the inputs, and the engine received progress."""
    state = create(stub)
    assert state["ready"] is True
    assert (state["nodesVerified"], state["gpusVerified"]) == (2, 16)
    assert [n["label"] for n in state["nodes"]] == ["gpu-1", "gpu-2"]
    assert state["nodes"][0]["evidenceSha256"]
    assert wire.inputs_of(state) == inputs()
    assert log.lines == ["2 of 2 nodes verified"]


def test_a_failed_fleet_keeps_its_state(stub: Any, fleet: Fleet) -> None:
    """The error carries id, properties and all reasons, so that the engine keeps the resource and judges again."""
    fleet.report(2, seq=2, gpus=7)
    with pytest.raises(grpc.RpcError) as caught:
        create(stub)
    detail = failure(caught.value)
    assert detail.id == "train@us-east-1"
    state = wire.from_struct(detail.properties)
    assert (state["ready"], state["nodesVerified"]) == (False, 1)
    text = "\n".join(detail.reasons)
    assert f"gpu-2 ({instance(2)}): failed 1 check" in text
    assert "what to do: replace the node" in text


def test_diff_of_a_ready_fleet(stub: Any) -> None:
    """Unchanged inputs and changed wait options give no difference; changed expected nodes do."""
    state = create(stub)
    kinds = provider_pb2.DiffResponse

    def diff(**news: Any) -> Any:
        request = provider_pb2.DiffRequest(
            olds=wire.to_struct(state), news=wire.to_struct(inputs(**news)), old_inputs=wire.to_struct(inputs())
        )
        return stub.Diff(request)

    assert diff().changes == kinds.DIFF_NONE
    assert diff(deadlineS=99, profile="other").changes == kinds.DIFF_NONE
    changed = diff(pools=[{**inputs()["pools"][0], "bundleSha256": "c" * 64}])
    assert (changed.changes, list(changed.diffs), list(changed.replaces)) == (kinds.DIFF_SOME, ["pools"], [])


def test_refresh_shows_a_replaced_node_as_drift(stub: Any, fleet: Fleet) -> None:
    """Read polls again: a replacement without evidence makes the state not ready, so `up` judges again."""
    state = create(stub)
    fleet.members_.pop(0)
    fleet.launch(3)
    request = provider_pb2.ReadRequest(
        id="train@us-east-1", urn=URN, properties=wire.to_struct(state), inputs=wire.to_struct(inputs())
    )
    seen: Any = wire.from_struct(stub.Read(request).properties)
    assert seen["ready"] is False
    assert [n["label"] for n in seen["nodes"]] == ["gpu-2", "gpu-3"]
    assert module.changes(seen, inputs(), inputs()) == ["ready"]
    fleet.report(3)
    update = provider_pb2.UpdateRequest(
        id="train@us-east-1", urn=URN, olds=wire.to_struct(seen), news=wire.to_struct(inputs())
    )
    after: Any = wire.from_struct(stub.Update(update).properties)
    assert after["ready"] is True
    assert [n["label"] for n in after["nodes"]] == ["gpu-2", "gpu-3"]


def read(stub: Any, state: dict[str, Any]) -> dict[str, Any]:
    """The state after a refresh."""
    request = provider_pb2.ReadRequest(
        id="train@us-east-1", urn=URN, properties=wire.to_struct(state), inputs=wire.to_struct(inputs())
    )
    return wire.from_struct(stub.Read(request).properties)


def test_refresh_finds_a_gpu_that_disappeared_after_the_handover(stub: Any, fleet: Fleet) -> None:
    """A repeated check that finds seven GPUs makes a verified node failed, and its GPUs no longer count."""
    state = create(stub)
    fleet.report(1, seq=2, gpus=7)
    seen = read(stub, state)
    assert (seen["ready"], seen["nodesVerified"], seen["gpusVerified"]) == (False, 1, 8)
    assert seen["nodes"][0]["outcome"] == "failed"
    assert "found 7, expected 8 GPUs" in seen["nodes"][0]["reason"]


def test_refresh_finds_a_node_that_stopped_checking(stub: Any, fleet: Fleet) -> None:
    """Evidence of more than a day no longer verifies a node, also when the state names its hash; newer evidence does."""
    state = create(stub)
    fleet.refs[0] = replace(fleet.refs[0], modified=fleet.refs[0].modified - timedelta(days=20))
    fleet.members_[0] = replace(fleet.members_[0], launched=LAUNCHED - timedelta(days=21))
    seen = read(stub, state)
    assert (seen["ready"], seen["nodesVerified"], seen["gpusVerified"]) == (False, 1, 8)
    assert seen["nodes"][0]["outcome"] == "waiting"
    assert "the node's newest evidence was uploaded 48" in seen["nodes"][0]["reason"]
    fleet.report(1, seq=2)
    assert read(stub, seen)["ready"] is True


def test_refresh_of_an_untouched_fleet_changes_nothing(stub: Any, fleet: Fleet) -> None:
    """Read of an unchanged fleet gives the same properties and verifies no identity again."""
    state = create(stub)
    asked = len(fleet.verified)
    request = provider_pb2.ReadRequest(
        id="train@us-east-1", urn=URN, properties=wire.to_struct(state), inputs=wire.to_struct(inputs())
    )
    assert wire.from_struct(stub.Read(request).properties) == state
    assert len(fleet.verified) == asked


def test_preview_returns_unknown_outputs_without_waiting(stub: Any, fleet: Fleet) -> None:
    """A preview returns unknown outputs at once, even with unknown inputs."""
    fleet.unavailable = 99
    request = provider_pb2.CreateRequest(
        urn=URN, properties=wire.to_struct(inputs(evidenceBucket=wire.UNKNOWN)), preview=True
    )
    state = wire.from_struct(stub.Create(request).properties)
    assert state["ready"] == wire.UNKNOWN
    assert state["cluster"] == "train"


def test_check_reports_invalid_inputs(stub: Any) -> None:
    """Missing inputs, an unknown `wait` and a missing floor are refused with the property's name."""
    bad = inputs(wait="floor", region="")
    answer = stub.Check(provider_pb2.CheckRequest(urn=URN, type=wire.TYPE, news=wire.to_struct(bad)))
    assert {f.property for f in answer.failures} == {"region", "floor"}
    answer = stub.Check(provider_pb2.CheckRequest(type=wire.TYPE, news=wire.to_struct(inputs(wait="some"))))
    assert "allowed: all, floor, none" in answer.failures[0].reason
    answer = stub.Check(provider_pb2.CheckRequest(type="gpuinfra:index:Other", news=wire.to_struct(inputs())))
    assert "expected gpuinfra:index:NodesReady or gpuinfra:index:Upload" in answer.failures[0].reason


def test_cancel_ends_a_wait(stub: Any, fleet: Fleet) -> None:
    """The engine's cancel ends a long wait before its deadline, and the state is kept."""
    fleet.launch(3)
    timer = threading.Timer(0.5, lambda: stub.Cancel(empty_pb2.Empty()))
    timer.start()
    begun = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        create(stub, deadlineS=600)
    assert time.monotonic() - begun < 300
    timer.join()
    assert "cancelled" in failure(caught.value).reasons[0]


def test_create_runs_the_fabric_test_of_the_pools(stub: Any, fleet: Fleet) -> None:
    """While the nodes are awaited, the sheet of the pool is next to its bundle."""
    fleet.launch(3)
    pool = inputs()["pools"][0]
    required = {"gpus": 8, "required": ["G1", "B8"], "skips": {}}
    with pytest.raises(grpc.RpcError):
        create(stub, deadlineS=0.3, pools=[{**pool, "expectation": required}])
    assert {key for key, _ in fleet.sheets} == {f"bootstrap/train/gpu/{BUNDLE}.fabric.json"}


def test_deadline_is_shortened_by_the_environment(stub: Any, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable shortens the wait of one run; an invalid duration is refused."""
    fleet.launch(3)
    monkeypatch.setenv(wire.DEADLINE_VARIABLE, "0.2s")
    with pytest.raises(grpc.RpcError) as caught:
        create(stub, deadlineS=600)
    assert "the deadline passed" in failure(caught.value).reasons[0]
    monkeypatch.setenv(wire.DEADLINE_VARIABLE, "soon")
    with pytest.raises(grpc.RpcError, match="specify seconds, minutes or hours"):
        create(stub)


def test_an_unjudged_fleet_is_never_ready_in_the_state(
    stub: Any, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a wait, `up` passes and the state is not ready. The next `up` judges unless the declaration waits for none."""
    fleet.refs.clear()
    declared = create(stub, wait="none")
    assert declared["ready"] is False
    assert module.changes(declared, inputs(wait="none"), inputs(wait="none")) == []
    monkeypatch.setenv(wire.WAIT_VARIABLE, "none")
    passed = create(stub)
    assert (passed["ready"], passed["nodesVerified"]) == (False, 0)
    assert module.changes(passed, inputs(), inputs()) == ["ready"]


def test_a_verified_fleet_is_checked_again_on_request(stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the variable, an update checks verified nodes again, unless the declaration waits for none."""
    state = create(stub)
    assert module.changes(state, inputs(), inputs()) == []
    monkeypatch.setenv(wire.CHECK_VARIABLE, "true")
    assert module.changes(state, inputs(), inputs()) == ["ready"]
    assert module.changes(state, inputs(wait="none"), inputs(wait="none")) == []


def test_a_verified_fleet_is_ready_without_a_wait(stub: Any, fleet: Fleet) -> None:
    """With `wait: none`, a fleet whose nodes are all verified at the time of the judgement is ready."""
    assert create(stub, wait="none")["ready"] is True


def test_fleet_that_is_not_due_passes_and_is_polled_again(stub: Any, fleet: Fleet) -> None:
    """Before a capacity block starts or while a request is queued, `up` passes without `ready`, and the next `up` polls again."""
    fleet.members_.clear()
    given = inputs()
    for group in given["pools"][0]["groups"]:
        group["count"] = 0
    state = create(stub, pools=given["pools"])
    assert (state["ready"], state["nodesVerified"], state["nodes"]) == (False, 0, [])
    assert state["summary"].startswith("no nodes are expected now")
    assert module.changes(state, given, given) == ["ready"]
    fleet.launch(1)
    fleet.report(1)
    assert create(stub, pools=given["pools"])["ready"] is True


def test_schema_declares_all_outputs(stub: Any) -> None:
    """The schema names the resource and declares every property of the state, with its type."""
    schema = json.loads(stub.GetSchema(provider_pb2.GetSchemaRequest()).schema)
    declared = schema["resources"][wire.TYPE]["properties"]
    types = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}
    for name, value in create(stub).items():
        assert declared[name].get("type") == types[type(value)], name


@pytest.mark.parametrize(("text", "value"), [("90s", 90), ("15m", 900), ("1h", 3600), ("5", 5)])
def test_durations(text: str, value: float) -> None:
    """Durations accept the documented forms."""
    assert wire.seconds(text) == value


@pytest.mark.parametrize("text", ["", "s", "-1s", "0", "25h", "1d", "nan", "inf", "1e99"])
def test_invalid_durations_are_refused(text: str) -> None:
    """Other forms are refused with the allowed ones."""
    with pytest.raises(ValueError, match="specify seconds, minutes or hours"):
        wire.seconds(text)


def test_plugin_exits_with_its_engine(tmp_path: Path) -> None:
    """The real plugin process prints its port, answers, and exits soon after the process that started it was killed."""
    script = tmp_path / "engine.py"
    script.write_text(
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, {str(shipped('plugin'))!r}, '127.0.0.1:1'], stdout=subprocess.PIPE, text=True)\n"
        "print(p.pid, p.stdout.readline().strip(), flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid, port = map(int, parent.stdout.readline().split())
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        info = provider_pb2_grpc.ResourceProviderStub(channel).GetPluginInfo(empty_pb2.Empty(), timeout=300)
        assert info.version
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    limit = time.monotonic() + 300
    while time.monotonic() < limit and Path(f"/proc/{pid}").exists():
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists(), os.kill(pid, signal.SIGKILL)
