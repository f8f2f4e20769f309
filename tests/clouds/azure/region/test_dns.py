"""The requests for the DNS names on Azure. Requests and responses are validated against the azure-mgmt packages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from azure.mgmt.privatedns import models

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.azure.region.dns import AzureDns
from gpuinfra.clouds.region.dns import Mounted, NameRecord, lines
from gpuinfra.clouds.region.readiness import UNREAD, WARN, ReadinessQuestion
from gpuinfra.plan.make import build_plan
from gpuinfra.plan.recovery_model import NamesPlan
from gpuinfra.region.readiness import of_names
from gpuinfra.spec.recovery import RecoveryNames
from tests.clouds.azure.failing import SCOPE, Regions
from tests.clouds.stacks import TODAY, plan_of, spec_of
from tests.doctor.test_azure_live import checked

GROUP, DOMAIN = f"{SCOPE}/dns", "train.example.internal"
ZONE = f"{GROUP}/providers/Microsoft.Network/privateDnsZones/example.internal"
LOGIN = NameRecord(name=f"login.{DOMAIN}", type="A", values=("10.0.0.1", "10.0.0.2"))
SOURCE = NameRecord(name=f"source.scratch.{DOMAIN}", type="TXT", values=('"10.0.1.4@tcp:/lustrefs"',))
PATHS = {LOGIN.key: f"{ZONE}/A/login.train", SOURCE.key: f"{ZONE}/TXT/source.scratch.train"}
ADDRESSES = [checked(models.ARecord, {"ipv4Address": value}) for value in LOGIN.values]
TEXTS = [checked(models.TxtRecord, {"value": ["10.0.1.4@tcp:/lustrefs"]})]


def record(**properties: Any) -> dict[str, Any]:
    """A record set."""
    return checked(models.RecordSet, {"properties": checked(models.RecordSetProperties, {"ttl": 60, **properties})})


def test_each_record_is_replaced() -> None:
    """A name is relative to its zone, a text has no quotation marks, and a request replaces the record set if it exists."""
    rest = Regions({path: record() for path in PATHS.values()})
    AzureDns(rest).point(ZONE, [LOGIN, SOURCE])
    assert rest.changes == [
        ("PUT", PATHS[LOGIN.key], record(aRecords=ADDRESSES)),
        ("PUT", PATHS[SOURCE.key], record(txtRecords=TEXTS)),
    ]


def test_values_are_read_as_they_are_written() -> None:
    """A record set that does not exist has no values, and a text with several parts is one value."""
    parts = [checked(models.TxtRecord, {"value": ["10.0.1.4@tcp", ":/lustrefs"]})]
    rest = Regions({PATHS[LOGIN.key]: record(aRecords=ADDRESSES[::-1]), PATHS[SOURCE.key]: record(txtRecords=parts)})
    found = AzureDns(rest)
    missing = (f"home.{DOMAIN}", "A")
    assert found.values(ZONE, [*PATHS, missing]) == {LOGIN.key: LOGIN.values, SOURCE.key: SOURCE.values}


def test_changes_of_a_zone_need_the_region_of_its_resource_group() -> None:
    """The zone itself is global. A zone that does not exist has no domain."""
    zone = checked(models.PrivateZone, {"id": ZONE, "name": "example.internal", "location": "global"})
    found = AzureDns(Regions({ZONE: zone, GROUP: {"id": GROUP, "name": "dns", "location": "westus3"}}))
    assert (found.zone_name(ZONE), found.zone_region(ZONE)) == ("example.internal", "westus3")
    assert AzureDns(Regions({})).zone_name(ZONE) is None


def test_a_share_of_azure_files_is_mounted_by_the_name_of_its_account() -> None:
    """Managed Lustre and Azure NetApp Files have addresses. A share on Azure Files has only a source."""
    found = AzureDns(Regions({}))
    lustre = {"kind": "lustre", "dns_name": "10.0.1.4", "mount_name": "lustrefs"}
    share = {"kind": "home", "dns_name": "a.file.core.windows.net", "mount_name": "/a/home"}
    assert found.mounted(lustre, []) == Mounted(addresses=("10.0.1.4",), source="10.0.1.4@tcp:/lustrefs")
    assert found.mounted(share, []) == Mounted(addresses=(), source="a.file.core.windows.net:/a/home")


@pytest.mark.parametrize(("region", "states"), [("southcentralus", [WARN]), ("westus3", [])])
def test_a_zone_that_cannot_be_changed_without_the_first_region_is_a_warning(region: str, states: list[str]) -> None:
    """`ready` reports a zone whose resource group is in the region of the stack."""
    spec = spec_of("azure-recovery")
    assert spec.recovery is not None
    recovery = spec.recovery.model_copy(update={"names": RecoveryNames(zone=ZONE, domain=DOMAIN)})
    plan = build_plan(spec.model_copy(update={"recovery": recovery}), TODAY)
    assert plan.recovery is not None
    question = ReadinessQuestion(region=plan.region, recovery=plan.recovery, rpo_minutes=120, resources=[], config={})
    rest = Regions({ZONE: {"name": "example.internal"}, GROUP: {"location": region}})
    found = list(lines(question, AzureDns(rest)))
    assert [one.state for one in found] == states
    assert all("cannot be changed while southcentralus" in one.reason and one.fix for one in found)


def test_a_login_that_does_not_exist_is_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the requests cannot be created, `ready` has one line, and a stack without names has none."""

    def refused(*_: object) -> None:
        raise DeploymentError("no login")

    monkeypatch.setattr("gpuinfra.clouds.azure.region.dns.connect", refused)
    names = NamesPlan(zone=ZONE, domain=DOMAIN, login=f"login.{DOMAIN}", mounts=())
    recovery = plan_of("azure-recovery").recovery
    assert recovery is not None
    question = ReadinessQuestion(region="southcentralus", recovery=recovery, rpo_minutes=120, resources=[], config={})
    assert list(of_names("azure", question)) == []
    named = replace(question, recovery=replace(recovery, names=names))
    assert [(one.state, one.reason) for one in of_names("azure", named)] == [(UNREAD, "no login")]
