"""What a program can pass in to a cluster, on each cloud."""

from __future__ import annotations

import dataclasses
import importlib

import pulumi
import pytest

from gpuinfra.base.registry import CLOUDS
from gpuinfra.clouds import why_not_built
from gpuinfra.clouds.aws.components.refs import Existing, FoundationRefs, SiteRefs
from gpuinfra.clouds.build import build
from gpuinfra.clouds.existing import Layer, joined, references
from tests.clouds import recorder
from tests.clouds.stacks import plan_of

BUILT = [cloud for cloud in CLOUDS if not why_not_built(cloud)]


@pytest.mark.parametrize("cloud", BUILT)
def test_a_layer_reads_every_field_that_a_program_can_pass(cloud: str) -> None:
    """Each field of a cloud's `Existing` is a reference of one of its layers."""
    builder = importlib.import_module(f"{CLOUDS[cloud]}.components.cluster").Builder
    known = {one.name for refs in (builder.foundation_refs, builder.site_refs) for one in dataclasses.fields(refs)}
    passed = {one.name for one in dataclasses.fields(builder.existing_type)}
    assert passed <= known
    assert importlib.import_module(CLOUDS[cloud]).Existing is builder.existing_type


@pytest.mark.parametrize("cloud", BUILT)
def test_a_name_of_another_cloud_is_an_error(cloud: str) -> None:
    """A field that this cloud does not have is refused where the object is created."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'color'"):
        importlib.import_module(CLOUDS[cloud]).Existing(color="red")


def test_the_existing_resources_of_another_cloud_are_refused() -> None:
    """A program that passes the class of another cloud reads which one to use."""
    builder = importlib.import_module("gpuinfra.clouds.gcp.components.cluster").Builder
    with pytest.raises(TypeError, match=r"where\.cloud is gcp; pass gpuinfra\.clouds\.gcp\.Existing"):
        build(builder, None, plan_of("gcp-a3mega"), Existing(vpc_id="vpc-1"), foundation_stack=None, site_stack=None)  # pyright: ignore[reportArgumentType]


UNUSED = [
    ("aws", "aws-p4d", "data_key_arn", "arn:aws:kms:us-east-1:123456789012:key/1"),
    ("aws", "aws-p4d", "file_systems", ({"kind": "lustre", "mount": "/scratch"},)),
    ("aws", "aws-p4d", "nodes_group_id", "sg-1"),
    ("aws", "aws-p4d", "evidence_bucket", "mine"),
    ("azure", "azure-ndv4", "file_systems", ({"kind": "lustre", "mount": "/scratch"},)),
    ("azure", "azure-ndv4", "evidence_bucket", "mine"),
    ("gcp", "gcp-a3mega", "file_systems", ({"kind": "lustre", "mount": "/scratch"},)),
    ("gcp", "gcp-a3mega", "evidence_bucket", "mine"),
]


@pytest.mark.parametrize(("cloud", "stack", "field", "value"), UNUSED)
def test_a_resource_that_the_stack_creates_itself_is_refused(cloud: str, stack: str, field: str, value: object) -> None:
    """A field of a layer that this stack creates is an error that names the field, because it would have no effect."""
    builder = importlib.import_module(f"{CLOUDS[cloud]}.components.cluster").Builder
    given = builder.existing_type(**{field: value})

    def program() -> None:
        parent = pulumi.ComponentResource("test:index:Parent", "parent")
        build(builder, parent, plan_of(stack), given, foundation_stack=None, site_stack=None)

    with pytest.raises(ValueError, match=f"existing has {field}, which has no effect"):
        recorder.record(program)


def test_the_error_for_a_missing_reference_names_the_field_and_the_layer() -> None:
    """The message contains the layer, the key of `use` and the argument."""
    site = Layer(name="site", stack=None, refs=SiteRefs)
    said = r"requires vpc_id, nodes_group_id; set use\.site to the stack that created it, or pass existing=aws\.Existing\(vpc_id=\.\.\.\)"
    with pytest.raises(ValueError, match=said):
        references(site, Existing(subnet_ids={"private-0": "subnet-1"}))


def test_optional_references_have_their_defaults() -> None:
    """A reference that a layer may lack is not required."""
    given = Existing(vpc_id="vpc-1", nodes_group_id="sg-1", subnet_ids={"private-0": "subnet-1"})
    site = references(Layer(name="site", stack=None, refs=SiteRefs), given)
    assert site.file_systems == ()


def test_an_output_that_another_stack_lacks_is_an_error_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the stack, the output and the command to run. An optional output may be missing."""

    def using(outputs: dict[str, str]) -> None:
        monkeypatch.setattr(recorder, "OTHER_STACKS", outputs)
        layer = Layer(name="foundation", stack="organization/gpuinfra/base", refs=FoundationRefs)
        recorder.record(lambda: joined(Existing(), [layer]) and None)

    whole = {"data_key_arn": "arn", "evidence_bucket": "bucket", "evidence_bucket_arn": "arn"}
    using(whole)
    said = r"the stack organization/gpuinfra/base has no output evidence_bucket: .*pulumi up --stack base"
    with pytest.raises(pulumi.RunError, match=said):
        using({**whole, "evidence_bucket": None})  # pyright: ignore[reportArgumentType]


def test_one_stack_can_create_both_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack that creates the foundation and the site is referenced once, because Pulumi refuses a second resource with its name."""
    stack, made = "organization/gpuinfra/base", []
    original = pulumi.StackReference.__init__

    def counted(self: pulumi.StackReference, name: str, *rest: object, **more: object) -> None:
        made.append(name)
        original(self, name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(pulumi.StackReference, "__init__", counted)
    refs = (("foundation", FoundationRefs), ("site", SiteRefs))
    layers = [Layer(name=name, stack=stack, refs=one) for name, one in refs]
    outputs = {
        "data_key_arn": "a",
        "evidence_bucket": "b",
        "evidence_bucket_arn": "a",
        "vpc_id": "v",
        "nodes_group_id": "g",
        "subnet_ids": {},
    }
    monkeypatch.setattr(recorder, "OTHER_STACKS", outputs)
    recorder.record(lambda: joined(Existing(), layers) and None)
    assert made == [stack]
