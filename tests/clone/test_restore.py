"""The clone of a stack whose Lustre file system was created from a backup."""

from __future__ import annotations

from pathlib import Path

from gpuinfra.spec.load import read_stack
from tests.clone.stacks import cloned, saved

STACK = """\
config:
  aws:region: us-east-1
  gpuinfra:cluster:
    name: train
    where: {cloud: aws, region: us-east-1, zone: use1-az4}
    pools:
      - {name: gpu, machine: p4d.24xlarge, capacity: [{kind: on_demand, count: 2}]}
    storage:
      - {kind: lustre, mount: /scratch, capacity_gib: 4800, restore_from: backup-0123456789abcdef0}
"""


def test_the_clone_does_not_restore_a_backup_of_another_region(tmp_path: Path) -> None:
    """The clone starts without the backup, and a comment names the option that sets a copy of it."""
    path = tmp_path / "Pulumi.train.yaml"
    path.write_text(STACK, encoding="utf-8")
    result = cloned(path, "us-west-2")
    made = saved(result, tmp_path)
    (entry,) = read_stack(made).spec.storage
    assert entry.kind == "lustre"
    assert entry.restore_from is None
    text = "\n".join(one.text for one in result.files)
    assert "set storage[0].restore_from with --set" in text


def test_the_clone_on_another_cloud_names_no_option(tmp_path: Path) -> None:
    """On a cloud without backups, the clone starts without the backup, and no comment names an option that this cloud rejects."""
    path = tmp_path / "Pulumi.train.yaml"
    path.write_text(STACK, encoding="utf-8")
    result = cloned(path, "us-central1", cloud="gcp", values=(("pools[0].fabric", "none"),))
    text = "\n".join(one.text for one in result.files)
    assert text
    assert "restore_from: backup" not in text
    assert "restore_from with --set" not in text
