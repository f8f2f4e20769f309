"""Route 53: hosted zones that the control interface describes, and the records in them.

The protocol is REST with XML. A recorded response of ListResourceRecordSets is in hashicorp/terraform issue 9732, and the message about a
conflict of record types is in ansible-collections/amazon.aws issue 2694; both retrieved 2026-11-27. The control plane is in `places.CONTROL_REGION`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from gpuinfra_rehearsal.cloud.aws import credentials, operator, places, signatures
from gpuinfra_rehearsal.cloud.core import outage
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected
from gpuinfra_rehearsal.cloud.core.http import Request, Response

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

PREFIX = "/2013-04-01/"
_XML = "https://route53.amazonaws.com/doc/2013-04-01/"
_RECORD = "dns-record"
_PATH = re.compile(r"/2013-04-01/hostedzone/(Z[0-9A-Z]+)(/rrset/?)?")


class Route53:
    """Serves `/2013-04-01/hostedzone/ZONE` and its records."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def __call__(self, request: Request) -> Response:
        try:
            verified = signatures.verify(request, lambda key: credentials.by_id(self.cloud.store, key))
            if outage.affects(self.cloud.store, places.CONTROL_REGION):
                raise outage.NoResponse(places.CONTROL_REGION)
            name, body = self._serve(request, verified)
            text = f'<?xml version="1.0" encoding="UTF-8"?><{name} xmlns="{_XML}">{body}</{name}>'
            return Response(200, text.encode(), "text/xml")
        except ApiRejected as error:
            self.cloud.store.log(request.method, "route53", request.path[:500], "", error.code)
            inner = (
                f"<Error><Type>Sender</Type><Code>{error.code}</Code><Message>{escape(error.message)}</Message></Error>"
            )
            text = f'<ErrorResponse xmlns="{_XML}">{inner}<RequestId>standin</RequestId></ErrorResponse>'
            return Response(error.status, text.encode(), "text/xml")

    def _serve(self, request: Request, verified: signatures.Verified) -> tuple[str, str]:
        match = _PATH.fullmatch(request.path)
        actions: dict[tuple[str, bool], tuple[str, Callable[[Request, str, str], str]]] = {
            ("GET", False): ("GetHostedZone", self._zone),
            ("GET", True): ("ListResourceRecordSets", self._list),
            ("POST", True): ("ChangeResourceRecordSets", self._change),
        }
        served = actions.get((request.method, bool(match and match[2])))
        if match is None or served is None:
            raise ApiRejected("InvalidInput", f"{request.method} {request.path} is not supported in a rehearsal", status=400)  # fmt: skip
        zone, (action, answer) = match[1], served
        who = verified.key.principal
        if who.kind != "operator":
            raise ApiRejected("AccessDenied", f"User: {who.arn} is not authorized to perform: route53:{action}", status=403)  # fmt: skip
        where = f"arn:aws:route53:::hostedzone/{zone}"
        context = _condition_keys(request.body) if action == "ChangeResourceRecordSets" else {}
        self.cloud.operator.check(operator, operator.http(f"route53:{action}", where, places.CONTROL_REGION, context))
        described = self.cloud.store.get("external", zone) or {}
        if "domain" not in described:
            raise ApiRejected("NoSuchHostedZone", f"No hosted zone found with ID: {zone}", status=404)
        return f"{action}Response", answer(request, zone, f"{described['domain']}.")

    def _zone(self, request: Request, zone: str, domain: str) -> str:
        count = len(self._records(zone))
        return (
            f"<HostedZone><Id>/hostedzone/{zone}</Id><Name>{escape(domain)}</Name><CallerReference>standin</CallerReference>"
            f"<Config><PrivateZone>true</PrivateZone></Config><ResourceRecordSetCount>{count}</ResourceRecordSetCount></HostedZone>"
        )

    def _list(self, request: Request, zone: str, domain: str) -> str:
        """List the records from a name and type on. The order is that of the reversed labels (API reference of ListResourceRecordSets)."""
        asked = request.query
        start = (_order(_dotted(asked["name"])), asked.get("type", "")) if "name" in asked else ((), "")
        rows = sorted(self._records(zone), key=lambda one: (_order(one["name"]), one["type"]))
        rows = [one for one in rows if (_order(one["name"]), one["type"]) >= start]
        limit = int(asked.get("maxitems", "300"))
        shown = "".join(
            f"<ResourceRecordSet><Name>{escape(one['name'])}</Name><Type>{one['type']}</Type><TTL>{one['ttl']}</TTL><ResourceRecords>"
            + "".join(f"<ResourceRecord><Value>{escape(value)}</Value></ResourceRecord>" for value in one["values"])
            + "</ResourceRecords></ResourceRecordSet>"
            for one in rows[:limit]
        )
        truncated = "true" if len(rows) > limit else "false"
        return f"<ResourceRecordSets>{shown}</ResourceRecordSets><IsTruncated>{truncated}</IsTruncated><MaxItems>{limit}</MaxItems>"

    def _change(self, request: Request, zone: str, domain: str) -> str:
        """Apply all changes of a batch, or none."""
        changes = list(_changes(request.body))
        kept = {(one["name"], one["type"]): one for one in self._records(zone)}
        for change in changes:
            if not f".{change['name']}".endswith(f".{domain}"):
                raise _invalid(f"RRSet with DNS name {change['name']} is not permitted in zone {domain}")
            kept[change["name"], change["type"]] = change
        for name, type_ in kept:
            if type_ == "CNAME" and any(other != type_ for same, other in kept if same == name):
                raise _invalid(
                    f"RRSet of type CNAME with DNS name {name} is not permitted as it conflicts with other records with the same DNS name in zone {domain}"
                )
        with self.cloud.store.change():
            for change in changes:
                self.cloud.store.put(_RECORD, f"{zone}/{change['name']}/{change['type']}", change)
        self.cloud.store.log("ChangeResourceRecordSets", "route53", zone, "")
        return "<ChangeInfo><Id>/change/C0000000001</Id><Status>PENDING</Status><SubmittedAt>2026-01-01T00:00:00Z</SubmittedAt></ChangeInfo>"

    def _records(self, zone: str) -> list[dict[str, Any]]:
        return [one for id, one in self.cloud.store.all(_RECORD).items() if id.startswith(f"{zone}/")]


def _condition_keys(body: bytes) -> dict[str, tuple[str, ...]]:
    """Return the condition keys of a batch of changes. Names are in lowercase and have no trailing dot
    (https://docs.aws.amazon.com/Route53/latest/DeveloperGuide/specifying-rrset-conditions.html, retrieved 2026-11-27)."""
    changes = list(_parsed(body))
    return {
        "route53:ChangeResourceRecordSetsNormalizedRecordNames": tuple(
            one["name"].rstrip(".").lower() for one in changes
        ),
        "route53:ChangeResourceRecordSetsRecordTypes": tuple(one["type"] for one in changes),
        "route53:ChangeResourceRecordSetsActions": tuple(one["action"] for one in changes),
    }


def _changes(body: bytes) -> Iterator[dict[str, Any]]:
    for change in _parsed(body):
        if change.pop("action") != "UPSERT":
            raise _invalid("only UPSERT is supported in a rehearsal")
        yield change


def _parsed(body: bytes) -> Iterator[dict[str, Any]]:
    space = {"r": _XML}
    for change in ElementTree.fromstring(body).iterfind(".//r:Change", space):
        record_set = change.find("r:ResourceRecordSet", space)
        assert record_set is not None
        yield {
            "action": change.findtext("r:Action", "", space),
            "name": _dotted(record_set.findtext("r:Name", "", space)),
            "type": record_set.findtext("r:Type", "", space),
            "ttl": int(record_set.findtext("r:TTL", "0", space)),
            "values": [
                str(value.text) for value in record_set.iterfind("r:ResourceRecords/r:ResourceRecord/r:Value", space)
            ],
        }


def _invalid(text: str) -> ApiRejected:
    return ApiRejected("InvalidChangeBatch", f"[{text}]", status=400)


def _dotted(name: str) -> str:
    return name if name.endswith(".") else f"{name}."


def _order(name: str) -> tuple[str, ...]:
    return tuple(reversed(name.rstrip(".").split(".")))
