"""The four ports on Azure, over Azure Resource Manager and blob storage.

A group is a scale set by its full id, a node is a machine by its `vmId`, evidence lies in a container, and a proof is a set of attested
documents. API versions and the shapes of answers are those of the REST reference, read 2026-11-21 and compared with the models
of azure-mgmt-compute; nothing here has met a real subscription.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from gpuinfra.handover.attested import Trust, check_proof
from gpuinfra.handover.aws import harmless
from gpuinfra.handover.azure_rest import Refused, Rest, raise_for
from gpuinfra.handover.ports import (
    EvidenceRef,
    GroupExpected,
    Identity,
    IdentityRefused,
    Member,
    Ports,
    PortUnavailable,
    Trouble,
)

API_COMPUTE, API_NICS, API_ACTIVITY = "2024-11-01", "2018-10-01", "2015-04-01"
TEMPLATE_TAG = "gpuinfra:template"
"""Tag of a scale set: what its model makes instances from, in short. `NodePool` writes it beside the model."""
EVIDENCE_LIMIT = 8 * 1024 * 1024
PROOF_LIMIT = 64 * 1024
CONSOLE_LIMIT = 256 * 1024
ACTIVITY_WINDOW = timedelta(hours=2)

TROUBLES: tuple[tuple[str, str], ...] = (
    # Codes and texts of Azure's errors, and what they mean for a person. First match wins.
    # https://learn.microsoft.com/azure/virtual-machines/allocation-failure and .../error-codes-spot, read 2026-11-21.
    (
        r"AllocationFail|ZonalAllocationFailed|Overconstrained\w*AllocationRequest|SkuNotAvailable|EvictedBy|OutOfCapacity|OverProvisioned|(in)?sufficient capacity",
        "capacity",
    ),
    (r"Quota|OperationNotAllowed.*exceed|LimitExceeded|Max\w*Exceeded", "quota"),
    (
        r"AuthorizationFailed|LinkedAuthorizationFailed|Forbidden|KeyVault\w*Access|DiskEncryptionSet\w*Denied",
        "permission",
    ),
    (
        r"ImageNotFound|PlatformImageNotFound|GalleryImage\w*NotFound|Marketplace\w*|ImageVersionDeprecated|SecureBoot",
        "image",
    ),
)


def connect(region: str, bucket: str, prefix: str, *, profile: str = "", role_arn: str = "") -> Ports:
    """Ports of one subscription, under the operator's credentials. `bucket` is the address of the evidence's container."""
    if profile or role_arn:
        raise PortUnavailable(
            "profile and role_arn are AWS's; on Azure the environment says whose credentials are used"
        )
    rest = Rest()
    membership = ScaleSets(rest)
    return Ports(
        membership=membership,
        store=BlobEvidence(rest, bucket, prefix),
        identity=AttestedIdentity(Trust(), membership.subscriptions),
        console=BootDiagnostics(rest, membership.place),
    )


def classify(message: str) -> str:
    """The kind of a failure, from Azure's own code and text."""
    return next((kind for pattern, kind in TROUBLES if re.search(pattern, message, re.IGNORECASE | re.DOTALL)), "other")


class ScaleSets:
    """Who is there: the scale sets' own word."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._places: dict[str, str] = {}
        self._asked: set[str] = set()

    def subscriptions(self) -> set[str]:
        """Subscriptions whose scale sets were asked for."""
        return self._asked

    def place(self, vm_id: str) -> str | None:
        """The ARM id of a machine that was seen."""
        return self._places.get(vm_id)

    def members(self, groups: Sequence[GroupExpected]) -> list[Member]:
        """Machines of the scale sets; a set that is gone has none."""
        found: list[Member] = []
        for group in groups:
            path = _scale_set(group.group)
            self._asked.add(path.split("/")[2].lower())
            try:
                model = self._rest.arm(path, API_COMPUTE)
                machines = list(self._rest.pages(f"{path}/virtualMachines", API_COMPUTE, {"$expand": "instanceView"}))
            except Refused as error:
                if error.status == 404:
                    continue
                raise
            wanted = str((model.get("tags") or {}).get(TEMPLATE_TAG) or "")
            addresses = self._addresses(path) if machines else {}
            found += [self._member(group.group, one, wanted, addresses) for one in machines if _vm_id(one)]
        return found

    def _member(self, group: str, machine: dict[str, Any], wanted: str, addresses: dict[str, str]) -> Member:
        said = machine.get("properties") or {}
        vm_id, place = _vm_id(machine), str(machine.get("id") or "")
        self._places[vm_id] = place
        return Member(
            instance_id=vm_id,
            group=group,
            template_version=wanted if said.get("latestModelApplied") is not False else f"older than {wanted}",
            launched=_moment(said.get("timeCreated")),
            zone=next((str(zone) for zone in machine.get("zones") or []), ""),
            private_ip=addresses.get(place.lower(), ""),
            resource=place,
            leaving=_leaving(said),
            renewed=True,
        )

    def _addresses(self, path: str) -> dict[str, str]:
        """Private address by the machine's ARM id; who may not read network interfaces does without."""
        found: dict[str, str] = {}
        try:
            for interface in self._rest.pages(f"{path}/networkInterfaces", API_NICS):
                said = interface.get("properties") or {}
                machine = str((said.get("virtualMachine") or {}).get("id") or "").lower()
                for one in said.get("ipConfigurations") or []:
                    address = (one.get("properties") or {}).get("privateIPAddress")
                    if machine and address and said.get("primary") is not False:
                        found.setdefault(machine, str(address))
        except PortUnavailable:
            return found
        return found

    def troubles(self, groups: Sequence[GroupExpected]) -> list[Trouble]:
        """Errors that the sets and their machines show now, and failed operations of the last two hours that nothing answered."""
        found: list[Trouble] = []
        for group in groups:
            path = _scale_set(group.group)
            found += self._shown(group.group, path) or self._failed(group.group, path)
        return found

    def _shown(self, group: str, path: str) -> list[Trouble]:
        views = [self._rest.arm(f"{path}/instanceView", API_COMPUTE)]
        for machine in self._rest.pages(f"{path}/virtualMachines", API_COMPUTE, {"$expand": "instanceView"}):
            views.append((machine.get("properties") or {}).get("instanceView") or {})
        statuses = [status for view in views for status in view.get("statuses") or []]
        return [
            _trouble(group, str(status.get("code") or "").rpartition("/")[2], status.get("message"), status.get("time"))
            for status in statuses
            if status.get("level") == "Error"
        ]

    def _failed(self, group: str, path: str) -> list[Trouble]:
        """The activity log, newest first; who may not read it does without."""
        since = datetime.now(UTC) - ACTIVITY_WINDOW
        wanted = f"eventTimestamp ge '{since:%Y-%m-%dT%H:%M:%SZ}' and resourceUri eq '{path}'"
        log = f"/subscriptions/{path.split('/')[2]}/providers/Microsoft.Insights/eventtypes/management/values"
        found: list[Trouble] = []
        try:
            for event in self._rest.pages(log, API_ACTIVITY, {"$filter": wanted}):
                status = str((event.get("status") or {}).get("value") or "")
                if status == "Succeeded":
                    break
                if status == "Failed":
                    code, message = _said(str((event.get("properties") or {}).get("statusMessage") or ""))
                    found.append(_trouble(group, code, message, event.get("eventTimestamp")))
        except Refused:
            return found
        return found


def _scale_set(group: str) -> str:
    """The path of a scale set. Raises `PortUnavailable` where the id is another one's."""
    if not re.fullmatch(
        r"/subscriptions/[^/?#]+/resourceGroups/[^/?#]+/providers/Microsoft\.Compute/virtualMachineScaleSets/[^/?#]+",
        group,
        re.I,
    ):
        raise PortUnavailable(f"{group[:200]!r} is not the id of a scale set")
    return group


def _vm_id(machine: dict[str, Any]) -> str:
    return str((machine.get("properties") or {}).get("vmId") or "").lower()


def _leaving(said: dict[str, Any]) -> bool:
    """Whether a machine goes, or is gone but for its name: an evicted spot machine stays as deallocated."""
    if str(said.get("provisioningState") or "").lower() == "deleting":
        return True
    codes = [str(s.get("code") or "").lower() for s in (said.get("instanceView") or {}).get("statuses") or []]
    return any(code in ("powerstate/deallocating", "powerstate/deallocated", "powerstate/stopped") for code in codes)


def _trouble(group: str, code: str, message: object, at: object) -> Trouble:
    text = " ".join(str(message or "").split())
    whole = f"{code}: {text}" if code and code not in text else text or code
    return Trouble(group=group, kind=classify(whole), message=whole, at=_moment(at))


def _said(text: str) -> tuple[str, str]:
    """Code and message of an activity's status message, which is JSON in a string."""
    try:
        error = json.loads(text)["error"]
        return str(error.get("code") or ""), str(error.get("message") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", text


def _moment(value: object) -> datetime | None:
    """A time of ARM; it writes seven digits of a second, and sometimes no zone."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", value))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


KEY = re.compile(
    r"(?P<instance>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/(?P<boot>[0-9a-f-]{8,64})/(?P<seq>\d{6})\.json"
)


class BlobEvidence:
    """Evidence below one prefix of a container: `<prefix>/<vmId>/<boot>/<seq>.json`."""

    def __init__(self, rest: Rest, container: str, prefix: str) -> None:
        self._rest = rest
        self._base = rest.blob_base(container)
        self._prefix = prefix.strip("/") + "/"

    def list(self) -> Iterator[EvidenceRef]:
        """Every piece of evidence; names of another shape are not evidence."""
        from urllib.parse import urlencode

        from defusedxml.ElementTree import fromstring

        marker = ""
        for _ in range(10_000):
            query = {"restype": "container", "comp": "list", "prefix": self._prefix, "marker": marker}
            answer = raise_for(self._rest.blob("GET", f"{self._base}?{urlencode(query)}"))
            try:
                root = fromstring(answer.body)
            except Exception as error:
                raise PortUnavailable(f"the list of evidence cannot be read: {type(error).__name__}") from None
            for blob in root.iter("Blob"):
                ref = parse_entry(self._prefix, blob)
                if ref is not None:
                    yield ref
            marker = root.findtext("NextMarker") or ""
            if not marker:
                return
        raise PortUnavailable("the list of evidence does not end")

    def read(self, ref: EvidenceRef) -> bytes:
        """One piece of evidence, bounded."""
        return raise_for(self._get(ref.key, EVIDENCE_LIMIT)).body

    def proof(self, ref: EvidenceRef) -> bytes | None:
        """The proof beside it; None where none was put yet."""
        answer = self._get(ref.key.removesuffix(".json") + ".proof.json", PROOF_LIMIT)
        return None if answer.status == 404 else raise_for(answer).body

    def _get(self, key: str, limit: int) -> Any:
        from urllib.parse import quote

        return self._rest.blob("GET", f"{self._base}/{quote(key, safe='/-_.~')}", {"Range": f"bytes=0-{limit - 1}"})


def parse_entry(prefix: str, blob: Any) -> EvidenceRef | None:
    """A listing's `Blob` as evidence, or None where it is something else, such as a proof."""
    name = blob.findtext("Name") or ""
    match = KEY.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
    modified = blob.findtext("Properties/Last-Modified")
    if match is None or not modified:
        return None
    try:
        when = parsedate_to_datetime(modified)
    except ValueError:
        return None
    return EvidenceRef(
        instance_id=match["instance"],
        boot_id=match["boot"],
        seq=int(match["seq"]),
        key=name,
        etag=blob.findtext("Properties/Etag") or "",
        modified=when,
    )


class AttestedIdentity:
    """Attested documents, verified here; Azure itself is not asked, because its signature is the answer."""

    def __init__(
        self,
        trust: Trust,
        subscriptions: Callable[[], set[str]],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._trust = trust
        self._subscriptions = subscriptions
        self._clock = clock

    def verify(self, proof: dict[str, object]) -> Identity:
        """Which machine of the asked subscriptions vouches for which evidence. A document names no role, so none is given."""
        said, sha256 = check_proof(proof, self._trust, self._clock())
        allowed = self._subscriptions()
        if said.subscription not in allowed:
            raise IdentityRefused(
                f"its evidence was attested in subscription {said.subscription[:40]}, not in {', '.join(sorted(allowed)) or 'one that was asked'}"
            )
        return Identity(account=said.subscription, role="", instance_id=said.vm_id, evidence_sha256=sha256)


class BootDiagnostics:
    """The serial console as Azure's boot diagnostics keep it."""

    def __init__(self, rest: Rest, place: Callable[[str], str | None]) -> None:
        self._rest = rest
        self._place = place

    def tail(self, instance_id: str, lines: int) -> list[str]:
        """Its last lines; empty when Azure has none, or boot diagnostics are off."""
        place = self._place(instance_id)
        if place is None:
            return []
        said = self._rest.arm(f"{place}/retrieveBootDiagnosticsData", API_COMPUTE, post=True)
        url = str(said.get("serialConsoleLogBlobUri") or "")
        if not url:
            return []
        text = self._rest.signed(url, CONSOLE_LIMIT).decode("utf-8", "replace")
        return [harmless(line) for line in text.splitlines()[-lines:]]
