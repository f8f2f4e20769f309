"""A small cluster on AWS, created call by call."""

from __future__ import annotations

import base64
import json
from typing import Any

from rehearsal.tests.cloud.conftest import Client, Made

TAGS = {"gpuinfra:cluster": "train", "gpuinfra:pool": "gpu", "gpuinfra:group": "gpu-0"}
USER_DATA = "#!/bin/bash\necho first\n"


def network(aws: Client) -> tuple[Made, Made]:
    """A network, and a subnet in zone use1-az4."""
    vpc = aws.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"})
    return vpc, aws.create(
        "aws:ec2/subnet:Subnet", {"vpcId": vpc.id, "cidrBlock": "10.0.1.0/24", "availabilityZoneId": "use1-az4"}
    )


def bucket(aws: Client, name: str = "evidence-000000000000", **more: Any) -> Made:
    """A bucket."""
    return aws.create("aws:s3/bucket:Bucket", {"bucket": name, **more}, name)


def role(aws: Client, bucket_name: str) -> Made:
    """A node's role: reads bundles, writes its own evidence, and nothing else."""
    made = aws.create("aws:iam/role:Role", {"name": "node", "assumeRolePolicy": '{"Statement": []}'})
    statements = [
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket_name}/bootstrap/*"},
        {
            "Effect": "Allow",
            "Action": "s3:PutObject",
            "Resource": f"arn:aws:s3:::{bucket_name}/evidence/train/${{aws:userid}}/*",
        },
    ]
    aws.create(
        "aws:iam/rolePolicy:RolePolicy",
        {"role": "node", "name": "node", "policy": json.dumps({"Statement": statements})},
    )
    return aws.create("aws:iam/instanceProfile:InstanceProfile", {"name": "node", "role": made.inputs["name"]})


def template(aws: Client, name: str = "gpu", **more: Any) -> Made:
    """A launch template of p4d machines."""
    data = base64.b64encode(USER_DATA.encode()).decode()
    inputs = {"name": name, "instanceType": "p4d.24xlarge", "userData": data, "updateDefaultVersion": True, **more}
    return aws.create("aws:ec2/launchTemplate:LaunchTemplate", inputs, name)


def group(
    aws: Client, launch: Made, count: int, subnet: Made, name: str = "gpu", version: str = "", **more: Any
) -> Made:
    """An Auto Scaling group that wants `count` instances."""
    tags = [{"key": key, "value": value, "propagateAtLaunch": True} for key, value in TAGS.items()]
    inputs = {
        "name": name, "minSize": 0, "maxSize": 8, "desiredCapacity": count, "vpcZoneIdentifiers": [subnet.id], "tags": tags,
        "waitForCapacityTimeout": "0", **more,
    }  # fmt: skip
    if "mixedInstancesPolicy" not in more:
        inputs["launchTemplate"] = {"id": launch.id, "version": version or str(int(launch.outputs["latestVersion"]))}
    return aws.create("aws:autoscaling/group:Group", inputs, name)


def spot(launch: Made) -> dict[str, Any]:
    """A policy that launches spot instances only."""
    return {
        "instancesDistribution": {"onDemandBaseCapacity": 0, "onDemandPercentageAboveBaseCapacity": 0},
        "launchTemplate": {"launchTemplateSpecification": {"launchTemplateId": launch.id, "version": "$Latest"}},
    }


RESERVED = {
    "capacityReservationSpecification": {
        "capacityReservationTarget": {"capacityReservationIds": ["cr-0123456789abcdef0"]}
    }
}
