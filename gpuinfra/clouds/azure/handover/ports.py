"""The four ports on Azure, over Azure Resource Manager and blob storage.

A group is a scale set, identified by its full ARM ID. A node is a virtual machine, identified by its `vmId`. Evidence is stored in a container. A proof is a
set of attested documents. API versions and response formats come from the REST reference, retrieved 2026-11-21, and were compared with the
models of azure-mgmt-compute; not yet tested on a real subscription.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from gpuinfra.base.json_text import parsed
from gpuinfra.base.safe_text import MAX_LINE, printable
from gpuinfra.clouds.azure.handover.attested import Trust, check_proof
from gpuinfra.clouds.azure.rest import THROTTLED_S, AzureRefused, Rest, raise_for
from gpuinfra.handover.ports import (
    PROOF_LIMIT,
    CloudTerms,
    EvidenceRef,
    GroupExpected,
    GroupProblem,
    Identity,
    IdentityRefused,
    ListedObject,
    Member,
    Ports,
    PortUnavailable,
    StoredProof,
    evidence_in,
)
from gpuinfra.handover.refusals import Refusals
from gpuinfra.handover.text import moment
from gpuinfra.node.azure import redeploy_path

API_COMPUTE, API_NICS, API_ACTIVITY = "2024-11-01", "2018-10-01", "2015-04-01"
TRUST_VARIABLES = (
    "GPUINFRA_AZURE_ATTESTATION_CERTIFICATES",
    "GPUINFRA_AZURE_RESOURCE_MANAGER",
    "AZURE_STORAGE_SERVICE_ENDPOINT",
)
TEMPLATE_TAG = "gpuinfra:template"
"""Scale set tag that contains a short hash of the scale set's model. `NodePool` writes the tag together with the model."""
CONSOLE_LIMIT = 256 * 1024
ACTIVITY_WINDOW = timedelta(hours=2)

TERMS = CloudTerms(
    group="scale set",
    template="model",
    update="check the rolling upgrade of the scale set (`az vmss rolling-upgrade get-latest`)",
    # A deletion would decrease the capacity of the scale set.
    replace="redeploy the instance so that the scale set moves it to a different host",
    activities="read the activity log of the scale set",
)
REFUSALS = Refusals(Path(__file__).with_name("refusals.json"))


def connect(
    region: str, bucket: str, prefix: str, *, profile: str = "", role_arn: str = "", assume_roles: str = ""
) -> Ports:
    """Return the ports for one subscription, which use the operator's credentials. `bucket` is the address of the evidence container."""
    if profile or role_arn or assume_roles:
        raise PortUnavailable(
            "profile and role_arn apply only to AWS; on Azure, set the credentials in the environment"
        )
    rest = Rest(patience_s=THROTTLED_S)
    membership = ScaleSets(rest)
    return Ports(
        membership=membership,
        store=BlobEvidence(rest, bucket, prefix),
        identity=AttestedIdentity(Trust(), membership.subscriptions),
        console=BootDiagnostics(rest, membership.arm_id),
    )


def access(resources: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return no arguments of `connect`: the credentials are those of the environment."""
    return {}


def check_credentials() -> None:
    """Do nothing: only a request shows whether there are credentials."""


class ScaleSets:
    """Members of scale sets."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._arm_ids: dict[str, str] = {}
        self._asked: set[str] = set()

    def subscriptions(self) -> set[str]:
        """Return the subscriptions of the scale sets that were read."""
        return self._asked

    def arm_id(self, vm_id: str) -> str | None:
        """Return the ARM ID of a virtual machine that was read earlier."""
        return self._arm_ids.get(vm_id)

    def members(self, groups: Sequence[GroupExpected]) -> list[Member]:
        """Return the virtual machines in the scale sets. A deleted scale set has none."""
        members: list[Member] = []
        for group in groups:
            path = _scale_set(group.group)
            self._asked.add(path.split("/")[2].lower())
            try:
                model = self._rest.arm(path, API_COMPUTE)
                machines = list(self._rest.pages(f"{path}/virtualMachines", API_COMPUTE, {"$expand": "instanceView"}))
            except AzureRefused as error:
                if error.status == 404:
                    continue
                raise
            current = str((model.get("tags") or {}).get(TEMPLATE_TAG) or "")
            addresses = self._addresses(path) if machines else {}
            members += [self._member(group.group, one, current, addresses) for one in machines if _vm_id(one)]
        return members

    def _member(self, group: str, machine: dict[str, Any], current: str, addresses: dict[str, str]) -> Member:
        properties = machine.get("properties") or {}
        vm_id, arm_id = _vm_id(machine), str(machine.get("id") or "")
        self._arm_ids[vm_id] = arm_id
        return Member(
            instance_id=vm_id,
            group=group,
            template_version=current if properties.get("latestModelApplied") is not False else f"older than {current}",
            launched=moment(properties.get("timeCreated")),
            zone=next((str(zone) for zone in machine.get("zones") or []), ""),
            private_ip=addresses.get(arm_id.lower(), ""),
            resource=arm_id,
            leaving=_leaving(properties),
            renewed=True,
        )

    def _addresses(self, path: str) -> dict[str, str]:
        """Return private addresses, keyed by ARM ID. The result is empty without permission to read network interfaces."""
        addresses: dict[str, str] = {}
        try:
            for interface in self._rest.pages(f"{path}/networkInterfaces", API_NICS):
                properties = interface.get("properties") or {}
                machine = str((properties.get("virtualMachine") or {}).get("id") or "").lower()
                for configuration in properties.get("ipConfigurations") or []:
                    address = (configuration.get("properties") or {}).get("privateIPAddress")
                    if machine and address and properties.get("primary") is not False:
                        addresses.setdefault(machine, str(address))
        except PortUnavailable:
            return addresses
        return addresses

    def proceed(self, groups: Sequence[GroupExpected]) -> list[str]:
        """Do nothing, because the scale set continues on its own after a healthy batch."""
        return []

    def replace(self, group: GroupExpected, instance_id: str) -> None:
        """Redeploy a virtual machine: Azure shuts it down, moves it to a different host, and starts it (`gpuinfra.node.azure`)."""
        arm_id = self._arm_ids.get(instance_id)
        if arm_id is None:
            raise PortUnavailable(f"{instance_id} is not in the scale set {group.group.rpartition('/')[2]}")
        self._rest.arm(redeploy_path(arm_id), API_COMPUTE, post=True)

    def problems(self, groups: Sequence[GroupExpected]) -> list[GroupProblem]:
        """Return current errors, and operations that failed in the last two hours and did not succeed later."""
        problems: list[GroupProblem] = []
        for group in groups:
            path = _scale_set(group.group)
            problems += self._current_errors(group.group, path) or self._failed_operations(group.group, path)
        return problems

    def _current_errors(self, group: str, path: str) -> list[GroupProblem]:
        views = [self._rest.arm(f"{path}/instanceView", API_COMPUTE)]
        for machine in self._rest.pages(f"{path}/virtualMachines", API_COMPUTE, {"$expand": "instanceView"}):
            views.append((machine.get("properties") or {}).get("instanceView") or {})
        statuses = [status for view in views for status in view.get("statuses") or []]
        return [
            REFUSALS.coded(
                group,
                str(status.get("code") or "").rpartition("/")[2],
                status.get("message"),
                moment(status.get("time")),
            )
            for status in statuses
            if status.get("level") == "Error"
        ]

    def _failed_operations(self, group: str, path: str) -> list[GroupProblem]:
        """Return failures from the activity log, newest first. The result is empty without permission to read the log."""
        since = datetime.now(UTC) - ACTIVITY_WINDOW
        query = f"eventTimestamp ge '{since:%Y-%m-%dT%H:%M:%SZ}' and resourceUri eq '{path}'"
        log = f"/subscriptions/{path.split('/')[2]}/providers/Microsoft.Insights/eventtypes/management/values"
        problems: list[GroupProblem] = []
        try:
            for event in self._rest.pages(log, API_ACTIVITY, {"$filter": query}):
                status = str((event.get("status") or {}).get("value") or "")
                if status == "Succeeded":
                    break
                if status == "Failed":
                    code, message = _error(str((event.get("properties") or {}).get("statusMessage") or ""))
                    problems.append(REFUSALS.coded(group, code, message, moment(event.get("eventTimestamp"))))
        except AzureRefused:
            return problems
        return problems


def _scale_set(group: str) -> str:
    """Return the path of a scale set. Raises `PortUnavailable` for any other ID."""
    if not re.fullmatch(
        r"/subscriptions/[^/?#]+/resourceGroups/[^/?#]+/providers/Microsoft\.Compute/virtualMachineScaleSets/[^/?#]+",
        group,
        re.I,
    ):
        raise PortUnavailable(f"{group[:200]!r} is not the ID of a scale set")
    return group


def _vm_id(machine: dict[str, Any]) -> str:
    return str((machine.get("properties") or {}).get("vmId") or "").lower()


def _leaving(properties: dict[str, Any]) -> bool:
    """Return True for a virtual machine that is stopped or being deleted. An evicted spot instance remains listed as deallocated."""
    if str(properties.get("provisioningState") or "").lower() == "deleting":
        return True
    codes = [str(s.get("code") or "").lower() for s in (properties.get("instanceView") or {}).get("statuses") or []]
    return any(code in ("powerstate/deallocating", "powerstate/deallocated", "powerstate/stopped") for code in codes)


def _error(text: str) -> tuple[str, str]:
    """Return the code and the message from an activity's status message, which is a JSON string."""
    try:
        error = parsed(text)["error"]
        return str(error.get("code") or ""), str(error.get("message") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", text


NODE = r"(?P<instance>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"


class BlobEvidence:
    """Evidence under one prefix of a container: `<prefix>/<vmId>/<boot>/<seq>.json`."""

    def __init__(self, rest: Rest, container: str, prefix: str) -> None:
        self._rest = rest
        self._container = container
        self._prefix = prefix.strip("/") + "/"

    @cached_property
    def _base(self) -> str:
        # Computed on first use, because the members of groups are also read without a container.
        return self._rest.blob_base(self._container)

    def folders(self) -> Iterator[str]:
        """Return the names of the folders. Azure returns the blobs in a folder as one `BlobPrefix` element, and up to 5,000 elements per request.

        https://learn.microsoft.com/rest/api/storageservices/list-blobs (retrieved 2026-11-26).
        """
        for page in self._pages(self._prefix, delimiter="/"):
            for folder in page.iter("BlobPrefix"):
                yield (folder.findtext("Name") or "").removeprefix(self._prefix).rstrip("/")

    def list(self, folder: str) -> Iterator[EvidenceRef]:
        """List the evidence in a folder. Other names are skipped."""
        blobs = (blob for page in self._pages(f"{self._prefix}{folder}/") for blob in page.iter("Blob"))
        return evidence_in(NODE, self._prefix, filter(None, map(stored_blob, blobs)))

    def _pages(self, prefix: str, **more: str) -> Iterator[Any]:
        from urllib.parse import urlencode

        from defusedxml.ElementTree import fromstring

        marker = ""
        for _ in range(10_000):
            query = {"restype": "container", "comp": "list", "prefix": prefix, "marker": marker, **more}
            answer = raise_for(self._rest.blob("GET", f"{self._base}?{urlencode(query)}"))
            try:
                root = fromstring(answer.body)
            except Exception as error:
                raise PortUnavailable(f"cannot parse the list of evidence: {type(error).__name__}") from None
            yield root
            marker = root.findtext("NextMarker") or ""
            if not marker:
                return
        raise PortUnavailable("the list of evidence has too many pages")

    def read(self, ref: EvidenceRef) -> bytes:
        """Read one piece of evidence, up to the size limit."""
        return raise_for(self._get(ref.key, ref.limit)).body

    def proof(self, proof: StoredProof) -> bytes | None:
        """Return the content of an identity proof, or None if it does not exist anymore."""
        return self.published(proof.key, PROOF_LIMIT)

    def publish(self, key: str, document: Mapping[str, object]) -> None:
        """Write or replace a blob in the container."""
        self._put(key, document, {})

    def tagged(self, key: str) -> tuple[bytes, str] | None:
        """Return a blob and its ETag, or None if it does not exist."""
        answer = self._rest.blob("GET", self._url(key))
        if answer.status == 404:
            return None
        body = raise_for(answer).body
        return body, next((value for name, value in answer.headers.items() if name.lower() == "etag"), "")

    def update(self, key: str, document: Mapping[str, object], tag: str | None) -> bool:
        """Write a blob if its ETag did not change (https://learn.microsoft.com/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations,
        retrieved 2026-11-30)."""
        try:
            self._put(key, document, {"If-None-Match": "*"} if tag is None else {"If-Match": tag})
        except AzureRefused as error:
            if error.code in ("ConditionNotMet", "BlobAlreadyExists"):
                return False
            raise
        return True

    def _put(self, key: str, document: Mapping[str, object], guard: Mapping[str, str]) -> None:
        headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/json", **guard}
        body = json.dumps(document, separators=(",", ":")).encode("ascii")
        raise_for(self._rest.blob("PUT", self._url(key), headers, body))

    def published(self, key: str, limit: int = 1 << 20) -> bytes | None:
        """Return the first bytes of a blob in the container, or None if it does not exist."""
        answer = self._get(key, limit)
        return None if answer.status == 404 else raise_for(answer).body

    def _get(self, key: str, limit: int) -> Any:
        return self._rest.blob("GET", self._url(key), {"Range": f"bytes=0-{limit - 1}"})

    def _url(self, key: str) -> str:
        from urllib.parse import quote

        return f"{self._base}/{quote(key, safe='/-_.~')}"


def stored_blob(blob: Any) -> ListedObject | None:
    """Parse a `Blob` element of a list. Returns None for an element without a time."""
    name, etag = blob.findtext("Name") or "", blob.findtext("Properties/Etag") or ""
    try:
        modified = parsedate_to_datetime(blob.findtext("Properties/Last-Modified") or "")
    except ValueError:
        return None
    return ListedObject(key=name, etag=etag, modified=modified)


@dataclass(frozen=True)
class AttestedIdentity:
    """Verifies Azure's signature on attested documents locally, without a request to Azure."""

    trust: Trust
    subscriptions: Callable[[], set[str]]
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def verify(self, proof: dict[str, object]) -> Identity:
        """Return the virtual machine that signed the evidence, and the evidence hash. `role` is empty, because documents do not contain a role."""
        document, sha256 = check_proof(proof, self.trust, self.clock())
        allowed = self.subscriptions()
        if document.subscription not in allowed:
            raise IdentityRefused(
                f"the node's evidence was attested in subscription {document.subscription[:40]}, "
                f"expected {', '.join(sorted(allowed)) or 'a subscription of its groups'}"
            )
        return Identity(account=document.subscription, role="", instance_id=document.vm_id, evidence_sha256=sha256)


class BootDiagnostics:
    """The serial console log that Azure's boot diagnostics store."""

    def __init__(self, rest: Rest, arm_id: Callable[[str], str | None]) -> None:
        self._rest = rest
        self._arm_id = arm_id

    def tail(self, instance_id: str, lines: int) -> list[str]:
        """Return the last lines of the log. The result is empty if Azure has no log or boot diagnostics are disabled."""
        arm_id = self._arm_id(instance_id)
        if arm_id is None:
            return []
        answer = self._rest.arm(f"{arm_id}/retrieveBootDiagnosticsData", API_COMPUTE, post=True)
        url = str(answer.get("serialConsoleLogBlobUri") or "")
        if not url:
            return []
        text = self._rest.signed(url, CONSOLE_LIMIT).decode("utf-8", "replace")
        return [printable(line, MAX_LINE) for line in text.splitlines()[-lines:]]
