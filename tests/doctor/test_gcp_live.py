"""The questions to Google Cloud about a plan, over HTTP.

Answers of the Compute, Service Usage and Resource Manager APIs are validated against Google's discovery documents. Quotas by family have the form of
recorded answers of the Cloud Quotas API: entries with `dimensions`, `details.value` as text and `applicableLocations`, and `details` without
a value for a quota that is not granted (public test suites and reports, retrieved 2026-11-23). Errors have the form of google.rpc.Status, with
`ErrorInfo` in its details: https://docs.cloud.google.com/apis/design/errors, retrieved 2026-11-23.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import googleapiclient
import pytest

from gpuinfra.clouds.gcp import credentials as gcp_credentials
from gpuinfra.clouds.gcp import preflight
from gpuinfra.clouds.gcp.permissions import permissions
from gpuinfra.clouds.preflight import PreflightRow, RowState, answers
from gpuinfra.plan.model import Plan
from tests.clouds.stacks import plan_of
from tests.servers import Answering

DOCUMENTS = Path(str(googleapiclient.__file__)).parent / "discovery_cache" / "documents"
PLAN = plan_of("gcp-a3mega")
PROJECT = "ai-team"
FAMILY = "GPUS-PER-GPU-FAMILY-per-project-region"
Body = Any


def _schema(document: str, name: str) -> dict[str, Any]:
    return json.loads((DOCUMENTS / f"{document}.json").read_text(encoding="utf-8"))["schemas"][name]["properties"]


COMPUTE = {
    name: _schema("compute.v1", name)
    for name in ("Region", "Quota", "Reservation", "AllocationSpecificSKUReservation", "Image", "DeprecationStatus")
}
SERVICE = _schema("serviceusage.v1", "GoogleApiServiceusageV1Service")


def checked(schema: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer if each field is in the schema with this type and value."""
    kinds = {"string": str, "number": (int, float), "boolean": bool, "array": list, "integer": int}
    for key, value in answer.items():
        field = schema[key]
        assert isinstance(value, kinds.get(field.get("type"), dict)), key
        assert value in field.get("enum", [value]), key
    return answer


def region(**limits: tuple[float, float]) -> Body:
    """The answer of `regions.get` with (limit, usage) of each metric."""
    quotas = [
        checked(COMPUTE["Quota"], {"metric": name, "limit": limit, "usage": usage})
        for name, (limit, usage) in limits.items()
    ]
    return checked(COMPUTE["Region"], {"name": "us-central1", "quotas": quotas})


def by_family(value: str | None, family: str = "NVIDIA_H100_MEGA") -> Body:
    """The answer of `quotaInfos.get`: an entry for a family, and a more general one."""
    entries = [
        {"dimensions": {"region": "us-central1", "gpu_family": family}, "details": {} if value is None else {"value": value},
            "applicableLocations": ["us-central1"]},
        {"details": {"value": "0"}, "applicableLocations": ["us-central1", "us-east4"]},
    ]  # fmt: skip
    return {"quotaId": FAMILY, "dimensions": ["region", "gpu_family"], "dimensionsInfos": entries}


def reservation(**changes: Any) -> Body:
    """The answer of `reservations.get`."""
    specific = {
        "count": "4",
        "inUseCount": "0",
        "instanceProperties": {"machineType": "a3-megagpu-8g"},
        **changes.pop("specific", {}),
    }
    checked(COMPUTE["AllocationSpecificSKUReservation"], specific)
    known = {
        "name": "train-reservation",
        "status": "READY",
        "specificReservationRequired": True,
        "specificReservation": specific,
    }
    return checked(COMPUTE["Reservation"], {**known, **changes})


def image(**changes: Any) -> Body:
    """The answer of `images.getFromFamily`."""
    if "deprecated" in changes:
        checked(COMPUTE["DeprecationStatus"], changes["deprecated"])
    known = {
        "name": "ubuntu-accelerator-2404",
        "status": "READY",
        "architecture": "X86_64",
        "diskSizeGb": "20",
        "creationTimestamp": "2026-08-20T10:00:00.000-07:00",
    }
    return checked(COMPUTE["Image"], {**known, **changes})


def services(*disabled: str) -> Any:
    """The answer of `services.batchGet`: all APIs of the request are enabled except these."""

    def answer(query: str, body: Any) -> tuple[int, Body]:
        names = re.findall(r"names=([^&]+)", query)
        assert 0 < len(names) <= 30
        states = [
            {"name": name, "state": "DISABLED" if name.rpartition("/")[2] in disabled else "ENABLED"} for name in names
        ]
        return 200, {"services": [checked(SERVICE, one) for one in states]}

    return answer


def granted(*missing: str, invalid: tuple[str, ...] = ()) -> Any:
    """The answer of `testIamPermissions`: all permissions except these."""

    def answer(query: str, body: Any) -> tuple[int, Body]:
        names = body["permissions"]
        assert 0 < len(names) <= 100
        for name in invalid:
            if name in names:
                return error(400, f"Permission {name} is not valid for this resource.", "INVALID_ARGUMENT")
        return 200, {"permissions": [name for name in names if name not in missing]}

    return answer


def error(status: int, message: str, name: str, **info: Any) -> tuple[int, Body]:
    """An error response."""
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **info}] if info else []
    return status, {"error": {"code": status, "message": message, "status": name, "details": details}}


TOKEN = "0a1b2c3d"
ZONE = f"/compute/projects/{PROJECT}/zones/us-central1-a"
PATHS = {
    "permissions": f"/cloudresourcemanager/v1/projects/{PROJECT}:testIamPermissions",
    "api": f"/serviceusage/v1/projects/{PROJECT}/services:batchGet",
    "quota": f"/cloudquotas/v1/projects/{PROJECT}/locations/global/services/compute.googleapis.com/quotaInfos/{FAMILY}",
    "spot": f"/cloudquotas/v1/projects/{PROJECT}/locations/global/services/compute.googleapis.com/quotaInfos/PREEMPTIBLE-{FAMILY}",
    "lustre": f"/cloudquotas/v1/projects/{PROJECT}/locations/global/services/lustre.googleapis.com/quotaInfos/Capacity",
    "filestore": f"/cloudquotas/v1/projects/{PROJECT}/locations/global/services/file.googleapis.com/quotaInfos/EnterpriseStorageGibPerRegion",
    "region": f"/compute/projects/{PROJECT}/regions/us-central1",
    "machine": f"{ZONE}/machineTypes/a3-megagpu-8g",
    "machines": f"/compute/projects/{PROJECT}/aggregated/machineTypes",
    "reservation": f"{ZONE}/reservations/train-reservation",
    "image": "/compute/projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-amd64-with-nvidia-580",
}


class Google:
    """A local server with one answer for each path."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.requests: list[tuple[str, str]] = []
        self.latency_s = 0.0

        class Handler(Answering):
            def do_GET(handler) -> None:
                self._answer(handler)

            do_POST = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def _answer(self, handler: Answering) -> None:
        path, _, query = handler.path.partition("?")
        assert handler.headers["Authorization"] == "Bearer ya29.example"
        self.requests.append((handler.command, path))
        time.sleep(self.latency_s)
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        found: Any = self.answers.get(path, error(404, f"The resource '{path}' was not found", "NOT_FOUND"))
        if callable(found):
            found = found(query, json.loads(body or b"null"))
        status, content = found
        handler.answer(status, json.dumps(content).encode(), Content_Type="application/json")


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[Google]:
    """A project in which the stack can be deployed."""
    found = healthy(monkeypatch)
    yield found
    found.server.shutdown()
    found.server.server_close()


def healthy(monkeypatch: pytest.MonkeyPatch) -> Google:
    """Return a project in which the stack can be deployed, and select it in the environment."""
    for name in (*gcp_credentials.KEYS, *gcp_credentials.PROJECTS, gcp_credentials.IMPERSONATED):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(gcp_credentials.TOKEN, "ya29.example")
    found = Google()
    for api, (name, _) in preflight._APIS.items():
        monkeypatch.setenv(name, f"http://127.0.0.1:{found.server.server_port}/{api}/")
    found.answers = {
        PATHS["permissions"]: granted(),
        PATHS["api"]: services(),
        PATHS["quota"]: (200, by_family("64")),
        PATHS["spot"]: (200, by_family("32")),
        PATHS["lustre"]: (
            200,
            {"dimensionsInfos": [{"details": {"value": "1000000"}, "applicableLocations": ["us-central1-a"]}]},
        ),
        PATHS["filestore"]: (
            200,
            {"dimensionsInfos": [{"details": {"value": "9999"}, "applicableLocations": ["us-central1"]}]},
        ),
        PATHS["machine"]: (200, {"name": "a3-megagpu-8g"}),
        PATHS["reservation"]: (200, reservation()),
        PATHS["image"]: (200, image()),
    }
    return found


def ask(plan: Plan = PLAN) -> list[PreflightRow]:
    """The rows for a plan."""
    cloud = preflight.Preflight("us-central1", {"gcp:project": PROJECT})
    list(cloud.identity())
    return answers(cloud.questions(plan, lambda: TOKEN), 300)


def of(rows: list[PreflightRow], topic: str) -> PreflightRow:
    """The only row of a topic that is not fine, or the first one."""
    found = [row for row in rows if row.topic == topic]
    return next((row for row in found if row.state in (RowState.WARN, RowState.ERROR)), found[0])


def test_project_in_which_the_stack_can_be_deployed(google: Google) -> None:
    """In a healthy project, each topic has a row without a problem. The permissions of the billing account are skipped and named."""
    rows = ask()
    assert [row for row in rows if row.state in (RowState.WARN, RowState.ERROR)] == []
    assert {row.topic for row in rows} == set(preflight.TOPICS)
    (skipped,) = [row for row in rows if row.state is RowState.SKIPPED]
    assert skipped.found.startswith("billing.budgets.create, ")
    assert of(rows, "reservation").found == "READY, 4 of 4 free, 4 needed"
    assert {method for method, path in google.requests if not path.endswith(":testIamPermissions")} == {"GET"}


@pytest.mark.parametrize(
    ("key", "value", "needed"), [("quota", "31", "32 for"), ("spot", "8", "32 for"), ("quota", None, "32 for")]
)
def test_quota_by_family_below_the_need(google: Google, key: str, value: str | None, needed: str) -> None:
    """The GPUs of the family are compared separately for spot. The fix names the quota, the region and the family."""
    google.answers[PATHS[key]] = (200, by_family(value))
    row = of(ask(), "quota")
    assert (row.state, row.found) == (RowState.ERROR, f"{value or 0}, usage unknown")
    assert row.needed.startswith(needed)
    prefix = "PREEMPTIBLE-" if key == "spot" else ""
    assert (
        f"--quota-id={prefix}{FAMILY} --preferred-value=32 --dimensions=region=us-central1,gpu_family=NVIDIA_H100_MEGA"
        in row.fix
    )


def test_quota_of_another_family_does_not_apply(google: Google) -> None:
    """An entry of another family is not used; the general entry applies."""
    google.answers[PATHS["quota"]] = (200, by_family("64", "NVIDIA_H200"))
    assert of(ask(), "quota").found == "0, usage unknown"


def _a100(kind: str = "on_demand") -> Plan:
    pool = PLAN.pools[0]
    group = replace(pool.groups[0], kind=kind, max_count=2, reservation_id=None)
    return replace(PLAN, pools=(replace(pool, machine="a2-highgpu-8g", groups=(group,)),))


@pytest.mark.parametrize(
    ("kind", "limits", "state"),
    [
        ("on_demand", {"NVIDIA_A100_GPUS": (16, 0)}, RowState.OK),
        ("on_demand", {"NVIDIA_A100_GPUS": (15, 0)}, RowState.ERROR),
        ("on_demand", {"NVIDIA_A100_GPUS": (16, 8)}, RowState.WARN),
        ("reserved", {"NVIDIA_A100_GPUS": (16, 16)}, RowState.OK),
        ("spot", {"NVIDIA_A100_GPUS": (16, 0), "PREEMPTIBLE_NVIDIA_A100_GPUS": (0, 0)}, RowState.ERROR),
        ("spot", {"NVIDIA_A100_GPUS": (16, 0)}, RowState.WARN),
    ],
)
def test_quota_of_older_families_is_a_metric_of_the_region(
    google: Google, kind: str, limits: dict[str, tuple[float, float]], state: RowState
) -> None:
    """The limit and the use of a metric of the region are compared with the need. A metric that is absent is not a limit of 0."""
    google.answers |= {PATHS["region"]: (200, region(**limits)), f"{ZONE}/machineTypes/a2-highgpu-8g": (200, {})}
    assert of(ask(_a100(kind)), "quota").state is state


def test_missing_permissions_are_named(google: Google) -> None:
    """A permission that the project does not grant is named, with the command that prints the role."""
    google.answers[PATHS["permissions"]] = granted("compute.networks.create", "lustre.instances.create")
    row = of(ask(), "permissions")
    assert row.state is RowState.ERROR
    assert "missing: compute.networks.create, lustre.instances.create" in row.found
    assert row.fix.startswith("run `gpuinfra permissions STACK`")


def test_permissions_that_cannot_be_tested_are_skipped(google: Google) -> None:
    """A permission that the API refuses for projects is skipped, and the others are still tested."""
    name = next(need.action for need in permissions(PLAN).needs if need.action.startswith("storage."))
    google.answers[PATHS["permissions"]] = granted("compute.networks.create", invalid=(name,))
    rows = [row for row in ask() if row.topic == "permissions"]
    assert [row.state for row in rows] == [RowState.ERROR, RowState.SKIPPED]
    assert name in rows[1].found


@pytest.mark.parametrize(
    ("disabled", "state", "said"),
    [
        ("file.googleapis.com", RowState.OK, "all "),
        ("compute.googleapis.com", RowState.OK, "`pulumi up` enables these APIs"),
        (
            "cloudbilling.googleapis.com",
            RowState.ERROR,
            "gcloud services enable cloudbilling.googleapis.com --project=ai-team",
        ),
    ],
)
def test_apis_that_are_not_enabled(google: Google, disabled: str, state: RowState, said: str) -> None:
    """APIs that enable the others must be enabled. `pulumi up` enables the others. APIs that the stack does not call are not asked."""
    google.answers[PATHS["api"]] = services(disabled)
    row = of(ask(), "api")
    assert row.state is state
    assert said in f"{row.found} {row.fix}"


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ({"zones/us-central1-b": {"machineTypes": [{}]}, "zones/us-east4-a": {"machineTypes": [{}]}, "zones/us-central1-c": {"warning": {}}},
            "set `zone` in the stack file to us-central1-b"),
        ({"zones/us-east4-a": {"machineTypes": [{}]}}, "to us-east4-a"),
        ({}, "ask Google for access"),
    ],
)  # fmt: skip
def test_machine_that_is_not_offered(google: Google, listed: dict[str, Any], said: str) -> None:
    """A machine type that the zone does not offer is a problem with the zones that do, in the region first."""
    del google.answers[PATHS["machine"]]
    google.answers[PATHS["machines"]] = (200, {"items": listed})
    row = of(ask(), "machine")
    assert row.state is RowState.ERROR
    assert row.fix.endswith(said) or said in row.fix


@pytest.mark.parametrize(
    ("changes", "state", "said"),
    [
        ({"specific": {"instanceProperties": {"machineType": "a3-highgpu-8g"}}}, RowState.ERROR, "is for a3-highgpu-8g"),
        ({"status": "CREATING"}, RowState.ERROR, "run the command again when it is ready"),
        ({"status": "DELETING"}, RowState.ERROR, "create another reservation, and set `id` in the stack file"),
        ({"specificReservationRequired": False}, RowState.ERROR, "--require-specific-reservation"),
        ({"specific": {"count": "2"}}, RowState.ERROR, "reservations update train-reservation --zone=us-central1-a --project=ai-team --vm-count=4"),
        ({"specific": {"inUseCount": "3"}}, RowState.WARN, "1 of 4 free"),
        ({"deleteAtTime": "2026-12-24T00:00:00Z"}, RowState.OK, "until 2026-12-24T00:00:00Z"),
    ],
)  # fmt: skip
def test_reservation_that_does_not_fit(google: Google, changes: dict[str, Any], state: RowState, said: str) -> None:
    """Machine type, status, targeting, size and free instances of a reservation are compared with its nodes."""
    google.answers[PATHS["reservation"]] = (200, reservation(**changes))
    row = of(ask(), "reservation")
    assert row.state is state
    assert said in f"{row.found} {row.fix}"


def test_reservation_that_does_not_exist(google: Google) -> None:
    """A reservation that does not exist in the zone is a problem with the command that lists reservations."""
    del google.answers[PATHS["reservation"]]
    row = of(ask(), "reservation")
    assert row.state is RowState.ERROR
    assert row.fix.startswith("gcloud compute reservations list --project=ai-team")


def test_shared_reservation_is_read_from_its_project(google: Google) -> None:
    """A reservation that another project shares is read there."""
    pool = PLAN.pools[0]
    shared = tuple(
        replace(one, reservation_id="projects/owner/reservations/r1") if one.reservation_id else one
        for one in pool.groups
    )
    google.answers["/compute/projects/owner/zones/us-central1-a/reservations/r1"] = (200, reservation())
    assert of(ask(replace(PLAN, pools=(replace(pool, groups=shared),))), "reservation").state is RowState.OK


@pytest.mark.parametrize(
    ("changes", "state", "said"),
    [
        ({"status": "FAILED"}, RowState.ERROR, "is FAILED"),
        ({"deprecated": {"state": "OBSOLETE"}}, RowState.ERROR, "is OBSOLETE"),
        ({"deprecated": {"state": "DEPRECATED"}}, RowState.WARN, "is deprecated"),
        ({"architecture": "ARM64"}, RowState.ERROR, "is for arm64"),
        ({"diskSizeGb": "9999"}, RowState.ERROR, "set `disk.size_gib` of pool gpu to 9999"),
        ({}, RowState.OK, "days old"),
    ],
)
def test_image_that_does_not_fit(google: Google, changes: dict[str, Any], state: RowState, said: str) -> None:
    """Status, deprecation, architecture and size of an image are compared with its nodes."""
    google.answers[PATHS["image"]] = (200, image(**changes))
    row = of(ask(), "image")
    assert row.state is state
    assert said in f"{row.found} {row.fix}"


def test_image_that_does_not_exist(google: Google) -> None:
    """An image family without an image is a problem."""
    del google.answers[PATHS["image"]]
    assert of(ask(), "image").state is RowState.ERROR


ERRORS = {
    "denied": (error(403, "Required 'compute.things.get' permission for 'projects/ai-team'", "PERMISSION_DENIED"), RowState.WARN, "denied"),
    "disabled": (error(403, "API has not been used in "
        "project 1 before or it is disabled.", "PERMISSION_DENIED", reason="SERVICE_DISABLED"), RowState.WARN, "disabled"),
    "throttled": (error(403, "Rate Limit Exceeded", "PERMISSION_DENIED", reason="rateLimitExceeded"), RowState.WARN, "throttled"),
    "quota of requests": (error(429, "Quota exceeded for quota metric", "RESOURCE_EXHAUSTED"), RowState.WARN, "throttled"),
    "token": (error(401, "Request had invalid authentication credentials.", "UNAUTHENTICATED"), RowState.ERROR, "not accepted"),
    "service": (error(503, "The service is currently unavailable.", "UNAVAILABLE"), RowState.WARN, "failed"),
    "text": ((200, "text"), RowState.WARN, "failed"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
@pytest.mark.parametrize("key", ["permissions", "api", "quota", "machine", "reservation", "image"])
def test_every_failed_request_is_a_row(google: Google, key: str, case: str) -> None:
    """Each request that is denied, throttled, not accepted or fails is one row with a fix, and the other topics have rows."""
    answer, state, said = ERRORS[case]
    google.answers[PATHS[key]] = answer
    rows = ask()
    row = of(rows, key)
    assert row.state is state
    assert said in row.found
    assert row.fix
    assert {one.topic for one in rows} == set(preflight.TOPICS)
    if case == "disabled":
        assert row.fix.startswith("gcloud services enable ")


def test_no_connection_is_a_row(google: Google, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that refuses connections, and one without TLS, are rows."""
    for address, said in (
        ("http://127.0.0.1:1/", "did not respond"),
        ("http://example.com/", "allowed: an https address"),
    ):
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDQUOTAS", address)
        row = of(ask(), "quota")
        assert row.state is RowState.WARN
        assert said in row.found


def test_read_permissions_are_documented() -> None:
    """The page lists the permission of each request."""
    page = (Path(__file__).parents[2] / "docs" / "guides" / "doctor.md").read_text(encoding="utf-8")
    assert [one for names in preflight.READS.values() for one in names if f"`{one}`" not in page] == []
