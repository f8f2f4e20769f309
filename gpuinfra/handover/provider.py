"""gpuinfra's Pulumi provider: the `gpuinfra:index:NodesReady` resource, and the resources and functions that it serves for single clouds.

Create and Update wait until every expected node is verified. Otherwise, they fail with the reasons. The state of a failed
resource is kept, so the next `up` judges the nodes again. Read polls membership and evidence, so a replaced node appears as
drift. Delete does nothing, because NodesReady is not a cloud resource.
The servicer class is generated. `gpuinfra.provider` adds the `GpuCluster` component and starts the plugin.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2, empty_pb2
from pulumi.runtime.proto import (
    engine_pb2,
    engine_pb2_grpc,
    plugin_pb2,
    provider_pb2,
    provider_pb2_grpc,
    status_pb2,
)

from gpuinfra.handover import trust, wire
from gpuinfra.handover.causes import WaitEnd
from gpuinfra.handover.connect import ServedResource, connect, handover_of, served_functions, served_resources
from gpuinfra.handover.examine import judge_node
from gpuinfra.handover.explain import reasons
from gpuinfra.handover.gather import Gatherer
from gpuinfra.handover.ports import PortUnavailable
from gpuinfra.handover.relay import FabricRelay
from gpuinfra.handover.shortages import shortages
from gpuinfra.handover.watch import NOT_DUE_TEXT, Wait, WaitOutcome, watch
from gpuinfra.handover.wire import CHECK_VARIABLE

REQUIRED = ("cloud", "cluster", "region", "evidenceBucket", "evidencePrefix", "pools")
WAITS = ("all", "floor", "none")
WORKERS = 32
"""Concurrent requests. A component uses one until all of its resources exist."""
GRPC_OPTIONS = [
    ("grpc.max_receive_message_length", 400 * 1024 * 1024),
    ("grpc.max_send_message_length", 400 * 1024 * 1024),
]


class EngineLog:
    """The engine's log, for progress and messages about a resource."""

    def __init__(self) -> None:
        self._stub: engine_pb2_grpc.EngineStub | None = None
        self.address = ""

    def attach(self, address: str) -> None:
        """Connect to the engine at this address."""
        self.address = address
        self._stub = engine_pb2_grpc.EngineStub(grpc.insecure_channel(address, options=GRPC_OPTIONS))

    def status(self, urn: str, text: str) -> None:
        """Show a transient status line next to the resource."""
        self._log(urn, text, ephemeral=True)

    def info(self, urn: str, text: str) -> None:
        """Log a permanent message about the resource."""
        self._log(urn, text, ephemeral=False)

    def _log(self, urn: str, text: str, *, ephemeral: bool) -> None:
        if self._stub is None:
            return
        try:
            self._stub.Log(
                engine_pb2.LogRequest(severity=engine_pb2.INFO, message=text, urn=urn, ephemeral=ephemeral), timeout=5
            )
        except grpc.RpcError:
            return  # A lost progress message must not stop the wait.


class NodesReadyProvider(provider_pb2_grpc.ResourceProviderServicer):
    """The gRPC service of the provider."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._engine = EngineLog()
        self._cancelled = threading.Event()

    # Plugin

    def Handshake(self, request: Any, context: Any) -> Any:
        self._engine.attach(request.engine_address)
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, accept_resources=False, accept_outputs=False)

    def Attach(self, request: Any, context: Any) -> Any:
        self._engine.attach(request.address)
        return empty_pb2.Empty()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version=self._version)

    def GetSchema(self, request: Any, context: Any) -> Any:
        from gpuinfra.handover.schema import package_schema

        return provider_pb2.GetSchemaResponse(schema=json.dumps(package_schema(self._version)))

    def CheckConfig(self, request: Any, context: Any) -> Any:
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(self, request: Any, context: Any) -> Any:
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=False, acceptOutputs=False
        )

    def Cancel(self, request: Any, context: Any) -> Any:
        self._cancelled.set()
        return empty_pb2.Empty()

    # Function

    def Invoke(self, request: Any, context: Any) -> Any:
        inputs = wire.from_struct(request.args)
        functions = served_functions()
        function = functions.get(request.tok)
        if function is None:
            return abort(context, f"{request.tok} is not a function in gpuinfra; expected {' or '.join(functions)}")
        if wrong := function.check_inputs(inputs):
            failures = [provider_pb2.CheckFailure(property=path, reason=reason) for path, reason in wrong]
            return provider_pb2.InvokeResponse(failures=failures)
        try:
            result = function.call(inputs)
        except PortUnavailable as error:
            return abort(context, str(error))
        answer: Any = {"return": wire.to_struct(result)}  # `return` is a Python keyword.
        return provider_pb2.InvokeResponse(**answer)

    # Resource

    def Check(self, request: Any, context: Any) -> Any:
        inputs = wire.from_struct(request.news)
        served = served_resources().get(request.type)
        wrong = served.check_inputs(inputs) if served else check_inputs(request.type, inputs)
        failures = [provider_pb2.CheckFailure(property=path, reason=reason) for path, reason in wrong]
        return provider_pb2.CheckResponse(inputs=request.news, failures=failures)

    def Diff(self, request: Any, context: Any) -> Any:
        state, news = wire.from_struct(request.olds), wire.from_struct(request.news)
        if served := _served(request.urn):
            changed = replaced = served.changes(state, news)
        else:
            changed = changes(state, wire.from_struct(request.old_inputs) or wire.inputs_of(state), news)
            replaced = []
        kinds = provider_pb2.DiffResponse
        kind = kinds.DIFF_SOME if changed else kinds.DIFF_NONE
        return kinds(changes=kind, diffs=changed, replaces=replaced)

    def Create(self, request: Any, context: Any) -> Any:
        inputs, secret = wire.from_struct(request.properties), wire.secrets_in(request.properties)
        if served := _served(request.urn):
            return self._create(served, request, inputs, secret, context)
        if request.preview:
            _check_credentials(inputs, context)
            return provider_pb2.CreateResponse(id="", properties=wire.to_struct(preview_properties(inputs), secret))
        name = f"{inputs['cluster']}@{inputs['region']}"
        return provider_pb2.CreateResponse(
            id=name, properties=self._wait(request.urn, name, inputs, {}, secret, context)
        )

    def Update(self, request: Any, context: Any) -> Any:
        inputs, secret = wire.from_struct(request.news), wire.secrets_in(request.news)
        if request.preview:
            _check_credentials(inputs, context)
            return provider_pb2.UpdateResponse(properties=wire.to_struct(preview_properties(inputs), secret))
        state = wire.from_struct(request.olds)
        return provider_pb2.UpdateResponse(
            properties=self._wait(request.urn, request.id, inputs, state, secret, context)
        )

    def Read(self, request: Any, context: Any) -> Any:
        state = wire.from_struct(request.properties)
        inputs = wire.from_struct(request.inputs) or wire.inputs_of(state)
        secret = wire.secrets_in(request.properties) | wire.secrets_in(request.inputs)
        if served := _served(request.urn):
            return _read(served, request, state, inputs, secret, context)
        if not inputs:
            return abort(
                context,
                "NodesReady cannot be imported, because it is not a cloud resource; run `pulumi up` to create it",
            )
        try:
            outcome = self._watch(request.urn, inputs, state, Wait(mode="none"))
        except PortUnavailable as error:
            return abort(context, f"cannot read the state of the nodes: {error}")
        properties = self._properties(request.urn, inputs, outcome)
        return provider_pb2.ReadResponse(
            id=request.id, properties=wire.to_struct(properties, secret), inputs=wire.to_struct(inputs, secret)
        )

    def Delete(self, request: Any, context: Any) -> Any:
        if served := _served(request.urn):
            try:
                kept = served.delete(wire.from_struct(request.properties))
            except PortUnavailable as error:
                return abort(context, str(error))
            if kept:
                self._engine.info(request.urn, kept)
        return empty_pb2.Empty()

    def _create(
        self, served: ServedResource, request: Any, inputs: dict[str, object], secret: frozenset[str], context: Any
    ) -> Any:
        if request.preview:
            properties = {**inputs, **dict.fromkeys(served.OUTPUTS, wire.UNKNOWN)}
            return provider_pb2.CreateResponse(id="", properties=wire.to_struct(properties, secret))
        try:
            made = served.create(inputs, self._cancelled)
        except (PortUnavailable, ValueError, OSError) as error:
            return abort(context, str(error))
        return provider_pb2.CreateResponse(id=str(made[served.OUTPUTS[0]]), properties=wire.to_struct(made, secret))

    def _wait(
        self,
        urn: str,
        name: str,
        inputs: dict[str, object],
        state: dict[str, object],
        secret: frozenset[str],
        context: Any,
    ) -> Any:
        try:
            wait = wire.wait_of(inputs, wire.deadline(), os.environ.get(wire.WAIT_VARIABLE))
            outcome = self._watch(urn, inputs, state, wait)
        except ValueError as error:
            return abort(context, str(error))
        except PortUnavailable as error:
            unread = {**inputs, **_unreachable_outputs(state)}
            hint = "restore the access to the cloud, then run `pulumi up` again"
            text = f"cannot read the state of the nodes: {error}\n  what to do: {hint}"
            return _fail(context, name, wire.to_struct(unread, secret), [text])
        early = outcome.ended is WaitEnd.NOT_DUE
        passed = outcome.ready or early or (wait.mode == "none" and outcome.ended is WaitEnd.ONCE)
        # An `up` that did not wait succeeds, but the fleet is ready only after it is judged. The next `up` judges the remaining nodes.
        properties = self._properties(urn, inputs, outcome)
        if not passed:
            return _fail(context, name, wire.to_struct(properties, secret), reasons(outcome, str(inputs["cloud"])))
        return wire.to_struct(properties, secret)

    def _properties(self, urn: str, inputs: Mapping[str, object], outcome: WaitOutcome) -> dict[str, object]:
        """Return the properties for the state."""
        outputs = wire.outputs_of(outcome, shortages(outcome, wire.pools_of(inputs)), summary(outcome))
        return {**inputs, **outputs, "trust": self._trust(urn, inputs)}

    def _trust(self, urn: str, inputs: Mapping[str, object]) -> list[str]:
        """Report the environment variables that change what proves an identity, and return them for the state."""
        cloud = str(inputs.get("cloud"))
        if said := trust.stated(cloud):
            self._engine.info(urn, said)
        return trust.changed(cloud)

    def _watch(self, urn: str, inputs: dict[str, object], state: dict[str, object], wait: Wait) -> WaitOutcome:
        pools = wire.pools_of(inputs)
        ports = connect(inputs)
        gatherer = Gatherer(ports, pools, judge_node=judge_node, trusted=wire.trusted_of(state, pools))
        return watch(
            gatherer,
            wait,
            log=lambda text: self._engine.status(urn, text),
            cancelled=self._cancelled,
            names=wire.names_of(state),
            relay=FabricRelay(ports.store, str(inputs["cluster"]), pools),
        )


def _served(urn: str) -> ServedResource | None:
    """Return the served resource type of a URN, or None if the URN is that of `NodesReady`."""
    parts = urn.split("::")
    return served_resources().get(parts[2].split("$")[-1]) if len(parts) > 3 else None


def _read(
    served: ServedResource,
    request: Any,
    state: dict[str, object],
    inputs: dict[str, object],
    secret: frozenset[str],
    context: Any,
) -> Any:
    name = served.TYPE.rpartition(":")[2]
    if not state:
        return abort(
            context,
            f"a resource of type {name} cannot be imported; run `pulumi up`, which adopts it if it has the same content",
        )
    try:
        if not served.read(state):
            return provider_pb2.ReadResponse(id="")
    except PortUnavailable as error:
        return abort(context, f"cannot read {request.id}: {error}")
    return provider_pb2.ReadResponse(
        id=request.id,
        properties=wire.to_struct(state, secret),
        inputs=wire.to_struct({k: inputs[k] for k in served.INPUTS if k in inputs}, secret),
    )


def check_inputs(token: str, inputs: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return problems with the inputs, as (property, reason)."""
    if token != wire.TYPE:
        return [
            (
                "",
                f"{token} is not a resource type in gpuinfra; expected {' or '.join((wire.TYPE, *served_resources()))}",
            )
        ]
    problems = [(name, f"{name} is missing") for name in REQUIRED if inputs.get(name) in (None, "", [])]
    if inputs.get("wait", "all") not in (*WAITS, wire.UNKNOWN):
        problems.append(("wait", f"wait is {inputs.get('wait')!r}; allowed: {', '.join(WAITS)}"))
    if inputs.get("wait") == "floor" and not inputs.get("floor"):
        problems.append(
            ("floor", "wait is 'floor', but floor is missing; set it to the number of verified nodes to wait for")
        )
    return problems


def changes(state: Mapping[str, object], old_inputs: Mapping[str, object], news: Mapping[str, object]) -> list[str]:
    """Return the changed properties that require a new judgement. If the fleet is not ready, or with `CHECK_VARIABLE`, it is always judged again."""
    names = sorted({*old_inputs, *news} - wire.WAITING_ONLY)
    changed = [n for n in names if not n.startswith("__") and old_inputs.get(n) != news.get(n)]
    if (state.get("ready") is not True or os.environ.get(CHECK_VARIABLE)) and news.get("wait") != "none":
        changed.append("ready")
    return changed


def _check_credentials(inputs: Mapping[str, object], context: Any) -> None:
    """Fail during the preview, before the cluster is created, if the handover has no credentials."""
    if inputs.get("cloud") in (None, wire.UNKNOWN):
        return
    try:
        handover_of(str(inputs["cloud"])).check_credentials()
    except PortUnavailable as error:
        abort(context, f"the handover requires the operator's credentials, even for a preview: {error}")


def preview_properties(inputs: Mapping[str, object]) -> dict[str, object]:
    """Return the properties for a preview, in which all outputs are unknown."""
    return {**inputs, **dict.fromkeys(wire.OUTPUTS, wire.UNKNOWN)}


def summary(outcome: WaitOutcome) -> str:
    """Return a one-line summary for the state."""
    verdict = outcome.verdict
    if outcome.ended is WaitEnd.NOT_DUE:
        return NOT_DUE_TEXT
    gpus = sum(node.gpus_verified for node in verdict.nodes)
    return f"{verdict.verified} of {verdict.expected} nodes and {gpus} GPUs verified"


def _unreachable_outputs(state: Mapping[str, object]) -> dict[str, object]:
    """Return the outputs if the cloud cannot be reached: the previous values, marked as not ready."""
    previous = {name: state[name] for name in wire.OUTPUTS if name in state}
    return {
        "nodesVerified": 0,
        "gpusVerified": 0,
        "nodes": [],
        "summary": "not checked",
        "trust": [],
        **previous,
        "ready": False,
        "ended": WaitEnd.UNREACHABLE.value,
        "shortages": [],
    }


def _fail(context: Any, name: str, properties: Any, texts: Sequence[str]) -> NoReturn:
    """Fail and keep the state: the resource exists but is not ready."""
    detail = any_pb2.Any()
    detail.Pack(provider_pb2.ErrorResourceInitFailed(id=name, properties=properties, reasons=list(texts)))
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message="\n".join(texts), details=[detail])
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, texts[0])
    raise AssertionError("abort does not return")


def abort(context: Any, text: str) -> NoReturn:
    """Fail a request without saving a state."""
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
    raise AssertionError("abort does not return")


def serve(arguments: Sequence[str], service: type[NodesReadyProvider] = NodesReadyProvider) -> int:
    """Run the plugin: print the port and serve until the engine exits."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("gpuinfra")
    except PackageNotFoundError:
        own = "0.0.0"
    provider = service(own)
    if arguments:
        provider._engine.attach(arguments[0])
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=WORKERS), options=GRPC_OPTIONS)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    parent = os.getppid()
    while (
        os.getppid() == parent
    ):  # If the engine is killed before it sends a Cancel request, only this check ends the process.
        time.sleep(0.5)
    provider._cancelled.set()
    server.stop(0)
    return 0
