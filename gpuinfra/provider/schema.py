"""The schema of the package, from which Pulumi generates SDKs and with which it checks YAML programs.

The types of the declaration are derived from its models, so the SDKs and the stack files have the same fields. Names are not
converted to camelCase, because a declaration is the same in all languages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuinfra.handover.schema import package_schema as resource_schema
from gpuinfra.reference.schema import schema as stack_file_schema
from gpuinfra.spec.load import KEY

TYPE = "gpuinfra:index:GpuCluster"
MODULE = "gpuinfra:index"
SDK = "@gpuinfra/gpuinfra"
"""Name of the generated npm package."""

_ANY: dict[str, object] = {"$ref": "pulumi.json#/Any"}
_STRING: dict[str, object] = {"type": "string"}
_STRINGS: dict[str, object] = {"type": "object", "additionalProperties": _STRING}
_MAP: dict[str, object] = {"type": "object", "additionalProperties": _ANY}
_LIST: dict[str, object] = {"type": "array", "items": _ANY}

OUTPUTS: Mapping[str, tuple[dict[str, object], str]] = {
    "ready": ({"type": "boolean"}, "True when the number of verified nodes meets `handover.wait`."),
    "summary": (_STRING, "The result of the verification in one line."),
    "nodes": (_LIST, "One entry per node: its label, instance ID, pool, group, outcome and reason."),
    "nodes_verified": ({"type": "integer"}, "Number of verified nodes."),
    "gpus_verified": ({"type": "integer"}, "Number of verified GPUs."),
    "groups": (_STRINGS, "Groups of instances, keyed by the group's name in the plan."),
    "kept": ({"type": "array", "items": _STRINGS}, "Resources that `destroy` retains, with the reasons."),
    "subnet_ids": (_STRINGS, "Subnets, keyed by the subnet's name in the plan."),
    "file_systems": (_LIST, "File systems that nodes mount, each with `kind`, `mount`, `dns_name` and `mount_name`. Home directories also have `service`."),
    "data_buckets": (_STRINGS, "Buckets of file systems and mounts, keyed by name in the plan."),
    "recovery": (_MAP, "Keys, buckets and replication of the second region."),
    "import_commands": (_STRINGS, "Google Cloud: commands that copy a bucket to its file system, keyed by mount."),
    "export_commands": (_STRINGS, "Azure and Google Cloud: commands that copy a file system to its bucket, keyed by mount."),
    "evidence_bucket": (_STRING, "Bucket for bundles and evidence. On Azure, the URL of the container."),
    "audit_bucket": (_STRING, "AWS and Google Cloud: bucket of the audit trail."),
    "nodes_group_id": (_STRING, "AWS and Azure: security group of the nodes."),
    "network_id": (_STRING, "Azure and Google Cloud: network of the nodes."),
    "vpc_id": (_STRING, "AWS: VPC of the nodes."),
    "node_role": (_STRING, "AWS: name of the role of the nodes."),
    "node_role_id": (_STRING, "AWS: unique ID of the role of the nodes, if the site creates it."),
    "node_profile_arn": (_STRING, "AWS: ARN of the instance profile of the nodes, if the site creates the role."),
    "data_key_arn": (_STRING, "AWS: KMS key for disks, evidence and file systems."),
    "log_key_arn": (_STRING, "AWS: KMS key for log groups."),
    "access_log_bucket": (_STRING, "AWS: bucket that receives the access logs of other buckets."),
    "evidence_bucket_arn": (_STRING, "AWS: ARN of the evidence bucket."),
    "audit_trail_arn": (_STRING, "AWS: ARN of the audit trail."),
    "node_identity": (_STRING, "Azure: ID of the managed identity of the nodes."),
    "members_group_id": (_STRING, "Azure: application security group that the interfaces of the nodes join."),
    "evidence_account_id": (_STRING, "Azure: ID of the storage account of the evidence."),
    "evidence_container_id": (_STRING, "Azure: resource ID of the container of the evidence."),
    "audit_account_id": (_STRING, "Azure: ID of the storage account of the audit trail."),
    "vault_id": (_STRING, "Azure: ID of the key vault."),
    "vault_uri": (_STRING, "Azure: URL of the key vault."),
    "data_key_name": (_STRING, "Azure: name of the key for file systems."),
    "data_key_url": (_STRING, "Azure: URL of a version of that key."),
    "data_key_identity_id": (_STRING, "Azure: ID of the identity that can use that key."),
    "disk_encryption_set_id": (_STRING, "Azure: disk encryption set of the nodes."),
    "workspace_id": (_STRING, "Azure: Log Analytics workspace for access and flow logs."),
    "project": (_STRING, "Google Cloud: project of the resources."),
    "node_service_account": (_STRING, "Google Cloud: email address of the service account of the nodes."),
    "data_key_id": (_STRING, "Google Cloud: key for disks, evidence and file systems."),
    "audit_log_bucket": (_STRING, "Google Cloud: log bucket of the audit trail."),
}  # fmt: skip
"""Outputs of the component: name -> (type, description). They are the outputs of `GpuCluster` in Python."""


def package_schema(version: str) -> dict[str, Any]:
    """Return the schema as a JSON document."""
    schema: dict[str, Any] = resource_schema(version)
    schema["types"] = {_token(name): _object(one) for name, one in stack_file_schema()["$defs"].items()}
    schema["resources"][TYPE] = {
        "isComponent": True,
        "description": "A GPU cluster: a foundation (audit trail, keys, evidence), a site (network, file systems), and verified nodes.\n\n"
        "Give the resource the name of the cluster, because `gpuinfra adopt` imports retained resources under that name.",
        "inputProperties": {
            "spec": {
                **_reference("ClusterSpec"),
                "plain": True,
                "description": f"The declaration, with the fields of `{KEY}` in a stack file. By default, the declaration is "
                f"`{KEY}` in the configuration of the stack, so that gpuinfra's commands can read it.",
            },
            "existing": {
                **_MAP,
                "description": "Resources that the cluster uses but does not create, with the fields of `gpuinfra.clouds.CLOUD.Existing`.",
            },
        },
        "properties": {name: {**type_, "description": text} for name, (type_, text) in OUTPUTS.items()},
    }
    schema["language"] = {"nodejs": {"packageName": SDK, "respectSchemaVersion": True}}
    return schema


def _token(model: str) -> str:
    return f"{MODULE}:{model}"


def _reference(model: str) -> dict[str, Any]:
    return {"$ref": f"#/types/{_token(model)}"}


def _object(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the package's type for a model of the declaration."""
    fields: Mapping[str, Mapping[str, Any]] = model.get("properties", {})
    # The kind of an entry distinguishes the models, so it is required although each model has a default.
    tags = [name for name, one in fields.items() if "const" in one]
    required = sorted({*model.get("required", ()), *tags})
    return {
        "type": "object",
        **_described(model),
        "properties": {name: {**_type(one), **_described(one), **_fixed(one)} for name, one in fields.items()},
        **({"required": required} if required else {}),
    }


def _described(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the description with the allowed values, because a package's type for them would reject values that need no change of a program."""
    values = ", ".join(f"`{value}`" for value in _values(schema))
    text = " ".join(filter(None, [schema.get("description"), f"Allowed values: {values}." if values else ""]))
    return {"description": text} if text else {}


def _values(schema: Mapping[str, Any]) -> list[object]:
    """Return the allowed values of a field or of its items."""
    inner = [*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else [])]
    return [*schema.get("enum", ()), *(value for one in inner for value in _values(one))]


def _fixed(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"const": schema["const"]} if "const" in schema else {}


def _type(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the package's type for a JSON schema. All values are plain: the plan requires them before any resource exists."""
    if "$ref" in schema:
        return {**_reference(str(schema["$ref"]).rpartition("/")[2]), "plain": True}
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return _choice([_type(one) for one in choices if one.get("type") != "null"], schema.get("discriminator"))
    kind = schema["type"]
    if kind == "array":
        return {"type": "array", "items": _type(schema["items"]), "plain": True}
    if kind == "object":
        (values,) = schema["patternProperties"].values()
        return {"type": "object", "additionalProperties": _type(values), "plain": True}
    return {"type": kind, "plain": True}


def _choice(types: list[dict[str, Any]], discriminator: Mapping[str, Any] | None) -> dict[str, Any]:
    flat = [inner for one in types for inner in one.get("oneOf", [one])]
    different = [one for index, one in enumerate(flat) if one not in flat[:index]]
    if len(different) == 1:
        return different[0]
    choice: dict[str, Any] = {"oneOf": different, "plain": True}
    if discriminator:
        mapping = {tag: _reference(ref.rpartition("/")[2])["$ref"] for tag, ref in discriminator["mapping"].items()}
        choice["discriminator"] = {"propertyName": discriminator["propertyName"], "mapping": mapping}
    return choice
