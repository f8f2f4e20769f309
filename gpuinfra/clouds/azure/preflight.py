"""Questions to Azure before a deployment, with azure-identity and the credentials of the operator. All requests read."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gpuinfra.clouds.preflight import (
    Row,
    denied,
    failed,
    no_credentials,
    ok,
    problem,
    rejected,
    throttled,
    unreachable,
)
from gpuinfra.handover.azure_rest import Refused, Rest
from gpuinfra.handover.ports import PortUnavailable

LOGIN = "run `az login`, or set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET"
TIMEOUT_S = 5.0
SUBSCRIPTIONS = "2022-12-01"
"""Version of the subscriptions API."""


TOPICS: tuple[str, ...] = ()
"""Topics of the questions about a plan: none yet."""


class Preflight:
    """Requests of one operator to one subscription."""

    def __init__(self, region: str, config: Mapping[str, object]) -> None:
        """`config` contains the provider settings of the stack file. `azure-native:subscriptionId` selects the subscription, as for Pulumi."""
        self.region = region
        given = config.get("azure-native:subscriptionId")
        self.subscription = str(
            given or os.environ.get("ARM_SUBSCRIPTION_ID") or os.environ.get("AZURE_SUBSCRIPTION_ID") or ""
        )
        self.rest = Rest(timeout_s=TIMEOUT_S)
        # Without a handler, azure-identity prints each failed kind of credentials.
        logging.getLogger("azure").addHandler(logging.NullHandler())

    def identity(self) -> Iterator[Row]:
        """Return the subscription and the type of the identity."""
        try:
            kind = self.rest.identity_type()
        except PortUnavailable as error:
            why = str(error).partition(" Attempted credentials")[0].removeprefix("no credentials for Azure: ")
            raise no_credentials(why, LOGIN) from None
        with asked("Microsoft.Resources/subscriptions/read"):
            if not self.subscription:
                listed = list(self.rest.pages("/subscriptions", SUBSCRIPTIONS))
                if len(listed) != 1:
                    what = f"{kind}, but {len(listed)} subscriptions and none is selected"
                    fix = "run `pulumi config set azure-native:subscriptionId ID`, or set ARM_SUBSCRIPTION_ID"
                    yield problem("identity", "Azure", what, "one subscription", fix)
                    return
                self.subscription = str(listed[0].get("subscriptionId"))
            found = self.rest.arm(f"/subscriptions/{self.subscription}", SUBSCRIPTIONS)
        state = str(found.get("state"))
        if state != "Enabled":
            what = f"subscription {self.subscription} is {state}"
            yield problem("identity", "Azure", what, "an enabled subscription", "enable it in the Azure portal")
        else:
            yield ok("identity", "Azure", f"subscription {self.subscription}, {kind}")


@contextmanager
def asked(action: str) -> Iterator[None]:
    """Convert errors of Azure to `Unanswered`. Other error codes remain errors, so that the caller can judge them."""
    try:
        yield
    except Refused as error:
        if error.status == 401:
            raise rejected(str(error), LOGIN) from None
        if error.status == 403:
            raise denied(action, str(error)) from None
        if error.status == 429:
            raise throttled(action, str(error)) from None
        if error.status >= 500:
            raise failed(action, str(error)) from None
        raise
    except PortUnavailable as error:
        raise unreachable(action, str(error)) from None
