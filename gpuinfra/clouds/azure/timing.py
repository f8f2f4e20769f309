"""How long Azure needs to create resources, and which resources wait for which. Pure.

The figures are from public logs of `terraform apply`, whose provider sends the same requests and waits for the same operations, or from issues.
`docs/reference/time-to-nodes.md` explains the estimate.
"""

from __future__ import annotations

from gpuinfra.clouds.azure import resources as rows
from gpuinfra.clouds.timing import Duration, Timing

_SERVICE_BUS = "https://github.com/hashicorp/terraform-provider-azurerm/issues/22234"

TIMING = Timing(
    durations={
        rows.VAULT.type: Duration(
            seconds=80,
            source="a public log of `terraform apply`, which shows only the first 80 s of the creation, https://github.com/turbot/steampipe-plugin-azure/pull/259, retrieved 2026-11-26",
            at_least=True,
        ),
        rows.ACCOUNT.type: Duration(
            seconds=39,
            source="a public log of `terraform apply`, https://github.com/turbot/steampipe-plugin-azure/pull/306, retrieved 2026-11-26",
        ),
        rows.PRIVATE_ENDPOINT.type: Duration(
            seconds=40,
            source=f"a public log of `terraform apply`, which shows only the first 40 s of the creation, {_SERVICE_BUS}, retrieved 2026-11-26",
            at_least=True,
        ),
        rows.DNS_LINK.type: Duration(
            seconds=35,
            source=f"a public log of `terraform apply`, for an update with the same request, {_SERVICE_BUS}, retrieved 2026-11-26",
        ),
        rows.LUSTRE.type: Duration(
            seconds=1020,
            source="17 minutes until the file system is mounted, https://github.com/kubernetes-sigs/azurelustre-csi-driver/issues/236, retrieved 2026-11-26",
        ),
        rows.NETAPP_VOLUME.type: Duration(seconds=None, source="no public figure, searched 2026-11-27"),
        rows.SCALE_SET.type: Duration(
            seconds=None, source="launch and first boot: no public figure for machines with GPUs, searched 2026-11-26"
        ),
    },
    after={
        rows.ACCOUNT: (rows.VAULT,),
        rows.HOME_ACCOUNT: (rows.VAULT,),
        rows.PRIVATE_ENDPOINT: (rows.VAULT, rows.ACCOUNT, rows.HOME_ACCOUNT),
        rows.LUSTRE: (rows.VAULT, rows.ACCOUNT, rows.PRIVATE_ENDPOINT, rows.DNS_LINK),
        rows.SCALE_SET: (
            rows.VAULT,
            rows.ACCOUNT,
            rows.HOME_ACCOUNT,
            rows.PRIVATE_ENDPOINT,
            rows.DNS_LINK,
            rows.LUSTRE,
            rows.NETAPP_VOLUME,
        ),
        rows.NODES_READY: (rows.SCALE_SET,),
    },
    group=rows.SCALE_SET,
    ready=rows.NODES_READY,
    lustre=rows.LUSTRE,
)
