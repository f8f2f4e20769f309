"""The requests of a failover on Google Cloud. Discovery documents validate requests and responses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuinfra.base.errors import DeploymentError
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.clouds.gcp.handover.ports import GROUP as PATH
from gpuinfra.clouds.gcp.handover.ports import RequestFailed
from gpuinfra.clouds.gcp.region import failover as gcp
from gpuinfra.clouds.gcp.region.failback import GcpFailback
from gpuinfra.clouds.gcp.region.failover import GcpFailover
from gpuinfra.clouds.region.failover import BucketPair, DisabledReplication, Unreachable
from gpuinfra.handover.ports import PortUnavailable
from tests.clouds.gcp import answers
from tests.clouds.gcp.asked import Google
from tests.clouds.stacks import recording_of

COMPUTE, STORAGE, TRANSFER = "compute.v1", "storage.v1", "storagetransfer.v1"
PLACE = {"project": "my-project", "zone": "us-central1-a", "instanceGroupManager": "train-gpu-0"}
GROUP = "projects/my-project/zones/us-central1-a/instanceGroupManagers/train-gpu-0"
PAIR = BucketPair(source="train-scratch-first", replica="train-scratch-second", job="my-project/transferJobs/123")
JOB = {"jobName": "transferJobs/123"}
FILE_SYSTEM = "projects/my-project/locations/us-east4-a/instances/train-scratch"
OPERATION = "projects/my-project/locations/us-east4-a/operations/operation-1"
COMMAND = (
    "gcloud lustre instances import-data train-scratch --location=us-east4-a --project=my-project "
    "--gcs-path-uri=gs://train-scratch-second/run/ --lustre-path=/"
)
STATE: list[dict[str, Any]] = [
    {"type": gcp.GROUP, "id": GROUP},
    {"type": gcp.JOB, "outputs": {"name": "transferJobs/123", "project": "my-project", "replicationSpec": {
        "gcsDataSource": {"bucketName": PAIR.source}, "gcsDataSink": {"bucketName": PAIR.replica}}}},
    {"type": gcp.JOB, "outputs": {"name": "transferJobs/124", "project": "my-project", "transferSpec": {}}},
    {"type": gcp.FILE_SYSTEM, "outputs": {"import_command": COMMAND}},
    {"type": gcp.FILE_SYSTEM, "outputs": {"import_command": None}},
]  # fmt: skip


@pytest.fixture
def google() -> Google:
    """The expected requests."""
    return Google()


@pytest.fixture
def one(google: Google) -> GcpFailover:
    """A failover that sends the expected requests."""
    return GcpFailover(google.api())


def test_names_come_from_the_state(one: GcpFailover) -> None:
    """Groups, pairs of buckets with their jobs, and file systems with a bucket are read from the state."""
    assert one.groups(STATE) == (GROUP,)
    assert one.pairs(STATE) == (PAIR,)
    assert one.file_systems(STATE) == (FILE_SYSTEM,)


def test_names_come_from_the_resources_of_the_shipped_stack(one: GcpFailover) -> None:
    """The types and outputs are those that the program of `gcp-recovery` registers."""
    recording = recording_of("gcp-recovery")
    registered = [
        {"type": made.type, "id": made.id, "outputs": answers.resource(made.type, made.name, made.inputs)[1]}
        for made in (*recording.of(gcp.GROUP), *recording.of(gcp.JOB))
    ]
    (group,) = one.groups(registered)
    assert PATH.fullmatch(group)
    pairs = one.pairs(registered)
    assert [pair.job.startswith(f"{answers.PROJECT}/transferJobs/") for pair in pairs] == [True, True]
    assert all(pair.replica for pair in pairs)


def _request(name: str, state: str) -> dict[str, Any]:
    return {"name": name, "state": state}


def test_a_queue_is_canceled_before_the_group_is_scaled_to_zero(one: GcpFailover, google: Google) -> None:
    """Requests that wait for capacity are canceled first, so that they cannot add nodes. Other requests are left alone."""
    listed = {"items": [_request("waiting", "ACCEPTED"), _request("old", "SUCCEEDED")]}
    google.expect(COMPUTE, "instanceGroupManagerResizeRequests.list", {**PLACE, "maxResults": "500"}, listed)
    google.expect(COMPUTE, "instanceGroupManagerResizeRequests.cancel", {**PLACE, "resizeRequest": "waiting"}, {"status": "DONE"})  # fmt: skip
    google.expect(COMPUTE, "instanceGroupManagers.resize", {**PLACE, "size": "0"}, {"status": "DONE"})
    one.stop_group(GROUP)
    google.done()


def test_a_group_that_does_not_exist_has_no_nodes(one: GcpFailover, google: Google) -> None:
    """A deleted group is stopped."""
    google.expect(COMPUTE, "instanceGroupManagerResizeRequests.list", {**PLACE, "maxResults": "500"}, 404)
    google.expect(COMPUTE, "instanceGroupManagers.resize", {**PLACE, "size": "0"}, 404)
    google.expect(COMPUTE, "instanceGroupManagers.listManagedInstances", {**PLACE, "maxResults": "500"}, 404)
    one.stop_group(GROUP)
    assert one.running(GROUP) == 0
    google.done()


def test_nodes_that_are_being_deleted_are_running(one: GcpFailover, google: Google) -> None:
    """All pages of the group are counted, and nodes count until they are deleted."""
    first = {"managedInstances": [{"id": "1", "currentAction": "DELETING"}], "nextPageToken": "more"}
    rest = {"managedInstances": [{"id": "2", "currentAction": "NONE"}]}
    for token, page in (({}, first), ({"pageToken": "more"}, rest)):
        google.expect(COMPUTE, "instanceGroupManagers.listManagedInstances", {**PLACE, "maxResults": "500", **token}, page)  # fmt: skip
    assert one.running(GROUP) == 2
    google.done()


def _object(name: str, generation: str, crc: str | None, size: str = "7", md5: str | None = None) -> dict[str, Any]:
    found = {"name": name, "generation": generation, "size": size, "crc32c": crc, "md5Hash": md5}
    return {key: value for key, value in found.items() if value is not None}


def _listings(google: Google, here: list[dict[str, Any]], there: list[dict[str, Any]]) -> None:
    google.expect(STORAGE, "objects.list", {"bucket": PAIR.replica}, {"items": there})
    google.expect(STORAGE, "objects.list", {"bucket": PAIR.source}, {"items": here})


def _job(google: Google, status: str = "ENABLED") -> None:
    """The status of the job, which is read if objects are missing."""
    google.expect(TRANSFER, "transferJobs.get", {**JOB, "projectId": "my-project"}, {"status": status})


def test_objects_that_can_no_longer_be_replicated_stop_a_resumed_failover(one: GcpFailover, google: Google) -> None:
    """While the job is disabled, waiting has no effect, so the objects that are missing are an error. Without missing objects, the job is not read."""
    late = [_object(str(number), "1", "AAAA==") for number in range(6)]
    _listings(google, late, [])
    _job(google, "DISABLED")
    with pytest.raises(
        DeploymentError,
        match=r"6 objects of train-scratch-first are not in the replica, .*: 0, 1, 2, 3, 4 \.\.\.; copy these objects yourself",
    ):
        one.not_replicated(PAIR)
    _listings(google, late, late)
    assert one.not_replicated(PAIR) == []
    google.done()


def test_objects_whose_content_is_not_in_the_replica_are_found(one: GcpFailover, google: Google) -> None:
    """An object is replicated if the replica has the same size and checksums. Generations differ in each bucket, a composite object has no MD5, and
    checksums of objects with different sizes are not read."""
    here = [
        _object("a", "1", "AAAA=="),
        _object("b", "2", "BBBB=="),
        _object("c", "3", "CCCC==", md5="x"),
        _object("d", "4", "DDDD=="),
        _object("e", "5", None, size="8"),
    ]
    there = [
        _object("a", "9", "AAAA==", md5="x"),
        _object("b", "8", "OTHER="),
        _object("c", "7", "CCCC==", md5="y"),
        _object("e", "6", None),
        _object("z", "1", "Z"),
    ]
    _listings(google, here, there)
    _job(google)
    assert one.not_replicated(PAIR) == ["b", "c", "d", "e"]
    google.done()


def test_checksums_that_a_list_does_not_contain_are_read_once(one: GcpFailover, google: Google, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """A list does not contain the checksums of objects with a customer-managed key. Each version is read once, also if the comparison is repeated."""
    monkeypatch.setattr(gcp, "THREADS", 1)
    here, there = [_object("run/a b", "1", None)], [_object("run/a b", "2", None)]
    _listings(google, here, there)
    for bucket, generation, crc in ((PAIR.source, "1", "AAAA=="), (PAIR.replica, "2", "BBBB==")):
        asked = {"bucket": bucket, "object": "run/a b", "generation": generation}
        google.expect(STORAGE, "objects.get", asked, _object("run/a b", generation, crc))
    _job(google)
    assert one.not_replicated(PAIR) == ["run/a b"]
    _listings(google, here, [_object("run/a b", "3", None)])
    google.expect(STORAGE, "objects.get", {"bucket": PAIR.replica, "object": "run/a b", "generation": "3"}, _object("run/a b", "3", "AAAA=="))  # fmt: skip
    assert one.not_replicated(PAIR) == []
    google.done()


CREATED, LATER = "2026-11-29T01:00:00.123Z", "2026-11-29T02:00:00.000Z"


@pytest.mark.parametrize(
    ("custom", "size", "reads"),
    [
        (CREATED, "7", 0),
        ("2026-11-29T02:00:00.123000+01:00", "7", 0),
        (LATER, "7", 2),
        (None, "7", 2),
        (CREATED, "8", 0),
    ],
    ids=["same time", "same time in another form", "other version", "no time", "other size"],
)
def test_copies_are_recognized_by_the_lists(one: GcpFailover, google: Google, custom: str | None, size: str, reads: int) -> None:  # fmt: skip
    """A copy with the size and the time of its source needs no further request. Checksums decide about the others."""
    there = {**_object("model", "2", None, size=size), **({"customTime": custom} if custom else {})}
    _listings(google, [{**_object("model", "1", None), "timeCreated": CREATED}], [there])
    for bucket, generation in ((PAIR.source, "1"), (PAIR.replica, "2"))[:reads]:
        asked = {"bucket": bucket, "object": "model", "generation": generation}
        google.expect(STORAGE, "objects.get", asked, _object("model", generation, "AAAA=="))
    if size != "7":
        _job(google)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gcp, "THREADS", 1)
        assert one.not_replicated(PAIR) == (["model"] if size != "7" else [])
    google.done()


def test_a_copy_with_another_size_is_another_version() -> None:
    """A failback also compares objects of different sizes, whose custom time a user can have set."""
    source = {"size": "7", "timeCreated": CREATED}
    assert gcp.copied_from(source, {"size": "7", "customTime": CREATED})
    assert not gcp.copied_from(source, {"size": "8", "customTime": CREATED})


def test_a_version_that_was_deleted_meanwhile_is_compared_again(one: GcpFailover, google: Google, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """A version that cannot be read is not replicated, so that the next comparison decides."""
    monkeypatch.setattr(gcp, "THREADS", 1)
    _listings(google, [_object("a", "1", None)], [_object("a", "2", "AAAA==")])
    google.expect(STORAGE, "objects.get", {"bucket": PAIR.source, "object": "a", "generation": "1"}, 404)
    _job(google)
    assert one.not_replicated(PAIR) == ["a"]


MEMBER = "serviceAccount:project-100000000000@storage-transfer-service.iam.gserviceaccount.com"
ROLE = "projects/my-project/roles/train_replication_replica"
GRANTED = replace(PAIR, writer=MEMBER, role=ROLE)
IAM = {"bucket": PAIR.replica}
AGENT = {"role": ROLE, "members": [MEMBER]}
NODES = {"role": ROLE, "members": ["serviceAccount:node@my-project.iam.gserviceaccount.com"], "condition": {"title": "t", "expression": "true"}}  # fmt: skip


def _policy(google: Google, *bindings: dict[str, Any]) -> None:
    """The IAM policy of the replica, which is read with its conditions."""
    found = {"version": 3, "etag": "CAE=", "bindings": list(bindings)}
    google.expect(STORAGE, "buckets.getIamPolicy", {**IAM, "optionsRequestedPolicyVersion": "3"}, found)


def _change(google: Google, *bindings: dict[str, Any]) -> None:
    """A change of the IAM policy, which is refused if another change was made after the policy was read."""
    body = {"version": 3, "etag": "CAE=", "bindings": list(bindings)}
    google.expect(STORAGE, "buckets.setIamPolicy", IAM, body, body)


def test_the_service_agent_comes_from_the_state(one: GcpFailover) -> None:
    """The grant of the service agent on the replica contains its role. Grants of other members and on other buckets are left alone."""
    grants = [
        {"type": gcp.GRANT, "outputs": {"bucket": f"b/{bucket}", "member": member, "role": ROLE}}
        for bucket, member in ((PAIR.replica, "serviceAccount:x"), (PAIR.replica, MEMBER), (PAIR.source, MEMBER))
    ]
    assert one.pairs([*STATE, *grants]) == (GRANTED,)


def test_a_replica_is_detached_once(one: GcpFailover, google: Google) -> None:
    """The service agent loses its grants on the replica. Other members and conditions stay, and a repeated request changes nothing."""
    both = {**AGENT, "members": [MEMBER, "user:a@example.com"]}
    for _ in range(2):
        _policy(google, AGENT, both, NODES)
    _change(google, {**AGENT, "members": ["user:a@example.com"]}, NODES)
    _policy(google, NODES)
    one.detach_replica(GRANTED)
    one.detach_replica(GRANTED)
    google.done()


def test_a_replica_is_attached_once(google: Google) -> None:
    """The service agent gets the role of its grant again, and a repeated request changes nothing."""
    failback = GcpFailback(google.api())
    assert isinstance(failback, DisabledReplication)
    for _ in range(2):
        _policy(google, NODES)
    _change(google, NODES, AGENT)
    _policy(google, NODES, AGENT)
    failback.attach_replica(GRANTED)
    failback.attach_replica(GRANTED)
    google.done()


def test_objects_that_a_detached_replica_refused_stop_a_resumed_failover(one: GcpFailover, google: Google) -> None:
    """If the job could not be disabled, the replica refused its objects, so waiting has no effect."""
    _listings(google, [_object("late", "1", "AAAA==")], [])
    _job(google)
    _policy(google, NODES)
    with pytest.raises(DeploymentError, match="late; copy these objects yourself"):
        one.not_replicated(GRANTED)
    _listings(google, [_object("late", "1", "AAAA==")], [])
    _job(google)
    _policy(google, AGENT)
    assert one.not_replicated(GRANTED) == ["late"]
    google.done()


def test_what_cannot_be_stopped_is_named(one: GcpFailover) -> None:
    """Nodes run until Compute Engine responds, and grants on the project are not those of the stack."""
    nodes, grants = one.beyond_reach(STATE)
    assert nodes.startswith("the nodes of train-gpu-0: ")
    assert PAIR.replica in grants


def test_replication_is_disabled_once(one: GcpFailover, google: Google) -> None:
    """Only the status of the job changes. A job that is disabled, deleted or does not exist is left alone."""
    body = {"projectId": "my-project", "transferJob": {"status": "DISABLED"}, "updateTransferJobFieldMask": "status"}
    google.expect(TRANSFER, "transferJobs.get", {**JOB, "projectId": "my-project"}, {"status": "ENABLED"})
    google.expect(TRANSFER, "transferJobs.patch", JOB, {"status": "DISABLED"}, body)
    for answer in ({"status": "DISABLED"}, {"status": "DELETED"}, 404):
        google.expect(TRANSFER, "transferJobs.get", {**JOB, "projectId": "my-project"}, answer)
    for _ in range(4):
        one.stop_replication(PAIR)
    google.done()


def _operation(target: str = FILE_SYSTEM, kind: str = "IMPORT", **more: Any) -> dict[str, Any]:
    return {"name": OPERATION, "metadata": {"target": target, "operationMetadata": {"transferType": kind}}, **more}


def test_import_is_started_once(one: GcpFailover, google: Google) -> None:
    """A running import is found again. A finished import, an export and an import into another instance are not."""
    one.file_systems(STATE)
    path = "projects/my-project/locations/us-east4-a/operations"
    others = [_operation(done=True), _operation(kind="EXPORT"), _operation(f"{FILE_SYSTEM}-2")]
    google.lustre("GET", path, {"operations": others}, pageSize="500")
    body = {"gcsPath": {"uri": "gs://train-scratch-second/run/"}, "lustrePath": {"path": "/"}}
    google.lustre("POST", f"{FILE_SYSTEM}:importData", {"name": OPERATION}, body)
    assert one.start_import(FILE_SYSTEM) == OPERATION
    running = _operation(FILE_SYSTEM.replace("my-project", "100000000000"))
    google.lustre("GET", path, {"operations": [*others, running]}, pageSize="500")
    assert one.start_import(FILE_SYSTEM) == OPERATION
    google.done()


@pytest.mark.parametrize(
    ("more", "ended"),
    [
        ({}, False),
        ({"done": True, "response": {}}, True),
        ({"done": True, "metadata": {"operationMetadata": {"counters": {"objectsFailedCount": "1"}}}}, "1 object failed"),
        ({"done": True, "error": {"code": 7, "message": "the agent cannot read the bucket"}}, "the agent cannot read the bucket"),
    ],
)  # fmt: skip
def test_import_ends_only_with_all_objects(one: GcpFailover, google: Google, more: dict[str, Any], ended: bool | str) -> None:  # fmt: skip
    """A failed import, and one without some of the objects, is an error with the command that shows it."""
    google.lustre("GET", OPERATION, {**_operation(), **more})
    if isinstance(ended, bool):
        assert one.import_ended(OPERATION) is ended
        return
    with pytest.raises(DeploymentError, match=ended) as problem:
        one.import_ended(OPERATION)
    assert f"gcloud lustre operations describe {OPERATION}" in str(problem.value)


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ((None, None, None), Unreachable),
        ((503, 429, 500, {}), None),
        ((None, 503, {}), None),
        ((*[503] * 8,), DeploymentError),
        ((403,), DeploymentError),
        ((404,), DeploymentError),
    ],
)
def test_only_a_region_that_does_not_answer_is_unreachable(
    one: GcpFailover, google: Google, statuses: tuple[Any, ...], expected: type[Exception] | None
) -> None:
    """A request is repeated twice without a connection, and for a minute while the service is busy. A refused request is not repeated."""
    for status in statuses:
        google.expect(STORAGE, "objects.list", {"bucket": PAIR.replica, "maxResults": "1"}, status)
    if expected is None:
        one.answers(PAIR)
    else:
        with pytest.raises(expected):
            one.answers(PAIR)
    google.done()
    assert google.slept == [1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0][: len(statuses) - 1]


def test_throttling_with_the_status_403_is_repeated(one: GcpFailover, google: Google, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """The reason in the error states that the request is throttled."""
    answers: list[Any] = [RequestFailed("x", 403, frozenset({"rateLimitExceeded"})), {}]

    def json(*_: object) -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(google, "json", json)
    one.answers(PAIR)
    assert google.slept == [1.0]


def test_services_of_the_first_region_are_asked_once(one: GcpFailover, google: Google) -> None:
    """The evidence has a request to each service, which is not repeated."""
    services = one.services(STATE)
    assert list(services) == ["Compute Engine", "Cloud Storage"]
    google.expect(COMPUTE, "instanceGroupManagers.get", PLACE, None)
    google.expect(STORAGE, "objects.list", {"bucket": PAIR.source, "maxResults": "1"}, None)
    for request in services.values():
        with pytest.raises(Unreachable):
            request()
    google.done()
    assert google.slept == []


def test_a_problem_of_this_machine_is_not_unreachable(one: GcpFailover, google: Google, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Missing credentials end the failover with the command that logs in."""

    def refuse(*_: object) -> Any:
        raise PortUnavailable("Google Cloud credentials: none were found")

    monkeypatch.setattr(google, "json", refuse)
    with pytest.raises(DeploymentError, match="gcloud auth application-default login"):
        one.answers(PAIR)


def test_google_cloud_has_a_failover() -> None:
    """The command finds the module."""
    assert isinstance(cloud_of("gcp").failover("us-central1", "us-east4", {}), GcpFailover)
