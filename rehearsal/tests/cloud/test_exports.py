"""The exports of a failover, with the requests of gpuinfra to a stand-in cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinfra.clouds.aws.region import exports as aws
from gpuinfra.clouds.cloud import cloud_of
from gpuinfra.region.failover.newest import export_all
from gpuinfra.spec.load import read_stack
from tests.region.clone.deployed import Deployed
from tests.region.clone.stacks import file_of


@pytest.mark.long
@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_file_systems_of_a_shipped_stack_export(cloud: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state lists the file system, and the export ends. On AWS, the metric is read; on the other clouds, an export starts."""
    monkeypatch.setattr(aws, "SETTLED", aws.timedelta())
    stack = read_stack(file_of(f"{cloud}-recovery"))
    one = Deployed(stack, tmp_path)
    try:
        for name, value in one.environment.items():
            monkeypatch.setenv(name, value)
        exports = cloud_of(cloud).exports(stack.spec.where.region, stack.config)
        assert exports is not None
        (file_system,) = exports.exporting(one.resources)
        assert export_all(exports, one.resources, [None] * 3, 60).startswith("exported: ")
        assert file_system
        # What an export reports is no input, so the next deployment does not replace the file system.
        for system in one.cloud.store.list("azure-native:storagecache:AmlFilesystem"):
            assert system.outputs["hsm"]["archiveStatus"], "the export is not reported"
            assert set(system.inputs["hsm"]) == {"settings"}
    finally:
        one.close()
