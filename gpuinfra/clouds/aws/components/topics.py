"""An SNS topic with the subscriptions of its recipients, for the components that report something by email."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from gpuinfra.clouds.aws.components.scope import child
from gpuinfra.clouds.aws.instances import Lookup
from gpuinfra.plan.planned import ResourceKind


def topic(
    parent: pulumi.Resource,
    name: str,
    kinds: tuple[ResourceKind[Lookup], ResourceKind[Lookup]],
    recipients: Sequence[str],
    region: str | None = None,
) -> aws.sns.Topic:
    """Create a topic for the component `name`. `kinds` are those of the topic and of a subscription. Each recipient must confirm the subscription."""
    of_topic, of_recipient = kinds
    values = {"region": region} if region else {}
    made = aws.sns.Topic(of_topic.logical(name, **values), region=region, opts=child(parent, of_topic))
    for index, address in enumerate(recipients):
        aws.sns.TopicSubscription(
            of_recipient.logical(name, index=index, **values),
            topic=made.arn,
            protocol="email",
            endpoint=address,
            region=region,
            opts=child(parent, of_recipient),
        )
    return made
