from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.catalog.floors import MARGIN, PAIRS_SEARCHED, UNPUBLISHED
from gpuinfra.catalog.gpus import GPUS
from gpuinfra.catalog.records import ALL_GATHER, CapacityKind, MachineType
from gpuinfra.clouds.aws import regions as aws_regions
from gpuinfra.clouds.aws.rules import layout
from gpuinfra.plan.machines import machines_of
from gpuinfra.plan.profile import profile_of
from gpuinfra.spec import parse_spec

TODAY = date(2026, 11, 22)

RECORDINGS = Path(__file__).parents[1] / "recordings"
ALL = [(cloud, machine) for cloud in CLOUDS for machine in profile_of(cloud).machines.values()]
IDS = [f"{cloud}-{machine.name}" for cloud, machine in ALL]


@pytest.mark.parametrize(("cloud", "machine"), ALL, ids=IDS)
def test_record_is_consistent(cloud: str, machine: MachineType) -> None:
    """Shape, fabric, zones, prices and quotas of a machine type are consistent."""
    profile = profile_of(cloud)
    assert profile.machines[machine.name] is machine
    assert (machine.gpu is None) == (machine.gpus == 0)
    assert machine.vcpus > 0
    assert machine.memory_gib > 0
    assert machine.capacity
    assert machine.capacity <= profile.capacity_kinds
    assert machine.nics
    assert (machine.nics[0].card, machine.nics[0].device) == (0, 0)
    assert (machine.local_disk_gb > 0) == (machine.local_disks > 0)
    assert machine.source.page
    assert machine.source.read <= TODAY
    for region, zones in machine.zones.items():
        assert region in profile.regions
        for zone in zones:
            assert profile.region_of_zone(zone, region) == region
    for price in machine.prices:
        assert 0 < price.usd_per_hour < 500
        assert price.usd_low is None or price.usd_low <= price.usd_per_hour
        assert price.region == "*" or price.region in profile.regions
        assert date(2025, 1, 1) < price.read <= TODAY
        assert price.source
        assert price.term in ("", "1y", "3y")
    if machine.fabric:
        assert machine.fabric.devices > 0
        assert machine.fabric.gbps > 0
        assert machine.limits is not None
        assert machine.fabric.devices <= machine.limits.fabric
    if machine.nvswitch:
        assert machine.gpu is not None
        assert machine.gpu.nvlinks
    if machine.numa:
        assert machine.fabric is not None
        assert len(machine.numa) == machine.numa_nodes
        assert sorted(gpu for node in machine.numa for gpu in node.gpus) == list(range(machine.gpus))
        assert sorted(one for node in machine.numa for one in node.fabric) == list(range(machine.fabric.devices))
    assert bool(machine.numa) == bool(machine.numa_source)
    for floor in machine.floors:
        assert floor.at_least > 0
        assert floor.source
        if floor.check in ("B2", "B3"):
            assert floor.gib
            assert floor.what.startswith(f"{floor.collective} of ")
            assert floor.what.endswith({"B2": " in one node", "B3": " between two nodes"}[floor.check])
        if floor.collective == ALL_GATHER:
            # Each ring of an all-gather crosses the network, so its rate is at most the bandwidth of the node.
            assert machine.fabric is not None
            assert floor.at_least < machine.fabric.gbps / 8
        if floor.check in ("B2", "B3", "B9", "B10", "N5"):
            if floor.healthy is None:
                assert re.search("azurehpc-health-checks|cluster-health-scanner", floor.source)
                assert floor.source.endswith(UNPUBLISHED), floor
            else:
                assert floor.at_least <= MARGIN * floor.healthy


def test_machine_types_without_a_floor_between_nodes_are_known() -> None:
    """The plan gives the date of the last search for each machine type with a fabric that has no floor for B3."""
    without = {
        machine.name
        for _, machine in ALL
        if machine.fabric and machine.gpu and not any(floor.check == "B3" for floor in machine.floors)
    }
    small = {f"{family}.{size}xlarge" for family in ("g5", "g6", "g6e") for size in (8, 12, 16, 24, 48)}
    assert without == {
        "p5.4xlarge", "p6e-gb200.36xlarge", "Standard_ND128isr_NDR_GB200_v6", "a3-edgegpu-8g", *small,
    }  # fmt: skip
    assert date.fromisoformat(PAIRS_SEARCHED) > TODAY


def test_floors_without_a_healthy_figure_are_known() -> None:
    """A cloud's threshold without a published figure of a healthy machine gives the date of the last search for one, and no other floor lacks one."""
    measured = ("B2", "B3", "B9", "B10", "N5")
    without = {
        (machine.name, floor.check)
        for _, machine in ALL
        for floor in machine.floors
        if floor.check in measured and floor.healthy is None
    }
    assert without == {
        ("a4x-highgpu-4g", "B3"), ("Standard_NC96ads_A100_v4", "B2"), ("Standard_NC80adis_H100_v5", "B2"),
        ("Standard_ND96asr_v4", "N5"), ("Standard_ND96amsr_A100_v4", "N5"),
    }  # fmt: skip
    assert re.fullmatch(r".* \(searched 2026-\d\d-\d\d\)", UNPUBLISHED)


def test_boards_without_a_floor_in_the_node_have_a_dated_reason() -> None:
    """Each machine type with NVSwitches has a floor for B2, or a note with the date of the last search."""
    boards = [
        machine for _, machine in ALL if machine.nvswitch and not any(one.check == "B2" for one in machine.floors)
    ]
    assert all(
        re.search(r"^Check B2 is not required: .* \(searched 2026-\d\d-\d\d\)\.$", " ".join(one.notes))
        for one in boards
    )


def recorded_numa(path: Path) -> list[tuple[list[int], list[int]]]:
    """GPUs and fabric devices of each NUMA node in a recording of hwloc, by index in the order of their PCI addresses."""
    rows = [line.split() for line in path.read_text().partition("#---\n")[2].splitlines()]
    found: dict[str, tuple[list[int], list[int]]] = {}
    for column, kind in enumerate(("gpu", "fabric")):
        for index, (node, _, _) in enumerate(sorted((row for row in rows if row[1] == kind), key=lambda row: row[2])):
            found.setdefault(node, ([], []))[column].append(index)
    return [found[node] for node in sorted(found)]


@pytest.mark.parametrize("path", sorted((RECORDINGS / "topology").glob("*.txt")), ids=lambda path: path.stem)
def test_numa_nodes_are_those_of_a_real_machine(path: Path) -> None:
    """The GPUs and fabric devices of each NUMA node are those that hwloc found on the machine type."""
    machine = profile_of("aws").machines[path.stem]
    assert [(list(one.gpus), list(one.fabric)) for one in machine.numa] == recorded_numa(path)


@pytest.mark.parametrize(("cloud", "machine"), ALL, ids=IDS)
def test_interface_layout_passes_the_rules(cloud: str, machine: MachineType) -> None:
    """The interface layout of every machine type passes the layout rules."""
    spec = parse_spec(
        {
            "name": "x",
            "where": {"cloud": cloud, "region": profile_of(cloud).regions[0]},
            "pools": [{"name": "a", "machine": machine.name, "capacity": {"kind": "on_demand", "count": 1}}],
        }
    )
    assert machine.name in machines_of(spec)
    for rule in layout.RULES:
        assert [str(finding) for finding in rule(spec, TODAY)] == []


def test_gpu_keys_names_and_device_ids_are_unique() -> None:
    """Each GPU product has its own key, name and device IDs."""
    names = [gpu.name for gpu in GPUS.values()]
    assert len(set(names)) == len(names)
    ids = [pci for gpu in GPUS.values() for pci in gpu.pci_ids]
    assert len(set(ids)) == len(ids)
    for key, gpu in GPUS.items():
        assert gpu.key == key
        assert all(pci.startswith("10de:") and len(pci) == 9 for pci in gpu.pci_ids)
        assert (gpu.nvlinks > 0) == (gpu.nvlink_gb_s is not None)


def test_all_training_machine_types_are_in_the_catalog() -> None:
    """The catalog has every supported multi-GPU training machine type."""
    aws = {"p4d.24xlarge", "p4de.24xlarge", "p5.4xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge"}
    aws |= {"p6-b200.48xlarge", "p6-b300.48xlarge", "p6e-gb200.36xlarge", "g5.48xlarge", "g6.48xlarge", "g6e.48xlarge"}
    azure = {"Standard_ND96amsr_A100_v4", "Standard_ND96asr_v4", "Standard_ND96isr_H100_v5", "Standard_ND96isr_H200_v5"}
    gcp = {"a2-highgpu-8g", "a2-ultragpu-8g", "a3-highgpu-8g", "a3-megagpu-8g", "a3-ultragpu-8g", "a3-edgegpu-8g"}
    gcp |= {"a4-highgpu-8g", "a4x-highgpu-4g", "g2-standard-96"}
    for cloud, wanted in (("aws", aws), ("azure", azure), ("gcp", gcp)):
        assert wanted <= set(profile_of(cloud).machines)


@pytest.mark.parametrize(
    ("name", "devices", "interfaces", "addresses"),
    [
        ("p4d.24xlarge", 4, 5, 1),
        ("p5.48xlarge", 32, 33, 1),
        ("p5en.48xlarge", 16, 17, 1),
        ("p6-b200.48xlarge", 8, 9, 1),
        ("p6-b300.48xlarge", 16, 17, 1),
        ("p6e-gb200.36xlarge", 4, 5, 1),
        ("g6e.48xlarge", 4, 5, 1),
        ("g5.8xlarge", 1, 2, 1),
        ("g5.4xlarge", 0, 1, 1),
    ],
)
def test_aws_layouts_match_the_ec2_guide(name: str, devices: int, interfaces: int, addresses: int) -> None:
    """Numbers of interfaces and addresses match the EC2 guide's layout with the fewest addresses."""
    machine = profile_of("aws").machines[name]
    assert sum(nic.kind == "efa-only" for nic in machine.nics) == devices
    assert (machine.fabric.devices if machine.fabric else 0) == devices
    assert len(machine.nics) == interfaces
    assert machine.ips == addresses


def test_short_zone_text_expands_to_zone_ids() -> None:
    """The short form of zones expands to the zone IDs of each region."""
    assert aws_regions.zones_of("use1:1,2 usw2:1-3") == {
        "us-east-1": ("use1-az1", "use1-az2"),
        "us-west-2": ("usw2-az1", "usw2-az2", "usw2-az3"),
    }
    assert aws_regions.region_of("use1-az4") == "us-east-1"
    assert aws_regions.region_of("xxx1-az4") is None
    assert aws_regions.region_of("us-east-1a") is None
    numbers = [aws_regions.zone_number(f"use1-az{n}") for n in range(1, 7)]
    assert numbers == [1, 2, 3, 4, 5, 6]


def test_service_prices_have_source_and_date() -> None:
    """Each service price has a positive amount, a source and a date in the past. An amount of 0 has a source that states that the cloud does not charge."""
    for cloud in CLOUDS:
        for price in profile_of(cloud).service_prices:
            assert price.usd > 0 or "is not charged" in price.source
            assert price.source
            assert price.read <= date.today()
            assert price.region == "*" or price.region in profile_of(cloud).regions


def test_reserved_block_and_flex_capacity_is_bounded() -> None:
    """Reservations, blocks and queued capacity have a fixed size."""
    assert {kind for kind in CapacityKind if kind.is_bounded} == {"reserved", "block", "flex"}
