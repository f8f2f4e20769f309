"""The record of the active region in a Cloud Storage bucket of the second region.

A write with `ifGenerationMatch` is refused with status 412 if the object has a different generation; 0 means that it must not exist
(https://cloud.google.com/storage/docs/request-preconditions, retrieved 2026-11-26). The replication does not delete objects that only the replica contains.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from gpuinfra.base.errors import DeploymentError
from gpuinfra.base.json_text import parsed
from gpuinfra.clouds.gcp.api import CHANGED, STORAGE, Api
from gpuinfra.clouds.gcp.region.failover import objects_of
from gpuinfra.clouds.gcp.region.recovery import READY, READY_LABEL
from gpuinfra.clouds.region.active import KEY, RecordChanged, StoredRecord

BUCKET = "gcp:storage/bucket:Bucket"
READS = 5


def connect(place: str, second: str, config: Mapping[str, object], key: str = KEY) -> GcsRecord:
    """Use the credentials from the environment. `place` is the name of the bucket."""
    return GcsRecord(Api(), place, key)


def report_ready(place: str, resources: Iterable[Mapping[str, Any]], api: Api | None = None) -> None:
    """Add a value to the metric that the alert evaluates. The first value creates the metric
    (https://docs.cloud.google.com/monitoring/custom-metrics/creating-metrics, retrieved 2026-11-29)."""
    project = next(
        str(one["outputs"]["project"]) for one in resources if one.get("type") == BUCKET and one.get("id") == place
    )
    series = {
        "metric": {"type": READY, "labels": {READY_LABEL: place}},
        "resource": {"type": "global", "labels": {"project_id": project}},
        "points": [{"interval": {"endTime": datetime.now(UTC).isoformat()}, "value": {"int64Value": "1"}}],
    }
    (api or Api()).sent("POST", "monitoring", f"v3/projects/{project}/timeSeries", body={"timeSeries": [series]})


class GcsRecord:
    """The requests. `gpuinfra.clouds.region.active.RecordStore` describes the methods. The content of the object is JSON, as the requests of `Api`."""

    def __init__(self, api: Api, bucket: str, key: str = KEY) -> None:
        self._api, self._bucket, self._key = api, bucket, key

    def read(self) -> StoredRecord | None:
        path = f"{objects_of(self._bucket)}/{quote(self._key, safe='')}"
        for _ in range(READS):
            answer = self._api.ask("GET", STORAGE, path, {"fields": "generation"})
            if answer is None:
                return None
            generation = str(answer["generation"])
            # Another operator can replace the object between the two requests.
            document = self._api.ask("GET", STORAGE, path, {"alt": "media", "generation": generation})
            if document is not None:
                return StoredRecord(text=json.dumps(document).encode(), tag=generation)
        raise DeploymentError(
            f"{self._key} in {self._bucket} changed during each of {READS} reads; run the command again"
        )

    def write(self, text: bytes, tag: str | None) -> str:
        parameters = {"uploadType": "media", "name": self._key, "ifGenerationMatch": tag or "0"}
        body = parsed(text)
        made = self._api.ask("POST", STORAGE, f"upload/{objects_of(self._bucket)}", parameters, body, missing=CHANGED)
        if made is None:
            raise RecordChanged
        return str(made["generation"])
