"""What gpuinfra can do on Azure. `gpuinfra.clouds.cloud` describes each capability."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from gpuinfra.clouds.cloud import BuiltCloud
from gpuinfra.clouds.region.active import KEY

if TYPE_CHECKING:
    from gpuinfra.catalog.public import PublicPrices
    from gpuinfra.clouds.build import ClusterBuilder
    from gpuinfra.clouds.connections import Traffic
    from gpuinfra.clouds.login import Tunnel
    from gpuinfra.clouds.pending import PendingLookup, StackIdentity
    from gpuinfra.clouds.permissions import Permissions
    from gpuinfra.clouds.preflight import CloudPreflight
    from gpuinfra.clouds.region.active import RecordStore
    from gpuinfra.clouds.region.checkpoints import CheckpointPair
    from gpuinfra.clouds.region.dns import CloudDns
    from gpuinfra.clouds.region.exports import Exports
    from gpuinfra.clouds.region.failover import Failback, Failover
    from gpuinfra.clouds.region.readiness import ReadinessLine, ReadinessQuestion
    from gpuinfra.clouds.region.second_region import SecondRegion
    from gpuinfra.clouds.timing import Timing
    from gpuinfra.clouds.vendor import Vendor
    from gpuinfra.handover.connect import CloudHandover, ServedFunction, ServedResource
    from gpuinfra.plan.model import Plan
    from gpuinfra.plan.planned import ResourceKind, RetainedResource
    from gpuinfra.plan.profile import CloudProfile
    from gpuinfra.spec.rule import Rule


class AzureCloud(BuiltCloud):
    """Azure."""

    @property
    def profile(self) -> CloudProfile:
        from gpuinfra.clouds.azure.profile import PROFILE

        return PROFILE

    @property
    def rules(self) -> tuple[Rule, ...]:
        from gpuinfra.clouds.azure.rules import RULES

        return RULES

    @property
    def builder(self) -> type[ClusterBuilder[Any, Any]]:
        from gpuinfra.clouds.azure.components.cluster import Builder

        return Builder

    # Resources of a plan

    @property
    def resource_kinds(self) -> tuple[ResourceKind[Any], ...]:
        from gpuinfra.clouds.azure.resources import RESOURCES

        return RESOURCES

    @property
    def timing(self) -> Timing:
        from gpuinfra.clouds.azure.timing import TIMING

        return TIMING

    @property
    def public_prices(self) -> PublicPrices:
        from gpuinfra.clouds.azure import public_prices

        return public_prices

    def connections(self, plan: Plan) -> Iterable[Traffic]:
        from gpuinfra.clouds.azure.connections import connections

        return connections(plan)

    def permissions(self, plan: Plan, *, read_only: bool = False) -> Permissions:
        from gpuinfra.clouds.azure.permissions import permissions

        return permissions(plan, read_only=read_only)

    # Verified nodes

    @property
    def handover(self) -> CloudHandover:
        from gpuinfra.clouds.azure.handover import ports

        return ports

    @property
    def served_resources(self) -> tuple[ServedResource, ...]:
        from gpuinfra.clouds.azure.handover import upload

        return (upload,)

    @property
    def served_functions(self) -> tuple[ServedFunction, ...]:
        from gpuinfra.clouds.azure.handover import images

        return (images,)

    # Commands for operators

    @property
    def preflight(self) -> CloudPreflight:
        from gpuinfra.clouds.azure import preflight

        return preflight

    @property
    def tunnel(self) -> Tunnel:
        from gpuinfra.clouds.azure import tunnel

        return tunnel

    @property
    def vendor(self) -> Vendor:
        from gpuinfra.clouds.azure import vendor

        return vendor

    def grafana_token(self, host: str, settings: Mapping[str, object]) -> AbstractContextManager[str] | None:
        from gpuinfra.clouds.azure.grafana import token

        return token(host)

    def retained(
        self, plan: Plan, token: str, settings: Mapping[str, object], profile: str | None
    ) -> Sequence[RetainedResource[Any]]:
        from gpuinfra.clouds.azure.adopt import look

        return look(plan, token, settings, profile)

    def pending(self, stack: StackIdentity, settings: Mapping[str, object]) -> PendingLookup:
        from gpuinfra.clouds.azure.pending import lookup

        return lookup(stack, settings)

    # A second region

    @property
    def second_region(self) -> SecondRegion:
        from gpuinfra.clouds.azure.region.second_region import SECOND_REGION

        return SECOND_REGION

    @property
    def dns(self) -> CloudDns:
        from gpuinfra.clouds.azure.region import dns

        return dns

    def record(self, place: str, second: str, config: Mapping[str, object], key: str = KEY) -> RecordStore:
        from gpuinfra.clouds.azure.region.record import connect

        return connect(place, second, config, key)

    def readiness(self, question: ReadinessQuestion) -> Iterable[ReadinessLine]:
        from gpuinfra.clouds.azure.region.readiness import look

        return look(question)

    def checkpoints(
        self, region: str, second: str, config: Mapping[str, object], resources: Iterable[Mapping[str, Any]]
    ) -> tuple[CheckpointPair, ...]:
        from gpuinfra.clouds.azure.region.checkpoints import connect

        return connect(region, second, config, resources)

    def exports(self, region: str, config: Mapping[str, object]) -> Exports:
        from gpuinfra.clouds.azure.region.exports import connect

        return connect(region, config)

    def failover(self, region: str, second: str, config: Mapping[str, object]) -> Failover:
        from gpuinfra.clouds.azure.region.failover import connect

        return connect(region, second, config)

    def failback(self, region: str, second: str, config: Mapping[str, object]) -> Failback:
        from gpuinfra.clouds.azure.region.failback import connect

        return connect(region, second, config)


CLOUD = AzureCloud()
