"""The rules of the policy pack, with plain Pulumi programs that do not use gpuinfra."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "policy"))

import gpu_rules
import yaml
from gpu_rules import CONFIG, OF_RESOURCE, OF_STACK, Resource

from tests.clouds.recorder import Recording, record
from tests.clouds.stacks import recording_of

TODAY = date(2026, 11, 23)
LIMIT = 100.0
"""USD an hour: more than one p4d.24xlarge and less than twenty."""


def resources(recording: Recording) -> list[Resource]:
    """The resources of a program as the rules see them."""
    made = {
        one.urn: Resource(type=one.type, name=one.name, props={**one.inputs, "id": one.id}) for one in recording.custom
    }
    for one in recording.custom:
        made[one.urn].uses.extend(made[urn] for urn in one.depends_on if urn in made)
    return [*made.values()]


def violations(found: list[Resource], config: dict[str, dict[str, Any]] | None = None) -> dict[str, list[str]]:
    """The messages of all rules, by rule."""
    given = {"audit_trail": {"elsewhere": True}, "budget": {"elsewhere": True}, **(config or {})}
    messages: dict[str, list[str]] = {}
    for rule in OF_RESOURCE:
        for one in found:
            messages.setdefault(rule.__name__, []).extend(rule(one, given.get(rule.__name__, {}), TODAY))
    for stack_rule in OF_STACK:
        made = stack_rule(found, given.get(stack_rule.__name__, {}))
        messages.setdefault(stack_rule.__name__, []).extend(message for _, message in made)
    return {name: texts for name, texts in messages.items() if texts}


def template(**changes: Any) -> dict[str, Any]:
    """Arguments of an accepted launch template, with changes."""
    nic = {"interface_type": "efa", "security_groups": ["sg-1"], "associate_public_ip_address": "false"}
    return {
        "instance_type": "p4d.24xlarge",
        "metadata_options": {"http_tokens": "required"},
        "block_device_mappings": [{"device_name": "/dev/sda1", "ebs": {"encrypted": "true"}}],
        "network_interfaces": [{**nic, **changes.pop("nic", {})}],
        **changes,
    }


def aws_program(
    *, rules: tuple[str, ...] = ("ingress", "egress"), nodes: int = 0, **changes: Any
) -> Callable[[], None]:
    """A program with a launch template, rules of its security group, and a group."""

    def program() -> None:
        import pulumi_aws as aws

        made = aws.ec2.LaunchTemplate("nodes", **template(**changes))
        for word in rules:
            kind = {"ingress": aws.vpc.SecurityGroupIngressRule, "egress": aws.vpc.SecurityGroupEgressRule}[word]
            kind(word, security_group_id="sg-1", referenced_security_group_id="sg-1", ip_protocol="-1")
        if nodes:
            aws.autoscaling.Group(
                "group", min_size=0, max_size=nodes, desired_capacity=nodes, launch_template={"id": made.id}
            )

    return program


def one_of(name: str, type_: str, **arguments: Any) -> Callable[[], None]:
    """A program with one resource of a module of the AWS SDK."""

    def program() -> None:
        import pulumi_aws as aws

        getattr(getattr(aws, name), type_)("one", **arguments)

    return program


def azure(public: bool) -> Callable[[], None]:
    """A program with a scale set on Azure."""

    def program() -> None:
        from pulumi_azure_native import compute

        address = {"public_ip_address_configuration": {"name": "public"}} if public else {}
        nic = {"name": "nic", "ip_configurations": [{"name": "ip", **address}]}
        compute.VirtualMachineScaleSet(
            "nodes",
            resource_group_name="group",
            sku={"name": "Standard_ND96asr_v4", "capacity": 2},
            virtual_machine_profile={"network_profile": {"network_interface_configurations": [nic]}},
        )

    return program


def google(public: bool) -> Callable[[], None]:
    """A program with an instance on Google Cloud."""

    def program() -> None:
        import pulumi_gcp as gcp

        gcp.compute.Instance(
            "node",
            machine_type="a2-highgpu-8g",
            zone="us-central1-a",
            boot_disk={},
            network_interfaces=[{"network": "default", **({"access_configs": [{}]} if public else {})}],
        )

    return program


Case = tuple[str, Callable[[], None], Callable[[], None], dict[str, dict[str, Any]]]


def cases() -> Iterator[Case]:
    """Rule, violating program, accepted program, configuration."""
    fine = aws_program()
    yield "no_public_gpu_node", aws_program(nic={"associate_public_ip_address": "true"}), fine, {}
    yield "no_public_gpu_node", azure(True), azure(False), {}
    yield "no_public_gpu_node", google(True), google(False), {}
    yield "imds_v2", aws_program(metadata_options={"http_tokens": "optional"}), fine, {}
    yield "imds_v2", aws_program(metadata_options=None), fine, {}
    yield "efa_group_self_reference", aws_program(rules=("ingress",)), fine, {}
    yield "efa_group_self_reference", aws_program(nic={"security_groups": ["sg-2"]}), fine, {}
    off = [{"device_name": "/dev/sda1", "ebs": {"volume_size": 100}}]
    yield "encryption", aws_program(block_device_mappings=off), fine, {}
    yield "encryption", one_of("efs", "FileSystem"), one_of("efs", "FileSystem", encrypted=True), {}
    node = {"instance_type": "g5.xlarge", "ami": "ami-1", "metadata_options": {"http_tokens": "required"}}
    yield (
        "encryption",
        one_of("ec2", "Instance", **node, root_block_device={"volume_size": 8}),
        one_of("ec2", "Instance", **node, root_block_device={"encrypted": True}),
        {},
    )
    held = {
        "instance_type": "p4d.24xlarge",
        "instance_platform": "Linux/UNIX",
        "availability_zone": "us-east-1a",
        "instance_count": 1,
        "end_date_type": "limited",
    }
    yield (
        "expired_reservation",
        one_of("ec2", "CapacityReservation", **held, end_date="2026-11-22T00:00:00Z"),
        one_of("ec2", "CapacityReservation", **held, end_date="2026-11-24T00:00:00Z"),
        {},
    )
    disk = {"storage_capacity": 1200, "subnet_ids": "subnet-1"}
    yield (
        "required_tags",
        one_of("fsx", "LustreFileSystem", **disk),
        one_of("fsx", "LustreFileSystem", **disk, tags={"team": "a"}),
        {"required_tags": {"tags": ["team"]}},
    )
    limit = {"price_limit": {"max_usd_per_hour": LIMIT}}
    yield "price_limit", aws_program(nodes=20), aws_program(nodes=1), limit
    yield "price_limit", aws_program(nodes=1, instance_type="p9.giant"), aws_program(nodes=1), limit
    none = {"audit_trail": {}, "budget": {"elsewhere": True}}
    yield "audit_trail", fine, with_trail, none
    yield "budget", fine, with_budget, {"audit_trail": {"elsewhere": True}, "budget": {}}


def with_trail() -> None:
    """An accepted program with a trail."""
    import pulumi_aws as aws

    aws_program()()
    aws.cloudtrail.Trail("trail", s3_bucket_name="records")


def with_budget() -> None:
    """An accepted program with a budget."""
    import pulumi_aws as aws

    aws_program()()
    aws.budgets.Budget("budget", budget_type="COST", time_unit="MONTHLY")


CASES = [*cases()]


@pytest.mark.parametrize("case", CASES, ids=[f"{at}-{case[0]}" for at, case in enumerate(CASES)])
def test_a_rule_refuses_one_program_and_accepts_the_other(case: Case) -> None:
    """The violating program breaks exactly this rule, and the accepted one breaks none."""
    rule, violating, accepted, config = case
    assert [*violations(resources(record(violating)), config)] == [rule]
    assert violations(resources(record(accepted)), config) == {}


def test_each_rule_has_a_case_and_a_description() -> None:
    """No rule is without a violating program. Each has one sentence, which is the description of the policy."""
    rules = [*OF_RESOURCE, *OF_STACK]
    assert {rule.__name__ for rule in rules} == {case[0] for case in CASES}
    assert set(CONFIG) <= {rule.__name__ for rule in rules}
    page = (Path(gpu_rules.__file__).parents[1] / "docs" / "guides" / "policy.md").read_text()
    for rule in rules:
        assert rule.__doc__
        assert "\n" not in rule.__doc__
        assert f"| `{rule.__name__.replace('_', '-')}` | {rule.__doc__} |" in page


def test_a_cluster_of_gpuinfra_is_accepted() -> None:
    """The shipped stack with trail and budget breaks no rule, without exceptions in the configuration."""
    given = {"audit_trail": {}, "budget": {}, "price_limit": {"max_usd_per_hour": 10_000}}
    assert violations(resources(recording_of("aws-p4d")), given) == {}


def test_the_version_of_the_pack_is_that_of_the_package() -> None:
    """The pack and the package are released together."""
    root = Path(gpu_rules.__file__).parent
    version = yaml.safe_load((root / "PulumiPolicy.yaml").read_text())["version"]
    assert f'version = "{version}"' in (root.parent / "pyproject.toml").read_text()
    assert f"gpuinfra>={version}" in (root / "requirements.txt").read_text()
