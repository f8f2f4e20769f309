"""How a pool's sets are made, rolled and renewed."""

from __future__ import annotations

import base64
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from gpuinfra.clouds.azure.components.model import nobodys_key
from gpuinfra.clouds.azure.renew import renewal
from gpuinfra.planning import make_plan
from gpuinfra.spec import parse_spec
from tests.clouds.azure.variants import BASE, POOL, spec_of_variant, variant
from tests.clouds.recorder import Registered
from tests.clouds.stacks import TODAY, recording_of, recording_of_spec, spec_of

SET = "azure-native:compute:VirtualMachineScaleSet"


def _set(recording: Any, name: str | None = None) -> dict[str, Any]:
    one: Registered = recording.one(SET, name)
    return one.inputs


def _script(inputs: dict[str, Any]) -> str:
    (renew,) = [
        one
        for one in inputs["virtualMachineProfile"]["extensionProfile"]["extensions"]
        if one["name"] == "gpuinfra-renew"
    ]
    return base64.b64decode(renew["settings"]["script"]).decode()


def test_a_fabric_is_one_set_that_says_so() -> None:
    """In a zone too: what Azure takes without the word depends on zones, and then there would be no InfiniBand."""
    here = _set(recording_of("azure-ndv5"))
    assert here["zones"] == ["3"]
    assert here["singlePlacementGroup"] is True
    assert here["platformFaultDomainCount"] == 5
    assert "platformFaultDomainCount" not in _set(recording_of("azure-ndv4"))


def test_every_size_with_infiniband_is_one_fabric() -> None:
    """H200 as A100 and H100: one uniform set with a single placement group, no reservation, no address outside."""
    for recording in (variant("an H200 fabric"), recording_of("azure-ndv4"), recording_of("azure-ndv5")):
        here = _set(recording)
        assert here["sku"]["name"] in (
            "Standard_ND96isr_H200_v5",
            "Standard_ND96amsr_A100_v4",
            "Standard_ND96isr_H100_v5",
        )
        assert (here["orchestrationMode"], here["singlePlacementGroup"]) == ("Uniform", True)
        assert "publicIPAddressConfiguration" not in str(here)
        assert "capacityReservation" not in here["virtualMachineProfile"]


def test_nodes_without_a_fabric_are_spread() -> None:
    """Where nobody needs to be near, a failing rack should take one node; a reservation goes with no placement group at all."""
    recording = variant("reserved and spot without a fabric")
    held, spot = _set(recording, "train-gpu-reserved-0"), _set(recording, "train-gpu-spot-0")
    for one in (held, spot):
        assert one["singlePlacementGroup"] is False
        assert one["platformFaultDomainCount"] == 1
    group = held["virtualMachineProfile"]["capacityReservation"]["capacityReservationGroup"]["id"]
    assert group.endswith("/capacityReservationGroups/held")
    assert "capacityReservation" not in spot["virtualMachineProfile"]


def test_spot_says_its_price_and_comes_back() -> None:
    """Without a price a node is never taken for its price; a taken one is gone, counts against nothing, and is asked for again."""
    here = _set(recording_of("azure-ndv5"))
    model = here["virtualMachineProfile"]
    assert (model["priority"], model["evictionPolicy"], model["billingProfile"]) == ("Spot", "Delete", {"maxPrice": -1})
    assert here["spotRestorePolicy"] == {"enabled": True, "restoreTimeout": "PT1H"}
    named = _set(variant("reserved and spot without a fabric"), "train-gpu-spot-0")
    assert named["virtualMachineProfile"]["billingProfile"] == {"maxPrice": 2.5}


@pytest.mark.parametrize(("share", "batch"), [(1, 5), (5, 5), (20, 20), (100, 100)])
def test_a_new_model_rolls_in_batches_that_azure_takes(share: int, batch: int) -> None:
    """The pool's share, at least Azure's smallest; nodes that are ill already stop nothing, a batch that turns out ill stops the rest."""
    pool = {**POOL, "renew": {"at_once_percent": share}}
    policy = _set(recording_of_spec(parse_spec({**BASE, "pools": [pool]})))["upgradePolicy"]
    assert policy["mode"] == "Rolling"
    rolling = policy["rollingUpgradePolicy"]
    assert rolling["maxBatchInstancePercent"] == batch
    assert rolling["maxUnhealthyInstancePercent"] == 100
    assert rolling["maxUnhealthyUpgradedInstancePercent"] == 20
    assert rolling["maxSurge"] is False


def test_the_image_stays_the_one_of_the_first_day() -> None:
    """The version that the vendor's word meant is in the model, and what remembers it ignores newer answers."""
    recording = recording_of("azure-ndv4")
    reference = _set(recording)["virtualMachineProfile"]["storageProfile"]["imageReference"]
    assert reference["version"] == "22.04.2026071701"
    (pin,) = [one for one in recording.resources if one.type == "pulumi:index:Stash"]
    assert "input" in pin.ignored
    asked = [arguments for token, arguments in recording.calls if token == "gpuinfra:index:azureImageVersion"]
    assert [one["sku"] for one in asked] == ["2204"]


def test_an_image_of_ones_own_is_named_by_its_id() -> None:
    """Nobody is asked for a version of it."""
    recording = variant("own image")
    assert list(_set(recording)["virtualMachineProfile"]["storageProfile"]["imageReference"]) == ["id"]
    assert not [token for token, _ in recording.calls if token.startswith("gpuinfra:")]


def test_another_bundle_is_another_template() -> None:
    """What an instance is made from has a short name; it is the tag that membership reads, and the version that the handover wants."""
    first, second = (recording_of_spec(parse_spec({**BASE, "software": {"cuda": cuda}})) for cuda in ("13.0", "12.8"))
    names = [_set(one)["tags"]["gpuinfra:template"] for one in (first, second)]
    assert names[0] != names[1]
    for recording, name in zip((first, second), names, strict=True):
        (pool,) = recording.one("gpuinfra:index:NodesReady").inputs["pools"]
        assert pool["groups"][0]["templateVersion"] == name
        assert pool["groups"][0]["group"] == recording.one(SET).id


def test_user_data_is_small_readable_and_without_secrets() -> None:
    """What a node runs first is a bash script that names its container, its bundle and its identity, in nobody else's folder."""
    for stack in ("azure-ndv4", "azure-ndv5", "azure-existing-network"):
        recording = recording_of(stack)
        text = base64.b64decode(
            _set(recording)["virtualMachineProfile"]["osProfile"]["customData"], validate=True
        ).decode()
        assert text.startswith("#!/bin/bash")
        upload = recording.one("gpuinfra:index:Upload").inputs
        assert upload["blob"] in text
        assert upload["container"] in text
        identity = next(one for one in recording.resources if one.name == f"{spec_of(stack).name}-node-identity")
        client_id = re.search(r'"client_id": "([0-9a-f-]{36})"', text)
        assert client_id, identity.name
        assert "PRIVATE KEY" not in text
        assert "AccountKey" not in text


def test_nobody_logs_in_with_nobodys_key() -> None:
    """It is a key that OpenSSH takes, the same in every run, and made of a hash, so that no secret belongs to it."""
    key = nobodys_key()
    assert load_ssh_public_key(key.encode())
    assert key == nobodys_key()
    assert _set(variant("no storage"))["virtualMachineProfile"]["osProfile"]["linuxConfiguration"]["ssh"][
        "publicKeys"
    ] == [{"path": "/home/gpuinfra/.ssh/authorized_keys", "keyData": key}]
    declared = _set(variant("bastion, keys and operators"))["virtualMachineProfile"]["osProfile"]["linuxConfiguration"]
    assert [one["keyData"].split()[-1] for one in declared["ssh"]["publicKeys"]] == ["me"]


def _run(script: str, root: Path, node_json: str | None) -> subprocess.CompletedProcess[str]:
    """The script in a folder that stands for the root, with a cloud-init and a systemctl that write down their calls."""
    tools = root / "bin"
    tools.mkdir(parents=True)
    (root / "etc").mkdir()
    if node_json is not None:
        (root / "etc" / "node.json").write_text(node_json)
    for tool in ("cloud-init", "systemctl"):
        (tools / tool).write_text(f'#!/bin/bash\necho "{tool} $*" >>{root}/calls\n')
        (tools / tool).chmod(0o755)
    text = script.replace("/etc/gpuinfra/node.json", f"{root}/etc/node.json")
    return subprocess.run(
        ["bash", "-c", text], env={"PATH": f"{tools}:/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )


def _user_data(node_json: str, root: Path) -> str:
    return (
        f"#!/bin/bash\necho ran >>{root}/calls\nnode_json() {{\n"
        f"  cat <<'END_OF_NODE_JSON'\n{node_json}\nEND_OF_NODE_JSON\n}}\nnode_json >{root}/etc/node.json\n"
    )


def test_a_node_that_has_what_is_wanted_is_left_alone(tmp_path: Path) -> None:
    """At a first boot cloud-init has done it already: the script waits for it and changes nothing."""
    script = renewal(_user_data('{"bundle": 1}', tmp_path))
    done = _run(script, tmp_path, '{"bundle": 1}\n')
    assert (done.returncode, "has what is wanted" in done.stdout) == (0, True)
    assert (tmp_path / "calls").read_text().splitlines() == ["cloud-init status --wait"]


def test_a_node_with_another_bundle_is_brought_to_the_new_one_and_verified(tmp_path: Path) -> None:
    """The new user data runs, and the script ends when the node is verified, so that Azure's batch ends then."""
    script = renewal(_user_data('{"bundle": 2}', tmp_path))
    done = _run(script, tmp_path, '{"bundle": 1}\n')
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "etc" / "node.json").read_text() == '{"bundle": 2}\n'
    assert (tmp_path / "calls").read_text().splitlines()[-2:] == ["ran", "systemctl start gpuinfra-verify.service"]


def test_the_scripts_of_the_shipped_stack_agree_about_node_json() -> None:
    """The sum that the renewal looks for is that of the file that the user data writes."""
    inputs = _set(recording_of("azure-ndv4"))
    text = base64.b64decode(inputs["virtualMachineProfile"]["osProfile"]["customData"]).decode()
    assert _script(inputs) == renewal(text)
    with pytest.raises(ValueError, match=r"writes no node\.json"):
        renewal("#!/bin/bash\n")


def test_a_plan_counts_a_set_for_each_hundred_nodes_at_most_one_with_a_fabric() -> None:
    """A fabric above its limit is refused by a rule and never split; nodes without one fill several sets."""
    assert len(make_plan(spec_of_variant("no storage"), TODAY).pools[0].groups) == 1
    pool = {**POOL, "machine": "Standard_NC24ads_A100_v4", "capacity": [{"kind": "on_demand", "count": 601}]}
    groups = make_plan(parse_spec({**BASE, "pools": [pool]}), TODAY).pools[0].groups
    assert [group.count for group in groups] == [600, 1]
