"""The clone of any valid declaration is valid, or has findings."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gpuinfra.base.findings import Level
from gpuinfra.base.registry import CLOUDS
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.profile import profile_of
from gpuinfra.region.clone import MODES, CloneRequest, clone
from gpuinfra.region.clone.network import network_of
from gpuinfra.rules import check
from gpuinfra.spec.document import parse
from gpuinfra.spec.load import parse_spec, read_stack
from tests.region.clone.stacks import TODAY

IDS = {
    "aws": "cr-0123456789abcdef0",
    "gcp": "my-reservation",
    "azure": "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/r",
}
REGISTRY = "us-central1-docker.pkg.dev/my-project/gpudirect"


@st.composite
def capacities(draw: st.DrawFn, cloud: str) -> dict[str, Any]:
    """A capacity entry."""
    kind = draw(st.sampled_from(sorted(profile_of(cloud).capacity_kinds)))
    entry: dict[str, Any] = {"kind": kind.value, "count": draw(st.integers(1, 9))}
    if kind.value in ("reserved", "block"):
        entry["id"] = IDS[cloud]
    if kind.value == "block":
        entry |= {"starts_at": "2026-11-20T11:30:00Z", "ends_at": "2026-11-27T11:30:00Z"}
    if kind.value == "flex":
        entry["max_run_hours"] = draw(st.integers(1, 168))
    return entry


@st.composite
def declarations(draw: st.DrawFn, cloud: str) -> dict[str, Any]:
    """A declaration, which the rules can still refuse."""
    profile = profile_of(cloud)
    first = draw(st.sampled_from(sorted(profile.machines)))
    listed = profile.machines[first].zones
    region = draw(st.sampled_from(sorted(listed) or list(profile.regions)))
    zones = listed.get(region, ())
    where: dict[str, Any] = {"cloud": cloud, "region": region}
    if zones and draw(st.booleans()):
        where["zone"] = draw(st.sampled_from(zones))
    machines = [first, *draw(st.lists(st.sampled_from(sorted(profile.machines)), max_size=1))]
    pools = [
        {"name": f"p{i}", "machine": name, "capacity": draw(st.lists(capacities(cloud), min_size=1, max_size=2))}
        for i, name in enumerate(machines)
    ]
    value: dict[str, Any] = {"name": "train", "where": where, "pools": pools}
    if draw(st.booleans()):
        entry: dict[str, Any] = {
            "kind": "lustre",
            "mount": "/scratch",
            "capacity_gib": draw(st.sampled_from([4800, 36000, 131072])),
        }
        if draw(st.booleans()):
            entry["bucket"] = "auto"
            if cloud == "azure":
                entry["importer_id"] = "00000000-0000-4000-8000-000000000000"
        value["storage"] = [entry]
    if cloud == "azure":
        value["access"] = {"evidence_from": ["203.0.113.0/24"]}
    if cloud == "gcp" and any(name.startswith(("a3-high", "a3-mega")) for name in machines):
        value["software"] = {"registry": REGISTRY}
    if draw(st.booleans()):
        value["network"] = {
            "cidr": draw(
                st.sampled_from(["10.64.0.0/16", "10.0.0.0/16", "192.168.0.0/18", "100.64.0.0/16", "10.98.0.0/17"])
            )
        }
    if draw(st.booleans()):
        value["use"] = {"foundation": "organization/gpuinfra/base", "site": "organization/gpuinfra/lab"}
    return value


@settings(max_examples=100)
@given(data=st.data())
def test_clone_of_a_valid_declaration_is_valid_or_has_findings(data: st.DataObject) -> None:
    """No clone raises an exception. A clone without errors has files that contain its declaration, pass every rule, and have a plan."""
    cloud = data.draw(st.sampled_from(sorted(CLOUDS)))
    value = data.draw(declarations(cloud))
    other = data.draw(st.sampled_from([None, None, *sorted(CLOUDS)]))
    region = data.draw(st.sampled_from(profile_of(other or cloud).regions))
    mode = data.draw(st.sampled_from(MODES))
    count = data.draw(st.sampled_from([{}, {}, {"p0": 3}]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "Pulumi.one.yaml"
        path.write_text(json.dumps({"config": {"gpuinfra:cluster": value}}, indent=2))
        result = clone(
            read_stack(path), path.read_text(), CloneRequest(region=region, cloud=other, mode=mode, count=count), TODAY
        )
    event("cloned" if result.ok else f"refused: {result.findings[0].rule}")
    if not result.ok:
        assert result.files == ()
        assert all(one.message for one in result.findings)
        assert len(result.alternatives) <= 3
        return
    assert result.files
    source = parse_spec(value)
    for file in result.files:
        spec = parse_spec(file.declaration)
        assert (spec.where.cloud, spec.where.region) == (other or cloud, region)
        assert [one for one in check(spec, TODAY) if one.level is Level.ERROR] == []
        build_plan(spec, TODAY)
        assert parse(file.text, "").value["config"]["gpuinfra:cluster"] == file.declaration  # type: ignore[index]
        assert IDS[cloud] not in file.text
        if "site" in source.made_layers and "site" in spec.made_layers:
            ours, theirs = network_of(source.network.cidr), network_of(spec.network.cidr)
            assert ours is not None
            assert theirs is not None
            assert not ours.overlaps(theirs)
