"""The questions to Azure about a plan, over HTTP.

The fields of the answers are validated against the models of azure-mgmt-compute and azure-mgmt-authorization. The request for the permissions of a
subscription is documented in the Azure documentation on roles (Permissions, REST API reference of Authorization, retrieved 2026-11-23).
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.mgmt.authorization import models as authorization
from azure.mgmt.compute import models as compute

from gpuinfra.clouds.azure import preflight
from gpuinfra.clouds.azure.permissions import permissions
from gpuinfra.clouds.preflight import PreflightRow, RowState, answers
from gpuinfra.plan.model import Plan
from tests.clouds.stacks import plan_of
from tests.doctor.arm import Arm

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
SCOPE = f"/subscriptions/{SUBSCRIPTION}"
PLAN = plan_of("azure-ndv4")
REGION = PLAN.region
SIZE = PLAN.pools[0].machine
FAMILY = "standardNDAMSv4_A100Family"
ENABLED = {"id": SCOPE, "subscriptionId": SUBSCRIPTION, "state": "Enabled"}
GROUP = f"{SCOPE}/resourceGroups/capacity/providers/Microsoft.Compute/capacityReservationGroups/gpus"
VERSIONS = f"{SCOPE}/providers/Microsoft.Compute/locations/{REGION}/publishers/microsoft-dsvm/artifacttypes/vmimage/offers/ubuntu-hpc/skus/2204/versions"


def checked(model: Any, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer if the model of the SDK has each of its fields."""
    if hasattr(model, "_attribute_map"):  # The models of older packages.
        known = {field["key"] for field in model._attribute_map.values()}
    else:
        model({})
        known = {field._rest_name for field in model._attr_to_rest_field.values()}
    assert set(answer) <= known, (model, set(answer) - known)
    return answer


def usage(name: str, limit: int, used: int) -> dict[str, Any]:
    """An entry of `usages`."""
    names = checked(compute.UsageName, {"value": name, "localizedValue": name})
    return checked(compute.Usage, {"name": names, "unit": "Count", "limit": limit, "currentValue": used})


def usages(
    family: tuple[int, int] = (960, 0), cores: tuple[int, int] = (960, 0), spot: tuple[int, int] = (0, 0)
) -> tuple[int, Any]:
    """The answer of `usages` with (limit, use) of the family, of all dedicated vCPUs, and of spot. The family has another spelling."""
    listed = [usage("cores", *cores), usage("lowPriorityCores", *spot), usage("Standard NDAMSv4_A100 Family", *family)]
    return 200, {"value": listed}


def sku(zones: tuple[str, ...] = ("1", "2"), **restrictions: Any) -> tuple[int, Any]:
    """The answer of `skus` with one size, and a size of another type with the same name."""
    info = checked(compute.ResourceSkuLocationInfo, {"location": REGION, "zones": list(zones)})
    limits = []
    if restrictions:
        inner = checked(
            compute.ResourceSkuRestrictionInfo, {"locations": [REGION], "zones": restrictions.pop("shut", [])}
        )
        limits.append(
            checked(compute.ResourceSkuRestrictions, {**restrictions, "values": [REGION], "restrictionInfo": inner})
        )
    known = {
        "resourceType": "virtualMachines",
        "name": SIZE,
        "locations": [REGION],
        "locationInfo": [info],
        "restrictions": limits,
    }
    return 200, {"value": [{"resourceType": "disks", "name": SIZE}, checked(compute.ResourceSku, known)]}


def image(**properties: Any) -> tuple[int, Any]:
    """The answer of `versions/get`."""
    if "imageDeprecationStatus" in properties:
        checked(compute.ImageDeprecationStatus, properties["imageDeprecationStatus"])
    known = checked(compute.VirtualMachineImageProperties, {"architecture": "x64", **properties})
    return 200, {"name": "22.04.2026092301", "location": REGION, "properties": known}


def reservation(capacity: int = 4, used: int = 0, size: str = SIZE, zones: tuple[str, ...] = ()) -> tuple[int, Any]:
    """The answer of `capacityReservations` with one reservation."""
    associated = [{"id": f"{SCOPE}/vm-{n}"} for n in range(used)]
    properties = checked(
        compute.CapacityReservationProperties,
        {"virtualMachinesAssociated": associated, "provisioningState": "Succeeded"},
    )
    known = {
        "name": "nd",
        "sku": {"name": size, "capacity": capacity},
        "properties": properties,
        **({"zones": list(zones)} if zones else {}),
    }
    return 200, {"value": [known]}


def roles(*entries: dict[str, Any]) -> tuple[int, Any]:
    """The answer of `permissions`: an entry for each role assignment."""
    return 200, {"value": [checked(authorization.Permission, one) for one in entries]}


NAMESPACES = sorted({need.action.partition("/")[0] for need in permissions(PLAN).needs})


def providers(**states: str) -> tuple[int, Any]:
    """The answer of `providers`: all are registered except these."""
    return 200, {
        "value": [
            {"namespace": one, "registrationState": states.get(one.partition(".")[2], "Registered")}
            for one in NAMESPACES
        ]
    }


PATHS = {
    "permissions": f"{SCOPE}/providers/Microsoft.Authorization/permissions",
    "providers": f"{SCOPE}/providers",
    "feature": f"{SCOPE}/providers/Microsoft.Features/providers/Microsoft.Compute/features/EncryptionAtHost",
    "quota": f"{SCOPE}/providers/Microsoft.Compute/locations/{REGION}/usages",
    "lustre": f"{SCOPE}/providers/Microsoft.StorageCache/locations/{REGION}/usages",
    "machine": f"{SCOPE}/providers/Microsoft.Compute/skus",
    "versions": VERSIONS,
    "image": f"{VERSIONS}/22.04.2026092301",
    "reservation": f"{GROUP}/capacityReservations",
    "accounts": f"{SCOPE}/providers/Microsoft.Storage/checkNameAvailability",
    "vaults": f"{SCOPE}/providers/Microsoft.KeyVault/checkNameAvailability",
}
TOKEN = "0a1b2c3d"


@pytest.fixture
def arm() -> Arm:
    """A subscription in which the stack can be deployed."""
    return healthy()


def healthy() -> Arm:
    """Return a subscription in which the stack can be deployed."""
    return Arm(
        {
            SCOPE: (200, ENABLED),
            PATHS["permissions"]: roles({"actions": ["*"], "notActions": []}),
            PATHS["providers"]: providers(),
            PATHS["feature"]: (
                200,
                {"name": "Microsoft.Compute/EncryptionAtHost", "properties": {"state": "Registered"}},
            ),
            PATHS["quota"]: usages(),
            PATHS["lustre"]: (200, {"value": [usage("AmlFilesystem", 4, 0)]}),
            PATHS["machine"]: sku(),
            PATHS["versions"]: (200, [{"name": "22.04.2026092301", "location": REGION}]),
            PATHS["image"]: image(),
            PATHS["reservation"]: reservation(),
            PATHS["accounts"]: (200, {"nameAvailable": True}),
            PATHS["vaults"]: (200, {"nameAvailable": True}),
        }
    )


def ask(arm: Arm, monkeypatch: pytest.MonkeyPatch, plan: Plan = PLAN) -> list[PreflightRow]:
    """The rows for a plan."""
    cloud = arm.preflight(monkeypatch, {"azure-native:subscriptionId": SUBSCRIPTION}, plan.region)
    list(cloud.identity())
    return answers(cloud.questions(plan, lambda: TOKEN), 300)


def of(rows: list[PreflightRow], topic: str) -> PreflightRow:
    """The only row of a topic that is not fine, or the first one."""
    found = [row for row in rows if row.topic == topic]
    return next((row for row in found if row.state in (RowState.WARN, RowState.ERROR)), found[0])


def _changed(**fields: Any) -> Plan:
    pool = PLAN.pools[0]
    return replace(PLAN, pools=(replace(pool, groups=(replace(pool.groups[0], **fields),)),))


RESERVED = _changed(kind="reserved", reservation_id=GROUP)


def test_subscription_in_which_the_stack_can_be_deployed(arm: Arm, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a healthy subscription, each topic has a row without a problem."""
    rows = ask(arm, monkeypatch, RESERVED)
    assert [row for row in rows if row.state is not RowState.OK] == []
    assert {row.topic for row in rows} == set(preflight.TOPICS)
    assert of(rows, "image").found == "version 22.04.2026092301"


@pytest.mark.parametrize(
    ("answer", "kind", "state", "said"),
    [
        (
            usages(family=(383, 0)),
            "on_demand",
            RowState.ERROR,
            "--resource-name 'standard NDAMSv4_A100Family' --resource-type dedicated --limit-object value=384",
        ),
        (usages(cores=(383, 0)), "on_demand", RowState.ERROR, "--resource-name 'cores'"),
        (usages(family=(400, 96)), "on_demand", RowState.WARN, "value=480"),
        (usages(family=(384, 384), cores=(384, 384)), "reserved", RowState.OK, "384 needed"),
        (usages(spot=(383, 0)), "spot", RowState.ERROR, "--resource-name 'lowPriorityCores' --resource-type lowPriority"),
        (usages(family=(0, 0), cores=(0, 0), spot=(384, 0)), "spot", RowState.OK, "384 needed"),
        ((200, {"value": []}), "on_demand", RowState.ERROR, "0 vCPUs, 0 in use"),
    ],
)  # fmt: skip
def test_quotas_of_family_region_and_spot(
    arm: Arm, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, Any], kind: str, state: RowState, said: str
) -> None:
    """The vCPUs of the nodes are compared with the family and the region, or with the quota of all spot vCPUs. The fix names the subscription."""
    arm.answers[PATHS["quota"]] = answer
    row = of(ask(arm, monkeypatch, _changed(kind=kind)), "quota")
    assert row.state is state
    assert said in f"{row.found} {row.fix}"
    assert state is RowState.OK or f"--scope /subscriptions/{SUBSCRIPTION}/" in row.fix


def test_actions_of_the_printed_role_are_enough(arm: Arm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The roles that `gpuinfra permissions` prints for the subscription have all actions. Without one of them, the row names it, in any case of letters."""
    printed = [one for one in permissions(PLAN).documents if one["AssignableScopes"] == ["/subscriptions/SUBSCRIPTION"]]
    actions = [action for one in printed for action in one["Actions"]]
    arm.answers[PATHS["permissions"]] = roles({"actions": [one.upper() for one in actions], "notActions": []})
    assert of(ask(arm, monkeypatch), "permissions").state is RowState.OK
    gone = actions.pop(3)
    arm.answers[PATHS["permissions"]] = roles({"actions": actions, "notActions": []})
    row = of(ask(arm, monkeypatch), "permissions")
    assert (row.state, row.found) == (RowState.ERROR, f"1 of {len(actions) + 1} missing: {gone}")


def test_grants_can_be_on_the_resource_groups(arm: Arm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The roles for grants and account keys are sufficient on each resource group of the stack. A group without them is missing them."""
    first, *others = (
        one["Actions"] for one in permissions(PLAN).documents if "TOKEN" not in one["AssignableScopes"][0]
    )
    arm.answers[PATHS["permissions"]] = roles({"actions": first, "notActions": []})
    assert of(ask(arm, monkeypatch), "permissions").state is RowState.ERROR
    own = [action for group in others for action in group]
    for layer in ("foundation", "site", "nodes"):
        group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{PLAN.name}-{layer}-{TOKEN}"
        arm.answers[f"{group}/providers/Microsoft.Authorization/permissions"] = roles(
            {"actions": own, "notActions": []}
        )
    assert of(ask(arm, monkeypatch), "permissions").state is RowState.OK
    arm.answers[f"{group}/providers/Microsoft.Authorization/permissions"] = roles(
        {"actions": own[1:], "notActions": []}
    )
    assert of(ask(arm, monkeypatch), "permissions").found.endswith(f"missing: {own[0]}")


def test_exclusions_apply_to_their_own_role(arm: Arm, monkeypatch: pytest.MonkeyPatch) -> None:
    """`notActions` of one role do not remove actions of another role. The role Contributor alone cannot assign roles."""
    contributor = {
        "actions": ["*"],
        "notActions": ["Microsoft.Authorization/*/Delete", "Microsoft.Authorization/*/Write"],
    }
    arm.answers[PATHS["permissions"]] = roles(contributor)
    assert "Microsoft.Authorization/roleAssignments/write" in of(ask(arm, monkeypatch), "permissions").found
    arm.answers[PATHS["permissions"]] = roles(contributor, {"actions": ["Microsoft.Authorization/*"], "notActions": []})
    assert of(ask(arm, monkeypatch), "permissions").state is RowState.OK


@pytest.mark.parametrize(("state_of", "state"), [("NotRegistered", RowState.ERROR), ("Registering", RowState.OK)])
def test_resource_providers_that_are_not_registered(
    arm: Arm, monkeypatch: pytest.MonkeyPatch, state_of: str, state: RowState
) -> None:
    """A resource provider that is not registered is a problem with the command that registers it."""
    arm.answers[PATHS["providers"]] = providers(StorageCache=state_of)
    row = of(ask(arm, monkeypatch), "registration")
    assert row.state is state
    if state is RowState.ERROR:
        assert row.fix == f"az provider register --namespace Microsoft.StorageCache --subscription {SUBSCRIPTION}"


@pytest.mark.parametrize(
    ("state_of", "state"), [("NotRegistered", RowState.ERROR), ("Registering", RowState.WARN), (None, RowState.ERROR)]
)
def test_feature_that_is_not_registered(
    arm: Arm, monkeypatch: pytest.MonkeyPatch, state_of: str | None, state: RowState
) -> None:
    """Encryption at host must be registered. A registration takes minutes."""
    if state_of is None:
        del arm.answers[PATHS["feature"]]
    else:
        arm.answers[PATHS["feature"]] = (200, {"properties": {"state": state_of}})
    row = of(ask(arm, monkeypatch), "registration")
    assert row.state is state
    if state is RowState.ERROR:
        assert row.fix.startswith("az feature register --namespace Microsoft.Compute --name EncryptionAtHost")


@pytest.mark.parametrize(
    ("answer", "zone", "state", "said"),
    [
        ((200, {"value": []}), "1", RowState.ERROR, f"not offered in {REGION}"),
        (sku(type="Location", reasonCode="NotAvailableForSubscription"), "1", RowState.ERROR, "restricted for this subscription (NotAvailableForSubscription)"),
        (sku(), "3", RowState.ERROR, "set `zone` in the stack file to 1 or 2"),
        (sku(type="Zone", reasonCode="NotAvailableForSubscription", shut=["1"]), "1", RowState.ERROR, "set `zone` in the stack file to 2"),
        (sku(zones=()), "1", RowState.ERROR, "omit `zone`"),
        (sku(), "2", RowState.OK, "offered in zones 1, 2"),
        (sku(zones=()), "regional", RowState.OK, "offered without zones"),
    ],
)  # fmt: skip
def test_size_that_is_not_offered(
    arm: Arm, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, Any], zone: str, state: RowState, said: str
) -> None:
    """Region, zones and restrictions of a size are compared with the zone of the nodes."""
    arm.answers[PATHS["machine"]] = answer
    row = of(ask(arm, monkeypatch, _changed(zone=zone)), "machine")
    assert row.state is state
    assert said in f"{row.found} {row.fix}"


@pytest.mark.parametrize(
    ("answer", "zone", "state", "said"),
    [
        ((404, {"error": {"code": "ResourceNotFound", "message": "not found"}}), "regional", RowState.ERROR, "no such capacity reservation group"),
        (reservation(size="Standard_D4s_v5"), "regional", RowState.ERROR, f"no reservation of {SIZE}"),
        (reservation(zones=("2",)), "1", RowState.ERROR, "in zone 1"),
        (reservation(capacity=2), "regional", RowState.ERROR, "--capacity 4"),
        (reservation(used=1), "regional", RowState.WARN, "3 of 4 free"),
        (reservation(zones=("1",)), "1", RowState.OK, "4 of 4 free"),
        (reservation(zones=("2",)), "1", RowState.ERROR, "set `zone` in the stack file to 2"),
        (reservation(zones=("2",)), "regional", RowState.ERROR, f"no reservation of {SIZE} without a zone"),
        (reservation(), "1", RowState.ERROR, "omit `zone` in the stack file"),
    ],
)  # fmt: skip
def test_reservation_that_does_not_fit(
    arm: Arm, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, Any], zone: str, state: RowState, said: str
) -> None:
    """Size, zone, capacity and associated VMs of a capacity reservation group are compared with its nodes."""
    arm.answers[PATHS["reservation"]] = answer
    row = of(ask(arm, monkeypatch, _changed(kind="reserved", reservation_id=GROUP, zone=zone)), "reservation")
    assert row.state is state
    assert said in f"{row.found} {row.fix}"


@pytest.mark.parametrize(
    ("changes", "state", "said"),
    [
        ({PATHS["versions"]: (200, [])}, RowState.ERROR, "not found"),
        ({PATHS["image"]: image(architecture="Arm64")}, RowState.ERROR, "is for arm64"),
        ({PATHS["image"]: image(plan={"publisher": "p", "name": "n", "product": "o"})}, RowState.WARN, ("az "
            "vm image terms accept --urn microsoft-dsvm:ubuntu-hpc:2204:22.04.2026092301")),
        ({PATHS["image"]: image(imageDeprecationStatus={"imageState": "ScheduledForDeprecation"})}, RowState.WARN, "is ScheduledForDeprecation"),
    ],
)  # fmt: skip
def test_image_that_does_not_fit(
    arm: Arm, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], state: RowState, said: str
) -> None:
    """Version, architecture, marketplace terms and deprecation of an image are checked."""
    arm.answers |= changes
    row = of(ask(arm, monkeypatch), "image")
    assert row.state is state
    assert said in f"{row.found} {row.fix}"


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        (None, RowState.ERROR, "not found"),
        ({"location": "westeurope"}, RowState.ERROR, "is in westeurope"),
        ({"location": "westeurope", "properties": {"publishingProfile": {"targetRegions": [{"name": "South Central US"}]}}}, RowState.OK, "found in"),
    ],
)  # fmt: skip
def test_own_image(
    arm: Arm, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | None, state: RowState, said: str
) -> None:
    """An image of a gallery must exist, and be replicated to the region."""
    ref = f"{SCOPE}/resourceGroups/images/providers/Microsoft.Compute/galleries/g/images/i/versions/1.0.0"
    pool = PLAN.pools[0]
    own = replace(PLAN, pools=(replace(pool, image=replace(pool.image, source="id", ref=ref)),))
    if answer:
        arm.answers[ref] = (200, answer)
    row = of(ask(arm, monkeypatch, own), "image")
    assert row.state is state
    assert said in row.found


ERRORS = {
    "denied": ((403, "AuthorizationFailed", "The client does not have authorization to perform action"), RowState.WARN, "denied"),
    "throttled": ((429, "OperationNotAllowed", "The server rejected the request because too many requests have been received"), RowState.WARN, "throttled"),
    "token": ((401, "ExpiredAuthenticationToken", "The access token has expired."), RowState.ERROR, "not accepted"),
    "service": ((503, "ServiceUnavailable", "busy"), RowState.WARN, "failed"),
    "other": ((400, "InvalidParameter", "text"), RowState.WARN, "failed"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
@pytest.mark.parametrize("key", sorted(PATHS))
def test_every_failed_request_is_a_row(arm: Arm, monkeypatch: pytest.MonkeyPatch, key: str, case: str) -> None:
    """Each request that is denied, throttled, not accepted or fails is a row with the error code and a fix, and the other topics have rows."""
    (status, code, message), state, said = ERRORS[case]
    arm.answers[PATHS[key]] = (status, {"error": {"code": code, "message": message}})
    rows = ask(arm, monkeypatch, RESERVED)
    (row,) = [one for one in rows if code in one.found]
    assert row.state is state
    assert said in row.found
    assert row.fix
    assert {one.topic for one in rows} == set(preflight.TOPICS)


def test_read_permissions_are_documented() -> None:
    """The page lists the permission of each request."""
    page = (Path(__file__).parents[2] / "docs" / "guides" / "doctor.md").read_text(encoding="utf-8")
    assert [one for names in preflight.READS.values() for one in names if f"`{one}`" not in page] == []
    assert all(re.fullmatch(r"Microsoft\.\w+/.*/read", one) for names in preflight.READS.values() for one in names)
