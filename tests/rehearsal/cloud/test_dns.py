"""Route 53 of the stand-in cloud, with the requests of `gpuinfra names` and botocore's parser.

The message about conflicting record types is recorded in ansible-collections/amazon.aws issue 2694.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuinfra.clouds.aws.dns import AwsDns, connect
from gpuinfra.clouds.dns import NameRecord
from gpuinfra.clouds.failover import Unreachable
from gpuinfra.clouds.permissions import permissions_of
from gpuinfra.errors import DeploymentError
from gpuinfra.planning import make_plan
from gpuinfra.rehearsal import endpoints
from gpuinfra.rehearsal.cloud.core import outage, registry
from gpuinfra.rehearsal.cloud.core.cloud import Cloud
from gpuinfra.rehearsal.cloud.core.operator import Operator
from gpuinfra.rehearsal.cloud.core.server import Server
from gpuinfra.spec.recovery import RecoveryNames
from tests.clouds.stacks import TODAY, spec_of

ZONE, DOMAIN = "Z0123456789ABCDEFGHIJ", "train.example.internal"
NODES = NameRecord(name=f"login.{DOMAIN}", type="A", values=("10.0.0.1", "10.0.0.2"))
HOST = NameRecord(name=f"scratch.{DOMAIN}", type="A", values=("10.0.1.4",))
SOURCE = NameRecord(name=f"source.scratch.{DOMAIN}", type="TXT", values=('"10.0.1.4@tcp:/a"',))
KEYS = [NODES.key, HOST.key, SOURCE.key]


@pytest.fixture
def route53(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsDns]:
    """The client of the program, whose requests go to the stand-in cloud."""
    server = Server(cloud, "token")
    server.start()
    known = {one.name: one.operator_credentials(cloud) for one in registry.installed()}
    for name, value in endpoints.of_operator(cloud.endpoint, known, "aws", "us-east-1").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    yield connect("us-west-2", {})
    server.shutdown()
    server.server_close()


def test_records_of_a_described_zone_are_replaced(cloud: Cloud, route53: AwsDns) -> None:
    """A zone exists once the control interface describes it. Its records are created and replaced, and are listed by name and type."""
    assert route53.zone_name(ZONE) is None
    cloud.store.put("external", ZONE, {"domain": DOMAIN})
    assert route53.zone_name(ZONE) == DOMAIN
    assert route53.values(ZONE, KEYS) == {}
    route53.point(ZONE, [NODES, HOST, SOURCE])
    assert route53.values(ZONE, KEYS) == {one.key: one.values for one in (NODES, HOST, SOURCE)}
    moved = NameRecord(name=HOST.name, type="A", values=("10.1.1.4",))
    route53.point(ZONE, [moved])
    assert route53.values(ZONE, KEYS) == {NODES.key: NODES.values, HOST.key: moved.values, SOURCE.key: SOURCE.values}


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (NameRecord(name=f"login.{DOMAIN}", type="CNAME", values=("a.example.com",)), "conflicts with other records"),
        (NameRecord(name="login.other.internal", type="A", values=("10.0.0.3",)), "is not permitted in zone"),
    ],
)
def test_a_refused_record_changes_no_record(cloud: Cloud, route53: AwsDns, record: NameRecord, text: str) -> None:
    """If Route 53 refuses one change of a request, it applies none of them."""
    cloud.store.put("external", ZONE, {"domain": DOMAIN})
    route53.point(ZONE, [NODES])
    with pytest.raises(DeploymentError, match=text):
        route53.point(ZONE, [HOST, record])
    assert route53.values(ZONE, KEYS) == {NODES.key: NODES.values}


def test_records_cannot_be_changed_without_us_east_1(cloud: Cloud, route53: AwsDns) -> None:
    """The control plane is in us-east-1 for a stack in another Region, and an outage of the stack's Region has no effect."""
    cloud.store.put("external", ZONE, {"domain": DOMAIN})
    with cloud.store.change():
        outage.begin(cloud.store, "us-west-2")
    route53.point(ZONE, [NODES])
    with cloud.store.change():
        outage.begin(cloud.store, "us-east-1")
    with pytest.raises(Unreachable):
        route53.point(ZONE, [NODES])


def test_only_the_records_of_the_names_can_be_changed(cloud: Cloud, route53: AwsDns) -> None:
    """The printed policies allow changes of the declared names and types, and no other record of the zone."""
    spec = spec_of("aws-recovery")
    assert spec.recovery is not None
    names = RecoveryNames(zone=ZONE, domain=DOMAIN)
    plan = make_plan(spec.model_copy(update={"recovery": spec.recovery.model_copy(update={"names": names})}), TODAY)
    cloud.operator = Operator(permissions_of(plan).documents)
    cloud.store.put("external", ZONE, {"domain": DOMAIN})
    route53.point(ZONE, [NODES, HOST, SOURCE])
    assert route53.values(ZONE, KEYS) == {one.key: one.values for one in (NODES, HOST, SOURCE)}
    for other in (
        NameRecord(name=DOMAIN, type="A", values=("10.0.0.9",)),
        NameRecord(name=NODES.name, type="MX", values=("10 mail.example.com",)),
    ):
        with pytest.raises(DeploymentError, match="AccessDenied"):
            route53.point(ZONE, [NODES, other])
    assert route53.values(ZONE, KEYS) == {one.key: one.values for one in (NODES, HOST, SOURCE)}
