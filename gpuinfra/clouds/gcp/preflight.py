"""Queries Google Cloud before a deployment, with google-auth and the credentials of the operator. All requests are read-only.

Paths, fields and states come from Google's discovery documents (compute v1 of 2026-11-06, serviceusage v1, cloudresourcemanager v1).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from gpuinfra.base.safe_text import one_line
from gpuinfra.clouds.gcp import adopt, instances
from gpuinfra.clouds.gcp import credentials as gcp_credentials
from gpuinfra.clouds.gcp.api_errors import Invalid, NotFound
from gpuinfra.clouds.gcp.permissions import PREFLIGHT
from gpuinfra.clouds.gcp.permissions import permissions as needed_permissions
from gpuinfra.clouds.gcp.quotas import Quotas
from gpuinfra.clouds.preflight import (
    Denied,
    Owner,
    PreflightQuestion,
    PreflightRow,
    bucket_rows,
    denied,
    failed,
    no_credentials,
    ok,
    problem,
    rejected,
    skipped,
    throttled,
    together,
    unreachable,
    warning,
)
from gpuinfra.handover.ports import PortUnavailable
from gpuinfra.handover.trust import checked_address
from gpuinfra.plan.model import Group, Plan, PoolPlan
from gpuinfra.software.images import ImageFamily

LOGIN = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
CREDENTIALS = ("GOOGLE_APPLICATION_CREDENTIALS", gcp_credentials.TOKEN, *gcp_credentials.KEYS)
"""Environment variables that contain or select credentials."""
SETTINGS = {"gcp:credentials": True, "gcp:accessToken": True, "gcp:externalCredentials": True}
"""Maps a provider sign-in setting to whether it contains credentials. The names are from `pulumi_gcp.config`."""
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
TIMEOUT_S = 5
"""Time limit of one request."""
PERMISSIONS_AT_ONCE = 100
"""Maximum number of permissions in one request of testIamPermissions: https://docs.cloud.google.com/iam/docs/testing-permissions, retrieved 2026-11-23."""
SERVICES_AT_ONCE = 30
SHOWN = 12
"""Maximum number of missing permissions that a row lists."""

ENDED = ("DELETING", "INVALID")
"""Statuses of a reservation that never becomes READY. The others are CREATING and UPDATING (`Reservation.status` in the discovery document
of Compute Engine, retrieved 2026-11-23)."""
TOPICS = ("permissions", "api", "quota", "machine", "reservation", "image", "names")
"""Topics of the questions about a plan."""

READS = PREFLIGHT

FIRST = frozenset({"cloudbilling", "cloudresourcemanager", "serviceusage"})
"""APIs that must be enabled before `pulumi up`, which calls them to enable the others (docs/reference/gcp.md)."""
_OVERRIDES = "CLOUDSDK_API_ENDPOINT_OVERRIDES_"
_APIS = {
    "compute": (f"{_OVERRIDES}COMPUTE", "https://compute.googleapis.com/compute/v1/"),
    "cloudresourcemanager": (f"{_OVERRIDES}CLOUDRESOURCEMANAGER", "https://cloudresourcemanager.googleapis.com/"),
    "serviceusage": (f"{_OVERRIDES}SERVICEUSAGE", "https://serviceusage.googleapis.com/"),
    "cloudquotas": (f"{_OVERRIDES}CLOUDQUOTAS", "https://cloudquotas.googleapis.com/"),
    "storage": ("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com/"),
}
"""Maps an API to the variable with which Google's tools override its address, and to its address."""
_KINDS = {
    "google.oauth2.service_account": "service account key",
    "google.oauth2.credentials": "user or access token",
    "google.auth.compute_engine.credentials": "service account of this machine",
    "google.auth.impersonated_credentials": "impersonated service account",
    "google.auth.identity_pool": "workload identity federation",
    "google.auth.aws": "workload identity federation from AWS",
    "google.auth.pluggable": "workload identity federation with an executable",
    "google.auth.external_account_authorized_user": "workforce identity federation",
}
"""Maps the credentials' module in google-auth to a description."""


class Preflight:
    """Requests from one operator to one project."""

    def __init__(self, region: str, config: Mapping[str, object]) -> None:
        """`config` contains the provider settings of the stack file. `gcp:project` selects the project, as for Pulumi."""
        self.region = region
        self._project = str(config.get("gcp:project") or "")

    def questions(self, plan: Plan, token: Callable[[], str]) -> Iterator[PreflightQuestion]:
        """Yield the questions about a plan. The caller asks `identity` first. `token` returns the stack's `naming.stack_token`, or raises `Unanswered`."""
        asked: list[tuple[str, str, Callable[[], Iterable[PreflightRow]]]] = [
            ("permissions", f"project {self.project}", functools.partial(self.permissions, plan)),
            ("api", f"project {self.project}", functools.partial(self.apis, plan)),
            ("names", "buckets", lambda: self.names(plan, token())),
        ]
        limits = Quotas(self.get, self.project, self.region)
        asked += [(one.topic, one.where, one.ask) for one in limits.questions(plan)]
        for machine, zone in dict.fromkeys((pool.machine, group.zone) for pool in plan.pools for group in pool.groups):
            asked.append(("machine", f"{machine} in {zone}", functools.partial(self.machine, machine, zone)))
        for pool in plan.pools:
            for group in pool.groups:
                if group.reservation_id:
                    where = f"{group.name}: {group.reservation_id}"
                    asked.append(("reservation", where, functools.partial(self.reservation, group, pool.machine)))
        for ref, pool in {pool.image.ref: pool for pool in plan.pools}.items():
            asked.append(("image", ref, functools.partial(self.image, pool)))
        for topic, where, ask in asked:
            yield PreflightQuestion(topic=topic, where=where, ask=ask)

    def identity(self) -> Iterator[PreflightRow]:
        """Return the type of the identity, and the project."""
        kind = self.login()
        if self.project:
            yield ok("identity", "Google Cloud", f"project {self.project}, {kind}")
        else:
            fix = "run `pulumi config set gcp:project PROJECT`, or set GOOGLE_CLOUD_PROJECT"
            yield problem("identity", "Google Cloud", f"{kind}, but no project is selected", "a project", fix)

    def login(self) -> str:
        """Get a token, and return the type of the credentials. Raises `Unanswered` without valid credentials."""
        self.credentials, default = self.find_credentials()
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.requests import Request

        self.project = self._project or default or ""
        try:
            if not self.credentials.valid:
                self.credentials.refresh(functools.partial(Request(), timeout=TIMEOUT_S))
        except TransportError as error:
            raise unreachable("the token service", one_line(error)) from None
        except GoogleAuthError as error:
            raise rejected(one_line(error), LOGIN) from None
        return _KINDS.get(type(self.credentials).__module__, type(self.credentials).__name__)

    def find_credentials(self) -> tuple[Any, str | None]:
        """Return the credentials of google-auth and their default project. Raises `Unanswered`."""
        try:
            return gcp_credentials.find(SCOPES)
        except gcp_credentials.NoCredentials as error:
            raise no_credentials(str(error), LOGIN) from None

    def get(self, api: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the response. With a body, the request is a POST. Raises `Unanswered`, `NotFound` or `Invalid`."""
        import requests
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import AuthorizedSession

        action = f"{api}.googleapis.com"
        try:
            address = checked_address(*_APIS[api]).rstrip("/")
            # STORAGE_EMULATOR_HOST can be `host:port`.
            url = f"{address if '://' in address else f'http://{address}'}/{path}"
            session = AuthorizedSession(self.credentials)
            method = "GET" if body is None else "POST"
            answer = session.request(method, url, json=body, timeout=TIMEOUT_S, allow_redirects=False)
            content = answer.json()
        except PortUnavailable as error:
            raise unreachable(action, str(error)) from None
        except GoogleAuthError as error:
            raise rejected(one_line(error), LOGIN) from None
        except (requests.RequestException, OSError, ValueError) as error:
            raise unreachable(action, one_line(error)) from None
        if answer.status_code >= 300 or not isinstance(content, dict):
            raise self._refusal(action, answer.status_code, content)
        return content

    def _refusal(self, action: str, status: int, content: Any) -> Exception:
        """Return the exception for an error response: `error` with code, message, status, errors and details (google.rpc.Status)."""
        error = content.get("error") if isinstance(content, dict) else None
        error = error if isinstance(error, dict) else {}
        message = one_line(error.get("message") or f"status {status}")
        reasons = {str(one.get("reason")) for key in ("errors", "details") for one in error.get(key) or ()}
        if reasons & {"SERVICE_DISABLED", "accessNotConfigured"}:
            fix = f"gcloud services enable {action} --project={self.project}"
            unanswered = failed(action, message)
            unanswered.needed, unanswered.fix = f"the {action} API", fix
            return unanswered
        if status == 429 or reasons & {"rateLimitExceeded", "RATE_LIMIT_EXCEEDED", "userRateLimitExceeded"}:
            return throttled(action, message)
        if status == 401:
            return rejected(message, LOGIN)
        if status == 403:
            named = re.search(r"'([a-z]+\.[A-Za-z]+\.[A-Za-z]+)'", message)
            return denied(named[1] if named else f"to read from {action}", message)
        if status == 404:
            return NotFound(message)
        if status == 400:
            return Invalid(message)
        return failed(action, message)

    # Permissions and APIs

    def permissions(self, plan: Plan) -> Iterator[PreflightRow]:
        """The identity has the permissions on the project that `gpuinfra permissions` prints. A binding with a condition cannot be tested on a project,
        because the condition does not hold there."""
        needed = needed_permissions(plan)
        names = [need.action for need in needed.needs]
        wanted = list(needed.documents[0]["includedPermissions"])
        parts = [wanted[at : at + PERMISSIONS_AT_ONCE] for at in range(0, len(wanted), PERMISSIONS_AT_ONCE)]
        answers = together([functools.partial(self._granted, part) for part in parts])
        if None in answers:
            raise failed("cloudresourcemanager.googleapis.com", "a request received no response")
        granted = {one for answer in answers if answer for one in answer[0]}
        untested = {one for answer in answers if answer for one in answer[1]}
        missing = [one for one in wanted if one not in granted | untested]
        where = f"project {self.project}"
        if missing:
            more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
            what = f"{len(missing)} of {len(wanted)} missing: {', '.join(missing[:SHOWN])}{more}"
            fix = "run `gpuinfra permissions STACK`, create the role that it prints, and grant the role on the project (docs/reference/permissions.md)"
            yield problem("permissions", where, what, "the role that `gpuinfra permissions` prints", fix)
        else:
            yield ok("permissions", where, f"all {len(wanted) - len(untested)} permissions are granted")
        skip = [*sorted(untested), *(one for one in names if one not in wanted)]
        if skip:
            why = "cannot be tested on a project; budgets belong to the billing account, and other bindings have conditions"
            yield skipped("permissions", where, f"{', '.join(skip)} {why}")

    def _granted(self, names: list[str]) -> tuple[list[str], list[str]]:
        """Return the granted permissions, and those that cannot be tested on a project, which the API reports one by one."""
        left, untested = list(names), []
        path = f"v1/projects/{self.project}:testIamPermissions"
        while left:
            try:
                return list(
                    self.get("cloudresourcemanager", path, {"permissions": left}).get("permissions") or ()
                ), untested
            except Invalid as error:
                named = next((one for one in left if re.search(rf"\b{re.escape(one)}\b", str(error))), None)
                if named is None:
                    raise failed("cloudresourcemanager.googleapis.com", str(error)) from None
                left.remove(named)
                untested.append(named)
            except NotFound as error:
                raise failed("cloudresourcemanager.googleapis.com", str(error)) from None
        return [], untested

    def apis(self, plan: Plan) -> Iterator[PreflightRow]:
        """The APIs that a program calls before it can enable others are enabled. The stack enables the others."""
        first = FIRST if plan.budget else FIRST - {"cloudbilling"}
        names = [f"{api}.googleapis.com" for api in sorted({*first, *instances.apis(plan)})]
        query = "&".join(f"names=projects/{self.project}/services/{name}" for name in names[:SERVICES_AT_ONCE])
        try:
            listed = (
                self.get("serviceusage", f"v1/projects/{self.project}/services:batchGet?{query}").get("services") or ()
            )
        except (NotFound, Invalid) as error:
            raise failed("serviceusage.googleapis.com", str(error)) from None
        enabled = {str(one.get("name")).rpartition("/")[2] for one in listed if one.get("state") == "ENABLED"}
        absent = [name for name in names if name not in enabled]
        where = f"project {self.project}"
        if not absent:
            yield ok("api", where, f"all {len(names)} APIs are enabled")
            return
        what = f"{', '.join(absent)} not enabled"
        fix = f"gcloud services enable {' '.join(absent)} --project={self.project}"
        if any(name.partition(".")[0] in FIRST for name in absent):
            yield problem("api", where, what, "the APIs that enable and find other APIs", fix)
        else:
            yield ok("api", where, f"{what}; `pulumi up` enables these APIs, or run `{fix}`")

    def names(self, plan: Plan, token: str) -> Iterator[PreflightRow]:
        """The names of the buckets are free, or their buckets are in this project."""
        return bucket_rows(adopt.buckets(plan, self.project, token), self._owner)

    def _owner(self, bucket: str) -> Owner:
        """Return who has a bucket. https://docs.cloud.google.com/storage/docs/json_api/v1/buckets/get, retrieved 2026-11-27."""
        try:
            self.get("storage", f"storage/v1/b/{bucket}?fields=name")
        except NotFound:
            return Owner.UNUSED
        except Invalid as error:
            raise failed("storage.googleapis.com", str(error)) from None
        except Denied:
            return Owner.OTHER
        return Owner.ACCOUNT

    # Capacity and images

    def machine(self, machine: str, zone: str) -> Iterator[PreflightRow]:
        """The zone offers the machine type."""
        where = f"{machine} in {zone}"
        try:
            self.get("compute", f"projects/{self.project}/zones/{zone}/machineTypes/{machine}")
        except Invalid as error:
            raise failed("compute.googleapis.com", str(error)) from None
        except NotFound:
            path = f"projects/{self.project}/aggregated/machineTypes?filter=name%3D{machine}&returnPartialSuccess=true"
            try:
                listed = self.get("compute", path).get("items") or {}
            except (NotFound, Invalid) as error:
                raise failed("compute.googleapis.com", str(error)) from None
            zones = sorted(name.removeprefix("zones/") for name, one in listed.items() if one.get("machineTypes"))
            near = [one for one in zones if one.startswith(f"{self.region}-")] or zones
            fix = (
                f"set `zone` in the stack file to {' or '.join(near)}"
                if near
                else "ask Google for access to the machine type"
            )
            yield problem("machine", where, f"not offered in {zone}", "a zone that offers the machine type", fix)
        else:
            yield ok("machine", where, "offered")

    def reservation(self, group: Group, machine: str) -> Iterator[PreflightRow]:
        """The reservation exists, is ready, matches the nodes, and has free instances."""
        ident = str(group.reservation_id)
        where = f"{group.name}: {ident}"
        owner, _, name = ident.rpartition("/reservations/") if "/reservations/" in ident else ("", "", ident)
        project = owner.removeprefix("projects/").partition("/")[0] or self.project
        name = name.partition("/")[0]
        try:
            answer = self.get("compute", f"projects/{project}/zones/{group.zone}/reservations/{name}")
        except Invalid as error:
            raise failed("compute.googleapis.com", str(error)) from None
        except NotFound:
            if group.starts_at and not group.count:
                # Compute Engine creates the reservation of a future reservation at its start
                # (docs.cloud.google.com/compute/docs/instances/create-single-project-future-reservations, retrieved 2026-11-26).
                needed, fix = f"a reservation at {group.starts_at}", f"gcloud compute future-reservations list --project={project}"  # fmt: skip
                yield warning("reservation", where, "the reservation has not been created yet", needed, fix)
                return
            fix = f"gcloud compute reservations list --project={project}; set `id` or `zone` in the stack file"
            yield problem(
                "reservation",
                where,
                f"no such reservation in {group.zone} of project {project}",
                "an existing reservation",
                fix,
            )
            return
        specific = answer.get("specificReservation") or {}
        kind = str((specific.get("instanceProperties") or {}).get("machineType") or "")
        total, used = int(specific.get("count") or 0), int(specific.get("inUseCount") or 0)
        end = f", until {answer['deleteAtTime']}" if answer.get("deleteAtTime") else ""
        have = f"{answer.get('status')}, {total - used} of {total} free{end}"
        update = f"gcloud compute reservations update {name} --zone={group.zone} --project={project}"
        if kind and kind != machine:
            fix = f"set `machine` to {kind}, or `id` to a different reservation"
            yield problem("reservation", where, f"is for {kind}", f"a reservation of {machine}", fix)
        elif answer.get("status") != "READY":
            again = "run the command again when it is ready"
            fix = (
                "create another reservation, and set `id` in the stack file" if answer.get("status") in ENDED else again
            )
            yield problem("reservation", where, have, "a reservation that is READY", fix)
        elif specific and not answer.get("specificReservationRequired"):
            fix = "create the reservation with --require-specific-reservation, because the nodes target it"
            yield problem(
                "reservation",
                where,
                f"{have}, which all matching VMs can use",
                "a reservation for VMs that target it",
                fix,
            )
        elif specific and total < group.max_count:
            yield problem(
                "reservation", where, have, f"{group.max_count} instances", f"{update} --vm-count={group.max_count}"
            )
        elif specific and total - used < group.max_count:
            needed = f"{group.max_count} free instances, unless nodes of this stack use the other instances"
            yield warning("reservation", where, have, needed, f"{update} --vm-count={used + group.max_count}")
        elif not specific:
            yield warning(
                "reservation",
                where,
                str(answer.get("status")),
                "a reservation of VMs",
                "check the number of free VMs yourself",
            )
        else:
            yield ok("reservation", where, f"{have}, {group.max_count} needed")

    def image(self, pool: PoolPlan) -> Iterator[PreflightRow]:
        """The image exists, is ready, fits the machine type and the disk, and is not deprecated."""
        ref, fix = pool.image.ref, "set `image` in the stack file; `gpuinfra images STACK` lists releases"
        path = _newest(ref) if pool.image.source == "family" else ref
        path = path.partition("/compute/v1/")[2] or path
        try:
            answer = self.get("compute", path)
        except Invalid as error:
            raise failed("compute.googleapis.com", str(error)) from None
        except NotFound:
            yield problem("image", ref, "not found", "an existing image", fix)
            return
        made = answer.get("creationTimestamp")
        age = f", {(datetime.now(UTC) - datetime.fromisoformat(str(made))).days} days old" if made else ""
        about = f"{answer.get('name')}{age}"
        state = str((answer.get("deprecated") or {}).get("state") or "ACTIVE")
        arch = {"X86_64": "x86_64", "ARM64": "arm64"}.get(str(answer.get("architecture")), pool.image.arch)
        size = int(answer.get("diskSizeGb") or 0)
        if answer.get("status") != "READY" or state in ("OBSOLETE", "DELETED"):
            yield problem(
                "image",
                ref,
                f"{about} is {state if state != 'ACTIVE' else answer.get('status')}",
                "an image that is READY",
                fix,
            )
        elif arch != pool.image.arch:
            yield problem("image", ref, f"{about} is for {arch}", f"an image for {pool.image.arch}", fix)
        elif size > pool.disk.size_gib:
            more = f"set `disk.size_gib` of pool {pool.name} to {size}"
            yield problem("image", ref, f"{about} needs a disk of {size} GiB", f"a disk of {size} GiB", more)
        elif state == "DEPRECATED":
            yield warning("image", ref, f"{about} is deprecated", "a current image", fix)
        else:
            yield ok("image", ref, about)

    def newest_image(self, family: ImageFamily) -> str | None:
        """Return the path of the newest image of a family, in the form of `ImageFamily.dated`, or None if the family has none."""
        try:
            image = self.get("compute", _newest(family.latest))
        except Invalid as error:
            raise failed("compute.googleapis.com", str(error)) from None
        except NotFound:
            return None
        return f"projects/{family.latest.partition('/')[0]}/global/images/{image['name']}"


def _newest(ref: str) -> str:
    """Return the path of the newest image of PROJECT/FAMILY."""
    owner, _, family = ref.partition("/")
    return f"projects/{owner}/global/images/family/{family}"
