"""Home directories on Azure NetApp Files: size, exports, the network that reaches them, what `destroy` retains, and what nodes mount."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from gpuinfra.plan.make import build_plan
from tests.clouds.azure.reach import holes
from tests.clouds.azure.variants import spec_of_variant, variant
from tests.clouds.recorder import Recording
from tests.clouds.stacks import TODAY
from tests.permissions.needed import permissions_of

NAME, IN_EXISTING = "netapp", "netapp in an existing network"
ACCOUNT, POOL, VOLUME, SNAPSHOTS = (
    f"azure-native:netapp:{kind}" for kind in ("Account", "CapacityPool", "CapacityPoolVolume", "SnapshotPolicy")
)
SUBNET, GROUP = "azure-native:network:Subnet", "azure-native:network:NetworkSecurityGroup"
NODES, DELEGATED = "10.64.32.0/19", "10.64.26.0/23"
TIB = 2**40


def _volumes(made: Recording) -> dict[str, dict[str, Any]]:
    return {one.inputs["volumeName"]: one.inputs for one in made.of(VOLUME)}


def _rules(made: Recording, name: str) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in made.one(GROUP, name).inputs["securityRules"]}


def test_each_home_is_a_volume_that_uses_all_of_its_pool() -> None:
    """A pool is billed in increments of 1 TiB, so the pool and its volume have the next multiple of the declared size, at the declared level."""
    made = variant(NAME)
    pools = {one.inputs["poolName"]: one.inputs for one in made.of(POOL)}
    assert {name: (one["size"], one["serviceLevel"]) for name, one in pools.items()} == {
        "home-0": (TIB, "Premium"), "tools-0": (2 * TIB, "Ultra"),
    }  # fmt: skip
    for name, one in _volumes(made).items():
        assert (one["poolName"], one["usageThreshold"], one["serviceLevel"]) == (name, pools[name]["size"], pools[name]["serviceLevel"])  # fmt: skip
    assert {one.inputs["accountName"] for token in (POOL, VOLUME) for one in made.of(token)} == {
        made.one(ACCOUNT).inputs["accountName"]
    }


def test_paths_are_unique_in_the_network() -> None:
    """The paths contain the token of the stack, because two stacks can share a delegated subnet."""
    paths = {one["creationToken"] for one in _volumes(variant(NAME)).values()}
    assert len(paths) == 2
    assert not paths & {"home-0", "tools-0"}
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,79}", one) for one in paths)


def test_volumes_are_exported_over_nfs_3_to_the_nodes_with_root_access() -> None:
    """The export policy allows the range of the node subnet only, and root can create home directories."""
    for one in _volumes(variant(NAME)).values():
        assert one["protocolTypes"] == ["NFSv3"]
        (rule,) = one["exportPolicy"]["rules"]
        assert rule["allowedClients"] == NODES
        assert (rule["nfsv3"], rule["nfsv41"], rule["cifs"]) == (True, False, False)
        assert (rule["unixReadWrite"], rule["hasRootAccess"]) == (True, True)


def test_only_nodes_reach_the_delegated_subnet() -> None:
    """One subnet is delegated to the service. Its security group allows the ports of NFS 3 from the nodes only, and nothing is open from outside."""
    made = variant(NAME)
    (subnet,) = [one for one in made.of(SUBNET) if one.inputs.get("delegations")]
    assert [one["serviceName"] for one in subnet.inputs["delegations"]] == ["Microsoft.Netapp/volumes"]
    assert subnet.inputs["addressPrefix"] == DELEGATED
    assert {(one["subnetId"], one["networkFeatures"]) for one in _volumes(made).values()} == {(subnet.id, "Standard")}
    group = made.one(GROUP, "train-security-netapp")
    assert subnet.inputs["networkSecurityGroup"] == {"id": group.id}
    into = _rules(made, "train-security-netapp")["allow-netapp-ingress"]
    out = _rules(made, "train-security-nodes")["allow-netapp-egress"]
    for rule in (into, out):
        assert rule["destinationPortRanges"] == ["111", "635", "2049", "4045-4046"]
        assert (rule["sourceAddressPrefix"], rule["destinationAddressPrefix"]) == (NODES, DELEGATED)
    state = [{"type": one.type, "id": one.id, "inputs": one.inputs, "outputs": {}} for one in made.custom]
    assert holes(state, frozenset({"203.0.113.0/24"})) == []


def test_daily_snapshots_are_taken_if_declared() -> None:
    """A snapshot policy with the declared number of snapshots exists for the home that declares it only."""
    made = variant(NAME)
    policy = made.one(SNAPSHOTS)
    assert policy.inputs["dailySchedule"]["snapshotsToKeep"] == 7
    protection = {name: one.get("dataProtection") for name, one in _volumes(made).items()}
    assert protection == {"home-0": {"snapshot": {"snapshotPolicyId": policy.id}}, "tools-0": None}


def test_destroy_retains_the_volumes_with_their_network() -> None:
    """The volumes have network interfaces in the delegated subnet, so the subnet, its group and the network stay; the nodes' group does not."""
    made = variant(NAME)
    assert all(one.retained for token in (ACCOUNT, POOL, VOLUME, SNAPSHOTS) for one in made.of(token))
    (subnet,) = [one for one in made.of(SUBNET) if one.inputs.get("delegations")]
    assert subnet.retained
    assert made.one(GROUP, "train-security-netapp").retained
    assert made.one("azure-native:network:VirtualNetwork").retained
    assert made.one("azure-native:resources:ResourceGroup", "train-site").retained
    assert not made.one(GROUP, "train-security-nodes").retained


def test_nodes_find_the_volumes_in_their_user_data() -> None:
    """node.json has the address of the file server and the path of each volume, and nodes mount it with NFS 3 and without TLS."""
    made = variant(NAME)
    (group,) = made.of("azure-native:compute:VirtualMachineScaleSet")
    found = re.findall(r'"(?:userData|customData)": "([^"]+)"', json.dumps(group.inputs))
    text = "".join(base64.b64decode(one).decode("utf-8", "replace") for one in found)
    for one in _volumes(made).values():
        assert f'"mount_name": "/{one["creationToken"]}"' in text
    (pool,) = build_plan(spec_of_variant(NAME), TODAY).pools
    assert [one.split()[:2] for one in pool.versions["HOMES"].split("; ")] == [["/home", "plain"], ["/tools", "plain"]]
    assert "vers=3" in pool.versions["HOMES"]
    assert "HOME_TLS_PORT" not in pool.versions


def test_an_existing_network_provides_the_delegated_subnet() -> None:
    """In an existing network, the volume is in the subnet `netapp-0` of the declaration, and NFS is open to the network."""
    made = variant(IN_EXISTING)
    (volume,) = _volumes(made).values()
    assert volume["subnetId"].endswith("/virtualNetworks/corp/subnets/anf")
    assert not made.of(SUBNET)
    assert _rules(made, "train-security-nodes")["allow-netapp-egress"]["destinationAddressPrefix"] == "VirtualNetwork"
    assert [one.name for one in made.of(GROUP)] == ["train-security-nodes"]


def test_the_permissions_name_the_resource_provider() -> None:
    """`gpuinfra doctor` derives the resource providers that must be registered from the permissions."""
    namespaces = {
        name: {need.action.partition("/")[0] for need in permissions_of(build_plan(spec_of_variant(name), TODAY)).needs}
        for name in (NAME, "home directories")
    }
    assert namespaces[NAME] - namespaces["home directories"] == {"Microsoft.NetApp"}


def test_a_cluster_without_volumes_opens_no_port_for_them() -> None:
    """Without Azure NetApp Files, no subnet is delegated to it, and no rule allows its ports."""
    made = variant("home directories")
    text = json.dumps([one.inputs for one in made.custom], default=str)
    assert "etapp" not in text
    assert "4045-4046" not in text
