"""The receiver of alerts, such as an incoming webhook of Slack. It is not part of a cloud. The secrets that a control node reads contain its address."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.core.http import Request, Response

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

PREFIX = "/.receiver/"
MOST = 1000
"""Number of messages that are kept."""
_KIND = "alert"


def address(cloud: Cloud, secret: str) -> str:
    """Return the value of a secret: the address to which its receiver gets messages."""
    return f"{cloud.endpoint}{PREFIX}{secret.lstrip('/')}"


def received(cloud: Cloud) -> list[dict[str, Any]]:
    """Return the messages with the time of arrival, oldest first."""
    return [message for _, message in sorted(cloud.store.all(_KIND).items())]


class AlertInbox:
    """Serves `/.receiver/NAME`."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def __call__(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(405, b"a receiver of alerts accepts only POST\n")
        number = self.cloud.store.next(_KIND)
        message = {
            "at": time.time(),
            "receiver": request.raw_path.removeprefix(PREFIX),
            "body": json.loads(request.body),
        }
        self.cloud.store.put(_KIND, f"{number:06}", message)
        self.cloud.store.drop(_KIND, f"{number - MOST:06}")
        return Response(200, b"ok")  # as Slack answers
