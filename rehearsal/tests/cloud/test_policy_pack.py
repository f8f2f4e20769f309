"""The policy pack under the real engine, with programs that do not use gpuinfra."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuinfra.engine import find_engine
from rehearsal.tests.cloud.test_engine import Rehearsal

POLICY = Path(__file__).parents[3] / "policy"

PROGRAM = """
import pulumi_aws as aws

fine = {fine}
group = aws.ec2.SecurityGroup("efa", description="EFA")
template = aws.ec2.LaunchTemplate(
    "template", instance_type="p4d.24xlarge", image_id="ami-00000000000000001",
    metadata_options={{"http_tokens": "required" if fine else "optional"}},
    block_device_mappings=[{{"device_name": "/dev/sda1", "ebs": {{"volume_size": 100, "encrypted": str(fine).lower()}}}}],
    network_interfaces=[{{"interface_type": "efa", "security_groups": [group.id], "associate_public_ip_address": str(not fine).lower()}}])
subnet = aws.ec2.Subnet("subnet", vpc_id=aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16").id, cidr_block="10.0.1.0/24", availability_zone_id="use1-az4")
aws.autoscaling.Group(
    "group", min_size=0, max_size=8, desired_capacity=2 if fine else 8, vpc_zone_identifiers=[subnet.id],
    launch_template={{"id": template.id, "version": "$Latest"}}, wait_for_capacity_timeout="0",
    tags=[{{"key": "team", "value": "research", "propagate_at_launch": True}}] if fine else [])
if fine:
    for kind in [aws.vpc.SecurityGroupIngressRule, aws.vpc.SecurityGroupEgressRule]:
        kind("all", security_group_id=group.id, referenced_security_group_id=group.id, ip_protocol="-1")
"""
RULES = {
    "required-tags": {"tags": ["team"]},
    "price-limit": {"max_usd_per_hour": 100},
    "audit-trail": {"elsewhere": True},
    "budget": {"elsewhere": True},
}


@pytest.fixture
def rehearsal(tmp_path: Path) -> Iterator[Rehearsal]:
    """A stack on a running cloud, and the pack in an environment with Pulumi's policy SDK."""
    (requirement,) = [
        line for line in (POLICY / "requirements.txt").read_text().splitlines() if "pulumi-policy=" in line
    ]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "sdk", requirement]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=300, check=False)
    if "Temporary failure in name resolution" in done.stderr or "Failed to establish a new connection" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    shutil.copytree(POLICY, tmp_path / "pack", ignore=shutil.ignore_patterns("__pycache__"))
    about = (tmp_path / "pack" / "PulumiPolicy.yaml").read_text()
    assert "virtualenv: venv" in about
    (tmp_path / "pack" / "PulumiPolicy.yaml").write_text(about.replace("virtualenv: venv", f"virtualenv: {sys.prefix}"))
    (tmp_path / "rules.json").write_text(json.dumps(RULES))
    made = Rehearsal(find_engine(lambda line: print(line, file=sys.stderr)), tmp_path)
    made.environment["PYTHONPATH"] = str(tmp_path / "sdk")
    made.pulumi("stack", "init", "dev")
    made.start()
    yield made
    made.stop()


@pytest.mark.long
def test_the_pack_stops_a_program_that_breaks_the_rules_and_accepts_a_corrected_one(rehearsal: Rehearsal) -> None:
    """`pulumi up` creates no node that breaks a rule, names each rule, and deploys the corrected program."""
    words = (
        "--policy-pack",
        str(rehearsal.folder / "pack"),
        "--policy-pack-config",
        str(rehearsal.folder / "rules.json"),
    )
    program = rehearsal.folder / "project" / "__main__.py"
    program.write_text(PROGRAM.format(fine=False))
    shown = rehearsal.pulumi("up", "--yes", "--skip-preview", *words, code=1)
    for rule in ("no-public-gpu-node", "imds-v2", "encryption"):
        assert f"[mandatory]  {rule}  (" in shown, shown
    types = {one["type"] for one in rehearsal.ask("resources")["resources"]}
    assert "aws:ec2/launchTemplate:LaunchTemplate" not in types
    assert "aws:autoscaling/group:Group" not in types

    program.write_text(PROGRAM.format(fine=True))
    shown = rehearsal.pulumi("up", "--yes", "--skip-preview", *words)
    assert "[mandatory]" not in shown
    assert len(rehearsal.running(2)) == 2

    strict = json.dumps({"price-limit": {"max_usd_per_hour": 10}, "audit-trail": {"elsewhere": False}, "budget": {"elsewhere": False}})  # fmt: skip
    (rehearsal.folder / "rules.json").write_text(strict)
    program.write_text(PROGRAM.format(fine=True).replace("aws.vpc.SecurityGroupIngressRule, ", ""))
    shown = rehearsal.pulumi("preview", *words, code=1)
    for rule in ("price-limit", "audit-trail", "budget", "efa-group-self-reference"):
        assert f"[mandatory]  {rule}  (" in shown, shown

    (rehearsal.folder / "rules.json").write_text(json.dumps({**RULES, "required-tags": {"tags": ["owner"]}}))
    shown = rehearsal.pulumi("preview", *words, code=1)
    assert "[mandatory]  required-tags  (aws:autoscaling:Group: group)" in shown, shown
