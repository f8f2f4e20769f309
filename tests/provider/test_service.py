"""The plugin behind a real gRPC connection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from gpuinfra.handover import wire
from gpuinfra.provider.schema import TYPE
from gpuinfra.provider.service import PackageProvider

URN = f"urn:pulumi:dev::trial::{wire.TYPE}::train-ready"


@pytest.fixture
def stub() -> Iterator[Any]:
    """A connection to the service."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(PackageProvider("1.2.3"), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield provider_pb2_grpc.ResourceProviderStub(channel)
    server.stop(0).wait()


def test_schema_is_served(stub: Any) -> None:
    """GetSchema returns the schema of the component in the version of the plugin."""
    schema = json.loads(stub.GetSchema(provider_pb2.GetSchemaRequest()).schema)
    assert schema["version"] == "1.2.3"
    assert schema["resources"][TYPE]["isComponent"] is True


def test_values_that_components_need_are_accepted(stub: Any) -> None:
    """The engine requires a plugin with components to accept secrets, and sends dependencies only to one that accepts outputs."""
    shaken = stub.Handshake(provider_pb2.ProviderHandshakeRequest(engine_address="127.0.0.1:1"))
    assert (shaken.accept_secrets, shaken.accept_outputs) == (True, True)
    configured = stub.Configure(provider_pb2.ConfigureRequest())
    assert (configured.acceptSecrets, configured.acceptOutputs) == (True, True)


def test_another_component_is_refused(stub: Any) -> None:
    """The error for an unknown type names the component of the package, and has no traceback."""
    stub.Handshake(provider_pb2.ProviderHandshakeRequest(engine_address="127.0.0.1:1"))
    request = provider_pb2.ConstructRequest(type="gpuinfra:index:Other", name="train", project="trial", stack="dev")
    with pytest.raises(grpc.RpcError) as caught:
        stub.Construct(request)
    assert caught.value.details() == f"gpuinfra:index:Other is not a component in gpuinfra; allowed: {TYPE}"


def test_secret_inputs_are_secret_outputs(stub: Any) -> None:
    """A preview reads the value of a secret input, and the output with the same name is a secret."""
    given = wire.to_struct(
        {"cloud": wire.UNKNOWN, "cluster": "train", "pools": [{"nodeRole": "r"}]}, frozenset({"cluster", "pools"})
    )
    assert wire.from_struct(given)["cluster"] == "train"
    request = provider_pb2.CreateRequest(urn=URN, properties=given, preview=True)
    found = stub.Create(request).properties
    assert wire.secrets_in(found) == {"cluster", "pools"}
    assert wire.from_struct(found)["pools"] == [{"nodeRole": "r"}]
