"""Requirements for components of every cloud: parents, tags, lifetimes, outputs, secrets, previews.

A cloud takes part with stacks in `stacks/` and an entry in `TAGGED`.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.registry import CLOUDS, cloud_as
from gpuinfra.clouds.cloud import BuiltCloud
from gpuinfra.handover.component import _OUTPUTS as NODES_READY
from gpuinfra.plan.model import Lifetime
from gpuinfra.provider.schema import OUTPUTS, TYPE
from tests.clouds.recorder import Registered, record
from tests.clouds.stacks import plan_of, recording_of, recording_of_spec, shipped_stacks, spec_of

DOCS = Path(__file__).parents[2] / "docs"
STACKS = [stack for cloud in CLOUDS for stack in shipped_stacks(cloud)]
WHOLE = {"aws": "aws-p4d", "azure": "azure-ndv5", "gcp": "gcp-a3mega"}
"""A stack of each cloud with all layers."""

TAGGED: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "aws": ("pulumi_aws", "gpuinfra:cluster", ("tags",)),
    "azure-native": ("pulumi_azure_native", "gpuinfra:cluster", ("tags",)),
    "gcp": ("pulumi_gcp", "gpuinfra-cluster", ("user_labels", "labels", "resource_labels")),
}
"""Package of the types -> SDK, key of the tag with the cluster name, arguments for tags."""

UNTAGGED = {
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": "the VPC creates it, and policies allow tags only at creation",
    "gcp:kms/cryptoKeyVersion:CryptoKeyVersion": "versions follow their key",
    "gcp:compute/resourcePolicy:ResourcePolicy": "no labels in the API",
}

RETAINED_TYPES = re.compile(
    r"(aws:s3/bucket:Bucket$|aws:kms/key:|aws:cloudwatch/logGroup:.*|azure-native:storage:(StorageAccount|BlobContainer)$|azure-native:keyvault:(Key|Vault)$"
    r"|azure-native:operationalinsights:Workspace$|gcp:storage/bucket:Bucket$|gcp:kms/cryptoKey:|gcp:kms/keyRing:|gcp:logging/projectBucketConfig:)"
)
"""Types that hold data, keys or audit."""

CREATED_BY_CLOUD = frozenset({"NetworkWatcherRG"})
"""Resources that a cloud creates itself, with a fixed name."""

RETURNS_SECRETS = re.compile(r"list\w*(keys|secrets|credentials)|get\w*(secret|password|accesskey|sas)\w*", re.I)


def _class_of(one: Registered) -> Any:
    package, module, kind = one.type.split(":")
    sdk = importlib.import_module(TAGGED[package][0])
    return getattr(getattr(sdk, module.split("/")[0]), kind)


def _references(cloud: str) -> tuple[type[Any], type[Any]]:
    builder = cloud_as(cloud, BuiltCloud).builder
    return builder.foundation_refs, builder.site_refs


def _of_clouds(stack: str) -> list[Registered]:
    return [one for one in recording_of(stack).custom if one.type.split(":")[0] in TAGGED]


@pytest.mark.parametrize("stack", STACKS)
def test_every_resource_is_inside_a_component(stack: str) -> None:
    """Only the cluster is a child of the stack; the parent of every other resource is a component of gpuinfra."""
    ours = [one for one in recording_of(stack).resources if one.type != "pulumi:pulumi:Stack"]
    parents = {one.name: one.parent.split("::")[2].split("$")[-1] for one in ours}
    (top,) = [name for name, parent in parents.items() if parent == "pulumi:pulumi:Stack"]
    assert top == spec_of(stack).name
    assert all(parent.startswith("gpuinfra:") for name, parent in parents.items() if name != top)


@pytest.mark.parametrize("stack", STACKS)
def test_every_taggable_resource_has_the_tags_of_the_cluster(stack: str) -> None:
    """Each class with an argument for tags or labels has the tags of the cluster, which cost reports and the handover read."""
    assert _count_tagged(_of_clouds(stack), spec_of(stack).name)


PROGRAMS = [
    pytest.param(program, id=f"{page.stem}-{index}")
    for cloud in ("aws", "azure", "gcp")
    for page in sorted((DOCS / "reference").glob(f"{cloud}*.md"))
    for index, program in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_component_alone_tags_its_resources(program: str) -> None:
    """The programs of the clouds' pages create single components, whose resources have the tags of the cluster too."""
    created = record(lambda: exec(compile(program, "page", "exec"), {})).custom
    clouds = [one for one in created if not one.type.startswith(("gpuinfra:", "pulumi:"))]
    assert _count_tagged(clouds, None)


def _count_tagged(resources: Iterable[Registered], cluster: str | None) -> int:
    """The number of resources that have tags. Raises AssertionError for one that takes tags and lacks the cluster's."""
    seen = 0
    for one in resources:
        _, key, names = TAGGED[one.type.split(":")[0]]
        takes = [name for name in names if name in inspect.signature(_class_of(one)._internal_init).parameters]
        if not takes or one.type in UNTAGGED:
            continue
        tags = next((one.inputs[_camel(name)] for name in takes if one.inputs.get(_camel(name))), None)
        if isinstance(tags, list):
            tags = {tag["key"]: tag["value"] for tag in tags}
        assert tags, f"{one.type} {one.name} has no {' or '.join(takes)}"
        assert tags[key] == cluster or cluster is None, one.name
        seen += 1
    return seen


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


@pytest.mark.parametrize("stack", STACKS)
def test_destroy_retains_data_audit_records_and_keys(stack: str) -> None:
    """They are retained unless the plan deletes their data with the cluster. No resource is protected, so `destroy` succeeds."""
    plan = plan_of(stack)
    announced = {one.what for one in plan.kept}
    for one in _of_clouds(stack):
        assert not one.protected, one.name
        if RETAINED_TYPES.match(one.type):
            ends = any(fs.name in one.name and fs.lifetime is Lifetime.ENDS for fs in plan.file_systems)
            assert one.retained or (ends and not one.type.startswith(("aws:s3", "gcp:storage"))) or _scratch(one), (
                one.name
            )
        if one.retained:
            assert one.name in announced, one.name


def _scratch(one: Registered) -> bool:
    """Resources with copies, and logs: of a file system that is deleted, and of the nodes. Bundles, containers of a retained account."""
    return one.name.endswith(("-log", "-logs-group", "-bundles", "-bootstrap"))


@pytest.mark.parametrize("stack", STACKS)
def test_components_register_their_outputs(stack: str) -> None:
    """Every component registers outputs, and the outputs of the cluster list retained resources with the reason."""
    recording = recording_of(stack)
    components = [one for one in recording.resources if not one.custom and one.type != "pulumi:pulumi:Stack"]
    assert components
    for one in components:
        assert one.urn in recording.outputs, one.name
    cluster = next(one for one in components if one.type == "gpuinfra:index:GpuCluster")
    outputs = recording.outputs[cluster.urn]
    assert {kept["what"] for kept in outputs["kept"]} == {one.name for one in recording.custom if one.retained}
    assert all(kept["why"] for kept in outputs["kept"])
    assert outputs["spec"]["name"] == spec_of(stack).name


def test_schema_of_the_package_has_the_outputs_of_the_clusters() -> None:
    """The programs of other languages can read every output of the shipped stacks, and the schema has no other outputs."""
    recordings = [recording_of(stack) for stack in STACKS]
    registered = {
        name
        for recording in recordings
        for one in recording.resources
        if one.type == TYPE
        for name in recording.outputs[one.urn]
    }
    fields = {field.name for cloud in CLOUDS for refs in _references(cloud) for field in dataclasses.fields(refs)}
    assert registered - {"spec"} <= set(OUTPUTS)
    assert set(OUTPUTS) <= registered | fields | set(NODES_READY)  # The mocks do not return the outputs of NodesReady.


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_preview_registers_all_resources(cloud: str) -> None:
    """No resource is created inside `apply`: a preview registers the same names, parents and lifetimes as an update."""
    spec = spec_of(WHOLE[cloud])
    previewed, deployed = (
        {(one.type, one.name, one.parent.split("::")[-1], one.retained, one.protected) for one in told.resources}
        for told in (recording_of_spec(spec, preview=True), recording_of_spec(spec))
    )
    assert previewed == deployed


@pytest.mark.parametrize("stack", STACKS)
def test_programs_read_and_write_no_secrets(stack: str) -> None:
    """Nodes and file systems use identities: no call returns a key, password or token, and no input or output contains one."""
    recording = recording_of(stack)
    assert [token for token, _ in recording.calls if RETURNS_SECRETS.search(token.rsplit(":", 1)[-1])] == []
    told = json.dumps([recording.outputs, [one.inputs for one in recording.custom]], default=str)
    for word in ("PRIVATE KEY", "AccountKey=", "SharedAccessSignature", "aws_secret_access_key", "adminPassword"):
        assert word.lower() not in told.lower(), word


@pytest.mark.parametrize("cloud", CLOUDS)
def test_two_stacks_in_one_account_have_different_names(cloud: str) -> None:
    """Fixed names differ between stacks with the same declaration, or are inside a resource whose name differs."""
    both = []
    for stack in ("one", "two"):
        recording = recording_of_spec(spec_of(WHOLE[cloud]), stack=stack)
        top = ("bucket", "accountName", "vaultName", "keyRingId", "resourceGroupName", "accountId")
        named = {
            (one.type, key, one.inputs[key])
            for one in recording.custom
            for key in top
            if isinstance(one.inputs.get(key), str) and not one.type.startswith("gpuinfra:")
            if one.inputs[key] not in CREATED_BY_CLOUD
        }
        both.append(named)
    assert both[0]
    assert not both[0] & both[1]


@pytest.mark.parametrize("stack", STACKS)
def test_logical_names_are_unique_and_begin_with_the_cluster_name_name(stack: str) -> None:
    """No two resources of one type have the same logical name, and each name begins with the name of the cluster."""
    names = [(one.type, one.name) for one in recording_of(stack).resources if one.type != "pulumi:pulumi:Stack"]
    assert len(names) == len(set(names))
    assert all(name.startswith(spec_of(stack).name) for type_, name in names if not type_.startswith("pulumi:"))


SAME_NAMES = (
    "AuditTrail", "Budget", "Evidence", "Foundation", "Key", "Network", "NodePool", "NodeRole", "SharedFilesystem",
)  # fmt: skip


@pytest.mark.parametrize("cloud", CLOUDS)
def test_clouds_have_components_of_the_same_names(cloud: str) -> None:
    """Programs for different clouds use the same class names, each with a frozen class of arguments and a docstring."""
    package = importlib.import_module(CLOUDS[cloud])
    for name in SAME_NAMES:
        component, args = getattr(package, name), getattr(package, f"{name}Args")
        assert component.__doc__
        assert args.__doc__
        assert args.__dataclass_params__.frozen
        assert list(inspect.signature(component.__init__).parameters)[:4] == ["self", "name", "args", "opts"]
