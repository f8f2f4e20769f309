"""How Prometheus finds the nodes of a cluster on a cloud, and what a control node needs there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Json = str | int | bool | Sequence["Json"] | Mapping[str, "Json"]


@dataclass(frozen=True, kw_only=True)
class StoreFacts:
    """The managed Prometheus of a cloud."""

    name: str
    authorization: Callable[[str], Mapping[str, Json]]
    """Returns the section of `remote_write` with which Prometheus proves the identity of its machine to a store in a region."""


@dataclass(frozen=True, kw_only=True)
class EmailFacts:
    """The service of a cloud that sends emails for Alertmanager."""

    name: str
    section: str
    """Name of the section of a receiver, such as `sns_configs`."""
    settings: Callable[[str, str, str], Mapping[str, Json]]
    """Returns the section for a cluster, a region and the address of a topic."""


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
    store: StoreFacts | None = None
    """The managed Prometheus that a stack can create."""
    no_store: str = ""
    """Why a stack cannot create one, for messages, if `store` is None."""
    email: EmailFacts | None = None
    no_email: str = ""
    """Why no service sends the alerts by email, for messages, if `email` is None."""


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
