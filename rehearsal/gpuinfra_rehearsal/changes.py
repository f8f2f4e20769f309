"""Computes the effect of a declaration change on each resource, without the Pulumi engine.

The program of the old declaration runs against the stand-in cloud, which creates its resources in memory. The program of the new
declaration then runs as a preview: for each resource, the provider of the stand-in cloud compares the inputs, as in a rehearsal. The
outputs of a new or replaced resource are unknown, so the resources that use them change too.

This module runs only `GpuCluster`. The engine runs the whole program of a stack and compares it with the state of the deployed stack,
which can differ from the old declaration. Read next: `cloud/core/replace.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

from pulumi.runtime import mocks, settings
from pulumi.runtime.proto import provider_pb2, resource_pb2

from gpuinfra.base.day import VARIABLE
from gpuinfra.base.stack_files import stack_name
from gpuinfra.clouds.azure.handover import upload
from gpuinfra.clouds.saved import OUTPUTS
from gpuinfra.cluster import GpuCluster
from gpuinfra.engine.refresh import value_at
from gpuinfra.handover.provider import changes as own_changes
from gpuinfra.plan.planned import is_counted
from gpuinfra.report.plan_diff import (
    ACTIONS,
    ADDED,
    CHANGED,
    REMOVED,
    REPLACED,
    RETAINED,
    PropertyChange,
    ResourceChange,
    Uncomparable,
)
from gpuinfra.spec.load import LoadedStack, read_stack
from gpuinfra_rehearsal.cloud.core import behaviors, registry, wire
from gpuinfra_rehearsal.cloud.core.cloud import Cloud
from gpuinfra_rehearsal.cloud.core.diff import diff
from gpuinfra_rehearsal.cloud.core.provider import Provider

OWN = "gpuinfra"
"""The package of gpuinfra's own provider."""
ATTEMPTS = 4
"""Attempts to create a resource. The stand-in cloud rejects the first use of a new role, as clouds do, and the components retry."""
MASKED = "[secret]"
LATER = "known after the deployment"


def resource_changes(old: LoadedStack, new: LoadedStack, day: date | None = None) -> tuple[ResourceChange, ...]:
    """Return what a deployment of `new` does to the resources of `old`, sorted by action and name.

    Neither declaration may have findings of level `error`. `day` is the date of both plans; the default is today. If a declaration
    uses the outputs of another stack, that stack's file must be in the folder of `old` or `new`. Raises `Uncomparable` if the file is missing or
    if a cloud's packages are not installed.
    """
    from gpuinfra.clouds import why_not_built, why_not_here

    for stack in (old, new):
        if why := why_not_built(stack.spec.cloud) or why_not_here(stack.spec.cloud):
            raise Uncomparable(why)
    with tempfile.TemporaryDirectory(prefix="gpuinfra-changes-") as folder, _day(day):
        engine = _Engine(Path(folder))
        try:
            for below in _below(old, new):
                engine.run(below, preview=False)
            before = engine.run(old, stack=new.name, preview=False)
            after = engine.run(new, stack=new.name, preview=True, before=before)
        finally:
            engine.close()
    changes = [*_compared(before, after)]
    return tuple(sorted(changes, key=lambda one: (ACTIONS.index(one.action), one.type, one.name)))


@contextlib.contextmanager
def _day(day: date | None) -> Iterator[None]:
    """Set the date that `GpuCluster` uses."""
    day_before = os.environ.get(VARIABLE)
    if day is not None:
        os.environ[VARIABLE] = day.isoformat()
    try:
        yield
    finally:
        if day is not None:
            os.environ.pop(VARIABLE) if day_before is None else os.environ.update({VARIABLE: day_before})


def _below(*stacks: LoadedStack) -> list[LoadedStack]:
    """Return the stacks whose outputs these stacks read, lowest layer first. Each file is read from the folder of the first stack that has it."""
    by_reference: dict[str, LoadedStack] = {}

    def add(stack: LoadedStack) -> None:
        for reference in (stack.spec.use.foundation, stack.spec.use.site):
            if reference is None or reference in by_reference:
                continue
            name = f"Pulumi.{reference.rsplit('/', 1)[-1]}.yaml"
            path = next((file for one in stacks if (file := one.path.with_name(name)).is_file()), None)
            if path is None:
                raise Uncomparable(
                    f"{stack.path.name} uses the outputs of {reference}, and {name} is not in the same folder"
                )
            below = read_stack(path)
            add(below)
            by_reference[reference] = below

    for stack in stacks:
        add(stack)
    return [*by_reference.values()]


@dataclass
class _Resource:
    type: str
    name: str
    custom: bool
    retained: bool
    id: str
    inputs: dict[str, Any]
    """Checked inputs."""
    outputs: dict[str, Any]
    properties: tuple[PropertyChange, ...] = ()
    replaced: bool = False


@dataclass
class _Run:
    resources: dict[tuple[str, str], _Resource] = field(default_factory=dict)
    """Keyed by type and logical name."""
    exports: dict[str, Any] = field(default_factory=dict)
    """Outputs of `GpuCluster`."""


class _Context:
    """The part of the gRPC context that the providers use. The peer is the provider resource."""

    def __init__(self, peer: str) -> None:
        self._peer = peer

    def peer(self) -> str:
        return self._peer

    def abort(self, code: Any, details: str) -> NoReturn:
        raise Uncomparable(f"the stand-in cloud rejects the declaration: {details}")

    def set_trailing_metadata(self, values: Any) -> None:
        """The error details that `abort` reports."""


class _Engine:
    """Runs programs against the stand-in cloud."""

    def __init__(self, folder: Path) -> None:
        self.cloud = Cloud(folder)
        self.providers: dict[str, Provider] = {}
        self.stacks: dict[str, dict[str, Any]] = {}
        """Outputs of the stacks that ran, keyed by stack reference without organization and project."""

    def close(self) -> None:
        self.cloud.close()

    def run(self, loaded: LoadedStack, *, preview: bool, stack: str = "", before: _Run | None = None) -> _Run:
        """Run `GpuCluster` of a declaration. With `before`, each resource is compared with the resource of the same type and name."""
        made = _Run()
        monitor = _Monitor(self, made, before or _Run(), preview=preview)
        for package in {one.package for one in registry.installed()}:
            prefix = f"{package}:"
            given = {k.removeprefix(prefix): v for k, v in loaded.config.items() if k.startswith(prefix)}
            self.configure(package, "", {key: value for key, value in given.items() if isinstance(value, str)})
        _run(lambda: _create(loaded), monitor, stack or loaded.name, preview=preview)
        self.stacks[stack_name(loaded.path)] = made.exports
        return made

    def provider(self, package: str) -> Any:
        """Return the provider for a package."""
        if package not in self.providers:
            self.providers[package] = Provider(package, self.cloud)
        return self.providers[package]

    def configure(self, package: str, peer: str, values: Mapping[str, Any]) -> None:
        """Configure a provider resource, or the default provider if `peer` is empty."""
        request = provider_pb2.ConfigureRequest(args=wire.write(dict(values)))
        self.provider(package).Configure(request, _Context(peer))


class _Monitor(mocks.MockMonitor):
    """The engine's side of the protocol. It receives the values as the SDK sends them, because `Mocks` receive neither unknown values nor options."""

    def __init__(self, engine: _Engine, made: _Run, before: _Run, *, preview: bool) -> None:
        super().__init__(_NoMocks())
        self._engine, self._made, self._before, self._preview = engine, made, before, preview

    def Invoke(self, request: Any) -> Any:
        package = request.tok.partition(":")[0]
        if package == OWN:
            answer = {"version": "1.0.0"}
            return resource_pb2.ResourceInvokeResponse(**{"return": wire.write(answer)})  # pyright: ignore[reportArgumentType]
        if request.tok == OUTPUTS:
            # The stack that the plan compares with is not deployed, so nothing is saved.
            return resource_pb2.ResourceInvokeResponse(**{"return": wire.write({"outputs": {}})})  # pyright: ignore[reportArgumentType]
        asked = provider_pb2.InvokeRequest(tok=request.tok, args=request.args)
        done = self._engine.provider(package).Invoke(asked, _Context(_peer(request.provider)))
        return resource_pb2.ResourceInvokeResponse(**{"return": getattr(done, "return"), "failures": done.failures})

    def ReadResource(self, request: Any) -> Any:
        urn = self.make_urn(request.parent, request.type, request.name)
        if request.type != "pulumi:pulumi:StackReference":
            raise Uncomparable(f"the program reads {request.type} {request.name}, which is not in the stand-in cloud")
        outputs = self._reference(request.id)
        return resource_pb2.ReadResourceResponse(urn=urn, properties=wire.write(outputs))

    def _reference(self, name: str) -> dict[str, Any]:
        return {"name": name, "outputs": self._engine.stacks[name.rsplit("/", 1)[-1]], "secretOutputNames": []}

    def RegisterResource(self, request: Any) -> Any:
        urn = self.make_urn(request.parent, request.type, request.name)
        given = wire.read(request.object)
        if request.type == "pulumi:pulumi:Stack":
            return resource_pb2.RegisterResourceResponse(urn=urn)
        if request.type == "pulumi:pulumi:StackReference":
            id_, outputs = request.name, self._reference(request.name)
        elif request.type.startswith("pulumi:providers:"):
            self._engine.configure(request.type.rsplit(":", 1)[-1], urn, wire.plain(given))
            id_, outputs = request.name, given
        elif request.type.startswith("pulumi:"):
            id_, outputs = request.name, {**given, "output": given.get("input")}
        elif request.custom:
            id_, outputs = self._custom(request, urn, given)
        else:
            id_, outputs = "", {}
        return resource_pb2.RegisterResourceResponse(urn=urn, id=id_, object=wire.write(outputs))

    def RegisterResourceOutputs(self, request: Any) -> Any:
        if request.urn.split("::")[2].rsplit("$", 1)[-1] == "gpuinfra:index:GpuCluster":
            self._made.exports = wire.read(request.outputs)
        return super().RegisterResourceOutputs(request)

    def _custom(self, request: Any, urn: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Create the resource, or compare it with the resource of the same type and name."""
        package = request.type.partition(":")[0]
        old = self._before.resources.get((request.type, request.name))
        inputs = self._checked(package, request, urn, given, old)
        resource = _Resource(
            type=request.type, name=request.name, custom=True, retained=request.retainOnDelete, id="", inputs=inputs, outputs={}
        )  # fmt: skip
        if old is not None:
            resource.properties = self._differences(package, request, old, inputs)
            resource.replaced = any(change.replaces for change in resource.properties)
        if old is None or resource.replaced:
            resource.id, resource.outputs = self._created(package, request, urn, inputs)
        elif resource.properties:
            resource.id, resource.outputs = old.id, self._updated(package, request, urn, old, inputs)
        else:
            resource.id, resource.outputs = old.id, old.outputs
        self._made.resources[resource.type, resource.name] = resource
        return resource.id, resource.outputs

    def _checked(
        self, package: str, request: Any, urn: str, given: dict[str, Any], old: _Resource | None
    ) -> dict[str, Any]:
        if package == OWN:
            return given
        asked = provider_pb2.CheckRequest(
            urn=urn, olds=wire.write(old.inputs if old else {}), news=wire.write(given), randomSeed=urn.encode()
        )
        done = self._engine.provider(package).Check(asked, _Context(_peer(request.provider)))
        if done.failures:
            raise Uncomparable(f"the provider rejects {request.type} {request.name}: {done.failures[0].reason}")
        return wire.read(done.inputs)

    def _differences(
        self, package: str, request: Any, old: _Resource, inputs: dict[str, Any]
    ) -> tuple[PropertyChange, ...]:
        fixed = tuple(request.replaceOnChanges)
        if request.type == upload.TYPE:
            changed = [(path, True) for path in upload.changes(old.inputs, inputs)]
        elif package == OWN:
            changed = [(path, False) for path in own_changes({"ready": True}, old.inputs, inputs)]
        else:
            ignored = (*behaviors.of(request.type).ignored, *request.ignoreChanges)
            changes = diff(request.type, old.inputs, inputs, ignored)
            changed = [(one.path, one.replace) for one in changes]
        return tuple(
            PropertyChange(
                path=path,
                old=_shown(old.inputs, path),
                new=_shown(inputs, path),
                replaces=replaces or "*" in fixed or path.split(".")[0].split("[")[0] in fixed,
            )
            for path, replaces in changed
        )

    def _created(self, package: str, request: Any, urn: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if package == OWN:
            address = f"{wire.plain(inputs.get('container'))}/{inputs.get('blob')}"
            return ("" if self._preview else request.name), inputs if self._preview else {**inputs, "url": address}
        asked = provider_pb2.CreateRequest(urn=urn, properties=wire.write(inputs), preview=self._preview)
        provider, context = self._engine.provider(package), _Context(_peer(request.provider))
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(Uncomparable):
                done = provider.Create(asked, context)
                break
        else:
            done = provider.Create(asked, context)
        return done.id, wire.read(done.properties)

    def _updated(self, package: str, request: Any, urn: str, old: _Resource, inputs: dict[str, Any]) -> dict[str, Any]:
        if package == OWN:
            return inputs
        asked = provider_pb2.UpdateRequest(
            id=old.id, urn=urn, olds=wire.write(old.outputs), news=wire.write(inputs), preview=True
        )
        return wire.read(self._engine.provider(package).Update(asked, _Context(_peer(request.provider))).properties)


class _NoMocks(mocks.Mocks):
    """Required by the SDK, which does not call it: `_Monitor` handles every request."""

    def new_resource(self, args: Any) -> tuple[str | None, dict[str, Any]]:
        raise NotImplementedError("`_Monitor` handles every request")

    def call(self, args: Any) -> Any:
        raise NotImplementedError("`_Monitor` handles every request")


def _create(loaded: LoadedStack) -> None:
    GpuCluster(loaded.spec.name, loaded.spec)


def _run(program: Callable[[], None], monitor: _Monitor, stack: str, *, preview: bool) -> None:
    """Run a program against the monitor."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    settings.ROOT.set(None)  # Otherwise the root of an earlier program is the parent of the resources.
    silent = logging.Logger("gpuinfra_rehearsal.changes", level=logging.CRITICAL)  # The findings are shown elsewhere.
    mocks.set_mocks(
        _NoMocks(), project="gpuinfra", stack=stack, preview=preview, monitor=monitor, logger=silent, organization="organization"
    )  # fmt: skip
    try:
        mocks.test(program)()
    finally:
        loop.close()
        asyncio.set_event_loop(None)


def _peer(provider: str) -> str:
    """Return the URN of a provider reference, which is `URN::ID`, or an empty string for the default provider."""
    return provider.rpartition("::")[0]


def _compared(before: _Run, after: _Run) -> Iterator[ResourceChange]:
    for key in sorted({*before.resources, *after.resources}):
        old, new = before.resources.get(key), after.resources.get(key)
        type_, name = key
        if not is_counted(type_, True):
            continue
        if new is None:
            assert old is not None
            yield ResourceChange(action=RETAINED if old.retained else REMOVED, type=type_, name=name)
        elif old is None:
            yield ResourceChange(action=ADDED, type=type_, name=name)
        elif new.properties:
            action = REPLACED if new.replaced else CHANGED
            yield ResourceChange(action=action, type=type_, name=name, properties=new.properties)


def _shown(values: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path for a report. Secrets are masked, and files are shown by their checksum."""
    return value_at(_readable(values), path)


def _readable(value: Any) -> Any:
    if wire.is_secret(value):
        return MASKED
    value = wire.peel(value)
    if wire.is_unknown(value):
        return LATER
    if wire.is_asset(value):
        return f"file with SHA-256 {wire.asset_hash(value)[:12]}"
    if isinstance(value, Mapping):
        return {key: _readable(item) for key, item in value.items() if not key.startswith("__")}
    return [_readable(item) for item in value] if isinstance(value, list) else value
