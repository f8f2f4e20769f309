"""The public names of the package are recorded in `public_names.txt`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from gpuinfra.base.registry import CLOUDS

RECORD = Path(__file__).with_name("public_names.txt")


def public_names() -> Iterator[str]:
    """The names in `__all__` of the package and of each cloud."""
    for module in ("gpuinfra", *CLOUDS.values()):
        for name in importlib.import_module(module).__all__:
            yield f"{module}.{name}"


def test_the_public_names_are_the_recorded_ones() -> None:
    """A name that is removed breaks programs, so it is announced in the changelog and removed from the record. A new name is recorded."""
    recorded, found = RECORD.read_text().split(), sorted(public_names())
    assert recorded == sorted(recorded)
    removed, added = sorted({*recorded} - {*found}), sorted({*found} - {*recorded})
    assert not removed, (
        f"removed: {removed}; announce the removal in CHANGELOG.md and remove the names from {RECORD.name}"
    )
    assert not added, f"new: {added}; add the names to {RECORD.name}"


def test_each_public_name_is_an_object() -> None:
    """Each recorded name can be imported."""
    for name in RECORD.read_text().split():
        module, _, attribute = name.rpartition(".")
        assert getattr(importlib.import_module(module), attribute) is not None
