"""Amazon SNS: a node publishes a message to the recipients of a topic.

https://docs.aws.amazon.com/sns/latest/api/API_Publish.html, retrieved 2026-11-30.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuinfra_rehearsal.cloud.aws.http.logs import MESSAGE, SUBSCRIPTION
from gpuinfra_rehearsal.cloud.core import ids
from gpuinfra_rehearsal.cloud.core.errors import ApiRejected

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Cloud

TOPIC = "aws:sns/topic:Topic"
LONGEST_SUBJECT, LONGEST_MESSAGE = 100, 256 << 10


def publish(cloud: Cloud, asked: Mapping[str, str]) -> dict[str, Any]:
    """Send a message to the subscribers of a topic."""
    topic, subject, text = asked.get("TopicArn", ""), asked.get("Subject", ""), asked.get("Message", "")
    if cloud.store.find(TOPIC, topic) is None:
        raise ApiRejected("NotFound", "Topic does not exist", status=404)
    if not text or len(text.encode()) > LONGEST_MESSAGE:
        raise ApiRejected("InvalidParameter", "Invalid parameter: Message", status=400)
    if len(subject) > LONGEST_SUBJECT or "\n" in subject:
        raise ApiRejected("InvalidParameter", "Invalid parameter: Subject", status=400)
    with cloud.store.change():
        number = cloud.store.next("sns-messages")
        to = [str(one.plain["endpoint"]) for one in cloud.store.where(SUBSCRIPTION, topic=topic)]
        sent = {"to": to, "subject": subject, "text": text, "at": time.time()}
        cloud.store.put(MESSAGE, f"{topic}|{number:010}", sent)
    return {"MessageId": ids.uuid(number)}
