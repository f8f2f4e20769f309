"""`node.pyz repair`: repairs the nodes of the cluster until terminated (the `gpuinfra-repair` unit on the control node).

Each round reads the state from the bucket and the metrics from Prometheus, decides (`repair.py`), writes the state, and only then sends a request to the
cloud. The state is in the bucket, so it survives a restart of the service and a replacement of the control node. A round that cannot read or write
something ends without a decision. Planned work of the operator also becomes a silence of Alertmanager, in each mode.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Mapping, Protocol, Sequence, runtime_checkable

from . import cloud, evidence, metrics, upload
from .cause import Action
from .console import NODE, OK, MissingPrerequisite, load, print_message
from .journal import write_whole
from .notices import iso, moment
from .orders import MOST_BYTES, pace
from .outcome import Unreadable, shortened
from .probes import REPAIR
from .repair import (
    CONFIRM_S,
    GRACE_S,
    Failure,
    Maintenance,
    NodeReading,
    Reading,
    RepairMode,
    RepairRound,
    RepairSettings,
    RepairState,
    RepairStep,
    failure_of,
    refused,
    requested,
    state_in,
    status,
    ticket,
)
from .xids import xid_of

SETTINGS = Path("/etc/gpuinfra-monitoring/repair.json")
METRICS = Path("/var/lib/gpuinfra-metrics/repair.prom")
STATUS = Path(REPAIR)
"""The mode, the current repair and the newest events, for the evidence of the control node."""
RECHECK = ("systemctl", "start", "--no-block", "gpuinfra-recheck.service")
ROUND_S = 30.0
STALE_S = 600.0
"""Age from which the facts of a node are not used."""
LEASE_S, RENEW_S = 900.0, 300.0
"""Time after which another control node continues, because two exist while a control node is replaced, and the time after which an unchanged state is
written again."""
MAINTENANCE = "gpuinfra.maintenance/1"
ADDRESS_VARIABLE = "GPUINFRA_MONITORING_ADDRESS"
"""A different local address of Prometheus and Alertmanager, for machines that share one network."""
COMMENT = "gpuinfra-maintenance"
"""Author of the silences in Alertmanager."""
MOST_IDS = 10_000
"""Number of answers of the cloud about instance IDs to keep."""
SERIES = (
    "up", "ALERTS", "node_textfile_mtime_seconds", "gpuinfra_node_info", "gpuinfra_node_verified", "gpuinfra_node_first_verified_timestamp_seconds",
    "gpuinfra_check_failed", "gpuinfra_notices",
)  # fmt: skip


class NotRead(Exception):
    """Prometheus cannot be read, or its answer cannot be used. The message is the reason."""


@runtime_checkable
class NodeReplacer(Protocol):
    """A cloud on which a control node can replace nodes."""

    def replace_node(self, node: cloud.FaultyNode) -> bool:
        """Request the replacement of a node of this cluster. Returns False if the node does not exist any more.

        Raises `CloudError` if the request fails. It can be repeated: the same node is never replaced twice.
        """
        ...


@runtime_checkable
class MachineRegister(Protocol):
    """A cloud on which Prometheus finds the name of a machine and not its instance ID."""

    def has_id(self, name: str, instance_id: str) -> bool:
        """Return whether the machine with a name exists and has an instance ID. Raises `CloudError`."""
        ...


@dataclass(frozen=True)
class RepairFiles:
    """Where the service finds and keeps its files."""

    metrics: Path = METRICS
    status: Path = STATUS


def repair_service(args: argparse.Namespace, settings: Path = SETTINGS) -> int:
    """Run until terminated."""
    node = load(NODE, "the node's configuration", "user data writes it")
    declared = load(settings, "the settings of the repair", "the step 92-files writes them on the control node")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(OK))
    try:
        service = RepairService(node, declared, cloud.of(node))
    except cloud.CloudError as error:  # the metadata service may not respond yet; systemd starts the unit again
        raise MissingPrerequisite("cannot start the repair: %s" % error) from None
    while True:
        service.once()
        time.sleep(ROUND_S * pace())


class RepairService:
    """The service of one control node."""

    def __init__(
        self,
        node: Mapping[str, Any],
        declared: Mapping[str, Any],
        connected: cloud.NodeCloud,
        *,
        files: RepairFiles | None = None,
        clock: Callable[[], float] = time.time,
        report: Callable[[], None] | None = None,
    ) -> None:
        self._node, self._cloud = node, connected
        self._declared = {**declared, **{name: _local(str(declared[name])) for name in ("prometheus", "alertmanager")}}
        self._settings = settings_of(declared)
        self._files, self._clock = files or RepairFiles(), clock
        self._report = report or _recheck
        self._me = "%s %s" % (connected.instance_id(), evidence.boot_id())
        self._bucket = cloud.field(node.get("bundle") or {}, "bucket")
        self._problems: dict[str, str] = {}
        self._planned: tuple[PlannedWork, ...] = ()
        self._released: tuple[tuple[str, float], ...] = ()
        self._stored: RepairState | None = None
        """The state that was read or written last."""
        self._mine = False
        """Whether no other control node can write the state that this round read."""
        self._logged = 0
        """Number of the last event that was logged."""
        self._read_at = 0.0
        """When a decision was last stored. The time of the reading alone would stay new while the state cannot be written."""
        self._register = connected if isinstance(connected, MachineRegister) else None
        self._has_id: dict[tuple[str, str], bool] = {}

    def once(self) -> None:
        """Do one round. A problem ends the part in which it occurs, and is logged once. The metrics show the last stored state in any case."""
        parts = {
            "round": self._round,
            "silences": self._silence,
            "status": self._write_status,
            "events": self._upload_events,
            "metrics": self._write_metrics,
        }
        for name, part in parts.items():
            try:
                part()
                self._problem(name, "")
            except (cloud.CloudError, Unreadable, NotRead, OSError) as error:
                self._problem(name, str(error) or type(error).__name__)

    def _round(self) -> None:
        self._mine = False
        maintenance = self._maintenance()
        if self._settings.mode is RepairMode.OFF:
            return
        state, now = self._state(), self._clock()
        before = state.dumped()
        self._stored = state_in(before)
        if state.writer not in ("", self._me) and now - state.written < LEASE_S * pace():
            raise NotRead("the control node %s wrote the state %d s ago" % (state.writer, now - state.written))
        self._mine = True
        reading = self._confirmed(
            read(self._declared["prometheus"], self._settings, now, ids_are_names=self._register is None)
        )
        RepairRound(state, self._settings, reading, maintenance, now).decide()
        if state.dumped() != before or state.writer != self._me or now - state.written >= RENEW_S * pace():
            self._write(state)
        self._stored, self._read_at = state, now
        current = state.current
        if current is not None and current.step is RepairStep.REQUEST:
            zones = tuple(self._declared["zones"].get(current.pool) or ())
            name, instance_id = current.order.node, current.order.instance_id
            self._request(state, cloud.FaultyNode(name, instance_id, str(self._declared["cluster"]), zones))
            self._write(state)

    def _confirmed(self, reading: Reading) -> Reading:
        """Return a reading in which the cloud confirms the instance ID of each faulty node, because an order goes to the machine with this ID."""
        if self._register is None:
            return reading
        nodes = dict(reading.nodes)
        for node in [one for one in nodes.values() if one.faulty]:
            try:
                own = self._names_machine(self._register, node.name, node.instance_id)
                doubt = "" if own else "the cloud has another instance ID for this machine"
            except cloud.CloudError as error:
                doubt = "the cloud did not confirm the instance ID: %s" % error
            if doubt:
                nodes[node.name] = replace(node, instance_id=node.name, doubt=doubt)
        return replace(reading, nodes=nodes)

    def _names_machine(self, register: MachineRegister, name: str, instance_id: str) -> bool:
        """Return whether a machine has an instance ID. It keeps its ID, so the cloud is asked once."""
        if len(self._has_id) >= MOST_IDS:
            self._has_id.clear()
        key = name, instance_id
        if key not in self._has_id:
            self._has_id[key] = register.has_id(name, instance_id)
        return self._has_id[key]

    def _request(self, state: RepairState, node: cloud.FaultyNode) -> None:
        """Ask the cloud for a replacement. A failed request, for example after too many requests, is repeated in the next round."""
        if not isinstance(self._cloud, NodeReplacer):
            refused(state, "a control node on this cloud cannot replace nodes")
            return
        try:
            exists = self._cloud.replace_node(node)
            requested(state)
            print_message("%s: %s" % (node.name, "replacement requested" if exists else "it does not exist any more"))
        except cloud.CloudError as error:
            refused(state, str(error))
            print_message("%s cannot be replaced: %s" % (node.name, error))

    def _state(self) -> RepairState:
        data = self._cloud.get(self._bucket, self._declared["orders"], MOST_BYTES)
        return RepairState() if data is None else state_in(data)

    def _write(self, state: RepairState) -> None:
        state.writer, state.written = self._me, self._clock()
        self._cloud.put(self._bucket, self._declared["orders"], state.dumped(), once=False)

    def _maintenance(self) -> Maintenance:
        data = self._cloud.get(self._bucket, self._declared["maintenance"], MOST_BYTES)
        self._planned = () if data is None else planned_work(data)
        self._released = () if data is None else released_nodes(data)
        return Maintenance(silenced=tuple((one.node, one.until) for one in self._planned), released=self._released)

    def _silence(self) -> None:
        """Create the silences that Alertmanager lacks. It forgets them with its disk, and ends them itself."""
        now = self._clock()
        wanted = [one for one in self._planned if now < one.until]
        if not wanted:
            return
        url = self._declared["alertmanager"] + "/api/v2/silences"
        have = {
            (matcher.get("value"), moment(one.get("endsAt")))
            for one in _json(urllib.request.Request(url))
            for matcher in one.get("matchers") or []
            if one.get("createdBy") == COMMENT and (one.get("status") or {}).get("state") != "expired"
        }
        stated: list[tuple[str, str]] = []
        if self._register is not None:
            series = series_of(self._declared["prometheus"], "gpuinfra_node_info")
            stated = [(str(one.get("instance")), str(one.get("instance_id"))) for one, _ in series]
        for work in wanted:
            name = self._name_of(work.node, stated)
            if (name, float(int(work.until))) in have:
                continue
            body = {
                "matchers": [{"name": "instance", "value": name, "isRegex": False, "isEqual": True}],
                "startsAt": iso(now), "endsAt": iso(work.until), "createdBy": COMMENT, "comment": work.why or "planned work",
            }  # fmt: skip
            headers = {"Content-Type": "application/json"}
            _json(urllib.request.Request(url, data=json.dumps(body).encode(), method="POST", headers=headers))

    def _name_of(self, instance_id: str, stated: Sequence[tuple[str, str]]) -> str:
        """Return the name of a node in the metrics, which is its instance ID unless the cloud has a register of machines."""
        if self._register is not None:
            for name, id_ in stated:
                if id_ == instance_id and self._names_machine(self._register, name, id_):
                    return name
        return instance_id

    def _not_uploaded(self) -> list[dict[str, Any]]:
        return [one for one in self._stored.events if one["number"] > self._stored.sent] if self._stored else []

    def _upload_events(self) -> None:
        """Log and upload each new event, and record its number in the state. A failed upload is repeated in the next round.

        An event is repeated only if the upload succeeds and the state cannot be written.
        """
        if self._stored is None or not self._mine:
            return
        waiting = self._not_uploaded()
        for event in waiting:
            if event["number"] > self._logged:
                self._logged = event["number"]
                print_message("repair: %(event)s %(node)s (%(instance_id)s): %(reason)s" % event, console=True)
        for event in waiting:
            about = ticket(str(self._declared["cluster"]), str(self._node.get("cloud")), event)
            document = {
                "schema": "gpuinfra.repair-event/1", "instance_id": self._cloud.instance_id(), "boot_id": evidence.boot_id(),
                "seq": event["number"], "event": event, "ticket": about,
            }  # fmt: skip
            upload.deliver_report(self._node, document, self._cloud, "repair")
            self._stored.sent = event["number"]
            self._write(self._stored)

    def _write_status(self) -> None:
        """Write the status, which the evidence of this node contains."""
        if self._stored is None:
            return
        text = status(self._stored, self._settings)
        try:
            before = self._files.status.read_text(encoding="utf-8")
        except OSError:
            before = ""
        if before != text:
            write_whole(self._files.status, text)
            self._report()

    def _write_metrics(self) -> None:
        write_whole(self._files.metrics, self._text())
        self._files.metrics.chmod(0o644)

    def _text(self) -> str:
        """Return the metrics of the repair."""
        mode, state = self._settings.mode, self._stored
        families: list[tuple[str, str, metrics.Samples]] = [
            ("gpuinfra_repair_info", "The mode of the repair.", [({"mode": mode.value}, 1.0)]),
            ("gpuinfra_repair_limit", "Maximum number of nodes taken out of use in a day.", [({}, float(self._settings.at_most))]),
        ]  # fmt: skip
        if mode is not RepairMode.OFF:
            about = "When the metrics were last read for a decision."
            families.append(("gpuinfra_repair_read_timestamp_seconds", about, [({}, self._read_at)]))
        if state is not None:
            current = state.current
            families.append(
                ("gpuinfra_repair_taken", "Nodes taken out of use in the last day.", [({}, float(len(state.taken)))])
            )
            if current is not None:
                labels = {"node": current.order.node, "step": current.step.value, "action": current.action.value}
                families.append(("gpuinfra_repair_current", "The repair that has not ended.", [(labels, 1.0)]))
            lost = float(len(self._not_uploaded()))
            families.append(
                ("gpuinfra_repair_events_not_uploaded", "Events that could not be uploaded yet.", [({}, lost)])
            )
            held: metrics.Samples = [({"node": one.node}, 1.0) for one in state.orders if one.hold]
            families.append(("gpuinfra_repair_held", "A node that is kept for diagnosis.", held))
            waiting: metrics.Samples = [({"node": name}, 1.0) for name in sorted(state.told)]
            families.append(("gpuinfra_repair_untouched", "A faulty node that the repair does not touch.", waiting))
            newest: dict[tuple[str, str], float] = {}
            for event in state.events:
                newest[str(event["event"]), str(event["node"])] = moment(event["at"]) or 0.0
            events: metrics.Samples = [({"event": event, "node": node}, at) for (event, node), at in newest.items()]
            families.append(
                ("gpuinfra_repair_event_timestamp_seconds", "When an event last happened to a node.", events)
            )
        return metrics.rendered(families)

    def _problem(self, name: str, text: str) -> None:
        if self._problems.get(name, "") != text:
            self._problems[name] = text
            print_message("repair: %s: %s" % (name, text or "works again"))


def _local(url: str) -> str:
    """Return the URL of a program on this machine."""
    return url.replace("127.0.0.1", os.environ.get(ADDRESS_VARIABLE) or "127.0.0.1")


def settings_of(declared: Mapping[str, Any]) -> RepairSettings:
    """Return the settings in the file of the plan."""
    times = {"grace_s": GRACE_S * pace(), "confirm_s": CONFIRM_S * pace()}
    times.update({name: float(declared[name]) for name in times if name in declared})
    return RepairSettings(
        mode=RepairMode(declared["mode"]),
        at_most=int(declared["at_most"]),
        deadline_s=float(declared["deadline_s"]),
        pools=tuple(declared["pools"]),
        alerts={str(name): Action(action) for name, action in declared["alerts"].items()},
        **times,
    )


def read(prometheus: str, settings: RepairSettings, now: float, *, ids_are_names: bool = True) -> Reading:
    """Return what the metrics say about the nodes now. Raises `NotRead` if Prometheus does not respond or has no nodes."""
    series = series_of(prometheus, '{__name__=~"%s"}' % "|".join(SERIES))
    return reading_of(series, settings, now, ids_are_names=ids_are_names)


def series_of(prometheus: str, query: str) -> list[tuple[dict[str, str], float]]:
    """Return the labels and the value of each series of an instant query. Raises `NotRead`."""
    url = "%s/api/v1/query?%s" % (prometheus, urllib.parse.urlencode({"query": query}))
    try:
        answer = _json(urllib.request.Request(url))
        if answer["status"] != "success":
            raise NotRead("Prometheus did not answer the query: %s" % shortened(str(answer.get("error")), 200))
        return [(dict(one["metric"]), float(one["value"][1])) for one in answer["data"]["result"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotRead("the answer of Prometheus cannot be read: %s" % shortened(repr(error), 100)) from None


def reading_of(
    series: Sequence[tuple[Mapping[str, str], float]],
    settings: RepairSettings,
    now: float,
    *,
    ids_are_names: bool = True,
) -> Reading:
    """Return the reading in a list of series. A node is left out if it does not respond, or if its facts are old.

    The labels `instance` and `pool` are those of the service discovery, and a node cannot change them. It can state any instance ID and boot.
    `ids_are_names` is whether the discovery finds the instance ID.
    """
    own = [(labels, value) for labels, value in series if labels.get("pool") in settings.pools]
    up = {
        labels["instance"]: value
        for labels, value in own
        if labels.get("__name__") == "up" and labels.get("job") == "node"
    }
    if not up:
        raise NotRead("Prometheus has no nodes")
    fresh = {
        labels["instance"]
        for labels, value in own
        if labels.get("__name__") == "node_textfile_mtime_seconds"
        and str(labels.get("file")).endswith("/gpuinfra.prom")
        and now - value <= STALE_S
    }
    nodes = {
        name: NodeReading(name, next(labels["pool"] for labels, _ in own if labels.get("instance") == name))
        for name in up
        if up[name] == 1 and name in fresh
    }
    facts: dict[str, dict[str, Any]] = {name: {"failures": []} for name in nodes}
    stated: dict[str, set[str]] = {name: set() for name in up}
    for labels, value in own:
        fact, what = facts.get(str(labels.get("instance"))), labels.get("__name__")
        if what == "gpuinfra_node_info" and labels.get("instance") in stated:
            stated[labels["instance"]].add(str(labels.get("instance_id")))
        if fact is None:
            continue
        if what == "gpuinfra_node_info":
            fact["boot"] = str(labels.get("boot_id"))
        elif what == "gpuinfra_node_verified":
            fact["verified"] = value == 1
        elif what == "gpuinfra_node_first_verified_timestamp_seconds":
            fact["was_verified"] = value > 0
        elif what == "gpuinfra_check_failed" and labels.get("blocks") == "true":
            fact["failures"].append(
                failure_of(str(labels.get("check")), str(labels.get("cause")), str(labels.get("outcome")))
            )
        elif what == "gpuinfra_notices" and labels.get("kind") == "reclaim" and value > 0:
            fact["leaving"] = True
        elif what == "ALERTS" and labels.get("alertstate") == "firing":
            fact["failures"] += _alert(labels, settings)
    for name, fact in facts.items():
        fact["doubt"] = _doubt(name, stated, ids_are_names)
        fact["instance_id"] = name if ids_are_names or fact["doubt"] else next(iter(stated[name]), "")
    made = {
        name: NodeReading(
            **{**nodes[name].__dict__, **fact, "failures": tuple(sorted(set(fact["failures"]), key=repr))}
        )
        for name, fact in facts.items()
    }
    return Reading(nodes=made, known=frozenset(up))


def _doubt(name: str, stated: Mapping[str, set[str]], ids_are_names: bool) -> str:
    """Return why the instance ID that a node states is not confirmed, or an empty string."""
    own = stated[name]
    if len(own) > 1:
        return "it states %d instance IDs" % len(own)
    if ids_are_names:
        # A node with a confirmed ID is not in doubt because another node states the same ID: otherwise one node could prevent the repair of another.
        return "it states the instance ID of another machine" if own - {name} else ""
    others = sorted(other for other, ids in stated.items() if other != name and own & ids)
    return "it states the same instance ID as %s" % ", ".join(others[:3]) if others else ""


def _alert(labels: Mapping[str, str], settings: RepairSettings) -> list[Failure]:
    """Return the failure of a firing alert, or nothing if the alert requires no action. The action after an Xid depends on its number."""
    name = str(labels.get("alertname"))
    action, number = settings.alerts.get(name), str(labels.get("err_code") or "")
    if action is None:
        return []
    if re.fullmatch(r"[0-9]{1,6}", number):
        action = max(action, xid_of(int(number)).bucket.do, key=lambda one: one.strength)
    return [Failure(name, number, action)]


@dataclass(frozen=True)
class PlannedWork:
    """Planned work on one node."""

    node: str
    """Instance ID of the node."""
    until: float
    why: str = ""


def planned_work(data: bytes) -> tuple[PlannedWork, ...]:
    """Return the planned work in the document of the operator. Raises `Unreadable` if it has a different form."""
    try:
        return tuple(
            PlannedWork(str(one["node"]), float(one["until"]), str(one.get("why") or ""))
            for one in _checked(data)["entries"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable("the planned work cannot be read: %s" % shortened(repr(error), 80)) from None


def released_nodes(data: bytes) -> tuple[tuple[str, float], ...]:
    """Return the nodes that the operator released, and when. Raises `Unreadable` if the document has a different form."""
    try:
        return tuple((str(one["node"]), float(one["at"])) for one in _checked(data)["released"])
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable("the planned work cannot be read: %s" % shortened(repr(error), 80)) from None


def _checked(data: bytes) -> dict[str, Any]:
    document = json.loads(data)
    if document["schema"] != MAINTENANCE:
        raise ValueError("the schema is not %s" % MAINTENANCE)
    return document


def _json(request: urllib.request.Request) -> Any:
    """Return the JSON of a program on this machine."""
    try:
        with cloud.OPENER.open(request, timeout=20) as reply:
            return json.loads(reply.read(64 << 20))
    except urllib.error.HTTPError as error:
        raise NotRead("%s: status %d" % (request.full_url.partition("?")[0], error.code)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotRead("%s does not respond: %s" % (request.full_url.partition("?")[0], error)) from None


def _recheck() -> None:
    """Upload evidence with the status. The unit runs once at a time, so the documents keep their order."""
    import subprocess

    try:
        subprocess.run(
            RECHECK, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
    except OSError as error:
        print_message("%s: %s" % (" ".join(RECHECK), error))
