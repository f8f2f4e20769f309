"""The cloud itself: creates, reads, updates and deletes whatever the SDKs declare, and keeps it in the store.

This is the part between Pulumi's protocol (`provider.py`) and the store. What a single type does beyond keeping what it was
told is a behaviour (`behaviours/`); nothing here names one.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuinfra.rehearsal.cloud.core import behaviours, ids, synth, wire
from gpuinfra.rehearsal.cloud.core.errors import AnswerLost, CloudError, MadeButFailed
from gpuinfra.rehearsal.cloud.core.faults import Faults
from gpuinfra.rehearsal.cloud.core.fleet import Fleet
from gpuinfra.rehearsal.cloud.core.operator import Operator
from gpuinfra.rehearsal.cloud.core.rights import Rights
from gpuinfra.rehearsal.cloud.core.sdk import Function, ResourceType, sdk
from gpuinfra.rehearsal.cloud.core.store import Resource, Store, Taken

_ID_PREFIXES = ("vpc-", "subnet-", "sg-", "cr-", "rtb-", "lt-", "ami-", "fs-", "eipalloc-")

_MAKERS = "makers"
"""Kind of thing: who made what any number may make, by the engine's names."""

EXISTING = "existing"
"""The operation that what was there before belongs to."""

DEFAULT_REGIONS = {"aws": "us-east-1", "azure-native": "eastus", "gcp": "us-central1"}


@dataclass
class Call:
    """One request about one resource, and what becomes of it."""

    token: str
    urn: str
    name: str
    inputs: dict[str, Any]
    region: str
    id: str = ""
    outputs: dict[str, Any] = field(default_factory=dict)
    old: Resource | None = None
    tags: dict[str, str] = field(default_factory=dict)
    """Default tags of the provider that asks."""

    @property
    def plain(self) -> dict[str, Any]:
        """The inputs without envelopes."""
        return wire.plain(self.inputs)

    def resource(self) -> Resource:
        return Resource(self.token, self.region, self.id, self.inputs, self.outputs, urn=self.urn)


class Cloud:
    """Everything that a rehearsal's clouds hold, and what they do with it."""

    def __init__(self, folder: Path, *, faults: Any = (), operation: str = "rehearsal") -> None:
        self.folder = folder
        self.store = Store(folder / "cloud.sqlite", operation=operation)
        self.faults = Faults(faults, self.store)
        self.endpoint = ""
        self.changed = threading.Event()
        """Set whenever a group, a template or an instance may have work to do."""
        self.fleet = Fleet(self, None, "no node host was started")
        self.operator = Operator()
        self.rights = Rights(self)

    def close(self) -> None:
        self.store.close()

    # What the SDK says

    @staticmethod
    def type(token: str) -> ResourceType:
        return sdk(token.split(":", 1)[0]).resource(token)

    @staticmethod
    def function(token: str) -> Function:
        return sdk(token.split(":", 1)[0]).function(token)

    def region_of(self, token: str, inputs: Mapping[str, Any], default: str) -> str:
        """Where a resource is; "" for what has no region, and for clouds whose ids carry it."""
        if not token.startswith("aws:") or "region" not in self.type(token).inputs:
            return ""
        given = wire.peel(inputs.get("region"))
        return given if isinstance(given, str) and not wire.is_unknown(given) else default

    # The four verbs

    def create(self, call: Call) -> None:
        """Make a resource, whole or not at all; fills in its id and outputs."""
        fault = self.faults.of_call(call.token)
        if fault == "error":
            error = behaviours.ordered_error(call.token)
            self.store.log("create", call.token, "", call.urn, error.code)
            raise error
        behaviour = behaviours.of(call.token)
        try:
            if call.urn:
                self.operator.resource(self, "create", call.token, call.plain, call.region)
            with self.store.change():
                self._look_first(call, behaviour)
                behaviour.before_create(self, call)
                call.id = call.id or behaviour.identify(self, call) or self._identify(call)
                self._complete(call)
                if behaviour.joins and self._join(call):
                    behaviour.created(self, call)
                    self.store.update(call.resource())
                else:
                    self._claim(call, behaviour)
                    behaviour.created(self, call)
                    self.store.insert(call.resource())
                behaviour.kept(self, call)
                self.store.log("create", call.token, call.id, call.urn)
        except Taken as taken:
            error = behaviour.conflict(self, call, taken)
            self.store.log("create", call.token, "", call.urn, error.code)
            raise error from taken
        except CloudError as error:
            self.store.log("create", call.token, "", call.urn, error.code)
            raise
        self.wake()
        behaviour.after(self, call)
        if fault == "partial":
            raise MadeButFailed(
                "InternalFailure", "the resource was created and did not become ready (ordered by --fault)", status=500
            )
        if fault == "lost":
            raise AnswerLost(
                "RequestTimeout", "the connection broke before the answer arrived (ordered by --fault)", status=500
            )

    def _look_first(self, call: Call, behaviour: behaviours.Behaviour) -> None:
        """Azure's provider asks whether the id is in use before it sends anything, so that nothing else is said of a name that is taken."""
        if not call.token.startswith("azure-native:") or behaviour.joins:
            return
        call.id = call.id or behaviour.identify(self, call) or self._identify(call)
        if self.store.find(call.token, call.id) is not None:
            raise Taken(call.id, call.token, call.id)

    def existing(self, token: str, id: str, inputs: dict[str, Any], region: str = "") -> None:
        """Something that the account had before: it is there under its own id, and no engine made it."""
        where = self.region_of(token, inputs, region or DEFAULT_REGIONS[token.split(":", 1)[0]])
        if self.store.find(token, id, where) is None:
            before, self.store.operation = self.store.operation, EXISTING
            try:
                self.create(Call(token, "", id, inputs, where, id=id))
            finally:
                self.store.operation = before

    def update(self, call: Call, old: Resource) -> None:
        """Change a resource in place."""
        behaviour = behaviours.of(call.token)
        call.old, call.id, call.region = old, old.id, old.region
        try:
            self.operator.resource(self, "update", call.token, call.plain, call.region, old)
            with self.store.change():
                behaviour.before_update(self, call)
                self._complete(call, keep=old.outputs)
                behaviour.updated(self, call)
                self.store.update(replace(old, inputs=call.inputs, outputs=call.outputs))
                behaviour.kept(self, call)
                self.store.log("update", call.token, call.id, call.urn)
        except CloudError as error:
            self.store.log("update", call.token, call.id, call.urn, error.code)
            raise
        self.wake()
        behaviour.after(self, call)

    def delete(self, resource: Resource, urn: str = "") -> None:
        """Delete a resource, if the cloud lets go of it."""
        behaviour = behaviours.of(resource.type)
        try:
            if urn:
                self.operator.resource(self, "delete", resource.type, {}, resource.region, resource)
            with self.store.change():
                behaviour.before_delete(self, resource)
                if not (behaviour.joins and self._leave(resource, urn, stays=behaviour.stays)):
                    self.store.remove(resource)
                    behaviour.deleted(self, resource)
                self.store.log("delete", resource.type, resource.id, urn)
        except CloudError as error:
            self.store.log("delete", resource.type, resource.id, urn, error.code)
            raise
        self.wake()

    def find(self, token: str, id: str, region: str) -> Resource | None:
        """A resource by the id that the engine or a person gives: `<id>`, `<id>@<region>`, or the form that imports use."""
        own = self.region_of(token, {}, region)
        if token.startswith("aws:") and own and "@" in id:
            bare, _, named = id.rpartition("@")
            if found := self.find(token, bare, named):
                return found
        return (
            self.store.find(token, id, own)
            or (self.store.find(token, id) if not token.startswith("aws:") or not own else None)
            or behaviours.of(token).by_import_id(self, token, id, own)
        )

    def external(self, id: str) -> dict[str, Any] | None:
        """What is said about something that the account has and this rehearsal did not make: a reservation, a network.

        Things are told over the control interface; an id that is not synthetic is believed to exist.
        """
        told = self.store.get("external", id)
        if told is None and id.startswith(_ID_PREFIXES) and not re.search(r"-0{8}", id):
            return {}
        return told

    def wake(self) -> None:
        """Tell whoever runs instances that something may have changed."""
        self.changed.set()

    # What every resource has in common

    def _identify(self, call: Call) -> str:
        package, inputs = call.token.split(":", 1)[0], call.plain
        if package == "azure-native":
            return ids.azure_id(call.token, call.name, inputs)
        if package == "gcp":
            return ids.gcp_id(call.token, call.name, inputs, ids.PROJECT)
        return ids.aws_id(call.token, call.name, inputs, call.region, self.store.next)

    def _complete(self, call: Call, keep: Mapping[str, Any] | None = None) -> None:
        """Every declared output; on an update, what the cloud had made up before stays."""
        declared = self.type(call.token)
        about = synth.Subject(call.token.split(":", 1)[0], call.token, call.id, call.region, call.inputs)
        made = synth.outputs(declared.outputs, declared.inputs, about)
        for name, value in (keep or {}).items():
            if name in made and call.inputs.get(name) is None and name != "tagsAll":
                made[name] = value
        if "tagsAll" in made:
            made["tagsAll"] = {**call.tags, **made["tagsAll"]}
        # A provider says itself what is secret. Where it does not, the engine marks the outputs of every unchanged resource
        # while it writes them into the state, and ends now and then with "concurrent map read and map write" (3.259).
        for name in declared.secrets & set(made):
            if made[name] is not None and not wire.is_secret(made[name]):
                made[name] = wire.secret(made[name])
        call.outputs = made

    def _join(self, call: Call) -> bool:
        """Note who made it; True where it is there already."""
        key = f"{call.token} {call.id}"
        there = self.store.find(call.token, call.id, call.region) is not None
        known = self.store.get(_MAKERS, key) if there else None
        self.store.put(_MAKERS, key, sorted({*(known or ()), call.urn}))
        return there

    def _leave(self, resource: Resource, urn: str, *, stays: bool) -> bool:
        """Note who lets go; True where it is there for others still."""
        key = f"{resource.type} {resource.id}"
        others = sorted({*(self.store.get(_MAKERS, key) or ())} - {urn or resource.urn})
        if stays and others:
            self.store.put(_MAKERS, key, others)
            self.store.remove(resource)
            self.store.insert(replace(resource, urn=others[0]))
            return True
        self.store.drop(_MAKERS, key)
        return False

    def _claim(self, call: Call, behaviour: behaviours.Behaviour) -> None:
        for scope, name in behaviour.names(self, call):
            self.store.claim(scope, name, call.resource())
