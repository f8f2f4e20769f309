"""Creates `GpuCluster` for programs in other languages.

The engine sends a Construct request to the plugin. Pulumi's SDK converts the request to the inputs and options of a resource, and this
module creates the same component that Python programs create. The resources therefore have the same URNs in every language.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pulumi
from pulumi.output import Unknown
from pulumi.provider import ConstructResult, Provider
from pulumi.provider.server import ProviderServicer

from gpuinfra.base.errors import GpuinfraError
from gpuinfra.base.registry import cloud_as
from gpuinfra.clouds.cloud import BuiltCloud
from gpuinfra.clouds.existing import ExistingBase
from gpuinfra.clouds.operation import EngineOperation, current_operation
from gpuinfra.cluster import GpuCluster
from gpuinfra.provider.schema import OUTPUTS, TYPE
from gpuinfra.spec import ClusterSpec
from gpuinfra.spec.messages import nearest
from gpuinfra.spec.shown import shown
from gpuinfra.stack import declared, parsed

INPUTS = ("spec", "existing")


class Components(Provider):
    """The components of the package."""

    def __init__(self, version: str) -> None:
        super().__init__(version)

    def construct(
        self, name: str, resource_type: str, inputs: Any, options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        """Create the component. Raises `RunError` for invalid inputs, which the engine shows without a traceback."""
        if resource_type != TYPE:
            raise pulumi.RunError(f"{resource_type} is not a component in gpuinfra; allowed: {TYPE}")
        if other := sorted(set(inputs) - set(INPUTS)):
            raise pulumi.RunError(f"{name} has the input {shown(other[0])}; allowed: {', '.join(INPUTS)}")
        spec = _declaration(name, inputs.get("spec"))
        try:
            cluster = GpuCluster(name, spec, options, existing=_existing(name, spec, inputs.get("existing")))
        except (GpuinfraError, ValueError) as problem:
            raise pulumi.RunError(f"{name}: {problem}") from None
        return ConstructResult(cluster.urn, {key: cluster.outputs[key] for key in OUTPUTS if key in cluster.outputs})


def _declaration(name: str, given: object) -> ClusterSpec:
    if given is None:
        return declared()
    if path := _unknown(given, "spec"):
        raise pulumi.RunError(
            f"{name}: {path} is a secret or an output of another resource, but the plan requires its value before any resource is created; "
            "write the value, or pass the resource in `existing`"
        )
    return parsed(_whole(given))


def _whole(value: object) -> object:
    """Return a value with integral numbers as int, because the engine sends all numbers as floating-point numbers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(one) for key, one in value.items()}
    return [_whole(one) for one in value] if isinstance(value, list) else value


def _unknown(value: object, path: str) -> str | None:
    """Return the path of the first value that is not plain, or None."""
    if isinstance(value, pulumi.Output | Unknown | pulumi.Resource):
        return path
    if isinstance(value, Mapping):
        paths = (_unknown(one, f"{path}.{key}") for key, one in value.items())
    elif isinstance(value, list):
        paths = (_unknown(one, f"{path}[{index}]") for index, one in enumerate(value))
    else:
        return None
    return next((one for one in paths if one), None)


def _existing(name: str, spec: ClusterSpec, given: object) -> ExistingBase | None:
    """Return the existing resources as the class of the cloud."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        what = "an output" if isinstance(given, pulumi.Output) else shown(given)
        raise pulumi.RunError(f"{name}: existing is {what}; allowed: a mapping whose values can be outputs")
    kind = cloud_as(spec.cloud, BuiltCloud).builder.existing_type
    allowed = [one.name for one in fields(kind)]
    for field in given:
        if field not in allowed:
            near = nearest(field, allowed)
            hint = f"did you mean {near}? " if near else ""
            raise pulumi.RunError(
                f"{name}: existing has {shown(field)}; {hint}allowed on {spec.cloud}: {', '.join(allowed)}"
            )
    return kind(**given)


class ComponentRefused(Exception):
    """The component cannot be created. The text is the reason."""


class Constructor:
    """Answers Construct requests in an event loop of its own, because the other requests of the plugin are answered in threads."""

    def __init__(self, version: str) -> None:
        self._components = Components(version)
        self._operations: dict[str, EngineOperation] = {}
        """By the address of the resource monitor, which is different in each operation."""
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="components", daemon=True).start()
        # The SDK of a cloud creates many objects that live until the plugin ends.
        gc.set_threshold(200_000)

    def construct(self, request: Any, engine: str) -> Any:
        """Create a component with the resource monitor in the request, and return the response. Raises `ComponentRefused`."""
        servicer = ProviderServicer(self._components, [], engine)
        context: Any = _Context()
        operation = self._operations.setdefault(request.monitorEndpoint, EngineOperation())

        async def create() -> Any:
            current_operation.set(operation)
            return await servicer.Construct(request, context)

        future = asyncio.run_coroutine_threadsafe(create(), self._loop)
        try:
            return future.result()
        except pulumi.RunError as problem:
            raise ComponentRefused(str(problem)) from None
        except Exception as problem:
            raise ComponentRefused(context.details or str(problem)) from problem


class _Context:
    """The part of a gRPC context that the SDK uses."""

    details = ""

    async def abort_with_status(self, status: Any) -> None:
        self.details = str(status.details)
