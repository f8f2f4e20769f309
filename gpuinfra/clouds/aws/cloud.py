"""What gpuinfra can do on AWS. `gpuinfra.clouds.cloud` describes each capability."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from gpuinfra.clouds.cloud import BuiltCloud
from gpuinfra.clouds.region.active import KEY

if TYPE_CHECKING:
    from gpuinfra.catalog.public import PublicPrices
    from gpuinfra.clouds.build import ClusterBuilder
    from gpuinfra.clouds.connections import Traffic
    from gpuinfra.clouds.login import Tunnel
    from gpuinfra.clouds.logs import LogLine, LogQuestion
    from gpuinfra.clouds.offerings import Search
    from gpuinfra.clouds.pending import PendingLookup, StackIdentity
    from gpuinfra.clouds.permissions import Permissions
    from gpuinfra.clouds.preflight import CloudPreflight
    from gpuinfra.clouds.region.active import RecordStore
    from gpuinfra.clouds.region.checkpoints import CheckpointPair
    from gpuinfra.clouds.region.dns import CloudDns
    from gpuinfra.clouds.region.drill import DrillCopies
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


class AwsCloud(BuiltCloud):
    """AWS."""

    @property
    def profile(self) -> CloudProfile:
        from gpuinfra.clouds.aws.profile import PROFILE

        return PROFILE

    @property
    def rules(self) -> tuple[Rule, ...]:
        from gpuinfra.clouds.aws.rules import RULES

        return RULES

    @property
    def builder(self) -> type[ClusterBuilder[Any, Any]]:
        from gpuinfra.clouds.aws.components.cluster import Builder

        return Builder

    # Resources of a plan

    @property
    def resource_kinds(self) -> tuple[ResourceKind[Any], ...]:
        from gpuinfra.clouds.aws.resources import RESOURCES

        return RESOURCES

    @property
    def timing(self) -> Timing:
        from gpuinfra.clouds.aws.timing import TIMING

        return TIMING

    @property
    def public_prices(self) -> PublicPrices:
        from gpuinfra.clouds.aws import public_prices

        return public_prices

    def connections(self, plan: Plan) -> Iterable[Traffic]:
        from gpuinfra.clouds.aws.connections import connections

        return connections(plan)

    def permissions(self, plan: Plan, *, read_only: bool = False) -> Permissions:
        from gpuinfra.clouds.aws.permissions import permissions

        return permissions(plan, read_only=read_only)

    # Verified nodes

    @property
    def handover(self) -> CloudHandover:
        from gpuinfra.clouds.aws.handover import ports

        return ports

    # Commands for operators

    @property
    def preflight(self) -> CloudPreflight:
        from gpuinfra.clouds.aws import preflight

        return preflight

    @property
    def tunnel(self) -> Tunnel:
        from gpuinfra.clouds.aws import tunnel

        return tunnel

    @property
    def vendor(self) -> Vendor:
        from gpuinfra.clouds.aws import vendor

        return vendor

    def grafana_token(self, host: str, settings: Mapping[str, object]) -> AbstractContextManager[str] | None:
        from gpuinfra.clouds.aws.grafana import token

        return token(host, settings)

    def retained(
        self, plan: Plan, token: str, settings: Mapping[str, object], profile: str | None
    ) -> Sequence[RetainedResource[Any]]:
        from gpuinfra.clouds.aws.adopt import look

        return look(plan, token, settings, profile)

    def pending(self, stack: StackIdentity, settings: Mapping[str, object]) -> PendingLookup:
        from gpuinfra.clouds.aws.pending import lookup

        return lookup(stack, settings)

    def scheduled(self, resources: Iterable[Mapping[str, Any]]) -> frozenset[str]:
        from gpuinfra.clouds.aws.schedules import scheduled

        return scheduled(resources)

    def offerings(self, region: str, config: Mapping[str, object]) -> Search:
        from gpuinfra.clouds.aws.offerings import connect

        return connect(region, config)

    def node_logs(self, question: LogQuestion) -> Iterator[LogLine]:
        from gpuinfra.clouds.aws.logs import read

        return read(question)

    # A second region

    @property
    def second_region(self) -> SecondRegion:
        from gpuinfra.clouds.aws.region.second_region import SECOND_REGION

        return SECOND_REGION

    @property
    def dns(self) -> CloudDns:
        from gpuinfra.clouds.aws.region import dns

        return dns

    def record(self, place: str, second: str, config: Mapping[str, object], key: str = KEY) -> RecordStore:
        from gpuinfra.clouds.aws.region.record import connect

        return connect(place, second, config, key)

    def report_ready(
        self, place: str, second: str, config: Mapping[str, object], resources: Iterable[Mapping[str, Any]]
    ) -> None:
        from gpuinfra.clouds.aws.region.record import report_ready

        report_ready(place, second, config)

    def readiness(self, question: ReadinessQuestion) -> Iterable[ReadinessLine]:
        from gpuinfra.clouds.aws.region.readiness import look

        return look(question)

    def checkpoints(
        self, region: str, second: str, config: Mapping[str, object], resources: Iterable[Mapping[str, Any]]
    ) -> tuple[CheckpointPair, ...]:
        from gpuinfra.clouds.aws.region.checkpoints import connect

        return connect(region, second, config, resources)

    def exports(self, region: str, config: Mapping[str, object]) -> Exports:
        from gpuinfra.clouds.aws.region.exports import connect

        return connect(region, config)

    def failover(self, region: str, second: str, config: Mapping[str, object]) -> Failover:
        from gpuinfra.clouds.aws.region.failover import connect

        return connect(region, second, config)

    def failback(self, region: str, second: str, config: Mapping[str, object]) -> Failback:
        from gpuinfra.clouds.aws.region.failback import connect

        return connect(region, second, config)

    def drill_copies(self, second: str, config: Mapping[str, object]) -> DrillCopies:
        from gpuinfra.clouds.aws.region.drill import connect

        return connect(second, config)


CLOUD = AwsCloud()
