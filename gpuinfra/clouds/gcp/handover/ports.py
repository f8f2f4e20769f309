"""The four ports on Google Cloud: plain HTTP with google-auth.

The module uses Application Default Credentials. Endpoints are Google's defaults, or come from variables that Google's own
tools read, never from the evidence:

| variable | read by | purpose |
| --- | --- | --- |
| CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE | gcloud | Compute Engine, `https://compute.googleapis.com/compute/v1/` |
| STORAGE_EMULATOR_HOST | the client libraries | Cloud Storage, `https://storage.googleapis.com` |
| GPUINFRA_GOOGLE_JWKS_URL | gpuinfra only | the keys with which Google signs identity tokens; Google's tools do not have a variable for them |

google-auth is imported when the first port is used, so previews do not load it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpuinfra.base.errors import reason_of
from gpuinfra.base.safe_text import MAX_LINE, printable
from gpuinfra.clouds.gcp import credentials as gcp_credentials
from gpuinfra.clouds.gcp.handover.identity import GoogleIdentity
from gpuinfra.handover.ports import (
    PROOF_LIMIT,
    CloudTerms,
    EvidenceRef,
    GroupExpected,
    GroupProblem,
    ListedObject,
    Member,
    Ports,
    PortUnavailable,
    StoredProof,
    evidence_in,
)
from gpuinfra.handover.refusals import Refusals
from gpuinfra.handover.text import moment
from gpuinfra.handover.trust import checked_address

COMPUTE = "https://compute.googleapis.com/compute/v1/"
STORAGE = "https://storage.googleapis.com"
JWKS = "https://www.googleapis.com/oauth2/v3/certs"
JWKS_VARIABLE = "GPUINFRA_GOOGLE_JWKS_URL"
TRUST_VARIABLES = (JWKS_VARIABLE, "STORAGE_EMULATOR_HOST", "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE")
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
TIMEOUT_S = 30.0

LEAVING = ("ABANDONING", "DELETING", "RECREATING", "STOPPING", "SUSPENDING")
"""Values of `currentAction` for managed instances that the group is terminating. The evidence of these instances is ignored."""
ENDED = ("STOPPING", "STOPPED", "SUSPENDING", "SUSPENDED", "TERMINATED", "DEPROVISIONING")
"""Values of `instanceStatus` for instances that are not running, including preempted instances that their group has not recreated yet."""

LAUNCHING = ("CREATING", "CREATING_WITHOUT_RETRIES", "RECREATING", "STARTING", "RESUMING")
"""Actions that leave a group without an instance if they fail."""

TERMS = CloudTerms(
    group="managed instance group",
    template="instance template",
    update="start a rolling replacement in the managed instance group (`gcloud compute instance-groups managed rolling-action replace`)",
    replace="recreate the instance in the managed instance group",
    activities="read the errors of the managed instance group (`gcloud compute instance-groups managed list-errors`)",
)
REFUSALS = Refusals(Path(__file__).with_name("refusals.json"))

GROUP = re.compile(r"projects/(?P<project>[^/]+)/zones/(?P<zone>[^/]+)/instanceGroupManagers/(?P<name>[^/]+)")
NODE = r"(?P<instance>\d{1,20})"


def connect(
    region: str, bucket: str, prefix: str, *, profile: str = "", role_arn: str = "", assume_roles: str = ""
) -> Ports:
    """Return the ports, which use the operator's credentials. The resource paths of the instance groups contain the project and the zone."""
    if profile or role_arn or assume_roles:
        raise PortUnavailable(
            "profile and role_arn apply only to AWS; on Google Cloud, use Application Default Credentials, "
            "which can impersonate a service account (gcloud auth application-default login)"
        )
    environ = os.environ
    client = Client()
    keys = checked_address(JWKS_VARIABLE, JWKS, environ)
    membership = ManagedInstances(client, checked_address("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", COMPUTE, environ))
    return Ports(
        membership=membership,
        store=StorageEvidence(client, checked_address("STORAGE_EMULATOR_HOST", STORAGE, environ), bucket, prefix),
        identity=GoogleIdentity(partial(public_keys, keys), lambda: membership.projects),
        console=SerialPort(client, membership),
    )


def access(resources: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return no arguments of `connect`: the credentials are those of the environment."""
    return {}


def check_credentials() -> None:
    """Raise `PortUnavailable` if there are no credentials. This function sends no request."""
    _session()


def _session() -> Any:
    try:
        credentials, _ = gcp_credentials.find(SCOPES)
    except gcp_credentials.NoCredentials as error:
        raise PortUnavailable(f"Google Cloud credentials: {error}") from None
    from google.auth.transport.requests import AuthorizedSession

    return AuthorizedSession(credentials)


class RequestFailed(PortUnavailable):
    """A request without a usable response."""

    def __init__(self, message: str, status: int | None = None, reasons: frozenset[str] = frozenset()) -> None:
        super().__init__(message)
        self.status, self.reasons = status, reasons
        """Status of the response, or None if there is none, and the reasons in its error."""


def public_keys(url: str) -> dict[str, Any]:
    """Return Google's public keys. The request contains no credentials, because the keys are public and the address can be changed."""
    import requests

    try:
        answer = requests.get(url, timeout=TIMEOUT_S, allow_redirects=False)
        if answer.status_code != 200:
            raise PortUnavailable(f"{url} returned status {answer.status_code}")
        return dict(answer.json())
    except (requests.RequestException, OSError) as error:
        raise PortUnavailable(f"{url} cannot be reached: {' '.join(reason_of(error).split())[:300]}") from error
    except (ValueError, TypeError):
        raise PortUnavailable(f"the response from {url} is not a JSON object") from None


class Client:
    """Sends requests with the operator's credentials. Converts errors to `PortUnavailable` with the message from Google."""

    def __init__(self, session: Any = None) -> None:
        self._session = session
        self._lock = threading.Lock()

    def _open(self) -> Any:
        with self._lock:
            if self._session is None:
                self._session = _session()
            return self._session

    def json(
        self,
        method: str,
        url: str,
        parameters: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """Send a request and parse the response as a JSON object."""
        return self._object(self._request(method, url, parameters, body=body), url)

    @staticmethod
    def _object(answer: Any, url: str) -> dict[str, Any]:
        try:
            return dict(answer.json())
        except (ValueError, TypeError):
            raise PortUnavailable(f"the response from {_without_query(url)} is not a JSON object") from None

    def found(self, url: str, parameters: Mapping[str, str]) -> dict[str, Any] | None:
        """Return the response to a read request as a JSON object, or None if the resource does not exist."""
        answer = self._request("GET", url, parameters, missing=True)
        return None if answer is None else self._object(answer, url)

    def content(self, url: str, limit: int) -> bytes | None:
        """Return the first `limit` bytes of an object, or None if it does not exist."""
        answer = self._request("GET", url, {"alt": "media"}, missing=True, stream=True)
        if answer is None:
            return None
        from urllib3.exceptions import DecodeError, HTTPError

        try:
            with answer:
                return answer.raw.read(limit, decode_content=True)
        except DecodeError:
            # The writer of an object can declare an encoding that the object does not have.
            return b""
        except HTTPError as error:
            raise RequestFailed(f"{_without_query(url)} cannot be read: {reason_of(error)[:300]}") from None

    def pages(self, method: str, url: str, parameters: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Return the entries from all pages of a list."""
        token = ""
        while True:
            page = self.json(method, url, {**parameters, **({"pageToken": token} if token else {})})
            yield page
            token = str(page.get("nextPageToken") or "")
            if not token:
                return

    def _request(
        self,
        method: str,
        url: str,
        parameters: Mapping[str, str] | None,
        *,
        missing: bool = False,
        stream: bool = False,
        body: Mapping[str, object] | None = None,
    ) -> Any:
        import requests
        from google.auth.exceptions import GoogleAuthError

        try:
            answer = self._open().request(
                method, url, params=dict(parameters or {}), json=body, timeout=TIMEOUT_S, stream=stream, allow_redirects=False
            )  # fmt: skip
        except GoogleAuthError as error:
            raise PortUnavailable(f"Google Cloud credentials: {' '.join(str(error).split())}") from error
        except (requests.RequestException, OSError) as error:
            local = isinstance(error, requests.exceptions.SSLError | requests.exceptions.ProxyError)
            problem = f"{_without_query(url)} cannot be reached: {' '.join(reason_of(error).split())[:300]}"
            raise (PortUnavailable if local else RequestFailed)(problem) from error
        if missing and answer.status_code == 404:
            answer.close()
            return None
        if answer.status_code != 200:
            with answer:
                problem = f"{_without_query(url)} returned status {answer.status_code}: {_message(answer)}"
                raise RequestFailed(problem, answer.status_code, _reasons(answer))
        return answer


class ManagedInstances:
    """Members of managed instance groups, with addresses and creation times from Compute Engine."""

    def __init__(self, client: Client, compute: str) -> None:
        self._client = client
        self._compute = compute.rstrip("/") + "/"
        self.projects: frozenset[str] = frozenset()
        """Projects of the groups that were read. Only identities in these projects are accepted."""
        self._paths: dict[str, str] = {}
        self._launched: dict[str, datetime] = {}
        """Group -> creation time of its newest instance. Earlier failures count as resolved."""

    def members(self, groups: Sequence[GroupExpected]) -> list[Member]:
        """Return the instances in the groups, except instances that Compute Engine has not created yet."""
        held: list[tuple[str, dict[str, Any]]] = []
        zones: set[tuple[str, str]] = set()
        for group in groups:
            path = group_path(group.group)
            zones.add((path["project"], path["zone"]))
            for page in self._client.pages("POST", f"{self._url(path)}/listManagedInstances", {"maxResults": "500"}):
                held += [(group.group, one) for one in page.get("managedInstances") or []]
        self.projects = self.projects | {project for project, _ in zones}
        details = {id: one for zone in sorted(zones) for id, one in self._instances(*zone)}
        members: list[Member] = []
        for group_name, instance in held:
            number = str(instance.get("id") or "0")
            if number == "0":
                continue
            more = details.get(number, {})
            template = str((instance.get("version") or {}).get("instanceTemplate") or "")
            launched = moment(more.get("creationTimestamp"))
            self._paths[number] = str(instance.get("instance") or "")
            if launched:
                self._launched[group_name] = max(launched, self._launched.get(group_name, launched))
            members.append(
                Member(
                    instance_id=number,
                    group=group_name,
                    template_version=last(template.partition("?")[0]),
                    launched=launched,
                    zone=last(str(more.get("zone") or "")) or group_path(group_name)["zone"],
                    resource=self._paths[number][self._paths[number].find("projects/") :]
                    if self._paths[number]
                    else "",
                    private_ip=str(((more.get("networkInterfaces") or [{}])[0]).get("networkIP") or ""),
                    leaving=instance.get("currentAction") in LEAVING or instance.get("instanceStatus") in ENDED,
                )
            )
        return members

    def path_of(self, instance_id: str) -> str:
        """Return the path `projects/P/zones/Z/instances/NAME` of an instance, or an empty string for an unknown number."""
        match = re.search(r"projects/[^/]+/zones/[^/]+/instances/[^/]+$", self._paths.get(instance_id, ""))
        return self._compute + match[0] if match else ""

    def proceed(self, groups: Sequence[GroupExpected]) -> list[str]:
        """Do nothing, because the group continues on its own after a healthy batch."""
        return []

    def replace(self, group: GroupExpected, instance_id: str) -> None:
        """Recreate an instance: the group deletes it and creates an instance with the same name and a new number.

        https://cloud.google.com/compute/docs/reference/rest/v1/instanceGroupManagers/recreateInstances (retrieved 2026-11-26).
        """
        path = self.path_of(instance_id)
        if not path:
            raise PortUnavailable(f"{instance_id} is not in the group {group.group}")
        instance = path[path.rfind("zones/") :]
        self._client.json("POST", f"{self._url(group_path(group.group))}/recreateInstances", body={"instances": [instance]})  # fmt: skip

    def problems(self, groups: Sequence[GroupExpected]) -> list[GroupProblem]:
        """Return failed creations that did not succeed later, newest first."""
        problems: list[GroupProblem] = []
        for group in groups:
            url, since = f"{self._url(group_path(group.group))}/listErrors", self._launched.get(group.group)
            for page in self._client.pages("GET", url, {"maxResults": "100"}):
                for entry in page.get("items") or []:
                    problem = parse_error(group.group, entry)
                    if problem and not (since and problem.at and problem.at <= since):
                        problems.append(problem)
            problems += self._queued(group)
        return sorted(problems, key=lambda one: one.at.timestamp() if one.at else 0.0, reverse=True)

    def _queued(self, group: GroupExpected) -> Iterator[GroupProblem]:
        """Return the reason why the last attempt to fulfill a queued request (flex-start) failed."""
        url = f"{self._url(group_path(group.group))}/resizeRequests"
        for page in self._client.pages("GET", url, {"maxResults": "100"}):
            for request in page.get("items") or []:
                attempt = ((request.get("status") or {}).get("lastAttempt") or {}).get("error") or {}
                for error in attempt.get("errors") or [] if request.get("state") == "ACCEPTED" else []:
                    yield _problem(group.group, error, request.get("creationTimestamp"))

    def _instances(self, project: str, zone: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Return the number and the Compute Engine description of each instance in a zone."""
        fields = "items(id,zone,creationTimestamp,networkInterfaces(networkIP)),nextPageToken"
        url = f"{self._compute}projects/{project}/zones/{zone}/instances"
        for page in self._client.pages("GET", url, {"maxResults": "500", "fields": fields}):
            for item in page.get("items") or []:
                yield str(item.get("id")), item

    def _url(self, path: Mapping[str, str]) -> str:
        return f"{self._compute}projects/{path['project']}/zones/{path['zone']}/instanceGroupManagers/{path['name']}"


READS = 5
"""Attempts to read an object that other operators write at the same time."""


class StorageEvidence:
    """Evidence under one prefix of the evidence bucket: `<prefix>/<instance number>/<boot>/<seq>.json`."""

    def __init__(self, client: Client, storage: str, bucket: str, prefix: str) -> None:
        self._client = client
        base = storage if "://" in storage else f"http://{storage}"
        self._objects = f"{base.rstrip('/')}/storage/v1/b/{quote(bucket, safe='')}/o"
        self._uploads = f"{base.rstrip('/')}/upload/storage/v1/b/{quote(bucket, safe='')}/o"
        self._prefix = prefix.strip("/") + "/"

    def folders(self) -> Iterator[str]:
        """Return the names of the folders. Cloud Storage returns the objects in a folder as one element of `prefixes`, and up to 1,000 elements per request.

        https://cloud.google.com/storage/docs/json_api/v1/objects/list (retrieved 2026-11-26).
        """
        query = {"prefix": self._prefix, "delimiter": "/", "fields": "prefixes,nextPageToken"}
        for page in self._client.pages("GET", self._objects, query):
            for folder in page.get("prefixes") or []:
                yield str(folder).removeprefix(self._prefix).rstrip("/")

    def list(self, folder: str) -> Iterator[EvidenceRef]:
        """List the evidence in a folder. Other names are skipped."""
        return evidence_in(NODE, self._prefix, self._in_folder(f"{self._prefix}{folder}/"))

    def _in_folder(self, prefix: str) -> Iterator[ListedObject]:
        query = {"prefix": prefix, "fields": "items(name,generation,md5Hash,updated),nextPageToken"}
        for page in self._client.pages("GET", self._objects, query):
            for entry in page.get("items") or []:
                etag = str(entry.get("generation") or entry.get("md5Hash") or "")
                if modified := moment(entry.get("updated")):
                    yield ListedObject(key=str(entry.get("name") or ""), etag=etag, modified=modified)

    def read(self, ref: EvidenceRef) -> bytes:
        """Read one piece of evidence, up to the size limit."""
        data = self._get(ref.key, ref.limit)
        if data is None:
            raise PortUnavailable(f"the evidence {ref.key} is listed but cannot be read")
        return data

    def proof(self, proof: StoredProof) -> bytes | None:
        """Return the content of an identity proof, or None if it does not exist anymore."""
        return self._get(proof.key, PROOF_LIMIT)

    def publish(self, key: str, document: Mapping[str, object]) -> None:
        """Write or replace an object in the bucket.

        https://cloud.google.com/storage/docs/json_api/v1/objects/insert (retrieved 2026-11-29).
        """
        self._client.json("POST", self._uploads, {"uploadType": "media", "name": key}, document)

    def tagged(self, key: str) -> tuple[bytes, str] | None:
        """Return an object and its generation, or None if it does not exist."""
        url = f"{self._objects}/{quote(key, safe='')}"
        for _ in range(READS):
            stored = self._client.found(url, {"fields": "generation"})
            if stored is None:
                return None
            generation = str(stored["generation"])
            # Another operator can replace the object between the two requests.
            if (data := self._client.content(f"{url}?generation={generation}", 1 << 20)) is not None:
                return data, generation
        raise PortUnavailable(f"{key} changed during each of {READS} reads; run the command again")

    def update(self, key: str, document: Mapping[str, object], tag: str | None) -> bool:
        """Write an object if its generation did not change. 0 means that it does not exist
        (https://cloud.google.com/storage/docs/request-preconditions, retrieved 2026-11-26)."""
        parameters = {"uploadType": "media", "name": key, "ifGenerationMatch": tag or "0"}
        try:
            self._client.json("POST", self._uploads, parameters, document)
        except RequestFailed as error:
            if error.status == 412:
                return False
            raise
        return True

    def published(self, key: str, limit: int = 1 << 20) -> bytes | None:
        """Return the first bytes of an object in the bucket, or None if it does not exist."""
        return self._get(key, limit)

    def _get(self, key: str, limit: int) -> bytes | None:
        return self._client.content(f"{self._objects}/{quote(key, safe='')}", limit)


class SerialPort:
    """The console log that Compute Engine stores, which is the output of serial port 1."""

    def __init__(self, client: Client, membership: ManagedInstances) -> None:
        self._client = client
        self._membership = membership

    def tail(self, instance_id: str, lines: int) -> list[str]:
        """Return the last lines of the log, or an empty string. Google keeps the last mebibyte of output."""
        path = self._membership.path_of(instance_id)
        if not path:
            return []
        # A negative start position counts from the end, so that a long console log is not downloaded in full.
        answer = self._client.json("GET", f"{path}/serialPort", {"port": "1", "start": str(-lines * 400)})
        return [printable(line, MAX_LINE) for line in str(answer.get("contents") or "").splitlines()[-lines:]]


def group_path(group: str) -> dict[str, str]:
    """Split `projects/P/zones/Z/instanceGroupManagers/NAME` into project, zone and name."""
    match = GROUP.fullmatch(group)
    if match is None:
        raise PortUnavailable(
            f"{group!r} is not a zonal managed instance group; expected projects/P/zones/Z/instanceGroupManagers/NAME"
        )
    return match.groupdict()


def parse_error(group: str, entry: Mapping[str, Any]) -> GroupProblem | None:
    """Parse an entry of `listErrors`. Returns None if it does not concern the launch of an instance."""
    if (entry.get("instanceActionDetails") or {}).get("action") not in LAUNCHING:
        return None
    return _problem(group, entry.get("error") or {}, entry.get("timestamp"))


def _problem(group: str, error: Mapping[str, Any], at: object) -> GroupProblem:
    """Return a group's problem, based on the error code and message from Google."""
    return REFUSALS.coded(group, str(error.get("code") or ""), error.get("message"), moment(at))


def last(path: str) -> str:
    """Return the last segment of a path or link."""
    return path.rpartition("/")[2]


def _without_query(url: str) -> str:
    """Return the URL without its query string."""
    return url.partition("?")[0]


def _reasons(answer: Any) -> frozenset[str]:
    """Return the reasons in an error (`error.errors[].reason` and `error.details[].reason` of google.rpc.Status)."""
    try:
        error = answer.json()["error"]
        return frozenset(str(one.get("reason")) for key in ("errors", "details") for one in error.get(key) or ())
    except (KeyError, TypeError, ValueError, AttributeError):
        return frozenset()


def _message(answer: Any) -> str:
    try:
        return " ".join(str(answer.json()["error"]["message"]).split())[:400]
    except (KeyError, TypeError, ValueError):
        return " ".join(answer.text.split())[:200] or "nothing"
