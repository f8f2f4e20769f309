"""The fabric test between a node and the handover: the sheet that the handover publishes for the nodes of a pool, and the reports of a node.

    bootstrap/<cluster>/<pool>/<bundle>.fabric.json                      the sheet, which only the operator can write
    <prefix>/<folder of the node>/<boot>/fabric/<number>.json            a report, with a proof as for evidence

A node reads the sheet only, and never what another node wrote. The handover reads the reports that a node signed, and copies from them the few values
that the partner of the node needs. Each report contains the current state of the node, so the handover needs only the newest one.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Mapping

from . import upload
from .checks.fabric_test import TestState
from .cloud import CloudError, NodeCloud, field
from .console import optional
from .fabric import ABSENT, FAIL, PASS
from .journal import write_whole
from .outcome import shortened

SHEET, REPORT = "gpuinfra.fabric-sheet/1", "gpuinfra.fabric-report/1"
"""Schemas of the two documents."""
FOLDER = "fabric"
"""Folder of the reports, below the boot."""
MAX_SHEET = 4 << 20
"""Maximum size of a sheet in bytes. A request has about 400 bytes, and at most 1,000 in the longest case."""
MAX_REASON = 200
MAX_GPUS = 64
STATE = Path("/run/gpuinfra/fabric-report.json")
"""The newest report of this boot. `node.pyz pair` and the service run one after the other, so they share the file."""
_TEST = re.compile(r"[0-9a-f]{16}")
_RUN = re.compile(r"(?:[0-9]{1,6})?")
_NCCL_ID = re.compile(r"(?:[0-9a-f]{256})?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


@dataclass(frozen=True)
class FabricRuling:
    """The result of a node, as the handover derives it from the outcomes of the node and its partners."""

    state: TestState
    reason: str = ""
    slow_paths: tuple[str, ...] = ()
    """Good nodes with which this good node was slow."""
    nodes: int = 0
    """Number of nodes that took part so far."""


@dataclass(frozen=True)
class NodeCall:
    """What the handover asks one node for."""

    boot: str
    """The boot that is asked. A node that restarted is asked again."""
    ask: int
    """Number of this request. The next number asks the node to measure again."""
    run: str = ""
    """The all-reduce that the node runs now, or empty."""
    partner: str = ""
    place: int = 0
    gpus: int = 0
    """Number of GPUs of the partner, or 0 until the partner has arrived."""
    unique_id: str = ""
    """NCCL's ID from the partner, in hexadecimal, for place 1."""
    ruling: FabricRuling | None = None
    """The result, which ends the request."""


@dataclass(frozen=True)
class FabricSheet:
    """All requests of one command to one pool."""

    test: str
    """Name of the test: 16 random hexadecimal digits. Empty after the command has ended."""
    calls: Mapping[str, NodeCall]
    """Name of a node -> request."""

    def document(self) -> dict[str, object]:
        """Return the object in the bucket, without empty fields."""
        return {"schema": SHEET, "test": self.test, "nodes": {name: _shown(one) for name, one in self.calls.items()}}


@dataclass(frozen=True)
class NodeReport:
    """The state of one node in a test."""

    test: str
    ask: int
    ready: bool = False
    """False if the node cannot measure now, for example because a job uses its GPUs."""
    run: str = ""
    """The newest all-reduce that the node started."""
    gpus: int = 0
    unique_id: str = ""
    outcome: str = ""
    """`pass`, `fail` or `absent`. Empty while the all-reduce runs."""
    reason: str = ""


def _shown(call: NodeCall) -> dict[str, object]:
    return {name: value for name, value in asdict(call).items() if value or name == "ask"}


def call_of(data: bytes, name: str) -> tuple[str, NodeCall] | None:
    """Return the test and the request to a node in a sheet, or None if the sheet has none."""
    try:
        sheet = json.loads(data)
        if sheet["schema"] != SHEET or name not in sheet["nodes"]:
            return None
        given = sheet["nodes"][name]
        ruling = given.get("ruling")
        if ruling:
            ruling = FabricRuling(
                **{**ruling, "state": TestState(ruling["state"]), "slow_paths": tuple(ruling["slow_paths"])}
            )
        return str(sheet["test"]), NodeCall(**{**given, "ruling": ruling})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def report_of(document: Mapping[str, object]) -> NodeReport | None:
    """Return the report in a document of a node, or None if a field does not have its form."""
    forms = {"test": _TEST, "run": _RUN, "unique_id": _NCCL_ID}
    texts = {name: document.get(name) for name in (*forms, "outcome", "reason")}
    ask, gpus, ready = document.get("ask"), document.get("gpus"), document.get("ready")
    if document.get("schema") != REPORT or not isinstance(ready, bool):
        return None
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in (ask, gpus)):
        return None
    if not all(isinstance(value, str) for value in texts.values()):
        return None
    if not all(form.fullmatch(str(texts[name])) for name, form in forms.items()):
        return None
    if texts["outcome"] not in ("", PASS, FAIL, ABSENT) or not 0 <= int(str(gpus)) <= MAX_GPUS:
        return None
    shown = {name: str(value) for name, value in texts.items()}
    # The sheet repeats the reason, and has a limit in bytes.
    shown["reason"] = shortened(shown["reason"].encode("ascii", "replace").decode("ascii"), MAX_REASON)
    return NodeReport(ask=int(str(ask)), gpus=int(str(gpus)), ready=ready, **shown)


class Relay:
    """The access of one node to the sheet of its pool, and the reports of this node."""

    def __init__(self, node: Mapping[str, Any], cloud: NodeCloud, boot: str, state: Path = STATE) -> None:
        bundle = node.get("bundle")
        if not isinstance(bundle, Mapping):
            raise CloudError("node.json has no bundle")
        folder, _, _ = field(bundle, "key").rpartition("/")
        self._bucket, self._key = field(bundle, "bucket"), "%s/%s.fabric.json" % (folder, field(bundle, "sha256"))
        self._node, self._cloud, self._boot, self._state = node, cloud, boot, state
        self.name = cloud.instance_id()

    def call(self) -> tuple[str, NodeCall] | None:
        """Return the test and the request to this boot of this node, or None. Sends one request for one object."""
        data = self._cloud.get(self._bucket, self._key, MAX_SHEET)
        called = None if data is None else call_of(data, self.name)
        return called if called is not None and called[0] and called[1].boot == self._boot else None

    def last(self) -> NodeReport | None:
        """Return the newest report of this boot, or None."""
        stored = optional(self._state) or {}
        return report_of(stored) if stored.get("boot_id") == self._boot else None

    def send(self, report: NodeReport) -> None:
        """Sign and upload a report."""
        stored = optional(self._state) or {}
        seq = stored.get("seq") if stored.get("boot_id") == self._boot else 0
        document = {
            "schema": REPORT, "instance_id": self.name, "boot_id": self._boot, "seq": (seq if isinstance(seq, int) else 0) + 1, **asdict(report),
        }  # fmt: skip
        upload.deliver_report(self._node, document, self._cloud, FOLDER)
        write_whole(self._state, json.dumps(document, sort_keys=True) + "\n")


class RelayedRendezvous:
    """The store of `node.pyz pair` in a fabric test: the report of this node carries NCCL's ID to its partner, and the sheet carries that of the partner."""

    def __init__(self, relay: Relay, test: str) -> None:
        self._relay, self._test = relay, test

    def put(self, owner: str, name: str, data: bytes) -> None:
        """Report that this node has arrived."""
        mine, last = json.loads(data), self._relay.last()
        if last is None or last.test != self._test:
            raise CloudError("this node did not report to the fabric test %s" % self._test)
        self._relay.send(
            replace(
                last, run=mine["run"], gpus=mine["gpus"], unique_id=mine.get("unique_id", ""), outcome="", reason=""
            )
        )

    def get(self, owner: str, name: str) -> bytes | None:
        """Return what the partner reported. Raises `Withdrawn` if the handover no longer asks for this all-reduce."""
        called, run = self._relay.call(), name.rpartition("-")[0]
        if called is None or called[0] != self._test or (called[1].run, called[1].partner) != (run, owner):
            raise Withdrawn("the handover no longer asks for the all-reduce with %s" % owner)
        if not called[1].gpus:
            return None
        shown = {
            "schema": "gpuinfra.rendezvous/1",
            "run": run,
            "gpus": called[1].gpus,
            "unique_id": called[1].unique_id,
        }
        return json.dumps(shown).encode("ascii")


class Withdrawn(CloudError):
    """The handover no longer asks for this all-reduce."""
