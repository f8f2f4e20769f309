"""The DNS services of the stand-in clouds, with the requests of `gpuinfra names` and the clouds' own parsers.

The message about conflicting record types on AWS is recorded in ansible-collections/amazon.aws issue 2694.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.aws.region.dns import AwsDns, connect
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region import reach
from gpuinfra.clouds.region.dns import Dns, NameRecord
from gpuinfra.clouds.region.failover import Unreachable
from gpuinfra.plan.make import build_plan
from gpuinfra.spec.recovery import RecoveryNames
from gpuinfra_rehearsal import endpoints
from gpuinfra_rehearsal.cloud.core import outage, registry
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.operator import Operator
from gpuinfra_rehearsal.cloud.core.server import Server
from tests.clouds.stacks import TODAY, spec_of
from tests.permissions.needed import permissions_of
from tests.typed import present

ZONE, DOMAIN = "Z0123456789ABCDEFGHIJ", "train.example.internal"
ZONES = {
    "aws": ZONE,
    "azure": "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/dns/providers/Microsoft.Network/privateDnsZones/example.internal",
    "gcp": "projects/standin-project/managedZones/train",
}
RECOVERY = {one: f"{one}-recovery" for one in ZONES}
ROOT = "example.internal"
NODES = NameRecord(name=f"login.{DOMAIN}", type="A", values=("10.0.0.1", "10.0.0.2"))
HOST = NameRecord(name=f"scratch.{DOMAIN}", type="A", values=("10.0.1.4",))
SOURCE = NameRecord(name=f"source.scratch.{DOMAIN}", type="TXT", values=('"10.0.1.4@tcp:/a"',))
KEYS = [NODES.key, HOST.key, SOURCE.key]


@pytest.fixture
def operator(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment of the operator, whose requests go to the stand-in cloud."""
    server = Server(cloud, "token")
    server.start()
    known = {one.name: one.operator_credentials(cloud) for one in registry.installed()}
    for name, value in endpoints.of_operator(cloud.endpoint, known, "aws", "us-east-1").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    yield
    server.shutdown()
    server.server_close()


@pytest.fixture
def route53(operator: None) -> AwsDns:
    """The client of the program on AWS."""
    return connect("us-west-2", {})


@pytest.fixture(params=ZONES)
def cloud_dns(request: pytest.FixtureRequest, operator: None) -> tuple[str, Dns]:
    """A zone and the client of the program, on each cloud."""
    found = present(cloud_of(request.param).dns).connect("us-west-2", {})
    assert found is not None
    return ZONES[request.param], found


def test_records_of_a_described_zone_are_replaced(cloud: Cloud, cloud_dns: tuple[str, Dns]) -> None:
    """A zone exists once the control interface describes it. Its records are created and replaced, and are read by name and type."""
    zone, dns = cloud_dns
    assert dns.zone_name(zone) is None
    cloud.store.put("external", zone, {"domain": ROOT})
    assert dns.zone_name(zone) == ROOT
    assert dns.values(zone, KEYS) == {}
    dns.point(zone, [NODES, HOST, SOURCE])
    assert dns.values(zone, KEYS) == {one.key: one.values for one in (NODES, HOST, SOURCE)}
    moved = NameRecord(name=HOST.name, type="A", values=("10.1.1.4",))
    dns.point(zone, [NODES, moved])
    assert dns.values(zone, KEYS) == {NODES.key: NODES.values, HOST.key: moved.values, SOURCE.key: SOURCE.values}


@pytest.mark.parametrize("cloud_name", RECOVERY)
def test_the_printed_permissions_are_sufficient(cloud: Cloud, operator: None, cloud_name: str) -> None:
    """An operator with the printed permissions reads and changes the names, and one with those of a stack without names does not."""
    zone, dns = ZONES[cloud_name], present(cloud_of(cloud_name).dns).connect("us-west-2", {})
    assert dns is not None
    cloud.store.put("external", zone, {"domain": ROOT})
    spec = spec_of(RECOVERY[cloud_name])
    assert spec.recovery is not None
    names = RecoveryNames(zone=zone, domain=DOMAIN)
    named = spec.model_copy(update={"recovery": spec.recovery.model_copy(update={"names": names})})
    cloud.operator = Operator(permissions_of(build_plan(named, TODAY)).documents)
    assert dns.zone_name(zone) == ROOT
    assert dns.zone_region(zone) == ("centralus" if cloud_name == "azure" else None)
    for values in (("10.0.1.4",), ("10.1.1.4",)):
        dns.point(zone, [NODES, NameRecord(name=HOST.name, type="A", values=values), SOURCE])
    assert dns.values(zone, [HOST.key]) == {HOST.key: ("10.1.1.4",)}
    cloud.operator = Operator(permissions_of(build_plan(named, TODAY), read_only=True).documents)
    assert dns.values(zone, [HOST.key]) == {HOST.key: ("10.1.1.4",)}
    with pytest.raises(DeploymentError):
        dns.point(zone, [HOST])
    cloud.operator = Operator(permissions_of(build_plan(spec, TODAY)).documents)
    with pytest.raises(DeploymentError):
        dns.point(zone, [HOST])


def test_records_on_azure_need_the_region_of_the_resource_group(
    cloud: Cloud, operator: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage of another region has no effect, and records can still be read."""
    monkeypatch.setattr(reach, "BUSY_S", 0.0)
    zone, dns = ZONES["azure"], present(cloud_of("azure").dns).connect("eastus", {})
    assert dns is not None
    cloud.store.put("external", zone, {"domain": ROOT, "region": "eastus"})
    with cloud.store.change():
        outage.begin(cloud.store, "westus")
    dns.point(zone, [NODES])
    with cloud.store.change():
        outage.begin(cloud.store, "eastus")
    with pytest.raises(DeploymentError, match="the service responds"):
        dns.point(zone, [HOST])
    assert dns.values(zone, KEYS) == {NODES.key: NODES.values}


def test_a_global_service_changes_records_during_an_outage(cloud: Cloud, operator: None) -> None:
    """Cloud DNS does not depend on a region."""
    zone, dns = ZONES["gcp"], present(cloud_of("gcp").dns).connect("us-central1", {})
    assert dns is not None
    cloud.store.put("external", zone, {"domain": ROOT})
    with cloud.store.change():
        outage.begin(cloud.store, "us-central1")
    dns.point(zone, [NODES])
    assert dns.values(zone, KEYS) == {NODES.key: NODES.values}


@pytest.mark.parametrize("other", ["login.other.internal", "login.example.internal.other"])
def test_cloud_dns_refuses_a_name_outside_the_zone(cloud: Cloud, operator: None, other: str) -> None:
    """If Cloud DNS refuses one record of a change, it changes none of them."""
    zone, dns = ZONES["gcp"], present(cloud_of("gcp").dns).connect("us-central1", {})
    assert dns is not None
    cloud.store.put("external", zone, {"domain": ROOT})
    with pytest.raises(DeploymentError, match="additions"):
        dns.point(zone, [NODES, NameRecord(name=other, type="A", values=("10.0.0.3",))])
    assert dns.values(zone, KEYS) == {}


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
    plan = build_plan(spec.model_copy(update={"recovery": spec.recovery.model_copy(update={"names": names})}), TODAY)
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
