"""Cluster definitions of public projects as declarations, each with the features that its plan must have.

`specs/NN-name.yaml` is the declaration, the function `row_NN` its oracle. What waits for a part that gpuinfra does not
have yet is named in `WAITING` and listed in `docs/internals/peers.md`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan, PoolPlan
from gpuinfra.rules import check
from gpuinfra.spec import ClusterSpec, parse_spec, read_stack
from tests.peers.waiting import WAITING

TODAY = date(2026, 11, 21)
SPECS = {int(path.name[:2]): path for path in sorted(Path(__file__).with_name("specs").glob("*.yaml"))}
ROWS = {
    1,
    2,
    4,
    6,
    7,
    9,
    10,
    11,
    13,
    14,
    16,
    17,
    19,
    20,
    22,
    23,
    26,
    27,
    28,
    29,
    30,
    32,
    33,
    36,
    37,
    38,
    40,
    42,
    43,
    46,
    47,
}
ROWS |= {48, 49, 51, 52, 53, 54, 56, 57, 59, 61}

Oracle = Callable[[ClusterSpec, Plan, Path], None]
ORACLES: dict[int, Oracle] = {}


def row(number: int) -> Callable[[Oracle], Oracle]:
    """Register a function as the oracle of a row."""

    def keep(oracle: Oracle) -> Oracle:
        ORACLES[number] = oracle
        return oracle

    return keep


def _pool(plan: Plan, name: str | None = None) -> PoolPlan:
    return next(pool for pool in plan.pools if name in (None, pool.name))


def _kinds(pool: PoolPlan) -> dict[str, int]:
    kinds: dict[str, int] = {}
    for nic in pool.nics:
        kinds[nic.kind] = kinds.get(nic.kind, 0) + 1
    return kinds


def _networks(plan: Plan) -> list[str]:
    assert plan.network is not None
    return [network.name for network in plan.network.extra]


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


@pytest.mark.parametrize("number", sorted(ROWS))
def test_public_definition_is_planned(number: int) -> None:
    """The declaration has no errors, and its plan has the main features of the original."""
    path = SPECS[number]
    spec = read_stack(path).spec
    errors = [finding for finding in check(spec, TODAY) if finding.level == "error"]
    assert errors == [], [str(finding) for finding in errors]
    ORACLES[number](spec, build_plan(spec, TODAY), path)


def test_every_row_has_a_declaration_and_an_oracle() -> None:
    """All 41 rows have a declaration and an oracle, and the page lists the features that they wait for."""
    assert len(ROWS) == 41
    assert set(SPECS) == ROWS == set(ORACLES)
    assert set(WAITING) <= ROWS
    page = (Path(__file__).parents[2] / "docs/internals/peers.md").read_text()
    for number, part in WAITING.items():
        assert f"| {number} |" in page
        assert part in page


@row(1)
def row_1(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Four EFA devices, no public address, the reservation group by ARN, no placement group."""
    pool = _pool(plan)
    assert _kinds(pool) == {"interface": 1, "efa-only": 4}
    group = pool.groups[0]
    assert group.reservation_group_arn == "arn:aws:resource-groups:us-east-1:123456789012:group/efa"
    assert group.placement_group is None
    assert plan.network is not None
    assert {s.role for s in plan.network.subnets if s.name == pool.subnet} == {"nodes"}
    on_p5 = spec.model_copy(update={"pools": (spec.pools[0].model_copy(update={"machine": "p5.48xlarge"}),)})
    assert _kinds(_pool(build_plan(on_p5, TODAY)))["efa-only"] == 32


@row(2)
def row_2(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """A block by its id, no placement group, empty until its window opens."""
    group = _pool(plan).groups[0]
    assert (group.kind, group.reservation_id, group.placement_group) == ("block", "cr-0123456789abcdef0", None)
    assert (group.count, group.max_count) == (0, 2)
    assert build_plan(spec, date(2026, 12, 2)).pools[0].groups[0].count == 2


@row(4)
def row_4(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """GPU nodes need GPU checks, CPU nodes in the same cluster do not."""
    assert "G1" in _pool(plan, "gpu").expectation["required"]  # type: ignore[operator]
    assert "G1" not in _pool(plan, "cpu").expectation["required"]  # type: ignore[operator]
    assert "S2" in _pool(plan, "cpu").expectation["required"]  # type: ignore[operator]
    assert (plan.handover.wait, plan.handover.floor) == ("floor", 3)


@row(6)
def row_6(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """The allocation strategy is kept, and no price limit is set."""
    group = _pool(plan).groups[0]
    assert (group.spot_strategy, group.max_price_usd) == ("price-capacity-optimized", None)


@row(7)
def row_7(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """The link imports and exports automatically, to an existing bucket, without backups."""
    entry = plan.file_systems[0]
    assert (entry.deployment, entry.throughput_mb_s_per_tib, entry.bucket) == ("PERSISTENT_1", 200, "my-training-data")
    assert entry.import_events == entry.export_events == ("NEW", "CHANGED", "DELETED")
    assert entry.backup_days == 0


@row(9)
def row_9(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Endpoints only: no subnet for a NAT gateway, and an endpoint for every service that nodes use."""
    assert plan.network is not None
    assert {subnet.role for subnet in plan.network.subnets} == {"nodes"}
    assert plan.network.gateway_endpoints == ("s3",)
    # Mounts of EFS need the mount targets only; the original has an endpoint for its mount helper.
    assert {"ssm", "ssmmessages", "ec2", "sts", "fsx"} <= set(plan.network.interface_endpoints)
    assert "aws:ec2/natGateway:NatGateway" not in plan.resources
    assert _pool(plan).groups[0].placement_group


@row(10)
def row_10(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """An update keeps existing names, subnets and groups."""
    value = spec.model_dump(exclude_none=True)
    more = copy.deepcopy(value)
    more["pools"][0]["capacity"] = [*more["pools"][0]["capacity"], {"kind": "spot", "count": 2}]
    larger = build_plan(parse_spec(more), TODAY)
    assert larger.pools[0].groups[0] == plan.pools[0].groups[0]
    more["pools"] = [
        *more["pools"],
        {"name": "second", "machine": "p4d.24xlarge", "zone": "use1-az6", "capacity": [{"kind": "spot", "count": 1}]},
    ]
    other = build_plan(parse_spec(more), TODAY)
    assert plan.network is not None
    assert other.network is not None
    assert set(plan.network.subnets) <= set(other.network.subnets)
    assert larger.pools[0] == other.pools[0]


@row(11)
def row_11(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Every option survives the round trip through YAML, model and JSON, and every top-level field is used."""
    again = ClusterSpec.model_validate_json(spec.model_dump_json())
    assert again == spec
    assert build_plan(again, TODAY) == plan
    unused = set(ClusterSpec.model_fields) - spec.model_fields_set
    assert unused == {"access", "expires_at", "logs", "monitoring", "repair", "use", "workload"}


@row(13)
def row_13(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Ten p5 in a block, EFA, local disks as one scratch file system."""
    pool = _pool(plan)
    assert pool.groups[0].max_count == 10
    assert _kinds(pool)["efa-only"] == 32
    assert any(step.id == "80-scratch" for step in pool.steps)


@row(14)
def row_14(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """The plan uses the existing network and targets the reservation."""
    assert plan.network is not None
    assert plan.network.existing_id == "vpc-0123456789abcdef0"
    assert [subnet.existing_id for subnet in plan.network.subnets] == ["subnet-0123456789abcdef0"]
    assert "aws:ec2/vpc:Vpc" not in plan.resources
    assert _pool(plan).groups[0].reservation_preference == "capacity-reservations-only"


@row(16)
@row(17)
@row(23)
def row_p5(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """The p5 layout: one interface with an address, EFA at (0,1) and at device 0 of the 31 other cards."""
    places = [(nic.card, nic.device, nic.kind) for nic in _pool(plan).nics]
    assert places == [(0, 0, "interface"), (0, 1, "efa-only"), *((card, 0, "efa-only") for card in range(1, 32))]


@row(19)
def row_19(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """The layout without EFA on card 0."""
    places = [(nic.card, nic.device, nic.kind) for nic in _pool(plan).nics]
    assert places == [(0, 0, "interface"), *((card, 0, "efa-only") for card in range(1, 17))]


@row(20)
def row_20(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Name, region and one pool are enough: network, trail, budget, zone and images have defaults."""
    assert plan.layers == ("foundation", "site", "cluster")
    assert plan.network is not None
    assert plan.audit.trail
    assert plan.budget is not None
    assert plan.zones
    assert {entry.kind for entry in plan.file_systems} == {"lustre", "home"}
    assert _lines(path) <= 6


@row(22)
def row_22(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Nodes only: the stack creates nothing of the layers of other stacks."""
    assert plan.layers == ("cluster",)
    assert plan.network is None
    assert not any(kind.startswith(("aws:fsx", "aws:cloudtrail", "aws:ec2/vpc")) for kind in plan.resources)


@row(26)
def row_26(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """A site without nodes has the file system and the bucket with its data."""
    assert plan.layers == ("site",)
    assert plan.pools == ()
    assert plan.resources["aws:fsx/lustreFileSystem:LustreFileSystem"] == 1
    assert plan.resources["aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"] == 1
    assert any(item.type == "aws:s3/bucket:Bucket" and item.why == "holds data" for item in plan.kept)


@row(27)
def row_27(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Shorter than the 80 lines of the original, with the required fabric."""
    assert _lines(path) < 80
    assert _kinds(_pool(plan)) == {"interface": 1, "efa-only": 1}


@row(28)
def row_28(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Two p4d that are placed close together, and the minimum of their all-reduce."""
    pool = _pool(plan)
    assert pool.groups[0].placement_group
    floors = {entry["check"]: entry["at_least"] for entry in pool.expectation["floors"]}  # type: ignore[attr-defined]
    assert floors["B3"] == 70


@row(29)
def row_29(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Five interfaces, four data networks at MTU 8244, TCPX, and a pinned kernel."""
    pool = _pool(plan)
    assert _kinds(pool) == {"gvnic": 5}
    assert _networks(plan) == [f"data-{n}" for n in range(4)]
    assert plan.network is not None
    assert {network.mtu for network in plan.network.extra} == {8244}
    assert pool.expectation["fabric_provider"] == "tcpx"
    assert pool.versions["KERNEL_RELEASE"] == "5.15.0-1065-gcp-tcpx"
    assert plan.file_systems[0].capacity_gib == 2560


@row(30)
def row_30(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Nine interfaces, eight data networks, 36,000 GiB at 500, and at most 40 lines for any kind of capacity."""
    assert len(_pool(plan).nics) == 9
    assert _networks(plan) == [f"data-{n}" for n in range(8)]
    assert (plan.file_systems[0].capacity_gib, plan.file_systems[0].throughput_mb_s_per_tib) == (36000, 500)
    assert _lines(path) <= 40
    for entry in ({"kind": "flex", "count": 2, "max_run_hours": 24}, {"kind": "spot", "count": 2}):
        value = spec.model_dump(exclude_none=True)
        value["pools"][0]["capacity"] = [entry]
        other = parse_spec(value)
        assert not [finding for finding in check(other, TODAY) if finding.level == "error"]
        assert len(build_plan(other, TODAY).pools[0].groups) == 1


@row(32)
def row_32(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Ten interfaces, a RoCE network of eight subnets in its zone's profile, two host networks, packages held."""
    pool = _pool(plan)
    assert _kinds(pool) == {"gvnic": 2, "mrdma": 8}
    assert plan.network is not None
    assert {network.name: network.profile for network in plan.network.extra} == {"host-1": None}
    (roce,) = plan.own_networks
    assert (roce.name, roce.profile, len(roce.subnets)) == ("roce", "us-central1-a-vpc-roce", 8)
    assert {network.mtu for network in (*plan.network.extra, roce)} == {8896}
    assert "nvidia-*" in pool.versions["HOLD_PATTERNS"]


@row(33)
def row_33(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Nodes without a scheduler."""
    assert len(_pool(plan).nics) == 10
    assert _pool(plan).groups[0].kind == "spot"


@row(36)
def row_36(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """A specific reservation, and four further networks."""
    assert _pool(plan).groups[0].reservation_id == "projects/my-project/reservations/a3"
    assert len(_networks(plan)) == 4


@row(37)
def row_37(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Eight further networks, in a tenth of the lines."""
    assert len(_networks(plan)) == 8
    assert _lines(path) <= 117 // 10


@row(38)
def row_38(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """An RDMA network that belongs to the cluster, a host network, and two mounted buckets."""
    assert _networks(plan) == ["host-1"]
    assert [network.name for network in plan.own_networks] == ["roce"]
    assert {entry.mount: entry.bucket for entry in plan.file_systems} == {
        "/data": "my-training-data",
        "/checkpoints": "my-checkpoints",
    }


@row(40)
def row_40(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """A flex group starts empty, has a maximum run time, and no placement policy."""
    group = _pool(plan).groups[0]
    assert (group.kind, group.count, group.max_count, group.max_run_s) == ("flex", 0, 2, 604_800)
    assert group.placement_group is None
    assert plan.resources["gcp:compute/resizeRequest:ResizeRequest"] == 1


@row(42)
def row_42(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """A size that is offered is billed as it is; other sizes are rounded up, with a note."""
    assert plan.file_systems[0].capacity_gib == 36000
    value = spec.model_dump(exclude_none=True)
    value["storage"][0]["capacity_gib"] = 36001
    other = parse_spec(value)
    assert build_plan(other, TODAY).file_systems[0].capacity_gib == 54000
    assert any("54000 GiB is billed" in finding.message for finding in check(other, TODAY))


@row(43)
def row_43(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """One machine and one file system, in fewer than 38 lines, with the range for the peering of the service."""
    assert _lines(path) < 38
    assert plan.network is not None
    assert plan.network.service_range


@row(46)
def row_46(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Two A3 High by flex-start, a deadline of 15 minutes, and the minimum of their all-gather."""
    assert plan.handover.deadline_s == 900
    assert _pool(plan).groups[0].kind == "flex"
    floors = {entry["check"]: entry["at_least"] for entry in _pool(plan).expectation["floors"]}  # type: ignore[attr-defined]
    assert floors["B3"] == 60


@row(47)
def row_47(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Login, management and spot nodes in fewer than 38 lines."""
    assert _lines(path) < 38
    assert {pool.name: pool.count for pool in plan.pools} == {"login": 1, "mgmt": 1, "node": 8}
    assert _pool(plan, "node").groups[0].kind == "spot"


@row(48)
def row_48(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """File system and nodes are in one zone; another zone is refused."""
    assert plan.zones == ("3",)
    assert plan.file_systems[0].deployment == "AMLFS-Durable-Premium-500"
    assert plan.file_systems[0].capacity_gib == 4096
    value = spec.model_dump(exclude_none=True)
    value["storage"][0]["zone"] = "2"
    assert any(finding.rule == "lustre_is_in_clients_zone" for finding in check(parse_spec(value), TODAY))


@row(49)
def row_49(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Each Ubuntu of the matrix has its image, its DOCA and its Lustre client."""
    for os, image, client in (("ubuntu-24.04", "2404", "2.17.0"), ("ubuntu-22.04", "2204", "2.15.8")):
        value = spec.model_dump(exclude_none=True)
        value["software"]["os"] = os
        other = parse_spec(value)
        assert not [finding for finding in check(other, TODAY) if finding.level == "error"]
        made = build_plan(other, TODAY)
        assert image in _pool(made).image.ref
        assert any(d.chosen == client for d in made.decisions if d.path == "gpu.software.lustre_client")


@row(51)
@row(57)
def row_rdma(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Eight InfiniBand devices, one fabric, and checks that need them."""
    pool = _pool(plan)
    assert (pool.expectation["fabric_provider"], pool.expectation["fabric_devices"]) == ("infiniband", 8)
    assert pool.groups[0].single_fabric
    assert "N4" in pool.expectation["required"]  # type: ignore[operator]


@row(52)
def row_52(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """One private network: nodes, a subnet of its own for Lustre, private endpoints, and egress through NAT only."""
    assert plan.network is not None
    assert [(subnet.name, subnet.role) for subnet in plan.network.subnets] == [
        ("private-0", "nodes"),
        ("storage-amlfs-0", "storage"),
        ("endpoints-0", "endpoints"),
    ]
    assert plan.network.egress == "nat"
    assert plan.resources["azure-native:network:NatGateway"] == 1


@row(53)
def row_53(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Expected values of a healthy ND A100 v4."""
    floors = {entry["check"]: entry["at_least"] for entry in _pool(plan).expectation["floors"]}  # type: ignore[attr-defined]
    assert floors == {"B5": 21, "B2": 216, "B3": 172, "B9": 235, "N5": 180}
    assert _pool(plan).expectation.get("nvlinks_per_gpu") == 12


@row(54)
def row_54(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Expected values of a healthy ND H100 v5."""
    floors = {entry["check"]: entry["at_least"] for entry in _pool(plan).expectation["floors"]}  # type: ignore[attr-defined]
    assert (floors["B5"], floors["B2"], floors["N5"]) == (48, 440, 360)
    assert _pool(plan).expectation.get("nvlinks_per_gpu") == 18


@row(56)
def row_56(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Four pools of three machine types, homes and Lustre, each with its image and steps."""
    assert {pool.name: pool.image.prebuilt for pool in plan.pools} == {
        "login": False,
        "scheduler": False,
        "cpu": False,
        "gpu": True,
    }
    assert {entry.kind for entry in plan.file_systems} == {"home", "lustre"}
    assert plan.audit.log_retention_days == 365


@row(59)
def row_59(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """The same nodes on three clouds have the same GPU checks and expected values. The driver is that of each cloud's image."""
    places = {
        "aws": ({"cloud": "aws", "region": "us-east-1", "zone": "use1-az6"}, "p5.48xlarge", "on_demand"),
        "azure": ({"cloud": "azure", "region": "eastus"}, "Standard_ND96isr_H100_v5", "on_demand"),
        "gcp": ({"cloud": "gcp", "region": "us-central1", "zone": "us-central1-a"}, "a3-megagpu-8g", "spot"),
    }
    seen = []
    for where, machine, kind in places.values():
        pools = [{"name": "gpu", "machine": machine, "capacity": [{"kind": kind, "count": 2}]}]
        pool = _pool(build_plan(parse_spec({"name": "h100", "where": where, "pools": pools}), TODAY))
        checks = [check for check in pool.expectation["required"] if check[0] in "GDFXPS"]  # type: ignore[attr-defined]
        seen.append((checks, pool.expectation.get("gpu_name"), pool.expectation.get("nvlinks_per_gpu")))
    assert seen[0] == seen[1] == seen[2]


@row(61)
def row_61(spec: ClusterSpec, plan: Plan, path: Path) -> None:
    """Three lines are enough for a cluster."""
    assert _lines(path) <= 4
    assert plan.nodes == 2
