"""The programs of docs/reference/gcp.md run: one component on existing resources, in at most fifteen lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clouds.gcp import requests
from tests.clouds.gcp.discovery import findings
from tests.clouds.gcp.test_requests import requests_compute, requests_other
from tests.clouds.recorder import record

assert requests_compute, requests_other

PAGE = Path(__file__).parents[3] / "docs/reference/gcp.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
EXPECTED = (
    {
        "gcp:compute/instanceTemplate:InstanceTemplate": 1,
        "gcp:compute/instanceGroupManager:InstanceGroupManager": 1,
        "gcp:serviceaccount/account:Account": 1,
        "gcp:storage/bucketIAMMember:BucketIAMMember": 3,
        "gcp:storage/bucketObject:BucketObject": 1,
        "gpuinfra:index:NodesReady": 1,
    },
    {
        "gcp:lustre/instance:Instance": 1,
        "gcp:projects/serviceIdentity:ServiceIdentity": 1,
        "gcp:storage/bucket:Bucket": 1,
        "gcp:storage/bucketIAMMember:BucketIAMMember": 2,
    },
)


def _program(text: str) -> Callable[[], None]:
    return lambda: exec(compile(text, str(PAGE), "exec"), {})


@pytest.mark.parametrize(("index", "expected"), list(enumerate(EXPECTED)))
def test_a_component_alone_is_a_short_program(index: int, expected: dict[str, int]) -> None:
    """Each has at most fifteen lines and creates the stated resources only, and Google's documents accept the requests."""
    assert len([line for line in PROGRAMS[index].splitlines() if line.strip()]) <= 15
    recording = record(_program(PROGRAMS[index]))
    found: dict[str, int] = {}
    for one in recording.custom:
        found[one.type] = found.get(one.type, 0) + 1
        if one.type not in requests.NO_CALL:
            assert [problem for call in requests.calls(one) for problem in findings(call)] == []
    assert found == expected


def test_all_programs_are_tested() -> None:
    """The page has no program without a test. `test_recovery.py` tests the program with a second region."""
    assert len(PROGRAMS) == len(EXPECTED)
