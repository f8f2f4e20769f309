"""What gpuinfra can do on Google Cloud. `gpuinfra.clouds.cloud` describes each capability."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    from gpuinfra.handover.connect import CloudHandover
    from gpuinfra.plan.model import Plan
    from gpuinfra.plan.planned import ResourceKind, RetainedResource
    from gpuinfra.plan.profile import CloudProfile
    from gpuinfra.spec.rule import Rule


class GcpCloud(BuiltCloud):
    """Google Cloud."""

    @property
    def profile(self) -> CloudProfile:
        from gpuinfra.clouds.gcp.profile import PROFILE

        return PROFILE

    @property
    def rules(self) -> tuple[Rule, ...]:
        from gpuinfra.clouds.gcp.rules import RULES

        return RULES

    @property
    def builder(self) -> type[ClusterBuilder[Any, Any]]:
        from gpuinfra.clouds.gcp.components.cluster import Builder

        return Builder

    # Resources of a plan

    @property
    def resource_kinds(self) -> tuple[ResourceKind[Any], ...]:
        from gpuinfra.clouds.gcp.resources import RESOURCES

        return RESOURCES

    @property
    def timing(self) -> Timing:
        from gpuinfra.clouds.gcp.timing import TIMING

        return TIMING

    @property
    def public_prices(self) -> PublicPrices:
        from gpuinfra.clouds.gcp import public_prices

        return public_prices

    def connections(self, plan: Plan) -> Iterable[Traffic]:
        from gpuinfra.clouds.gcp.connections import connections

        return connections(plan)

    def permissions(self, plan: Plan, *, read_only: bool = False) -> Permissions:
        from gpuinfra.clouds.gcp.permissions import permissions

        return permissions(plan, read_only=read_only)

    # Verified nodes

    @property
    def handover(self) -> CloudHandover:
        from gpuinfra.clouds.gcp.handover import ports

        return ports

    # Commands for operators

    @property
    def preflight(self) -> CloudPreflight:
        from gpuinfra.clouds.gcp import preflight

        return preflight

    @property
    def tunnel(self) -> Tunnel:
        from gpuinfra.clouds.gcp import tunnel

        return tunnel

    @property
    def vendor(self) -> Vendor:
        from gpuinfra.clouds.gcp import vendor

        return vendor

    def retained(
        self, plan: Plan, token: str, settings: Mapping[str, object], profile: str | None
    ) -> Sequence[RetainedResource[Any]]:
        from gpuinfra.clouds.gcp.adopt import look

        return look(plan, token, settings, profile)

    def pending(self, stack: StackIdentity, settings: Mapping[str, object]) -> PendingLookup:
        from gpuinfra.clouds.gcp.pending import lookup

        return lookup(stack, settings)

    # A second region

    @property
    def second_region(self) -> SecondRegion:
        from gpuinfra.clouds.gcp.region.second_region import SECOND_REGION

        return SECOND_REGION

    @property
    def dns(self) -> CloudDns:
        from gpuinfra.clouds.gcp.region import dns

        return dns

    def record(self, place: str, second: str, config: Mapping[str, object], key: str = KEY) -> RecordStore:
        from gpuinfra.clouds.gcp.region.record import connect

        return connect(place, second, config, key)

    def report_ready(
        self, place: str, second: str, config: Mapping[str, object], resources: Iterable[Mapping[str, Any]]
    ) -> None:
        from gpuinfra.clouds.gcp.region.record import report_ready

        report_ready(place, resources)

    def readiness(self, question: ReadinessQuestion) -> Iterable[ReadinessLine]:
        from gpuinfra.clouds.gcp.region.readiness import look

        return look(question)

    def checkpoints(
        self, region: str, second: str, config: Mapping[str, object], resources: Iterable[Mapping[str, Any]]
    ) -> tuple[CheckpointPair, ...]:
        from gpuinfra.clouds.gcp.region.checkpoints import connect

        return connect(region, second, config, resources)

    def exports(self, region: str, config: Mapping[str, object]) -> Exports:
        from gpuinfra.clouds.gcp.region.exports import connect

        return connect(region, config)

    def failover(self, region: str, second: str, config: Mapping[str, object]) -> Failover:
        from gpuinfra.clouds.gcp.region.failover import connect

        return connect(region, second, config)

    def failback(self, region: str, second: str, config: Mapping[str, object]) -> Failback:
        from gpuinfra.clouds.gcp.region.failback import connect

        return connect(region, second, config)


CLOUD = GcpCloud()
