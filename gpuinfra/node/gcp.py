"""Google Cloud access from a node, using only the standard library: instance identity, Cloud Storage, identity proof.

Custom endpoints come only from variables that Google's own libraries and tools read: GCE_METADATA_HOST
(`host[:port]`), STORAGE_EMULATOR_HOST, CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER, CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import time
import urllib.parse
import urllib.request
from typing import Any, Callable, Mapping, Sequence

from .cloud import (
    CloudError,
    FaultyNode,
    Refused,
    change,
    get_optional,
    make_proof,
    optional_metadata,
    put_with_retry,
    read_metadata,
    read_secret,
)
from .notices import Notice, NoticeKind, moment

AUDIENCE = "gpuinfra:evidence:%s"
"""The audience of an identity token. It contains the SHA-256 of the evidence, so the token is valid only for this evidence."""
PREEMPTION_S, MAINTENANCE_S = 30.0, 60.0
"""Documented time between a notice and its event. https://cloud.google.com/compute/docs/instances/spot#preemption_process and
https://cloud.google.com/compute/docs/metadata/getting-live-migration-notice, retrieved 2026-11-28. Planned maintenance, with the format of the
body: https://cloud.google.com/compute/docs/instances/monitor-plan-host-maintenance-event, retrieved 2026-11-28."""
_FLAVOR = {"Metadata-Flavor": "Google"}


class Metadata:
    """The metadata server of a Compute Engine instance."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        host = environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
        self._base = "http://%s/computeMetadata/v1/" % host.rstrip("/")

    def get(self, path: str) -> str:
        """Return one metadata value."""
        request = urllib.request.Request(self._base + path, headers=_FLAVOR)
        headers, text = read_metadata(request, "the metadata server", path.split("?")[0])
        if headers.get("Metadata-Flavor") != "Google":
            raise CloudError("the response is not from Google's metadata server")
        return text

    def instance_id(self) -> str:
        """Return the numeric ID of this instance."""
        id_ = self.get("instance/id").strip()
        if not id_.isdigit():
            raise CloudError("the metadata server returned no instance ID: %r" % id_[:40])
        return id_

    def access_token(self) -> str:
        """Return an access token of the instance's service account. The metadata server renews it."""
        try:
            return str(json.loads(self.get("instance/service-accounts/default/token"))["access_token"])
        except (KeyError, TypeError, ValueError) as error:
            raise CloudError("the metadata server returned no access token: %s" % error) from None

    def identity_token(self, audience: str) -> str:
        """Return a Google-signed token for one audience that names this instance and its service account; valid for an hour."""
        query = urllib.parse.urlencode({"audience": audience, "format": "full", "licenses": "FALSE"})
        token = self.get("instance/service-accounts/default/identity?" + query).strip()
        if token.count(".") != 2:
            raise CloudError("the metadata server returned no identity token")
        return token


def storage(environ: Mapping[str, str] = os.environ) -> str:
    """Return the base URL of Cloud Storage, without a trailing slash."""
    named = environ.get("STORAGE_EMULATOR_HOST") or "https://storage.googleapis.com"
    return (named if "://" in named else "http://" + named).rstrip("/")


def secret_manager(environ: Mapping[str, str] = os.environ) -> str:
    """Return the base URL of Secret Manager, without a trailing slash."""
    named = environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER") or "https://secretmanager.googleapis.com"
    return named.rstrip("/")


def compute(environ: Mapping[str, str] = os.environ) -> str:
    """Return the base URL of Compute Engine, without a trailing slash."""
    named = environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE") or "https://compute.googleapis.com/compute/v1"
    return named.rstrip("/")


def _message(text: str) -> str:
    """Return the error message in Google's JSON, or the beginning of any other response."""
    try:
        return " ".join(str(json.loads(text)["error"]["message"]).split())[:200]
    except (KeyError, TypeError, ValueError):
        return " ".join(text.split())[:60] or "without a message"


def _device_name(disk: str) -> str:
    """Return the device name of a disk, given its path: its name."""
    return disk.rpartition("/")[2]


class GcpNode:
    """A node's cloud (`cloud.NodeCloud`): the instance's service account and Cloud Storage."""

    notice_poll_s = 1.0
    """A preempted machine has 30 seconds."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._metadata = Metadata(environ)

    def instance_id(self) -> str:
        """Return the numeric ID, up to 20 digits."""
        return self._metadata.instance_id()

    def put(self, bucket: str, key: str, body: bytes, *, once: bool) -> None:
        """Write one object to a bucket. With `once`, an existing object is not replaced, so evidence is append-only."""
        query = {"uploadType": "media", "name": key}
        if once:
            query["ifGenerationMatch"] = "0"
        where = "%s/upload/storage/v1/b/%s/o?%s" % (
            storage(self._environ),
            urllib.parse.quote(bucket, safe=""),
            urllib.parse.urlencode(query),
        )

        def request() -> urllib.request.Request:
            headers = {"Content-Type": "application/json", **self._authorization()}
            return urllib.request.Request(where, data=body, method="POST", headers=headers)

        put_with_retry(
            request,
            "gs://%s/%s" % (bucket, key),
            once=once,
            own=False,
            explain=lambda error, text: _message(text),
            exists=lambda status, code: status == 412,
            retried=(401, 403, 408, 429),
        )

    def get(self, bucket: str, key: str, limit: int = 65536) -> bytes | None:
        """Return the first bytes of an object, or None if it does not exist.

        Where nodes have no permission to list, a missing object is a 403. Both 403 and 404 mean "not yet".
        """
        where = "%s/%s?alt=media" % (self._objects(bucket), urllib.parse.quote(key, safe=""))
        return get_optional(self._reads(where), "gs://%s/%s" % (bucket, key), limit)

    def _objects(self, bucket: str) -> str:
        return "%s/storage/v1/b/%s/o" % (storage(self._environ), urllib.parse.quote(bucket, safe=""))

    def _reads(self, where: str) -> Callable[[], urllib.request.Request]:
        """Return a function that makes an authorized GET request."""
        return lambda: urllib.request.Request(where, headers=self._authorization())

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": "Bearer " + self._metadata.access_token()}

    def proof(self, evidence_sha256: str, now: datetime.datetime) -> dict[str, Any]:
        """Return an identity token of this instance for the hash, valid for an hour."""
        return make_proof("gcp", evidence_sha256, now, token=self._metadata.identity_token(AUDIENCE % evidence_sha256))

    def account(self) -> Mapping[str, str]:
        """Return the ID of the project."""
        return {"project": self._metadata.get("project/project-id").strip()}

    def secret(self, name: str) -> str:
        """Return the newest version of a secret in Secret Manager. Makes one attempt.

        versions.access: https://cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets.versions/access, retrieved 2026-11-29.
        """
        path = "projects/%s/secrets/%s/versions/latest:access" % (self.account()["project"], name)
        where = "%s/v1/%s" % (secret_manager(self._environ), urllib.parse.quote(path, safe="/:"))
        text = read_secret(self._reads(where)(), "secret %s" % name, _message)
        try:
            return base64.b64decode(json.loads(text)["payload"]["data"], validate=True).decode("utf-8")
        except (ValueError, KeyError, TypeError):
            raise CloudError("Secret Manager returned no text for the secret %s" % name) from None

    def disk_links(self, disk: str) -> Sequence[str]:
        """Return the link that the rules of Google's guest environment make from the device name
        (GoogleCloudPlatform/guest-configs: 65-gce-disk-naming.rules, retrieved 2026-11-30)."""
        return ("/dev/disk/by-id/google-%s" % _device_name(disk),)

    def attach_disk(self, disk: str) -> None:
        """Request that a disk is attached to this instance. Makes one attempt. The cloud can refuse it after its answer, and then no device appears.

        instances.attachDisk: https://cloud.google.com/compute/docs/reference/rest/v1/instances/attachDisk, retrieved 2026-11-30.
        """
        zone = self._metadata.get("instance/zone").strip().rpartition("/")[2]
        name = self._metadata.get("instance/name").strip()
        where = "%s/projects/%s/zones/%s/instances/%s/attachDisk" % (compute(self._environ), self.account()["project"], zone, name)  # fmt: skip
        body = json.dumps({"source": disk, "deviceName": _device_name(disk), "mode": "READ_WRITE"}).encode()
        headers = {"Content-Type": "application/json", **self._authorization()}
        change(urllib.request.Request(where, data=body, method="POST", headers=headers), "disk %s" % disk, _message)

    def replace_node(self, node: FaultyNode) -> bool:
        """Delete an instance. Its group creates it again, because it did not delete it itself. Returns False if the instance does not exist.

        A request to the group would need a permission on all groups of the project, because conditions of IAM apply to instances and not to groups
        (https://cloud.google.com/iam/docs/resource-types-with-conditional-roles and
        https://cloud.google.com/compute/docs/instance-groups/about-repair, retrieved 2026-11-29). The name in the request is that of the instance with
        this number, so that a repeated request does not delete the new instance with the same name.
        """
        for zone in node.zones:
            where = "%s/projects/%s/zones/%s/instances" % (compute(self._environ), self.account()["project"], zone)
            query = {
                "filter": '(labels.gpuinfra-cluster = "%s") (status = "RUNNING")' % node.cluster,
                "maxResults": "500",
            }
            name = self._name_of(where, query, node.instance_id)
            if name is None:
                continue
            url = "%s/%s" % (where, urllib.parse.quote(name, safe=""))
            request = urllib.request.Request(url, method="DELETE", headers=self._authorization())
            try:
                change(request, "instance %s" % node.name, _message)
            except Refused as error:
                if error.status != 404:
                    raise
            return True
        return False

    def _name_of(self, where: str, query: Mapping[str, str], number: str) -> str | None:
        """Return the name of the instance with a number, or None if it does not exist."""
        page: str | None = ""
        while page is not None:
            url = "%s?%s" % (where, urllib.parse.urlencode({**query, **({"pageToken": page} if page else {})}))
            text = change(self._reads(url)(), "the instances", _message)
            try:
                answer = json.loads(text)
                for instance in answer.get("items") or []:
                    if str(instance["id"]) == number:
                        return str(instance["name"])
            except (ValueError, KeyError, TypeError, AttributeError):
                raise CloudError("Compute Engine returned no list of instances") from None
            page = answer.get("nextPageToken")
        return None

    def notice_sources(self) -> Mapping[str, Callable[[], list[Notice]]]:
        """Return the preemption, the maintenance that starts soon, and the maintenance that is planned."""
        return {
            "preemption": self._preemption,
            "maintenance": self._maintenance,
            "upcoming maintenance": self._upcoming,
        }

    def _preemption(self) -> list[Notice]:
        if self._metadata.get("instance/preempted").strip() != "TRUE":
            return []
        return [Notice("preempted", NoticeKind.RECLAIM, "preemption", time.time() + PREEMPTION_S, True)]

    def _maintenance(self) -> list[Notice]:
        event = self._metadata.get("instance/maintenance-event").strip()
        if event in ("", "NONE"):
            return []
        return [Notice("maintenance-event", NoticeKind.MAINTENANCE, event, time.time() + MAINTENANCE_S, True)]

    def _upcoming(self) -> list[Notice]:
        """Machine types without planned maintenance have no such value. Without maintenance, the value is `NONE`, empty, or an error text."""
        text = optional_metadata(lambda: self._metadata.get("instance/upcoming-maintenance?alt=json")) or "NONE"
        try:
            upcoming = {} if text.strip() in ("NONE", "") else json.loads(text)
        except ValueError:
            raise CloudError("the metadata server returned invalid JSON for upcoming-maintenance") from None
        if isinstance(upcoming, dict) and len(upcoming) == 1:  # the page shows the fields below a title
            upcoming = next(iter(upcoming.values()))
        start = str(upcoming.get("window_start_time") or "") if isinstance(upcoming, dict) else ""
        if not start:
            return []
        what = "%s maintenance: %s" % (upcoming.get("type"), upcoming.get("maintenance_status"))
        return [Notice("upcoming %s" % start, NoticeKind.MAINTENANCE, what, moment(start))]


def connect(node: Mapping[str, Any], environ: Mapping[str, str]) -> GcpNode:
    """Return the Google Cloud implementation of `Cloud`. The metadata server provides all details."""
    return GcpNode(environ)
