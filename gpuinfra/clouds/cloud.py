"""What gpuinfra can do on a cloud. `gpuinfra/clouds/<cloud>/cloud.py` lists the capabilities of one cloud.

Each capability is imported when it is used, so that a plan imports no SDK. A capability that a cloud does not have is None or empty, or
its command ends with a message.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date
from typing import TYPE_CHECKING, Any

from gpuinfra.base import registry
from gpuinfra.base.errors import UsageError
from gpuinfra.clouds.region.active import KEY
from gpuinfra.plan.profile import PlannedCloud

if TYPE_CHECKING:
    from gpuinfra.catalog.records import TransferPrice
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
    from gpuinfra.handover.connect import CloudHandover, HandoverCloud, ServedFunction, ServedResource
    from gpuinfra.plan.model import Plan
    from gpuinfra.plan.planned import PlannedResource, ResourceKind, RetainedResource
    from gpuinfra.spec.rule import Rule


OWN_PACKAGE = "gpuinfra"
"""Package of the resources that gpuinfra's own provider serves on every cloud."""


class Cloud(PlannedCloud):
    """A cloud. Only `profile` is required; the other capabilities are optional."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that are specific to this cloud."""
        return ()

    # Resources of a plan

    @property
    def resource_kinds(self) -> tuple[ResourceKind[Any], ...]:
        """The resource table, which prices, permissions and `gpuinfra adopt` use."""
        return ()

    @property
    def timing(self) -> Timing | None:
        """The durations and the order of the resources, for the time in a plan."""
        return None

    def connections(self, plan: Plan) -> Iterable[Traffic]:
        """Return the traffic of the nodes that the rules allow, for the diagram of a plan."""
        return ()

    def permissions(self, plan: Plan, *, read_only: bool = False) -> Permissions:
        """Return the minimum permissions for a plan, or with `read_only` only those that `pulumi preview`, `gpuinfra drift`, `nodes` and `verify` require."""
        raise UsageError(f"where.cloud is {plan.cloud}, for which gpuinfra has no permission list")

    def resources(self, plan: Plan) -> tuple[PlannedResource[Any], ...]:
        from gpuinfra.plan.planned import planned

        return tuple(planned(self.resource_kinds, plan))

    def transfer_price(self, source: str, target: str) -> TransferPrice | None:
        facts = self.second_region
        return facts.transfer(source, target) if facts else None

    def budget_limit(self, plan: Plan, today: date) -> float:
        from gpuinfra.cost.budget import derived_limit
        from gpuinfra.cost.price import price

        return derived_limit(plan, price(plan, today), today)

    # Verified nodes

    @property
    def handover(self) -> CloudHandover | None:
        """The ports through which the handover reads groups, evidence and identities."""
        return None

    @property
    def served_resources(self) -> tuple[ServedResource, ...]:
        """The resource types that gpuinfra's Pulumi provider serves, because the cloud's own provider has no such type."""
        return ()

    @property
    def served_functions(self) -> tuple[ServedFunction, ...]:
        """The functions that gpuinfra's Pulumi provider serves for the same reason."""
        return ()

    # Commands for operators

    @property
    def preflight(self) -> CloudPreflight | None:
        """The questions of `gpuinfra doctor` and `gpuinfra plan --live`."""
        return None

    @property
    def tunnel(self) -> Tunnel | None:
        """The operator's login and the route to a node, for SSH."""
        return None

    @property
    def vendor(self) -> Vendor:
        """The report for the provider, for `gpuinfra replace`."""
        raise UsageError(f"where.cloud is {self.profile.name}, for which gpuinfra has no report for the provider")

    def grafana_token(self, host: str, settings: Mapping[str, object]) -> AbstractContextManager[str] | None:
        """Return a short-lived token for a Grafana that this cloud manages, or None if the host is none. Raises `DeploymentError`."""
        return None

    def retained(
        self, plan: Plan, token: str, settings: Mapping[str, object], profile: str | None
    ) -> Sequence[RetainedResource[Any]]:
        """Return the retained resources that exist in the account, for `gpuinfra adopt`. `token` is the stack's `naming.stack_token`, `settings`
        are `LoadedStack.settings`, and `profile` replaces the profile in them."""
        raise UsageError(f"where.cloud is {plan.cloud}, which `gpuinfra adopt` does not support")

    def pending(self, stack: StackIdentity, settings: Mapping[str, object]) -> PendingLookup | None:
        """Return how the resources are found that a killed run was creating. `settings` are those of the providers."""
        return None

    def scheduled(self, resources: Iterable[Mapping[str, Any]]) -> frozenset[str]:
        """Return the groups in a state whose size the cloud changes at a declared time."""
        return frozenset()

    def offerings(self, region: str, config: Mapping[str, object]) -> Search | None:
        """Return the search for capacity that is sold for a fixed time, for `gpuinfra calendar --offers`."""
        return None

    def node_logs(self, question: LogQuestion) -> Iterator[LogLine]:
        """Return the lines that the nodes sent to the log service, oldest first, for `gpuinfra logs`. The service is asked for a page when the lines of the
        earlier ones were taken. Raises `DeploymentError` and `Unreachable`."""
        raise UsageError(f"where.cloud is {self.profile.name}, on which gpuinfra does not send logs")

    # A second region

    @property
    def second_region(self) -> SecondRegion | None:
        """The facts for `gpuinfra clone`."""
        return None

    @property
    def dns(self) -> CloudDns | None:
        """The DNS zones for `recovery.names`."""
        return None

    def record(self, place: str, second: str, config: Mapping[str, object], key: str = KEY) -> RecordStore | None:
        """Return the requests for the record of the active region, or for another object beside it. `place` is the replica of the evidence bucket, as in the
        outputs of `GpuCluster`."""
        return None

    def report_ready(
        self, place: str, second: str, config: Mapping[str, object], resources: Iterable[Mapping[str, Any]]
    ) -> None:
        """Report to the monitoring of the cloud that the second region is ready. Without a report for two days, an alarm notifies the recipients.
        `place` is that of `record`, and `resources` are those of the stack. Raises `Unreachable` and `DeploymentError`."""

    def readiness(self, question: ReadinessQuestion) -> Iterable[ReadinessLine] | None:
        """Return what `gpuinfra ready` reads from the cloud."""
        return None

    def checkpoints(
        self, region: str, second: str, config: Mapping[str, object], resources: Iterable[Mapping[str, Any]]
    ) -> tuple[CheckpointPair, ...]:
        """Return the replicated buckets in a stack's state, to find the newest checkpoint."""
        return ()

    def exports(self, region: str, config: Mapping[str, object]) -> Exports | None:
        """Return the requests that make the file systems of a region export to their buckets."""
        return None

    def failover(self, region: str, second: str, config: Mapping[str, object]) -> Failover | None:
        """Return the requests of `gpuinfra failover`. `config` contains the provider settings."""
        return None

    def failback(self, region: str, second: str, config: Mapping[str, object]) -> Failback | None:
        """Return the requests of `gpuinfra failback`. The regions are named as in the failover."""
        return None

    def drill_copies(self, second: str, config: Mapping[str, object]) -> DrillCopies | None:
        """Return the requests of `gpuinfra drill --live` in the second region, or None if the cloud does not support it."""
        return None


class BuiltCloud(Cloud):
    """A cloud with components, so that stacks on it can be deployed."""

    @property
    @abstractmethod
    def builder(self) -> type[ClusterBuilder[Any, Any]]:
        """The class that creates the resources of a plan. Importing it imports the SDK."""


if TYPE_CHECKING:

    def _for_the_handover(cloud: Cloud) -> HandoverCloud:
        """The handover imports no cloud, so the type checker compares its protocol with `Cloud` here."""
        return cloud


def cloud_of(cloud: str) -> Cloud:
    """Return a cloud without importing its SDK. Raises `UsageError` if gpuinfra does not support the cloud."""
    return registry.cloud_as(cloud, Cloud)


def cloud_for_type(type_: str) -> Cloud | None:
    """Return the cloud whose resource table has types of the package of this Pulumi type, or None."""
    package = type_.partition(":")[0]
    for name in registry.CLOUDS:
        cloud = cloud_of(name)
        if any(
            row.type.partition(":")[0] == package
            for row in cloud.resource_kinds
            if row.type.partition(":")[0] != OWN_PACKAGE
        ):
            return cloud
    return None
