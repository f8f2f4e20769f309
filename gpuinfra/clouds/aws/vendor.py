"""The text of a case for AWS Support about a faulty node. Pure.

AWS has no public request that reports a GPU host as faulty: `ReportInstanceStatus` collects feedback and does not repair the instance. AWS Support asks for the
instance ID, the Region and the time zone of the times
(https://docs.aws.amazon.com/awssupport/latest/user/case-management.html and
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ReportInstanceStatus.html, retrieved 2026-11-26).
"""

from __future__ import annotations

from gpuinfra.clouds.vendor import Faulty

ACTION = "terminate the instance; its Auto Scaling group launches another instance"
SAME_HOST = (
    "send aws-support.txt to AWS Support, and keep the faulty instance on its host, outside the service of its group, until AWS repairs the host: "
    "`aws autoscaling enter-standby --instance-ids {instance} --auto-scaling-group-name {group} --no-should-decrement-desired-capacity --region {region}`. "
    "The group then launches another instance, which requires free capacity. The instance in standby is billed"
)
"""https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-enter-exit-standby.html, retrieved 2026-11-26."""


def files(node: Faulty) -> dict[str, str]:
    """Return the text of the case."""
    lines = [
        f"Subject: Faulty GPU host: {node.machine} {node.instance_id} in {node.zone or node.region}",
        "Service: Elastic Compute Cloud (EC2 - Linux). Category: Instance Issue.",
        "",
        f"The instance {node.instance_id} does not pass our hardware checks. Please inspect its host and remove the host from service until it is repaired.",
        "",
        f"Instance ID: {node.instance_id}",
        f"Region: {node.region}",
        f"Availability Zone: {node.zone or 'unknown'}",
        f"Auto Scaling group: {node.group}",
        *node.facts(),
        "",
        "Attached: evidence.json (output of nvidia-smi, lspci and the kernel log) and console.log (console output of the instance).",
    ]
    send = (
        "Open a case in AWS Support Center (https://console.aws.amazon.com/support) with aws-support.txt as its description, and attach the other files.\n"
        f"Also report the status: aws ec2 report-instance-status --instances {node.instance_id} --status impaired --reason-codes other --region {node.region}\n"
    )
    return {"aws-support.txt": "\n".join(lines) + "\n", "SEND.txt": send}
