"""Since when the GPUs of a pool are idle, from the evidence of its nodes, and when a pool is stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.errors import UsageError
from gpuinfra.calendar import Calendar, DateState, needs_attention
from gpuinfra.idle import MAX_AGE, PoolUse, pool_use
from gpuinfra.search.placements import text_without_nodes
from gpuinfra.spec.load import read_stack
from tests.node.test_energy import BUSY_W, IDLE_W, readings
from tests.test_calendar import calendar

NOW = datetime.fromisoformat("2026-12-03T12:00:00Z")
FINISHED = datetime.fromisoformat("2026-12-03T11:00:00Z")


def evidence(*watts: float, gpus: int = 8, finished: str = "2026-12-03T11:00:00Z", **more: Any) -> dict[str, Any]:
    """The evidence of a node whose GPUs had this power in each hour before the newest reading, which is a minute old."""
    text = json.dumps(readings(*((one,) * gpus for one in watts)))
    return {"finished": finished, "probes": {"energy": {"exit": 0, "problem": None, "stdout": text, "stderr": "", **more}}}  # fmt: skip


def use(*documents: Any, gpus: int = 8, now: datetime = NOW) -> PoolUse:
    """The use of a pool with these nodes."""
    return pool_use("gpu", {f"gpu-{number}": one for number, one in enumerate(documents, 1)}, gpus, now)


IDLE_DAY = (BUSY_W, *((IDLE_W,) * 24))


def test_a_pool_is_idle_since_its_last_node_was_used() -> None:
    """The pool is idle since the last use of one of its nodes, up to the oldest of the newest readings of its nodes."""
    found = use(evidence(*IDLE_DAY), evidence(*IDLE_DAY[:-4], finished="2026-12-03T07:00:00Z"), evidence(BUSY_W, *((IDLE_W,) * 20)))  # fmt: skip
    minute = timedelta(minutes=1)
    assert found.since == FINISHED - minute - timedelta(hours=20)
    assert found.until == datetime.fromisoformat("2026-12-03T07:00:00Z") - minute
    assert found.is_idle_for(16)
    assert not found.is_idle_for(17)
    assert found.reason == "gpu-3: GPU-0 used 632 W on average, and at most 140 W is idle"


def test_one_busy_node_keeps_a_pool_in_use() -> None:
    """A pool is in use while one GPU of one node is."""
    busy = evidence(*IDLE_DAY)
    document = json.loads(busy["probes"]["energy"]["stdout"])
    document["readings"][-1]["millijoules"][5] += 3600 * BUSY_W * 1000
    busy["probes"]["energy"]["stdout"] = json.dumps(document)
    found = use(evidence(*IDLE_DAY), busy)
    assert (found.since, found.is_idle_for(12)) == (None, False)
    assert found.reason.startswith("gpu-2: GPU-5 used ")


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("waiting: no evidence yet", "gpu-2: no verified evidence (waiting: no evidence yet)"),
        ({"finished": "2026-12-03T11:00:00Z", "probes": {}}, "its evidence has no energy readings"),
        (evidence(*IDLE_DAY, exit=3, stderr="NVML cannot be loaded"), "were not read: NVML cannot be loaded"),
        (evidence(*IDLE_DAY, problem="timed out after 60 s"), "were not read: timed out after 60 s"),
        (evidence(*IDLE_DAY, stdout="{"), "the energy readings cannot be read"),
        (evidence(*IDLE_DAY, gpus=7), "readings of 7 GPUs, expected 8"),
        (evidence(*IDLE_DAY, finished="2026-12-03T03:59:00Z"), "the newest reading is from 2026-12-03 03:58 UTC"),
        (evidence(*IDLE_DAY, finished="2026-12-03T13:00:00Z"), "the newest reading is from 2026-12-03 12:59 UTC"),
        (evidence(*IDLE_DAY, finished="today"), "the time of its evidence is not valid"),
        (evidence(IDLE_W, BUSY_W), "used 632 W on average"),
    ],
)
def test_missing_or_old_evidence_is_not_idle(document: Any, reason: str) -> None:
    """A node without verified, complete and recent readings keeps its pool in use, and the reason names the node."""
    found = use(evidence(*IDLE_DAY), document)
    assert (found.since, found.until, found.is_idle_for(12)) == (None, None, False)
    assert found.reason.startswith("gpu-2: ")
    assert reason in found.reason


def test_a_restart_starts_the_idle_time_again() -> None:
    """After a reboot, and for a node that was replaced, the pool is idle since the first reading of the new boot."""
    found = use(evidence(*IDLE_DAY), evidence(IDLE_W))
    assert found.since == FINISHED - timedelta(hours=1, minutes=1)
    assert found.reason == "gpu-2: no earlier reading of this boot"


def test_a_pool_without_nodes_is_not_idle() -> None:
    """There is nothing to stop in a pool without nodes."""
    assert (use().since, use().reason) == (None, "the pool has no nodes")


def idle(hours: int, **changes: Any) -> Calendar:
    """The calendar of a pool with `idle_stop: 12h` that was idle for some hours up to an hour ago."""
    found = calendar("2026-12-03T12:00:00Z", {"gpu-on-demand-0": 2}, days=7, pools__0__idle_stop="12h")
    since = None if not hours else FINISHED - timedelta(hours=hours)
    one = PoolUse(pool="gpu", nodes=2, since=since, until=FINISHED if hours else None, reason="")
    return replace(found, use=(replace(one, **changes),))


@pytest.mark.parametrize(
    ("hours", "expected"),
    [(0, []), (1, [(DateState.LATER, "")]), (11, [(DateState.LATER, "")]), (12, [(DateState.DUE, "STOP")])],
)
def test_a_pool_is_due_after_its_idle_time(hours: int, expected: list[tuple[DateState, str]]) -> None:
    """The date follows from the readings. Time that no reading covers does not count, and an idle pool is never `soon`."""
    found = idle(hours)
    events = [one for one in found.events() if one.group == "gpu"]
    assert [(one.state, one.command) for one in events] == expected
    assert needs_attention(events) == (hours >= 12)
    assert found.idle_pools() == ({"gpu"} if hours >= 12 else set())
    for one in events:
        assert one.at == FINISHED - timedelta(hours=hours - 12)
        assert one.what.startswith("2 nodes idle since 2026-12-0")


def test_only_pools_with_the_field_are_stopped() -> None:
    """The use of a pool without `idle_stop` has no date."""
    found = replace(idle(48), spec=calendar("2026-12-03T12:00:00Z", {}, pools__0__tags={}).spec)
    assert (found.events(), found.idle_pools()) == ((), set())


def test_evidence_older_than_two_uploads_is_too_old() -> None:
    """The maximum age covers an upload after six hours by a check that runs every hour, and is shorter than the shortest `idle_stop`."""
    from gpuinfra.node.verify import RENEW_S
    from gpuinfra.rules.capacity import IDLE_HOURS

    assert timedelta(seconds=RENEW_S, hours=1, minutes=35) <= MAX_AGE < timedelta(hours=IDLE_HOURS[0])


STACK = """\
config:
  aws:region: us-east-1
  gpuinfra:cluster:
    name: train
    where: {cloud: aws, region: us-east-1, zone: use1-az4}
    pools:
      - name: gpu  # the large pool
        machine: p4d.24xlarge
        idle_stop: 24h
        capacity:
          - {kind: reserved, id: cr-0123456789abcdef0, count: 2}
          - {kind: spot, count: 2}
      - name: small
        machine: p4d.24xlarge
        capacity: {kind: on_demand, count: 1}
"""


@pytest.mark.parametrize("pools", [{"gpu"}, {"small"}, {"gpu", "small"}])
def test_a_stopped_pool_has_no_nodes_in_the_stack_file(pools: set[str], tmp_path: Path) -> None:
    """Each capacity entry of a stopped pool has the count 0. Other pools, comments and fields stay."""
    path = tmp_path / "Pulumi.train.yaml"
    path.write_text(STACK)
    text = text_without_nodes(read_stack(path), STACK, pools)
    path.write_text(text)
    counts = {pool.name: [one.count for one in pool.capacity] for pool in read_stack(path).spec.pools}
    assert counts == {
        "gpu": [0, 0] if "gpu" in pools else [2, 2],
        "small": [0] if "small" in pools else [1],
    }
    assert "# the large pool" in text
    assert len(text.splitlines()) == len(STACK.splitlines())


def test_a_stopped_pool_does_not_change_a_pool_that_shares_its_capacity(tmp_path: Path) -> None:
    """If two pools share one capacity entry through an alias, one of them cannot be stopped in the file, and the message says what to edit."""
    path = tmp_path / "Pulumi.train.yaml"
    text = STACK.replace("capacity: {kind", "capacity: &one {kind") + "      - {name: third, machine: p4d.24xlarge, capacity: *one}\n"  # fmt: skip
    path.write_text(text)
    with pytest.raises(
        UsageError, match=r"cannot be edited in place.*set the count of each capacity entry of the idle"
    ):
        text_without_nodes(read_stack(path), text, {"third"})
