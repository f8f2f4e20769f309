"""Buckets, objects, Managed Lustre and Filestore."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuinfra.clouds.gcp.regions import LUSTRE_TIERS
from gpuinfra_rehearsal.cloud.core import wire
from gpuinfra_rehearsal.cloud.core.behavior import Behavior, behaves
from gpuinfra_rehearsal.cloud.core.check import RejectedInput
from gpuinfra_rehearsal.cloud.gcp import objects
from gpuinfra_rehearsal.cloud.gcp.access import BUCKET, retained_until
from gpuinfra_rehearsal.cloud.gcp.behaviors.network import FILESTORE, LUSTRE, connected
from gpuinfra_rehearsal.cloud.gcp.errors import GoogleError, invalid, missing
from gpuinfra_rehearsal.cloud.gcp.ids import PROJECT_NUMBER

if TYPE_CHECKING:
    from gpuinfra_rehearsal.cloud.core.interfaces import Call, Cloud
    from gpuinfra_rehearsal.cloud.core.store import Resource


LABELS_NOT_READ = ("labels",)
"""The provider reads only the labels that the state contains ("non-authoritative", documentation of `labels` in pulumi_gcp 10.2), and an import has no
state. Observed with the real provider on buckets, global addresses and Filestore instances."""


@behaves
class Bucket(Behavior):
    types = (BUCKET,)
    importer_sets = {"forceDestroy": False}
    not_returned = LABELS_NOT_READ
    taken = GoogleError(
        "conflict", "Your previous request to create the named bucket succeeded and you already own it.", status=409
    )

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        name = call.plain.get("name")
        if isinstance(name, str) and not wire.is_unknown(name):
            if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]", name):
                yield RejectedInput(
                    "name", f"must be 3 to 63 lower case letters, digits, dots, hyphens and underscores, got '{name}'"
                )
            elif name.startswith("goog") or "google" in name or "g00gle" in name:
                yield RejectedInput("name", f"may not begin with 'goog' or contain 'google', got '{name}'")
        retention = (call.plain.get("retentionPolicy") or {}).get("retentionPeriod")
        if isinstance(retention, str) and retention.isdigit() and not 0 < int(retention) < 3_155_760_000:
            yield RejectedInput("retentionPolicy.retentionPeriod", f"must be 1 to 3155759999 seconds, got {retention}")
        if (
            retention
            and (call.plain.get("versioning") or {}).get("enabled")
            and call.plain.get("retentionPolicy", {}).get("isLocked")
        ):
            yield RejectedInput("versioning", "a bucket with a locked retention policy keeps no versions")

    def names(self, cloud: Cloud, call: Call) -> Iterator[tuple[str, str]]:
        yield "gcs bucket", call.id

    def created(self, cloud: Cloud, call: Call) -> None:
        call.outputs |= {
            "url": f"gs://{call.id}",
            "selfLink": f"https://www.googleapis.com/storage/v1/b/{call.id}",
            "projectNumber": int(PROJECT_NUMBER),
        }

    def before_update(self, cloud: Cloud, call: Call) -> None:
        assert call.old is not None
        before = call.old.plain.get("retentionPolicy") or {}
        now = call.plain.get("retentionPolicy") or {}
        if not before.get("isLocked"):
            return
        if not now.get("isLocked") or int(now.get("retentionPeriod") or 0) < int(before.get("retentionPeriod") or 0):
            raise GoogleError(
                "forbidden",
                f"Cannot reduce retention duration of a locked Retention Policy for bucket '{call.old.id}'.",
                status=403,
            )

    updated = created

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        held = cloud.store.objects(resource.id)
        if held and not resource.plain.get("forceDestroy"):
            text = f"Error trying to delete bucket {resource.id} containing objects without `force_destroy` set to true"
            raise GoogleError("conflict", text, status=409)
        for key, *_ in held:
            until = retained_until(cloud.store, resource.id, cloud.store.object(resource.id, key))
            if until > time.time():
                raise GoogleError("retentionPolicyNotMet", f"Object '{resource.id}/{key}' is subject to bucket's retention policy or object "
                              "retention and cannot be deleted or overwritten.", status=403)  # fmt: skip
        for key, *_ in held:
            cloud.store.remove_object(resource.id, key)


@behaves
class BucketObject(Behavior):
    """Store content from an asset or a string in the bucket, from which nodes download it. A second upload replaces the first."""

    types = ("gcp:storage/bucketObject:BucketObject",)
    joins = True
    volatile = ("crc32c", "md5hash", "md5hexhash", "generation", "mediaLink")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        if cloud.store.find(BUCKET, str(call.plain.get("bucket"))) is None:
            raise GoogleError("notFound", "The specified bucket does not exist.", status=404)

    def created(self, cloud: Cloud, call: Call) -> None:
        plain = call.plain
        try:
            body = (
                wire.asset_bytes(plain["source"])
                if plain.get("source") is not None
                else str(plain.get("content") or "").encode()
            )
        except ValueError as error:
            raise invalid(str(error)) from error
        kind = str(plain.get("contentType") or "application/octet-stream")
        stored = objects.write(cloud.store, plain["bucket"], plain["name"], body, {"content-type": kind})
        base = f"https://www.googleapis.com/storage/v1/b/{plain['bucket']}/o/{plain['name']}"
        call.outputs |= {
            "md5hexhash": stored.etag,
            "generation": objects.generation(stored),
            "contentType": kind,
            "outputName": plain["name"],
            "selfLink": base,
            "mediaLink": f"{base}?alt=media",
        }

    updated = created

    def deleted(self, cloud: Cloud, resource: Resource) -> None:
        plain = resource.plain
        objects.remove(cloud.store, plain["bucket"], plain["name"])

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        plain = resource.plain
        if (
            retained_until(cloud.store, plain["bucket"], cloud.store.object(plain["bucket"], plain["name"]))
            > time.time()
        ):
            raise GoogleError("retentionPolicyNotMet", f"Object '{plain['bucket']}/{plain['name']}' is subject to bucket's retention policy or "
                          "object retention and cannot be deleted or overwritten.", status=403)  # fmt: skip

    def read(self, cloud: Cloud, resource: Resource) -> Resource | None:
        plain = resource.plain
        return resource if cloud.store.object(plain["bucket"], plain["name"]) else None


@behaves
class Lustre(Behavior):
    """Managed Lustre. Its sizes depend on the tier, and it requires private services access."""

    types = (LUSTRE,)
    importer_sets = {"deletionPolicy": "DELETE"}

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        plain = call.plain
        size, tier = str(plain.get("capacityGib") or ""), plain.get("perUnitStorageThroughput")
        if size.isdigit() and str(tier or "").isdigit():
            limits = LUSTRE_TIERS.get(int(str(tier)))
            if limits is None:
                allowed = ", ".join(str(one) for one in sorted(LUSTRE_TIERS))
                yield RejectedInput("perUnitStorageThroughput", f"must be one of {allowed}, got {tier}")
            elif not limits[0] <= int(size) <= limits[1]:
                yield RejectedInput(
                    "capacityGib", f"must be {limits[0]} to {limits[1]} for {tier} MBps per TiB, got {size}"
                )
        if not re.fullmatch(r"[A-Za-z0-9]{1,8}", str(plain.get("filesystem") or "x")):
            yield RejectedInput("filesystem", f"must be at most 8 letters and digits, got '{plain.get('filesystem')}'")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        network = call.plain.get("network")
        if not connected(cloud.store, network):
            raise GoogleError("failedPrecondition", f"Private services access is not configured for network '{network}'. Configure it before creating "
                          "a Managed Lustre instance.")  # fmt: skip

    def created(self, cloud: Cloud, call: Call) -> None:
        number = cloud.store.next("lustre address")
        address = f"10.{210 + number // 250}.0.{number % 250 + 2}"
        call.outputs |= {
            "mountPoint": f"{address}@tcp:/{call.plain.get('filesystem')}",
            "name": call.id,
            "state": "ACTIVE",
        }

    def before_update(self, cloud: Cloud, call: Call) -> None:
        assert call.old is not None
        before, now = call.old.plain.get("capacityGib"), call.plain.get("capacityGib")
        if before and now and int(now) < int(before):
            raise GoogleError(
                "invalidArgument",
                f"The capacity of a Managed Lustre instance can only grow; it is {before} GiB and {now} GiB was requested.",
            )


@behaves
class Filestore(Behavior):
    """A Filestore instance: one share with an address in the network."""

    types = (FILESTORE,)
    not_returned = LABELS_NOT_READ

    def check(self, cloud: Cloud, call: Call) -> Iterator[RejectedInput]:
        share = call.plain.get("fileShares") or {}
        if isinstance(share, dict) and len(str(share.get("name") or "")) > 16:
            yield RejectedInput("fileShares.name", f"must be at most 16 characters, got '{share.get('name')}'")

    def before_create(self, cloud: Cloud, call: Call) -> None:
        for place in call.plain.get("networks") or []:
            network = place.get("network")
            if place.get("connectMode") == "PRIVATE_SERVICE_ACCESS" and not connected(cloud.store, network):
                raise missing(f"{network}/servicenetworking")

    def created(self, cloud: Cloud, call: Call) -> None:
        number = cloud.store.next("filestore address")
        networks = [dict(one) for one in wire.plain(call.outputs.get("networks")) or []]
        for network in networks:
            network["ipAddresses"] = [f"10.220.{number // 250}.{number % 250 + 2}"]
        call.outputs |= {"networks": networks, "name": call.id.rsplit("/", 1)[-1]}

    def updated(self, cloud: Cloud, call: Call) -> None:
        assert call.old is not None
        call.outputs["networks"] = call.old.outputs["networks"]

    def before_delete(self, cloud: Cloud, resource: Resource) -> None:
        if resource.plain.get("deletionProtectionEnabled"):
            raise GoogleError("failedPrecondition", f"Instance {resource.id} is protected against deletion.")
