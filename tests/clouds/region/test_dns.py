"""The DNS names that move to the second region, and the requests to Route 53. botocore's Stubber validates requests and responses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.aws.region import dns as aws_dns
from gpuinfra.clouds.aws.region.dns import HOME as HOME_TYPE
from gpuinfra.clouds.aws.region.dns import LUSTRE as LUSTRE_TYPE
from gpuinfra.clouds.aws.region.dns import MOUNT_TARGET, AwsDns
from gpuinfra.clouds.aws.region.dns import OPENZFS as OPENZFS_TYPE
from gpuinfra.clouds.azure.region import dns as azure_dns
from gpuinfra.clouds.gcp.region import dns as gcp_dns
from gpuinfra.clouds.region import dns
from gpuinfra.clouds.region.dns import Mounted
from gpuinfra.clouds.region.readiness import FAIL, OK, UNREAD, WARN, ReadinessQuestion
from gpuinfra.handover.judge import FleetVerdict, NodeVerdict
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.recovery_model import MountName, NamesPlan
from gpuinfra.spec.recovery import RecoveryNames
from tests.clouds.stacks import TODAY, spec_of

ZONE, DOMAIN = "Z0123456789ABCDEFGHIJ", "train.example.internal"
NAMES = NamesPlan(
    zone=ZONE, domain=DOMAIN, login=f"login.{DOMAIN}",
    mounts=(MountName(mount="/home", host=f"home.{DOMAIN}"), MountName(mount="/scratch", host=f"scratch.{DOMAIN}")),
)  # fmt: skip
LUSTRE, HOME = "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com", "fs-0123456789abcdef1.efs.us-east-1.amazonaws.com"
LUSTRE_ID, HOME_ID = LUSTRE.partition(".")[0], HOME.partition(".")[0]
PRIMARY, TARGETS = "10.0.1.4", ("10.0.1.5", "10.0.2.5")


def node(number: int, outcome: str = "verified") -> NodeVerdict:
    """A node that exists now."""
    return NodeVerdict(
        label=f"gpu-{number}", cloud="aws", cause=None, pool="gpu", group="gpu-0", instance_id=f"i-{number}", outcome=outcome,
        reason="", settled=True, private_ip=f"10.0.0.{number}"
    )  # fmt: skip


def fleet(*nodes: NodeVerdict, missing: int = 0) -> list[FleetVerdict]:
    """The nodes of a stack."""
    return [FleetVerdict(nodes=nodes, missing={"gpu-0": missing} if missing else {})]


def state() -> list[dict[str, Any]]:
    """A state with a Lustre file system, a home file system and a mounted bucket. The node in it was replaced since the last deployment."""
    mounts = [
        {"kind": "lustre", "mount": "/scratch", "dns_name": LUSTRE, "mount_name": "abcdefgh"},
        {"kind": "home", "mount": "/home", "dns_name": HOME, "mount_name": "/"},
        {"kind": "object", "mount": "/data", "dns_name": "s3.us-east-1.amazonaws.com", "mount_name": "data"},
    ]
    return [
        {"type": dns.CLUSTER, "outputs": {"file_systems": mounts}},
        {"type": "gpuinfra:index:NodesReady", "outputs": {"nodes": [DEAD]}},
        {"type": LUSTRE_TYPE, "id": LUSTRE_ID, "outputs": {
            "arn": f"arn:aws:fsx:us-east-1:000000000000:file-system/{LUSTRE_ID}", "dnsName": LUSTRE, "mountName": "abcdefgh",
            "networkInterfaceIds": ["eni-1", "eni-2"],
        }},
        {"type": HOME_TYPE, "id": HOME_ID, "outputs": {"dnsName": HOME}},
        *({"type": MOUNT_TARGET, "outputs": {"fileSystemId": HOME_ID, "ipAddress": one}} for one in reversed(TARGETS)),
        {"type": MOUNT_TARGET, "outputs": {"fileSystemId": "fs-other", "ipAddress": "10.0.9.9"}},
    ]  # fmt: skip


DEAD = {"label": "gpu-9", "instanceId": "i-9", "outcome": "verified", "privateIp": "10.0.0.99"}
RECORDS = [
    f'login.{DOMAIN} A 10.0.0.1',
    f"home.{DOMAIN} A {' '.join(TARGETS)}",
    f'source.home.{DOMAIN} TXT "{HOME_ID}"',
    f"scratch.{DOMAIN} A {PRIMARY}",
    f'source.scratch.{DOMAIN} TXT "{PRIMARY}@tcp:/abcdefgh"',
]  # fmt: skip


def test_names_point_to_file_systems_and_verified_nodes() -> None:
    """Machines outside the VPC need addresses. The nodes are those that are verified now, not those in the state, and a mounted bucket has no record."""
    with aws(primary()) as found:
        records = dns.records(found, NAMES, state(), fleet(node(1), node(2, "failed")))
    assert [str(one) for one in records] == RECORDS


def test_the_record_of_the_nodes_has_at_most_eight_addresses() -> None:
    """A response fits into one packet."""
    with aws() as found:
        records = dns.records(found, NAMES, [], fleet(*(node(number) for number in range(1, 20))))
    assert len(records[0].values) == 8


@pytest.mark.parametrize("nodes", [fleet(node(1, "waiting")), fleet(missing=2)])
def test_names_do_not_move_without_a_verified_node(nodes: list[FleetVerdict]) -> None:
    """If nodes are expected and none is verified, all names stay as they are, so that none points to nodes that do not exist."""
    with aws() as found, pytest.raises(DeploymentError, match=f"no node is verified, so login.{DOMAIN}"):
        dns.moved(found, NAMES, state(), nodes)


def test_a_stack_without_nodes_has_names_of_its_file_systems() -> None:
    """If no nodes are expected, for example because a reservation has not started, the names of the file systems still move."""
    for verdicts in ([], fleet()):
        with aws(primary()) as found:
            assert [one.type for one in dns.records(found, NAMES, state(), verdicts)] == ["A", "TXT", "A", "TXT"]


def test_addresses_that_cannot_be_read_are_an_error() -> None:
    """A state without network interfaces and a refused request each stop the move, and no record changes."""
    resources = state()
    resources[2]["outputs"]["networkInterfaceIds"] = []
    with aws() as found, pytest.raises(DeploymentError, match="run `pulumi refresh`"):
        dns.moved(found, NAMES, resources, fleet(node(1)))
    refused = "describe_network_interfaces", "InvalidNetworkInterfaceID.NotFound", {"NetworkInterfaceIds": ["eni-1"]}
    with aws(refused) as found, pytest.raises(DeploymentError, match="InvalidNetworkInterfaceID"):
        dns.moved(found, NAMES, state(), fleet(node(1)))


def test_a_plan_lists_the_names_of_its_own_file_systems() -> None:
    """The names of a stack are those of its nodes and of the file systems that it creates."""
    spec = spec_of("aws-recovery")
    assert spec.recovery is not None
    assert build_plan(spec, TODAY).recovery.names is None  # pyright: ignore[reportOptionalMemberAccess]
    recovery = spec.recovery.model_copy(update={"names": RecoveryNames(zone=ZONE, domain=DOMAIN)})
    planned = build_plan(spec.model_copy(update={"recovery": recovery}), TODAY).recovery
    assert planned is not None
    assert planned.names is not None
    assert planned.names.hosts == (f"login.{DOMAIN}", f"scratch.{DOMAIN}")


Answer = tuple[str, Any, dict[str, Any]]


@contextmanager
def aws(*answers: Answer) -> Iterator[AwsDns]:
    """Route 53 and EC2 with these responses, in order. All of them must be used. A string is an error code."""
    places = {"route53": "us-east-1", "ec2": "us-east-1"}
    made = {
        name: boto3.client(name, region_name=region, aws_access_key_id="a", aws_secret_access_key="b")  # pyright: ignore[reportCallIssue, reportArgumentType]
        for name, region in places.items()
    }

    def client(service: str, region: str) -> Any:
        assert places[service] == region
        return made[service]

    stubbers = {name: Stubber(one) for name, one in made.items()}
    for method, answer, expected in answers:
        stubber = next(one for one in stubbers.values() if hasattr(one.client, method))
        if isinstance(answer, str):
            stubber.add_client_error(method, answer, "refused", http_status_code=400, expected_params=expected)
        else:
            stubber.add_response(method, answer, expected)
    with stubbers["route53"], stubbers["ec2"]:
        yield AwsDns(client, "eu-west-1")
        for one in stubbers.values():
            one.assert_no_pending_responses()


def test_a_name_of_fsx_for_openzfs_points_to_its_network_interface() -> None:
    """The file system has one network interface, and the record of the source has the exported path."""
    name = "fs-0123456789abcdef2.fsx.us-east-1.amazonaws.com"
    one = {"type": OPENZFS_TYPE, "id": name.partition(".")[0], "outputs": {
        "arn": "arn:aws:fsx:us-east-1:000000000000:file-system/fs-0123456789abcdef2", "dnsName": name, "networkInterfaceIds": ["eni-1"],
    }}  # fmt: skip
    with aws(primary()) as found:
        assert found.mounted({"dns_name": name}, [one]) == Mounted(addresses=(PRIMARY,), source=f"{PRIMARY}:/fsx")


def primary() -> Answer:
    """The request for the first network interface of the Lustre file system, and its response."""
    found = {"NetworkInterfaceId": "eni-1", "PrivateIpAddress": PRIMARY}
    return "describe_network_interfaces", {"NetworkInterfaces": [found]}, {"NetworkInterfaceIds": ["eni-1"]}


def zone(name: str = f"{DOMAIN}.") -> Answer:
    """The request for the zone, and its response."""
    found = {"Id": f"/hostedzone/{ZONE}", "Name": name, "CallerReference": "r", "Config": {"PrivateZone": True}}
    return "get_hosted_zone", {"HostedZone": found}, {"Id": ZONE}


def listed(name: str, type_: str, *values: str, found: str = "") -> Answer:
    """The request for one record, and its response."""
    rows = [
        {"Name": f"{found or name}.", "Type": type_, "TTL": 60, "ResourceRecords": [{"Value": one} for one in values]}
    ]
    answer = {"ResourceRecordSets": rows if values else [], "IsTruncated": False, "MaxItems": "1"}
    return (
        "list_resource_record_sets", answer,
        {"HostedZoneId": ZONE, "StartRecordName": name, "StartRecordType": type_, "MaxItems": "1"},
    )  # fmt: skip


def test_all_records_change_in_one_request() -> None:
    """Route 53 applies all changes of a request or none, so the names never point to two regions."""
    with aws(primary()) as found:
        wanted = dns.records(found, NAMES, state(), fleet(node(1)))
    changes = [
        {"Action": "UPSERT", "ResourceRecordSet": {"Name": one.name, "Type": one.type, "TTL": 60,
            "ResourceRecords": [{"Value": value} for value in one.values]}}
        for one in wanted
    ]  # fmt: skip
    answer = {"ChangeInfo": {"Id": "/change/C1", "Status": "PENDING", "SubmittedAt": "2026-11-27T00:00:00Z"}}
    change = "change_resource_record_sets", answer, {"HostedZoneId": ZONE, "ChangeBatch": {"Changes": changes}}
    with aws(primary(), change) as found:
        assert dns.moved(found, NAMES, state(), fleet(node(1))) == wanted


def test_a_state_without_targets_changes_no_name() -> None:
    """Without a file system and without nodes, no request is sent."""
    with aws() as found, pytest.raises(DeploymentError, match="contain no file system and no node"):
        dns.moved(found, NAMES, [], [])


def test_the_next_record_is_not_the_requested_one() -> None:
    """A list starts at the next record if the requested one does not exist."""
    keys = [(f"login.{DOMAIN}", "A"), (f"home.{DOMAIN}", "A")]
    answers = [listed(*keys[0], "10.0.0.9", found=f"z.{DOMAIN}"), listed(*keys[1], *reversed(TARGETS))]
    with aws(*answers) as found:
        assert found.values(ZONE, keys) == {keys[1]: TARGETS}


def test_an_alias_record_has_its_target_as_value() -> None:
    """An alias record has no values, so its target is the value that a change replaces."""
    alias = {"HostedZoneId": "Z1", "DNSName": "lb.example.com.", "EvaluateTargetHealth": False}
    method, answer, expected = listed(f"login.{DOMAIN}", "A")
    answer["ResourceRecordSets"] = [{"Name": f"login.{DOMAIN}.", "Type": "A", "AliasTarget": alias}]
    with aws((method, answer, expected)) as found:
        key = (f"login.{DOMAIN}", "A")
        assert found.values(ZONE, [key]) == {key: ("ALIAS lb.example.com",)}


def lines(
    *answers: Answer, resources: list[dict[str, Any]], verdicts: Sequence[FleetVerdict] = ()
) -> list[tuple[str, str, str]]:
    """Name, state and reason of each line."""
    spec = spec_of("aws-recovery")
    assert spec.recovery is not None
    recovery = spec.recovery.model_copy(update={"names": RecoveryNames(zone=ZONE, domain=DOMAIN)})
    plan = build_plan(spec.model_copy(update={"recovery": recovery}), TODAY)
    assert plan.recovery is not None
    asked = ReadinessQuestion(
        region="us-east-1",
        recovery=plan.recovery,
        rpo_minutes=90,
        resources=resources,
        config={},
        verdicts=lambda: verdicts,
    )
    with aws(*answers) as found:
        return [(one.name, one.state, one.reason) for one in dns.lines(asked, found)]


KEYS = [(f"scratch.{DOMAIN}", "A"), (f"source.scratch.{DOMAIN}", "TXT")]
RIGHT = (listed(*KEYS[0], PRIMARY), listed(*KEYS[1], f'"{PRIMARY}@tcp:/abcdefgh"'))


def test_names_of_another_region_are_a_warning() -> None:
    """`ready` reports each name that is missing or has another value, and the command that changes it."""
    found = lines(zone(), primary(), listed(*KEYS[0], "10.9.9.9"), listed(*KEYS[1]), resources=state())
    assert [one[:2] for one in found] == [(KEYS[0][0], WARN), (KEYS[1][0], WARN)]
    assert found[0][2] == f"points to 10.9.9.9, not to {PRIMARY}"
    assert found[1][2] == "does not exist"
    assert {one[1] for one in lines(zone("example.internal."), primary(), *RIGHT, resources=state())} == {OK}


def test_the_address_of_a_replaced_node_is_a_warning() -> None:
    """`ready` compares the name of the nodes with the nodes that are verified now, and reports if there are none."""
    login = listed(f"login.{DOMAIN}", "A", str(DEAD["privateIp"]))
    found = lines(zone(), primary(), login, *RIGHT, resources=state(), verdicts=fleet(node(1)))
    assert found[0] == (f"login.{DOMAIN}", WARN, "points to 10.0.0.99, not to 10.0.0.1")
    found = lines(zone(), primary(), *RIGHT, resources=state(), verdicts=fleet(node(1, "waiting")))
    assert found[0][:2] == (f"login.{DOMAIN}", WARN)
    assert found[0][2].startswith("no node in us-east-1 is verified")


def test_a_zone_that_does_not_contain_the_names_is_a_failure() -> None:
    """A missing zone and a zone with another domain each have one line, and a refused request is unread."""
    missing: Answer = ("get_hosted_zone", "NoSuchHostedZone", {"Id": ZONE})
    assert [one[1:] for one in lines(missing, resources=[])] == [(FAIL, f"the zone {ZONE} does not exist")]
    ((_, state_, reason),) = lines(zone("ain.example.internal."), resources=[])
    assert (state_, reason) == (FAIL, f"is not in the zone {ZONE}, whose domain is ain.example.internal")
    refused: Answer = ("get_hosted_zone", "AccessDenied", {"Id": ZONE})
    assert [one[1] for one in lines(refused, resources=[])] == [UNREAD]


def test_records_are_changed_where_the_control_plane_is() -> None:
    """The control plane of a partition is in one Region."""
    for region, control in {"eu-west-1": "us-east-1", "us-gov-east-1": "us-gov-west-1"}.items():
        assert AwsDns(lambda *_: None, region).control_plane == control
        assert aws_dns.control_plane(region) == control
    assert gcp_dns.control_plane("us-central1") == "Cloud DNS"
    assert azure_dns.control_plane("eastus") == "Azure Resource Manager"
