"""Failover requests: stop scale sets, delete the object replication policies of containers, and import a replica into a file system.

The management API needs no data role. `drain` lists the blobs of the source containers, so it requires network access to their accounts and a
role that can read blobs: the listing contains the replication status of each blob (`OrMetadata` in
https://learn.microsoft.com/rest/api/storageservices/list-blobs; recorded by Microsoft's tests of `listBlobsFlat` in Azure/azure-sdk-for-js).
A blob without the status `complete` is compared with the blob in the replica.

Writes to a replica fail with status 409 until the policy in the account of the replica is deleted. Deleting a policy ends its pending operations
(object-replication-overview.md and object-replication-configure.md in MicrosoftDocs/azure-docs).
The time at which the policy is deleted is stored in a tag of the account, because
only the second region writes to the replica after that time. A failback compares this time with the times of the blobs.

Requests and responses: the REST references of Compute (Virtual Machine Scale Sets - Update), Storage (Object Replication Policies, Storage Accounts - Update)
and Storage Cache (Import Jobs) and their models in the azure-mgmt packages. All retrieved 2026-11-26.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeVar

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.json_text import parsed
from gpuinfra.base.safe_text import one_line
from gpuinfra.base.words import counted
from gpuinfra.clouds.azure.blob_list import Blob, BlobContainer, blobs
from gpuinfra.clouds.azure.region.readiness import STORAGE, last, policies, schedules_in
from gpuinfra.clouds.azure.rest import AzureRefused, NotReached, Rest, raise_for
from gpuinfra.clouds.region.failover import BucketPair, Resource, Unreachable, not_copied
from gpuinfra.clouds.region.reach import Busy, persistent
from gpuinfra.handover.ports import PortUnavailable

GROUP = "azure-native:compute:VirtualMachineScaleSet"
FILE_SYSTEM = "azure-native:storagecache:AmlFilesystem"
COMPUTE, CACHE = "2024-11-01", "2024-03-01"
"""API versions."""
TIMEOUT_S = 30.0
STOPPED = "gpuinfra:replication-stopped"
"""Tag of the account of a replica with the time at which the second region began to write to the replica."""
CONFLICTS = "OverwriteAlways"
"""The import replaces a file whose blob has changed, even if the file was read before."""
RUNNING = ("InProgress", "Cancelling")
BUSY = frozenset({408, 429})

_Result = TypeVar("_Result")


def connect(region: str, second: str, config: Mapping[str, object]) -> AzureFailover:
    """Use the credentials from the environment."""
    return AzureFailover(Rest(timeout_s=TIMEOUT_S), region, second)


class AzureFailover:
    """The requests for one failover. `gpuinfra.clouds.region.failover.Failover` describes the methods.

    Groups, buckets, file systems and import jobs are resource IDs.
    """

    global_replication = False

    def __init__(self, rest: Rest, region: str, second: str) -> None:
        self._rest, self._first, self._second = rest, region, second

    def groups(self, resources: Iterable[Resource]) -> tuple[str, ...]:
        return tuple(str(one.get("id")) for one in resources if one.get("type") == GROUP)

    def pairs(self, resources: Iterable[Resource]) -> tuple[BucketPair, ...]:
        return tuple(
            BucketPair(source=container_id(one.source, one.containers[0]), replica=container_id(one.replica, one.containers[1]))
            for one in policies(resources)
        )  # fmt: skip

    def file_systems(self, resources: Iterable[Resource]) -> tuple[str, ...]:
        return tuple(
            str(one.get("id"))
            for one in resources
            if one.get("type") == FILE_SYSTEM and ((one.get("outputs") or {}).get("hsm") or {}).get("settings")
        )

    def answers(self, pair: BucketPair) -> None:
        base = self._container(pair.replica).base

        def container() -> None:
            answer = self._rest.blob("GET", f"{base}?restype=container")
            if answer.status != 403:
                raise_for(answer)

        asked(container)

    def services(self, resources: Iterable[Resource]) -> dict[str, Callable[[], object]]:
        services_of: dict[str, Callable[[], object]] = {}
        for group in self.groups(resources):
            services_of["Azure Resource Manager"] = partial(_sent, partial(self._rest.arm, group, COMPUTE))
        for pair in self.pairs(resources):
            # The address of an account is in the state of Azure Resource Manager, which does not respond.
            base = self._rest.blob_base(
                f"https://{last(account_of(pair.source))}.blob.core.windows.net/{last(pair.source)}"
            )
            services_of["Blob Storage"] = partial(_sent, partial(self._rest.blob, "GET", f"{base}?restype=container"))
        return services_of

    def stop_group(self, group: str) -> None:
        self._resize(group, 0)

    def _resize(self, group: str, count: int) -> None:
        scale_set = self._read(group, COMPUTE)
        if scale_set is not None and scale_set["sku"].get("capacity") != count:
            sku = {**scale_set["sku"], "capacity": count}
            asked(lambda: self._rest.arm_change("PATCH", group, COMPUTE, {"sku": sku}))

    def running(self, group: str) -> int:
        machines = asked_or([], lambda: list(self._rest.pages(f"{group}/virtualMachines", COMPUTE)))
        return len(machines)

    def not_replicated(self, pair: BucketPair) -> list[str]:
        source = self.listed(pair.source)
        mark = self._mark(pair)
        unknown = [one for one in source if one.replication.get(mark) != "complete"]
        copies = {one.name: one for one in self.listed(pair.replica)} if unknown else {}
        missing = sorted(one.name for one in unknown if not one.same_content(copies.get(one.name)))
        if missing and self._policy(pair, account_of(pair.replica)) is None:
            # A resumed failover, after the first region did not respond.
            where = f"{last(account_of(pair.source))}/{last(pair.source)}"
            raise not_copied(where, missing, "Azure does not replicate blobs after the `replicas` step")
        return missing

    def stop_replication(self, pair: BucketPair) -> None:
        self._delete_policy(pair, account_of(pair.source))

    def detach_replica(self, pair: BucketPair) -> None:
        """Azure replicates only while both accounts have the policy, so the policy of the first region has no effect without this one."""
        account = account_of(pair.replica)
        if self._policy(pair, account) is None:
            return
        answer = asked(lambda: self._rest.arm_change("GET", account, STORAGE))
        tags = json_of(answer.body).get("tags") or {}
        now = _date(answer.headers)
        asked(lambda: self._rest.arm_change("PATCH", account, STORAGE, {"tags": {**tags, STOPPED: now}}))
        self._delete_policy(pair, account)

    def beyond_reach(self, resources: Iterable[Resource]) -> tuple[str, ...]:
        held, parts = [*resources], []
        if groups := self.groups(held):
            names = ", ".join(map(last, groups))
            parts.append(
                f"the nodes of {names}: until Azure changes the scale sets, they run, are billed, and write in {self._first}"
            )
        if schedules := [last(str(one.get("id"))) for one in schedules_in(held)]:
            names = ", ".join(schedules)
            parts.append(
                f"the scheduled exports of {names}: until Azure disables the workflows, they run and write to the containers in {self._first}"
            )
        return tuple(parts)

    def start_import(self, file_system: str) -> str:
        for running in asked(lambda: list(self._rest.pages(f"{file_system}/importJobs", CACHE))):
            if _state(running) in RUNNING:
                return str(running["id"])
        system = asked(lambda: self._rest.arm(file_system, CACHE))
        settings = ((system.get("properties") or {}).get("hsm") or {}).get("settings") or {}
        job = f"{file_system}/importJobs/gpuinfra-{datetime.now(UTC):%Y%m%d%H%M%S}"
        properties = {"importPrefixes": [settings.get("importPrefix") or "/"], "conflictResolutionMode": CONFLICTS, "maximumErrors": 0}  # fmt: skip
        body = {"location": system["location"], "properties": properties}
        asked(lambda: self._rest.arm_change("PUT", job, CACHE, body))
        return job

    def import_ended(self, task: str) -> bool:
        task_record = asked(lambda: self._rest.arm(task, CACHE))
        properties = task_record.get("properties") or {}
        status, state = properties.get("status") or {}, _state(task_record)
        if properties.get("provisioningState") == "Failed" or state not in ("", "Completed", *RUNNING):
            reason = status.get("statusMessage") or "no reason was given"
            counts = ", ".join(
                counted(int(status.get(key) or 0), what)
                for key, what in (("totalErrors", "error"), ("totalConflicts", "conflict"))
            )
            show = f"az resource show --ids {task} --api-version {CACHE}"
            raise DeploymentError(f"the import job {last(task)} is {state or 'Failed'}: {one_line(reason)} ({counts}); see `{show}`")  # fmt: skip
        return state == "Completed"

    # Helpers

    def _read(self, id_: str, api: str) -> dict[str, Any] | None:
        """Read a resource. Returns None if it does not exist."""
        return asked_or(None, lambda: self._rest.arm(id_, api))

    def _policy(self, pair: BucketPair, account: str) -> tuple[str, str] | None:
        """Return the ID of the policy in an account that replicates the pair, and the ID of its rule. Returns None if there is none."""
        containers = (last(pair.source), last(pair.replica))
        accounts = (last(account_of(pair.source)), last(account_of(pair.replica)))
        for policy, names, rules in self._policies(account):
            for rule in rules:
                if names == accounts and (rule.get("sourceContainer"), rule.get("destinationContainer")) == containers:
                    return policy, str(rule.get("ruleId"))
        return None

    def _policies(self, account: str) -> Iterator[tuple[str, tuple[str, str], list[dict[str, Any]]]]:
        """Yield the ID of each policy of an account, the names of the source and destination accounts, and the rules."""
        for policy in asked_or([], lambda: list(self._rest.pages(f"{account}/objectReplicationPolicies", STORAGE))):
            held = policy.get("properties") or {}
            names = (last(str(held.get("sourceAccount"))), last(str(held.get("destinationAccount"))))
            yield str(held.get("policyId")), names, held.get("rules") or []

    def _delete_policy(self, pair: BucketPair, account: str) -> None:
        policy = self._policy(pair, account)
        if policy is not None:
            path = f"{account}/objectReplicationPolicies/{policy[0]}"
            asked_or(None, lambda: self._rest.arm_change("DELETE", path, STORAGE))

    def _mark(self, pair: BucketPair) -> str:
        """Return the name of the replication status of the pair. Empty if the source account has no policy."""
        policy = self._policy(pair, account_of(pair.source))
        return "_".join(policy) if policy else ""

    def _container(self, id_: str) -> BlobContainer:
        """Return a container with the address of its account."""
        account = asked(lambda: self._rest.arm(account_of(id_), STORAGE))
        endpoint = str(((account.get("properties") or {}).get("primaryEndpoints") or {}).get("blob") or "").rstrip("/")
        url = f"{endpoint}/{last(id_)}"
        return BlobContainer(url=url, base=asked(lambda: self._rest.blob_base(url)), tags=account.get("tags") or {})

    def listed(self, id_: str, prefix: str = "") -> list[Blob]:
        """Return the blobs of a container whose names begin with a text."""
        try:
            return asked(lambda: list(blobs(self._rest, self._container(id_).base, prefix)))
        except DeploymentError as problem:
            raise DeploymentError(
                f"the blobs of {last(account_of(id_))}/{last(id_)} cannot be listed: {problem}; "
                "run the command on a machine with a private endpoint of the account, as an identity with a role that can read the blobs"
            ) from None


def asked(request: Callable[[], _Result]) -> _Result:
    """Send a request, and repeat it while the service is busy. Raises `Unreachable` and `DeploymentError`."""
    return persistent(partial(_sent, request))


def _sent(request: Callable[[], _Result]) -> _Result:
    """Send a request once. Raises `Busy`, `Unreachable` and `DeploymentError`."""
    try:
        return request()
    except AzureRefused as problem:
        if problem.status >= 500 or problem.status in BUSY:
            raise Busy(one_line(problem)) from None
        raise DeploymentError(one_line(problem)) from None
    except NotReached as problem:
        raise Unreachable(one_line(problem)) from None
    except PortUnavailable as problem:
        raise DeploymentError(f"{one_line(problem)}; log in to Azure, and run the command again") from None


def asked_or(missing: _Result, request: Callable[[], _Result]) -> _Result:
    """Send a request. Returns `missing` if the resource does not exist. Raises `Unreachable` and `DeploymentError`."""

    def unless_missing() -> _Result:
        try:
            return request()
        except AzureRefused as problem:
            if problem.status == 404:
                return missing
            raise

    return asked(unless_missing)


def container_id(account: str, container: str) -> str:
    """Return the resource ID of a container."""
    return f"{account}/blobServices/default/containers/{container}"


def account_of(container: str) -> str:
    """Return the resource ID of a container's account."""
    return container.partition("/blobServices/")[0]


def json_of(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a response."""
    document = parsed(body or b"{}")
    return document if isinstance(document, dict) else {}


def _state(job: Mapping[str, Any]) -> str:
    """Return the state of an import job. Empty while Azure has not started the job."""
    return str(((job.get("properties") or {}).get("status") or {}).get("state") or "")


def _date(headers: Mapping[str, str]) -> str:
    """Return the time of a response in ISO format, from the clock of Azure."""
    given = next((value for name, value in headers.items() if name.lower() == "date"), "")
    moment = parsedate_to_datetime(given).astimezone(UTC) if given else datetime.now(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
