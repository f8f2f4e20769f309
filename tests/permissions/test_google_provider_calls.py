"""The least role of a Google Cloud stack covers the recorded requests of the real provider."""

from __future__ import annotations

import pytest

from gpuinfra.clouds.gcp.permissions import ASKED, PROJECT
from gpuinfra.clouds.gcp.resources import RESOURCES
from gpuinfra_rehearsal.cloud.gcp import calls

ROWS = {row.type: [one for one in RESOURCES if one.type == row.type] for row in RESOURCES}
CASES = [(type_, operation) for type_ in calls.types() for operation in ("create", "delete")]


@pytest.mark.parametrize(("type_", "operation"), CASES)
def test_the_table_lists_the_permission_of_each_request(type_: str, operation: str) -> None:
    """Each request of a create has a permission in the row, and each request of a delete has one if the stack deletes such resources."""
    for row in ROWS[type_]:
        if operation == "delete" and row.lifetime.retained is not None and not row.lifetime.with_data:
            continue
        words = " ".join((row.actions.create, row.actions.read, row.actions.update, row.actions.delete)).split()
        known = {word.partition("?")[0] for word in words} | set(ASKED[PROJECT])
        assert set(calls.permissions(type_, operation)) <= known, row.name


def test_every_type_of_a_request_is_in_the_table() -> None:
    """No recorded type is unknown to the table."""
    assert [one for one in calls.types() if one not in ROWS] == []
