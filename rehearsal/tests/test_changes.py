from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.base.shipped import shipped
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import Plan
from gpuinfra.report.plan_diff import ResourceChange
from gpuinfra.spec.load import LoadedStack, read_stack
from gpuinfra_rehearsal.changes import Uncomparable, resource_changes
from tests.clouds.stacks import TODAY, shipped_stacks

P4D = (shipped("stacks") / "Pulumi.aws-p4d.yaml").read_text()


def stack(folder: Path, text: str, name: str = "aws-p4d") -> LoadedStack:
    """A stack file with this text."""
    folder.mkdir(exist_ok=True)
    path = folder / f"Pulumi.{name}.yaml"
    path.write_text(text)
    return read_stack(path)


def by_name(changes: tuple[ResourceChange, ...]) -> dict[str, ResourceChange]:
    """The changes by type and name."""
    return {f"{one.type.rsplit(':', 1)[-1]} {one.name}": one for one in changes}


def plan_of(loaded: LoadedStack) -> Plan:
    """The plan of a stack."""
    return build_plan(loaded.spec, TODAY)


def test_a_size_grows_in_place_and_shrinks_by_replacement_with_everything_that_uses_it(tmp_path: Path) -> None:
    """A larger file system is a change. A smaller one is a replacement, and its data repository is replaced with it."""
    small = stack(tmp_path / "small", P4D)
    large = stack(
        tmp_path / "large", P4D.replace("4800", "7200").replace("count: 2}\n    storage", "count: 3}\n    storage")
    )
    assert large.spec != small.spec
    grown = by_name(resource_changes(small, large))
    lustre = grown["LustreFileSystem train-scratch-0-lustre"]
    assert lustre.action == "changed"
    assert [(one.path, one.old, one.new, one.replaces) for one in lustre.properties] == [
        ("storageCapacity", 4800, 7200, False)
    ]
    assert {one.path: (one.old, one.new) for one in grown["Group train-gpu-spot-0"].properties}["desiredCapacity"] == (
        2,
        3,
    )
    assert {one.action for one in grown.values()} == {"changed"}
    assert "Group train-gpu-reserved-0" not in grown
    shrunk = by_name(resource_changes(large, small))
    assert shrunk["LustreFileSystem train-scratch-0-lustre"].action == "replaced"
    linked = shrunk["DataRepositoryAssociation train-scratch-0-data-repository"]
    assert linked.action == "replaced"
    assert [(one.path, one.new, one.replaces) for one in linked.properties] == [
        ("fileSystemId", "known after the deployment", True)
    ]


def test_added_removed_and_retained_resources_are_those_of_the_plans(tmp_path: Path) -> None:
    """Without storage and spot nodes, the resources that remain are those of the plan, and retained ones are marked."""
    full = stack(tmp_path / "full", P4D)
    less = stack(
        tmp_path / "less",
        P4D.replace("          - {kind: spot, count: 2}\n", "").partition("    storage:")[0],
    )
    removed = resource_changes(full, less)
    gone = [one for one in removed if one.action in ("removed", "retained")]
    before, after = (sum(plan_of(one).resources.values()) for one in (full, less))
    added = [one for one in removed if one.action == "added"]
    assert before - after == len(gone) - len(added) > 0
    kept = {one.what for one in plan_of(full).kept} - {one.what for one in plan_of(less).kept}
    assert {one.name for one in gone if one.action == "retained"} == kept != set()


@pytest.mark.long
@pytest.mark.parametrize("name", [one for cloud in CLOUDS for one in shipped_stacks(cloud)])
def test_equal_declarations_have_no_changes(name: str, tmp_path: Path) -> None:
    """A declaration with the same content in another layout changes nothing, also on a cloud that rejects the first use of a role."""
    file = shipped("stacks") / f"Pulumi.{name}.yaml"
    (tmp_path / file.name).write_text(f"{file.read_text()}\n# end\n")
    assert resource_changes(read_stack(file), read_stack(tmp_path / file.name)) == ()


def test_a_stack_without_the_file_of_the_stack_below_cannot_be_compared(tmp_path: Path) -> None:
    """A site whose foundation has no file in the folder is refused with the name of the file."""
    site = stack(tmp_path / "a", (shipped("stacks") / "Pulumi.gcp-site.yaml").read_text(), "gcp-site")
    with pytest.raises(Uncomparable, match=r"Pulumi\.gcp-foundation\.yaml is not in the same folder"):
        resource_changes(site, site)


def test_the_outputs_of_the_stack_below_are_those_of_its_own_program() -> None:
    """A site whose foundation has a file is compared."""
    site = read_stack(shipped("stacks") / "Pulumi.gcp-site.yaml")
    assert resource_changes(site, site) == ()
