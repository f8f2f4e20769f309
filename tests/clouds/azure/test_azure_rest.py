"""Requests to Azure Resource Manager that are throttled."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from gpuinfra.clouds.azure.rest import MANAGEMENT_VARIABLE, AzureRefused, Rest
from tests.servers import Answering, serve

# Form and text: https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling and clouds/azure/handover/refusals.json.
THROTTLED = json.dumps(
    {
        "error": {
            "code": "OperationNotAllowed",
            "message": "The server rejected the request because too many requests have been received for this subscription.",
        }
    }
).encode()


class Credential:
    """A credential with a token."""

    def get_token(self, *scopes: str) -> object:
        """Return the token."""
        return SimpleNamespace(token="token", expires_on=4e9)


@pytest.mark.parametrize(
    ("refusals", "header", "patience_s", "pauses"),
    [
        (2, {"Retry_After": "3"}, 10.0, [3.0, 3.0]),
        (3, {}, 10.0, [1.0, 2.0, 4.0]),
        (1, {"Retry_After": "soon"}, 10.0, [1.0]),
        (2, {"Retry_After": "3"}, 5.0, None),
        (1, {"Retry_After": "1235"}, 30.0, None),
        (1, {"Retry_After": "1"}, 0.0, None),
    ],
)
@pytest.mark.parametrize("change", [False, True])
def test_throttled_requests_are_repeated(
    refusals: int, header: dict[str, str], patience_s: float, pauses: list[float] | None, change: bool
) -> None:
    """A throttled request is sent again after the time that Azure states, and is refused if that takes too long."""
    count = [0]

    class Azure(Answering):
        def do_GET(self) -> None:
            count[0] += 1
            if count[0] <= refusals:
                self.answer(429, THROTTLED, **header)
            else:
                self.answer(200, b'{"state": "Enabled"}')

    waited: list[float] = []
    with serve(Azure) as url:
        rest = Rest(Credential(), {MANAGEMENT_VARIABLE: url}, patience_s=patience_s, sleep=waited.append)
        ask = (
            (lambda: rest.arm_change("GET", "/subscriptions/0", "1"))
            if change
            else (lambda: rest.arm("/subscriptions/0", "1"))
        )
        if pauses is None:
            with pytest.raises(AzureRefused, match="too many requests"):
                ask()
            assert sum(waited) <= patience_s
        else:
            ask()
            assert waited == pauses
