"""What a Pulumi program reads of its own last deployment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pulumi
import pytest

from gpuinfra.clouds import saved
from gpuinfra.clouds.saved import never_smaller, saved_resources

VOLUME = "aws:ebs/volume:Volume"
URN = f"urn:pulumi:s::p::gpuinfra:index:GpuCluster${VOLUME}::train-monitoring-data"


def test_outputs_that_are_being_written_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state in files can be incomplete during a read. The program reads it again, and fails only if all attempts fail."""
    attempts = list[int]()

    def invoke(*_: object) -> SimpleNamespace:
        attempts.append(1)
        if len(attempts) < 3:
            raise Exception("failed to load checkpoint: EOF")  # the type of the SDK
        return SimpleNamespace(value={"outputs": {"urn:a": {"id": "a"}}})

    monkeypatch.setattr(pulumi.runtime, "invoke", invoke)
    monkeypatch.setattr(saved, "PAUSE_S", 0.0)
    assert saved_resources() == [{"urn": "urn:a", "id": "a"}]
    attempts.clear()
    with pytest.raises(pulumi.RunError, match=r"does not return the outputs of .*: failed to load checkpoint: EOF"):
        saved_resources(reads=2)


@pytest.mark.parametrize(
    ("existing", "size"),
    [
        ({}, 63),
        ({URN: {"type": VOLUME, "outputs": {"size": 500.0}}}, 500),
        ({URN: {"type": VOLUME, "outputs": {"size": 10.0}}}, 63),
        ({URN.replace("train", "other"): {"type": VOLUME, "outputs": {"size": 500.0}}}, 63),
    ],
    ids=["new", "larger", "smaller", "of another cluster"],
)
def test_a_disk_never_becomes_smaller(existing: dict[str, Any], size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that needs less space keeps the size of the existing disk, and one that needs more makes it larger."""
    monkeypatch.setattr(pulumi.runtime, "invoke", lambda *_: SimpleNamespace(value={"outputs": existing}))
    assert never_smaller(63, VOLUME, "train-monitoring-data", "size") == size
