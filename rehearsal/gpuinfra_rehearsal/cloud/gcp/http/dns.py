"""Cloud DNS: managed zones that the control interface describes, and the records in them.

Requests and responses: the discovery document of Cloud DNS, revision 20261009. Recorded errors: puppetlabs/vmpooler-provider-gce (`conditionNotMet` and
`alreadyExists`), retrieved 2026-11-27. Cloud DNS is a global service, so an outage of a region has no effect.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.core.http import Request, Response, json_response
from gpuinfra_rehearsal.cloud.gcp import operator, tokens
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError, invalid

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

_RECORD = "dns-record"
_PATH = re.compile(r"dns/v1/(?P<zone>projects/[^/]+/managedZones/(?P<name>[^/]+))(?:/(?P<part>rrsets|changes))?")
_FIELDS = ("name", "type", "ttl", "rrdatas")


def answer(cloud: Cloud, request: Request, rest: str) -> Response:
    """Handle a request of the operator."""
    who = tokens.principal(cloud.store, request.headers.get("authorization", ""))
    at = _PATH.fullmatch(rest)
    if at is None:
        raise GoogleError("notFound", f"{rest[:200]} is not supported in a rehearsal", status=404)
    zone, part = at["zone"], at["part"]
    if not who.is_operator:
        raise GoogleError("forbidden", f"Permission denied on resource '{zone}'", status=403)
    actions = {("GET", None): "managedZones.get", ("GET", "rrsets"): "resourceRecordSets.list", ("POST", "changes"): "changes.create"}  # fmt: skip
    action = actions.get((request.method, part))
    if action is None:
        raise GoogleError("notImplemented", f"{request.method} of {part} is not supported in a rehearsal", status=501)
    cloud.operator.check(operator, operator.storage(f"dns.{action}", zone))
    domain = (cloud.store.get("external", zone) or {}).get("domain")
    if domain is None:
        text = f"The 'parameters.managedZone' resource named '{at['name']}' does not exist."
        raise GoogleError("notFound", text, status=404)
    if part is None:
        managed_zone = {"kind": "dns#managedZone", "name": at["name"], "dnsName": f"{domain}.", "visibility": "private"}
        return json_response(managed_zone)
    if part == "rrsets":
        return json_response({"kind": "dns#resourceRecordSetsListResponse", "rrsets": _listed(cloud, zone, request)})
    return json_response(_change(cloud, zone, f"{domain}.", request))


def _listed(cloud: Cloud, zone: str, request: Request) -> list[dict[str, Any]]:
    """List the records of a zone, or those with a name and a type."""
    asked = {key: request.query[key] for key in ("name", "type") if key in request.query}
    return [
        {**one, "kind": "dns#resourceRecordSet", "signatureRrdatas": []}
        for id, one in cloud.store.all(_RECORD).items()
        if id.startswith(f"{zone}/") and all(one[key] == value for key, value in asked.items())
    ]


def _change(cloud: Cloud, zone: str, domain: str, request: Request) -> dict[str, Any]:
    """Apply all additions and deletions, or none."""
    try:
        body = json.loads(request.body or b"{}")
        additions, deletions = ([{key: one[key] for key in _FIELDS} for one in body.get(part) or ()] for part in ("additions", "deletions"))  # fmt: skip
    except (ValueError, TypeError, KeyError):
        raise invalid("Invalid JSON payload received.") from None
    _check(cloud, zone, additions, deletions)
    for index, record_set in enumerate(deletions):
        if cloud.store.get(_RECORD, _id(zone, record_set)) != record_set:
            raise GoogleError("conditionNotMet", f"Precondition not met for 'entity.change.deletions[{index}]'", status=412)  # fmt: skip
    deleted = {_id(zone, one) for one in deletions}
    for index, record_set in enumerate(additions):
        if not f".{record_set['name']}".endswith(f".{domain}"):
            raise invalid(f"Invalid value for 'entity.change.additions[{index}].name': '{record_set['name']}'")
        if _id(zone, record_set) not in deleted and cloud.store.get(_RECORD, _id(zone, record_set)) is not None:
            text = f"The resource 'entity.change.additions[{index}]' named '{record_set['name']} ({record_set['type']})' already exists"  # fmt: skip
            raise GoogleError("alreadyExists", text, status=409)
    with cloud.store.change():
        for id in deleted:
            cloud.store.drop(_RECORD, id)
        for record_set in additions:
            cloud.store.put(_RECORD, _id(zone, record_set), record_set)
    cloud.store.log("changes.create", "dns", zone, "")
    return {
        "kind": "dns#change",
        "id": "1",
        "status": "pending",
        "startTime": "2026-01-01T00:00:00.000Z",
        "additions": additions,
        "deletions": deletions,
    }


def _check(cloud: Cloud, zone: str, additions: list[dict[str, Any]], deletions: list[dict[str, Any]]) -> None:
    """Check the permissions for the content of a change (https://docs.cloud.google.com/dns/docs/reference/rest/v1/changes/create, retrieved 2026-11-27)."""
    added, deleted = ({_id(zone, one) for one in part} for part in (additions, deletions))
    needed = {"create": added - deleted, "delete": deleted, "update": added & deleted}
    for verb, records in needed.items():
        if records:
            cloud.operator.check(operator, operator.storage(f"dns.resourceRecordSets.{verb}", zone))


def _id(zone: str, record: dict[str, Any]) -> str:
    return f"{zone}/{record['name']}/{record['type']}"
