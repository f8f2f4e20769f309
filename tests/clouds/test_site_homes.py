"""Home directories of another stack's site: nodes mount each one as its service requires, also if the cluster does not declare it."""

from __future__ import annotations

import base64
import functools
import json
import re
from pathlib import Path
from typing import Any

import pulumi
import pytest

from gpuinfra.clouds.homes import for_nodes
from gpuinfra.node.steplist import node_environment
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.model import PoolPlan
from gpuinfra.spec import parse_spec
from tests.clouds import recorder
from tests.clouds.stacks import TODAY, recording_of_spec

EFS: dict[str, Any] = {"kind": "home", "mount": "/tools"}
OPENZFS: dict[str, Any] = {"kind": "home", "service": "openzfs", "capacity_gib": 512, "throughput_mb_s": 320, "backup_days": 7}  # fmt: skip
WHERE = {
    "aws": {"cloud": "aws", "region": "us-east-1", "zone": "use1-az4"},
    "azure": {"cloud": "azure", "region": "eastus"},
}
MACHINES = {"aws": "p4d.24xlarge", "azure": "Standard_NC24ads_A100_v4"}


def cluster(*storage: dict[str, Any], cloud: str = "aws") -> dict[str, Any]:
    """A cluster on the site of another stack."""
    return {
        "name": "train",
        "where": WHERE[cloud],
        "pools": [{"name": "gpu", "machine": MACHINES[cloud], "capacity": [{"kind": "on_demand", "count": 1}]}],
        "storage": list(storage),
        "use": {"foundation": "organization/gpuinfra/base", "site": "organization/gpuinfra/base"},
    }


def pool_of(*storage: dict[str, Any], cloud: str = "aws") -> PoolPlan:
    """The pool of the cluster."""
    return build_plan(parse_spec(cluster(*storage, cloud=cloud)), TODAY).pools[0]


@functools.cache
def of_site() -> list[dict[str, Any]]:
    """The output `file_systems` of a site with home directories on both services of AWS."""
    made = recording_of_spec({"name": "train", "where": WHERE["aws"], "layers": ["foundation", "site"], "storage": [OPENZFS, EFS]})  # fmt: skip
    (found,) = [one["file_systems"] for one in made.outputs.values() if "file_systems" in one]
    return found


def node_json(monkeypatch: pytest.MonkeyPatch, found: list[dict[str, Any]], *storage: dict[str, Any]) -> dict[str, Any]:
    """`node.json` of a cluster on a site with this output."""
    monkeypatch.setattr(recorder, "OTHER_STACKS", {**recorder.OTHER_STACKS, "file_systems": found})
    (template,) = recording_of_spec(cluster(*storage)).of("aws:ec2/launchTemplate:LaunchTemplate")
    text = base64.b64decode(template.inputs["userData"]).decode()
    (body,) = re.findall(r'^\{\n "bundle".*?^\}', text, re.DOTALL | re.MULTILINE)
    return json.loads(body)


def test_the_site_exports_the_service_of_each_home() -> None:
    """The entry of each home contains its service, so that clusters of other stacks know it."""
    assert {one["mount"]: one["service"] for one in of_site()} == {"/home": "openzfs", "/tools": "efs"}


@pytest.mark.parametrize(
    ("declared", "other", "setting"), [(OPENZFS, "/tools", "tls nfsvers=4.1,"), (EFS, "/home", "plain nfsvers=4.1,")]
)
def test_a_home_that_the_cluster_does_not_declare_has_the_setting_of_its_service(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, declared: dict[str, Any], other: str, setting: str
) -> None:
    """`node.json` contains how to mount it, the step receives it, and the bundle has the port and the unit of TLS."""
    found = node_json(monkeypatch, of_site(), declared)
    given = {one["mount"]: one.get("setting", "") for one in found["file_systems"]}
    assert given.pop(other).startswith(setting)
    assert list(given.values()) == [""]
    assert not [one for one in found["file_systems"] if "service" in one]
    assert pool_of(declared).versions["HOME_TLS_PORT"] == "2049"
    path = tmp_path / "node.json"
    path.write_text(json.dumps(found))
    lines = node_environment(path, tmp_path)["GPUINFRA_FILE_SYSTEMS"].splitlines()
    assert [line.split(" ", 4)[4].startswith(setting) for line in lines if f" {other} " in line] == [True]
    assert [len(line.split(" ")) for line in lines if f" {other} " not in line] == [4]


@pytest.mark.parametrize("declared", [(OPENZFS, EFS), (EFS, {**EFS, "mount": "/home"})])
def test_the_output_changes_no_node_that_needs_no_setting(
    monkeypatch: pytest.MonkeyPatch, declared: tuple[dict[str, Any], ...]
) -> None:
    """If the cluster declares all homes, user data is the same as with a site whose output has no services."""
    without = [{key: value for key, value in one.items() if key != "service"} for one in of_site()]
    assert node_json(monkeypatch, of_site(), *declared) == node_json(monkeypatch, without, *declared)


def test_a_home_on_the_service_of_the_first_one_needs_no_setting() -> None:
    """A node mounts an undeclared home like the first declared one, and so does a node on a site whose output has no services."""
    for cloud, service in (("aws", "efs"), ("azure", "files"), ("aws", None)):
        entry = {"kind": "home", "mount": "/other", "dns_name": "a", "mount_name": "/"}
        given = {**entry, "service": service} if service else entry
        assert for_nodes(cloud, pool_of(EFS, cloud=cloud), [given]) == [entry]
    scratch = {"kind": "lustre", "mount": "/scratch", "dns_name": "a", "mount_name": "b"}
    assert for_nodes("aws", pool_of(EFS), [scratch]) == [scratch]


def test_the_services_of_azure_differ() -> None:
    """A cluster that declares Azure Files mounts an undeclared volume of Azure NetApp Files without TLS."""
    entry = {"kind": "home", "mount": "/other", "dns_name": "10.0.4.4", "mount_name": "/lab", "service": "netapp"}
    (found,) = for_nodes("azure", pool_of(EFS, cloud="azure"), [entry])  # pyright: ignore[reportGeneralTypeIssues]
    assert found["setting"].startswith("plain vers=3,")


def test_an_unknown_service_of_a_site_is_an_error() -> None:
    """A site that a later version created can have a service that this version does not know."""
    with pytest.raises(pulumi.RunError, match=r"directories at /other are on tapes, which this version does not know"):
        for_nodes("aws", pool_of(EFS), [{"kind": "home", "mount": "/other", "service": "tapes"}])
