"""`gpuinfra ready` on a rehearsed stack with a second region."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpuinfra.base.shipped import shipped
from gpuinfra.spec.load import read_stack
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, Session, open_session

from .conftest import Finished, Rehearse, command, run

pytestmark = pytest.mark.long

SECOND = {"aws-recovery": "us-west-2", "azure-recovery": "eastus2", "gcp-recovery": "us-east4"}


def answer(up: Finished, path: Path, *words: str) -> tuple[int, list[dict[str, str]]]:
    """Exit code, and the lines."""
    done = run(command("ready", str(path), "--rehearsal", "--folder", str(up.root.parent), "--json", *words), up.root)
    assert done.out, done.err
    return done.code, json.loads(done.out)["lines"]


def ready(up: Finished, path: Path) -> tuple[int, dict[tuple[str, str], str]]:
    """Exit code, and the state of each topic and name."""
    code, lines = answer(up, path)
    return code, {(one["topic"], one["name"]): one["state"] for one in lines}


def broken(session: Session, stack: str) -> set[tuple[str, str]]:
    """Break the replication of one bucket, and delete a replica and a key. Return the lines that must fail."""
    state = session.pulumi.resources()

    def first(kind: str, part: str = "") -> dict[str, Any]:
        return next(
            one for one in state if one["type"] == kind and part in str(one["id"]) + str(one["inputs"].get("region"))
        )

    def vanish(one: dict[str, Any]) -> None:
        session.cloud.ask("vanish", {"type": one["type"], "id": one["id"]})

    if stack == "azure-recovery":
        policy = next(
            one
            for one in state
            if one["type"] == "azure-native:storage:ObjectReplicationPolicy"
            and "/trainevidence" in one["id"]
            and one["inputs"]["objectReplicationPolicyId"] != "default"
        )
        vanish(policy)
        key = first("azure-native:keyvault:Key", "train-recovery-eastus2")
        account = next(
            one
            for one in state
            if one["type"] == "azure-native:storage:StorageAccount"
            and "train-recovery-eastus2" in one["id"]
            and "/trainscratch" in one["id"]
        )
        vanish(key)
        vanish(account)
        source = f"{policy['outputs']['sourceAccount'].rpartition('/')[2]}/evidence"
        replica = f"{account['id'].rpartition('/')[2]}/data"
        vault = key["id"].split("/")[-3]
        return {("replication", source), ("key", f"{vault}/data"), ("replica", replica)}
    if stack == "aws-recovery":
        rule = first("aws:s3/bucketReplicationConfig:BucketReplicationConfig", "evidence")
        off = [{**rule["outputs"]["rules"][0], "status": "Disabled"}]
        session.cloud.ask("drift", {"type": rule["type"], "id": rule["id"], "set": {"rules": off}})
        key, bucket = (
            first("aws:kms/key:Key", "us-west-2"),
            first("aws:s3/bucket:Bucket", "scratch-0-000000000000-us-west-2"),
        )
        source = rule["outputs"]["bucket"]
    else:
        job = next(
            one
            for one in state
            if one["type"] == "gcp:storage/transferJob:TransferJob" and "evidence" in str(one["urn"])
        )
        session.cloud.ask("drift", {"type": job["type"], "id": job["id"], "set": {"status": "DISABLED"}})
        key, bucket = (
            first("gcp:kms/cryptoKey:CryptoKey", "us-east4"),
            first("gcp:storage/bucket:Bucket", "scratch-0-us-east4"),
        )
        source = job["outputs"]["replicationSpec"]["gcsDataSource"]["bucketName"]
    vanish(key)
    vanish(bucket)
    return {("replication", source), ("key", str(key["id"])), ("replica", str(bucket["id"]))}


GROUPS = "/subscriptions/00000000-0000-4000-8000-00000000abcd/resourceGroups/capacity/providers/Microsoft.Compute"
RESERVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "aws-recovery": ("cr-0a1b2c3d4e5f60718", {"count": 2, "state": "expired"}),
    "gcp-recovery": ("second", {"count": 2, "state": "DELETING"}),
}
"""ID of a reservation that the nodes of the second region name, and why it cannot be used. Azure offers no reservations of ND machines."""
IMAGES = {
    "aws-recovery": ("ami-0123456789abcdef0", "ami-0fedcba9876543210", "aws ec2 copy-image"),
    "azure-recovery": (f"{GROUPS}/images/first", f"{GROUPS}/images/second", "az sig image-version create"),
}
"""Image of the stack, image of the second region, and the command that copies the first. Images of Google Cloud are global."""


def edit(path: Path, pattern: str, new: str) -> None:
    """Replace one place of a file."""
    text, count = re.subn(pattern, new, path.read_text(), count=1)
    assert count == 1, pattern
    path.write_text(text)


def without_capacity(session: Session, stack: str, files: tuple[Path, Path], quota: str) -> set[str]:
    """Set a quota of the second region to zero, let a reservation expire where the cloud offers one, and omit the copy of its image.
    Return the topics that must fail."""
    region, machine = SECOND[stack], read_stack(files[1]).spec.pools[0].machine
    session.cloud.ask("external", {"id": f"quota:{quota}:{region}", "count": 0})
    topics = {"quota"}
    if stack in RESERVATIONS:
        name, unusable = RESERVATIONS[stack]
        session.cloud.ask("external", {"id": name, "machine": machine, **unusable})
        edit(files[1], r"kind: (on_demand|spot|flex)", f"kind: reserved, id: {name}")
        topics.add("reservation")
    if stack not in IMAGES:
        return topics
    first, second, _ = IMAGES[stack]
    session.cloud.ask("external", {"id": second, "regions": ["elsewhere"]})
    for path, image in zip(files, (first, second), strict=True):
        edit(path, r"( *)- name: gpu\n", rf"\1- name: gpu\n\1  image: {{ref: {image}}}\n")
    return topics | {"image"}


@pytest.mark.parametrize("stack", SECOND)
def test_second_region_is_ready_until_a_protection_breaks(stack: str, rehearse: Rehearse, tmp_path: Path) -> None:
    """After `up` and with a clone that uses the replica, the region is ready until it has no quota, reservation or image, or no replication, key or replica.
    The recorded results are in the second region, and the cloud accepts the report of a ready region."""
    path = tmp_path / f"Pulumi.{stack}.yaml"
    shutil.copyfile(shipped("stacks") / path.name, path)
    up = rehearse("up", str(path), "--without-nodes")
    assert up.code == 0, up.out + up.err
    code, lines = ready(up, path)
    assert code == 1
    assert {line for line, state in lines.items() if state == "fail"} == {("stack file", f"{stack}-{SECOND[stack]}")}
    cloned = run(command("clone", str(path), "--region", SECOND[stack]), up.root)
    assert cloned.code == 0, cloned.out + cloned.err
    code, found = answer(up, path, "--record")
    assert code == 1
    (empty,) = [one for one in found if one["state"] == "fail"]
    assert (empty["topic"], empty["name"]) == ("data", "storage[0].bucket")
    _, name, of, *words = shlex.split(empty["fix"])
    assert (name, of) == ("clone", stack)
    cloned = run(command(name, str(path), *words), up.root)
    assert cloned.code == 0, cloned.out + cloned.err
    code, found = answer(up, path, "--record")
    assert code == 0, found
    assert [one["state"] for one in found if one["topic"] == "recorded"] == ["warn"], "the earlier result is not ready"
    code, lines = ready(up, path)
    assert code == 0, lines
    assert [state for (topic, _), state in lines.items() if topic == "recorded"] == ["ok"]
    assert lines["data", "storage[0].bucket"] == "ok"
    assert "unread" not in lines.values()
    assert {topic for topic, _ in lines} >= {
        "replication",
        "replica",
        "lag",
        *(["failures"] if stack != "azure-recovery" else []),
        "key",
        "role",
        "bundle",
        "addresses",
        "quota",
        "machine",
        "image",
    }
    quota = next(name for topic, name in lines if topic == "quota").rpartition(" in ")[0].partition(" (")[0]
    options = Options(stack=str(path), folder=up.root.parent, without_nodes=True)
    with open_session(options, view_for(io.StringIO())) as session:
        topics = without_capacity(session, stack, (path, path.with_name(f"Pulumi.{stack}-{SECOND[stack]}.yaml")), quota)
    code, found = answer(up, path)
    assert code == 1
    bad = [one for one in found if one["state"] == "fail"]
    assert {one["topic"] for one in bad} == topics
    assert all(one["fix"] for one in bad)
    assert [one["fix"].startswith(IMAGES[stack][2]) for one in bad if one["topic"] == "image"] == [True] * (
        "image" in topics
    )
    with open_session(options, view_for(io.StringIO())) as session:
        expected = broken(session, stack)
    code, lines = ready(up, path)
    assert code == 1
    assert {line for line, state in lines.items() if state == "fail"} >= expected
    # The deleted key can be that of the recorded results and of the checkpoints.
    assert {topic for (topic, _), state in lines.items() if state == "unread"} <= {"recorded", "checkpoint"}
