"""A stand-in cloud in this process, and a client that speaks to it as Pulumi's engine does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.provider import Provider, serve


@dataclass
class Made:
    """A resource as the engine remembers it."""

    token: str
    urn: str
    id: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]


class Client:
    """What the engine does, call by call."""

    def __init__(self, stub: provider_pb2_grpc.ResourceProviderStub) -> None:
        self.stub = stub

    @staticmethod
    def urn(token: str, name: str) -> str:
        return f"urn:pulumi:stack::project::{token}::{name}"

    def configure(self, **settings: Any) -> None:
        self.stub.Configure(provider_pb2.ConfigureRequest(args=wire.write(settings), acceptSecrets=True))

    def check(self, token: str, inputs: dict[str, Any], name: str = "it", olds: dict[str, Any] | None = None) -> Any:
        return self.stub.Check(
            provider_pb2.CheckRequest(
                urn=self.urn(token, name), news=wire.write(inputs), olds=wire.write(olds or {}), randomSeed=b"seed"
            )
        )

    def failures(self, token: str, inputs: dict[str, Any]) -> list[str]:
        return [failure.reason for failure in self.check(token, inputs).failures]

    def create(self, token: str, inputs: dict[str, Any], name: str = "it") -> Made:
        checked = self.check(token, inputs, name)
        assert not checked.failures, [failure.reason for failure in checked.failures]
        answer = self.stub.Create(provider_pb2.CreateRequest(urn=self.urn(token, name), properties=checked.inputs))
        return Made(token, self.urn(token, name), answer.id, wire.read(checked.inputs), wire.read(answer.properties))

    def preview(self, token: str, inputs: dict[str, Any]) -> dict[str, Any]:
        checked = self.check(token, inputs)
        answer = self.stub.Create(
            provider_pb2.CreateRequest(urn=self.urn(token, "it"), properties=checked.inputs, preview=True)
        )
        return wire.read(answer.properties)

    def diff(self, made: Made, news: dict[str, Any]) -> Any:
        return self.stub.Diff(
            provider_pb2.DiffRequest(
                id=made.id,
                urn=made.urn,
                olds=wire.write(made.outputs),
                old_inputs=wire.write(made.inputs),
                news=wire.write(news),
            )
        )

    def update(self, made: Made, change: dict[str, Any]) -> Made:
        name = made.urn.rsplit("::", 1)[1]
        news = self.check(made.token, {**made.inputs, **change}, name, made.inputs).inputs
        answer = self.stub.Update(
            provider_pb2.UpdateRequest(
                id=made.id, urn=made.urn, olds=wire.write(made.outputs), old_inputs=wire.write(made.inputs), news=news
            )
        )
        return Made(made.token, made.urn, made.id, wire.read(news), wire.read(answer.properties))

    def read(self, token: str, id: str) -> Made:
        answer = self.stub.Read(provider_pb2.ReadRequest(id=id, urn=self.urn(token, "it")))
        return Made(token, self.urn(token, "it"), answer.id, wire.read(answer.inputs), wire.read(answer.properties))

    def delete(self, made: Made) -> None:
        self.stub.Delete(provider_pb2.DeleteRequest(id=made.id, urn=made.urn, properties=wire.write(made.outputs)))

    def invoke(self, token: str, **args: Any) -> dict[str, Any]:
        answer = self.stub.Invoke(provider_pb2.InvokeRequest(tok=token, args=wire.write(args)))
        assert not answer.failures, [failure.reason for failure in answer.failures]
        return wire.read(getattr(answer, "return"))


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """An empty cloud."""
    cloud = Cloud(tmp_path / "rehearsal")
    yield cloud
    cloud.close()


@pytest.fixture
def connect(cloud: Cloud) -> Iterator[Callable[[str], Client]]:
    """Connects to the provider of a package."""
    servers, channels = [], []

    def to(package: str) -> Client:
        server, port = serve(Provider(package, cloud))
        servers.append(server)
        channels.append(grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", -1)]))
        return Client(provider_pb2_grpc.ResourceProviderStub(channels[-1]))

    yield to
    for channel in channels:
        channel.close()
    for server in servers:
        server.stop(None)


@pytest.fixture
def aws(connect: Callable[[str], Client]) -> Client:
    """The AWS provider."""
    return connect("aws")


@pytest.fixture
def azure(connect: Callable[[str], Client]) -> Client:
    """The Azure provider."""
    return connect("azure-native")


@pytest.fixture
def gcp(connect: Callable[[str], Client]) -> Client:
    """The Google Cloud provider."""
    return connect("gcp")
