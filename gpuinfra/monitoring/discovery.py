"""How Prometheus finds the nodes of a cluster on a cloud, and what a control node needs there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Json = str | int | bool | Sequence["Json"] | Mapping[str, "Json"]


@dataclass(frozen=True, kw_only=True)
class ControlFacts:
    """What a control node needs on a cloud."""

    machine: str
    """Default machine type, without GPUs."""
    secret: str
    """Regular expression that matches the name of a secret."""
    secret_form: str
    """Description of the allowed names, for messages."""
    needs_internet: str = ""
    """The service that finds the nodes, if nodes cannot reach it without internet access."""


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """The service discovery of a cloud. It finds the nodes of one cluster, and Prometheus keeps those of the pools with exporters.

    A value `${name}` in `settings` is a name of the account, which the control node reads from its metadata service (`node/discovery.py`).
    """

    kind: str
    """Name of the section in a scrape configuration, such as `ec2_sd_configs`."""
    settings: Sequence[Mapping[str, Json]]
    """One entry for each search."""
    instance: str
    """Meta label with the name of a node."""
    pool: str
    """Meta label with the pool of a node."""
