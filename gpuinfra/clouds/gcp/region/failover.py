"""Failover requests: stop managed instance groups and replication jobs, and import a replica into Managed Lustre.

Requests and responses: the REST references of Compute Engine (instanceGroupManagers.get, resize, listManagedInstances, resizeRequests.list and
cancel), Cloud Storage (objects.list, objects.get), Storage Transfer (transferJobs.get, patch) and Managed Lustre (instances.importData,
operations.list and get), and Google's discovery documents. Managed Lustre has no bundled discovery document; its messages are those of
`packages/google-cloud-lustre` in googleapis/google-cloud-python. All retrieved 2026-11-26.

A replica has its own generation numbers and times, and Storage Transfer Service compares checksums to decide whether an object is different
(`TransferOptions.overwriteWhen` in the discovery document of Storage Transfer; https://docs.cloud.google.com/storage-transfer/docs/cross-bucket-replication,
retrieved 2026-11-26). An object is therefore replicated if the replica has the same size and the same checksums. A list does not contain the
checksums of objects that are encrypted with a customer-managed key
(https://cloud.google.com/storage/docs/encryption/customer-managed-keys#restrictions, as quoted in apache/airflow issue 34980, retrieved 2026-11-26),
so the jobs of this stack store the time at which the source was created in each copy, and only objects without this time are read one by one.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.safe_text import one_line
from gpuinfra.base.words import counted
from gpuinfra.clouds.gcp.api import COMPUTE_ENGINE, LUSTRE, STORAGE, TRANSFER, Api
from gpuinfra.clouds.gcp.region.readiness import schedules_in
from gpuinfra.clouds.region.failover import BucketPair, Resource, not_copied

GROUP = "gcp:compute/instanceGroupManager:InstanceGroupManager"
JOB = "gcp:storage/transferJob:TransferJob"
FILE_SYSTEM = "gpuinfra:gcp:SharedFilesystem"
REQUEST = "gcp:compute/resizeRequest:ResizeRequest"
GRANT = "gcp:storage/bucketIAMMember:BucketIAMMember"
AGENT = "@storage-transfer-service.iam.gserviceaccount.com"
"""End of the service agent's name (https://cloud.google.com/iam/docs/service-agents, retrieved 2026-11-29)."""
POLICY_VERSION = "3"
"""Without this version, a policy with conditions is returned without them (https://cloud.google.com/iam/docs/policies, retrieved 2026-11-29)."""
DISABLED = "DISABLED"
"""Status of a replication job that copies nothing."""
QUEUED = ("ACCEPTED", "CREATING")
"""States of a resize request that can still add instances to its group."""
THREADS = 16
FIELDS = "name,size,generation,crc32c,md5Hash,timeCreated,timeDeleted,customTime"

Object = Mapping[str, Any]
Binding = Mapping[str, Any]
"""A binding of an IAM policy: `role`, `members` and `condition`."""
Content = tuple[str, str, str]
"""Size, CRC32C and MD5 of an object. The MD5 of a composite object is empty (https://cloud.google.com/storage/docs/composite-objects, retrieved 2026-11-26)."""


def connect(region: str, second: str, config: Mapping[str, object]) -> GcpFailover:
    """Use the credentials from the environment. Addresses of Google's APIs do not contain a region."""
    return GcpFailover(Api())


class GcpFailover:
    """The requests for one failover. `gpuinfra.clouds.region.failover.Failover` describes the methods."""

    global_replication = True

    def __init__(self, api: Api) -> None:
        self._api = api
        self._contents: dict[tuple[str, str, str], Content] = {}
        """Bucket, name and generation -> content, which never changes."""
        self._queued: dict[str, list[str]] = {}
        """Group -> names of the resize requests in the states of the stacks."""
        self._imports: dict[str, str] = {}
        """File system -> path in Cloud Storage."""

    def groups(self, resources: Iterable[Resource]) -> tuple[str, ...]:
        all_resources = [*resources]
        for resource in all_resources:
            group, _, request = str(resource.get("id")).partition("/resizeRequests/")
            if resource.get("type") == REQUEST and request:
                self._queued.setdefault(group, []).append(request)
        return tuple(str(one.get("id")) for one in all_resources if one.get("type") == GROUP)

    def pairs(self, resources: Iterable[Resource]) -> tuple[BucketPair, ...]:
        return tuple(_pairs(resources))

    def file_systems(self, resources: Iterable[Resource]) -> tuple[str, ...]:
        imports = dict(transfer_paths(resources, "import"))
        self._imports |= imports
        return tuple(imports)

    def answers(self, pair: BucketPair) -> None:
        self._api.sent("GET", STORAGE, objects_of(pair.replica), {"maxResults": "1", "fields": "items(name)"})

    def services(self, resources: Iterable[Resource]) -> dict[str, Callable[[], object]]:
        services_of: dict[str, Callable[[], object]] = {}
        for group in self.groups(resources):
            services_of["Compute Engine"] = partial(self._api.once, "GET", COMPUTE_ENGINE, group)
        for pair in self.pairs(resources):
            services_of["Cloud Storage"] = partial(
                self._api.once, "GET", STORAGE, objects_of(pair.source), {"maxResults": "1"}
            )
        return services_of

    def stop_group(self, group: str) -> None:
        for request in self._requests(group):
            if request.get("state") in QUEUED:
                self._api.sent("POST", COMPUTE_ENGINE, f"{group}/resizeRequests/{request['name']}/cancel")
        self._api.ask("POST", COMPUTE_ENGINE, f"{group}/resize", {"size": "0"})

    def _requests(self, group: str) -> Iterator[dict[str, Any]]:
        for page in self._api.pages("GET", COMPUTE_ENGINE, f"{group}/resizeRequests", {"maxResults": "500"}):
            yield from page.get("items") or []

    def running(self, group: str) -> int:
        pages = self._api.pages("POST", COMPUTE_ENGINE, f"{group}/listManagedInstances", {"maxResults": "500"})
        return sum(len(page.get("managedInstances") or []) for page in pages)

    def not_replicated(self, pair: BucketPair) -> list[str]:
        copies = {str(one["name"]): one for one in self.listed(pair.replica)}
        missing, same_size = [], []
        for blob in self.listed(pair.source):
            copy = copies.get(str(blob["name"]))
            if copy is None or copy["size"] != blob["size"]:
                missing.append(str(blob["name"]))
            elif not copied_from(blob, copy):
                same_size.append((blob, copy))
        with ThreadPoolExecutor(THREADS) as pool:
            first = pool.map(lambda both: self.content(pair.source, both[0]), same_size)
            second = pool.map(lambda both: self.content(pair.replica, both[1]), same_size)
            for (blob, _), ours, theirs in zip(same_size, first, second, strict=True):
                if ours is None or theirs is None or not same(ours, theirs):
                    missing.append(str(blob["name"]))
        missing.sort(key=str.encode)
        # A resumed failover, after the first region did not respond.
        if missing and (self._job(pair) or {}).get("status") == DISABLED:
            raise not_copied(pair.source, missing, "its replication job is disabled")
        if missing and pair.writer and self._is_detached(pair):
            raise not_copied(pair.source, missing, "the replica does not grant access to Storage Transfer Service")
        return missing

    def listed(self, bucket: str, **more: str) -> Iterator[Object]:
        """Yield the objects of a bucket, in the order of their names."""
        asked = {"fields": f"items({FIELDS}),nextPageToken", **more}
        for page in self._api.pages("GET", STORAGE, objects_of(bucket), asked):
            yield from page.get("items") or []

    def content(self, bucket: str, blob: Object) -> Content | None:
        """Return the content of a version, or None if the version was deleted after it was listed."""
        key = bucket, str(blob["name"]), str(blob["generation"])
        if key not in self._contents:
            answer: Object | None = blob
            if not blob.get("crc32c"):
                path = f"{objects_of(bucket)}/{quote(key[1], safe='')}"
                answer = self._api.ask("GET", STORAGE, path, {"generation": key[2], "fields": FIELDS})
            if answer is None:
                return None
            self._contents[key] = str(answer["size"]), str(answer.get("crc32c") or ""), str(answer.get("md5Hash") or "")
        return self._contents[key]

    def stop_replication(self, pair: BucketPair) -> None:
        self._set_replication(pair, DISABLED)

    def _job(self, pair: BucketPair) -> Object | None:
        project, _, job = pair.job.partition("/")
        return self._api.ask("GET", TRANSFER, f"v1/{job}", {"projectId": project})

    def _set_replication(self, pair: BucketPair, status: str) -> None:
        project, _, job = pair.job.partition("/")
        transfer = self._job(pair)
        if transfer is not None and transfer.get("status") not in (status, "DELETED"):
            body = {"projectId": project, "transferJob": {"status": status}, "updateTransferJobFieldMask": "status"}
            self._api.sent("PATCH", TRANSFER, f"v1/{job}", body=body)

    def detach_replica(self, pair: BucketPair) -> None:
        """Remove the grants of the service agent on the replica. It has no other use there."""
        if pair.writer and not self._is_detached(pair):
            self._change_grants(pair, lambda bindings: [without(one, pair.writer) for one in bindings])

    def _is_detached(self, pair: BucketPair) -> bool:
        """Return whether the service agent has no grant on the replica."""
        return not any(pair.writer in (one.get("members") or []) for one in self._policy(pair).get("bindings") or [])

    def _change_grants(self, pair: BucketPair, change: Callable[[list[Binding]], list[Binding]]) -> None:
        """Change the IAM policy of a replica. Cloud Storage refuses the change if another one was made after the policy was read (`etag`)."""
        policy = self._policy(pair)
        bindings = [one for one in change(policy.get("bindings") or []) if one.get("members")]
        self._api.sent("PUT", STORAGE, _policy_of(pair.replica), body={**policy, "bindings": bindings})

    def _policy(self, pair: BucketPair) -> dict[str, Any]:
        return self._api.sent(
            "GET", STORAGE, _policy_of(pair.replica), {"optionsRequestedPolicyVersion": POLICY_VERSION}
        )

    def beyond_reach(self, resources: Iterable[Resource]) -> tuple[str, ...]:
        held = [*resources]
        parts = []
        if groups := self.groups(held):
            names = ", ".join(one.rpartition("/")[2] for one in groups)
            parts.append(
                f"the nodes of {names}: until Compute Engine responds, they run, are billed, and write in their region"
            )
        if schedules := [str(one.get("id")).rpartition("/")[2] for one in schedules_in(held)]:
            parts.append(
                f"the scheduled exports of {', '.join(schedules)}: until Cloud Scheduler responds, they run and write to the buckets in their region"
            )
        if pairs := self.pairs(held):
            names = ", ".join(one.replica for one in pairs)
            parts.append(
                f"grants on the whole project with which Storage Transfer Service could write to {names}: this stack creates none"
            )
        return tuple(parts)

    def start_import(self, file_system: str) -> str:
        for operation in running_transfers(self._api, file_system):
            if _transfer(operation).get("transferType") == "IMPORT":
                return str(operation["name"])
        body = {"gcsPath": {"uri": self._imports[file_system]}, "lustrePath": {"path": "/"}, "requestId": str(uuid4())}
        return str(self._api.sent("POST", LUSTRE, f"v1/{file_system}:importData", body=body)["name"])

    def import_ended(self, task: str) -> bool:
        return check_transfer(self._api.sent("GET", LUSTRE, f"v1/{task}"), "import")


def check_transfer(operation: Mapping[str, Any], what: str) -> bool:
    """Return whether an import or an export has ended. Raises `DeploymentError` if it failed."""
    if not operation.get("done"):
        return False
    failed = int(_transfer(operation).get("counters", {}).get("objectsFailedCount") or 0)
    error = operation.get("error")
    if error or failed:
        name, reason = operation.get("name"), str((error or {}).get("message") or f"{counted(failed, 'object')} failed")
        raise DeploymentError(f"the {what} {name} failed: {one_line(reason)}; see `gcloud lustre operations describe {name}`")  # fmt: skip
    return True


def running_transfers(api: Api, file_system: str) -> Iterator[Mapping[str, Any]]:
    """Yield the operations of a file system that have not ended, of which one at most is a transfer.
    The target of an operation can contain the number of the project instead of its ID."""
    location, _, instance = file_system.partition("/instances/")
    for page in api.pages("GET", LUSTRE, f"v1/{location}/operations", {"pageSize": "500"}):
        for operation in page.get("operations") or []:
            target = str((operation.get("metadata") or {}).get("target") or "")
            if (
                not operation.get("done")
                and target.endswith(f"/instances/{instance}")
                and _transfer(operation).get("transferType")
            ):
                yield operation


def same(content: Content, other: Content) -> bool:
    """Return whether two contents are equal. MD5 values are compared if both objects have one."""
    return bool(content[1]) and content[:2] == other[:2] and (not content[2] or not other[2] or content[2] == other[2])


def copied_from(source: Object, copy: Object) -> bool:
    """Return whether a job copied this version of the source, which needs no request for each object.

    The job stores the time at which the version was created as the custom time of the copy (`metadataOptions.timeCreated` in the discovery document of
    Storage Transfer, retrieved 2026-11-29). Objects that a job copied before it had this option have no custom time."""
    custom = copy.get("customTime")
    return bool(custom) and copy["size"] == source["size"] and _moment(custom) == _moment(source.get("timeCreated"))


def _moment(text: object) -> datetime:
    return datetime.fromisoformat(str(text))


def objects_of(bucket: str) -> str:
    """Return the path of the objects of a bucket."""
    return f"storage/v1/b/{quote(bucket, safe='')}/o"


def _policy_of(bucket: str) -> str:
    """Return the path of the IAM policy of a bucket."""
    return f"storage/v1/b/{quote(bucket, safe='')}/iam"


def without(binding: Binding, member: str) -> Binding:
    """Return a binding without a member."""
    return {**binding, "members": [one for one in binding.get("members") or [] if one != member]}


def _pairs(resources: Iterable[Resource]) -> Iterator[BucketPair]:
    held = [*resources]
    grants = [(one.get("outputs") or {}) for one in held if one.get("type") == GRANT]
    of_agent = {
        str(one.get("bucket")).removeprefix("b/"): one for one in grants if str(one.get("member")).endswith(AGENT)
    }
    for resource in held:
        outputs = (resource.get("outputs") or {}) if resource.get("type") == JOB else {}
        if spec := outputs.get("replicationSpec"):
            source, replica = (str((spec.get(key) or {}).get("bucketName")) for key in ("gcsDataSource", "gcsDataSink"))
            job, grant = f"{outputs.get('project')}/{outputs.get('name')}", of_agent.get(replica) or {}
            writer, role = str(grant.get("member") or ""), str(grant.get("role") or "")
            yield BucketPair(source=source, replica=replica, job=job, writer=writer, role=role)


def transfer_paths(resources: Iterable[Resource], action: str) -> Iterator[tuple[str, str]]:
    """Return each file system with a bucket, and the path in Cloud Storage of its `import_command` or `export_command`."""
    for resource in resources:
        outputs = (resource.get("outputs") or {}) if resource.get("type") == FILE_SYSTEM else {}
        if command := outputs.get(f"{action}_command"):
            words = shlex.split(str(command))
            options = dict(word.removeprefix("--").split("=", 1) for word in words if word.startswith("--"))
            place = f"projects/{options['project']}/locations/{options['location']}"
            yield f"{place}/instances/{words[words.index(f'{action}-data') + 1]}", options["gcs-path-uri"]


def _transfer(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata: Mapping[str, Any] = (operation.get("metadata") or {}).get("operationMetadata") or {}
    return metadata
