"""Queries Azure before a deployment, with azure-identity and the credentials of the operator. All requests are read-only.

Paths and fields are from the Azure REST API reference for the API version of each request (retrieved 2026-11-23).
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

from gpuinfra.clouds.azure import adopt
from gpuinfra.clouds.azure.permissions import PREFLIGHT, SUBSCRIPTION_SCOPE, groups_of
from gpuinfra.clouds.azure.permissions import permissions as needed_permissions
from gpuinfra.clouds.azure.quotas import COMPUTE, Quotas
from gpuinfra.clouds.azure.rest import AzureRefused, NoToken, Rest, subscription_of
from gpuinfra.clouds.preflight import (
    Owner,
    PreflightQuestion,
    PreflightRow,
    Unanswered,
    denied,
    failed,
    names_rows,
    no_credentials,
    ok,
    problem,
    rejected,
    throttled,
    unreachable,
    warning,
)
from gpuinfra.handover.ports import PortUnavailable
from gpuinfra.plan.model import Group, Plan, PoolPlan
from gpuinfra.software.images import ImageFamily

LOGIN = "run `az login`, or set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET"
CREDENTIALS = (
    "ARM_CLIENT_ID", "ARM_USE_OIDC", "ARM_USE_MSI", "AZURE_CLIENT_ID", "AZURE_TOKEN_CREDENTIALS", "IDENTITY_ENDPOINT", "MSI_ENDPOINT",
)  # fmt: skip
"""Environment variables that select how the provider or azure-identity signs in."""
SETTINGS = {"azure-native:clientId": True, "azure-native:useOidc": True, "azure-native:useMsi": True}
"""Maps a provider sign-in setting to whether it selects credentials. The names are from `pulumi_azure_native.config`."""
TIMEOUT_S = 10.0
"""Time limit of one request. The list of all sizes in a region is several megabytes."""
SUBSCRIPTIONS = "2022-12-01"
"""Version of the API of subscriptions."""
ENCRYPTION = "Microsoft.Compute/EncryptionAtHost"
"""The feature that all nodes use (docs/reference/azure.md)."""
SHOWN = 12
"""Maximum number of missing actions that a row lists."""

TOPICS = ("permissions", "registration", "quota", "machine", "reservation", "image", "names")
"""Topics of the questions about a plan."""

READS = PREFLIGHT


class Preflight:
    """Requests from one operator to one subscription."""

    def __init__(self, region: str, config: Mapping[str, object]) -> None:
        """`config` contains the provider settings of the stack file. `azure-native:subscriptionId` selects the subscription, as for Pulumi."""
        self.region = region
        self.subscription = subscription_of(config)
        self.rest = Rest(timeout_s=TIMEOUT_S)
        # Without a handler, azure-identity prints each failed kind of credentials.
        logging.getLogger("azure").addHandler(logging.NullHandler())

    def questions(self, plan: Plan, token: Callable[[], str]) -> Iterator[PreflightQuestion]:
        """Yield the questions about a plan. The caller asks `identity` first. `token` returns the stack's `naming.stack_token`, or raises `Unanswered`."""
        subscription = f"subscription {self.subscription}"

        def question(topic: str, where: str, rows: Iterator[PreflightRow]) -> PreflightQuestion:
            # A generator sends its requests when the question's thread iterates over it.
            return PreflightQuestion(topic=topic, where=where, ask=lambda: rows)

        yield question("permissions", subscription, self.permissions(plan, token))
        yield question("registration", subscription, self.providers(plan))
        yield from Quotas(self.every, self.subscription, self.region).questions(plan)
        where = "storage accounts and key vaults"
        yield PreflightQuestion(topic="names", where=where, ask=lambda: self.names(plan, token(), where))
        if not plan.pools:
            return
        yield question("registration", ENCRYPTION, self.feature(*ENCRYPTION.split("/")))
        yield question("machine", self.region, self.sizes(plan))
        for pool in plan.pools:
            yield question("image", pool.image.ref, self.image(pool))
            for group in pool.groups:
                if group.reservation_id:
                    yield question("reservation", group.name, self.reservation(group, pool.machine))

    def identity(self) -> Iterator[PreflightRow]:
        """Return the subscription and the type of the identity."""
        kind = self.find_credentials()
        with asked("Microsoft.Resources/subscriptions/read"):
            if not self.subscription:
                listed = list(self.rest.pages("/subscriptions", SUBSCRIPTIONS))
                if len(listed) != 1:
                    what = f"{kind} with access to {len(listed)} subscriptions, none of which is selected"
                    fix = "run `pulumi config set azure-native:subscriptionId ID`, or set ARM_SUBSCRIPTION_ID"
                    yield problem("identity", "Azure", what, "one subscription", fix)
                    return
                self.subscription = str(listed[0].get("subscriptionId"))
            answer = self.rest.arm(f"/subscriptions/{self.subscription}", SUBSCRIPTIONS)
        state = str(answer.get("state"))
        if state != "Enabled":
            what = f"subscription {self.subscription} is {state}"
            yield problem("identity", "Azure", what, "an enabled subscription", "enable it in the Azure portal")
        else:
            yield ok("identity", "Azure", f"subscription {self.subscription}, {kind}")

    def find_credentials(self) -> str:
        """Return the type of the identity that azure-identity uses. Raises `Unanswered`."""
        try:
            return self.rest.identity_type()
        except NoToken as error:
            raise no_credentials(error.why, LOGIN) from None

    def get(self, action: str, path: str, api: str, query: Mapping[str, str] | None = None) -> dict[str, Any] | None:
        """Send a request and return the response, or None if the resource does not exist. `action` is the permission that the request requires."""
        with asked(action):
            try:
                return self.rest.arm(path, api, query)
            except AzureRefused as error:
                if error.status != 404:
                    raise
                return None

    def every(self, action: str, path: str, api: str, query: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Return all entries of a list."""
        with asked(action):
            return list(self.rest.pages(path, api, query))

    # Permissions and registrations

    def permissions(self, plan: Plan, token: Callable[[], str]) -> Iterator[PreflightRow]:
        """The identity has the actions of the roles for the subscription that `gpuinfra permissions` prints.

        Those of the roles for grants and account keys can also be on the resource groups of the stack. The other roles exist only after the first
        deployment. The request lists the actions of all role assignments of the caller; it does not include deny assignments.
        """
        scope = f"/subscriptions/{self.subscription}"
        documents = [
            one for one in needed_permissions(plan).documents if one["AssignableScopes"] == list(SUBSCRIPTION_SCOPE)
        ]
        wanted = [action for document in documents for action in document["Actions"]]
        missing = self._missing(scope, wanted)
        if missing and not set(missing) & set(documents[0]["Actions"]):
            missing = self._missing_on_groups(plan, token, missing)
        where = f"subscription {self.subscription}"
        if not missing:
            yield ok("permissions", where, f"all {len(wanted)} actions are allowed")
            return
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        what = f"{len(missing)} of {len(wanted)} missing: {', '.join(missing[:SHOWN])}{more}"
        fix = (
            "run `gpuinfra permissions STACK`, create the roles that it prints, "
            f"and assign them to the identity with the scope {scope} (docs/reference/permissions.md)"
        )
        yield problem("permissions", where, what, "the roles that `gpuinfra permissions` prints", fix)

    def _missing(self, scope: str, wanted: list[str]) -> list[str]:
        """Return the actions that no role assignment at a scope or above it allows. A resource group that does not exist has none."""
        action, path, api = (
            READS["permissions"][0],
            f"{scope}/providers/Microsoft.Authorization/permissions",
            "2022-04-01",
        )
        exists = "/resourceGroups/" not in scope or self.get(action, path, api) is not None
        granted = self.every(action, path, api) if exists else []
        return [one for one in wanted if not any(_allows(entry, one) for entry in granted)]

    def _missing_on_groups(self, plan: Plan, token: Callable[[], str], wanted: list[str]) -> list[str]:
        """Return the actions that are missing on a resource group of the stack, or all of them if the names of the groups are not known."""
        try:
            token_text = token()
        except Unanswered:
            return wanted
        groups = [
            one.replace("SUBSCRIPTION", self.subscription).replace("TOKEN", token_text) for one in groups_of(plan)
        ]
        return sorted({action for group in groups for action in self._missing(group, wanted)})

    def providers(self, plan: Plan) -> Iterator[PreflightRow]:
        """The resource providers of the stack are registered. The Pulumi provider does not register them."""
        namespaces = sorted({need.action.partition("/")[0] for need in needed_permissions(plan).needs})
        path = f"/subscriptions/{self.subscription}/providers"
        listed = self.every("Microsoft.Resources/subscriptions/providers/read", path, "2021-04-01")
        states = {str(one.get("namespace")).lower(): str(one.get("registrationState")) for one in listed}
        absent = [one for one in namespaces if states.get(one.lower()) not in ("Registered", "Registering")]
        where = f"subscription {self.subscription}"
        if absent:
            fix = " && ".join(
                f"az provider register --namespace {one} --subscription {self.subscription}" for one in absent
            )
            yield problem(
                "registration", where, f"{', '.join(absent)} not registered", "registered resource providers", fix
            )
        else:
            yield ok("registration", where, f"all {len(namespaces)} resource providers are registered")

    def feature(self, namespace: str, name: str) -> Iterator[PreflightRow]:
        """A feature of a resource provider is registered."""
        path = f"/subscriptions/{self.subscription}/providers/Microsoft.Features/providers/{namespace}/features/{name}"
        answer = self.get("Microsoft.Features/providers/features/read", path, "2021-07-01")
        state = str(((answer or {}).get("properties") or {}).get("state") or "NotRegistered")
        where = f"{namespace}/{name}"
        register = f"az feature register --namespace {namespace} --name {name} --subscription {self.subscription}"
        if state == "Registered":
            yield ok("registration", where, state)
        elif state in ("Registering", "Pending"):
            yield warning(
                "registration", where, state, "the state Registered", "run the command again in a few minutes"
            )
        else:
            yield problem("registration", where, state, "the state Registered", register)

    def names(self, plan: Plan, token: str, where: str) -> Iterator[PreflightRow]:
        """The names of storage accounts and key vaults are free, or their resources are in this subscription.

        https://learn.microsoft.com/rest/api/storagerp/storage-accounts/check-name-availability and
        https://learn.microsoft.com/rest/api/keyvault/keyvault/vaults/check-name-availability, retrieved 2026-11-27.
        """
        place = adopt.Subscription(lambda path, api: None, self.subscription, plan, token)
        paths = map(place.path, adopt.global_names(plan))
        fix = "run `az keyvault recover --name NAME` if it is a deleted key vault of this stack, or change `name` in the stack file"
        return names_rows(where, {path.rpartition("/")[2]: functools.partial(self._owner, path) for path in paths}, fix)

    def _owner(self, path: str) -> Owner:
        """Return who has a storage account or a key vault with this name. A deleted key vault keeps its name until it is purged."""
        provider, kind, name = path.split("/")[-3:]
        vault = kind == "vaults"
        api = adopt.VERSIONS["vault" if vault else "account"]
        if self.get(f"{provider}/{kind}/read", path, api) is not None:
            return Owner.ACCOUNT
        check = f"/subscriptions/{self.subscription}/providers/{provider}/checkNameAvailability"
        with asked(READS["names"][3 if vault else 2]):
            answer = self.rest.arm_change("POST", check, api, {"name": name, "type": f"{provider}/{kind}"})
            try:
                return Owner.UNUSED if json.loads(answer.body)["nameAvailable"] else Owner.OTHER
            except (ValueError, KeyError, TypeError):
                raise PortUnavailable(f"the response about the name {name} has an unknown format") from None

    # Capacity

    def sizes(self, plan: Plan) -> Iterator[PreflightRow]:
        """The size is available to this subscription in the region and the zone."""
        path = f"/subscriptions/{self.subscription}/providers/Microsoft.Compute/skus"
        query = {"$filter": f"location eq '{self.region}'"}
        listed = self.every("Microsoft.Compute/skus/read", path, "2021-07-01", query)
        skus = {str(one.get("name")).lower(): one for one in listed if one.get("resourceType") == "virtualMachines"}
        for machine, zone in dict.fromkeys((pool.machine, group.zone) for pool in plan.pools for group in pool.groups):
            yield self._size(skus.get(machine.lower()), machine, zone)

    def _size(self, sku: Mapping[str, Any] | None, machine: str, zone: str) -> PreflightRow:
        where = f"{machine} in {self.region}" + (f", zone {zone}" if zone.isdigit() else "")
        other = f"`az vm list-skus --resource-type virtualMachines --size {machine} --all --output table` lists regions"
        if sku is None:
            return problem("machine", where, f"not offered in {self.region}", "a region that offers the size", other)
        restrictions = sku.get("restrictions") or ()
        reasons = {str(one.get("reasonCode")) for one in restrictions if one.get("type") == "Location"}
        if reasons:
            what = f"restricted for this subscription ({', '.join(sorted(reasons))})"
            return problem(
                "machine",
                where,
                what,
                "access to the size",
                f"ask Azure support for access to the size, or choose a different region: {other}",
            )
        offered = {str(name) for one in sku.get("locationInfo") or () for name in one.get("zones") or ()}
        shut = {
            str(name)
            for one in restrictions
            if one.get("type") == "Zone"
            for name in (one.get("restrictionInfo") or {}).get("zones") or ()
        }
        left = sorted(offered - shut)
        if zone.isdigit() and zone not in left:
            fix = f"set `zone` in the stack file to {' or '.join(left)}" if left else "omit `zone` in the stack file"
            return problem("machine", where, f"not offered in zone {zone}", "a zone that offers the size", fix)
        return ok("machine", where, f"offered in zones {', '.join(left)}" if left else "offered without zones")

    def reservation(self, group: Group, machine: str) -> Iterator[PreflightRow]:
        """The capacity reservation group exists and has free reserved VMs of the size in the zone.

        Only nodes of its zone use a reservation in a zone, and only nodes without a zone use one without
        (https://learn.microsoft.com/javascript/api/@azure-rest/arm-compute/capacityreservation, retrieved 2026-11-30)."""
        path = str(group.reservation_id)
        action = "Microsoft.Compute/capacityReservationGroups/capacityReservations/read"
        where = f"{group.name}: {path.rpartition('/')[2]}"
        with asked(action):
            try:
                listed = list(self.rest.pages(f"{path}/capacityReservations", COMPUTE))
            except AzureRefused as error:
                if error.status != 404:
                    raise
                fix = "`az capacity reservation group list --output table` lists groups; set `id` in the stack file"
                yield problem("reservation", where, "no such capacity reservation group", "an existing group", fix)
                return
        of_size = [one for one in listed if str((one.get("sku") or {}).get("name")).lower() == machine.lower()]
        zones = [group.zone] if group.zone.isdigit() else []
        fitting = [one for one in of_size if [str(zone) for zone in one.get("zones") or ()] == zones]
        total = sum(int((one.get("sku") or {}).get("capacity") or 0) for one in fitting)
        used = sum(len((one.get("properties") or {}).get("virtualMachinesAssociated") or ()) for one in fitting)
        free, need = max(0, total - used), group.max_count
        have = (
            f"{free} of {total} free"
            if fitting
            else f"no reservation of {machine} " + (f"in zone {group.zone}" if zones else "without a zone")
        )
        names = [str(one.get("name")) for one in fitting]
        if total < need:
            fix = f"az capacity reservation update --ids {path}/capacityReservations/{names[0] if names else 'NAME'} --capacity {need}"
            yield problem(
                "reservation",
                where,
                have,
                f"{need} VMs of {machine}",
                fix if names else _other_zone(of_size),
            )
        elif free < need:
            needed = f"{need} free VMs, unless nodes of this stack use the other VMs"
            yield warning(
                "reservation",
                where,
                have,
                needed,
                f"az capacity reservation update --ids {path}/capacityReservations/{names[0]} --capacity {used + need}",
            )
        else:
            yield ok("reservation", where, f"{have}, {need} needed")

    # Images

    def image(self, pool: PoolPlan) -> Iterator[PreflightRow]:
        """The image exists in the region, fits the machine type, and is not deprecated."""
        ref, fix = pool.image.ref, "set `image` in the stack file; `gpuinfra images STACK` lists releases"
        if pool.image.source != "urn":
            version = "2024-03-03" if "/galleries/" in ref else COMPUTE
            own = self.get("Microsoft.Compute/images/read", ref, version)
            if own is None:
                yield problem("image", ref, "not found", "an existing image", fix)
                return
            targets = ((own.get("properties") or {}).get("publishingProfile") or {}).get("targetRegions") or ()
            regions = [_plain(one.get("name")) for one in targets] or [_plain(own.get("location"))]
            if _plain(self.region) not in regions:
                yield problem("image", ref, f"is in {', '.join(regions)}", f"an image in {self.region}", fix)
            else:
                yield ok("image", ref, f"found in {self.region}")
            return
        publisher, offer, sku, version = ref.split(":")
        if version == "latest":
            version = self._newest_version(publisher, offer, sku)
        path = f"{self._versions(publisher, offer, sku)}/{version}"
        answer = self.get(READS["image"][0], path, COMPUTE) if version else None
        if answer is None:
            yield problem("image", ref, f"not found in {self.region}", "an existing image", fix)
            return
        properties = answer.get("properties") or {}
        state = str((properties.get("imageDeprecationStatus") or {}).get("imageState") or "Active")
        arch = {"x64": "x86_64", "Arm64": "arm64"}.get(str(properties.get("architecture")), pool.image.arch)
        if arch != pool.image.arch:
            yield problem("image", ref, f"version {version} is for {arch}", f"an image for {pool.image.arch}", fix)
        elif properties.get("plan"):
            accept = (
                f"az vm image terms accept --urn {publisher}:{offer}:{sku}:{version} --subscription {self.subscription}"
            )
            yield warning("image", ref, f"version {version} has marketplace terms", "accepted terms", accept)
        elif state != "Active":
            yield warning("image", ref, f"version {version} is {state}", "a current image", fix)
        else:
            yield ok("image", ref, f"version {version}")

    def newest_image(self, family: ImageFamily) -> str | None:
        """Return the URN of the newest image of a family, in the form of `ImageFamily.dated`, or None if the region has none."""
        publisher, offer, sku, _ = family.latest.split(":")
        version = self._newest_version(publisher, offer, sku)
        return f"{publisher}:{offer}:{sku}:{version}" if version else None

    def _newest_version(self, publisher: str, offer: str, sku: str) -> str:
        path, query = self._versions(publisher, offer, sku), {"$top": "1", "$orderby": "name desc"}
        listed = self.get(READS["image"][0], path, COMPUTE, query)
        newest = next(iter((listed or {}).get("value") or ()), {})
        return str(newest.get("name") or "")

    def _versions(self, publisher: str, offer: str, sku: str) -> str:
        return (
            f"/subscriptions/{self.subscription}/providers/Microsoft.Compute/locations/{self.region}/publishers/{publisher}"
            f"/artifacttypes/vmimage/offers/{offer}/skus/{sku}/versions"
        )


def _other_zone(reservations: Sequence[Mapping[str, Any]]) -> str:
    """Return what to change if the group of these reservations of the size has none in the zone of the nodes."""
    zones = sorted({str(zone) for one in reservations for zone in one.get("zones") or ()})
    if zones:
        return f"set `zone` in the stack file to {' or '.join(zones)}"
    if reservations:
        return "omit `zone` in the stack file, because the reservation has no zone"
    return "add a reservation of the size to the group, or set `id` to a different group"


def _allows(entry: Mapping[str, Any], action: str) -> bool:
    """Return whether an entry with `actions` and `notActions`, which can contain `*`, allows an action."""
    return _matches(entry.get("actions"), action) and not _matches(entry.get("notActions"), action)


def _matches(patterns: Any, action: str) -> bool:
    return any(fnmatchcase(action.lower(), str(one).lower()) for one in patterns or ())


def _plain(name: object) -> str:
    """Return a name without case and spaces. Azure uses several spellings of quotas and regions."""
    return str(name or "").replace(" ", "").lower()


@contextmanager
def asked(action: str) -> Iterator[None]:
    """Convert Azure errors to `Unanswered`. The caller handles other error codes first."""
    try:
        yield
    except AzureRefused as error:
        if error.status == 401:
            raise rejected(str(error), LOGIN) from None
        if error.status == 403:
            raise denied(action, str(error)) from None
        if error.status == 429:
            raise throttled(action, str(error)) from None
        raise failed(action, str(error)) from None
    except PortUnavailable as error:
        raise unreachable(action, str(error)) from None
