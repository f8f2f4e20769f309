"""The stack and its second region, which every part of a clone reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from gpuinfra.base.errors import UsageError
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.region.second_region import SecondRegion
from gpuinfra.plan.profile import CloudProfile, profile_of
from gpuinfra.region.clone import names
from gpuinfra.region.clone.draft import Draft, put_given, route_of
from gpuinfra.region.clone.model import CloneRequest
from gpuinfra.region.clone.names import Origin
from gpuinfra.spec.document import Route
from gpuinfra.spec.load import CLONE_OF, LoadedStack, stack_name
from gpuinfra.spec.messages import path_text
from gpuinfra.spec.model import ClusterSpec
from gpuinfra.spec.shown import shown


@dataclass(frozen=True, kw_only=True)
class RegionPair:
    """A stack, and the second region of a request."""

    stack: LoadedStack
    text: str
    """Content of the stack file."""
    request: CloneRequest
    today: date
    name: str
    """Name of the clone's stack."""
    output: Path
    """File of the clone. In `pilot-light` mode, the file with the nodes."""
    origin: Origin | None
    """Original of the stack, if the stack is a clone."""
    values: tuple[tuple[Route, object], ...]
    """Values of `--set`."""

    @property
    def spec(self) -> ClusterSpec:
        """Declaration of the stack."""
        return self.stack.spec

    @property
    def source(self) -> str:
        """Region of the stack."""
        return self.spec.where.region

    @property
    def target(self) -> str:
        """Region of the clone."""
        return self.request.region

    @property
    def cloud(self) -> str:
        """Cloud of the clone."""
        return self.spec.cloud if self.request.cloud is None else self.request.cloud

    @property
    def across(self) -> bool:
        """Whether the clone is on another cloud."""
        return self.cloud != self.spec.cloud

    @property
    def here(self) -> CloudProfile:
        """Profile of the cloud of the stack."""
        return profile_of(self.spec.cloud)

    @property
    def there(self) -> CloudProfile:
        """Profile of the cloud of the clone."""
        return profile_of(self.cloud)

    @property
    def own_facts(self) -> SecondRegion:
        """Facts of the cloud of the stack."""
        return facts_of(self.spec.cloud)

    @property
    def facts(self) -> SecondRegion:
        """Facts of the cloud of the clone."""
        return facts_of(self.cloud)

    def unused(self, section: str) -> list[str]:
        """Return the fields of a section that the cloud of the stack uses and the cloud of the clone does not."""
        fields = (field.rpartition(".") for field in self.here.own_fields - self.there.own_fields)
        return sorted(name for kind, _, name in fields if kind == section)

    def declaration(self) -> Any:
        """Return the declaration of the stack as plain values. Do not change it."""
        return self.stack.declaration

    def is_given(self, route: Route) -> bool:
        """Whether `--set` sets a value, a value in it, or a value that contains it."""
        return any(one[: len(route)] == route or one == route[: len(one)] for one, _ in self.values)

    def apply_given(self, draft: Draft) -> None:
        """Apply the values of `--set`. Raises `UsageError` if a value does not fit the clone."""
        for (text, _), (route, value) in zip(self.request.values, self.values, strict=True):
            put_given(draft, text, route, value)

    def final(self, draft: Draft, route: Route) -> object:
        """Return the value at a path of the clone after the values of `--set` are applied."""
        copied = Draft(draft.value)
        self.apply_given(copied)
        return copied.get(route)


def pair_of(stack: LoadedStack, text: str, request: CloneRequest, today: date, output: Path | None) -> RegionPair:
    """Return the pair of a valid request. `output` is the file of the clone, or None for one next to the stack file.

    Raises `UsageError` if the path in a `--set` value is invalid or is specified twice.
    """
    origin = names.origin_of(stack.config.get(CLONE_OF))
    name = names.stack_in(stack.name, stack.spec.where.region, request.region, origin)
    pair = RegionPair(
        stack=stack,
        text=text,
        request=request,
        today=today,
        name=stack_name(output) if output else name,
        output=output or names.file_of(stack.path, name),
        origin=origin,
        values=(),
    )
    declaration = pair.declaration()
    values = tuple((route_of(path, declaration), value) for path, value in request.values)
    routes = [route for route, _ in values]
    for number, route in enumerate(routes):
        if route in routes[:number]:
            raise UsageError(f"--set {shown(path_text(route))} is specified twice; specify it once")
    return replace(pair, values=values)


def facts_of(cloud: str) -> SecondRegion:
    """Return the facts of a cloud that `request_findings` accepts."""
    facts = cloud_of(cloud).second_region
    assert facts is not None
    return facts
