"""Pulumi's provider protocol for the stand-in cloud, with one servicer per package.

The engine connects through PULUMI_DEBUG_PROVIDERS. One server serves every provider instance of its package. Each
instance has its own connection, so the connection determines which configuration (region, default tags) applies.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from gpuinfra_rehearsal.cloud.core import behaviors, ids, invoke, outage, registry, synth, wire
from gpuinfra_rehearsal.cloud.core.check import RejectedInput, check
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.diff import diff
from gpuinfra_rehearsal.cloud.core.errors import AnswerLost, ApiRejected, CreatedButFailed
from gpuinfra_rehearsal.cloud.core.holds import HoldMoment
from gpuinfra_rehearsal.cloud.core.interfaces import Call
from gpuinfra_rehearsal.cloud.core.sdk import NotDeclared, ResourceType


@dataclass
class _Configuration:
    region: str
    location: str = ""
    """The setting `location`, which some providers add to the inputs of a resource."""
    tags: dict[str, str] = field(default_factory=dict)


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """The provider of one package."""

    def __init__(self, package: str, cloud: Cloud) -> None:
        self.package, self.cloud = package, cloud
        self._stand_in = registry.of_package(package)
        self._version = registry.sdk_of(f"{package}:").version
        self._configured: dict[str, _Configuration] = {}
        self._latest = _Configuration(self._stand_in.default_region)
        self._lock = threading.Lock()

    # The provider itself

    def Handshake(self, request, context):
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, accept_resources=True, accept_outputs=False)

    def Attach(self, request, context):
        return Empty()

    def Cancel(self, request, context):
        return Empty()

    def GetPluginInfo(self, request, context):
        return plugin_pb2.PluginInfo(version=self._version)

    def GetSchema(self, request, context):
        # The SDK's types serve as the schema. The engine needs a schema only to convert or generate programs.
        return provider_pb2.GetSchemaResponse(schema=json.dumps({"name": self.package, "version": self._version}))

    def CheckConfig(self, request, context):
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request, context):
        old, new = wire.plain(wire.read(request.olds)), wire.plain(wire.read(request.news))
        changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key) and key != "version")
        moved = [key for key in changed if key in self._stand_in.moving_settings]
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE,
            diffs=changed,
            replaces=moved,
        )

    def Configure(self, request, context):
        given = wire.plain(wire.read(request.args)) if request.HasField("args") else {}
        variables = {key.rsplit(":", 1)[-1]: value for key, value in request.variables.items()}
        settings = {**variables, **given}
        region = settings.get("region") or settings.get("location") or self._stand_in.default_region
        configuration = _Configuration(str(region), str(settings.get("location") or ""), _default_tags(settings))
        with self._lock:
            self._configured[context.peer()] = configuration
            self._latest = configuration
        if settings.get("region"):
            self.cloud.operator.look("configure", f"{self.package}:")
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=True, acceptOutputs=False
        )

    def _configuration(self, context) -> _Configuration:
        with self._lock:
            return self._configured.get(context.peer(), self._latest)

    # Resources

    def Check(self, request, context):
        token, name = _token(request.urn), _name(request.urn)
        try:
            declared = self.cloud.type(token)
        except NotDeclared as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        news, olds = wire.read(request.news), wire.read(request.olds)
        news = {key: value for key, value in news.items() if not key.startswith("__") and value is not None}
        _autoname(token, name, news, olds, declared.inputs, request.randomSeed)
        _fill(news, self._stand_in.defaults(token))
        location = self._configuration(context).location
        if self._stand_in.adds_location and location and "location" in declared.inputs:
            news["location"] = news.get("location") or olds.get("location") or location
        call = self._call(context, request.urn, news)
        failures = [*check({k: v for k, v in news.items()}, declared.inputs)]
        failures += behaviors.of(token).check(self.cloud, call) if not failures else []
        return provider_pb2.CheckResponse(
            inputs=wire.write(call.inputs),
            failures=[provider_pb2.CheckFailure(property=f.path, reason=self._reason(f, name)) for f in failures],
        )

    @staticmethod
    def _reason(failure: RejectedInput, name: str) -> str:
        return f"{failure.path} {failure.reason}. Examine values at '{name}.{failure.path}'."

    def Diff(self, request, context):
        token = _token(request.urn)
        old = wire.read(request.old_inputs) if request.HasField("old_inputs") else wire.read(request.olds)
        new = wire.read(request.news)
        ignored = (*behaviors.of(token).ignored, *request.ignoreChanges)
        changes = diff(token, old, new, ignored)
        kinds = {"add": 0, "delete": 2, "update": 4}  # PropertyDiff.Kind; odd values after these mean replacement
        replaces = [change.path for change in changes if change.replace]
        stable_name = self._same_name(token, old, new)
        response = provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME if changes else provider_pb2.DiffResponse.DIFF_NONE,
            diffs=sorted({_top(change.path) for change in changes}),
            replaces=sorted({_top(path) for path in replaces}),
            deleteBeforeReplace=bool(replaces) and stable_name,
            hasDetailedDiff=True,
        )
        for change in changes:
            response.detailedDiff[change.path].kind = kinds[change.kind] + (1 if change.replace else 0)  # pyright: ignore[reportAttributeAccessIssue]
            response.detailedDiff[change.path].inputDiff = True
        return response

    @staticmethod
    def _same_name(token: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
        """Return whether the user chose the name, in which case the old and the new resource cannot coexist."""
        keys = {"name", *registry.of_token(token).own_names(token)} & set(new)
        chosen = [key for key in keys if key not in (new.get("__defaults") or [])]
        return any(wire.plain(old.get(key)) == wire.plain(new[key]) for key in chosen)

    def Create(self, request, context):
        call = self._call(context, request.urn, wire.read(request.properties))
        if request.preview:
            declared = self.cloud.type(call.token)
            return provider_pb2.CreateResponse(id="", properties=wire.write(_preview_of_create(declared, call)))
        self._hold(context, "create", call.token, HoldMoment.BEFORE)
        try:
            self.cloud.create(call)
        except CreatedButFailed as error:
            self._not_ready(context, call, error.reported(self._doing("creating", call)))
        except AnswerLost as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, error.reported(self._doing("creating", call)))
        except ApiRejected as error:
            context.abort(grpc.StatusCode.UNKNOWN, error.reported(self._doing("creating", call)))
        self._hold(context, "create", call.token, HoldMoment.AFTER)
        return provider_pb2.CreateResponse(id=call.id, properties=wire.write(call.outputs))

    def Read(self, request, context):
        token = _token(request.urn)
        configuration = self._configuration(context)
        given = wire.plain(wire.read(request.properties))
        region = given.get("region") if isinstance(given.get("region"), str) else configuration.region
        resource = self.cloud.find(token, request.id, region)
        try:
            where = resource.region if resource else region
            regions = self._stand_in.regions_of(
                self.cloud.store, token, where, request.id, resource.plain if resource else given, change=False
            )
            outage.refuse(self.cloud.store, regions, f"read {token}")
            self.cloud.operator.check_resource(self.cloud.store, "read", token, given, region, resource)
            if not given:
                self.cloud.operator.look("import", token)
        except ApiRejected as error:
            context.abort(grpc.StatusCode.UNKNOWN, error.reported(f"reading {ids.class_name(token)} ({request.id})"))
        behavior = behaviors.of(token)
        resource = behavior.read(self.cloud, resource) if resource else None
        if resource is None:
            return provider_pb2.ReadResponse()
        if not given:  # an import: the engine has no state
            resource = behavior.imported(self.cloud, resource)
        return provider_pb2.ReadResponse(
            id=resource.id, properties=wire.write(resource.outputs), inputs=wire.write(resource.inputs)
        )

    def Update(self, request, context):
        call = self._call(context, request.urn, wire.read(request.news))
        call.state = wire.read(request.olds)
        old = self.cloud.find(call.token, request.id, self._region(request.olds, call.region))
        if request.preview:
            return provider_pb2.UpdateResponse(properties=wire.write(self._previewed(call, call.state)))
        if old is None:
            context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"updating {ids.class_name(call.token)} ({request.id}): not found; run pulumi refresh",
            )
        self._hold(context, "update", call.token, HoldMoment.BEFORE)
        try:
            self.cloud.update(call, old)
        except CreatedButFailed as error:
            self._not_ready(context, call, error.reported(self._doing("updating", call)))
        except ApiRejected as error:
            context.abort(grpc.StatusCode.UNKNOWN, error.reported(self._doing("updating", call)))
        self._hold(context, "update", call.token, HoldMoment.AFTER)
        return provider_pb2.UpdateResponse(properties=wire.write(call.outputs))

    def _previewed(self, call: Call, olds: dict[str, Any]) -> dict[str, Any]:
        """Return the outputs after an update: the old outputs, overridden by the new inputs. Outputs that the
        update itself changes are unknown."""
        declared = self.cloud.type(call.token)
        made = {key: value for key, value in olds.items() if key in declared.outputs and key not in declared.inputs}
        made |= {
            key: value
            for key, value in olds.items()
            if key in declared.inputs and not declared.outputs.get(key, declared.inputs[key]).type.optional
        }
        made |= {
            key: synth.shaped(value, declared.outputs[key].type)
            for key, value in call.inputs.items()
            if key in declared.outputs
        }
        if "tagsAll" in declared.outputs:
            made["tagsAll"] = _all_tags(call)
        return made | dict.fromkeys(behaviors.of(call.token).volatile, wire.UNKNOWN)

    def Delete(self, request, context):
        token = _token(request.urn)
        region = self._region(request.properties, self._configuration(context).region)
        resource = self.cloud.find(token, request.id, region)
        if resource is None:
            return Empty()  # already deleted by hand, or by a run that was killed before it responded
        self._hold(context, "delete", token, HoldMoment.BEFORE)
        # A bridged provider reads this argument from the state and not from the cloud.
        if wire.plain(wire.read(request.properties)).get("forceDestroy") is True:
            resource = replace(resource, inputs={**resource.inputs, "forceDestroy": True})
        try:
            self.cloud.delete(resource, request.urn)
        except ApiRejected as error:
            context.abort(grpc.StatusCode.UNKNOWN, error.reported(f"deleting {ids.class_name(token)} ({request.id})"))
        self._hold(context, "delete", token, HoldMoment.AFTER)
        return Empty()

    def Invoke(self, request, context):
        try:
            region, asked = self._configuration(context).region, wire.read(request.args)
            outage.refuse(self.cloud.store, [region], request.tok)
            self.cloud.operator.check_function(request.tok, wire.plain(asked), region)
            answer = invoke.answer(self.cloud, request.tok, asked, region)
        except NotDeclared as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except invoke.InvokeRefused as refused:
            return provider_pb2.InvokeResponse(
                failures=[
                    provider_pb2.CheckFailure(property=f.path, reason=f"{f.path} {f.reason}") for f in refused.failures
                ]
            )
        except ApiRejected as error:
            context.abort(grpc.StatusCode.UNKNOWN, error.reported(f"invoking {request.tok}"))
        return provider_pb2.InvokeResponse(**{"return": wire.write(answer)})  # pyright: ignore[reportArgumentType]

    # Helpers

    def _hold(self, context, verb: str, token: str, moment: HoldMoment) -> None:
        if not self.cloud.holds.passes(verb, token, moment, lambda: bool(context.is_active())):
            context.abort(grpc.StatusCode.CANCELLED, "the caller does not exist anymore")

    def _call(self, context, urn: str, inputs: dict[str, Any]) -> Call:
        configuration, token = self._configuration(context), _token(urn)
        region = self.cloud.region_of(token, inputs, configuration.region)
        return Call(token, urn, _name(urn), inputs, region, tags=configuration.tags)

    def _region(self, properties, default: str) -> str:
        region = wire.peel(wire.read(properties).get("region"))
        return region if isinstance(region, str) else default

    @staticmethod
    def _doing(verb: str, call: Call) -> str:
        return f"{verb} {ids.class_name(call.token)} ({call.id or call.name})"

    @staticmethod
    def _not_ready(context, call: Call, message: str) -> None:
        """The engine keeps the resource and its outputs, and retries with an update."""
        detail = Packed()
        detail.Pack(
            provider_pb2.ErrorResourceInitFailed(
                id=call.id, properties=wire.write(call.outputs), reasons=[message], inputs=wire.write(call.inputs)
            )
        )
        status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=message, details=[detail])
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(grpc.StatusCode.UNKNOWN, message)


def serve(provider: Provider) -> tuple[grpc.Server, int]:
    """Serve a provider on a free loopback port."""
    server = grpc.server(
        ThreadPoolExecutor(max_workers=32, thread_name_prefix=provider.package),
        options=[
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ],
    )
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def _preview_of_create(declared: ResourceType, call: Call) -> dict[str, Any]:
    """Return the outputs of a creation in a preview."""
    made = synth.unknown(declared.outputs, call.inputs, declared.inputs)
    if "tagsAll" in made:
        made["tagsAll"] = _all_tags(call)
    return made


def _all_tags(call: Call) -> Any:
    tags = wire.peel(call.inputs.get("tags")) or {}
    return wire.UNKNOWN if wire.is_unknown(tags) else {**call.tags, **tags}


def _default_tags(settings: dict[str, Any]) -> dict[str, str]:
    tags = settings.get("defaultTags") or {}
    if isinstance(tags, str):
        try:
            tags = json.loads(tags)
        except ValueError:
            tags = {}
    return {str(key): str(value) for key, value in (tags.get("tags") or {}).items()} if isinstance(tags, dict) else {}


def _autoname(token: str, name: str, news: dict[str, Any], olds: dict[str, Any], declared: Any, seed: bytes) -> None:
    """Generate the resource's name as Pulumi's providers do: stable across runs, and marked as a default."""
    made = []
    for key in registry.of_token(token).own_names(token)[-1:]:
        prefixed = any(news.get(f"{stem}Prefix") is not None for stem in (key, "name"))
        if key in news or prefixed or key not in declared or declared[key].required or declared[key].type.kind != "str":
            continue
        before = olds.get(key) if key in (olds.get("__defaults") or []) else None
        if before is None:
            digest = hashlib.sha256(seed or name.encode()).hexdigest()
            before = registry.of_token(token).generated_name(token, name, digest)
        news[key] = before
        made.append(key)
    news["__defaults"] = made


def _fill(news: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Add the provider's defaults, and mark them as such. A default below an object applies if the object is given."""
    for path, value in defaults.items():
        *parents, name = path.split(".")
        for holder in wire.holders(news, parents):
            if holder.get(name) is None:
                holder[name] = value
                holder["__defaults"] = [*holder.get("__defaults", []), name]


def _token(urn: str) -> str:
    return urn.split("::")[2].rsplit("$", 1)[-1]


def _name(urn: str) -> str:
    return urn.split("::", 3)[3]


def _top(path: str) -> str:
    return path.split(".")[0].split("[")[0]
