"""What a clone writes and prints for a failover and for the way back: data, recovery, names, and commands that are safe to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.findings import Finding, Level
from gpuinfra.catalog.records import CapacityKind
from gpuinfra.cli import main
from gpuinfra.clouds.azure.region.second_region import SECOND_REGION as AZURE
from gpuinfra.clouds.region.second_region import Manual
from gpuinfra.plan.profile import profile_of
from gpuinfra.region.clone import CloneResult
from gpuinfra.region.clone.names import Origin, origin_of, reference_in, stack_in
from gpuinfra.spec.load import read_stack
from tests.region.clone.stacks import cloned, file_of, saved
from tests.region.clone.test_options import aws, declared, written

BUCKET = ("storage[0].bucket", "my-replica")
LUSTRE = {"kind": "lustre", "mount": "/scratch", "capacity_gib": 1200, "throughput_mb_s_per_tib": 250}
RECOVERY = {"region": "us-west-2", "rpo_minutes": 600, "rto_minutes": 600, "checkpoint_gib": 1, "checkpoint_minutes": 30}  # fmt: skip
IMAGE = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/first/providers/Microsoft.Compute/galleries/mine/images/gpu/versions/1.2.3"


def manual(result: CloneResult, path: str) -> Manual:
    """The only entry of a path under "not cloned"."""
    (found,) = [one for one in result.manual if one.path == path]
    return found


def findings(result: CloneResult, path: str) -> list[Finding]:
    """The findings of a path."""
    return [one for one in result.findings if one.path == path]


def reason(result: CloneResult, path: str) -> str:
    """The reason of the only change of a path."""
    (found,) = [one for one in result.changes if one.path == path]
    return found.reason


@pytest.mark.parametrize("mode", ["cold", "pilot-light", "hot"])
def test_a_named_replica_removes_recovery(mode: str) -> None:
    """With the option of the report, the clone starts from the replica, and its `recovery` section is removed with the reason."""
    result = cloned(file_of("aws-recovery"), "us-west-2", mode=mode, values=(BUCKET,))
    found = declared(result)
    assert found["storage"][0]["bucket"] == "my-replica"
    assert "recovery" not in found
    assert "my-replica" in reason(result, "recovery")
    assert findings(result, "storage[0].bucket") == []


def test_a_bucket_named_as_auto_keeps_recovery() -> None:
    """The value `auto` names no replica: the recovery section stays, and the data is missing."""
    result = cloned(file_of("aws-recovery"), "us-west-2", values=(("storage[0].bucket", "auto"),))
    assert declared(result)["recovery"]["region"] == "us-east-2"
    assert len(findings(result, "storage[0].bucket")) == 1


@pytest.mark.parametrize(("stack", "region"), [("aws-recovery", "us-west-2"), ("aws-p4d", "us-west-2"), ("azure-ndv4", "eastus2")])  # fmt: skip
def test_missing_data_is_a_warning(stack: str, region: str) -> None:
    """A file system whose bucket the clone creates starts without the data, which is a warning with the option that prevents it."""
    every = findings(cloned(file_of(stack), region), "storage[0].bucket")
    (found,) = [one for one in every if one.level is Level.WARN]
    assert "starts without the stack's data" in found.message
    assert "--set storage[0].bucket=BUCKET" in found.hint


def test_data_of_a_stack_with_recovery_has_the_output() -> None:
    """The replication of `recovery` is read, and no command of the report replaces it."""
    found = manual(cloned(file_of("aws-recovery"), "us-west-2"), "storage[0]")
    assert found.command == "pulumi stack output recovery --stack aws-recovery"


def test_existing_replication_of_a_bucket_is_read_first(tmp_path: Path) -> None:
    """The command for a bucket reads its rules, because a new configuration replaces them."""
    path = written(tmp_path, aws(storage=[{**LUSTRE, "bucket": "my-data"}]))
    found = manual(cloned(path, "us-west-2"), "storage[0]")
    assert found.command == "aws s3api get-bucket-replication --bucket my-data --region us-east-1"
    assert "replaces" in found.why
    assert "`recovery:" not in found.why


def test_recovery_is_suggested_only_if_the_rules_accept_it(tmp_path: Path) -> None:
    """A stack that does not create its foundation cannot have a recovery section."""
    storage = [{**LUSTRE, "bucket": "auto"}]
    path = written(tmp_path, aws(storage=storage, layers=["site"], pools=[], use={"foundation": "organization/gpuinfra/base"}))  # fmt: skip
    assert "`recovery:" not in manual(cloned(path, "us-west-2"), "storage[0]").why
    path = written(tmp_path, aws(storage=storage, recovery={**RECOVERY, "region": "us-east-2", "site_minutes": 30}))
    why = manual(cloned(path, "us-west-2"), "storage[0]").why
    assert "replicates the bucket to us-east-2" in why
    assert "`recovery:" not in why


def test_a_new_bucket_is_empty(tmp_path: Path) -> None:
    """The reason for a new bucket does not promise data."""
    result = cloned(written(tmp_path, aws(storage=[{**LUSTRE, "bucket": "my-data"}])), "us-west-2")
    assert "which is empty until the data is replicated or copied" in reason(result, "storage[0].bucket")


@pytest.mark.parametrize("mode", ["pilot-light", "hot"])
def test_recovery_has_the_mode_of_the_clone(mode: str) -> None:
    """The recovery section of the clone has the mode of the clone, without the time to create a site that exists."""
    result = cloned(file_of("aws-recovery"), "us-west-2", mode=mode)
    assert result.ok
    found = result.files[0].declaration["recovery"]
    assert found["mode"] == mode
    assert "site_minutes" not in found
    (warning,) = findings(result, "--mode")
    assert "recovery.mode of the stack is cold" in warning.message


def test_recovery_in_mode_cold_needs_the_time_of_the_site(tmp_path: Path) -> None:
    """A stack whose second region is hot has no time for the site, so a cold clone is refused until the option gives it."""
    path = written(tmp_path, aws(storage=[{**LUSTRE, "bucket": "auto"}], recovery={**RECOVERY, "mode": "hot"}))
    refused = cloned(path, "us-west-2")
    (found,) = refused.findings
    assert found.path == "recovery.site_minutes"
    assert "--set recovery.site_minutes=MINUTES" in found.hint
    assert "--mode hot" in found.hint
    result = declared(cloned(path, "us-west-2", values=(("recovery.site_minutes", 30),)))
    assert (result["recovery"]["mode"], result["recovery"]["site_minutes"]) == ("cold", 30)
    assert declared(cloned(path, "us-west-2", mode="hot"))["recovery"]["mode"] == "hot"


def copy_of(stack: str, name: str, folder: Path) -> Path:
    """A shipped stack under another name."""
    path = folder / f"Pulumi.{name}.yaml"
    path.write_text(file_of(stack).read_text())
    return path


def test_a_clone_back_has_the_recorded_name(tmp_path: Path) -> None:
    """The original name is restored if it ends with its region, and if the clone was renamed."""
    source = copy_of("aws-p4d", "prod-us-east-1", tmp_path)
    there = saved(cloned(source, "us-west-2"), tmp_path)
    assert there.name == "Pulumi.prod-us-west-2.yaml"
    renamed = tmp_path / "Pulumi.spare.yaml"
    renamed.write_text(there.read_text())
    for path in (there, renamed):
        assert cloned(path, "us-east-1").files[0].stack == "prod-us-east-1"


def test_both_files_of_a_pair_clone_back(tmp_path: Path) -> None:
    """The files of mode pilot-light get two different names in the first region, and the nodes use the other stack."""
    result = cloned(copy_of("aws-p4d", "prod-us-east-1", tmp_path), "us-west-2", mode="pilot-light")
    saved(result, tmp_path)
    base, nodes = (cloned(tmp_path / one.path.name, "us-east-1") for one in result.files)
    assert base.files[0].stack == "prod-us-east-1-base"
    assert nodes.files[0].stack == "prod-us-east-1"
    use = declared(nodes)["use"]
    assert use == {layer: "organization/gpuinfra/prod-us-east-1-base" for layer in ("foundation", "site")}
    third = [cloned(tmp_path / one.path.name, "eu-west-1") for one in result.files]
    assert [one.files[0].stack for one in third] == ["prod-eu-west-1-base", "prod-eu-west-1"]
    assert declared(third[1])["use"]["site"] == "organization/gpuinfra/prod-eu-west-1-base"


def test_references_of_a_clone_back_are_the_original_ones(tmp_path: Path) -> None:
    """The references of the original stack are recorded, so that a clone back refers to the same stacks."""
    use = {"foundation": "organization/gpuinfra/keys-us-east-1", "site": "organization/gpuinfra/lab"}
    value = aws(use=use, layers=["cluster"])
    del value["budget"]
    there = saved(cloned(written(tmp_path, value), "us-west-2"), tmp_path)
    assert read_stack(there).spec.use.foundation == "organization/gpuinfra/keys-us-west-2"
    back = cloned(there, "us-east-1")
    assert declared(back)["use"] == use


def test_both_files_of_a_pair_keep_the_reference_of_the_stack(tmp_path: Path) -> None:
    """The nodes of mode pilot-light refer to the original foundation and to the base after the clone back."""
    keys = "organization/gpuinfra/keys-us-east-1"
    value = aws(use={"foundation": keys}, layers=["site", "cluster"])
    del value["budget"]
    result = cloned(written(tmp_path, value), "us-west-2", mode="pilot-light")
    saved(result, tmp_path)
    base, nodes = (declared(cloned(tmp_path / one.path.name, "us-east-1")) for one in result.files)
    assert base["use"] == {"foundation": keys}
    assert nodes["use"] == {"foundation": keys, "site": "organization/gpuinfra/one-base"}


@pytest.mark.parametrize(
    "value",
    [
        {"stack": "../../etc/passwd", "region": "us-east-1"},
        {"stack": "", "region": "us-east-1"},
        {"stack": ["one"], "region": "us-east-1"},
        "one",
    ],
)
def test_a_record_that_is_no_stack_is_not_used(value: object, tmp_path: Path) -> None:
    """A record with an invalid stack name has no effect on the path that is written."""
    assert origin_of(value) is None
    result = cloned(written(tmp_path, aws(), {"gpuinfra:clone-of": value}), "us-west-2")
    assert result.files[0].path == tmp_path / "Pulumi.one-us-west-2.yaml"


def test_names_in_regions() -> None:
    """Names and references in another region, with and without a record of the original."""
    origin = Origin(stack="prod", region="us-east-1", use={"site": "org/x/lab-1"})
    west, east = "us-west-2", "us-east-1"
    assert stack_in("prod", "us-east-1", "us-west-2", None) == "prod-us-west-2"
    assert stack_in("spare", "us-west-2", "us-east-1", origin) == "prod"
    assert stack_in("prod-us-west-2-base", "us-west-2", "eu-west-1", origin) == "prod-eu-west-1-base"
    assert reference_in("org/x/lab-us-west-2", "site", west, east, origin) == "org/x/lab-1"
    assert reference_in("org/x/keys-us-west-2", "foundation", west, east, origin) == "org/x/keys"
    assert (
        reference_in("org/x/keys-us-west-2-base", "foundation", west, "eu-west-1", origin)
        == "org/x/keys-eu-west-1-base"
    )


@pytest.mark.parametrize("options", [["--force"], ["--dry-run"], []])
def test_the_file_of_the_stack_is_never_the_output(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A clone whose file is the file of the stack is refused, also with `--force` and in a dry run."""
    path = copy_of("aws-p4d", "mine", tmp_path)
    before = path.read_text()
    assert main(["clone", str(path), "--region", "us-west-2", "--output", str(path), *options]) == 2
    assert "is the stack's own file" in capsys.readouterr().err
    assert path.read_text() == before


def test_azure_replication_has_both_policies() -> None:
    """The policy of the destination is created with all existing blobs in scope, and then copied to the source."""
    create, _, rest = AZURE.bucket("https://x/data", "eastus", "westus").partition(" && ")
    assert "--source-account SOURCE_ID --destination-account DESTINATION_ID" in create
    assert "--min-creation-time 1601-01-01T00:00:00Z" in create
    assert create.startswith("id=$(az storage account or-policy create")
    assert create.endswith("--query policyId --output tsv)")
    show, _, copy = rest.partition(" | ")
    assert show.startswith("az storage account or-policy show")
    assert '--policy-id "$id"' in show
    assert copy.startswith("az storage account or-policy create")
    assert "--account-name SOURCE " in copy
    assert copy.endswith('--policy "@-"')


@pytest.mark.parametrize("zone", ["2", None])
def test_azure_reservation_is_in_a_group_with_its_zone(zone: str | None) -> None:
    """The group is created first with the zones, and the reservation has one zone of the group."""
    record = profile_of("azure").machines["Standard_ND96isr_H100_v5"]
    group, _, reservation = AZURE.purchase(CapacityKind.RESERVED, record, 2, "eastus2", zone).partition(" && ")
    assert group.startswith("az capacity reservation group create ")
    assert "--location eastus2" in group
    assert reservation.startswith("az capacity reservation create ")
    assert ("--zones 2" in group, "--zone 2" in reservation) == ((True, True) if zone else (False, False))
    assert "--zones" not in reservation


def test_azure_image_is_copied_to_a_gallery_of_the_second_region() -> None:
    """The image version gets a replica in the second region, which is the source of a version in a gallery there."""
    found = AZURE.image(IMAGE, "eastus", "westus3")
    assert found is not None
    why, command = found
    assert "gallery" in why
    replicate, _, copy = command.partition(" && ")
    assert "--gallery-name mine --gallery-image-definition gpu --gallery-image-version 1.2.3" in replicate
    assert replicate.endswith("--add publishingProfile.targetRegions name=westus3")
    assert copy.startswith("az sig image-version create ")
    assert "--gallery-name GALLERY" in copy
    assert f"--managed-image {IMAGE}" in copy
    assert "--location westus3 --target-regions westus3" in copy


def test_reservation_command_that_bills_says_so() -> None:
    """A command that creates a reservation has the start of its billing beside it, and one that lists offers does not."""
    reserved = manual(cloned(file_of("aws-p4d"), "us-west-2"), "pools[0].capacity[0]")
    assert reserved.command.startswith("aws ec2 create-capacity-reservation")
    assert "the command creates the reservation, and billing starts immediately" in reserved.why
    block = manual(cloned(file_of("aws-p5-block"), "us-west-2"), "pools[0].capacity[0]")
    assert block.command.startswith("aws ec2 describe-capacity-block-offerings")
    assert "billing starts immediately" not in block.why


def test_group_of_reservations_of_the_stack_is_refused(tmp_path: Path) -> None:
    """A resource group of reservations belongs to one Region like a reservation."""
    arn = "arn:aws:resource-groups:us-east-1:123456789012:group/gpu"
    capacity: list[dict[str, Any]] = [{"kind": "reserved", "group_arn": arn, "count": 2}]
    path = written(tmp_path, aws(pools=[{"name": "gpu", "machine": "p5.48xlarge", "capacity": capacity}]))
    refused = cloned(path, "us-west-2", values=(("pools[0].capacity[0].group_arn", arn),))
    (found,) = [one for one in refused.findings if one.path == "pools[0].capacity[0].group_arn"]
    assert found.level is Level.ERROR
    assert not refused.ok


def test_range_has_the_option_for_other_networks(tmp_path: Path) -> None:
    """A range is chosen without reading other stacks, so its reason names the option for their ranges."""
    path = written(tmp_path, aws())
    assert "--peer" in reason(cloned(path, "us-west-2"), "network.cidr")
    other = tmp_path / "other"
    other.mkdir()
    ranges = {
        declared(cloned(one, "us-west-2"))["network"]["cidr"]
        for one in (path, written(other, aws(network={"cidr": "10.50.0.0/16"})))
    }
    assert len(ranges) == 1  # both clones in one region have the same range


@pytest.mark.parametrize("mode", ["cold", "pilot-light", "hot"])
def test_next_steps_name_the_secrets_provider(mode: str) -> None:
    """Each stack of the clone gets a secrets provider, and the state must not be in the region that can fail."""
    result = cloned(file_of("aws-p4d"), "us-west-2", mode=mode)
    for one in result.files:
        assert f"pulumi stack init {one.stack} --secrets-provider=PROVIDER" in result.next
    (line,) = [one for one in result.next if "state" in one]
    assert "us-east-1" in line
    assert json.dumps(result.as_dict(written=False)["next"])
