"""How long Google Cloud needs to create resources, and which resources wait for which. Pure.

The figures are from a public log of the provider that this program uses, terraform-provider-google, or from issues. `docs/reference/time-to-nodes.md` explains the estimate.
"""

from __future__ import annotations

from gpuinfra.clouds.gcp import resources as rows
from gpuinfra.clouds.timing import Duration, Timing


def _logged(seconds: float) -> Duration:
    return Duration(
        seconds=seconds,
        source="the log of `terraform apply` of a public project in us-central1 whose resources start with grid-meter-app, retrieved from a stored index of GitHub on 2026-11-26",
    )


TIMING = Timing(
    durations={
        rows.MAIN_NETWORK.type: _logged(22),
        rows.SUBNET.type: _logged(22),
        rows.ROUTER.type: _logged(12),
        rows.NAT.type: _logged(12),
        rows.SERVICES_RANGE.type: _logged(13),
        rows.SERVICES_PEERING.type: _logged(32),
        rows.NODE_ACCOUNT.type: _logged(13),
        rows.LUSTRE.type: Duration(
            seconds=None,
            source="no typical figure is public. 99 of 100 creations take at most 40 to 80 minutes: https://github.com/GoogleCloudPlatform/magic-modules/pull/14878, retrieved 2026-11-26",
        ),
        rows.FILESTORE.type: Duration(seconds=None, source="no public figure, searched 2026-11-26"),
        rows.GROUP.type: Duration(
            seconds=None, source="launch and first boot: no public figure for machines with GPUs, searched 2026-11-26"
        ),
    },
    after={
        rows.SUBNET: (rows.MAIN_NETWORK, rows.DATA_NETWORK),
        rows.RDMA_SUBNET: (rows.RDMA_NETWORK,),
        rows.ROUTER: (rows.MAIN_NETWORK,),
        rows.NAT: (rows.MAIN_NETWORK, rows.SUBNET, rows.ROUTER),
        rows.SERVICES_RANGE: (rows.MAIN_NETWORK,),
        rows.SERVICES_PEERING: (rows.MAIN_NETWORK, rows.SERVICES_RANGE),
        rows.LUSTRE: (rows.SERVICES_PEERING,),
        rows.FILESTORE: (rows.SERVICES_PEERING,),
        rows.GROUP: (rows.NAT, rows.SUBNET, rows.RDMA_SUBNET, rows.NODE_ACCOUNT, rows.LUSTRE, rows.FILESTORE),
        rows.NODES_READY: (rows.GROUP,),
    },
    group=rows.GROUP,
    ready=rows.NODES_READY,
    lustre=rows.LUSTRE,
)
