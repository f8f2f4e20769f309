"""The contents of all clouds: creates, reads, updates and deletes the resources that the SDKs declare.

This is the layer between Pulumi's protocol (`provider.py`) and the store. A `Behavior` customizes a single type. A
`StandIn` customizes a whole cloud.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuinfra_rehearsal.cloud.core import behaviors, ids, outage, registry, synth, texts, wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior
from gpuinfra_rehearsal.cloud.core.errors import AnswerLost, ApiRejected, CreatedButFailed
from gpuinfra_rehearsal.cloud.core.faults import Faults
from gpuinfra_rehearsal.cloud.core.fleet import Fleet
from gpuinfra_rehearsal.cloud.core.holds import HeldRequests
from gpuinfra_rehearsal.cloud.core.interfaces import Call
from gpuinfra_rehearsal.cloud.core.operator import Operator
from gpuinfra_rehearsal.cloud.core.rights import Rights
from gpuinfra_rehearsal.cloud.core.sdk import Function, ResourceType, settable
from gpuinfra_rehearsal.cloud.core.store import Resource, Store, Taken

_MAKERS = "makers"
"""Kind of entry in the store that holds the URNs of the creators of a shared resource."""

EXISTING = "existing"
"""The operation recorded for resources that predate the rehearsal."""


class Cloud:
    """The contents of the stand-in clouds of a rehearsal."""

    def __init__(self, folder: Path, *, faults: Any = (), operation: str = "rehearsal") -> None:
        self.folder = folder
        self.store = Store(folder / "cloud.sqlite", operation=operation)
        self.faults = Faults(faults, self.store)
        self.endpoint = ""
        self.changed = threading.Event()
        """Set when a group, a template or an instance might need work."""
        self.fleet = Fleet(self, None, "no node host was started")
        self.operator = Operator()
        self.rights = Rights(self.store)
        self.holds = HeldRequests()

    def close(self) -> None:
        self.store.close()

    # SDK declarations

    @staticmethod
    def type(token: str) -> ResourceType:
        return registry.sdk_of(token).resource(token)

    @staticmethod
    def function(token: str) -> Function:
        return registry.sdk_of(token).function(token)

    def region_of(self, token: str, inputs: Mapping[str, Any], default: str) -> str:
        """Return the region of a resource. Empty for global resources and on clouds whose IDs include the region."""
        if not registry.of_token(token).regional_ids or "region" not in self.type(token).inputs:
            return ""
        given = wire.peel(inputs.get("region"))
        return given if isinstance(given, str) and not wire.is_unknown(given) else default

    # Create, read, update, delete

    def create(self, call: Call) -> None:
        """Create a resource atomically. Fills in its ID and outputs."""
        self._require(call.token, call.region, "create", call.urn, "", call.plain)
        fault = self.faults.of_call(call.token)
        if fault == "error":
            error = registry.of_token(call.token).unavailable.filled(
                service=ids.module(call.token).upper(), kind=ids.class_name(call.token)
            )
            self.store.log("create", call.token, "", call.urn, error.code)
            raise error
        behavior = behaviors.of(call.token)
        try:
            if call.urn:
                self.operator.check_resource(self.store, "create", call.token, call.plain, call.region)
            with self.store.change():
                self._look_up_first(call, behavior)
                _check_texts(call)
                behavior.before_create(self, call)
                call.id = call.id or behavior.identify(self, call) or self._identify(call)
                self._complete(call)
                if behavior.joins and self._join(call):
                    behavior.created(self, call)
                    self.store.update(call.resource())
                else:
                    self._claim(call, behavior)
                    behavior.created(self, call)
                    self.store.insert(call.resource())
                behavior.kept(self, call)
                self.store.log("create", call.token, call.id, call.urn)
        except Taken as taken:
            error = (behavior.taken or registry.of_token(call.token).already_exists).filled(
                name=taken.name,
                id=taken.holder_id,
                kind=ids.class_name(call.token),
                region=call.region,
                inputs=call.plain,
            )
            self.store.log("create", call.token, "", call.urn, error.code)
            raise error from taken
        except ApiRejected as error:
            self.store.log("create", call.token, "", call.urn, error.code)
            raise
        self.wake()
        behavior.after(self, call)
        if fault == "partial":
            raise CreatedButFailed(
                "InternalFailure", "the resource was created but did not become ready (injected by --fault)", status=500
            )
        if fault == "lost":
            raise AnswerLost(
                "RequestTimeout", "the connection broke before the response arrived (injected by --fault)", status=500
            )

    def _look_up_first(self, call: Call, behavior: Behavior) -> None:
        """Report an existing ID before any other error, like providers that look up the ID before they create the
        resource."""
        if behavior.joins or not registry.of_token(call.token).looks_up_first:
            return
        call.id = call.id or behavior.identify(self, call) or self._identify(call)
        if self.store.find(call.token, call.id) is not None:
            raise Taken(call.id, call.token, call.id)

    def existing(self, token: str, id: str, inputs: dict[str, Any], region: str = "") -> None:
        """Add a resource that predates the rehearsal. It has its own ID, and no engine created it."""
        where = self.region_of(token, inputs, region or registry.of_token(token).default_region)
        if self.store.find(token, id, where) is None:
            before, self.store.operation = self.store.operation, EXISTING
            try:
                self.create(Call(token, "", id, inputs, where, id=id))
            finally:
                self.store.operation = before

    def update(self, call: Call, old: Resource) -> None:
        """Update a resource in place."""
        self._require(call.token, old.region, "update", call.urn, old.id, old.plain)
        behavior = behaviors.of(call.token)
        call.old, call.id, call.region = old, old.id, old.region
        try:
            self.operator.check_resource(self.store, "update", call.token, call.plain, call.region, old)
            with self.store.change():
                _check_texts(call)
                behavior.before_update(self, call)
                self._complete(call, keep=old.outputs)
                behavior.updated(self, call)
                self.store.update(replace(old, inputs=call.inputs, outputs=call.outputs))
                behavior.kept(self, call)
                self.store.log("update", call.token, call.id, call.urn)
        except ApiRejected as error:
            self.store.log("update", call.token, call.id, call.urn, error.code)
            raise
        self.wake()
        behavior.after(self, call)

    def delete(self, resource: Resource, urn: str = "") -> None:
        """Delete a resource, unless the cloud refuses the deletion."""
        self._require(resource.type, resource.region, "delete", urn, resource.id, resource.plain)
        behavior = behaviors.of(resource.type)
        try:
            if urn:
                self.operator.check_resource(self.store, "delete", resource.type, {}, resource.region, resource)
            with self.store.change():
                behavior.before_delete(self, resource)
                if not (behavior.joins and self._leave(resource, urn, stays=behavior.stays)):
                    self.store.remove(resource)
                    behavior.deleted(self, resource)
                self.store.log("delete", resource.type, resource.id, urn)
        except ApiRejected as error:
            self.store.log("delete", resource.type, resource.id, urn, error.code)
            raise
        self.wake()

    def change(self, resource: Resource, **values: Any) -> None:
        """Change a resource as a user does, outside of the deployment. A refresh reads the inputs without what is an output only."""
        declared = registry.sdk_of(resource.type).resource(resource.type).inputs
        inputs = {name: settable(declared[name].type, value) for name, value in values.items() if name in declared}
        self.store.update(replace(resource.changed(**inputs), outputs={**resource.outputs, **values}))
        self.store.log("update", resource.type, resource.id, "")
        self.wake()

    def _require(self, token: str, region: str, verb: str, urn: str, id: str, inputs: Mapping[str, Any]) -> None:
        """Refuse a change that requires a region with an outage."""
        try:
            regions = registry.of_token(token).regions_of(self.store, token, region, id, inputs, change=True)
            outage.refuse(self.store, regions, f"{verb} {token}")
        except ApiRejected as error:
            self.store.log(verb, token, "", urn, error.code)
            raise

    def find(self, token: str, id: str, region: str) -> Resource | None:
        """Find a resource by the ID that the engine or the user provides: its own ID, or an import ID."""
        own = self.region_of(token, {}, region)
        bare, named = registry.of_token(token).split_import_id(id)
        if own and named and (resource := self.find(token, bare, named)):
            return resource
        return (
            self.store.find(token, id, own)
            or (None if own else self.store.find(token, id))
            or behaviors.of(token).by_import_id(self, token, id, own)
        )

    def external(self, id: str) -> dict[str, Any] | None:
        """Return the known fields of a resource that exists in the account but was not created by this rehearsal, or
        None.

        The control interface describes such resources. A resource is assumed to exist if its ID is clearly not
        synthetic.
        """
        described = self.store.get("external", id)
        if described is None and any(one.is_real_id(id) for one in registry.installed()):
            return {}
        return described

    def wake(self) -> None:
        """Notify the fleet that something might have changed."""
        self.changed.set()

    # Common to all resources

    def _identify(self, call: Call) -> str:
        stand_in = registry.of_token(call.token)
        return stand_in.identify(call.token, call.name, call.plain, call.region, self.store.next)

    def _complete(self, call: Call, keep: Mapping[str, Any] | None = None) -> None:
        """Fill in all declared outputs. On an update, outputs that the cloud generated keep their values."""
        declared = self.type(call.token)
        about = synth.Subject(call.token, call.id, call.region, call.inputs)
        made = synth.outputs(declared.outputs, declared.inputs, about)
        for path, value in registry.of_token(call.token).filled(call.token).items():
            *parents, name = path.split(".")
            if not parents and call.inputs.get(name) is None:
                made[name] = "" if value is None and isinstance(made.get(name), str) else copy.deepcopy(value)
            for holder in wire.holders(made, parents) if parents else ():
                if value is None:
                    holder.pop(name, None)
                elif holder.get(name) is None:
                    holder[name] = copy.deepcopy(value)
        for name, value in (keep or {}).items():
            if name in made and call.inputs.get(name) is None and name != "tagsAll":
                made[name] = value
        if "tagsAll" in made:
            made["tagsAll"] = {**call.tags, **made["tagsAll"]}
        # The provider marks secret outputs itself. Otherwise the engine marks the outputs of every unchanged resource
        # while it writes them to the state, and sometimes crashes with "concurrent map read and map write" (3.259).
        for name in declared.secrets & set(made):
            if made[name] is not None and not wire.is_secret(made[name]):
                made[name] = wire.secret(made[name])
        call.outputs = made

    def _join(self, call: Call) -> bool:
        """Record the creator. Returns True if the resource already exists."""
        key = f"{call.token} {call.id}"
        there = self.store.find(call.token, call.id, call.region) is not None
        makers = self.store.get(_MAKERS, key) if there else None
        self.store.put(_MAKERS, key, sorted({*(makers or ()), call.urn}))
        return there

    def _leave(self, resource: Resource, urn: str, *, stays: bool) -> bool:
        """Remove a creator. Returns True if other creators still need the resource."""
        key = f"{resource.type} {resource.id}"
        others = sorted({*(self.store.get(_MAKERS, key) or ())} - {urn or resource.urn})
        if stays and others:
            self.store.put(_MAKERS, key, others)
            self.store.remove(resource)
            self.store.insert(replace(resource, urn=others[0]))
            return True
        self.store.drop(_MAKERS, key)
        return False

    def _claim(self, call: Call, behavior: Behavior) -> None:
        for scope, name in behavior.names(self, call):
            self.store.claim(scope, name, call.resource())


def _check_texts(call: Call) -> None:
    """Raise the cloud's error for a text whose characters or length it rejects."""
    cloud = registry.of_token(call.token)
    for row, field in texts.rejected(cloud.texts, call.token, call.plain, cloud.own_names(call.token)):
        text = (
            f"Value ({field.text}) for {field.path} is invalid: {len(field.text)} characters; "
            f"allowed: {row.form}, {row.least} to {row.most} characters; see {row.page}"
        )
        raise type(cloud.unavailable)(row.code, text)
