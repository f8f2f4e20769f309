"""The requests for the DNS names on Google Cloud. Discovery documents validate requests and responses."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.gcp.region.dns import GcpDns
from gpuinfra.clouds.region.dns import Mounted, NameRecord
from tests.clouds.gcp.asked import Google

API, ZONE, DOMAIN = "dns.v1", "projects/my-project/managedZones/train", "train.example.internal"
PLACE = {"project": "my-project", "managedZone": "train"}
LOGIN = NameRecord(name=f"login.{DOMAIN}", type="A", values=("10.0.0.1", "10.0.0.2"))
SOURCE = NameRecord(name=f"source.scratch.{DOMAIN}", type="TXT", values=('"10.0.1.4@tcp:/scratch0"',))


def record(one: NameRecord, *values: str, **more: Any) -> dict[str, Any]:
    """A record set."""
    return {"name": f"{one.name}.", "type": one.type, "ttl": 60, "rrdatas": [*(values or one.values)], **more}


def listed(google: Google, one: NameRecord, *found: dict[str, Any]) -> None:
    """Expect the request for one record set."""
    rows = [{"kind": "dns#resourceRecordSet", "signatureRrdatas": [], **row} for row in found]
    google.expect(API, "resourceRecordSets.list", {**PLACE, "name": f"{one.name}.", "type": one.type}, {"rrsets": rows})


def test_all_records_change_in_one_request() -> None:
    """The change deletes the record sets that exist as they are, and adds those that are new or different."""
    google = Google()
    listed(google, LOGIN, record(LOGIN, "10.9.9.9", ttl=300))
    listed(google, SOURCE)
    body = {"additions": [record(LOGIN), record(SOURCE)], "deletions": [record(LOGIN, "10.9.9.9", ttl=300)]}
    google.expect(API, "changes.create", PLACE, {"id": "1", "status": "pending", **body}, body)
    GcpDns(google.api()).point(ZONE, [LOGIN, SOURCE])
    google.done()


def test_equal_records_need_no_change() -> None:
    """A repeated request sends no change."""
    google = Google()
    listed(google, LOGIN, record(LOGIN))
    GcpDns(google.api()).point(ZONE, [LOGIN])
    google.done()


def test_a_record_that_changed_meanwhile_is_not_replaced() -> None:
    """Cloud DNS refuses the change, and the error states the reason."""
    google = Google()
    listed(google, LOGIN, record(LOGIN, "10.9.9.9"))
    body = {"additions": [record(LOGIN)], "deletions": [record(LOGIN, "10.9.9.9")]}
    google.expect(API, "changes.create", PLACE, 412, body)
    with pytest.raises(DeploymentError, match="412"):
        GcpDns(google.api()).point(ZONE, [LOGIN])


def test_values_and_the_domain_have_no_trailing_dot() -> None:
    """The earlier value of a record set with a routing policy describes it, and a zone that does not exist has no domain."""
    google = Google()
    google.expect(API, "managedZones.get", PLACE, {"name": "train", "dnsName": "example.internal."})
    google.expect(API, "managedZones.get", PLACE, 404)
    policy = {"wrr": {"items": [{"weight": 1, "rrdatas": ["10.0.0.9"]}]}}
    listed(google, LOGIN, {"name": f"{LOGIN.name}.", "type": "A", "ttl": 60, "routingPolicy": policy})
    listed(google, SOURCE, record(SOURCE))
    found = GcpDns(google.api())
    assert (found.zone_name(ZONE), found.zone_name(ZONE), found.zone_region(ZONE)) == ("example.internal", None, None)
    assert found.values(ZONE, [LOGIN.key, SOURCE.key]) == {LOGIN.key: ("ROUTING POLICY",), SOURCE.key: SOURCE.values}
    google.done()


def test_a_mount_source_has_the_address_of_the_file_system() -> None:
    """Managed Lustre and Filestore have addresses, so no request is sent."""
    found = GcpDns(Google().api())
    lustre = {"kind": "lustre", "dns_name": "10.64.0.3", "mount_name": "scratch0"}
    home = {"kind": "home", "dns_name": "10.64.1.2", "mount_name": "/home"}
    assert found.mounted(lustre, []) == Mounted(addresses=("10.64.0.3",), source="10.64.0.3@tcp:/scratch0")
    assert found.mounted(home, []) == Mounted(addresses=("10.64.1.2",), source="10.64.1.2:/home")
