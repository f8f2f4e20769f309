"""What can be handed in to a cluster, on each cloud."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pulumi
import pytest

import gpuinfra.existing
from gpuinfra.clouds import why_not_built
from gpuinfra.existing import Existing, Given
from gpuinfra.registry import CLOUDS
from tests.clouds import recorder

BUILT = [cloud for cloud in CLOUDS if not why_not_built(cloud)]


def _table(cloud: str) -> dict[str, Given]:
    return importlib.import_module(f"{CLOUDS[cloud]}.components.cluster").EXISTING


def _typed() -> set[str]:
    """Names that editors and type checkers know."""
    tree = ast.parse(Path(gpuinfra.existing.__file__).read_text())
    signatures = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    return {argument.arg for node in signatures for argument in node.args.kwonlyargs}


@pytest.mark.parametrize("cloud", BUILT)
def test_editors_know_every_name(cloud: str) -> None:
    """Each name of a cloud's table is an argument that an editor offers, with a layer that exists and a sentence."""
    table = _table(cloud)
    assert set(table) <= _typed()
    assert {given.layer for given in table.values()} == {"foundation", "site"}
    assert all(given.what for given in table.values())


def test_editors_know_no_name_that_nobody_uses() -> None:
    """Nothing is offered that every cloud would refuse."""
    assert _typed() <= {name for cloud in BUILT for name in _table(cloud)}


@pytest.mark.parametrize("cloud", BUILT)
def test_a_name_of_another_cloud_is_refused_with_the_ones_that_are_known(cloud: str) -> None:
    """A mistake in what is handed in is found before anything is made."""
    with pytest.raises(ValueError, match=r"Existing has colour, .*known are .*evidence_bucket"):
        Existing(colour="red", evidence_bucket="bucket").joined(_table(cloud), foundation=None, site=None)


def test_what_is_missing_names_who_has_to_give_it() -> None:
    """The message names the layer, the key of `use` and the argument."""
    table = {"vpc_id": Given(layer="site", what="network")}
    existing = Existing().joined(table, foundation=None, site=None)
    with pytest.raises(ValueError, match=r"needs vpc_id; name the stack that made it under use\.site"):
        existing.wanted("vpc_id")
    assert existing.get("vpc_id") is None


def test_a_layer_that_stopped_half_way_is_told_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack whose `up` failed has no outputs; who uses it reads which stack, which output and what to do."""
    monkeypatch.setattr(recorder, "OTHER_STACKS", {"evidence_bucket": "base-evidence"})
    table = {
        "evidence_bucket": Given(layer="foundation", what="bucket"),
        "file_systems": Given(layer="foundation", what="file systems", always=False),
    }

    def using(table: dict[str, Given]) -> None:
        Existing().joined(table, foundation="organization/gpuinfra/base", site=None)

    recorder.record(lambda: using(table))
    said = r"the stack organization/gpuinfra/base has no output network_id: .*pulumi up --stack base"
    with pytest.raises(pulumi.RunError, match=said):
        recorder.record(lambda: using({**table, "network_id": Given(layer="foundation", what="network")}))
