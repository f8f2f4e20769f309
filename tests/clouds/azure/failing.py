"""Azure with two regions for the tests of a failover: it answers each request, and validates it against the request of the azure-mgmt package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from xml.sax.saxutils import escape

from azure.mgmt.compute.operations import _operations as compute
from azure.mgmt.privatedns.operations import _operations as privatedns
from azure.mgmt.resource.resources.operations import _operations as groups
from azure.mgmt.storage.operations import _operations as storage
from azure.mgmt.storagecache.operations import _operations as cache

from gpuinfra.clouds.azure.blob_list import Blob
from gpuinfra.clouds.azure.rest import NotReached, Rest, RestAnswer
from tests.clouds.azure.region.test_readiness import NOW, POLICIES, REPLICAS, RULE_ID, SOURCES
from tests.doctor.arm import Credential

SUBSCRIPTION = "00000000-0000-4000-8000-000000000001"
SCOPE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups"
SET = f"{SCOPE}/train/providers/Microsoft.Compute/virtualMachineScaleSets/gpu"
FILE_SYSTEM = f"{SCOPE}/train/providers/Microsoft.StorageCache/amlFilesystems/scratch"
MARK = f"{POLICIES[1]}_{RULE_ID}"
_GROUP = {"resource_group_name": "G", "subscription_id": SUBSCRIPTION}
_SET = {**_GROUP, "vm_scale_set_name": "N"}
_ACCOUNT = {**_GROUP, "account_name": "accountname"}
_POLICY = {**_ACCOUNT, "object_replication_policy_id": "N"}
_JOB = {**_GROUP, "aml_filesystem_name": "N"}
_ZONE = {**_GROUP, "private_zone_name": "N"}
_REQUESTS = (
    groups.build_resource_groups_get_request("G", SUBSCRIPTION),
    privatedns.build_private_zones_get_request(**_ZONE),
    *(
        privatedns.build_record_sets_get_request(**_ZONE, record_type=kind, relative_record_set_name="N")
        for kind in ("A", "TXT")
    ),
    *(
        privatedns.build_record_sets_create_or_update_request("G", "N", kind, "N", SUBSCRIPTION)
        for kind in ("A", "TXT")
    ),
    compute.build_virtual_machine_scale_sets_get_request(**_SET),
    compute.build_virtual_machine_scale_sets_update_request(_GROUP["resource_group_name"], "N", SUBSCRIPTION),
    compute.build_virtual_machine_scale_set_vms_list_request(_GROUP["resource_group_name"], "N", SUBSCRIPTION),
    storage.build_storage_accounts_get_properties_request(**_ACCOUNT),
    storage.build_storage_accounts_update_request(**_ACCOUNT),
    storage.build_object_replication_policies_list_request(**_ACCOUNT),
    storage.build_object_replication_policies_delete_request(**_POLICY),
    cache.build_aml_filesystems_get_request(**_JOB),
    cache.build_aml_filesystems_archive_request(**_JOB),
    cache.build_import_jobs_list_by_aml_filesystem_request(**_JOB),
    cache.build_import_jobs_get_request(**_JOB, import_job_name="N1"),
    cache.build_import_jobs_create_or_update_request(**_JOB, import_job_name="N1"),
)
"""Requests of Microsoft's clients."""


def _shape(method: str, path: str) -> tuple[str, ...]:
    """The method and the fixed segments of a path. The other segments are names."""
    return (method, *(part.lower() for part in path.strip("/").split("/")[::2]), str(path.count("/")))


KNOWN = {_shape(one.method, urlsplit(one.url).path) for one in _REQUESTS}


class Regions(Rest):
    """Both regions. `arm` contains the response to each path: a body, a status with an error, or an exception."""

    def __init__(
        self, arm: Mapping[str, Any], blobs: Mapping[str, list[Blob] | int | str | Exception] | None = None
    ) -> None:
        super().__init__(Credential({"idtyp": "app"}), {})
        self.arm_answers, self.blobs = dict(arm), dict(blobs or {})
        self.changes: list[tuple[str, str, Any]] = []
        self.listed: list[str] = []
        self.page = 2
        self.puts: list[tuple[str, Mapping[str, str], bytes | None]] = []
        self.put_status, self.put_code = 201, ""

    def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> RestAnswer:
        parts, query = urlsplit(url), {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        if parts.netloc == "management.azure.com":
            assert _shape(method, parts.path) in KNOWN, (method, parts.path)
            assert query["api-version"]
            return self._arm_answer(method, parts.path, json.loads(body) if body else None)
        return self._blob_answer(method, parts, query, headers, body)

    def _arm_answer(self, method: str, path: str, body: Any) -> RestAnswer:
        if method != "GET":
            self.changes.append((method, path, body))
        found = self.arm_answers.get(path, 404)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, int):
            error = {"error": {"code": "ResourceNotFound" if found == 404 else "Refused", "message": "no"}}
            return RestAnswer(status=found, headers={}, body=json.dumps(error).encode())
        if method == "DELETE":
            del self.arm_answers[path]
        if method == "PUT":
            self.arm_answers[path] = {"id": path, **body}
        return RestAnswer(
            status=200, headers={"Date": format_datetime(NOW, usegmt=True)}, body=json.dumps(found).encode()
        )

    def _blob_answer(self, method: str, parts: Any, query: dict[str, str], headers: Mapping[str, str], body: bytes | None) -> RestAnswer:  # fmt: skip
        assert headers["Authorization"].startswith("Bearer ")
        if method == "PUT":
            self.puts.append((parts.path + (f"?{parts.query}" if parts.query else ""), headers, body))
            return RestAnswer(status=self.put_status, headers={"x-ms-error-code": self.put_code}, body=b"")
        if method == "HEAD":
            return RestAnswer(
                status=200, headers={"x-ms-meta-Owner": "1000", "Content-Type": "text/plain", "ETag": '"e"'}, body=b""
            )
        account = parts.netloc.partition(".")[0]
        assert query["restype"] == "container"
        found = self.blobs.get(f"{account}{parts.path}", 404)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, str):
            return RestAnswer(status=200, headers={}, body=found.encode())
        if isinstance(found, int):
            code = {403: "AuthorizationFailure", 404: "ContainerNotFound"}.get(found, "ServerBusy")
            return RestAnswer(status=found, headers={"x-ms-error-code": code}, body=b"")
        if query.get("comp") != "list":
            return RestAnswer(status=200, headers={}, body=b"")
        self.listed.append(account)
        start = int(query.get("marker") or 0)
        rows, following = found[start : start + self.page], start + self.page
        marker = str(following) if following < len(found) else ""
        text = (
            "<?xml "
            'version="1.0" '
            f'encoding="utf-8"?><EnumerationResults><Blobs>{"".join(map(_row, rows))}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>'
        )
        return RestAnswer(status=200, headers={}, body=text.encode())


def _row(blob: Blob) -> str:
    """A blob in the format of the recorded response (Azure/azure-sdk-for-js, listBlobsFlat with object replication)."""
    marks = "".join(f"<or-{name}>{value}</or-{name}>" for name, value in blob.replication.items())
    metadata = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in blob.metadata.items())
    name = f"<Name>{escape(blob.name)}</Name>"
    if not blob.name.isprintable():
        name = f'<Name Encoded="true">{quote(blob.name)}</Name>'
    return (
        f"<Blob>{name}<Properties><Last-Modified>{format_datetime(blob.modified, usegmt=True)}</Last-Modified><Etag>{blob.etag}</Etag>"
        f"<Content-Length>{blob.size}</Content-Length><Content-MD5>{blob.md5}</Content-MD5><BlobType>{blob.kind}</BlobType></Properties>"
        f"<Metadata>{metadata}</Metadata><OrMetadata>{marks}</OrMetadata></Blob>"
    )


def blob(name: str, **more: Any) -> Blob:
    """A block blob of one byte."""
    known = {
        "etag": f"0x{quote(name)}",
        "size": 1,
        "md5": f"{quote(name)}==",
        "modified": NOW,
        "kind": "BlockBlob",
        "replication": {},
        "metadata": {},
    }
    return Blob(name=name, **{**known, **more})


def account(id_: str, **tags: str) -> dict[str, Any]:
    """A storage account."""
    name = id_.rpartition("/")[2]
    return {"id": id_, "tags": tags, "properties": {"primaryEndpoints": {"blob": f"https://{name}.blob.core.windows.net/"}}}  # fmt: skip


def policy(*, source: bool, rule: str = RULE_ID) -> dict[str, Any]:
    """The list of the policies of an account."""
    held = {
        "policyId": POLICIES[1], "sourceAccount": SOURCES[1], "destinationAccount": REPLICAS[1],
        "rules": [{"ruleId": rule, "sourceContainer": "data", "destinationContainer": "data"}],
    }  # fmt: skip
    other = {**held, "policyId": POLICIES[0], "destinationAccount": REPLICAS[0]}
    return {"value": [{"properties": other}, {"properties": held}] if source else [{"properties": held}]}


ACCOUNTS: dict[str, Any] = {
    SOURCES[1]: account(SOURCES[1]),
    REPLICAS[1]: account(REPLICAS[1], team="research"),
    f"{SOURCES[1]}/objectReplicationPolicies": policy(source=True),
    f"{REPLICAS[1]}/objectReplicationPolicies": policy(source=False),
    f"{SOURCES[1]}/objectReplicationPolicies/{POLICIES[1]}": {},
    f"{REPLICAS[1]}/objectReplicationPolicies/{POLICIES[1]}": {},
}
"""The accounts of a pair with its policy, and another policy of the source account."""
TIMEOUT = NotReached("management.azure.com cannot be reached: timed out")
