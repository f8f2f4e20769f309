"""The DNS names that move to the second region, and the requests to Route 53. botocore's Stubber validates requests and responses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from gpuinfra.clouds import dns
from gpuinfra.clouds.aws.dns import AwsDns
from gpuinfra.clouds.readiness import FAIL, OK, UNREAD, WARN, Question
from gpuinfra.errors import DeploymentError
from gpuinfra.plan.model import MountName, NamesPlan
from gpuinfra.planning import make_plan
from gpuinfra.spec.recovery import RecoveryNames
from tests.clouds.stacks import TODAY, spec_of

ZONE, DOMAIN = "Z0123456789ABCDEFGHIJ", "train.example.internal"
NAMES = NamesPlan(
    zone=ZONE, domain=DOMAIN, login=f"login.{DOMAIN}",
    mounts=(MountName(mount="/home", host=f"home.{DOMAIN}"), MountName(mount="/scratch", host=f"scratch.{DOMAIN}")),
)  # fmt: skip
LUSTRE, HOME = "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com", "fs-0123456789abcdef1.efs.us-east-1.amazonaws.com"


def node(number: int, outcome: str = "verified") -> dict[str, Any]:
    """A node in the state."""
    return {"label": f"gpu-{number}", "instanceId": f"i-{number}", "outcome": outcome, "privateIp": f"10.0.0.{number}"}


def state(*nodes: dict[str, Any]) -> list[dict[str, Any]]:
    """A state with these nodes, a Lustre file system, a home file system and a mounted bucket."""
    mounts = [
        {"kind": "lustre", "mount": "/scratch", "dns_name": LUSTRE, "mount_name": "abcdefgh"},
        {"kind": "home", "mount": "/home", "dns_name": HOME, "mount_name": "/"},
        {"kind": "object", "mount": "/data", "dns_name": "s3.us-east-1.amazonaws.com", "mount_name": "data"},
    ]
    return [
        {"type": dns.CLUSTER, "outputs": {"file_systems": mounts}},
        {"type": "gpuinfra:index:NodesReady", "outputs": {"nodes": list(nodes)}},
    ]


RECORDS = [
    f'login.{DOMAIN} A 10.0.0.1',
    f"home.{DOMAIN} CNAME {HOME}",
    f"scratch.{DOMAIN} CNAME {LUSTRE}",
    f'source.scratch.{DOMAIN} TXT "{LUSTRE}@tcp:/abcdefgh"',
]  # fmt: skip


def test_names_point_to_file_systems_and_verified_nodes() -> None:
    """A node that is not verified and a mounted bucket have no record, and the mount source of Lustre contains its mount name."""
    found = dns.records(NAMES, state(node(1), node(2, "failed")))
    assert [str(one) for one in found] == RECORDS


def test_the_record_of_the_nodes_has_at_most_eight_addresses() -> None:
    """A response fits into one packet."""
    found = dns.records(NAMES, state(*(node(number) for number in range(1, 20))))
    assert len(found[0].values) == 8


def test_names_in_the_state_of_two_stacks() -> None:
    """In mode pilot-light, one stack has the file systems and another one has the nodes."""
    site, nodes = state(node(1))
    assert [one.type for one in dns.records(NAMES, [nodes])] == ["A"]
    assert [one.type for one in dns.records(NAMES, [site])] == ["CNAME", "CNAME", "TXT"]
    assert len(dns.records(NAMES, [nodes, site])) == 4


def test_a_plan_lists_the_names_of_its_own_file_systems() -> None:
    """The names of a stack are those of its nodes and of the file systems that it creates."""
    spec = spec_of("aws-recovery")
    assert spec.recovery is not None
    assert make_plan(spec, TODAY).recovery.names is None  # pyright: ignore[reportOptionalMemberAccess]
    recovery = spec.recovery.model_copy(update={"names": RecoveryNames(zone=ZONE, domain=DOMAIN)})
    planned = make_plan(spec.model_copy(update={"recovery": recovery}), TODAY).recovery
    assert planned is not None
    assert planned.names is not None
    assert planned.names.hosts == (f"login.{DOMAIN}", f"scratch.{DOMAIN}")


@contextmanager
def route53(*answers: tuple[str, Any, dict[str, Any]]) -> Iterator[AwsDns]:
    """Route 53 with these responses, in order. All of them must be used. A string is an error code."""
    made = boto3.client("route53", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")

    def client(service: str, region: str) -> Any:
        assert (service, region) == ("route53", "us-east-1")
        return made

    with Stubber(made) as stubber:
        for method, answer, expected in answers:
            if isinstance(answer, str):
                stubber.add_client_error(method, answer, "refused", http_status_code=400, expected_params=expected)
            else:
                stubber.add_response(method, answer, expected)
        yield AwsDns(client, "eu-west-1")
        stubber.assert_no_pending_responses()


def zone(name: str = f"{DOMAIN}.") -> tuple[str, Any, dict[str, Any]]:
    """The request for the zone, and its response."""
    found = {"Id": f"/hostedzone/{ZONE}", "Name": name, "CallerReference": "r", "Config": {"PrivateZone": True}}
    return "get_hosted_zone", {"HostedZone": found}, {"Id": ZONE}


def listed(name: str, type_: str, *values: str, found: str = "") -> tuple[str, Any, dict[str, Any]]:
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
    wanted = dns.records(NAMES, state(node(1)))
    changes = [
        {"Action": "UPSERT", "ResourceRecordSet": {"Name": one.name, "Type": one.type, "TTL": 60, "ResourceRecords": [{"Value": value} for value in one.values]}}
        for one in wanted
    ]  # fmt: skip
    answer = {"ChangeInfo": {"Id": "/change/C1", "Status": "PENDING", "SubmittedAt": "2026-11-27T00:00:00Z"}}
    with route53(
        ("change_resource_record_sets", answer, {"HostedZoneId": ZONE, "ChangeBatch": {"Changes": changes}})
    ) as found:
        assert dns.moved(found, NAMES, state(node(1))) == wanted


def test_a_state_without_targets_changes_no_name() -> None:
    """Without a file system and without a verified node, no request is sent."""
    with route53() as found, pytest.raises(DeploymentError, match="contain no file system and no verified node"):
        dns.moved(found, NAMES, [])


def test_the_next_record_is_not_the_requested_one() -> None:
    """A list starts at the next record if the requested one does not exist."""
    keys = [(f"login.{DOMAIN}", "A"), (f"home.{DOMAIN}", "CNAME")]
    answers = [listed(*keys[0], "10.0.0.9", found=f"z.{DOMAIN}"), listed(*keys[1], f"{HOME}.")]
    with route53(*answers) as found:
        assert found.values(ZONE, keys) == {keys[1]: (HOME,)}


def lines(*answers: tuple[str, Any, dict[str, Any]], resources: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Name, state and reason of each line."""
    spec = spec_of("aws-recovery")
    assert spec.recovery is not None
    recovery = spec.recovery.model_copy(update={"names": RecoveryNames(zone=ZONE, domain=DOMAIN)})
    plan = make_plan(spec.model_copy(update={"recovery": recovery}), TODAY)
    assert plan.recovery is not None
    asked = Question(region="us-east-1", recovery=plan.recovery, rpo_minutes=90, resources=resources, config={})
    with route53(*answers) as found:
        return [(one.name, one.state, one.reason) for one in dns.lines(asked, found)]


def test_names_of_another_region_are_a_warning() -> None:
    """`ready` reports each name that is missing or has another value, and the command that changes it."""
    site = state()[:1]
    keys = [(f"scratch.{DOMAIN}", "CNAME"), (f"source.scratch.{DOMAIN}", "TXT")]
    found = lines(zone(), listed(*keys[0], "other.example.com"), listed(*keys[1]), resources=site)
    assert [one[:2] for one in found] == [(keys[0][0], WARN), (keys[1][0], WARN)]
    assert found[0][2] == f"points to other.example.com, not to {LUSTRE}"
    assert found[1][2] == "does not exist"
    right = (listed(*keys[0], LUSTRE), listed(*keys[1], f'"{LUSTRE}@tcp:/abcdefgh"'))
    assert {one[1] for one in lines(zone("example.internal."), *right, resources=site)} == {OK}


def test_a_zone_that_does_not_contain_the_names_is_a_failure() -> None:
    """A missing zone and a zone with another domain each have one line, and a refused request is unread."""
    missing: tuple[str, Any, dict[str, Any]] = ("get_hosted_zone", "NoSuchHostedZone", {"Id": ZONE})
    assert [one[1:] for one in lines(missing, resources=[])] == [(FAIL, f"the zone {ZONE} does not exist")]
    ((_, state_, reason),) = lines(zone("ain.example.internal."), resources=[])
    assert (state_, reason) == (FAIL, f"is not in the zone {ZONE}, whose domain is ain.example.internal")
    refused: tuple[str, Any, dict[str, Any]] = ("get_hosted_zone", "AccessDenied", {"Id": ZONE})
    assert [one[1] for one in lines(refused, resources=[])] == [UNREAD]


def test_records_are_changed_where_the_control_plane_is() -> None:
    """The control plane of a partition is in one Region."""
    for region, control in {"eu-west-1": "us-east-1", "us-gov-east-1": "us-gov-west-1"}.items():
        assert AwsDns(lambda *_: None, region).control_region == control
