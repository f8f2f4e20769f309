"""Sizes, machine types, zones, images, capacity, and other clouds."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.findings import Level
from gpuinfra.region.clone import CloneResult
from gpuinfra.report.clone_text import text
from gpuinfra.spec.document import parse
from gpuinfra.spec.load import read_stack
from tests.region.clone.stacks import cloned, file_of, saved

SETTINGS = {"aws": "aws:region", "gcp": "gcp:region", "azure": "azure-native:location"}


def written(folder: Path, declaration: dict[str, Any], config: dict[str, Any] | None = None) -> Path:
    """A stack file with a declaration."""
    import json

    path = folder / "Pulumi.one.yaml"
    path.write_text(json.dumps({"config": {**(config or {}), "gpuinfra:cluster": declaration}}))
    return path


def aws(**more: Any) -> dict[str, Any]:
    """A declaration on AWS."""
    base = {
        "name": "train",
        "where": {"cloud": "aws", "region": "us-east-1", "zone": "use1-az6"},
        "pools": [{"name": "gpu", "machine": "p5.48xlarge", "capacity": [{"kind": "on_demand", "count": 4}]}],
        "budget": {"recipients": ["ops@example.com"], "limit_usd_per_month": 100000},
    }
    return {**base, **more}


def declared(result: CloneResult) -> dict[str, Any]:
    """The declaration of a clone with one file."""
    assert result.ok, [str(one) for one in result.findings]
    return result.files[0].declaration


def test_count_is_divided_in_proportion() -> None:
    """A new number of nodes keeps the proportions of the capacity entries, and an entry without nodes is removed."""
    result = declared(cloned(file_of("aws-p4d"), "us-west-2", count={"*": 6}))
    assert [entry["count"] for entry in result["pools"][0]["capacity"]] == [3, 3]
    one = declared(cloned(file_of("aws-p4d"), "us-west-2", count={"gpu": 1}))
    assert one["pools"][0]["capacity"] == [{"kind": "on_demand", "count": 1}]


def test_entry_without_nodes_needs_no_reservation() -> None:
    """An entry that gets no nodes is removed: the report lists no reservation to buy for it, and the reason names --count once."""
    result = cloned(file_of("aws-p4d"), "us-west-2", count={"*": 1})
    assert declared(result)["pools"][0]["capacity"] == [{"kind": "on_demand", "count": 1}]
    bought = [one for one in result.manual if one.path.startswith("pools[0].capacity")]
    assert [one for one in bought if " 0 x " in one.what or "--instance-count 0" in one.command] == []
    (change,) = [one for one in result.changes if one.path == "pools[0].capacity"]
    assert change.reason.count("set with --count") == 1


@pytest.mark.parametrize("counts", [[0], [0, 0], [0, 4]])
def test_a_pool_without_nodes_stays_without_nodes(counts: list[int], tmp_path: Path) -> None:
    """An entry that the stack declares with 0 nodes has 0 nodes in the clone."""
    capacity = [{"kind": "on_demand", "count": counts[0]}, *({"kind": "spot", "count": n} for n in counts[1:])]
    path = written(tmp_path, aws(pools=[{"name": "gpu", "machine": "p5.48xlarge", "capacity": capacity}]))
    assert [one["count"] for one in declared(cloned(path, "us-west-2"))["pools"][0]["capacity"]] == counts


def _mounts(folder: Path, *storage: dict[str, Any]) -> Path:
    """A stack file on Google Cloud with storage."""
    declaration = {
        "name": "lab",
        "where": {"cloud": "gcp", "region": "us-central1", "zone": "us-central1-a"},
        "pools": [{"name": "gpu", "machine": "a2-ultragpu-1g", "capacity": {"kind": "on_demand", "count": 1}}],
        "storage": list(storage),
    }
    return written(folder, declaration, {"gcp:project": "my-project", "gcp:region": "us-central1"})


DATA = {"kind": "object", "mount": "/data", "bucket": "my-training-data"}
OUT = {"kind": "object", "mount": "/out", "bucket": "auto", "read_only": False}


def test_mounted_bucket_keeps_its_name_with_a_warning(tmp_path: Path) -> None:
    """The nodes of the second region mount the existing bucket too; a created bucket is created again, without its data."""
    result = cloned(_mounts(tmp_path, DATA, OUT), "us-east4")
    assert declared(result)["storage"] == [DATA, OUT]
    (kept,) = [one for one in result.findings if one.path == "storage[0].bucket"]
    assert (kept.level.value, "its location is unknown" in kept.message) == ("warn", True)
    (auto,) = [one for one in result.findings if one.path == "storage[1].bucket"]
    assert "starts without the stack's data" in auto.message
    assert [one.what for one in result.manual if one.path.startswith("storage")] == ["data of /data", "data of /out"]
    replica = cloned(_mounts(tmp_path, DATA, OUT), "us-east4", values=(("storage[0].bucket", "my-replica"),))
    assert declared(replica)["storage"][0]["bucket"] == "my-replica"
    assert not [one for one in replica.findings if one.path == "storage[0].bucket"]


def test_mounted_bucket_on_another_cloud_has_to_be_replaced(tmp_path: Path) -> None:
    """Nodes of another cloud cannot mount the bucket, and the error names the option that sets the file systems."""
    result = cloned(_mounts(tmp_path, DATA), "us-west-2", cloud="aws")
    (found,) = result.findings
    assert (found.path, found.level.value) == ("storage[0].bucket", "error")
    assert "--set storage=" in found.hint
    assert cloned(_mounts(tmp_path, DATA), "us-west-2", cloud="aws", values=(("storage", []),)).ok


def test_mounted_buckets_have_an_rpo_and_a_transfer_of_unknown_size(tmp_path: Path) -> None:
    """A mounted bucket is replicated like the bucket of a file system, but the declaration does not contain its size."""
    result = cloned(_mounts(tmp_path, DATA, OUT), "us-east4", rpo_minutes=60)
    assert result.ok, [str(one) for one in result.findings]
    assert [(one.what, one.gib, one.usd) for one in result.transfers] == [
        (f"first copy of {mount}, a bucket whose size is unknown", None, None) for mount in ("/data", "/out")
    ]
    assert "whose size is unknown: 0.02 USD per GB" in text(result)


@pytest.mark.parametrize("name", ["cidr", "existing"])
def test_option_and_set_for_one_range_are_an_error(name: str, tmp_path: Path) -> None:
    """--cidr and --peer have no effect beside a value of --set for the network, so each of them is an error."""
    value = {"cidr": "10.98.0.0/16", "existing": {"id": "vpc-0123456789abcdef0", "subnets": {}}}[name]
    for option, given in (("--cidr", {"cidr": "10.99.0.0/16"}), ("--peer", {"peers": ("10.80.0.0/16",)})):
        result = cloned(written(tmp_path, aws()), "us-west-2", values=((f"network.{name}", value),), **given)
        (found,) = result.findings
        assert (found.path, found.level.value) == (option, "error")
        assert f"network.{name}" in found.message


def test_budget_of_a_stack_without_nodes_includes_the_second_region() -> None:
    """The limit covers the whole clone and what its own recovery keeps in the first region."""
    result = cloned(file_of("aws-recovery"), "us-west-2", mode="pilot-light")
    assert result.ok
    whole = result.estimate or result.after
    assert whole is not None
    base = result.files[0].declaration
    assert base["budget"]["limit_usd_per_month"] >= math.ceil(whole.usd_per_month * 1.1 / 100) * 100 + 1000
    assert " and of its second region before a failover plus 10 percent" in result.files[0].text


def test_floor_follows_the_number_of_nodes(tmp_path: Path) -> None:
    """A floor above the number of nodes is lowered."""
    path = written(tmp_path, aws(handover={"wait": "floor", "floor": 4}))
    result = declared(cloned(path, "us-west-2", count={"*": 2}))
    assert result["handover"] == {"wait": "floor", "floor": 2}


def test_number_of_gpus_stays_the_same() -> None:
    """A machine type with fewer GPUs gets more nodes, so that the number of GPUs does not change."""
    result = cloned(file_of("gcp-existing-network"), "us-central1", machine={"*": "a2-megagpu-16g"})
    assert not result.ok
    result = cloned(file_of("gcp-existing-network"), "us-east4", machine={"*": "a2-highgpu-4g"})
    pool = declared(result)["pools"][0]
    assert (pool["machine"], pool["capacity"][0]["count"]) == ("a2-highgpu-4g", 4)


def test_nearest_machine_type_takes_the_place_of_one_that_the_region_does_not_list(tmp_path: Path) -> None:
    """The replacement has the same number of GPUs, at least their memory and a fabric, and the reason names both types."""
    path = written(
        tmp_path,
        aws(
            pools=[{"name": "gpu", "machine": "p5e.48xlarge", "capacity": [{"kind": "spot", "count": 2}]}],
            where={"cloud": "aws", "region": "us-west-2"},
        ),
    )
    result = cloned(path, "ap-northeast-1")
    pool = declared(result)["pools"][0]
    assert (pool["machine"], pool["capacity"][0]["count"]) == ("p5en.48xlarge", 2)
    (change,) = [one for one in result.changes if one.path == "pools[0].machine"]
    assert "p5e.48xlarge" in change.reason
    assert "the same GPU" in change.reason


def test_machine_that_the_region_does_not_offer_is_an_error() -> None:
    """A machine type that you name, and that the catalog does not list in the region, is an error with the field that declares it."""
    result = cloned(file_of("aws-p4d"), "sa-east-1", machine={"*": "p4d.24xlarge"})
    assert not result.ok
    (wrong,) = [one for one in result.findings if one.rule == "zone_offers_machine"]
    assert "where.offers" in wrong.hint


def test_offers_of_the_first_region_are_not_copied(tmp_path: Path) -> None:
    """What the first region offers says nothing about the second one."""
    where = {"cloud": "aws", "region": "us-east-1", "zone": "use1-az3", "offers": ["p4d.24xlarge"]}
    pools = [{"name": "gpu", "machine": "p4d.24xlarge", "capacity": [{"kind": "spot", "count": 2}]}]
    result = cloned(written(tmp_path, aws(where=where, pools=pools)), "us-west-2")
    assert "offers" not in declared(result)["where"]


def test_machine_that_has_less_is_a_warning() -> None:
    """A machine type that you name with less memory per GPU or without a fabric adds a warning for each."""
    result = cloned(file_of("aws-p4d"), "us-west-2", machine={"*": "g6.xlarge"})
    assert result.ok
    assert [one.message.partition(",")[0] for one in result.findings if one.path == "--machine"] == [
        "is g6.xlarge with 23",
        "is g6.xlarge",
    ]
    same = cloned(file_of("aws-p4d"), "us-west-2", machine={"*": "p4de.24xlarge"})
    assert [one for one in same.findings if one.path == "--machine"] == []


def test_zones_of_pools_and_storage_follow_each_other(tmp_path: Path) -> None:
    """Pools and file systems that share a zone share the zone of the clone, and different zones stay different."""
    pools = [
        {"name": "a", "machine": "p5.48xlarge", "zone": "use1-az6", "capacity": [{"kind": "on_demand", "count": 1}]},
        {"name": "b", "machine": "p5.48xlarge", "zone": "use1-az5", "capacity": [{"kind": "on_demand", "count": 1}]},
    ]
    storage = [{"kind": "lustre", "mount": "/scratch", "capacity_gib": 1200, "zone": "use1-az5", "bucket": "auto"}]
    result = declared(cloned(written(tmp_path, aws(pools=pools, storage=storage)), "us-west-2"))
    zones = [pool["zone"] for pool in result["pools"]]
    assert result["where"]["zone"] == zones[0]
    assert zones[0] != zones[1]
    assert result["storage"][0]["zone"] == zones[1]


def test_zone_option_moves_what_shares_the_zone() -> None:
    """A zone that you name takes the place of the zone of the stack."""
    result = declared(cloned(file_of("aws-p4d"), "us-west-2", zone="usw2-az2"))
    assert result["where"]["zone"] == "usw2-az2"


def test_your_own_image_is_an_error_with_the_copy_command(tmp_path: Path) -> None:
    """An AMI exists in one Region: the error has the command that copies it, and `--set` names the copy."""
    image = {"ref": "ami-0123456789abcdef0"}
    pools = [{"name": "gpu", "machine": "p5.48xlarge", "image": image, "capacity": [{"kind": "on_demand", "count": 1}]}]
    path = written(tmp_path, aws(pools=pools))
    (finding,) = cloned(path, "us-west-2").findings
    assert "aws ec2 copy-image --source-region us-east-1 --source-image-id ami-0123456789abcdef0" in str(finding)
    copy = "ami-0fedcba9876543210"
    result = declared(cloned(path, "us-west-2", values=(("pools[0].image.ref", copy),)))
    assert result["pools"][0]["image"]["ref"] == copy


def test_image_of_the_stack_is_checked_like_the_image_of_a_pool(tmp_path: Path) -> None:
    """`software.image` follows the rules of a pool's image; what every region has is kept, and a date stays on its cloud."""
    path = written(tmp_path, aws(software={"image": {"ref": "ami-0123456789abcdef0"}}))
    (finding,) = cloned(path, "us-west-2").findings
    assert finding.path == "software.image.ref"
    public = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
    for image in ({"ref": public}, "2026-09-29"):
        path = written(tmp_path, aws(software={"image": image}))
        assert declared(cloned(path, "us-west-2"))["software"]["image"] == image
    dates = [one for one in cloned(path, "southcentralus", cloud="azure").findings if one.path == "software.image"]
    assert [str(one).count("the release date of an image of AWS") for one in dates] == [1]


def test_reservation_that_you_bought_is_used() -> None:
    """An ID from `--set` keeps the entry reserved, and the reservation of the stack is refused."""
    result = declared(
        cloned(file_of("aws-p4d"), "us-west-2", values=(("pools[0].capacity[0].id", "cr-0fedcba9876543210"),))
    )
    assert result["pools"][0]["capacity"][0] == {"kind": "reserved", "id": "cr-0fedcba9876543210", "count": 2}


def test_existing_bucket_becomes_its_own_and_a_replica_can_be_named(tmp_path: Path) -> None:
    """The bucket of the first region is not linked in the second one."""
    storage = [{"kind": "lustre", "mount": "/scratch", "capacity_gib": 1200, "bucket": "my-data"}]
    path = written(tmp_path, aws(storage=storage))
    result = cloned(path, "us-west-2")
    assert declared(result)["storage"][0]["bucket"] == "auto"
    assert any("--bucket my-data" in one.command for one in result.manual)
    named = cloned(path, "us-west-2", values=(("storage[0].bucket", "my-replica"),))
    assert declared(named)["storage"][0]["bucket"] == "my-replica"


def test_existing_file_system_is_not_kept(tmp_path: Path) -> None:
    """Nodes of the second region cannot mount it, so the clone refuses it until you name a file system of that region."""
    network = {"existing": {"id": "vpc-0123456789abcdef0", "subnets": {"use1-az6": "subnet-0123456789abcdef0"}}}
    section = {"id": "fs-0123456789abcdef0", "mount_name": "a1b2c3d4", "security_group": "sg-0123456789abcdef0"}
    storage = [{"kind": "lustre", "mount": "/scratch", "existing": section}]
    path = written(tmp_path, aws(storage=storage, network=network))
    result = cloned(path, "us-west-2")
    assert [one.path for one in result.findings if "cannot mount" in one.message] == ["storage[0].existing"]
    there = {**section, "id": "fs-0fedcba9876543210"}
    given = (
        ("storage[0].existing", there),
        (
            "network.existing",
            {
                "id": "vpc-0fedcba9876543210",
                "subnets": {f"usw2-az{n}": "subnet-0fedcba9876543210" for n in range(1, 5)},
            },
        ),
    )
    named = cloned(path, "us-west-2", values=given)
    assert not [one for one in named.findings if "cannot mount" in one.message]
    assert declared(named)["storage"][0]["existing"] == there


def test_file_system_without_a_bucket_is_reported(tmp_path: Path) -> None:
    """Data without a bucket has no replica, and a warning says that the clone starts empty."""
    storage = [{"kind": "lustre", "mount": "/scratch", "capacity_gib": 1200}]
    result = cloned(written(tmp_path, aws(storage=storage)), "us-west-2")
    assert any("has no replica" in one.message for one in result.findings)


def test_home_directories_are_reported(tmp_path: Path) -> None:
    """Home directories are not replicated, so a warning says that the clone starts with empty ones."""
    result = cloned(written(tmp_path, aws(storage=[{"kind": "home"}])), "us-west-2")
    (found,) = [one for one in result.findings if one.path == "storage[0]"]
    assert (found.level, found.message) == ("warn", "is not replicated, so the clone starts with an empty /home")


def test_quota_of_pools_that_share_it_is_added(tmp_path: Path) -> None:
    """One request covers all machine types that count against a quota."""
    pools = [
        {"name": "a", "machine": "p5.48xlarge", "quota_vcpus": 1000, "capacity": [{"kind": "on_demand", "count": 2}]},
        {"name": "b", "machine": "p4d.24xlarge", "capacity": [{"kind": "on_demand", "count": 1}]},
    ]
    result = cloned(written(tmp_path, aws(pools=pools)), "us-west-2")
    (quota,) = [one for one in result.manual if one.path == "quota"]
    assert "--quota-code L-417A185B --desired-value 480 --region us-west-2" in quota.command
    assert "quota_vcpus" not in declared(result)["pools"][0]


def test_value_that_names_the_first_region_is_reported(tmp_path: Path) -> None:
    """A value that the clone cannot interpret but that names the first region is a warning."""
    software = {"mirror_url": "https://mirror.us-east-1.example.com"}
    result = cloned(written(tmp_path, aws(software=software)), "us-west-2")
    assert any(one.path == "software.mirror_url" and "us-east-1" in one.message for one in result.findings)


def test_price_before_and_after() -> None:
    """The price per hour of both regions is part of the result, and the mode decides what is billed before a failover."""
    hot, cold = (cloned(file_of("gcp-a3high"), "us-east4", mode=mode) for mode in ("hot", "cold"))
    assert hot.before is not None
    assert hot.after is not None
    assert hot.before.usd_per_hour != hot.after.usd_per_hour
    assert hot.standing == hot.after
    assert cold.standing is None


def test_transfer_is_priced_by_pair_of_regions() -> None:
    """The price per GB depends on both regions: the pair in the eastern US is cheaper."""
    (near,) = cloned(file_of("aws-p4d"), "us-east-2").transfers
    (far,) = cloned(file_of("aws-p4d"), "us-west-2").transfers
    assert (near.usd_per_gb, far.usd_per_gb) == (0.01, 0.02)
    assert far.usd == pytest.approx(4800 * 1.073741824 * 0.02)


@pytest.mark.parametrize(
    ("stack", "cloud", "region", "machine", "values"),
    [
        ("aws-p4d", "gcp", "us-central1", "a3-highgpu-8g", {"software.registry": "us-central1-docker.pkg.dev/my-project/gpudirect",
            "storage[0].capacity_gib": 36000}),
        ("aws-p5-block", "azure", "swedencentral", "Standard_ND96isr_H100_v5", {"storage[0].importer_id": "00000000-0000-4000-8000-000000000000",
            "access.evidence_from": ["203.0.113.0/24"]}),
        ("gcp-a3ultra", "aws", "us-west-2", "p5e.48xlarge", {}),
        ("azure-ndv4", "aws", "us-west-2", "p4de.24xlarge", {}),
        ("azure-ndv4", "gcp", "us-central1", "a3-highgpu-8g", {"software.registry": "us-central1-docker.pkg.dev/my-project/gpudirect"}),
    ],
)  # fmt: skip
def test_another_cloud(stack: str, cloud: str, region: str, machine: str, values: dict[str, object]) -> None:
    """The machine type, capacity, storage and provider settings are those of the other cloud."""
    result = cloned(file_of(stack), region, cloud=cloud, values=tuple(values.items()))
    found = declared(result)
    assert found["where"]["cloud"] == cloud
    assert found["pools"][0]["machine"] == machine
    assert SETTINGS[cloud] in result.files[0].text
    assert parse(result.files[0].text, "").value["config"].get(SETTINGS[stack.split("-")[0]]) is None  # type: ignore[index]
    assert parse(result.files[0].text, "").value["config"][SETTINGS[cloud]] == region  # type: ignore[index]
    assert result.transfers[0].usd_per_gb is not None
    assert any("object storage is not replicated between clouds" in one.why for one in result.manual)


@pytest.mark.parametrize("machine", ["", "a3-megagpu-8g"])
def test_a_clone_on_another_cloud_states_the_difference_of_the_fabric(machine: str, tmp_path: Path) -> None:
    """The reason for another machine type contains both fabrics with their bandwidth, also if `--machine` selects the type."""
    asked = {"*": machine} if machine else {}
    values = (("software.registry", "us-central1-docker.pkg.dev/my-project/gpudirect"),)
    result = cloned(written(tmp_path, aws()), "us-central1", cloud="gcp", machine=asked, values=values)
    (change,) = [one for one in result.changes if one.path == "pools[0].machine"]
    assert re.search(
        r"; the fabric between nodes is \w+ with [\d,]+ Gbit/s instead of efa with 3,200 Gbit/s$", change.reason
    )


def test_settings_that_the_other_cloud_does_not_use_are_removed(tmp_path: Path) -> None:
    """A clone on another cloud has none of the fields that only the cloud of the stack uses."""
    storage = [{"kind": "lustre", "capacity_gib": 4800, "backup_days": 7, "version": "2.15"}]
    there = declared(
        cloned(written(tmp_path, aws(storage=storage)), "us-central1", cloud="gcp", machine={"*": "a3-ultragpu-8g"})
    )
    assert not {"backup_days", "version"} & set(there["storage"][0])
    sites = {
        **aws(network={"machines": ["a3-megagpu-8g"]}),
        "where": {"cloud": "gcp", "region": "us-central1", "zone": "us-central1-b"},
    }
    sites["pools"] = [{"name": "gpu", "machine": "a3-ultragpu-8g", "capacity": [{"kind": "spot", "count": 4}]}]
    there = declared(cloned(written(tmp_path, sites), "us-east-1", cloud="aws", machine={"*": "p5en.48xlarge"}))
    assert "machines" not in there.get("network", {})


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_layers_use_the_stacks_of_the_second_region(cloud: str) -> None:
    """A cluster uses the foundation and the site of the second region, whose names are those of their own clones."""
    region = {"aws": "us-west-2", "gcp": "us-east4"}[cloud]
    use = declared(cloned(file_of(f"{cloud}-cluster"), region))["use"]
    for layer, reference in use.items():
        assert reference == f"organization/gpuinfra/{cloned(file_of(f'{cloud}-{layer}'), region).files[0].stack}"


def test_audit_bucket_of_the_first_region_is_not_used(tmp_path: Path) -> None:
    """The clone creates its own bucket for the audit trail."""
    result = declared(cloned(written(tmp_path, aws(audit={"bucket": "my-audit"})), "us-west-2"))
    assert "bucket" not in result["audit"]


def test_registry_of_the_first_region_is_replaced() -> None:
    """A registry in the first region is replaced by one in the second, with the command that copies the images."""
    result = cloned(file_of("gcp-a3mega"), "europe-west4")
    assert declared(result)["software"]["registry"] == "europe-west4-docker.pkg.dev/my-project/gpudirect"
    assert any(one.path == "software.registry" and one.command.startswith("gcrane cp") for one in result.manual)


def test_provider_zone_follows_the_zone(tmp_path: Path) -> None:
    """The zone setting of the provider is the zone of the clone."""
    value = {
        "name": "train",
        "where": {"cloud": "gcp", "region": "us-central1", "zone": "us-central1-b"},
        "pools": [{"name": "gpu", "machine": "a3-ultragpu-8g", "capacity": [{"kind": "spot", "count": 1}]}],
    }
    path = written(tmp_path, value, {"gcp:region": "us-central1", "gcp:zone": "us-central1-b"})
    text = cloned(path, "us-west1").files[0].text
    assert parse(text, "").value["config"]["gcp:zone"] == "us-west1-c"  # type: ignore[index]


def test_currency_of_the_budget_follows_the_cloud(tmp_path: Path) -> None:
    """A clone in the same cloud keeps the currency of the budget, and a clone on AWS has a budget in USD, the only currency there."""
    budget = {
        "recipients": ["ops@example.com"],
        "limit_usd_per_month": 1000000,
        "currency": "EUR",
        "units_per_usd": 0.9,
    }
    value = {
        "name": "train",
        "where": {"cloud": "gcp", "region": "us-central1", "zone": "us-central1-b"},
        "pools": [{"name": "gpu", "machine": "a3-ultragpu-8g", "capacity": [{"kind": "spot", "count": 1}]}],
        "budget": budget,
    }
    path = written(tmp_path, value)
    same = declared(cloned(path, "us-west1"))["budget"]
    assert (same["currency"], same["units_per_usd"]) == ("EUR", 0.9)
    other = declared(cloned(path, "us-west-2", cloud="aws"))["budget"]
    assert not {"currency", "units_per_usd"} & set(other)


def test_pilot_light_separates_what_each_stack_creates() -> None:
    """The base creates the networks for the machine types of the nodes, and the stack with the nodes has no settings of the foundation."""
    base, nodes = (one.declaration for one in cloned(file_of("gcp-a3high"), "us-east4", mode="pilot-light").files)
    assert base["network"]["machines"] == ["a3-highgpu-8g"]
    assert "machines" not in nodes["network"]
    base, nodes = (one.declaration for one in cloned(file_of("azure-ndv5"), "eastus2", mode="pilot-light").files)
    assert base["budget"]["limit_usd_per_month"] == 100000
    assert "budget" not in nodes
    assert "handover" not in base


def test_pilot_light_opens_ports_in_the_stack_with_the_site(tmp_path: Path) -> None:
    """The stack that creates the network opens the ports of `access.ingress`, and the stack with the nodes does not repeat them."""
    ingress = [{"ports": ["8000"], "sources": ["10.1.0.0/16"]}]
    result = cloned(written(tmp_path, aws(access={"ingress": ingress})), "us-west-2", mode="pilot-light")
    assert result.ok, [str(one) for one in result.findings]
    base, nodes = (one.declaration for one in result.files)
    assert base["access"]["ingress"] == ingress
    assert "ingress" not in nodes["access"]


def test_pilot_light_repeats_storage_only_for_the_nodes(tmp_path: Path) -> None:
    """If the site is in another stack, the base creates only the foundation, so only the stack with the nodes lists the file systems."""
    storage = [{"kind": "lustre", "mount": "/scratch", "capacity_gib": 4800, "throughput_mb_s_per_tib": 250}]
    declared_ = aws(use={"site": "organization/gpuinfra/one-site"}, storage=storage)
    result = cloned(written(tmp_path, declared_), "us-west-2", mode="pilot-light")
    assert result.ok, [str(one) for one in result.findings]
    base, nodes = (one.declaration for one in result.files)
    assert "storage" not in base
    assert nodes["storage"] == storage


def test_machine_type_with_less_memory_is_no_replacement(tmp_path: Path) -> None:
    """An H200 is not replaced by an H100 or an A100, which have less memory, so the pair is refused with alternatives."""
    pools = [{"name": "gpu", "machine": "p5en.48xlarge", "capacity": [{"kind": "spot", "count": 2}]}]
    path = written(tmp_path, aws(pools=pools, where={"cloud": "aws", "region": "us-east-1"}))
    result = cloned(path, "ca-central-1")
    (finding,) = result.findings
    assert finding.path == "pools[0].machine"
    assert len(result.alternatives) == 3
    assert all(one.machine == "p5en.48xlarge" for one in result.alternatives)


def test_a_clone_in_the_second_region_replicates_back(tmp_path: Path) -> None:
    """The clone in the region of `recovery` replicates to the first region; with pilot-light, only the stack with the buckets does."""
    result = cloned(file_of("aws-recovery"), "us-west-2", mode="pilot-light")
    saved(result, tmp_path)
    base, nodes = (read_stack(tmp_path / one.path.name).spec for one in result.files)
    assert base.recovery is not None
    assert base.recovery.region == "us-east-2"
    assert nodes.recovery is None


def test_data_of_a_stack_without_recovery_suggests_it() -> None:
    """The data of a stack has the field that replicates it, and a stack with the field has the option that names its replica."""
    (without,) = [one for one in cloned(file_of("aws-p4d"), "us-west-2").manual if one.path == "storage[0]"]
    assert "`recovery: {region: us-west-2, ...}`" in without.why
    (declared_,) = [one for one in cloned(file_of("aws-recovery"), "us-west-2").manual if one.path == "storage[0]"]
    assert declared_.why.startswith("`recovery` of the stack replicates the bucket")


def test_capacity_that_the_cloud_can_take_back_is_reported() -> None:
    """Reserved capacity that becomes spot is a finding, and a kind that the user sets is none."""
    found = [one for one in cloned(file_of("gcp-a3ultra"), "us-east4").findings if "is spot instead of" in one.message]
    assert [(one.path, one.level) for one in found] == [("pools[0].capacity[0]", Level.WARN)]
    assert "can end the nodes at any time" in found[0].message
    given = (("pools[0].capacity[0]", {"kind": "spot", "count": 2}),)
    again = cloned(file_of("gcp-a3ultra"), "us-east4", values=given)
    assert not any("is spot instead of" in one.message for one in again.findings)


def test_a_machine_type_that_costs_much_more_is_reported() -> None:
    """A region without the machine type gets a dearer one: a finding with both prices, which `--machine` accepts."""
    found = [one for one in cloned(file_of("aws-p4d"), "us-west-1").findings if "USD an hour on demand" in one.message]
    assert [(one.path, one.level) for one in found] == [("pools[0].machine", Level.WARN)]
    assert "is p5.48xlarge instead of p4d.24xlarge" in found[0].message
    accepted = cloned(file_of("aws-p4d"), "us-west-1", machine={"gpu": "p5.48xlarge"})
    assert not any("USD an hour on demand" in one.message for one in accepted.findings)
    assert not any("USD an hour on demand" in one.message for one in cloned(file_of("aws-p4d"), "us-west-2").findings)
