"""The names of the buckets of a drill in other accounts."""

from __future__ import annotations

import re

import pytest

from gpuinfra.clouds.gcp.names import bucket
from gpuinfra_rehearsal.object_stores import pattern_of

REPLICA, OTHER = (bucket("train", "scratch-0-us-east4", project, "0a1b2c3d") for project in ("standin-project", "mine"))


@pytest.mark.parametrize(
    ("cloud", "replica", "given", "found"),
    [
        ("aws", "train-scratch-000000000000-us-west-2-0a1b", "train-scratch-123456789012-us-west-2-0a1b", True),
        ("aws", "train-scratch-000000000000-us-west-2-0a1b", "train-home-123456789012-us-west-2-0a1b", False),
        ("gcp", REPLICA, OTHER, True),
        ("gcp", REPLICA, OTHER.replace("scratch-0", "scratch-1"), False),
    ],
)
def test_a_replica_is_found_in_another_account(cloud: str, replica: str, given: str, found: bool) -> None:
    """The name of the same bucket in a real account matches, and the name of another bucket does not."""
    assert bool(re.fullmatch(pattern_of(cloud, replica), given)) is found
