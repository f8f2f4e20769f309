"""The text of a case for AWS Support about a faulty node. Pure.

The EC2 API has no request that reports a GPU host as faulty. With `ReportInstanceStatus`,
AWS collects feedback to improve its status checks. The instance must be running
(https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ReportInstanceStatus.html and the EC2 model of botocore, retrieved 2026-11-26).
Technical cases require a support plan above Basic Support (https://docs.aws.amazon.com/awssupport/latest/user/case-management.html, retrieved 2026-11-26).
The content of the case is not from an AWS page. Whether AWS Support requires these facts has not been verified.
"""

from __future__ import annotations

from gpuinfra.clouds.vendor import Faulty

ACTION = "terminate the instance; its Auto Scaling group launches another instance"
SAME_HOST = (
    "send aws-support.txt to AWS Support, and keep the faulty instance on its host, in standby, until AWS repairs the host: "
    "`aws autoscaling enter-standby --instance-ids {instance} --auto-scaling-group-name {group} --no-should-decrement-desired-capacity --region {region}`. "
    "The group then launches another instance, which requires free capacity. The instance in standby is billed"
)
"""https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-enter-exit-standby.html, retrieved 2026-11-26."""


def files(node: Faulty) -> dict[str, str]:
    """Return the text of the case."""
    lines = [
        f"Subject: Faulty GPU host: {node.machine} {node.instance_id} in {node.zone or node.region}",
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
        "Open a technical case about EC2 in AWS Support Center (https://console.aws.amazon.com/support) with aws-support.txt as "
        "its description, and attach the "
        "other files. A technical case requires a support plan above Basic Support.\n"
        f"Also report the status while the instance runs: aws ec2 report-instance-status --instances {node.instance_id} --status "
        f"impaired --reason-codes other --region {node.region}\n"
    )
    return {"aws-support.txt": "\n".join(lines) + "\n", "SEND.txt": send}
