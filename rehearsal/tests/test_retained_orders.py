"""Retained resources survive destroy, adopt, import and up in every order."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gpuinfra.base.registry import CLOUDS
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.plan.make import build_plan
from gpuinfra.spec import parse_spec
from gpuinfra_rehearsal.actions import errors_of, perform
from gpuinfra_rehearsal.engine import OperationResult
from gpuinfra_rehearsal.progress import view_for
from gpuinfra_rehearsal.session import Options, Session, open_session

from .conftest import cloud_resources

WHERE = {
    "aws": (
        "aws:region: us-east-1",
        "{cloud: aws, region: us-east-1, zone: use1-az4}",
        (
            "- {kind: lustre, mount: /scratch, capacity_gib: 4800, bucket: auto, export_events: [NEW]}\n"
            "      - {kind: home}\n"
            "      - {kind: home, service: openzfs, mount: /tools}"
        ),
        "layers: [foundation, site]",
    ),
    "aws-images": (
        "aws:region: us-east-1",
        "{cloud: aws, region: us-east-1, zone: use1-az4}",
        "- {kind: lustre, mount: /scratch, capacity_gib: 4800, bucket: auto}",
        (
            "pools:\n"
            "      - {name: gpu, machine: g6.12xlarge, image: {ref: ami-0123456789abcdef0, os: ubuntu-22.04}, capacity: {kind: on_demand, count: 0}}\n"
            "    recovery: {region: us-west-2, mode: pilot-light, rpo_minutes: 240, rto_minutes: 240, checkpoint_gib: "
            "100, checkpoint_minutes: 30, copy_images: true}"
        ),
    ),
    "azure": (
        "azure-native:location: southcentralus",
        '{cloud: azure, region: southcentralus, zone: "1"}',
        (
            "- {kind: lustre, mount: /scratch, capacity_gib: 8192, bucket: auto, importer_id: 00000000-0000-4000-8000-000000000000}\n"
            "      - {kind: home}\n"
            "      - {kind: home, service: netapp, mount: /tools, snapshot_days: 7}"
        ),
        "layers: [foundation, site]",
    ),
    "gcp": (
        "gcp:region: us-central1",
        "{cloud: gcp, region: us-central1, zone: us-central1-b}",
        (
            "- {kind: lustre, mount: /scratch, capacity_gib: 18000, throughput_mb_s_per_tib: 500, bucket: auto}\n"
            "      - {kind: home, mount: /home, capacity_gib: 1024}"
        ),
        "layers: [foundation, site]",
    ),
}
STACK = """\
config:
  {provider}
  gpuinfra:cluster:
    name: lab
    where: {where}
    {rest}
    storage:
      {storage}
"""
"""A stack whose data is replicated retains no Lustre file system, so copied images have a stack of their own."""
Held = set[tuple[str, str]]
NOT_IMPORTED = frozenset({"aws:ec2/amiCopy:AmiCopy"})
"""Types that the provider cannot import (`resourceAMICopy` in internal/service/ec2/ec2_ami_copy.go of terraform-provider-aws has no
importer). Each `up` after a `destroy` creates another one."""


@contextmanager
def session_of(path: Path, root: Path, *faults: str) -> Iterator[Session]:
    """One command of a rehearsal."""
    with open_session(Options(stack=str(path), folder=root, faults=faults), view_for(sys.stderr)) as session:
        yield session


def held(root: Path) -> Held:
    """(type, ID) of each resource in the cloud."""
    return {(type_, identity) for type_, identity, _ in cloud_resources(root) if type_ not in NOT_IMPORTED}


def _do(session: Session, action: str) -> OperationResult:
    operation = perform(session, action)
    assert operation.ok, errors_of(operation)
    return operation


def declared(stack: str) -> str:
    """The stack file."""
    provider, where, storage, rest = WHERE[stack]
    return STACK.format(provider=provider, where=where, storage=storage, rest=rest)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_stacks_have_every_retained_type(cloud: str) -> None:
    """The stacks of the test below create each type of resource that `destroy` can retain on the cloud."""
    made: set[str] = set()
    for stack in (one for one in WHERE if one.partition("-")[0] == cloud):
        spec = parse_spec(YAML(typ="safe").load(declared(stack))["config"]["gpuinfra:cluster"])
        made |= {one.type for one in cloud_of(cloud).resources(build_plan(spec, date(2026, 11, 22))) if one.retained}
    assert {row.type for row in cloud_of(cloud).resource_kinds if row.lifetime.retained is not None} == made


@pytest.mark.long
@pytest.mark.parametrize("stack", sorted(WHERE))
def test_retained_resources_survive_every_order(stack: str, tmp_path: Path) -> None:
    """A destroy after an import fails and deletes no retained resource, and the next `up` replaces none."""
    path, root = tmp_path / f"Pulumi.{stack}-lab.yaml", tmp_path / "r"
    path.write_text(declared(stack), encoding="utf-8")
    folder = root / f"{stack}-lab"
    with session_of(path, root) as session:
        _do(session, "up")
        everything = Counter(type_ for type_, _ in held(folder))
        _do(session, "destroy")
        retained = held(folder)
        assert len(retained) > 5
        for _ in range(2):
            assert session.adopt() > 5
            assert not perform(session, "destroy").ok
            assert retained <= held(folder)
            operation = _do(session, "up")
            assert [op for op, _ in operation.progress.changed if op not in ("create", "update")] == []
            assert retained <= held(folder)
            assert Counter(type_ for type_, _ in held(folder)) == everything
            again = _do(session, "up").progress
            # Each `up` verifies the nodes again.
            assert [urn for _, urn in again.changed if "NodesReady" not in urn] == []
            _do(session, "destroy")
            assert {one for one in held(folder) if one in retained} == retained
            assert len(held(folder)) == len(retained)
