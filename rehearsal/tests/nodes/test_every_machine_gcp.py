"""Each kind of machine of this cloud becomes a verified node, on its default image and on plain Ubuntu."""

from __future__ import annotations

import pytest

from gpuinfra_rehearsal.nodes import NodeHost
from rehearsal.tests.nodes.every_machine import IMAGES, becomes_verified
from rehearsal.tests.nodes.machines import host, metadata
from tests.plan.pools import representatives

__all__ = ["host", "metadata"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("machine", "image"), [(one, image) for image in IMAGES for one in representatives("gcp", image)]
)
def test_every_machine_becomes_verified(host: NodeHost, machine: str, image: str) -> None:
    """All steps end, and every check that this machine requires passes or is skipped for a listed reason."""
    becomes_verified(host, "gcp", machine, image)
