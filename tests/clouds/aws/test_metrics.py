"""The workspace for the metrics of `aws-monitoring`, the right to write to it, and the alerts that the control node cannot send."""

from __future__ import annotations

import base64
import json
from typing import Any

from gpuinfra.monitoring.alerts import ALERTS, Needs
from tests.clouds.recorder import Recording
from tests.clouds.stacks import recording_of

WORKSPACE = "arn:aws:aps:us-east-1:000000000000:workspace/"


def recording() -> Recording:
    """The resources of the shipped stack."""
    return recording_of("aws-monitoring")


def only(type_: str) -> dict[str, Any]:
    """The inputs of the only resource of a type."""
    (found,) = recording().of(type_)
    return dict(found.inputs)


def test_the_metrics_are_encrypted_with_the_data_key() -> None:
    """The workspace has the key of the stack's data, and no settings, because the stack declares no retention."""
    assert only("aws:amp/workspace:Workspace")["kmsKeyArn"].startswith("arn:aws:kms:us-east-1:")
    assert recording().of("aws:amp/workspaceConfiguration:WorkspaceConfiguration") == []


def test_only_the_control_node_knows_the_address() -> None:
    """`node.json` of the control node has the address of remote write. The other nodes have none."""
    for template in recording().of("aws:ec2/launchTemplate:LaunchTemplate"):
        text = base64.b64decode(template.inputs["userData"]).decode()
        control = "monitoring" in template.name
        assert ("metrics_url" in text) is control
        assert ("/workspaces/mock/api/v1/remote_write" in text) is control


def test_the_store_has_the_rules_that_the_control_node_cannot_report() -> None:
    """The rules are those of the one table, and no other rule runs twice."""
    (group,) = json.loads(only("aws:amp/ruleGroupNamespace:RuleGroupNamespace")["data"])["groups"]
    assert [one["alert"] for one in group["rules"]] == [one.name for one in ALERTS if one.needs is Needs.STORE]


def test_the_alerts_reach_the_recipients_of_the_budget() -> None:
    """The alert manager sends all alerts to a topic, to which only this workspace can publish for it, and whose subscriber is the recipient."""
    definition = json.loads(only("aws:amp/alertManagerDefinition:AlertManagerDefinition")["definition"])
    config = json.loads(definition["alertmanager_config"])
    (receiver,) = config["receivers"]
    assert config["route"]["receiver"] == receiver["name"]
    (sns,) = receiver["sns_configs"]
    (statement,) = json.loads(only("aws:sns/topicPolicy:TopicPolicy")["policy"])["Statement"]
    assert sns["topic_arn"] == statement["Resource"]
    assert sns["sigv4"] == {"region": "us-east-1"}
    assert statement["Principal"] == {"Service": "aps.amazonaws.com"}
    assert statement["Condition"]["ArnEquals"]["aws:SourceArn"].startswith(WORKSPACE)
    subscribed = [one.inputs for one in recording().of("aws:sns/topicSubscription:TopicSubscription")]
    assert [one["endpoint"] for one in subscribed if one["topic"] == sns["topic_arn"]] == ["gpu-budget@example.com"]


def test_alerts_by_email_are_published_to_a_topic_of_the_receiver() -> None:
    """The declared recipient subscribes to a topic, to which the control node can publish and whose address only the control node has."""
    (subscribed,) = [
        one.inputs
        for one in recording().of("aws:sns/topicSubscription:TopicSubscription")
        if one.inputs["endpoint"] == "gpu-oncall@example.com"
    ]
    role = [one for one in recording().of("aws:iam/rolePolicy:RolePolicy") if "sns:" in one.inputs["policy"]]
    assert [one.name for one in role] == ["watched-control-policy"]
    statements = {one["Sid"]: one for one in json.loads(role[0].inputs["policy"])["Statement"]}
    assert statements["SendEmails"]["Action"] == "sns:Publish"
    assert statements["SendEmails"]["Resource"] == [subscribed["topic"]]
    for template in recording().of("aws:ec2/launchTemplate:LaunchTemplate"):
        text = base64.b64decode(template.inputs["userData"]).decode()
        assert (str(subscribed["topic"]) in text) is ("monitoring" in template.name)
