"""Clones of shipped stacks are clusters like any other: their whole life passes in the second region."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.region.clone.stacks import cloned, file_of, saved

from .conftest import Rehearse, assert_lived

CLONES = {"aws-p4d": "us-west-2", "azure-ndv4": "eastus2", "gcp-a3high": "us-east4"}


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
@pytest.mark.parametrize("stack", CLONES)
def test_life_of_a_clone(rehearse: Rehearse, stack: str, tmp_path: Path) -> None:
    """The clone in another region passes each step under the minimum permissions, as the original does."""
    file = saved(cloned(file_of(stack), CLONES[stack], mode="hot"), tmp_path)
    result = rehearse("life", str(file), "--under-least-permissions")
    assert_lived(result)
    assert CLONES[stack] in result.out


@pytest.mark.long
@pytest.mark.usefixtures("needs_nodes")
def test_pilot_light_adds_nodes_to_the_base(rehearse: Rehearse, tmp_path: Path) -> None:
    """The stack with the nodes uses the foundation and the site of the stack that is deployed in advance."""
    result = cloned(file_of("aws-p4d"), "us-west-2", mode="pilot-light")
    nodes = saved(result, tmp_path)
    for file in (tmp_path / result.files[0].path.name, nodes):
        up = rehearse("up", str(file))
        assert up.code == 0, up.out[-6000:] + up.err
    assert up.report["totals"]["nodes_verified"] == 4
