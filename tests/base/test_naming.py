"""Bucket names are within the limit for every mount."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gpuinfra.base import naming

PLACES = [("000000000000", "us-east-1"), ("000000000000", "ap-southeast-5"), ("000000000000", "us-gov-west-1")]
NAME = st.from_regex(r"[a-z]([a-z0-9-]{0,22}[a-z0-9])?", fullmatch=True)
PURPOSE = st.from_regex(r"[a-z]([a-z0-9-]{0,120}[a-z0-9])?", fullmatch=True)


def test_short_bucket_names_are_not_changed() -> None:
    """A short bucket name contains the full name of the cluster and the purpose."""
    assert (
        naming.bucket_name("train", "evidence", "000000000000", "us-east-1", "0a1b2c3d")
        == "train-evidence-000000000000-us-east-1-0a1b2c3d"
    )


@given(cluster=NAME, purpose=PURPOSE, other=PURPOSE, place=st.sampled_from(PLACES))
def test_bucket_names_are_valid_and_unique(cluster: str, purpose: str, other: str, place: tuple[str, str]) -> None:
    """At most 63 characters that start and end with a letter or digit, and unique for each purpose of a cluster."""
    made = naming.bucket_name(cluster, purpose, *place, "0a1b2c3d")
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", made), made
    if purpose != other:
        assert made != naming.bucket_name(cluster, other, *place, "0a1b2c3d")
