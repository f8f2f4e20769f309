"""A cloud without stand-in code of its own gets generic resources and no services."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from gpuinfra.base import registry as clouds
from gpuinfra_rehearsal.cloud.core import registry
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.http import Request
from gpuinfra_rehearsal.cloud.core.operator import Operator
from gpuinfra_rehearsal.cloud.core.sdk import NotDeclared, sdk
from gpuinfra_rehearsal.cloud.core.server import Server
from rehearsal.tests.cloud.conftest import Client

TOKEN = "skyward:compute/network:Network"
SDK = {
    "pulumi-plugin.json": '{"version": "1.2.3"}',
    "__init__.py": 'resource_modules="""\n[{"mod": "compute/network", "fqn": "pulumi_skyward.compute", "classes": '
    '{"skyward:compute/network:Network": "Network"}}]\n"""\n',
    "compute/__init__.py": "",
    "compute/network.py": '''
class NetworkArgs:
    @property
    @pulumi.getter
    def cidr(self) -> pulumi.Input[str]:
        """Addresses."""

    @property
    @pulumi.getter
    def zone(self) -> Optional[pulumi.Input[str]]:
        """Place."""


class Network(pulumi.CustomResource):
    @property
    @pulumi.getter
    def cidr(self) -> pulumi.Output[str]:
        """Addresses."""

    @property
    @pulumi.getter
    def zone(self) -> pulumi.Output[Optional[str]]:
        """Place."""

    @property
    @pulumi.getter(name="gatewayIp")
    def gateway_ip(self) -> pulumi.Output[str]:
        """Filled in by the cloud."""
''',
}


@pytest.fixture
def skyward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A fourth cloud in gpuinfra's table, with an SDK of one resource type."""
    for name, text in SDK.items():
        path = tmp_path / "sdk" / "pulumi_skyward" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "sdk"))
    monkeypatch.setitem(clouds.CLOUDS, "skyward", "gpuinfra.clouds")
    sdk.cache_clear()
    yield
    sys.modules.pop("pulumi_skyward", None)
    sdk.cache_clear()


@pytest.mark.usefixtures("skyward")
def test_resources_are_kept_and_given_ids(connect: Callable[[str], Client], cloud: Cloud) -> None:
    """A resource is created, read, replaced by its identity, changed in place and deleted."""
    client = connect("skyward")
    made = client.create(TOKEN, {"cidr": "10.0.0.0/16", "zone": "one"})
    assert made.id == "network-00000000000000001"
    assert set(made.outputs) == {"cidr", "zone", "gatewayIp"}
    assert client.read(TOKEN, made.id).outputs == made.outputs
    assert list(client.diff(made, {**made.inputs, "zone": "two"}).replaces) == ["zone"]
    changed = client.update(made, {"cidr": "10.1.0.0/16"})
    assert changed.outputs["cidr"] == "10.1.0.0/16"
    assert changed.outputs["gatewayIp"] == made.outputs["gatewayIp"]
    client.delete(changed)
    assert cloud.store.list(TOKEN) == []


def test_a_cloud_needs_no_sdk(connect: Callable[[str], Client], cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no SDK declares a cloud's types, every type takes any input and gives it back."""
    monkeypatch.setitem(clouds.CLOUDS, "prairie", "gpuinfra.clouds")
    assert "prairie" in [one.name for one in registry.installed()]
    client = connect("prairie")
    made = client.create("prairie:index:Group", {"count": 3, "zone": "one", "tags": {"a": "b"}})
    assert (made.id, made.outputs) == ("group-00000000000000001", {"count": 3, "zone": "one", "tags": {"a": "b"}})
    assert client.preview("prairie:index:Group", {"count": 3}) == {"count": 3}
    assert list(client.diff(made, {**made.inputs, "zone": "two", "count": 4}).replaces) == ["zone"]
    assert client.update(made, {"count": 4}).outputs["count"] == 4
    assert client.invoke("prairie:index:getImage", name="ubuntu") == {"name": "ubuntu"}


@pytest.mark.usefixtures("skyward")
def test_an_unknown_type_is_refused(connect: Callable[[str], Client]) -> None:
    """A type that the SDK does not declare is one clear error."""
    with pytest.raises(grpc.RpcError, match="unrecognized resource type"):
        connect("skyward").create("skyward:compute/disk:Disk", {})


@pytest.mark.usefixtures("skyward")
def test_it_has_no_services_and_no_permission_model(connect: Callable[[str], Client], cloud: Cloud) -> None:
    """Without hooks there are no HTTP services and no credentials, and least privilege is refused instead of ignored."""
    stand_in = registry.of_cloud("skyward")
    assert (stand_in.package, dict(stand_in.services(cloud)), stand_in.operator_credentials(cloud)) == (
        "skyward",
        {},
        {},
    )
    cloud.operator = Operator([])
    with pytest.raises(grpc.RpcError, match="the stand-in for skyward has no permission model"):
        connect("skyward").create(TOKEN, {"cidr": "10.0.0.0/16"})


def test_a_package_of_no_cloud_is_refused() -> None:
    """The message names the packages that can be rehearsed."""
    with pytest.raises(
        NotDeclared, match="the Pulumi package random cannot be rehearsed; allowed: aws, azure-native, gcp"
    ):
        registry.of_package("random")


def test_a_path_without_a_service_is_refused(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no installed cloud answers a path, the server says so with 404."""
    monkeypatch.setattr(registry, "installed", lambda: ())
    server = Server(cloud, "token")
    answer = server.route(Request("GET", "/bucket/key", "", {}, b""))
    server.server_close()
    assert (answer.status, answer.body) == (404, b"no service of a stand-in cloud serves /bucket/key\n")
