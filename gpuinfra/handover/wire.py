"""The wire format of the `gpuinfra:index:NodesReady` resource between engine, plugin and state.

Names are in camelCase, as in every Pulumi provider. Values are plain. During a preview, a marker string represents an unknown value.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from google.protobuf import json_format, struct_pb2

from gpuinfra.handover.causes import CapacityCause
from gpuinfra.handover.judge import NodeVerdict
from gpuinfra.handover.names import NodeNames
from gpuinfra.handover.ports import GroupExpected, Identity, PoolExpected
from gpuinfra.handover.shortages import Shortage
from gpuinfra.handover.watch import Wait, WaitOutcome

TYPE = "gpuinfra:index:NodesReady"
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""The marker that the engine uses for an unknown string (pulumi/sdk/go/common/resource/plugin, UnknownStringValue)."""
SIGNATURE, SECRET = "4dabf18193072939515e22adb298388d", "1b47061264138c4ac30d75fd1eb44270"
"""The key and the value that mark a secret (pulumi/sdk/go/common/resource/properties.go and sig/sig.go of v3.259.0, SigKey and SecretSig)."""
OUTPUTS = ("ready", "nodesVerified", "gpusVerified", "nodes", "lastNumbers", "summary", "ended", "shortages", "trust")
CHECK_VARIABLE = "GPUINFRA_CHECK_NODES"
"""If set, an update checks the nodes again, even if all nodes were verified and nothing changed."""
DEADLINE_VARIABLE = "GPUINFRA_DEADLINE"
"""Shortens the deadline for one run, for example to `90s`, without changing the declaration."""
WAIT_VARIABLE = "GPUINFRA_WAIT"
"""`none` skips the wait for the nodes in one run."""
WAITING_ONLY = frozenset({"deadlineS", "profile", "roleArn", "assumeRoles"})
"""Inputs that concern the wait and the access to the cloud. A change to these inputs does not cause a new judgement."""

Properties = dict[str, object]


def from_struct(struct: struct_pb2.Struct) -> Properties:
    """Convert properties to plain Python values, with integral numbers as int and secrets as their values."""
    value = _whole(json_format.MessageToDict(struct))
    assert isinstance(value, dict)
    return value


def secrets_in(struct: struct_pb2.Struct) -> frozenset[str]:
    """Return the names of the properties that contain a secret."""
    return frozenset(name for name, value in json_format.MessageToDict(struct).items() if _has_secret(value))


def _has_secret(value: object) -> bool:
    if isinstance(value, dict):
        return value.get(SIGNATURE) == SECRET or any(_has_secret(one) for one in value.values())
    return isinstance(value, list) and any(_has_secret(one) for one in value)


def _whole(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        if value.get(SIGNATURE) == SECRET:
            return _whole(value.get("value"))
        return {k: _whole(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_whole(v) for v in value]
    return value


def to_struct(properties: Mapping[str, object], secret: frozenset[str] = frozenset()) -> struct_pb2.Struct:
    """Convert plain values to a protobuf struct, in which the properties in `secret` are secrets."""
    marked = {k: {SIGNATURE: SECRET, "value": v} if k in secret else v for k, v in properties.items()}
    return json_format.ParseDict(marked, struct_pb2.Struct())


def inputs_of(properties: Mapping[str, object]) -> Properties:
    """Return the properties in a state that are inputs."""
    return {k: v for k, v in properties.items() if k not in OUTPUTS and not k.startswith("__")}


def pools_of(inputs: Mapping[str, object]) -> list[PoolExpected]:
    """Return the pools that a resource's inputs declare."""
    return [
        PoolExpected(
            cloud=str(inputs.get("cloud") or ""),
            name=str(pool["name"]),
            machine=str(pool["machine"]),
            bundle_sha256=str(pool.get("bundleSha256") or ""),
            expectation=_mapping(pool.get("expectation")),
            node_role=str(pool.get("nodeRole") or ""),
            evidence_owner=str(pool.get("evidenceOwner") or ""),
            groups=tuple(
                GroupExpected(
                    name=str(group["name"]),
                    group=str(group["group"]),
                    count=int(str(group["count"])),
                    template_version=str(group.get("templateVersion") or ""),
                    kind=str(group.get("kind") or ""),
                    zone=str(group.get("zone") or ""),
                )
                for group in _mappings(pool.get("groups"))
            ),
        )
        for pool in _mappings(inputs.get("pools"))
    ]


def wait_of(inputs: Mapping[str, object], shortened_s: float | None, mode: str | None = None) -> Wait:
    """Return how long to wait. For one run, the operator can shorten the deadline or skip the wait, but cannot extend it."""
    deadline = float(str(inputs.get("deadlineS") or 2700))
    if shortened_s is not None:
        deadline = min(deadline, shortened_s)
    return Wait(
        mode="none" if mode == "none" else str(inputs.get("wait") or "all"),
        floor=int(str(inputs.get("floor") or 0)),
        deadline_s=deadline,
    )


def deadline() -> float | None:
    """Return the deadline in seconds that the operator sets for one run, or None. Raises ValueError with the allowed formats."""
    text = os.environ.get(DEADLINE_VARIABLE)
    try:
        return seconds(text) if text else None
    except ValueError as problem:
        raise ValueError(f"{DEADLINE_VARIABLE}: {problem}") from None


def seconds(text: str) -> float:
    """Parse `90s`, `15m`, `1h` or plain seconds. Raises ValueError with the allowed formats."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        value = float(number) * units[unit]
    except ValueError:
        value = -1.0
    if not 0 < value <= 86400:
        raise ValueError(
            f"{text!r} is not a duration; specify seconds, minutes or hours up to one day, such as 90s, 15m, 1h"
        )
    return value


def outputs_of(outcome: WaitOutcome, short: Iterable[Shortage], summary: str) -> Properties:
    """Return the outputs for the state. They identify the nodes, make it possible to skip identity checks, and state why nodes are missing.

    They do not include check results."""
    verdict = outcome.verdict
    return {
        "ready": outcome.ready,
        "nodesVerified": verdict.verified,
        "gpusVerified": sum(node.gpus_verified for node in verdict.nodes),
        "nodes": [_node(node) for node in verdict.nodes],
        "lastNumbers": dict(verdict.names.last),
        "summary": summary,
        "ended": outcome.ended.value,
        "shortages": [{**asdict(shortage), "cause": shortage.cause.value} for shortage in short],
    }


def shortages_of(properties: Mapping[str, object]) -> list[Shortage]:
    """Return the shortages in a state. A state from an earlier version has none."""
    return [
        Shortage(
            pool=str(entry["pool"]),
            group=str(entry["group"]),
            kind=str(entry["kind"]),
            zone=str(entry["zone"]),
            missing=int(str(entry["missing"])),
            cause=CapacityCause(str(entry["cause"])),
            message=str(entry["message"]),
            hint=str(entry["hint"]),
        )
        for entry in _mappings(properties.get("shortages"))
    ]


def _node(node: NodeVerdict) -> Properties:
    return {
        "label": node.label,
        "pool": node.pool,
        "group": node.group,
        "instanceId": node.instance_id,
        "machine": node.machine,
        "zone": node.zone,
        "privateIp": node.private_ip,
        "resource": node.resource,
        "outcome": node.outcome,
        "cause": node.cause.value if node.cause else "",
        "reason": node.reason,
        "bootId": node.boot_id,
        "evidenceKey": node.evidence_key,
        "evidenceSha256": node.evidence_sha256,
        "gpus": node.gpus_expected,
        "gpuUuids": [gpu["uuid"] for gpu in node.gpus],
        "sshHostKeys": list(node.ssh_host_keys),
        "failedChecks": [str(check.get("id")) for check in node.blocking],
    }


def names_of(properties: Mapping[str, object]) -> NodeNames:
    """Return the labels from a state. If the state has no highest numbers, these numbers are derived from the labels."""
    last = _mapping(properties.get("lastNumbers"))
    return NodeNames(
        labels={str(n["instanceId"]): str(n["label"]) for n in _mappings(properties.get("nodes"))},
        last={pool: number for pool, number in last.items() if isinstance(number, int)},
    )


def trusted_of(properties: Mapping[str, object], pools: list[PoolExpected]) -> dict[str, Identity]:
    """Return the confirmed signers of the evidence of verified nodes, by its key. The signers of other nodes are confirmed again."""
    roles = {pool.name: pool.node_role for pool in pools}
    return {
        str(n["evidenceKey"]): Identity(
            account="",
            role=roles.get(str(n.get("pool")), ""),
            instance_id=str(n["instanceId"]),
            evidence_sha256=str(n["evidenceSha256"]),
        )
        for n in _mappings(properties.get("nodes"))
        if n.get("outcome") == "verified" and n.get("evidenceSha256") and n.get("evidenceKey")
    }


def _mapping(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}


def _mappings(value: object) -> list[dict[str, object]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
