"""The outage of a region: the APIs of the region, and the control planes in it that serve all regions, refuse requests or do not respond.

The control interface starts and ends an outage. Instances continue to run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.store import Store

_KIND = "outage"


class NoResponse(Exception):
    """Raised instead of a response. The server closes the connection."""


def begin(store: Store, region: str) -> None:
    """Start the outage of a region."""
    store.put(_KIND, region, {})


def end(store: Store) -> None:
    """End all outages."""
    for region in store.all(_KIND):
        store.drop(_KIND, region)


def affects(store: Store, region: str) -> bool:
    """Return whether a region has an outage."""
    return store.get(_KIND, region) is not None


def active(store: Store) -> bool:
    """Return whether any region has an outage."""
    return bool(store.all(_KIND))


def refuse(store: Store, regions: Iterable[str], what: str) -> None:
    """Raise `ApiRejected` if one of these regions has an outage. `what` is the request."""
    for region in regions:
        if affects(store, region):
            raise ApiRejected("ServiceUnavailable", f"{what} requires {region}, which does not respond", status=503)
