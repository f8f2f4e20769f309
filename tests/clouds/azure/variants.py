"""Declarations on Azure, beside the shipped stacks, with fields left out, existing resources and optional parts."""

from __future__ import annotations

import functools
from typing import Any

from gpuinfra.spec import ClusterSpec, parse_spec
from tests.clouds.recorder import Recording
from tests.clouds.stacks import recording_of_spec

_NETWORK = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/corp/providers/Microsoft.Network"
_ZONE = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/dns/providers/Microsoft.Network/privateDnsZones/privatelink.blob.core.windows.net"
_CONTAINER = (
    "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/data/providers/Microsoft.Storage"
    "/storageAccounts/ourdata/blobServices/default/containers/corpus"
)
_RESERVATION = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/held/providers/Microsoft.Compute/capacityReservationGroups/held"
IMPORTER = "00000000-0000-4000-8000-000000000009"
EXISTING = {
    "id": f"{_NETWORK}/virtualNetworks/corp",
    "subnets": {
        "southcentralus": f"{_NETWORK}/virtualNetworks/corp/subnets/gpu",
        "storage-scratch-0": f"{_NETWORK}/virtualNetworks/corp/subnets/lustre",
    },
}
LUSTRE: dict[str, Any] = {"kind": "lustre", "mount": "/scratch", "capacity_gib": 8192}
POOL: dict[str, Any] = {
    "name": "gpu",
    "machine": "Standard_ND96amsr_A100_v4",
    "capacity": [{"kind": "on_demand", "count": 2}],
}
BASE: dict[str, Any] = {
    "name": "train",
    "where": {"cloud": "azure", "region": "southcentralus"},
    "pools": [POOL],
    "access": {"evidence_from": ["203.0.113.0/24"]},
}

VARIANTS: dict[str, dict[str, Any]] = {
    "no storage": {},
    "no access from outside": {"access": {}, "network": {"existing": EXISTING}},
    "endpoints": {"network": {"egress": "endpoints"}},
    "endpoints with lustre": {"network": {"egress": "endpoints"}, "storage": [LUSTRE]},
    "existing network": {"network": {"existing": EXISTING}},
    "existing network with lustre": {"network": {"existing": EXISTING}, "storage": [LUSTRE]},
    "existing DNS zone": {
        "network": {"existing": {**EXISTING, "dns_zones": {"privatelink.blob.core.windows.net": _ZONE}}}
    },
    "roles of the nodes": {
        "access": {
            "evidence_from": ["203.0.113.0/24"],
            "node_roles": [
                {
                    "role": "7f951dda-4ed3-4680-a7ca-43fe172d538d",
                    "scope": "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/shared"
                        "/providers/Microsoft.ContainerRegistry/registries/images",
                }
            ],
        }
    },
    "no trail": {"audit": {"trail": "none"}},
    "trail into an existing account": {"audit": {"bucket": _CONTAINER.split("/blobServices/")[0]}},
    "trail without data events": {"audit": {"data_events": False}},
    "home directories": {"storage": [{"kind": "home"}, {"kind": "home", "mount": "/tools", "capacity_gib": 100}]},
    "home directories in an existing network": {"network": {"existing": EXISTING}, "storage": [{"kind": "home"}]},
    "netapp": {
        "storage": [
            {"kind": "home", "service": "netapp", "snapshot_days": 7},
            {"kind": "home", "service": "netapp", "mount": "/tools", "capacity_gib": 1500, "service_level": "ultra"},
        ]
    },
    "netapp in an existing network": {
        "network": {"existing": {**EXISTING, "subnets": {**EXISTING["subnets"], "netapp-0": f"{_NETWORK}/virtualNetworks/corp/subnets/anf"}}},
        "storage": [{"kind": "home", "service": "netapp"}],
    },
    "lustre without a container": {"storage": [LUSTRE]},
    "lustre on an existing container": {"storage": [{**LUSTRE, "bucket": _CONTAINER, "importer_id": IMPORTER}]},
    "lustre without an importer": {"storage": [{**LUSTRE, "bucket": _CONTAINER}]},
    "two file systems": {
        "storage": [{**LUSTRE, "bucket": "auto", "importer_id": IMPORTER}, {**LUSTRE, "mount": "/data"}]
    },
    "custom image": {
        "pools": [{**POOL, "image": {"ref": _RESERVATION.replace("capacityReservationGroups", "images"), "os": "ubuntu-22.04"}}]
    },
    "plain image": {"software": {"image": "plain"}},
    "bastion, keys and operators": {
        "access": {
            "bastion": True,
            "ssh_from": ["10.1.0.0/16", "10.2.0.0/16"],
            "ingress": [{"sources": ["10.1.0.0/16"], "ports": ["8080", "9000-9100"], "protocol": "udp"}],
            "ssh_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA me"],
            "operators": [IMPORTER, "00000000-0000-4000-8000-00000000000a"],
            "evidence_from": ["203.0.113.7/32", "198.51.100.0/31"],
        }
    },
    "foundation and site alone": {"pools": []},
    "reserved and spot without a fabric": {
        "pools": [
            {
                **POOL,
                "machine": "Standard_NC24ads_A100_v4",
                "capacity": [{"kind": "reserved", "id": _RESERVATION, "count": 2}, {"kind": "spot", "count": 1, "max_price_usd": 2.5}],
            }
        ]
    },
    "a zone": {"where": {"cloud": "azure", "region": "swedencentral", "zone": "3"}, "storage": [LUSTRE]},
    "an H200 fabric": {
        "where": {"cloud": "azure", "region": "uksouth"},
        "pools": [{**POOL, "machine": "Standard_ND96isr_H200_v5"}],
    },
    "budget with recipients": {"budget": {"recipients": ["a@example.com"], "thresholds_percent": [10, 20, 50, 80, 100]}},
}  # fmt: skip


def spec_of_variant(name: str) -> ClusterSpec:
    """The declaration."""
    return parse_spec({**BASE, **VARIANTS[name]})


@functools.cache
def variant(name: str) -> Recording:
    """The recording of its program."""
    return recording_of_spec(spec_of_variant(name))
