"""Home directories on Azure: encryption, the network that reaches them, what `destroy` retains, and what nodes mount."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from gpuinfra.clouds.azure import names
from gpuinfra.clouds.azure.software import SOFTWARE
from gpuinfra.plan.make import build_plan
from tests.clouds.azure.reach import holes
from tests.clouds.azure.variants import spec_of_variant, variant
from tests.clouds.recorder import Recording, Registered
from tests.clouds.stacks import TODAY

NAME = "home directories"
ENDPOINT = "azure-native:network:PrivateEndpoint"
ACCOUNT, SERVICE, SHARE = (
    f"azure-native:storage:{kind}" for kind in ("StorageAccount", "FileServiceProperties", "FileShare")
)


def _account(made: Recording) -> Registered:
    (found,) = [one for one in made.of(ACCOUNT) if one.name == "train-homes-account"]
    return found


def _rules(made: Recording, group: str) -> dict[str, dict[str, Any]]:
    (found,) = [
        one for one in made.of("azure-native:network:NetworkSecurityGroup") if one.name == f"train-security-{group}"
    ]
    return {one["name"]: one for one in found.inputs["securityRules"]}


def test_the_account_is_private_encrypted_and_requires_tls() -> None:
    """The account of the shares has SSD storage and the data key, requires secure transfer, and denies public access and account keys."""
    inputs = _account(variant(NAME)).inputs
    assert (inputs["kind"], inputs["sku"]) == ("FileStorage", {"name": "Premium_LRS"})
    assert inputs["enableHttpsTrafficOnly"] is True
    assert inputs["publicNetworkAccess"] == "Disabled"
    assert inputs["networkRuleSet"]["defaultAction"] == "Deny"
    assert inputs["allowSharedKeyAccess"] is False
    assert inputs["encryption"]["keySource"] == "Microsoft.Keyvault"
    assert SOFTWARE.home_tls_port == 2049


def test_each_home_is_an_nfs_share_of_its_size() -> None:
    """Both file systems are NFS shares of the account, root can create homes in them, and deleted shares can be restored."""
    made = variant(NAME)
    account = _account(made).inputs["accountName"]
    shares = {one.inputs["shareName"]: one.inputs for one in made.of(SHARE)}
    assert {name: one["shareQuota"] for name, one in shares.items()} == {"home-0": 1024, "tools-0": 100}
    assert {(one["enabledProtocols"], one["rootSquash"], one["accountName"]) for one in shares.values()} == {
        ("NFS", "NoRootSquash", account)
    }
    (service,) = made.of(SERVICE)
    assert service.inputs["shareDeleteRetentionPolicy"]["enabled"] is True


def test_only_nodes_reach_the_shares_through_a_private_endpoint() -> None:
    """The account has one endpoint for files with DNS names; NFS is open from the nodes to the endpoints, and nothing is open from outside."""
    made = variant(NAME)
    endpoints = [one.inputs["privateLinkServiceConnections"][0] for one in made.of(ENDPOINT)]
    assert [one["privateLinkServiceId"] for one in endpoints if one["groupIds"] == ["file"]] == [_account(made).id]
    assert "privatelink.file.core.windows.net" in {
        one.inputs["privateZoneName"] for one in made.of("azure-native:privatedns:PrivateZone")
    }
    out, into = _rules(made, "nodes")["allow-homes-egress"], _rules(made, "endpoints")["allow-homes-ingress"]
    nodes, subnet = "10.64.32.0/19", "10.64.30.0/23"
    for rule in (out, into):
        assert (rule["protocol"], rule["destinationPortRange"], rule["access"]) == ("Tcp", "2049", "Allow")
        assert (rule["sourceAddressPrefix"], rule["destinationAddressPrefix"]) == (nodes, subnet)
    assert (out["direction"], into["direction"]) == ("Outbound", "Inbound")
    state = [{"type": one.type, "id": one.id, "inputs": one.inputs, "outputs": {}} for one in made.custom]
    assert holes(state, frozenset({"203.0.113.0/24"})) == []


def test_a_cluster_without_homes_opens_no_port_for_them() -> None:
    """Without home directories, no rule allows NFS, and no endpoint and no DNS zone for files exist."""
    made = variant("no storage")
    assert "2049" not in json.dumps(
        [one.inputs for one in made.of("azure-native:network:NetworkSecurityGroup")], default=str
    )
    assert "privatelink.file" not in json.dumps([one.inputs for one in made.custom], default=str)


def test_destroy_retains_the_shares_and_not_the_network() -> None:
    """The account, its settings and the shares stay; the endpoint, the network and the security groups are deleted."""
    made = variant(NAME)
    assert all(one.retained for token in (SERVICE, SHARE) for one in made.of(token))
    assert _account(made).retained
    for token in (ENDPOINT, "azure-native:network:VirtualNetwork", "azure-native:network:NetworkSecurityGroup"):
        assert not any(one.retained for one in made.of(token)), token


def test_nodes_find_the_shares_in_their_user_data() -> None:
    """node.json has the name of the file servers, for which the certificate is issued, and the path of each share."""
    made = variant(NAME)
    account = _account(made).inputs["accountName"]
    (group,) = made.of("azure-native:compute:VirtualMachineScaleSet")
    found = re.findall(r'"(?:userData|customData)": "([^"]+)"', json.dumps(group.inputs))
    text = "".join(base64.b64decode(one).decode("utf-8", "replace") for one in found)
    assert f'"dns_name": "{account}.file.core.windows.net"' in text
    assert f'"mount_name": "/{account}/home-0"' in text
    assert f'"mount_name": "/{account}/tools-0"' in text


def test_an_existing_network_has_an_endpoint_for_the_shares() -> None:
    """In an existing network, whose ranges are unknown, NFS is open to the network, and the endpoint is in the node subnet."""
    made = variant("home directories in an existing network")
    assert _rules(made, "nodes")["allow-homes-egress"]["destinationAddressPrefix"] == "VirtualNetwork"
    kinds = [one.inputs["privateLinkServiceConnections"][0]["groupIds"] for one in made.of(ENDPOINT)]
    assert kinds == [["blob"], ["file"]]
    plan = build_plan(spec_of_variant("home directories in an existing network"), TODAY)
    types = [one.type for one in made.custom]
    assert {type_: types.count(type_) for type_ in plan.resources} == plan.resources


def test_the_name_of_a_share_is_valid_for_each_mount() -> None:
    """A long mount path results in a name of at most 63 characters that differs from the name of a path with the same beginning."""
    long = [f"{'data-' * 20}{end}-0" for end in "ab"]
    first, second = (names.share(name) for name in long)
    assert first != second
    for name in (first, second, names.share("h-0")):
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert 3 <= len(name) <= 63
