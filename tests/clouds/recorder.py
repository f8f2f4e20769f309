"""Pulumi mocks that record every registration: type, name, inputs, parent and resource options."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi.runtime import mocks, settings, sync_await
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.stack import run_pulumi_func

from gpuinfra.clouds.saved import OUTPUTS

ACCOUNT = "000000000000"

OTHER_STACKS: dict[str, Any] = {
    "data_key_arn": f"arn:aws:kms:us-east-1:{ACCOUNT}:key/00000000-0000-0000-0000-000000000001",
    "log_key_arn": f"arn:aws:kms:us-east-1:{ACCOUNT}:key/00000000-0000-0000-0000-000000000002",
    "access_log_bucket": "base-access",
    "evidence_bucket": "base-evidence-000000000000-us-east-1-305ae480",
    "evidence_bucket_arn": "arn:aws:s3:::base-evidence-000000000000-us-east-1-305ae480",
    "vpc_id": "vpc-00000000000000001",
    "subnet_ids": {
        "private-4": "subnet-00000000000000001",
        "private-0": "projects/my-project/regions/us-central1/subnetworks/lab-network-private-0-0a1b2c3d",
        **{
            name: f"projects/my-project/regions/us-central1/subnetworks/lab-network-{name}-0a1b2c3d"
            for name in ("host-1", *(f"data-{index}" for index in range(8)))
        },
    },
    "nodes_group_id": "sg-00000000000000001",
    "data_key_id": "projects/my-project/locations/us-central1/keyRings/base-data-0a1b2c3d/cryptoKeys/base-data-0a1b2c3d",
    "network_id": "projects/my-project/global/networks/lab-network-main-0a1b2c3d",
    "file_systems": [
        {"kind": "lustre", "mount": "/scratch", "dns_name": "fs-1.fsx.us-east-1.amazonaws.com", "mount_name": "abcdef"}
    ],
}
"""Outputs of a foundation and a site, for stack references."""


@dataclass(frozen=True, kw_only=True)
class Registered:
    """One resource as the program registered it."""

    type: str
    name: str
    custom: bool
    inputs: dict[str, Any]
    parent: str
    """URN of the parent, empty for the stack itself."""
    retained: bool
    protected: bool
    ignored: tuple[str, ...]
    fixed: tuple[str, ...]
    """Inputs in `replace_on_changes`."""
    old_first: bool | None
    """`delete_before_replace`; None if the provider decides."""
    timeouts: dict[str, str]
    """Custom timeouts by operation."""
    depends_on: tuple[str, ...]
    urn: str
    id: str
    before_create: tuple[str, ...]
    """Hooks that the engine runs before it creates the resource."""
    after_create: tuple[str, ...]


@dataclass
class Recording:
    """The registrations of one program."""

    resources: list[Registered] = field(default_factory=list)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Outputs that components registered, by URN."""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def of(self, type_: str) -> list[Registered]:
        """Custom resources of one type, sorted by name."""
        return sorted((one for one in self.resources if one.type == type_), key=lambda one: one.name)

    def one(self, type_: str, name: str | None = None) -> Registered:
        """The only resource of a type, or the one of that name."""
        found = [resource for resource in self.of(type_) if name is None or resource.name == name]
        assert len(found) == 1, f"{len(found)} of {type_} {name or ''}: {[resource.name for resource in found]}"
        return found[0]

    def before(self, one: Registered) -> list[Registered]:
        """The direct and indirect dependencies of a resource."""
        known = {other.urn: other for other in self.resources}
        found: dict[str, Registered] = {}
        waiting = list(one.depends_on)
        while waiting:
            urn = waiting.pop()
            if urn in known and urn not in found:
                found[urn] = known[urn]
                waiting += known[urn].depends_on
        return list(found.values())

    @property
    def custom(self) -> list[Registered]:
        """Resources that a cloud holds."""
        return [one for one in self.resources if one.custom and not one.type.startswith("pulumi:")]


Held = Mapping[tuple[str, str], tuple[str, Mapping[str, Any]]]
"""(type, logical name) -> (id, outputs)."""


class _Monitor(mocks.MockMonitor):
    """A mock monitor that records requests, because mocks do not receive options such as `retainOnDelete`."""

    def __init__(self, recording: Recording, held: Held) -> None:
        super().__init__(_Cloud(recording, held))
        self._recording = recording

    def RegisterResource(self, request: resource_pb2.RegisterResourceRequest) -> Any:
        response = super().RegisterResource(request)
        self._recording.resources.append(
            Registered(
                type=request.type,
                name=request.name,
                custom=request.custom,
                inputs=_plain(mocks.rpc.deserialize_properties(request.object)),
                parent=request.parent,
                retained=request.retainOnDelete,
                protected=request.protect,
                ignored=tuple(request.ignoreChanges),
                fixed=tuple(request.replaceOnChanges),
                old_first=request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None,
                timeouts={
                    key: value
                    for key in ("create", "update", "delete")
                    if (value := getattr(request.customTimeouts, key))
                },
                depends_on=tuple(request.dependencies),
                urn=response.urn,
                id=response.id,
                before_create=tuple(request.hooks.before_create),
                after_create=tuple(request.hooks.after_create),
            )
        )
        return response

    def RegisterResourceOutputs(self, request: resource_pb2.RegisterResourceOutputsRequest) -> Any:
        self._recording.outputs[request.urn] = _plain(mocks.rpc.deserialize_properties(request.outputs))
        return super().RegisterResourceOutputs(request)


class _Cloud(pulumi.runtime.Mocks):
    def __init__(self, recording: Recording, held: Held) -> None:
        self._recording = recording
        self._held = held

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        """A stable id, and the inputs with the outputs that other resources read."""
        if args.typ == "pulumi:pulumi:StackReference":
            return args.name, {"name": args.name, "outputs": OTHER_STACKS}
        if (args.typ, args.name) in self._held:
            id_, outputs = self._held[args.typ, args.name]
            return id_, {**args.inputs, **outputs}
        if args.typ == "pulumi:index:Stash":
            return args.name, {"input": args.inputs["input"], "output": args.inputs["input"]}
        if answers := _answers(args.typ):
            return answers.resource(args.typ, args.name, dict(args.inputs))
        id_ = _id(args.typ, args.name)
        known = {
            "arn": _arn(args.typ, args.name, args.inputs),
            "bucket": args.name,
            "dnsName": f"{args.name}.fsx.us-east-1.amazonaws.com",
            "mountName": "mockmount",
            "prometheusEndpoint": "https://aps-workspaces.us-east-1.amazonaws.com/workspaces/mock/",
            "keyId": id_,
            "latestVersion": 1,
            "uniqueId": "AROA00000000000000001",
            "allocationId": allocation_id(args.name),
            "name": args.name,
        }
        return id_, {**known, **args.inputs}

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        """The result of an invoke."""
        if args.token == OUTPUTS:  # The stack has not been deployed before.
            return {"outputs": {}}, []
        self._recording.calls.append((args.token, dict(args.args)))
        if answers := _answers(args.token):
            return answers.call(args.token, dict(args.args)), []
        if args.token == "aws:index/getCallerIdentity:getCallerIdentity":
            return {
                "accountId": ACCOUNT,
                "arn": f"arn:aws:iam::{ACCOUNT}:user/somebody",
                "id": ACCOUNT,
                "userId": "AIDA0",
            }, []
        if args.token == "aws:index/getAvailabilityZone:getAvailabilityZone":
            return {"name": "us-east-1a", "zoneId": args.args["zoneId"], "id": "us-east-1a"}, []
        if args.token == "aws:ssm/getParameter:getParameter":
            return {"name": args.args["name"], "value": "ami-00000000000000001", "type": "String"}, []
        if args.token == "aws:ec2/getAmi:getAmi":
            return {"id": "ami-00000000000000002"}, []
        raise AssertionError(f"the program calls {args.token}, which no plan needs")


_ANSWERS = {
    "gcp:": "tests.clouds.gcp.answers",
    "azure-native:": "tests.clouds.azure.answers",
    "gpuinfra:index:azure": "tests.clouds.azure.answers",
}
"""Prefix of a token -> module with the mock of that cloud: `resource(type, name, inputs) -> (id, outputs)`, `call(token, arguments)`."""


def _answers(token: str) -> Any:
    module = next((module for begins, module in _ANSWERS.items() if token.startswith(begins)), None)
    return importlib.import_module(module) if module else None


_PREFIXES = {
    "aws:ec2/vpc:Vpc": "vpc",
    "aws:ec2/subnet:Subnet": "subnet",
    "aws:ec2/securityGroup:SecurityGroup": "sg",
    "aws:ec2/internetGateway:InternetGateway": "igw",
    "aws:ec2/natGateway:NatGateway": "nat",
    "aws:ec2/routeTable:RouteTable": "rtb",
    "aws:ec2/launchTemplate:LaunchTemplate": "lt",
    "aws:ebs/volume:Volume": "vol",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "fs",
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem": "fs",
    "aws:efs/fileSystem:FileSystem": "fs",
    "aws:amp/workspace:Workspace": "ws",
}
_ARNS = {
    "aws:s3/bucket:Bucket": "arn:aws:s3:::{bucket}",
    "aws:kms/key:Key": "arn:aws:kms:{region}:{account}:key/{id}",
    "aws:iam/role:Role": "arn:aws:iam::{account}:role/{name}",
    "aws:iam/instanceProfile:InstanceProfile": "arn:aws:iam::{account}:instance-profile/{name}",
    "aws:cloudwatch/logGroup:LogGroup": "arn:aws:logs:us-east-1:{account}:log-group:{group}",
    "aws:ebs/volume:Volume": "arn:aws:ec2:{region}:{account}:volume/{id}",
    "aws:sns/topic:Topic": "arn:aws:sns:{region}:{account}:{name}",
    "aws:amp/workspace:Workspace": "arn:aws:aps:{region}:{account}:workspace/{id}",
    "aws:cloudtrail/trail:Trail": "arn:aws:cloudtrail:us-east-1:{account}:trail/{name}",
}
_NAMED_BY_ID = (
    "aws:iam/",
    "aws:autoscaling/group",
    "aws:cloudwatch/metricAlarm",
    "aws:cloudwatch/eventRule",
    "aws:sns/topic:",
)


def _hex(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:17]


def allocation_id(name: str) -> str:
    """The allocation id of an Elastic IP address."""
    return f"eipalloc-{_hex(name)}"


def _id(type_: str, name: str) -> str:
    """An id in the format of AWS, which the request models check."""
    if type_ in _PREFIXES:
        return f"{_PREFIXES[type_]}-{_hex(name)}"
    if type_ == "aws:kms/key:Key":
        return str(uuid.uuid5(uuid.NAMESPACE_OID, name))
    return name if type_.startswith(_NAMED_BY_ID) else f"{name}-id"


def _arn(type_: str, name: str, inputs: dict[str, Any]) -> str:
    form = _ARNS.get(type_, "arn:aws:mock:us-east-1:{account}:{name}")
    bucket, group = inputs.get("bucket"), inputs.get("name")
    region = inputs.get("region") or "us-east-1"
    return form.format(account=ACCOUNT, region=region, id=_id(type_, name), name=name, bucket=bucket, group=group)


def have_event_loop() -> None:
    """Give the thread a current event loop, which Pulumi's mocks need and which `asyncio.run` in another test removes."""
    try:
        asyncio.get_event_loop_policy().get_event_loop()
    except RuntimeError:
        asyncio.set_event_loop(asyncio.new_event_loop())


def record(
    program: Callable[[], None],
    *,
    project: str = "gpuinfra",
    stack: str = "test",
    preview: bool = False,
    held: Held | None = None,
) -> Recording:
    """Run a program against the mocks and return its registrations.

    `held` contains existing resources by type and logical name; their ids and outputs replace generated ones.
    """
    held = held or {}
    recording = Recording()
    have_event_loop()
    # Otherwise the root of an earlier recording is the parent of all resources of this one.
    settings.ROOT.set(None)
    mocks.set_mocks(
        _Cloud(recording, held),
        project=project,
        stack=stack,
        preview=preview,
        monitor=_Monitor(recording, held),
        organization="organization",
    )
    settings.SETTINGS.rpc_manager.clear()  # pyright: ignore[reportAttributeAccessIssue]: read through a context variable
    settings.SETTINGS.outputs.clear()  # pyright: ignore[reportAttributeAccessIssue]
    sync_await._sync_await(run_pulumi_func(program))
    return recording


def _plain(value: Any) -> Any:
    """Nested values without Pulumi's wrappers."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
