"""Scale sets of a pool: creation, rolling upgrades, and updates of the bundle."""

from __future__ import annotations

import base64
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from gpuinfra.clouds.azure.components.model import placeholder_key
from gpuinfra.clouds.azure.renew import renewal
from gpuinfra.plan.make import build_plan
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


def test_a_fabric_is_one_placement_group() -> None:
    """The single placement group is always set, also in a zone, where its default is false."""
    here = _set(recording_of("azure-ndv5"))
    assert here["zones"] == ["3"]
    assert here["singlePlacementGroup"] is True
    assert here["platformFaultDomainCount"] == 5
    assert "platformFaultDomainCount" not in _set(recording_of("azure-ndv4"))


def test_every_size_with_infiniband_is_one_scale_set() -> None:
    """A100, H100 and H200 use a uniform scale set with a single placement group, no reservation and no public address."""
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
    """Azure spreads such nodes over racks; a reservation allows no placement group."""
    recording = variant("reserved and spot without a fabric")
    held, spot = _set(recording, "train-gpu-reserved-0"), _set(recording, "train-gpu-spot-0")
    for one in (held, spot):
        assert one["singlePlacementGroup"] is False
        assert one["platformFaultDomainCount"] == 1
    group = held["virtualMachineProfile"]["capacityReservation"]["capacityReservationGroup"]["id"]
    assert group.endswith("/capacityReservationGroups/held")
    assert "capacityReservation" not in spot["virtualMachineProfile"]


def test_spot_nodes_have_a_price_limit_and_are_restored() -> None:
    """Without a price, Azure evicts no node for its price; it deletes evicted nodes and tries to restore them."""
    here = _set(recording_of("azure-ndv5"))
    model = here["virtualMachineProfile"]
    assert (model["priority"], model["evictionPolicy"], model["billingProfile"]) == ("Spot", "Delete", {"maxPrice": -1})
    assert here["spotRestorePolicy"] == {"enabled": True, "restoreTimeout": "PT1H"}
    named = _set(variant("reserved and spot without a fabric"), "train-gpu-spot-0")
    assert named["virtualMachineProfile"]["billingProfile"] == {"maxPrice": 2.5}


@pytest.mark.parametrize(("share", "batch"), [(1, 5), (5, 5), (20, 20), (100, 100)])
def test_rolling_upgrades_use_the_batch_size_of_the_pool(share: int, batch: int) -> None:
    """The batch has Azure's minimum; unhealthy nodes do not stop the upgrade, but an unhealthy batch does."""
    pool = {**POOL, "renew": {"at_once_percent": share}}
    policy = _set(recording_of_spec(parse_spec({**BASE, "pools": [pool]})))["upgradePolicy"]
    assert policy["mode"] == "Rolling"
    rolling = policy["rollingUpgradePolicy"]
    assert rolling["maxBatchInstancePercent"] == batch
    assert rolling["maxUnhealthyInstancePercent"] == 100
    assert rolling["maxUnhealthyUpgradedInstancePercent"] == 20
    assert rolling["maxSurge"] is False


def test_the_image_version_is_pinned() -> None:
    """The profile has the version that was resolved first, and the stash ignores newer versions."""
    recording = recording_of("azure-ndv4")
    reference = _set(recording)["virtualMachineProfile"]["storageProfile"]["imageReference"]
    assert reference["version"] == "22.04.2026071701"
    (pin,) = [one for one in recording.resources if one.type == "pulumi:index:Stash"]
    assert "input" in pin.ignored
    asked = [arguments for token, arguments in recording.calls if token == "gpuinfra:index:azureImageVersion"]
    assert [one["sku"] for one in asked] == ["2204"]


def test_a_custom_image_is_referenced_by_id() -> None:
    """No version is resolved for it."""
    recording = variant("custom image")
    assert list(_set(recording)["virtualMachineProfile"]["storageProfile"]["imageReference"]) == ["id"]
    assert not [token for token, _ in recording.calls if token.startswith("gpuinfra:")]


def test_another_bundle_results_in_another_template_hash() -> None:
    """The hash is the tag of the scale set and the version that the handover expects."""
    first, second = (recording_of_spec(parse_spec({**BASE, "software": {"cuda": cuda}})) for cuda in ("13.0", "12.8"))
    names = [_set(one)["tags"]["gpuinfra:template"] for one in (first, second)]
    assert names[0] != names[1]
    for recording, name in zip((first, second), names, strict=True):
        (pool,) = recording.one("gpuinfra:index:NodesReady").inputs["pools"]
        assert pool["groups"][0]["templateVersion"] == name
        assert pool["groups"][0]["group"] == recording.one(SET).id


def test_user_data_is_a_script_without_secrets() -> None:
    """User data is a bash script that contains the container, the bundle and the identity."""
    for stack in ("azure-ndv4", "azure-ndv5", "azure-existing-network"):
        recording = recording_of(stack)
        text = base64.b64decode(
            _set(recording)["virtualMachineProfile"]["osProfile"]["customData"], validate=True
        ).decode()
        assert text.startswith("#cloud-boothook\n#!/bin/bash\n")
        upload = recording.one("gpuinfra:index:Upload").inputs
        assert upload["blob"] in text
        assert upload["container"] in text
        identity = next(one for one in recording.resources if one.name == f"{spec_of(stack).name}-node-identity")
        client_id = re.search(r'"client_id": "([0-9a-f-]{36})"', text)
        assert client_id, identity.name
        assert "PRIVATE KEY" not in text
        assert "AccountKey" not in text


def test_the_placeholder_key_is_valid_and_stable() -> None:
    """OpenSSH accepts the key, every run generates the same one, and declared keys replace it."""
    key = placeholder_key()
    assert load_ssh_public_key(key.encode())
    assert key == placeholder_key()
    assert _set(variant("no storage"))["virtualMachineProfile"]["osProfile"]["linuxConfiguration"]["ssh"][
        "publicKeys"
    ] == [{"path": "/home/gpuinfra/.ssh/authorized_keys", "keyData": key}]
    declared = _set(variant("bastion, keys and operators"))["virtualMachineProfile"]["osProfile"]["linuxConfiguration"]
    assert [one["keyData"].split()[-1] for one in declared["ssh"]["publicKeys"]] == ["me"]


def _run(script: str, root: Path, node_json: str | None) -> subprocess.CompletedProcess[str]:
    """Run the script in a folder instead of the root, with a cloud-init and a systemctl that record their calls."""
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


def test_renewal_changes_nothing_on_a_current_node(tmp_path: Path) -> None:
    """At the first boot, the script waits for cloud-init and changes nothing."""
    script = renewal(_user_data('{"bundle": 1}', tmp_path))
    done = _run(script, tmp_path, '{"bundle": 1}\n')
    assert (done.returncode, "is up to date" in done.stdout) == (0, True)
    assert (tmp_path / "calls").read_text().splitlines() == ["cloud-init status --wait"]


def test_renewal_updates_a_node_and_does_not_wait_for_its_units(tmp_path: Path) -> None:
    """The script runs the new user data and exits, because a step can reboot the node and Azure does not run the script again."""
    script = renewal(_user_data('{"bundle": 2}', tmp_path))
    done = _run(script, tmp_path, '{"bundle": 1}\n')
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "etc" / "node.json").read_text() == '{"bundle": 2}\n'
    assert (tmp_path / "calls").read_text().splitlines() == ["cloud-init status --wait", "ran"]


def test_the_first_batch_is_a_canary() -> None:
    """One batch is upgraded, and the next one waits until the new state of the first is known; 20 % unhealthy nodes stop the upgrade."""
    inputs = _set(recording_of("azure-ndv4"))
    health = next(
        one for one in inputs["virtualMachineProfile"]["extensionProfile"]["extensions"] if "Health" in one["type"]
    )
    policy = inputs["upgradePolicy"]["rollingUpgradePolicy"]
    known_s = health["settings"]["intervalInSeconds"] * health["settings"]["numberOfProbes"]
    assert policy["pauseTimeBetweenBatches"] == "PT2M"
    assert known_s <= 60
    assert (inputs["upgradePolicy"]["mode"], policy["maxUnhealthyUpgradedInstancePercent"]) == ("Rolling", 20)
    assert policy["maxBatchInstancePercent"] < 50


def test_renewal_compares_the_node_json_of_user_data() -> None:
    """The checksum in the script is that of the file that user data writes."""
    inputs = _set(recording_of("azure-ndv4"))
    text = base64.b64decode(inputs["virtualMachineProfile"]["osProfile"]["customData"]).decode()
    assert _script(inputs) == renewal(text)
    with pytest.raises(ValueError, match=r"writes no node\.json"):
        renewal("#!/bin/bash\n")


def test_large_pools_without_a_fabric_have_several_scale_sets() -> None:
    """A fabric is never split; a rule rejects one that is too large."""
    assert len(build_plan(spec_of_variant("no storage"), TODAY).pools[0].groups) == 1
    pool = {**POOL, "machine": "Standard_NC24ads_A100_v4", "capacity": [{"kind": "on_demand", "count": 601}]}
    groups = build_plan(parse_spec({**BASE, "pools": [pool]}), TODAY).pools[0].groups
    assert [group.count for group in groups] == [600, 1]
