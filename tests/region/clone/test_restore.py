"""The clone of a stack whose file systems were created from backups."""

from __future__ import annotations

from pathlib import Path

from gpuinfra.spec.load import read_stack
from tests.region.clone.stacks import cloned, saved

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


HOMES = STACK.replace(
    "{kind: lustre, mount: /scratch, capacity_gib: 4800, restore_from: backup-0123456789abcdef0}",
    "{kind: home, service: openzfs, throughput_mb_s: 320, backup_days: 7, restore_from: backup-0123456789abcdef0}",
)


def test_the_clone_of_home_directories_in_another_region_has_their_settings(tmp_path: Path) -> None:
    """The clone in another region has the service and its settings, and starts without the backup and with a warning."""
    path = tmp_path / "Pulumi.train.yaml"
    path.write_text(HOMES, encoding="utf-8")
    result = cloned(path, "us-west-2")
    (entry,) = read_stack(saved(result, tmp_path)).spec.storage
    assert entry.kind == "home"
    assert (entry.service, entry.throughput_mb_s, entry.backup_days, entry.restore_from) == ("openzfs", 320, 7, None)
    assert "starts with an empty /home" in "\n".join(str(one) for one in result.findings)


def test_the_clone_of_home_directories_on_another_cloud_uses_a_service_of_that_cloud(tmp_path: Path) -> None:
    """On a cloud without the service, the clone uses the default service, without the settings that it does not have."""
    path = tmp_path / "Pulumi.train.yaml"
    path.write_text(HOMES, encoding="utf-8")
    result = cloned(path, "us-central1", cloud="gcp", values=(("pools[0].fabric", "none"),))
    text = "\n".join(one.text for one in result.files)
    assert "kind: home" in text
    assert "service: openzfs" not in text
    assert "throughput_mb_s: 320" not in text
    assert "backup_days: 7" not in text
    assert not [one for one in result.findings if one.path.startswith("storage") and one.level == "error"]
