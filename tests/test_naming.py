"""Names of buckets fit, whatever a mount is called, and stay what they were where they fitted before."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gpuinfra import naming

PLACES = [("000000000000", "us-east-1"), ("000000000000", "ap-southeast-5"), ("000000000000", "us-gov-west-1")]
NAME = st.from_regex(r"[a-z]([a-z0-9-]{0,22}[a-z0-9])?", fullmatch=True)
PURPOSE = st.from_regex(r"[a-z]([a-z0-9-]{0,120}[a-z0-9])?", fullmatch=True)


def test_a_short_name_is_what_it_was() -> None:
    """A stack of an earlier release finds its buckets under the names that it gave them."""
    assert (
        naming.bucket_name("train", "evidence", "000000000000", "us-east-1", "0a1b2c3d")
        == "train-evidence-000000000000-us-east-1-0a1b2c3d"
    )


@given(cluster=NAME, purpose=PURPOSE, other=PURPOSE, place=st.sampled_from(PLACES))
def test_a_bucket_s_name_fits(cluster: str, purpose: str, other: str, place: tuple[str, str]) -> None:
    """63 letters, from a letter or digit to one; two purposes of one cluster never share a name."""
    made = naming.bucket_name(cluster, purpose, *place, "0a1b2c3d")
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", made), made
    if purpose != other:
        assert made != naming.bucket_name(cluster, other, *place, "0a1b2c3d")
