"""The entries of `fallback`: each is checked as the declaration that it leads to."""

from __future__ import annotations

import pytest

from gpuinfra.base.findings import Level
from gpuinfra.rules import check
from gpuinfra.spec.load import parse_spec

from .cases import TODAY, declaration


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"zone": "use2-az1"}, "pools[0].zone is 'use2-az1', which is in us-east-2"),
        ({"machine": "a3-megagpu-8g"}, "which is not in the catalog"),
        ({"capacity": {"kind": "reserved", "count": 2}}, "pools[0].capacity[0] has neither id nor group_arn"),
        ({}, "has no zone, machine or capacity"),
    ],
)
def test_entry_that_leads_to_an_error_is_rejected(entry: dict[str, object], words: str) -> None:
    """The error names the entry and the error of the declaration with it."""
    found = check(parse_spec(declaration(("aws", {"pools.0.fallback": [{"zone": "use1-az6"}, entry]}))), TODAY)
    errors = [one for one in found if one.level is Level.ERROR]
    assert [one.path.removesuffix(".machine") for one in errors] == ["pools[0].fallback[1]"], found
    assert words in str(errors[0])


def test_entry_of_another_zone_is_accepted() -> None:
    """A zone that offers the machine type is no error."""
    found = check(parse_spec(declaration(("aws", {"pools.0.fallback": [{"zone": "use1-az6"}]}))), TODAY)
    assert not [one for one in found if one.level is Level.ERROR]
