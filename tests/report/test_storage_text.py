"""The description of a file system in a plan: what is imported and exported, and what destroy deletes."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinfra.plan.make import build_plan
from gpuinfra.report.plan_tables import storage_text
from gpuinfra.spec import parse_spec
from tests.rules.cases import TODAY, declaration, lustre

_SCRATCH = {"deployment": "scratch_2", "bucket": "auto"}
_ALL = "new, changed and deleted"


def described(cloud: str, storage: list[dict[str, Any]]) -> list[str]:
    """The parts of the description of the only file system of a declaration."""
    plan = build_plan(parse_spec(declaration((cloud, {"storage": storage}))), TODAY)
    return storage_text(plan.file_systems[0]).split("; ")


@pytest.mark.parametrize(
    ("cloud", "storage", "expected"),
    [
        ("aws", lustre(), ["destroy retains it"]),
        ("aws", lustre(deployment="scratch_2"), ["destroy deletes it with all its files"]),
        ("aws", lustre(**_SCRATCH), [
            f"imports {_ALL} objects automatically", f"exports {_ALL} files automatically",
            "destroy deletes it, and files that are not exported are lost",
        ]),
        ("aws", lustre(**_SCRATCH, import_events=[], export_events=["NEW"], bucket_path="/data"), [
            "imports no later changes automatically", "exports new files in /data automatically",
            "destroy deletes it, and files that are not exported are lost",
        ]),
        ("aws", lustre(bucket="auto", import_events=["NEW", "CHANGED"], export_events=[]), [
            "imports new and changed objects automatically", "exports no files automatically", "destroy retains it",
        ]),
        ("gcp", lustre(capacity_gib=18000, bucket="auto", export_minutes=60), [
            "imports no later changes automatically", "exports new and changed files every 60 minutes", "destroy retains it",
        ]),
        ("gcp", lustre(capacity_gib=18000, bucket="auto"), [
            "imports no later changes automatically", "exports no files automatically", "destroy retains it",
        ]),
    ],
)  # fmt: skip
def test_import_export_and_destroy_are_described(
    cloud: str, storage: list[dict[str, Any]], expected: list[str]
) -> None:
    """The plan states in words which changes are imported and exported, and whether destroy deletes the files."""
    assert described(cloud, storage)[1:] == expected


def test_the_key_of_a_mounted_bucket_is_listed() -> None:
    """The plan names the key of an existing bucket that nodes can use."""
    key = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    bucket = {"kind": "object", "mount": "/data", "bucket": "corpus", "key_arn": key}
    assert f"nodes use the key {key}" in described("aws", [bucket])


@pytest.mark.parametrize(("cloud", "client"), [("gcp", "gcsfuse"), ("aws", "mountpoint"), ("azure", "blobfuse2")])
def test_a_mounted_bucket_is_described(cloud: str, client: str) -> None:
    """The plan states the mode and the cache of a mounted bucket, and that destroy keeps the bucket."""
    objects = "files are the objects of the bucket, so nothing is imported or exported"
    existing = {"kind": "object", "mount": "/data", "bucket": "corpus", "cache_gib": 500}
    assert described(cloud, [existing]) == [
        f"object {client}, bucket corpus", "read-only", "caches objects on 500 GiB of the local disks", objects,
        "destroy removes the nodes' access and retains the bucket",
    ]  # fmt: skip
    assert described(cloud, [{**existing, "bucket": "auto", "read_only": False, "cache_gib": 0}]) == [
        f"object {client}, bucket auto", "nodes can write and delete objects", "no cache", objects, "destroy retains the bucket",
    ]  # fmt: skip


def test_homes_grow_on_aws_and_have_a_size_elsewhere() -> None:
    """Amazon EFS grows with its files; Filestore has the declared size. Destroy retains both."""
    homes = [{"kind": "home", "capacity_gib": 2560}]
    assert described("aws", homes) == ["home efs elastic, grows with its files", "destroy retains it"]
    what, fate = described("gcp", homes)
    assert (what.endswith(", 2,560 GiB"), fate) == (True, "destroy retains it")


def test_the_service_and_the_copies_of_homes_are_described() -> None:
    """The plan states the service, its throughput or level, and how long backups and snapshots are retained."""
    openzfs = {"kind": "home", "service": "openzfs", "throughput_mb_s": 320, "backup_days": 7}
    assert described("aws", [openzfs]) == [
        "home openzfs SINGLE_AZ_2, 1,024 GiB at 320 MB/s", "daily backups, retained for 7 days", "destroy retains it",
    ]  # fmt: skip
    netapp = {"kind": "home", "service": "netapp", "service_level": "ultra", "capacity_gib": 1500, "snapshot_days": 5}
    assert described("azure", [netapp]) == [
        "home netapp Ultra, 2,048 GiB", "daily snapshots, of which 5 are retained", "destroy retains it",
    ]  # fmt: skip
