"""How Prometheus finds the nodes of a cluster on a cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Json = str | int | bool | Sequence["Json"] | Mapping[str, "Json"]


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """The service discovery of a cloud. `settings` contains only nodes of one cluster that are in the given pools."""

    kind: str
    """Name of the section in a scrape configuration, such as `ec2_sd_configs`."""
    settings: Mapping[str, Json]
    instance: str
    """Meta label with the ID of a node, which `gpuinfra nodes` also shows."""
    pool: str
    """Meta label with the pool of a node."""
