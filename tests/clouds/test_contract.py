"""What every component keeps to, on every cloud, whatever it makes: parents, tags, lifetimes, outputs, secrets, previews.

A cloud takes part by having stacks in `stacks/` and a line in `CARRIES`; nothing else here names one.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from typing import Any

import pytest

from gpuinfra.plan.model import Lifetime
from gpuinfra.registry import CLOUDS
from tests.clouds.recorder import Registered
from tests.clouds.stacks import plan_of, recording_of, recording_of_spec, shipped_stacks, spec_of

STACKS = [stack for cloud in CLOUDS for stack in shipped_stacks(cloud)]
WHOLE = {"aws": "aws-p4d", "azure": "azure-ndv5", "gcp": "gcp-a3mega"}
"""A stack of each cloud that holds all layers."""

CARRIES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "aws": ("pulumi_aws", "gpuinfra:cluster", ("tags",)),
    "azure-native": ("pulumi_azure_native", "gpuinfra:cluster", ("tags",)),
    "gcp": ("pulumi_gcp", "gpuinfra-cluster", ("user_labels", "labels", "resource_labels")),
}
"""Package of the types -> SDK, the key of the cluster's name, the arguments that carry tags."""

CARRIES_NONE = {
    "gcp:kms/cryptoKeyVersion:CryptoKeyVersion": "versions follow their key",
    "gcp:compute/resourcePolicy:ResourcePolicy": "no labels in the API",
}

HOLDS = re.compile(
    r"(aws:s3/bucket:Bucket$|aws:kms/key:|aws:cloudwatch/logGroup:.*|azure-native:storage:(StorageAccount|BlobContainer)$|azure-native:keyvault:(Key|Vault)$"
    r"|azure-native:operationalinsights:Workspace$|gcp:storage/bucket:Bucket$|gcp:kms/cryptoKey:|gcp:kms/keyRing:|gcp:logging/projectBucketConfig:)"
)
"""Types that hold data, keys or audit."""

ACCOUNT_S_OWN = frozenset({"NetworkWatcherRG"})
"""What a cloud makes by itself, once, under a name of its own."""

ASKS_FOR_SECRETS = re.compile(r"list\w*(keys|secrets|credentials)|get\w*(secret|password|accesskey|sas)\w*", re.I)


def _class_of(one: Registered) -> Any:
    package, module, kind = one.type.split(":")
    sdk = importlib.import_module(CARRIES[package][0])
    return getattr(getattr(sdk, module.split("/")[0]), kind)


def _of_clouds(stack: str) -> list[Registered]:
    return [one for one in recording_of(stack).custom if one.type.split(":")[0] in CARRIES]


@pytest.mark.parametrize("stack", STACKS)
def test_every_resource_has_a_component_of_ours_as_parent(stack: str) -> None:
    """Nothing hangs on the stack itself but the cluster, and every parent is a component that we wrote."""
    ours = [one for one in recording_of(stack).resources if one.type != "pulumi:pulumi:Stack"]
    parents = {one.name: one.parent.split("::")[2].split("$")[-1] for one in ours}
    (top,) = [name for name, parent in parents.items() if parent == "pulumi:pulumi:Stack"]
    assert top == spec_of(stack).name
    assert all(parent.startswith("gpuinfra:") for name, parent in parents.items() if name != top)


@pytest.mark.parametrize("stack", STACKS)
def test_everything_that_can_carry_tags_carries_ours(stack: str) -> None:
    """Each class with an argument for tags or labels is given the cluster's, because cost and membership are read from them."""
    seen = 0
    for one in _of_clouds(stack):
        _, key, names = CARRIES[one.type.split(":")[0]]
        takes = [name for name in names if name in inspect.signature(_class_of(one)._internal_init).parameters]
        if not takes or one.type in CARRIES_NONE:
            continue
        tags = next((one.inputs[_camel(name)] for name in takes if one.inputs.get(_camel(name))), None)
        if isinstance(tags, list):
            tags = {tag["key"]: tag["value"] for tag in tags}
        assert tags, f"{one.type} {one.name} has no {' or '.join(takes)}"
        assert tags[key] == spec_of(stack).name, one.name
        seen += 1
    assert seen


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


@pytest.mark.parametrize("stack", STACKS)
def test_what_holds_data_audit_or_keys_outlives_the_stack(stack: str) -> None:
    """Such things are retained, unless the plan says that their data ends with the cluster; nothing is protected, so that a destroy ends."""
    plan = plan_of(stack)
    announced = {one.what for one in plan.kept}
    for one in _of_clouds(stack):
        assert not one.protected, one.name
        if HOLDS.match(one.type):
            ends = any(fs.name in one.name and fs.lifetime is Lifetime.ENDS for fs in plan.file_systems)
            assert one.retained or (ends and not one.type.startswith(("aws:s3", "gcp:storage"))) or _scratch(one), (
                one.name
            )
        if one.retained:
            assert one.name in announced, one.name


def _scratch(one: Registered) -> bool:
    """What holds a copy only: logs of a file system that itself ends, bundles, containers of an account that is kept."""
    return one.name.endswith(("-log", "-bundles", "-bootstrap"))


@pytest.mark.parametrize("stack", STACKS)
def test_components_register_their_outputs(stack: str) -> None:
    """Every component ends with its outputs, and the cluster's say what is kept and why."""
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


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_preview_registers_what_an_up_registers(cloud: str) -> None:
    """No resource is made inside an apply: the list of names, parents and lifetimes is complete before anything exists."""
    spec = spec_of(WHOLE[cloud])
    previewed, deployed = (
        {(one.type, one.name, one.parent.split("::")[-1], one.retained, one.protected) for one in told.resources}
        for told in (recording_of_spec(spec, preview=True), recording_of_spec(spec))
    )
    assert previewed == deployed


@pytest.mark.parametrize("stack", STACKS)
def test_no_program_asks_for_a_secret_or_writes_one(stack: str) -> None:
    """Nodes and file systems work by identities: no key, password or token is asked of a cloud, and none is in an input or an output."""
    recording = recording_of(stack)
    assert [token for token, _ in recording.calls if ASKS_FOR_SECRETS.search(token.rsplit(":", 1)[-1])] == []
    told = json.dumps([recording.outputs, [one.inputs for one in recording.custom]], default=str)
    for word in ("PRIVATE KEY", "AccountKey=", "SharedAccessSignature", "aws_secret_access_key", "adminPassword"):
        assert word.lower() not in told.lower(), word


@pytest.mark.parametrize("cloud", CLOUDS)
def test_two_stacks_of_one_account_share_no_name(cloud: str) -> None:
    """Names that are made by us and not by Pulumi differ between stacks of the same declaration, or are inside something whose name does."""
    both = []
    for stack in ("one", "two"):
        recording = recording_of_spec(spec_of(WHOLE[cloud]), stack=stack)
        top = ("bucket", "accountName", "vaultName", "keyRingId", "resourceGroupName", "accountId")
        named = {
            (one.type, key, one.inputs[key])
            for one in recording.custom
            for key in top
            if isinstance(one.inputs.get(key), str) and not one.type.startswith("gpuinfra:")
            if one.inputs[key] not in ACCOUNT_S_OWN
        }
        both.append(named)
    assert both[0]
    assert not both[0] & both[1]


@pytest.mark.parametrize("stack", STACKS)
def test_logical_names_are_unique_and_begin_with_the_cluster(stack: str) -> None:
    """No two resources of one type share a logical name, and each tells whose it is."""
    names = [(one.type, one.name) for one in recording_of(stack).resources if one.type != "pulumi:pulumi:Stack"]
    assert len(names) == len(set(names))
    assert all(name.startswith(spec_of(stack).name) for type_, name in names if not type_.startswith("pulumi:"))


SAME_NAMES = (
    "AuditTrail", "Budget", "Evidence", "Foundation", "Key", "Network", "NodePool", "NodeRole", "SharedFilesystem",
)  # fmt: skip


@pytest.mark.parametrize("cloud", CLOUDS)
def test_clouds_have_components_of_the_same_names(cloud: str) -> None:
    """A program for one cloud reads like one for another: same classes, each with frozen arguments of its own and a docstring."""
    package = importlib.import_module(CLOUDS[cloud])
    for name in SAME_NAMES:
        component, args = getattr(package, name), getattr(package, f"{name}Args")
        assert component.__doc__
        assert args.__doc__
        assert args.__dataclass_params__.frozen
        assert list(inspect.signature(component.__init__).parameters)[:4] == ["self", "name", "args", "opts"]
