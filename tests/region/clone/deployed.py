"""A shipped stack with a second region in a stand-in cloud of this process, created without Pulumi's engine.

The program registers its resources with a monitor that sends each one to the stand-in's provider, as the engine does, so the state
and the responses of the stand-in match. Nodes do not boot.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import grpc
from pulumi.runtime import mocks, settings, sync_await
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, resource_pb2
from pulumi.runtime.stack import run_pulumi_func

from gpuinfra.clouds.azure.handover import upload
from gpuinfra.clouds.saved import OUTPUTS
from gpuinfra.handover.provider import NodesReadyProvider
from gpuinfra.spec.load import LoadedStack
from gpuinfra_rehearsal import endpoints
from gpuinfra_rehearsal.cloud.core import registry, wire
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.control import Control
from gpuinfra_rehearsal.cloud.core.http import Request
from gpuinfra_rehearsal.cloud.core.provider import Provider, serve
from gpuinfra_rehearsal.cloud.core.server import Server
from tests.clouds.recorder import have_event_loop

REGION = {"aws": "region", "azure-native": "location", "gcp": "region"}
"""Setting of each provider that contains the region."""
STASH = "pulumi:index:Stash"


class Deployed:
    """The resources of a stack in a stand-in cloud."""

    def __init__(self, stack: LoadedStack, folder: Path) -> None:
        self.name, self.region = stack.spec.cloud, stack.spec.where.region
        self.cloud = Cloud(folder)
        self.server = Server(self.cloud, "token")
        self.server.start()
        self.resources: list[dict[str, Any]] = []
        self._state = self.resources
        self._providers: dict[tuple[str, str], Any] = {}
        self._closing: list[Any] = []
        try:
            self._create(stack, self.resources)
        except BaseException:
            self.close()
            raise

    def another(self, stack: LoadedStack) -> list[dict[str, Any]]:
        """Create another stack in the same cloud, and return the resources in its state."""
        resources: list[dict[str, Any]] = []
        self._create(stack, resources)
        return resources

    def close(self) -> None:
        """Stop the servers."""
        for close in reversed(self._closing):
            close()
        self.server.shutdown()
        self.server.server_close()
        self.cloud.close()

    @property
    def environment(self) -> dict[str, str]:
        """Endpoints and credentials of the operator."""
        known = {one.name: one.operator_credentials(self.cloud) for one in registry.installed()}
        return endpoints.of_operator(self.cloud.endpoint, known, self.name, self.region)

    def ask(self, action: str, **body: object) -> None:
        """Send a request to the control interface."""
        request = Request("POST", f"/.control/{action}", "", {"x-gpuinfra-control": "t"}, json.dumps(body).encode())
        answer = Control(self.cloud, "t")(request)
        assert answer.status == 200, answer.body

    def first(self, kind: str, part: str = "") -> dict[str, Any]:
        """The first resource of a type in the state whose ID, URN or region contains a text."""
        return next(
            one for one in self.resources
            if one["type"] == kind and any(part in str(text) for text in (one["id"], one["urn"], one["inputs"].get("region")))
        )  # fmt: skip

    def vanish(self, one: Mapping[str, Any]) -> None:
        """Remove a resource from the cloud, but not from the state."""
        self.ask("vanish", type=one["type"], id=one["id"])

    def drift(self, one: Mapping[str, Any], **values: object) -> None:
        """Change a resource in the cloud, but not in the state."""
        self.ask("drift", type=one["type"], id=one["id"], set=values)

    def save(self) -> sqlite3.Connection:
        """Copy the contents of the cloud."""
        copy = sqlite3.connect(":memory:", check_same_thread=False)
        with self.cloud.store._lock:
            self.cloud.store._db.backup(copy)
        return copy

    def restore(self, copy: sqlite3.Connection) -> None:
        """Replace the contents of the cloud by a copy."""
        with self.cloud.store._lock:
            copy.backup(self.cloud.store._db)

    # The engine

    def _create(self, stack: LoadedStack, resources: list[dict[str, Any]]) -> None:
        self._state, self._region, self._stack = resources, stack.spec.where.region, stack.name

        def program() -> None:
            from gpuinfra import GpuCluster

            GpuCluster(stack.spec.name, stack.spec)

        have_event_loop()
        settings.ROOT.set(None)
        monitor = _Monitor(self)
        mocks.set_mocks(_Unused(), project="gpuinfra", stack=stack.name, preview=False, monitor=monitor, organization="organization")  # fmt: skip
        settings.SETTINGS.rpc_manager.clear()  # pyright: ignore[reportAttributeAccessIssue]
        settings.SETTINGS.outputs.clear()  # pyright: ignore[reportAttributeAccessIssue]
        with patch.dict(os.environ, self.environment):
            sync_await._sync_await(run_pulumi_func(program))

    def provider(self, token: str) -> Any:
        """The provider of a type, which uses the region of the stack."""
        package = token.partition(":")[0]
        if package == "gpuinfra":
            return _Own()
        if (package, self._region) not in self._providers:
            server, port = serve(Provider(package, self.cloud))
            channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", -1)])
            stub = provider_pb2_grpc.ResourceProviderStub(channel)
            stub.Configure(
                provider_pb2.ConfigureRequest(args=wire.write({REGION[package]: self._region}), acceptSecrets=True)
            )
            self._closing += [lambda: server.stop(None), channel.close]
            self._providers[package, self._region] = stub
        return self._providers[package, self._region]

    def register(self, request: Any, urn: str) -> tuple[str, Any]:
        """Create a resource, and return its ID and its outputs."""
        entry = {
            "type": request.type,
            "urn": urn,
            "id": "",
            "custom": request.custom,
            "inputs": wire.plain(wire.read(request.object)),
            "outputs": {},
        }
        self._state.append(entry)
        if not request.custom:
            return "", request.object
        if request.type == STASH:
            given = entry["inputs"]["input"]
            entry |= {"id": request.name, "outputs": {"input": given, "output": given}}
            return request.name, wire.write(entry["outputs"])
        if request.type.startswith(("gpuinfra:", "pulumi:")) and request.type != upload.TYPE:
            entry |= {"id": request.name, "outputs": entry["inputs"]}
            return request.name, request.object
        stub = self.provider(request.type)
        # The engine sends a seed of its own for each resource, so that generated names differ between stacks.
        seed = f"{self._stack} {urn}".encode()
        checked = stub.Check(
            provider_pb2.CheckRequest(urn=urn, type=request.type, news=request.object, randomSeed=seed)
        )
        assert not checked.failures, (urn, [one.reason for one in checked.failures])
        create = provider_pb2.CreateRequest(urn=urn, properties=checked.inputs)
        try:
            made = stub.Create(create)
        except grpc.RpcError:
            if not request.hooks.on_error:
                raise
            made = stub.Create(create)  # The hook retries because a role assignment takes effect after minutes.
        outputs = wire.plain(wire.read(made.properties))
        entry |= {"id": made.id, "inputs": wire.plain(wire.read(checked.inputs)), "outputs": outputs}
        return made.id, made.properties

    def outputs(self, urn: str, values: dict[str, Any]) -> None:
        """Store the outputs of a component."""
        for one in self._state:
            if one["urn"] == urn:
                one["outputs"] = values


class _Monitor(mocks.MockMonitor):
    """Sends registrations and calls to the providers."""

    def __init__(self, deployed: Deployed) -> None:
        super().__init__(_Unused())
        self._deployed = deployed

    def RegisterResource(self, request: Any) -> Any:
        urn = self.make_urn(request.parent, request.type, request.name)
        if request.type == "pulumi:pulumi:Stack":
            return resource_pb2.RegisterResourceResponse(urn=urn)
        id_, outputs = self._deployed.register(request, urn)
        return resource_pb2.RegisterResourceResponse(urn=urn, id=id_, object=outputs)

    def RegisterResourceOutputs(self, request: Any) -> Any:
        self._deployed.outputs(request.urn, wire.plain(wire.read(request.outputs)))
        return super().RegisterResourceOutputs(request)

    def Invoke(self, request: Any) -> Any:
        if request.tok == OUTPUTS:  # The stack has not been deployed before.
            return resource_pb2.ResourceInvokeResponse(**{"return": wire.write({"outputs": {}})})
        answer = self._deployed.provider(request.tok).Invoke(provider_pb2.InvokeRequest(tok=request.tok, args=request.args))  # fmt: skip
        return resource_pb2.ResourceInvokeResponse(**{"return": getattr(answer, "return"), "failures": list(answer.failures)})  # fmt: skip


class _Own:
    """gpuinfra's own provider, without a server."""

    def __init__(self) -> None:
        self._provider = NodesReadyProvider("0")

    def __getattr__(self, name: str) -> Any:
        return lambda request: getattr(self._provider, name)(request, None)


class _Unused(mocks.Mocks):
    """Required by the SDK, which does not call it: the monitor answers every request."""

    def new_resource(self, args: Any) -> Any:
        raise NotImplementedError("the monitor answers every request")

    def call(self, args: Any) -> Any:
        raise NotImplementedError("the monitor answers every request")
