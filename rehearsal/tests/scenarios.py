"""Scenarios of `gpuinfra up` for each cloud, and the table in `docs/reference/scenarios.md`.

`test_scenarios.py` runs the scenarios with the real engine, and compares the results with `scenarios.json`. With the variable
`RECORD_SCENARIOS`, it writes them. The table is written with `python -m rehearsal.tests.scenarios`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("scenarios.json")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "scenarios.md"
BEGIN, END = "<!-- scenarios -->", "<!-- /scenarios -->"
TITLES = {"aws": "AWS", "azure": "Azure", "gcp": "Google Cloud"}

READY, FAILED, NOT_DEPLOYED = "ready", "failed", "not deployed"


@dataclass(frozen=True, kw_only=True)
class Place:
    """What differs between the clouds."""

    setting: str
    region: str
    zones: tuple[str, str]
    machine: str
    reservation: str
    quota: str
    """Quota of spot nodes in the stand-in cloud."""
    permission: str
    """Kind or code of a recorded message about a missing permission."""
    image: str
    """Kind or code of a recorded message about a missing image."""
    refuses_groups: bool = False
    """Whether the cloud refuses to create a group without capacity. Otherwise, the group exists and reports the error."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the declaration. The stacks have no audit trail, so that they are small."""


PLACES = {
    "aws": Place(
        setting="aws:region", region="us-east-1", zones=("use1-az4", "use1-az6"), machine="m7i.xlarge", reservation="cr-0123456789abcdef0",
        quota="L-34B43A08", permission="UnauthorizedOperation", image="image",
    ),
    "azure": Place(
        setting="azure-native:location", region="southcentralus", zones=("1", "2"), machine="Standard_D4s_v5",
        reservation="/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/capacity/providers/Microsoft.Compute/capacityReservationGroups/gpus",
        quota="lowPriorityCores", permission="LinkedAuthorizationFailed", image="PlatformImageNotFound", refuses_groups=True,
        more={"access": {"evidence_from": ["203.0.113.0/24"]}},
    ),
    "gcp": Place(
        setting="gcp:region", region="us-central1", zones=("us-central1-a", "us-central1-b"), machine="n2-standard-4", reservation="train",
        quota="PREEMPTIBLE_CPUS", permission="permission", image="image",
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One run of `gpuinfra up`, and what it must show."""

    cloud: str
    title: str
    case: str
    """What happens in this cloud."""
    message: str
    """Words of the output: the reason and the fix."""
    outcome: str
    """`ready`, `failed` or `not deployed`."""
    attempts: tuple[str, ...]
    """Results of the attempts, in order."""
    capacity: Mapping[str, Any]
    machine: str = ""
    fallback: tuple[Mapping[str, Any], ...] = ()
    handover: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    external: Mapping[str, Any] = field(default_factory=dict)
    """A description of an existing resource for the stand-in cloud."""
    deadline: str = "20s"
    """Deadline of the handover in the test. The declared one counts in the simulated time."""
    incident: str = ""
    """`kill`: the command is killed in its second attempt. `evict`: the first node is evicted before it reports.
    `lose`: a node is terminated after a first `up`, and the faults begin. `more`: the pool gets a second node after a first `up`
    whose node was replaced, and the faults begin."""
    other: Mapping[str, Any] = field(default_factory=dict)
    """Capacity of a second pool `cpu`."""
    nodes: int = 0
    """Nodes at the end."""

    @property
    def name(self) -> str:
        """Cloud and title."""
        return f"{self.cloud}: {self.title}"

    @property
    def place(self) -> Place:
        """The facts of the cloud."""
        return PLACES[self.cloud]

    def declaration(self) -> dict[str, Any]:
        """The declaration of the stack."""
        place = self.place
        pool = {"name": "gpu", "machine": self.machine or place.machine, "capacity": dict(self.capacity)}
        if self.fallback:
            pool["fallback"] = [dict(one) for one in self.fallback]
        others = [{"name": "cpu", "machine": place.machine, "capacity": dict(self.other)}] if self.other else []
        where = {"cloud": self.cloud, "region": place.region, "zone": place.zones[0]}
        more = {
            "audit": {"trail": "none"},
            **place.more,
            **({"handover": dict(self.handover)} if self.handover else {}),
        }
        return {"name": "find", "where": where, "pools": [pool, *others], **more}


LONG = "240s"
"""Deadline for nodes that start. It is long enough for a busy machine."""
AFTER_WAIT = "150s"
"""Deadline for a search that must wait half of it before the placement with capacity."""


def scenarios_of(cloud: str) -> Iterator[Scenario]:
    """The scenarios of a cloud."""
    place = PLACES[cloud]
    first, second = place.zones
    spot = {"kind": "spot", "count": 1}
    moves = ({"zone": second},)
    on_demand = ({"capacity": {"kind": "on_demand", "count": 1}},)
    reserved = {"kind": "reserved", "id": place.reservation, "count": 1}
    no_capacity = "the cloud has no capacity for this machine type in the group's zone"
    patient = LONG if place.refuses_groups else AFTER_WAIT

    def one(title: str, case: str, message: str, outcome: str, attempts: Sequence[str], **more: Any) -> Scenario:
        given: dict[str, Any] = {"capacity": spot, **more}
        return Scenario(cloud=cloud, title=title, case=case, message=message, outcome=outcome, attempts=tuple(attempts), **given)  # fmt: skip

    yield one(
        "no capacity anywhere", "the zone has neither spot nor on-demand capacity", "no placement of gpu has capacity", FAILED,
        ["no capacity", "no capacity"], fallback=on_demand, faults=("cloud:no-capacity:gpu",),
    )  # fmt: skip
    yield one(
        "quota of 0", "the quota of spot nodes is 0, and its API returns the limit", RAISE[cloud], NOT_DEPLOYED, [], fallback=moves,
        external={"id": f"quota:{place.quota}:{place.region}", "count": 0},
    )  # fmt: skip
    yield one(
        "quota in use", "other nodes use the quota, and the launch is refused", "request a higher quota", FAILED, ["failed"],
        fallback=moves, faults=("cloud:no-quota:gpu",),
    )  # fmt: skip
    yield one(
        "missing permission", "a permission to launch nodes is missing", PERMISSION[cloud], FAILED, ["failed"],
        fallback=moves, faults=(f"cloud:refused:{place.permission}:gpu",),
    )  # fmt: skip
    yield one(
        "image is gone", "the image is deleted after the checks", "`gpuinfra images STACK` lists releases", FAILED, ["failed"],
        fallback=moves, faults=(f"cloud:refused:{place.image}:gpu",),
    )  # fmt: skip
    yield one(
        "reservation is full", "other nodes use the reservation", "1 of 1 nodes", READY, ["no capacity", "ready"],
        capacity=reserved, fallback=on_demand, external={"id": place.reservation, "count": 0}, deadline=patient, nodes=1,
    )  # fmt: skip
    yield _ended(cloud, one)
    yield one(
        "no capacity in the first zone", f"only zone {second} has spot capacity", "1 of 1 nodes", READY, ["no capacity", "ready"],
        fallback=moves, faults=(f"cloud:no-capacity:{first}",), deadline=patient, nodes=1,
    )  # fmt: skip
    yield one(
        "killed during the search", "the command is killed in its second attempt, and `--resume` continues it", "1 of 1 nodes", READY,
        ["no capacity", "ready"], fallback=moves, faults=(f"cloud:no-capacity:{first}",), incident="kill", nodes=1,
    )  # fmt: skip
    yield one(
        "evicted during bootstrap", "the cloud evicts the spot node before it reports, and the group launches another one",
        "1 of 1 nodes", READY, ["ready"], fallback=moves, deadline=LONG, incident="evict", nodes=1,
    )  # fmt: skip
    yield one(
        "throttled API", "the cloud throttles the requests about groups and nodes", "1 of 1 nodes", READY, ["ready"],
        fallback=moves, faults=("cloud:throttled:4",), deadline=LONG, nodes=1,
    )  # fmt: skip
    yield one(
        "slow region", "the group reports no error, and launches its node late", "1 of 1 nodes", READY, ["ready"],
        fallback=moves, faults=("cloud:slow:gpu:15",), deadline=LONG, nodes=1,
    )  # fmt: skip
    yield one(
        "no nodes and no message", f"zone {first} launches no node, and the group reports no error until the deadline", "1 of 1 nodes", READY,
        ["no capacity", "ready"], fallback=moves, faults=(f"cloud:slow:{first}:86400",), deadline="100s", nodes=1,
    )  # fmt: skip
    two = {"kind": "spot", "count": 2}
    yield one(
        "lost node of a running cluster", f"one of two nodes is terminated, and zone {first} has no capacity for it; jobs can run on the other node",
        "nodes of gpu ran before this command", FAILED, ["failed"], capacity=two, fallback=moves, faults=(f"cloud:limited:{first}:1",),
        incident="lose", nodes=1,
    )  # fmt: skip
    yield one(
        "partial capacity", f"zone {first} has capacity for one of two nodes", "2 of 2 nodes", READY, ["no capacity", "ready"],
        capacity=two, fallback=moves, faults=(f"cloud:limited:{first}:1",), deadline=LONG, nodes=2,
    )  # fmt: skip
    yield one(
        "grown cluster with a replaced node", f"the only node was replaced after the first deployment, the pool grows to two nodes, and zone {first} has no capacity; `on_failure` is `destroy`",
        "nodes of gpu ran before this command", FAILED, ["failed"], capacity=two, fallback=moves, faults=(f"cloud:limited:{first}:1",),
        handover={"on_failure": "destroy"}, incident="more", nodes=1,
    )  # fmt: skip
    if place.refuses_groups:
        yield one(
            "partial capacity without an alternative", f"zone {first} has capacity for one of two nodes, and the pool has no `fallback`",
            no_capacity, FAILED, ["failed"], capacity=two, faults=(f"cloud:limited:{first}:1",),
        )  # fmt: skip
    else:
        yield one(
            "partial capacity with a floor", f"zone {first} has capacity for one of two nodes, and the handover waits for one",
            "1 of 2 nodes", READY, ["ready"], capacity=two, fallback=moves, handover={"wait": "floor", "floor": 1},
            faults=(f"cloud:limited:{first}:1",), deadline=LONG, nodes=1,
        )  # fmt: skip
    # The last scenario, because its second pool would be deleted by the next one.
    yield one(
        "no capacity for one of two pools", "pool gpu has no placement with capacity, and pool cpu has a node", "no placement of gpu has capacity", FAILED,
        ["no capacity", "no capacity"], fallback=moves, faults=("cloud:no-capacity:gpu",), other={"kind": "on_demand", "count": 1},
        deadline=AFTER_WAIT, nodes=1,
    )  # fmt: skip


RAISE = {
    "aws": "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-34B43A08",
    "azure": "az quota update --resource-name 'lowPriorityCores'",
    "gcp": "gcloud quotas preferences create --service=compute.googleapis.com",
}
"""Start of the command that requests a higher quota."""
PERMISSION = {
    "aws": "`gpuinfra plan STACK --live` lists missing permissions",
    "azure": "`gpuinfra plan STACK --live` lists missing permissions",
    "gcp": "grant roles/cloudkms.cryptoKeyEncrypterDecrypter on the key to the Compute Engine service agent",
}


def _ended(cloud: str, one: Any) -> Scenario:
    """Capacity that was bought for a time and has ended."""
    place = PLACES[cloud]
    reserved = {"kind": "reserved", "id": place.reservation, "count": 1}
    if cloud == "aws":
        block = {"kind": "block", "id": place.reservation, "count": 1, "starts_at": "2026-11-16T11:30:00Z", "ends_at": "2027-05-17T11:30:00Z"}  # fmt: skip
        described = {"id": place.reservation, "machine": "p5.48xlarge", "count": 1, "zone_id": place.zones[0], "state": "expired", "type": "capacity-block"}  # fmt: skip
        return one(
            "block has ended", "the Capacity Block has expired", "buy or create another reservation, and set `id` in the stack file",
            NOT_DEPLOYED, [], capacity=block, machine="p5.48xlarge", external=described,
        )  # fmt: skip
    if cloud == "gcp":
        return one(
            "future reservation has ended", "Compute Engine deletes the reservation of a future reservation at its end",
            "create another reservation, and set `id` in the stack file", NOT_DEPLOYED, [], capacity=reserved,
            external={"id": place.reservation, "machine": place.machine, "count": 1, "state": "DELETING"},
        )  # fmt: skip
    return one(
        "reservation was deleted", "the capacity reservation group contains only a reservation of another size",
        "add a reservation of the size to the group, or set `id` to a different group", NOT_DEPLOYED, [], capacity=reserved,
        external={"id": place.reservation, "machine": "Standard_D8s_v5", "count": 1},
    )  # fmt: skip


SCENARIOS = {one.name: one for cloud in PLACES for one in scenarios_of(cloud)}


def recorded() -> dict[str, Any]:
    """The results of the last recorded run, keyed by scenario."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def _attempt(found: Mapping[str, Any]) -> str:
    kinds = f" ({', '.join(found['kinds'])})" if found["kinds"] else ""
    return f"{found['placement']}: {found['result']}{kinds}"


def table() -> str:
    """The tables of the page."""
    results, lines = recorded(), list[str]()
    for cloud, title in TITLES.items():
        lines += [f"## {title}", "", "| scenario | attempts | outcome and message | minutes | left over | preview |", "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
        for one in SCENARIOS.values():
            if one.cloud != cloud or one.name not in results:
                continue
            found = results[one.name]
            tried = "<br>".join(map(_attempt, found["attempts"])) or "none"
            minutes = f"{'' if found['minutes_complete'] else 'at least '}{found['minutes']:.1f}"
            preview = "<br>".join(found["preview"]) or ("no changes" if found["attempts"] else "not run")
            lines.append(
                f"| {one.title}: {one.case} | {tried} | {one.outcome}: {one.message.strip(': ')} | {minutes} | {found['left_over']} | {preview} |"
            )
        lines.append("")
    return "\n".join(lines).rstrip()


def page(text: str, tables: str) -> str:
    """A page with the current tables."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{tables}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), table()), encoding="utf-8")
